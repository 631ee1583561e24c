"""examples/riddles, a package of one's own: it is installed, its tests pass, and docs/extending.md's commands run."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fake_endpoint import fake_endpoint

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "riddles"
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
RIDDLES = [
    {"riddle": "What has teeth and cannot bite?", "solution": "A comb", "source": "A comb has teeth and cannot bite."},
    {"riddle": "What runs and has no legs?", "solution": "Water", "source": "Water runs and has no legs."},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the installed package in `site`, and riddles."""
    folder = tmp_path_factory.mktemp("riddles")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    copy = folder / "source"
    subprocess.run(["cp", "-r", PACKAGE, copy], check=True)
    subprocess.run([*pip, "--no-build-isolation", "--target", folder / "site", copy], check=True, timeout=120)
    (folder / "riddles.jsonl").write_text("".join(json.dumps(riddle) + "\n" for riddle in RIDDLES))
    return folder


def run(place, *command):
    environment = os.environ | {"PYTHONPATH": f"{place / 'site'}:{ROOT}"}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def notewriter(place, *arguments):
    return run(place, sys.executable, "-m", "notewriter.cli", *arguments)


def test_its_own_tests_pass(place):
    out = run(place, sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", str(place / "source/tests"))
    assert re.search(r"\d+ passed", out)


@pytest.fixture(scope="module")
def evaluated(place):
    """The place after the commands at the end of the page, with an endpoint whose answer is a comb."""
    block = re.findall(r"^```sh\n(notewriter index .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[-1]
    with fake_endpoint(lambda request: "comb") as endpoint:
        block = block.replace("http://127.0.0.1:8000/v1", endpoint.base_url).replace("MODEL", endpoint.model)
        for line in block.replace("\\\n", " ").splitlines():
            notewriter(place, *shlex.split(line)[1:])
    return place


def test_the_commands_of_the_page_score_the_dataset_with_the_method_and_the_metric(evaluated):
    metrics = json.loads((evaluated / "runs/riddles/metrics.json").read_text())
    assert (metrics["method"], metrics["family"], metrics["questions"]) == ("two_looks", "first_word", 2)
    assert metrics["metrics"]["first_word"]["mean"] == 0.5
    notewriter(evaluated, "report", "--runs", "runs/riddles", "--output", "report.html")
    assert "Share of predictions with the right first word." in (evaluated / "report.html").read_text()


def test_pairs_of_the_method_are_labelled_by_the_judge(evaluated):
    def reply(request):
        temperature = request["temperature"]
        return "A comb, of course, it must be a comb" if temperature < 0.5 else "A comb" if temperature < 0.8 else "No"

    with fake_endpoint(reply) as endpoint:
        notewriter(
            *(evaluated, "pairs", "--dataset", "riddles", "--path", "riddles.jsonl", "--index", "runs/index/riddles"),
            *("--stages", '{"two_looks/note": "brevity"}', "--temperatures", "0.1", "0.7", "0.9", "--top_ps", "1.0"),
            *("--dev_share", "0", "--base_url", endpoint.base_url, "--model", endpoint.model),
            *("--output_dir", "runs/pairs"),
        )
    stats = json.loads((evaluated / "runs/pairs/stats.json").read_text())
    # For the first riddle; no note answers the second one.
    assert stats["stages"]["two_looks/note"]["pairs"] >= 1
    assert stats["judges"] == {"two_looks/note": "brevity"}
    assert "cc0-1.0" in (evaluated / "runs/pairs/README.md").read_text()


@pytest.mark.parametrize(
    "method", ["two_looks", "riddles.two_looks:METHOD", "source/riddles/two_looks/__init__.py:METHOD"]
)
def test_a_method_is_named_by_entry_point_module_or_file(evaluated, method):
    out = notewriter(
        evaluated,
        *("evaluate", "--dataset", "riddles", "--path", "riddles.jsonl", "--index", "runs/index/riddles"),
        *("--method", method, "--base_url", "http://127.0.0.1:1/v1", "--model", "m", "--dry_run", "true"),
        *("--output_dir", "runs/dry"),
    )
    assert "two_looks/query" in out


@pytest.mark.parametrize("key", ["titles", "source/riddles/titles.py:titles"])
def test_a_retriever_is_a_part_of_a_chain(place, key):
    passages = [{"id": "1", "title": "Teeth", "text": "A comb has teeth."}]
    (place / "passages.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in passages))
    with fake_endpoint(lambda request: "A comb") as endpoint:
        notewriter(
            *(place, "evaluate", "--dataset", "riddles", "--path", "riddles.jsonl", "--method", "vanilla"),
            *("--retriever", json.dumps({key: "passages.jsonl"}), "--output_dir", f"runs/{key[:6]}"),
            *("--base_url", endpoint.base_url, "--model", endpoint.model),
        )
    traces = (place / f"runs/{key[:6]}/traces.jsonl").read_text()
    assert "A comb has teeth." in traces or '"id": "1"' in traces
    assert "passages.jsonl" in (place / f"runs/{key[:6]}/run.json").read_text()


def test_what_the_page_shows_is_what_the_files_say():
    blocks = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert blocks
    for file, text in blocks:
        assert (ROOT / file).read_text(encoding="utf-8") == text, file
