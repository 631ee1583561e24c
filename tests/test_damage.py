"""Every field of what commands read, damaged: a command is done, or ends in one line that names the file or server.

What is read are artifacts, settings, and the replies of servers. Each field, at any depth, is dropped, retyped, nested,
nulled, negated or emptied, one at a time. Here a fixed draw of them is tried, a kind of damage each;
`NOTEWRITER_DAMAGE=all` in the environment tries all kinds on all fields, which takes about ten minutes of one core.
"""

import copy
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from bad_inputs import COMMANDS, QUESTIONS, attempt, is_one_line, make
from fake_endpoint import FakeEndpoint, fake_endpoint, knowing
from json_service import Request, json_service

from notewriter.ground.records import Passage
from notewriter.models import connection
from notewriter.retrieval.sources import remote

SEED = 11
FIELDS = 3
"""How many fields of a file are drawn."""
SECONDS = 20
"""How long a case may take."""
EVERYTHING = os.environ.get("NOTEWRITER_DAMAGE") == "all"

DROPPED = object()


def _retyped(value: Any) -> Any:
    return 3 if isinstance(value, str) else "soon"


def _negated(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return -value if isinstance(value, int | float) else -1


DAMAGE: dict[str, Callable[[Any], Any]] = {
    "dropped": lambda value: DROPPED,
    "retyped": _retyped,
    "in a list": lambda value: [value],
    "in a mapping": lambda value: {"a": value},
    "null": lambda value: None,
    "negated": _negated,
    "empty": lambda value: type(value)() if isinstance(value, str | list | dict) else "",
}


def damaged(name: str, record: Any) -> Iterator[tuple[str, Any]]:
    """A record with one field damaged at a time: what was done to it, and the record."""
    places = list(_places(record))
    draw = random.Random(f"{SEED} {name}")
    if not EVERYTHING:
        places = sorted(draw.sample(places, min(FIELDS, len(places))), key=str)
    for place in places:
        for kind in DAMAGE if EVERYTHING else [draw.choice(list(DAMAGE))]:
            changed = copy.deepcopy(record)
            inside = changed
            for key in place[:-1]:
                inside = inside[key]
            value = DAMAGE[kind](inside[place[-1]])
            if value is DROPPED:
                del inside[place[-1]]
            else:
                inside[place[-1]] = value
            yield f"{'/'.join(map(str, place))} {kind}", changed


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the fields of a record are; of a list the first item stands for all."""
    if place:
        yield place
    for key in value if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ():
        yield from _places(value[key], (*place, key))


def read(path: Path) -> Any:
    """The first record of a file, or all of it."""
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()[0]
    if path.suffix == ".yaml":
        return yaml.safe_load(path.read_text())
    return json.loads(path.read_text().splitlines()[0] if path.suffix == ".jsonl" else path.read_text())


def write(path: Path, record: Any, whole: bytes) -> None:
    """Put a record in the place of the file's first one."""
    if path.suffix == ".parquet":
        rows = [record, *pq.read_table(pa.BufferReader(whole)).to_pylist()[1:]]
        # A column has one type.
        pq.write_table(pa.Table.from_pylist([record] if len(rows) > 1 else rows), path)
    elif path.suffix == ".yaml":
        path.write_text(yaml.safe_dump(record, sort_keys=False))
    elif path.suffix == ".jsonl":
        path.write_text("\n".join([json.dumps(record), *whole.decode().splitlines()[1:]]) + "\n")
    else:
        path.write_text(json.dumps(record))


TABLE = {
    "title": "A table",
    "place": "Table 1",
    "paper": "DeepNote",
    "variables": {"data": "."},
    "benchmarks": {"hotpotqa": {"dataset": "hotpotqa", "family": "deepnote", "path": "{{ data }}/hotpot.json"}},
    "models": {"Small": {"serve": "owner/small", "billions": 1}},
    "settings": {"top-k 5": {"method_options": {"top_k": 5}}},
    "columns": ["hotpotqa"],
    "rows": [{"method": "direct", "model": ["Small"]}],
}
PIPELINE = {
    "output_dir": "piped",
    "variables": {"data": "--path questions.jsonl"},
    "runs": [
        {"title": "index", "command": "notewriter index --path corpus.jsonl --index {{ output_dir }}/index"},
        {
            "title": "pairs {{ seed }}",
            "each": {"seed": [1, 2]},
            "command": "notewriter pairs --config pairs.yaml --seed {{ seed }} --output_dir piped/{{ seed }}",
            "after": ["index"],
            "needs": {"gpus": 1, "hours": 0.5},
        },
    ],
}
RESULTS = {
    "output_dir": "piped",
    "runs": [{"title": "a", "command": "notewriter index --path corpus.jsonl --index x"}],
    "results": {
        "title": "What it is worth",
        "text": "A text.",
        "sets": {"run": "held out"},
        "cells": {"base": "{{ set }}", "other": "{{ set }}"},
        "metrics": ["f1"],
        "compare": [["base", "other"]],
    },
}

RULE = {"questions": 2, "held_out": {"sample": 1, "seed": 1}, "draw": {"sample": 1, "seed": 3}}
PRICED = {
    "prices": {"policy": [1, 4, 0.5]},
    "max_cost": 5,
    "question_set": "rule.yaml",
    "output_dir": "priced",
    "cache": "paid",
}
ADAPTER = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "model",
    "revision": None,
    "r": 2,
    "lora_alpha": 4,
    "lora_dropout": 0.0,
    "bias": "none",
    "target_modules": ["q_proj"],
    "rank_pattern": {},
}

PREFLIGHT_DPO = ["preflight", "--model_name_or_path", "model", "--pairs", "tiny", "--max_length", "64"]
PREFLIGHT_SFT = ["preflight", "--model_name_or_path", "model", "--data", "chains", "--max_length", "4096"]
PUBLISH = ["publish", "--checkpoint", "model", "--repo_id", "me/x", "--dry_run"]

OTHERS = {
    "evaluate priced": ["evaluate", "--config", "priced.yaml"],
    "evaluate anew": ["evaluate", "--config", "evaluate.yaml", "--output_dir", "anew"],
    "pairs anew": ["pairs", "--config", "pairs.yaml", "--output_dir", "anew"],
    "chains anew": ["chains", "--config", "chains.yaml", "--output_dir", "anew"],
    "index anew": ["index", "--path", "corpus.jsonl", "--index", "anew"],
    "lineage": ["lineage", "run"],
    "lineage of pairs": ["lineage", "pairs"],
    "overlap": ["overlap", "--data", "pairs", "--eval_files", '{"musique.jsonl": "musique"}'],
    "inspect chains": ["inspect", "--chains", "chains", "--output", "chains.html"],
    "pipeline": ["pipeline", "pipeline.yaml", "--dry_run"],
    "results": ["table", "results.yaml", "--output", "results.md"],
    "table": ["table", "table.yaml", "--output_dir", "tables", "--dry_run"],
    "preflight dpo": PREFLIGHT_DPO,
    "preflight sft": PREFLIGHT_SFT,
    "publish": PUBLISH,
    "publish adapter": ["publish", "--checkpoint", "adapter", "--repo_id", "me/x", "--dry_run"],
    "lineage of model": ["lineage", "model"],
    "merge": ["merge", "--checkpoint", "adapter", "--output_dir", "anew"],
}
ALL = COMMANDS | OTHERS

READ_BY = {
    "questions.jsonl": ["evaluate", "evaluate anew", "pairs anew", "chains anew", "evaluate --chains"],
    "corpus.jsonl": ["index anew"],
    "evaluate.yaml": ["evaluate", "evaluate anew"],
    "priced.yaml": ["evaluate priced"],
    "rule.yaml": ["evaluate priced"],
    "priced/spent.jsonl": ["evaluate priced"],
    "adapter/adapter_config.json": ["merge", "publish adapter"],
    "judge.yaml": ["judge"],
    "pairs.yaml": ["pairs", "pairs anew"],
    "chains.yaml": ["chains", "chains anew"],
    "ask.yaml": ["ask"],
    "index/manifest.json": ["ask", "evaluate", "index"],
    "index/files.json": ["ask"],
    "corpus/manifest.json": ["corpus", "lineage"],
    "run/config.yaml": ["evaluate", "compare", "report", "lineage", "judge"],
    "run/run.json": ["evaluate", "lineage", "report"],
    "run/traces.jsonl": ["evaluate", "judge", "report"],
    "run/predictions.jsonl": ["compare", "judge", "report"],
    "run/metrics.json": ["compare", "judge", "report", "results", "lineage"],
    "run/costs.json": ["report", "compare", "evaluate"],
    "run/judged/answer.jsonl": ["judge", "evaluate", "report"],
    "pairs/rollouts.jsonl": ["pairs"],
    "pairs/stats.json": ["inspect", "lineage of pairs", "overlap", "pairs", "preflight dpo"],
    "pairs/config.yaml": ["pairs", "overlap", "lineage of pairs"],
    "pairs/run.json": ["pairs", "lineage of pairs"],
    "pairs/train.parquet": ["inspect", "overlap"],
    "tiny/train.parquet": ["preflight dpo"],
    "chains/rollouts.jsonl": ["chains"],
    "chains/train.parquet": ["inspect chains", "preflight sft"],
    "retrieval/searches.jsonl": ["evaluate --chains"],
    "world/world.json": ["world"],
    "pipeline.yaml": ["pipeline"],
    "results.yaml": ["results"],
    "table.yaml": ["table"],
    "model/config.yaml": ["lineage of model"],
    "model/config.json": ["preflight dpo", "publish"],
    "model/generation_config.json": ["preflight dpo", "publish"],
    "model/tokenizer_config.json": ["preflight dpo", "publish"],
    "model/training.json": ["publish", "lineage of model"],
    "model/trainer_state.json": ["publish"],
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    with fake_endpoint(knowing({each["question"]: each["answers"][0] for each in QUESTIONS})) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def done(endpoint: FakeEndpoint, tiny_model: Path, tiny_pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every command has run."""
    from notewriter.artifacts.training_record import TrainingRecord, write_training_record

    folder = tmp_path_factory.mktemp("done")
    make(folder, endpoint)
    for name, content in {"table": TABLE, "pipeline": PIPELINE, "results": RESULTS}.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    shutil.copytree(tiny_model, folder / "model")
    shutil.copytree(tiny_pairs, folder / "tiny")
    record = TrainingRecord(
        method="dpo",
        base_model="owner/base",
        parameters="full",
        pairs="pairs",
        rows={"train": {"vanilla/answer": 2}},
        hyperparameters={"learning_rate": 1e-6},
        metrics={"loss": 0.5},
        steps=4,
        versions={"trl": "1"},
    )
    write_training_record(folder / "model", record)
    (folder / "model/config.yaml").write_text(yaml.safe_dump({"model_name_or_path": "owner/base", "pairs": "pairs"}))
    state = {"log_history": [{"step": 1, "loss": 0.5, "epoch": 0.1}], "global_step": 1, "best_metric": None}
    (folder / "model/trainer_state.json").write_text(json.dumps(state))
    (folder / "rule.yaml").write_text(yaml.safe_dump(RULE))
    (folder / "priced.yaml").write_text(yaml.safe_dump(yaml.safe_load((folder / "evaluate.yaml").read_text()) | PRICED))
    make_adapter(folder / "adapter")
    failed = []
    for name, argv in OTHERS.items():
        try:
            result = attempt(folder, argv)
        except Exception as error:
            result = (1, [repr(error)])
        if result[0]:
            failed.append((name, result))
        shutil.rmtree(folder / "anew", ignore_errors=True)
    assert not failed
    return folder


def make_adapter(folder: Path) -> None:
    """The files of a LoRA adapter of the tiny model."""
    from safetensors.torch import save_file
    from torch import zeros

    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    name = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    parts = {"A": zeros(2, 32), "B": zeros(32, 2)}
    weights = {name.format(layer, part): values.clone() for layer in range(2) for part, values in parts.items()}
    save_file(weights, folder / "adapter_model.safetensors")


@pytest.fixture
def place(done: Path, tmp_path: Path) -> Path:
    """A copy of it, to damage something in."""
    return Path(shutil.copytree(done, tmp_path / "place"))


class Late(BaseException):
    """A case took too long; nothing may take it for an error of the system, as `TimeoutError` is."""


def late(*_: object) -> None:
    """End a case."""
    raise Late(f"no end after {SECONDS} seconds")


def end_of(place: Path, name: str, argv: list[str], places: Collection[str] = ()) -> str:
    """How a command ends over a damaged file; empty if it is done or says in one line which file is at fault.

    `places` are other words that a line may say, such as a server's address.
    """
    before = (place / name).read_bytes()
    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        result = attempt(place, argv)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    if result[0] == 0:
        return ""
    if argv[0] == "table" and not result[1]:
        # A cell that fails is a line of the log, and the others run.
        return ""
    if not is_one_line(result):
        return f"{result}"
    if (place / name).read_bytes() != before:
        return "the file was changed"
    # Of a file of options the option is named: it may come from the command line as well.
    # So is a setting in which a run differs from the one whose folder is to be resumed.
    names = {Path(name).name, Path(name).parts[0], "contains a run with", *places}
    return "" if "--config" in argv or any(each in result[1][0] for each in names) else f"names no file: {result[1][0]}"


def log(name: str, cases: int, faults: list[str]) -> None:
    """Tell what was tried, in a file that the environment may name."""
    if path := os.environ.get("NOTEWRITER_DAMAGE_LOG"):
        with open(path, "a") as file:
            file.write("\n".join([f"# {name}: {cases} cases, {len(faults)} faults", *faults]) + "\n")


@pytest.mark.parametrize("name", READ_BY)
def test_a_damaged_field_is_of_no_use_or_is_named(place: Path, name: str) -> None:
    path = place / name
    whole = path.read_bytes()
    faults, cases = [], 0
    for what, record in damaged(name, read(path)):
        for command in READ_BY[name]:
            try:
                write(path, record, whole)
            except (pa.ArrowException, ValueError):
                # Parquet has no such column.
                continue
            if fault := end_of(place, name, ALL[command]):
                faults.append(f"{what}, {command}: {fault[:300]}")
            cases += 1
            shutil.rmtree(place / "anew", ignore_errors=True)
    log(name, cases, faults)
    assert cases and not faults, "\n".join(faults)


class Replies:
    """What servers say, by path; the reply at a path may be another one."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self.instead: dict[str, Any] = {}

    def __call__(self, path: str, reply: Any) -> Any:
        self.said.setdefault(path, reply)
        return self.instead.get(path, reply)


SERVED = [Passage("p1", "Bridge", "Mira built the bridge."), Passage("p2", "River", "The Osk flows past Tolen.")]
HEALTH = {"schema": remote.SCHEMA, "status": "ok", "corpus": "towns", "fingerprint": "f" * 64}
HITS = {"organic": [{"title": "Bridge", "link": "http://a.b/c", "snippet": "Mira built it.", "position": 1}]}


@pytest.fixture
def replies(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Replies, dict[str, list[str]]]]:
    """Servers whose replies can be damaged, and the commands that ask them, each for a path."""
    replies = Replies()

    def answer(request: Request) -> Any:
        said = {"/health": HEALTH, "/search": HITS}.get(request.path)
        queries = [] if said else request.json["queries"]
        return replies(request.path, said or remote.reply_of([SERVED for _ in queries], scores=True))

    monkeypatch.setattr(endpoint, "alter", replies)
    monkeypatch.setattr(connection, "wait", lambda state: 0)
    monkeypatch.setenv("SERPER_API_KEY", "key")
    policy = {"base_url": endpoint.base_url, "model": endpoint.model, "attempts": 1, "patience": 0}
    asked = ["evaluate", "--dataset", "jsonl", "--path", "questions.jsonl", "--output_dir", "anew", "--cache", "c"]
    asked += ["--models", json.dumps({"policy": policy})]
    indexed = [*asked, "--index", "index"]
    with json_service(answer) as service:
        yield (
            replies,
            {
                "/v1/models": [*indexed, "--method", "vanilla"],
                "/v1/chat/completions": [*indexed, "--method", "vanilla"],
                "/v1/chat/completions with log-probabilities": [*indexed, "--method", "replug"],
                "/v1/completions": [*indexed, "--method", "self_rag"],
                "/health": [*asked, "--method", "vanilla", "--retriever", json.dumps({"url": service.url})],
                "/retrieve": [*asked, "--method", "vanilla", "--retriever", json.dumps({"url": service.url})],
                "/search": [*asked, "--method", "vanilla", "--retriever", json.dumps({"web": f"{service.url}/search"})],
            },
        )


PATHS = ["/v1/models", "/v1/chat/completions", "/v1/chat/completions with log-probabilities", "/v1/completions"]
PATHS += ["/health", "/retrieve", "/search"]


@pytest.mark.parametrize("name", PATHS)
def test_a_damaged_reply_is_of_no_use_or_its_server_is_named(
    place: Path, replies: tuple[Replies, dict[str, list[str]]], name: str
) -> None:
    altered, commands = replies
    path = name.split(" ")[0]
    result = attempt(place, commands[name])
    assert result == (0, []), result
    faults, cases = [], 0
    for what, record in damaged(name, altered.said[path]):
        for made in ("anew", "c"):
            shutil.rmtree(place / made) if (place / made).is_dir() else (place / made).unlink(missing_ok=True)
        altered.instead = {path: record}
        if fault := end_of(place, "questions.jsonl", commands[name], {"127.0.0.1", "anew"}):
            faults.append(f"{what}: {fault[:300]}")
        cases += 1
    log(name, cases, faults)
    assert cases and not faults, "\n".join(faults)
