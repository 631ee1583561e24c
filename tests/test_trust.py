"""What lies in a folder of somebody else's chooses no code and no address; a command ends in a line at worst.

Every command that reads run folders or data is walked over the fields that can name an object or an address. Files of
such folders are replaced by links, pipes, folders and other texts, by a fixed draw; `NOTEWRITER_DAMAGE=all` in the
environment tries every field, every file and every kind.
"""

import json
import logging
import os
import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub
import pytest
import yaml
from bad_inputs import COMMANDS, QUESTIONS, arguments_of, attempt, is_clean, make
from fake_endpoint import fake_endpoint, knowing
from huggingface_hub.errors import OfflineModeIsEnabled
from json_service import Service, json_service
from test_damage import EVERYTHING, SECONDS, late, read, write

from notewriter import cli
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.experiments import lineage
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.results import report

CODE = "evil.py:X"
KEY, SECRET = "KEY_OF_ANOTHER_SERVICE", "not-a-real-key-0123456789"
SEED, DRAWN = 5, 1

RESULTS = {
    "output_dir": ".",
    "runs": [{"title": "nothing", "command": "true", "result": "noted/metrics.json"}],
    "results": {
        "title": "A page",
        "text": "Of one run.",
        "sets": {"noted": "noted"},
        "cells": {"noted": "{{ set }}"},
        "metrics": ["f1", "note_fact_recall", "next_recall"],
    },
}
PAIRS = ["--pairs", "pairs"]
READ_BY = {
    "noted": {
        "compare": ["compare", "--before", "noted", "--after", "noted"],
        "report": ["report", "--runs", "noted", "--output", "report.html"],
        "report --worth": ["report", "--worth", "--runs", "noted"],
        "report --worth without a search": ["report", "--worth", "--runs", "noted", "--further", "0"],
        "fit-control": ["fit-control", "--runs", "noted", "--output", "weights.json"],
        "overlap": ["overlap", "--data", "chains", "--runs", "noted"],
        "results": ["table", "results.yaml", "--output", "results.md"],
        "lineage": ["lineage", "noted"],
        "judge": ["judge", "--config", "judge.yaml", "--runs", "noted"],
        "app labels": ["app", "labels", "--runs", "run", "noted", "--labels", "labels"],
    },
    "pairs": {
        "inspect": ["inspect", *PAIRS, "--output", "pairs.html"],
        "overlap": ["overlap", "--data", "pairs", "--eval_files", '{"musique.jsonl": "musique"}'],
        "lineage": ["lineage", "pairs"],
        "preflight": ["preflight", "--model_name_or_path", "absent", *PAIRS],
        "app labels": ["app", "labels", *PAIRS, "--labels", "labels"],
        "publish": ["publish", "--data", "pairs", "--data_repo_id", "me/x", "--dry_run"],
    },
    "chains": {
        "inspect": ["inspect", "--chains", "chains", "--output", "chains.html"],
        "overlap": ["overlap", "--data", "chains", "--eval_files", '{"musique.jsonl": "musique"}'],
        "lineage": ["lineage", "chains"],
        "publish": ["publish", "--data", "chains", "--data_repo_id", "me/x", "--dry_run"],
    },
    "index": {"ask": COMMANDS["ask"], "lineage": ["lineage", "noted"]},
}
"""Folder of somebody else's -> the commands that read it."""

FILES = {
    "noted": ["config.yaml", "metrics.json", "run.json", "predictions.jsonl", "traces.jsonl", "costs.json"],
    "pairs": ["config.yaml", "stats.json", "run.json", "rollouts.jsonl", "train.parquet", "README.md"],
    "chains": ["config.yaml", "stats.json", "run.json", "rollouts.jsonl", "train.parquet", "README.md"],
    "index": ["manifest.json", "files.json"],
}


def options_that_name_objects() -> set[str]:
    """The options of all commands whose values may say where an object is."""
    commands = set(cli.COMMANDS) - {"train", "preflight", "table", "fetch"}
    kinds = {kind for command in commands for kind in arguments_of(command)}
    return {each.name for kind in kinds for each in fields(kind) if each.metadata.get("names")}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where every command has run once, with a file beside it that leaves a mark when it is imported."""
    folder = tmp_path_factory.mktemp("done")
    with fake_endpoint(knowing({each["question"]: each["answers"][0] for each in QUESTIONS})) as endpoint:
        make(folder, endpoint)
        noted = [*COMMANDS["evaluate"], "--method", "deepnote", "--output_dir", "noted", "--controls"]
        assert attempt(folder, noted) == (0, [])
        # Its libraries take long to import, which is no part of a case.
        attempt(folder, READ_BY["pairs"]["preflight"])
        (folder / "evil.py").write_text("open('RAN', 'w').close()\nX = None\n")
        (folder / "results.yaml").write_text(yaml.safe_dump(RESULTS, sort_keys=False))
        yield folder


@pytest.fixture
def place(done: Path, tmp_path: Path) -> Path:
    """A copy of it, to change something in."""
    return Path(shutil.copytree(done, tmp_path / "place"))


@pytest.fixture
def elsewhere() -> Iterator[Service]:
    """An address that nobody but a folder names."""
    with json_service(lambda request: {"result": [[]]}) as service:
        yield service


def end_of(place: Path, argv: list[str]) -> str:
    """How a command ends; empty if it is done or says in one line what is wrong."""
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        result = attempt(place, argv)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "" if is_clean(result) else str(result)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts, lists and nothing are in a record, at any depth; of a list the first item stands for all."""
    if place and (value is None or isinstance(value, str | list)):
        yield place
    for key in value if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ():
        yield from places(value[key], (*place, key))


def changed(record: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A record with another value at a place."""
    record = json.loads(json.dumps(record))
    inside = record
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return record


VALUES: list[Any] = [CODE, [CODE], {"a": CODE}, {CODE: "index"}, [{CODE: "index"}, {"index": "index"}]]
"""An object's place as a name, among names, as the key of a retriever's part."""


def test_the_fields_that_can_name_an_object_are_those_of_our_tables() -> None:
    assert options_that_name_objects() == {
        *("dataset", "method", "family", "retriever", "chains", "eval_files", "stages")
    }


@pytest.mark.parametrize(
    ("folder", "name"),
    [(folder, name) for folder in FILES for name in FILES[folder] if name not in ("README.md", "files.json")],
)
def test_no_field_of_a_folder_chooses_code(place: Path, folder: str, name: str) -> None:
    """Each field that can name an object, and a draw of all others, of each file, in each command that reads it."""
    path = place / folder / name
    whole, record = path.read_bytes(), read(path)
    named = options_that_name_objects()
    if name == "config.yaml":
        record = dict.fromkeys(sorted(named)) | record
    all_places = list(places(record))
    cases = [each for each in all_places if each[-1] in named or {*each[:1]} & named]
    others = [each for each in all_places if each not in cases]
    cases += others if EVERYTHING else random.Random(f"{SEED} {folder}/{name}").sample(others, min(DRAWN, len(others)))
    faults = []
    for where in cases:
        draw = random.Random(f"{SEED} {where}")
        for value in (
            VALUES if EVERYTHING else {json.dumps(each): each for each in (CODE, draw.choice(VALUES))}.values()
        ):
            try:
                write(path, changed(record, where, value), whole)
            except (ValueError, TypeError):
                # Parquet has no such column.
                continue
            for command, argv in READ_BY[folder].items():
                ended = end_of(place, argv)
                if (place / "RAN").exists():
                    (place / "RAN").unlink()
                    ended = f"RAN THE FOLDER'S CODE {ended}"
                if ended:
                    faults.append(f"{'/'.join(map(str, where))}: {value}, {command}: {ended[:300]}")
    assert cases and not faults, "\n".join(faults)


def test_no_field_of_a_folder_chooses_an_address_or_a_key(
    place: Path, elsewhere: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retrievers, rerankers, models and keys of a run's configuration, in each command that reads a run."""
    monkeypatch.setenv(KEY, SECRET)
    keyed = {"api_key_env": KEY}
    model = {"base_url": f"{elsewhere.url}/v1", "model": "m", **keyed}
    configurations: dict[str, dict[str, Any]] = {
        "url": {"retriever": [{"url": elsewhere.url, **keyed}]},
        "web": {"retriever": [{"web": f"{elsewhere.url}/search", **keyed}]},
        "llm_rerank": {
            "retriever": [{"index": "index"}, {"llm_rerank": "m", "base_url": f"{elsewhere.url}/v1", **keyed}]
        },
        "chains": {"chains": {"a": [{"url": elsewhere.url, **keyed}]}},
        "model": model,
        "models": {"models": {"policy": model, "notes": model, "judge": model}},
        "index": {"index": [elsewhere.url]},
        "path": {"path": f"{elsewhere.url}/questions.jsonl"},
        "serve": {"serve": f"{elsewhere.url}/model", "model_name_or_path": elsewhere.url},
    }
    for folder in ("noted", "pairs", "chains"):
        path = place / folder / "config.yaml"
        own = yaml.safe_load(path.read_text())
        for what, settings in configurations.items():
            path.write_text(yaml.safe_dump(own | ({"index": None} if "retriever" in settings else {}) | settings))
            for command, argv in READ_BY[folder].items():
                assert end_of(place, argv) == "", (folder, what, command)
                assert not elsewhere.requests, (folder, what, command)
        path.write_text(yaml.safe_dump(own))


def test_worth_searches_in_a_retriever_of_its_own_or_in_the_local_index_of_the_run_and_says_so(
    place: Path, elsewhere: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with caplog.at_level(logging.INFO):
        report.main(["--worth", "--runs", "noted"])
    assert "noted: searched again in {'index': 'index'}, as its config.yaml names it" in caplog.text
    path = place / "noted/config.yaml"
    remote = {"index": None, "retriever": [{"index": "index"}, {"url": elsewhere.url}]}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | remote))
    with pytest.raises(UserError, match=r"noted/config.yaml: retriever: url: an address .* --index or --retriever"):
        report.main(["--worth", "--runs", "noted"])
    report.main(["--worth", "--runs", "noted", "--index", "index"])
    assert not elsewhere.requests
    assert "in the retriever of this command" in (place / "report.html").read_text()


def test_lineage_tells_what_the_run_recorded_of_a_server(place: Path, elsewhere: Service) -> None:
    path, record = place / "noted/config.yaml", place / "noted/run.json"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"retriever": [{"url": elsewhere.url}]}))
    run = json.loads(record.read_text())
    run["starts"][0]["inputs"]["retriever: server 0"] = "abcdef0123456789"
    record.write_text(json.dumps(run))
    lines = lineage.lineage(place / "noted")
    assert "  retriever: server 0: was abcdef012345; a server that a folder names is not asked" in lines
    assert not elsewhere.requests


def test_a_hub_id_of_a_folder_is_not_looked_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def model_info(self: Any, name: str, **_: Any) -> NoReturn:
        if not huggingface_hub.constants.is_offline_mode():
            asked.append(name)
        raise OfflineModeIsEnabled(name)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    (place / "adapter").mkdir()
    adapter = {"peft_type": "LORA", "base_model_name_or_path": "strangers/base", "r": 2}
    (place / "adapter/adapter_config.json").write_text(json.dumps(adapter))
    path = place / "noted/config.yaml"
    own = yaml.safe_load(path.read_text())
    for settings in ({"serve": "strangers/model"}, {"models": {"notes": {"serve": "adapter"}}}):
        path.write_text(yaml.safe_dump(own | settings))
        assert end_of(place, ["lineage", "noted"]) == ""
    assert asked == []


def test_a_model_that_was_trained_from_itself_has_an_end(place: Path) -> None:
    path = place / "noted/config.yaml"
    own = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(own | {"serve": "noted", "model_name_or_path": "noted"}))
    for command in ("results", "lineage", "report"):
        assert end_of(place, READ_BY["noted"][command]) == "", command


def test_a_run_of_ones_own_is_compared_when_its_code_is_named_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "mine.py").write_text(
        "from dataclasses import replace\n"
        "from notewriter.datasets import BENCHMARKS\nfrom notewriter.evaluation.metrics import FAMILIES\n"
        "QUESTIONS = replace(BENCHMARKS['jsonl'])\nFAMILY = replace(FAMILIES['hotpotqa'])\n"
    )
    own = [
        "--dataset",
        "mine.py:QUESTIONS",
        "--family",
        "mine.py:FAMILY",
        "--method",
        "deepnote",
        "--output_dir",
        "own",
    ]
    assert attempt(place, [*COMMANDS["evaluate"], *own]) == (0, [])
    # As in another process, where nothing has been imported yet.
    monkeypatch.setattr(plugins, "_LOADED", {})
    for table in (BENCHMARKS, FAMILIES):
        for name in [name for name in table if name.startswith("mine.py:")]:
            del table[name]
    commands = {
        "report --worth": ["report", "--worth", "--runs", "own"],
        "overlap": ["overlap", "--data", "chains", "--runs", "own"],
        "compare": ["compare", "--before", "own", "--after", "own"],
        "report": ["report", "--runs", "own", "--output", "report.html"],
        "lineage": ["lineage", "own"],
    }
    for name, argv in commands.items():
        code, lines = attempt(place, argv)
        assert code == 0 or (len(lines) == 1 and "add --plugins mine.py:" in lines[0]), name
    for argv in commands.values():
        assert "--plugins" not in str(attempt(place, [*argv, "--plugins", "mine.py:QUESTIONS", "mine.py:FAMILY"]))


KINDS = ("link outside", "link to nothing", "link to itself", "pipe", "folder", "empty", "bytes", "deep", "aliases")


def put(path: Path, kind: str) -> None:
    """Something else in the place of a file."""
    path.unlink()
    if kind == "link outside":
        path.symlink_to("/etc/hostname")
    elif kind == "link to nothing":
        path.symlink_to("absent")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        lines = [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 9)}]" for each in range(1, 40)]
        aliases = "\n".join(["a0: &a0 [x]", *lines])
        path.write_bytes({"empty": b"", "bytes": bytes(range(256)), "deep": b"[" * 100_000}.get(kind, aliases.encode()))


@pytest.mark.parametrize(("folder", "name"), [(folder, name) for folder in FILES for name in FILES[folder]])
def test_whatever_lies_in_the_place_of_a_file_a_command_is_done_or_says_so_in_a_line(
    done: Path, tmp_path: Path, folder: str, name: str
) -> None:
    draw, faults = random.Random(f"{SEED} {folder}/{name}"), []
    for kind in KINDS if EVERYTHING else draw.sample(KINDS, 2):
        for command, argv in READ_BY[folder].items():
            shutil.copytree(done, tmp_path / "place")
            put(tmp_path / "place" / folder / name, kind)
            if ended := end_of(tmp_path / "place", argv):
                faults.append(f"{kind}, {command}: {ended[:300]}")
            shutil.rmtree(tmp_path / "place")
    assert not faults, "\n".join(faults)
