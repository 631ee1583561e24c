"""run.json tells what a run was started with, and each resumption that differs."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from notewriter import __version__
from notewriter.artifacts.journal import ResumeArguments
from notewriter.artifacts.run_folder import RunFolder
from notewriter.artifacts.run_record import NAME, add_start, read_run_record, start_of
from notewriter.ground.config import command_line, parse
from notewriter.ground.errors import UserError


def test_the_command_is_recorded_with_the_hash_of_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "index.yaml").write_text("dataset: jsonl\n")
    argv = [f"--config={tmp_path / 'index.yaml'}", "--index", "i"]
    start = start_of({}, {}, command_line("notewriter index", argv))
    assert start.command == ["notewriter", "index", "--config", str(tmp_path / "index.yaml"), "--index", "i"]
    digest = hashlib.sha256(b"dataset: jsonl\n").hexdigest()
    assert start.inputs[f"config: {tmp_path / 'index.yaml'}"] == digest


def test_a_run_from_python_has_no_command(tmp_path: Path) -> None:
    parse(ResumeArguments, [], prog="notewriter evaluate")
    assert start_of({}, {}).command == []


@pytest.mark.parametrize(
    "token", [["--hub_token", "hf_secret"], ["--hub_token=hf_secret"], ["--hub-token", "hf_secret"]]
)
def test_secrets_are_not_recorded(token: list[str]) -> None:
    @dataclass
    class Arguments:
        hub_token: str = field(metadata={"secret": True})
        seed: int = 0

    (given,) = parse(Arguments, [*token, "--seed", "3"], prog="train")
    assert given.hub_token == "hf_secret"
    assert command_line("train", [*token, "--seed", "3"], Arguments) == ["train", "--seed", "3"]


def test_a_run_records_code_packages_machine_seeds_and_inputs(tmp_path: Path) -> None:
    settings = {"seed": 3, "data_seed": None, "limit": 5}
    inputs = {"questions": "0" * 64}
    with RunFolder(tmp_path / "run", settings, inputs, lambda stored, now: {}, lambda: {"prompts_dir: p": "1"}).open():
        pass
    folder = tmp_path / "run"
    record = read_run_record(folder)
    assert record is not None
    (start,) = record.starts
    assert (start.version, start.seeds) == (__version__, {"seed": 3})
    assert set(start.inputs) == {"questions", "prompts_dir: p"}
    assert {"python", "torch"} <= set(start.packages)
    assert isinstance(start.hardware["cpus"], int)


def test_a_resumption_is_recorded_where_it_differs(tmp_path: Path) -> None:
    start = start_of({"seed": 1}, {"pairs": "a" * 64})
    add_start(tmp_path, start)
    add_start(tmp_path, start)
    later = dataclasses.replace(start, commit="b" * 40)
    add_start(tmp_path, later)
    record = read_run_record(tmp_path)
    assert record is not None
    assert record.starts == [start, later]


def test_a_run_of_an_older_version_has_no_record(tmp_path: Path) -> None:
    assert read_run_record(tmp_path) is None


@pytest.mark.parametrize("content", ["[]", '{"schema": "other"}', '{"schema": "notewriter/run/1", "starts": [{}]}'])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    with pytest.raises(UserError, match=r"run\.json"):
        read_run_record(tmp_path)
    assert json.loads((tmp_path / NAME).read_text()) == json.loads(content)
