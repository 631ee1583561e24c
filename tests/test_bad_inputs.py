"""Bad input of every kind, over every command: exit code 2, one line on standard error, no traceback.

Each command runs in this process, in a copy of a folder where it has run before, against an endpoint of the tests.
A new bad input is a line in `DAMAGE` (what stands in a file) or `OPTIONS` (what an option is told). The sweeps behind
them try what nobody thought of: every key of every file, every option of every command.
"""

import dataclasses
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bad_inputs import COMMANDS, QUESTIONS, arguments_of, attempt, is_clean, is_one_line, make, mutations
from benchmark_files import HOTPOT, MUSIQUE, write_lines, write_list
from fake_endpoint import FakeEndpoint, fake_endpoint, knowing

from notewriter.datasets import load_corpus, load_questions
from notewriter.ground.errors import UserError
from notewriter.retrieval.sources.index import open_index


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    with fake_endpoint(knowing({each["question"]: each["answers"][0] for each in QUESTIONS})) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def done(endpoint: FakeEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every command has run."""
    folder = tmp_path_factory.mktemp("done")
    make(folder, endpoint)
    return folder


@pytest.fixture
def place(done: Path, tmp_path: Path) -> Path:
    """A copy of it, to break something in."""
    return Path(shutil.copytree(done, tmp_path / "place"))


Break = Callable[[Path], object]


def text(name: str, content: str | bytes) -> Break:
    """Write a file."""
    return lambda place: (place / name).write_bytes(content.encode() if isinstance(content, str) else content)


def swap(name: str, before: str, after: str) -> Break:
    """Replace a piece of a file."""

    def change(place: Path) -> None:
        whole = (place / name).read_text()
        assert before in whole
        (place / name).write_text(whole.replace(before, after, 1))

    return change


def database(*statements: str) -> Break:
    """Do something to the response cache."""

    def change(place: Path) -> None:
        with sqlite3.connect(place / "cache.sqlite") as cache:
            for statement in statements:
                cache.execute(statement)
        cache.close()

    return change


def without_cache(place: Path) -> None:
    for file in place.glob("cache.sqlite*"):
        file.unlink()


def other_schema(place: Path) -> None:
    without_cache(place)
    database("CREATE TABLE replies (name TEXT, completion TEXT, more TEXT)")(place)


def flipped_pages(place: Path) -> None:
    content = bytearray((place / "cache.sqlite").read_bytes())
    content[4096:] = bytes(byte ^ 0xFF for byte in content[4096:])
    without_cache(place)
    (place / "cache.sqlite").write_bytes(content)


def copied(source: str, target: str) -> Break:
    return lambda place: shutil.copy(place / source, place / target)


def setting(name: str, line: str) -> Break:
    """Put a line into a configuration file."""
    return lambda place: (place / name).write_text(f"{line}\n{(place / name).read_text()}")


def recursion(place: Path) -> None:
    shutil.rmtree(place / "run")
    (place / "prompts/vanilla/answer.jinja").write_text('{% include "vanilla/answer.jinja" %}')


def folder_at(name: str) -> Break:
    return lambda place: (place / name).mkdir(parents=True)


QUESTION = '{"id": "q1", "question": "Who?", "answers": ["Mira"]}'

DAMAGE: list[tuple[str, str, Break, list[str]]] = [
    # The response cache.
    ("cache of another schema", "ask", other_schema, ["cache.sqlite: is another program's", "choose another file"]),
    ("cache with flipped pages", "ask", flipped_pages, ["cache.sqlite: ", "cache"]),
    ("cache that is text", "ask", text("cache.sqlite", "text" * 1000), ["cache.sqlite: is not a response cache"]),
    # The index.
    ("manifest that is cut", "ask", text("index/manifest.json", '{"schema": '), ["manifest.json: ", "build"]),
    ("manifest that is a list", "ask", text("index/manifest.json", "[]"), ["manifest.json must be dict", "build"]),
    ("manifest without a kind", "ask", text("index/manifest.json", "{}"), ["unknown kind of index in index 'None'"]),
    (
        "manifest of a dense index",
        "ask",
        swap("index/manifest.json", "bm25", "dense"),
        ["contains no notewriter/bm25/3 index"],
    ),
    ("manifest nested too deeply", "ask", text("index/manifest.json", '{"a":' * 99_999), ["manifest.json: ", "build"]),
    ("index without a file", "ask", lambda p: next((p / "index").glob("*.store")).unlink(), [".store: cannot be read"]),
    # The run folder.
    ("record: null", "evaluate", text("run/run.json", "null"), ["run.json: has the schema None"]),
    ("record: a list", "evaluate", text("run/run.json", "[1]"), ["run.json: has the schema None"]),
    ("record: cut", "evaluate", text("run/run.json", "{"), ["run.json: is not JSON"]),
    ("record: no schema", "pairs", text("pairs/run.json", '{"a": 1}'), ["run.json: has the schema None"]),
    ("config.yaml: a list", "evaluate", text("run/config.yaml", "[1]"), ["config.yaml: is not a run's configuration"]),
    ("config.yaml: no YAML", "evaluate", text("run/config.yaml", "a: ["), ["config.yaml: is not YAML", "remove run"]),
    ("config.yaml: no integer", "evaluate", text("run/config.yaml", "a: !!int ''"), ["config.yaml: is not YAML"]),
    ("config.yaml: no truth value", "chains", text("chains/config.yaml", "a: !!bool x"), ["config.yaml: is not YAML"]),
    ("config.yaml: binary", "pairs", text("pairs/config.yaml", b"\xff\0"), ["config.yaml: is not YAML"]),
    ("config.yaml: a number for a key", "chains", text("chains/config.yaml", "1: 2"), ["not a run's configuration"]),
    ("estimate: not JSON", "evaluate", text("run/estimate.json", "{"), ["estimate.json: is not JSON", "remove it"]),
    ("estimate: null", "pairs", text("pairs/estimate.json", "null"), ["estimate.json must be", "remove it"]),
    ("world.json: not JSON", "world", text("world/world.json", "{"), ["world.json: is not JSON", "--output_dir"]),
    ("world.json: nested", "world", text("world/world.json", "[" * 99_999), ["world.json: is not JSON"]),
    # Journals.
    (
        "trace without steps",
        "evaluate",
        swap("run/traces.jsonl", '"steps"', '"stops"'),
        ["traces.jsonl:1 has no 'steps'"],
    ),
    (
        "trace with text for steps",
        "evaluate",
        swap("run/traces.jsonl", '"steps": [', '"steps": 3, "x": ['),
        ["steps must"],
    ),
    (
        "trace of another kind of step",
        "judge",
        swap("run/traces.jsonl", '"retrieve"', '"retrace"'),
        [":1: steps[0] must be"],
    ),
    ("trace: broken line", "evaluate", text("run/traces.jsonl", '{"a\n' + "{}\n"), ["traces.jsonl:1: is not JSON"]),
    ("trace: a list", "evaluate", text("run/traces.jsonl", "[]\n"), ["traces.jsonl:1: is a list, not an object"]),
    ("trace: binary", "evaluate", text("run/traces.jsonl", b"\xff\xfe\n"), ["traces.jsonl: is not UTF-8"]),
    ("trace: deep", "evaluate", text("run/traces.jsonl", "[" * 99_999 + "\n"), ["traces.jsonl:1: cannot be read"]),
    (
        "pairs: journal of evaluate",
        "pairs",
        copied("run/traces.jsonl", "pairs/rollouts.jsonl"),
        ["pairs/rollouts.jsonl:1 has no 'rows'"],
    ),
    (
        "pairs: journal of chains",
        "pairs",
        copied("chains/rollouts.jsonl", "pairs/rollouts.jsonl"),
        ["pairs/rollouts.jsonl:1 has no 'rows'"],
    ),
    (
        "chains: journal of pairs",
        "chains",
        copied("pairs/rollouts.jsonl", "chains/rollouts.jsonl"),
        ["chains/rollouts.jsonl:1 has no 'turns'"],
    ),
    (
        "judged: journal of evaluate",
        "judge",
        copied("run/traces.jsonl", "run/judged/answer.jsonl"),
        ["judged/answer.jsonl:1 has no"],
    ),
    (
        "pairs: broken line",
        "pairs",
        text("pairs/rollouts.jsonl", '{"question_id"\n' + "{}\n"),
        ["rollouts.jsonl:1: is not JSON"],
    ),
    # What evaluate left.
    (
        "predictions: cut",
        "compare",
        text("run/predictions.jsonl", '{"schema": "notew'),
        ["predictions.jsonl:1: is not JSON"],
    ),
    ("predictions: empty", "report", text("run/predictions.jsonl", ""), ["predictions.jsonl: contains no predictions"]),
    ("metrics: null", "compare", text("run/metrics.json", "null"), ["metrics.json: has the schema None"]),
    ("metrics: deep", "compare", text("run/metrics.json", "[" * 99_999), ["metrics.json"]),
    ("costs: a list", "report", text("run/costs.json", "[]"), ["costs.json: has the schema None"]),
    ("costs: deep", "report", text("run/costs.json", "[" * 99_999), ["costs.json"]),
    ("parquet that is text", "inspect", text("pairs/train.parquet", "PAR1" * 10), ["train.parquet: is not a readable"]),
    # Questions and corpora.
    ("questions: binary", "evaluate", text("questions.jsonl", b"\x80\x81"), ["questions.jsonl: is not UTF-8"]),
    ("questions: a number", "evaluate", text("questions.jsonl", "3\n"), ["questions.jsonl:1: is a int"]),
    ("questions: deep", "evaluate", text("questions.jsonl", '{"a":' * 99_999), ["questions.jsonl:1: cannot be read"]),
    (
        "questions: deep metadata",
        "evaluate",
        text("questions.jsonl", QUESTION[:-1] + ', "metadata": ' + '{"a":' * 600 + "1" + "}" * 601),
        ["questions.jsonl:1: "],
    ),
    (
        "questions: digits",
        "evaluate",
        text("questions.jsonl", '{"id": ' + "9" * 5000 + "}"),
        ["questions.jsonl:1: cannot"],
    ),
    ("corpus: cut", "index", text("corpus.jsonl", '{"id": "p1", "tit'), ["corpus.jsonl:1: is not JSON"]),
    ("corpus: empty", "index", text("corpus.jsonl", ""), ["corpus.jsonl: contains no passages"]),
    # Prompts.
    (
        "prompt that includes itself",
        "evaluate",
        recursion,
        ["includes itself or is nested too deeply"],
    ),
    ("prompt that is a folder", "evaluate", folder_at("prompts/deepnote/answer.jinja"), ["answer.jinja: is a folder"]),
    # Configuration files.
    (
        "config: two of a key",
        "evaluate",
        setting("evaluate.yaml", "seed: 1\nseed: 2"),
        ["duplicate key 'seed' (see line 1)"],
    ),
    (
        "config: itself",
        "evaluate",
        setting("evaluate.yaml", "method_options: &a {top_k: *a}"),
        ["a value contains itself"],
    ),
    (
        "config: a date",
        "evaluate",
        setting("evaluate.yaml", "where: {day: 2024-01-01}"),
        ["where: day", "quote it"],
    ),
    (
        "config: an impossible date",
        "evaluate",
        setting("evaluate.yaml", "name: 2024-99-99"),
        ["not '2024-99-99'"],
    ),
    ("config: a config", "evaluate", setting("evaluate.yaml", "config: x"), ["unknown key 'config'"]),
    (
        "config: a number for a stage",
        "pairs",
        swap("pairs.yaml", "vanilla/answer", "1"),
        ["the key 1 of stages must be str"],
    ),
    ("config: env with a list", "ask", setting("ask.yaml", "env: {A: [1]}"), ["env: A must be"]),
    (
        "config: env with a number",
        "ask",
        setting("ask.yaml", "env: {1: A}"),
        ["the key 1 of env must be"],
    ),
    (
        "config: NUL",
        "evaluate",
        setting("evaluate.yaml", 'name: "a\\0b"'),
        ["name contains a NUL character"],
    ),
    (
        "config: half a pair",
        "evaluate",
        setting("evaluate.yaml", 'name: "\\ud83d"'),
        ["is not UTF-8; rename"],
    ),
]


@pytest.mark.parametrize(("command", "damage", "parts"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE])
def test_damage_is_named_in_one_line(place, command, damage, parts):
    damage(place)
    result = attempt(place, COMMANDS[command])
    assert is_one_line(result), result
    assert [part for part in parts if part not in result[1][0]] == [], result[1][0]


NUMBER = str(10**30)

OPTIONS: list[tuple[str, list[str], list[str]]] = [
    ("evaluate", ["--temp", "0.5"], ["unknown option --temp; did you mean '--temperature'?"]),
    ("evaluate", ["--config", "ask.yaml"], ["--config is given twice"]),
    ("evaluate", ["--config=ask.yaml"], ["--config is given twice"]),
    ("index", ["--index", "."], [".: is the current folder"]),
    ("index", ["--index", ".."], ["..: is the current folder or a parent of it"]),
    ("index", ["--index", "/"], ["/: is the current folder or a parent of it"]),
    ("index", ["--index", ""], ["index is empty"]),
    ("index", ["--analyzer", "klingon"], ["unknown analyzer 'klingon'; choose one of: "]),
    ("index", ["--title_boost", "-1"], ["title_boost: -1.0 is too small"]),
    ("index", ["--index", "new", "--encoder", "absent"], ["encoder: absent is neither a model folder nor a hub id"]),
    ("corpus", ["--source", "clouds"], ["unknown source 'clouds'; "]),
    ("corpus", ["--path", "absent"], ["--path is given twice"]),
    ("corpus", ["--split", "verses"], ["split"]),
    ("corpus", ["--size", "0"], ["size: 0 is too small"]),
    ("corpus", ["--overlap", NUMBER], ["overlap"]),
    ("evaluate --chains", ["--depths", "0"], ["depths[0]: 0 is too small"]),
    ("evaluate --chains", ["--chains", '{"a": 3}'], ["chains"]),
    ("evaluate --chains", ["--chains", '{"a": [{"index": "absent"}]}'], ["chains"]),
    ("evaluate", ["--retriever", '{"index": "index"}'], ["index and retriever are both given"]),
    *(
        (
            "evaluate --chains",
            ["--output_dir", f"new {next(iter(part))}", "--chains", json.dumps({"chain": [{"index": "index"}, part]})],
            [problem],
        )
        for part, problem in [
            ({"rerank": "absent"}, "rerank: absent is neither a model folder nor a hub id"),
            ({"rerank": "absent", "candidates": 0}, "candidates: 0 is too small"),
            ({"llm_rerank": "m"}, "has no 'base_url'"),
            ({"llm_rerank": "m", "base_url": "ftp://x"}, "ftp://x"),
            ({"url": "nowhere"}, "nowhere"),
            ({"web": ""}, "web"),
            ({"within": "absent.jsonl"}, "absent.jsonl: no such file"),
            ({"distinct": None}, "distinct"),
            ({"indx": "index"}, "must have exactly one of the keys"),
        ]
    ),
    ("evaluate", ["--index", "."], [".: contains no index"]),
    ("evaluate", ["--index", ""], ["index is empty"]),
    ("evaluate", ["--index", "prompts"], ["prompts: contains no index; build one"]),
    ("evaluate", ["--path", ""], ["path is empty"]),
    ("evaluate", ["--output_dir", ""], ["output_dir is empty"]),
    ("evaluate", ["--concurrency", NUMBER], ["concurrency: 1000", "too large; give at least 1 and at most 65536"]),
    ("evaluate", ["--concurrency", "1e9"], ["argument --concurrency: invalid int value: '1e9'"]),
    ("evaluate", ["--serve", "m", "--replicas", "1000000"], ["replicas: 1000000 is too large"]),
    ("evaluate", ["--port", "70000"], ["port: 70000 is too large"]),
    ("evaluate", ["--limit", "0"], ["limit: 0 is too small"]),
    ("evaluate", ["--limit", "9" * 5000], ["argument --limit: invalid int value"]),
    ("evaluate", ["--temperature", "nan"], ["temperature must be float, not nan"]),
    ("evaluate", ["--temperature", "inf"], ["temperature must be float, not inf"]),
    ("evaluate", ["--top_p", "0"], ["top_p: 0.0 is too small; give above 0"]),
    ("evaluate", ["--max_tokens", NUMBER], ["max_tokens: 1000"]),
    ("evaluate", ["--method_options", json.dumps({"top_k": 10**30})], ["option top_k", "at most 1000000"]),
    ("evaluate", ["--method_options", '{"top_k": NaN}'], ["method_options: top_k must be a finite number"]),
    ("evaluate", ["--method_options", "[" * 9999], ["is not a JSON object"]),
    ("evaluate", ["--where", '{"type": {"a": NaN}}'], ["where: type: a must be a finite number"]),
    ("evaluate", ["--ids", "cache.sqlite"], ["cache.sqlite: is not UTF-8"]),
    ("evaluate", ["--family", "asqa"], ["question q1: has no 'short_answers' for metric family asqa"]),
    ("evaluate", ["--prices", '{"policy": [1, "x"]}'], ["prices: policy"]),
    ("evaluate", ["--dry_run", "--dry_run_questions", "0"], ["dry_run_questions: 0 is too small"]),
    ("evaluate", ["--dry_run", "--reply_share", "nan"], ["reply_share must be float, not nan"]),
    ("evaluate", ["--dry_run", "--tokens_per_second", "0"], ["tokens_per_second: 0.0 is too small"]),
    ("evaluate", ["--stage_sampling", '{"vanilla/answer": {"stop": 5}}'], ["must be a mapping of temperature"]),
    ("evaluate", ["--stage_sampling", '{"vanilla/answer": null}'], ["must be a mapping of temperature"]),
    ("evaluate", ["--models", '{"judge": {"base_url": 3, "model": "m"}}'], ["models: judge: base_url must be str"]),
    ("evaluate", ["--models", '{"judge": {"serve": ["m"]}}'], ["models: judge: serve must be str"]),
    ("evaluate", ["--models", '{"judge": {"serve": ""}}'], ["models: judge: serve: ", "at least 1"]),
    ("evaluate", ["--models", '{"judge": {"serve": "m", "base_url": "x"}}'], ["base_url follows from serve"]),
    *(
        ("ask", ["--models", json.dumps({"judge": {"base_url": "http://h/v1", "model": "m", key: value}})], [part])
        for key, value, part in [
            ("api_key_env", 3, "judge: api_key_env must be"),
            ("api_key_env", ["A"], "judge: api_key_env must be"),
            ("api_key_env", "sk-live-1234", "api_key_env must be the name of an environment variable"),
            ("timeout", "soon", "judge: timeout must be float"),
            ("timeout", 0, "judge: timeout: 0 is too small; give above 0"),
            ("timeout", -1, "judge: timeout: -1 is too small; give above 0"),
            ("patience", "long", "judge: patience must be float"),
            ("patience", -1, "judge: patience: -1 is too small; give at least 0"),
            ("attempts", 0, "judge: attempts: 0 is too small"),
            ("attempts", True, "judge: attempts must be int"),
            ("concurrency", 10**9, "judge: concurrency: 1000000000 is too large"),
            ("extra_body", [], "judge: extra_body must be dict"),
            ("identity", None, "judge: identity must be str"),
        ]
    ),
    ("pairs", ["--stages", '{"1": "metric"}'], ["no stage '1'"]),
    ("pairs", ["--stages", '{"vanilla/answer": 3}'], ["stages: vanilla/answer: 3 names no judge"]),
    ("pairs", ["--stages", '{"vanilla/answer": [["metric"]]}'], ["stages: vanilla/answer: "]),
    ("pairs", ["--method_options", '{"vanilla": 3}'], ["method_options: vanilla"]),
    ("pairs", ["--top_k_range", "1", NUMBER], ["top_k_range[1]: 1000"]),
    ("pairs", ["--quotas", '{"vanilla/answer": 0.5}'], ["quotas: vanilla/answer must be int, not 0.5"]),
    ("pairs", ["--eval_files", '{"questions.jsonl": 3}'], ["eval_files: questions.jsonl must be str, not 3"]),
    ("pairs", ["--dev_share", "1"], ["dev_share: 1.0 is too large; give at least 0 and below 1"]),
    ("chains", ["--max_step", NUMBER], ["max_step: 1000", "at most 1000"]),
    ("chains", ["--retries", "-1"], ["retries: -1 is too small; give at least 0"]),
    ("world", ["--train", str(10**9)], ["train: 1000000000 is too large"]),
    ("world", ["--hops", "4"], ["hops[0]: 4 is too large"]),
    ("index", ["--encoder", "m/n", "--batch_size", NUMBER], ["batch_size: 1000", "too large"]),
    ("report", ["--max_megabytes", "-1"], ["max_megabytes: -1 is too small"]),
    ("judge", ["--judgements", ""], ["judgements is empty"]),
    ("inspect", ["--output", "."], [".: is a folder; give the name of a file"]),
    ("inspect", ["--output", ".."], ["..: is a folder; give the name of a file"]),
]


@pytest.mark.parametrize(
    ("command", "options", "parts"), OPTIONS, ids=[f"{row[0]} {' '.join(row[1])}"[:80] for row in OPTIONS]
)
def test_a_bad_option_is_named_in_one_line(done, command, options, parts):
    result = attempt(done, [*COMMANDS[command], *options])
    assert is_one_line(result), result
    assert [part for part in parts if part not in result[1][0]] == [], result[1][0]
    assert "sk-live" not in result[1][0]


# Names and links


def not_utf_8(folder: Path, ending: str) -> Path:
    return Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9" + ending.encode()))


LINKED = "corpus path, corpus output_dir, index path, index index, evaluate index, pairs path, ask index, report runs"


@pytest.mark.parametrize(("command", "option"), [each.split() for each in LINKED.split(", ")])
def test_links_in_a_circle_are_named_in_one_line(place, command, option):
    (place / "circle").symlink_to("circle")
    argv = list(COMMANDS[command])
    if (given := f"--{option}") in argv:
        del argv[argv.index(given) : argv.index(given) + 2]
    for path in ("circle", "circle/below"):
        result = attempt(place, [*argv, given, path])
        assert is_one_line(result), (path, result)
        assert "circle" in result[1][0]


@pytest.mark.parametrize("folder", ["documents", "prompts/vanilla", "run", "pairs", "index"])
def test_half_a_character_in_the_name_of_a_file_is_no_traceback(place, folder):
    for ending in (".md", ".jinja", ".jsonl"):
        not_utf_8(place / folder, ending).write_text("{}\n")
    for command, argv in COMMANDS.items():
        assert is_clean(attempt(place, argv)), command


def test_a_corpus_is_read_from_a_file_whose_name_is_not_utf_8(place):
    (place / "published").mkdir()
    not_utf_8(place / "published", ".jsonl").write_text('{"id": "1", "contents": "Osk\\nA river."}\n')
    argv = ["corpus", "--source", "wiki-18", "--path", "published", "--output_dir", "new"]
    assert attempt(place, argv)[0] == 0
    assert "A river." in (place / "new/corpus.jsonl").read_text()


# Sweeps

READ_BY = {
    "run/traces.jsonl": ["evaluate", "judge"],
    "run/predictions.jsonl": ["compare", "judge"],
    "run/metrics.json": ["compare", "judge"],
    "run/judged/answer.jsonl": ["judge", "evaluate"],
    "run/run.json": ["evaluate"],
    "pairs/rollouts.jsonl": ["pairs"],
    "chains/rollouts.jsonl": ["chains"],
    "index/manifest.json": ["ask"],
    "questions.jsonl": ["evaluate"],
    "corpus.jsonl": ["index"],
    "corpus/manifest.json": ["corpus"],
    "retrieval/searches.jsonl": ["evaluate --chains"],
    "world/world.json": ["world"],
}


CONTENTS = {
    "nothing": b"",
    "binary": bytes(range(256)) * 40,
    "zeros": bytes(5000),
    "null": b"null\n",
    "a list": b"[]\n",
    "a number": b"3\n",
    "a text": b'"x"\n',
    "UTF-16": "{}".encode("utf-16"),
    "digits": b'{"a": ' + b"9" * 5000 + b"}\n",
    "depth": b'{"a":' * 99_999,
}


@pytest.mark.parametrize("name", READ_BY)
def test_no_content_of_a_file_ends_in_a_traceback(place, name):
    for what, content in CONTENTS.items():
        for command in READ_BY[name]:
            (place / name).write_bytes(content)
            result = attempt(place, COMMANDS[command])
            assert is_clean(result), (what, command, result)


ON_A_COMMAND_LINE = ("", "a\nb", "\udce9", "1" + "0" * 30, '{"a": NaN}', ".", "x" * 300)
IN_A_FILE = (
    "!!int ''",
    "!!bool maybe",
    "!!timestamp soon",
    "null",
    "1.5",
    ".nan",
    "1" + "0" * 30,
    "[[1]]",
    "{1: 2}",
    "2024-01-01",
    '"\\0"',
    "&a [*a]",
)

# The first command that has an option stands for the others.
SWEPT = {
    (kind, field.name): (command, field.name)
    for command in reversed(COMMANDS)
    for kind in arguments_of(command)
    for field in dataclasses.fields(kind)
    # Whether they can be written is for the tests of storage; a page takes half a second.
    if command != "report" or field.name not in ("output", "markdown", "latex")
}


@pytest.mark.parametrize(("command", "name"), SWEPT.values(), ids=[" ".join(each) for each in SWEPT.values()])
def test_no_value_of_an_option_ends_in_a_traceback(place, command, name):
    argv = list(COMMANDS[command])
    settings: dict[str, Any] = {}
    if "--config" in argv:
        position = argv.index("--config")
        settings = yaml.safe_load((place / argv[position + 1]).read_text())
        del argv[position : position + 2]
    (place / "swept.yaml").write_text(yaml.safe_dump(settings))
    for value in ON_A_COMMAND_LINE:
        result = attempt(place, [*argv, "--config", "swept.yaml", f"--{name}", value])
        assert is_clean(result), (value, result)
    if f"--{name}" in argv:
        del argv[argv.index(f"--{name}") : argv.index(f"--{name}") + 2]
    settings.pop(name, None)
    for value in IN_A_FILE:
        (place / "swept.yaml").write_text((yaml.safe_dump(settings) if settings else "") + f"{name}: {value}\n")
        result = attempt(place, [*argv, "--config", "swept.yaml"])
        assert is_clean(result), (value, result)


TITLED = {"title": "Ana", "evidence": {"title": "Ana"}, "decomposition": []}
RECORDS: dict[str, tuple[str, Any]] = {
    "jsonl": ("lines", {"id": "q", "question": "Who?", "answers": ["Ana"], "supporting_ids": ["p"], "metadata": {}}),
    "hotpotqa": ("list", HOTPOT),
    "2wikimultihopqa": ("list", HOTPOT),
    "musique": ("lines", MUSIQUE),
    "strategyqa": ("list", {"qid": "s", "question": "Who?", "answer": True, "evidence": [[["p"]]], "facts": ["x"]}),
    "asqa": ("list", {"sample_id": "a", "question": "Who?", "qa_pairs": [{"short_answers": ["Ana"]}]}),
    "nq": ("lines", {"question": "who", "answer": ["Ana"]}),
    "iirc": (
        "list",
        {
            "title": "Ana",
            "text": "She is.",
            "questions": [
                {
                    "qid": "i",
                    "question": "Who?",
                    "answer": {"type": "span", "answer_spans": [{"text": "Ana"}], "answer_unit": "m"},
                    "context": [{"text": "Ana is."}],
                }
            ],
        },
    ),
    "triviaqa": ("lines", {"id": "t", "question": "who", "golden_answers": ["Ana"], "metadata": {"type": "x"}}),
    "fanoutqa": ("list", {"id": "f", "question": "Who?", "answer": {"Ana": ["x"]}, "decomposition": [TITLED]}),
    "frames": ("lines", {"question": "Who?", "answer": "Ana", "wikipedia_link_1": "https://en.wikipedia.org/wiki/Ana"}),
    "multihoprag": (
        "list",
        {"query": "Who?", "answer": "Ana", "evidence_list": [{"fact": "x"}], "question_type": "t", "body": "b"},
    ),
}
MAPPED = {
    "asqa": {"dev": {"a": {"ambiguous_question": "Who?", "qa_pairs": [{"short_answers": ["Ana"]}]}}},
    "strategyqa": {"p1": {"title": "Ana", "content": "She is."}},
    "iirc": {"Ana": "She is.", "Bo": "He is."},
    "triviaqa": {"Data": [{"QuestionId": "t", "Question": "Who?", "Answer": {"Value": "Ana", "Aliases": ["A."]}}]},
}
"""Files that are one object, of questions or of passages."""


def loaded(dataset: str, path: Path) -> None:
    """Read a file as questions and as a corpus; what it is not may be told in one line."""
    for load in (load_questions, load_corpus):
        try:
            list(load(dataset, path))
        except UserError as error:
            assert "\n" not in str(error)
            assert path.name in str(error)


@pytest.mark.parametrize("dataset", RECORDS)
def test_no_key_of_a_benchmarks_file_ends_in_a_traceback(tmp_path, dataset):
    form, record = RECORDS[dataset]
    path = tmp_path / "file"
    assert load_questions(dataset, (write_list if form == "list" else write_lines)(path, record))
    for _, changed in mutations(record):
        loaded(dataset, (write_list if form == "list" else write_lines)(path, changed))
    for _, changed in mutations(MAPPED.get(dataset, {})):
        path.write_text(json.dumps(changed))
        loaded(dataset, path)
    for content in CONTENTS.values():
        path.write_bytes(content)
        loaded(dataset, path)


@pytest.mark.parametrize("junk", ["junk", "[]", ", {}", "]"])
def test_junk_after_a_list_is_named(tmp_path, junk):
    path = write_list(tmp_path / "h.json", HOTPOT)
    path.write_text(path.read_text() + " \n " + junk)
    with pytest.raises(UserError, match="has text after the end of its list"):
        load_questions("hotpotqa", path)
    path.write_text(path.read_text().removesuffix(junk) + " " * 3_000_000)
    assert load_questions("hotpotqa", path)


def test_halves_of_surrogate_pairs_in_questions_stop_nothing(place, endpoint):
    """Neither the hash that a replica is chosen by, nor the draws of `pairs`, nor a file takes them."""
    halves = (
        '{"id": "q\\ud83d", "question": "Who \\ud83d?", "answers": ["\\ud83d"], "metadata": {"\\ud83d": "\\ud83d"}}'
    )
    (place / "questions.jsonl").write_text(halves + "\n")
    assert attempt(place, [*COMMANDS["evaluate"], "--output_dir", "new/evaluate"]) == (0, [])
    for command in ("pairs", "chains"):
        # No reply is right for such a question, which the commands say when they come to their end.
        code, (line,) = attempt(place, [*COMMANDS[command], "--output_dir", f"new/{command}"])
        assert code == 2 and "nothing was made" in line
        assert (place / f"new/{command}/stats_of_nothing.json").exists()
    assert attempt(place, ["judge", "--config", "judge.yaml", "--runs", "new/evaluate"]) == (0, [])


# A damaged reply in the cache is asked for again, and nothing else is.

REPLIES = {
    "cut": "substr(completion, 1, 20)",
    "empty": "''",
    "null": "'null'",
    "a list": "'[]'",
    "without a key": "replace(completion, 'finish_reason', 'finished')",
    "without a checksum": "substr(completion, 1, instr(completion, char(10)) - 1)",
    "a null for a number": "replace(completion, '1', 'null')",
    "another byte": 'replace(completion, \'"text": "\', \'"text": "x\')',
    "no UTF-8": "CAST(x'7b22ff' AS TEXT)",
    "a number": "3",
    "bytes": "x'00ff'",
    "depth": "replace(hex(zeroblob(50000)), '0', '[')",
}


@pytest.mark.parametrize("damage", REPLIES.values(), ids=REPLIES)
def test_a_damaged_reply_is_asked_for_again(place, endpoint, damage):
    command = [*COMMANDS["evaluate"], "--output_dir", "new"]
    sent = len(endpoint.requests)
    assert attempt(place, command) == (0, [])
    assert len(endpoint.requests) == sent
    before = (place / "new/predictions.jsonl").read_text()
    # Of every command's replies, those of this one are two.
    database(f"UPDATE replies SET completion = {damage}")(place)
    assert attempt(place, [*COMMANDS["evaluate"], "--output_dir", "again"]) == (0, [])
    assert len(endpoint.requests) == sent + 2
    assert (place / "again/predictions.jsonl").read_text() == before
    assert attempt(place, [*COMMANDS["evaluate"], "--output_dir", "once more"]) == (0, [])
    assert len(endpoint.requests) == sent + 2


# An index whose bytes have changed


def index_files(place: Path) -> list[Path]:
    return [path for path in sorted((place / "index").iterdir()) if path.suffix != ".lock" and path.stat().st_size]


def flipped(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x55
    rewrite(path, bytes(content))


def rewrite(path: Path, content: bytes) -> None:
    """A new file under the name: an index that is still open has the old one mapped into memory."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    os.replace(new, path)


def test_a_file_of_an_index_that_is_cut_off_or_missing_is_named(place):
    for path in index_files(place):
        # The record of its build tells nothing to a search.
        if path.name in ("manifest.json", "files.json", "run.json"):
            continue
        whole = path.read_bytes()
        for content in (whole[:-1], None):
            rewrite(path, content) if content is not None else path.unlink()
            result = attempt(place, COMMANDS["ask"])
            assert is_one_line(result), (path, content, result)
            assert path.name in result[1][0] and "build the index again" in result[1][0]
            rewrite(path, whole)
    assert attempt(place, COMMANDS["ask"])[0] == 0


@pytest.mark.parametrize("suffix", [".term", ".idx", ".fast", ".fieldnorm", ".pos"])
def test_a_changed_byte_in_an_index_is_no_traceback(place, suffix):
    """The library panics on some, which is no `Exception`."""
    named = 0
    for path in (place / "index").glob(f"*{suffix}"):
        whole = path.read_bytes()
        for position in range(0, len(whole), 3):
            flipped(path, position)
            try:
                open_index(place / "index").search("the river Mira built", 2)
            except UserError as error:
                named += 1
                assert "\n" not in str(error)
                assert "build it again" in str(error)
            rewrite(path, whole)
    assert named
