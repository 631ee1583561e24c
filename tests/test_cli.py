"""The command line: its help, and that every kind of bad input is one line on standard error and exit code 2."""

import itertools
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_endpoint import fake_endpoint

from notewriter import __version__, cli
from notewriter.fetching import fetch
from notewriter.training import train

QUESTION = {"id": "q1", "question": "Who built the bridge?", "answers": ["Mira"]}
PASSAGES = [
    {"id": "p1", "title": "Bridge", "text": "Mira built the bridge."},
    {"id": "p2", "title": "River", "text": "The river flows."},
]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; returns exit code, standard output and standard error."""

    def command(*argv: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["notewriter", *map(str, argv)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


def complains(result: tuple[int, str, str], *parts: str) -> bool:
    """Whether a command ended with one line `error: ...` that contains all the parts, apart from a progress bar."""
    code, _, written = result
    *before, line = written.rstrip("\n").split("\n")
    assert code == 2, written
    assert line.startswith("error: "), written
    assert [part for part in parts if part not in line] == [], line
    assert all("it/s]" in other or "passages [" in other or "question/s]" in other for other in before), written
    return True


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(QUESTION) + "\n")
    return path


@pytest.fixture
def evaluate(run: Run, corpus: Path, questions: Path, tmp_path: Path) -> Run:
    """`notewriter evaluate` with an index, unless one is given; the last value of an option counts."""
    assert run("index", "--path", corpus, "--index", tmp_path / "index")[0] == 0
    asked = ["--dataset", "jsonl", "--path", questions]
    index = ["--index", tmp_path / "index"]
    kept = ["--output_dir", tmp_path / "run", "--cache", tmp_path / "cache.sqlite"]
    return lambda *options: run("evaluate", *asked, *([] if "--index" in options else index), *kept, *options)


NOWHERE = ["--base_url", "http://127.0.0.1:9/v1", "--model", "fake"]


# Help


@pytest.mark.parametrize("argv", [["--help"], ["-h"]], ids=str)
def test_help_lists_the_stages_in_the_order_of_their_use(run, argv):
    code, out, err = run(*argv)
    assert (code, err) == (0, "")
    places = [out.index(f"\n  {name} ") for name in ("index", "pairs", "evaluate", "compare", "report", "publish")]
    assert places == sorted(places)
    assert "training/train_dpo.py" in out


def test_whoever_gives_no_command_is_told_in_ten_lines_what_to_do_first(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 10
    named = re.findall(r"^  notewriter ([a-z][\w-]*)", out, re.MULTILINE)
    assert named[:2] == ["doctor", "quickstart"]
    assert set(named) <= cli.COMMANDS.keys()


def test_the_words_that_come_first_are_those_that_the_commands_know():
    assert [*cli.PARTS["train"]] == [*train.METHODS]
    assert [*cli.PARTS["fetch"]] == [*fetch.KINDS, "pages", "recipe"]


@pytest.mark.parametrize("words", ["app labels", "fetch pages", "fetch recipe", "serve retriever", "train dpo"])
def test_a_part_of_a_command_has_options_of_its_own(run, words):
    code, out, _ = run(*words.split(), "--help")
    assert code == 0
    assert f"usage: notewriter {words}" in out or words == "train dpo"


def test_there_are_few_enough_commands_to_hold_in_mind():
    assert len(cli.COMMANDS) <= 28


def test_the_version_is_told(run):
    assert run("--version") == (0, f"notewriter {__version__}\n", "")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_stage_tells_its_options(run, name):
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert f"usage: notewriter {name}" in out
    assert "--config FILE" in out


def test_help_is_told_without_loading_the_stages():
    script = "import sys; from notewriter import cli; sys.argv[1:] = ['--help']; cli.main(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"torch", "transformers", "trl", "openai"}.isdisjoint(done.stdout.split())


def test_a_launcher_starts_without_a_trainer():
    script = "import sys; from notewriter.training import train; train.main([]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"transformers", "trl", "datasets"}.isdisjoint(done.stdout.split())


# Errors


def test_as_a_process_it_ends_with_one_line_and_code_2(tmp_path):
    script = "from notewriter.cli import main; main()"
    for argv, problem in (
        (["evalute"], "error: unknown command 'evalute'; did you mean 'evaluate'? notewriter --help lists all\n"),
        (["worth", "--runs", "run"], "error: worth is no command any more; use: notewriter report --worth --runs"),
        (["retrieval-eval"], "error: retrieval-eval is no command any more; use: notewriter evaluate --chains"),
        (["index", "--path", "absent.jsonl", "--index", "i"], "error: absent.jsonl: cannot be read"),
    ):
        done = subprocess.run([sys.executable, "-c", script, *argv], capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(problem)
        assert done.stderr.count("\n") == 1


def test_as_a_module_it_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "notewriter.cli", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"notewriter {__version__}\n")


def test_an_interrupt_is_one_line_too(run, monkeypatch):
    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("notewriter.data.world.world.main", interrupted)
    code, out, err = run("world")
    assert (code, out) == (130, "")
    assert err.startswith("interrupted: finished work is kept")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", cli.SUCCESSORS)
def test_a_command_that_went_names_its_successor(run, name):
    assert name not in cli.COMMANDS
    assert cli.SUCCESSORS[name].split()[1] in cli.COMMANDS
    assert complains(run(name, "papers/resp/table_2"), f"{name} is no command any more; use: {cli.SUCCESSORS[name]}")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("HF_ENDPOINT", "http://[", "'http://[' in the environment is not an address"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", "10s", "'10s' in the environment is not a whole number of seconds"),
        ("HF_HUB_ETAG_TIMEOUT", "1.5", "'1.5' in the environment is not a whole number of seconds"),
    ],
)
def test_variables_that_the_hubs_library_cannot_parse(run, monkeypatch, name, value, wanted):
    monkeypatch.setenv(name, value)
    assert complains(run("fetch", "model", "a/b"), f"{name}: {wanted}", "correct or unset it")


def test_an_unknown_command(run):
    assert complains(run("evalute"), "unknown command 'evalute'; did you mean 'evaluate'?")


def test_an_earlier_name_of_a_command_works_and_names_the_new_one(run):
    code, out, err = run("page", "--help")
    assert (code, out.startswith("usage: notewriter app")) == (0, True)
    assert err == "notewriter page is called notewriter app now\n"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([json.dumps(PASSAGES[0]), '{"id": "p2", "title": "River"'], "corpus.jsonl:2: is not JSON"),
        ([json.dumps(PASSAGES[0]), '{"id": "p2", "title": "River"}'], "corpus.jsonl:2: "),
        ([json.dumps(PASSAGES[0]), json.dumps(PASSAGES[0])], "passages 1 and 2 have the same id 'p1'"),
        ([], "corpus.jsonl: contains no passages"),
    ],
    ids=["malformed line", "missing key", "duplicate id", "empty corpus"],
)
def test_a_corpus_that_cannot_be_indexed(run, tmp_path, lines, problem):
    (tmp_path / "corpus.jsonl").write_text("".join(line + "\n" for line in lines))
    assert complains(run("index", "--path", tmp_path / "corpus.jsonl", "--index", tmp_path / "index"), problem)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_an_unknown_dataset(run, corpus, evaluate, tmp_path):
    index = ["--path", corpus, "--index", tmp_path / "other"]
    assert complains(run("index", *index, "--dataset", "squad"), "unknown dataset 'squad'", "hotpotqa")
    assert complains(evaluate(*NOWHERE, "--dataset", "squad"), "unknown dataset 'squad'", "hotpotqa")


def test_an_unknown_method_or_option(evaluate):
    assert complains(evaluate(*NOWHERE, "--method", "deepnotes"), "unknown method 'deepnotes'", "deepnote, direct")
    assert complains(evaluate(*NOWHERE, "--method_options", '{"topk": 1}'), "no option 'topk'", "top_k")


def test_an_unknown_judge(run, questions, tmp_path):
    argv = [
        "--dataset",
        "jsonl",
        "--path",
        questions,
        "--index",
        tmp_path / "index",
        "--output_dir",
        tmp_path / "pairs",
    ]
    stages = json.dumps({"deepnote/init_note": "oracle"})
    assert complains(run("pairs", *argv, *NOWHERE, "--stages", stages), "oracle", "choose one of: ", "metric")


def test_a_model_path_that_is_none(evaluate, tmp_path):
    assert complains(evaluate("--serve", tmp_path / "index"), f"{tmp_path / 'index'}: is not a model folder")
    assert complains(
        evaluate("--serve", "models/absent", "--output_dir", tmp_path / "other"), "models/absent: is neither"
    )


def test_a_port_in_use(evaluate, tmp_path, monkeypatch):
    # vLLM seems installed, to the server alone.
    present = SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: name))
    monkeypatch.setattr("notewriter.models.server.importlib", present)
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert complains(evaluate("--serve", model, "--port", port), f"port {port} is in use")


def test_no_model_at_all(evaluate):
    assert complains(evaluate(), "no model; give --serve PATH, or --base_url URL --model NAME")


def test_an_endpoint_that_is_not_there(evaluate, unused_tcp_port, monkeypatch):
    import anyio

    async def at_once(seconds):
        pass

    monkeypatch.setattr(anyio, "sleep", at_once)
    address = f"http://127.0.0.1:{unused_tcp_port}/v1"
    assert complains(evaluate("--base_url", address, "--model", "fake"), f"{address}: cannot be reached")


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        (itertools.repeat("401"), "rejects the key"),
        (itertools.repeat("404"), "has no model"),
        (itertools.repeat("cut"), "no reply after 8 attempts"),
    ],
    ids=["key", "model", "faulty"],
)
def test_an_endpoint_that_fails(evaluate, monkeypatch, faults, problem):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)
    with fake_endpoint(faults=faults) as endpoint:
        assert complains(evaluate("--base_url", endpoint.base_url, "--model", "fake"), endpoint.base_url, problem)


def test_an_endpoint_with_other_models(evaluate):
    with fake_endpoint() as endpoint:
        result = evaluate("--base_url", endpoint.base_url, "--model", "gpt-7")
    assert complains(result, "does not serve model 'gpt-7'; it serves fake")


def test_a_key_that_there_is_none_of(evaluate, tmp_path):
    (tmp_path / "run.yaml").write_text("method: deepnote\nmax_tokns: 3\n")
    problem = f"{tmp_path / 'run.yaml'}:2: unknown key 'max_tokns'; did you mean 'max_tokens'?"
    assert complains(evaluate("--config", tmp_path / "run.yaml"), problem)


def test_a_folder_of_another_run(evaluate):
    with fake_endpoint() as endpoint:
        model = ["--base_url", endpoint.base_url, "--model", endpoint.model]
        code, out, _ = evaluate(*model)
        assert code == 0
        assert "1 questions, 0 errors" in out
        assert complains(evaluate(*model, "--seed", "1"), "contains a run with seed: 0, not 1")


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--index", "absent", "absent: contains no index"),
        ("--prompts_dir", "absent", "absent: prompts_dir is not a folder"),
        ("--path", "absent", "absent: cannot be read"),
        ("--family", "squad", "unknown metric family 'squad'"),
        ("--limit", "0", "limit: 0"),
        ("--concurrency", "0", "concurrency: 0"),
        ("--cache", "questions.jsonl", "questions.jsonl: is not a response cache"),
        ("--models", '{"judge": {}}', "judge: needs base_url and model"),
    ],
)
def test_other_things_that_are_wrong(evaluate, tmp_path, monkeypatch, option, value, problem):
    monkeypatch.chdir(tmp_path)
    assert complains(evaluate(*NOWHERE, option, value), problem)
