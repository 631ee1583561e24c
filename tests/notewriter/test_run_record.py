"""run.json tells what a run was started with, and each resumption that differs."""

import dataclasses
import json
from pathlib import Path

import pytest

from notewriter import __version__
from notewriter.artifacts.run_folder import open_run
from notewriter.errors import UserError
from notewriter.records import Question
from notewriter.run_record import NAME, add_start, read_run_record, start_of


def test_a_run_records_code_packages_machine_seeds_and_inputs(tmp_path: Path) -> None:
    config = {"seed": 3, "data_seed": None, "limit": 5, "prompts_dir": str(tmp_path / "prompts")}
    (tmp_path / "prompts").mkdir()
    with open_run(tmp_path / "run", config, [Question("q", "Who?", ("x",))]) as folder:
        pass
    record = read_run_record(folder)
    assert record is not None
    (start,) = record.starts
    assert (start.version, start.seeds) == (__version__, {"seed": 3})
    assert set(start.inputs) == {"questions", f"prompts_dir: {tmp_path / 'prompts'}"}
    assert start.inputs["questions"] == (folder / "questions.sha256").read_text().strip()
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
