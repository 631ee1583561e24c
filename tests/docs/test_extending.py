"""docs/extending.md: its files and diffs are applied to a copy of the project, and its commands run there."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_endpoint import fake_endpoint

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RIDDLES = [
    {"riddle": "What has teeth and cannot bite?", "solution": "A comb", "source": "A comb has teeth and cannot bite."},
    {"riddle": "What runs and has no legs?", "solution": "Water", "source": "Water runs and has no legs."},
]


def insert(folder: Path, diff: str) -> None:
    """Apply a diff whose hunks are located by their lines."""
    header, *hunks = re.split(r"^@@.*\n", diff, flags=re.MULTILINE)
    path = folder / re.search(r"^\+\+\+ b/(\S+)$", header, re.MULTILINE)[1]
    text = path.read_text(encoding="utf-8")
    for hunk in hunks:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        after = "".join(line[1:] for line in lines)
        assert text.count(before) == 1, f"{path} no longer holds these lines once:\n{before}"
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the project with everything on the page."""
    folder = tmp_path_factory.mktemp("extended")
    shutil.copytree(ROOT / "notewriter", folder / "notewriter", ignore=shutil.ignore_patterns("__pycache__"))
    for language, file, text in BLOCK.findall(PAGE):
        if file:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
        elif language == "diff":
            insert(folder, text)
    (folder / "riddles.jsonl").write_text("".join(json.dumps(riddle) + "\n" for riddle in RIDDLES))
    return folder


def notewriter(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "notewriter.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_run_at_the_end_of_the_page_scores_the_new_benchmark_with_the_new_method_and_metric(extended):
    (shell,) = (text for language, _, text in BLOCK.findall(PAGE) if language == "sh")
    with fake_endpoint(reply=lambda request: "comb") as endpoint:
        shell = shell.replace("http://127.0.0.1:8000/v1", endpoint.base_url).replace("MODEL", endpoint.model)
        for line in shell.replace("\\\n", " ").strip().splitlines():
            command, *arguments = shlex.split(line)
            assert command == "notewriter"
            notewriter(extended, *arguments)
    metrics = json.loads((extended / "runs/riddles/metrics.json").read_text())
    assert metrics["metrics"]["first_word"]["mean"] == 0.5
    notewriter(extended, "report", "--runs", "runs/riddles", "--output", "report.html")
    assert "Share of predictions with the right first word." in (extended / "report.html").read_text()


def test_pairs_of_the_new_method_are_labelled_by_the_new_judge(extended):
    index = extended / "runs/index/pairs"
    notewriter(extended, "index", "--dataset", "riddles", "--path", "riddles.jsonl", "--index", str(index))

    def reply(request):
        temperature = request["temperature"]
        return "A comb, of course, it must be a comb" if temperature < 0.5 else "A comb" if temperature < 0.8 else "No"

    with fake_endpoint(reply=reply) as endpoint:
        notewriter(
            *(extended, "pairs", "--dataset", "riddles", "--path", "riddles.jsonl", "--index", str(index)),
            *("--stages", '{"two_looks/note": "brevity"}', "--temperatures", "0.1", "0.7", "0.9", "--top_ps", "1.0"),
            *("--dev_share", "0", "--base_url", endpoint.base_url, "--model", endpoint.model),
            *("--output_dir", "runs/pairs"),
        )
    stats = json.loads((extended / "runs/pairs/stats.json").read_text())
    # For the first riddle; no note answers the second one.
    assert stats["stages"]["two_looks/note"]["pairs"] >= 1
    assert stats["judges"] == {"two_looks/note": "brevity"}
    assert "cc0-1.0" in (extended / "runs/pairs/README.md").read_text()


def test_a_dry_run_knows_the_new_stages(extended):
    told = notewriter(
        *(extended, "evaluate", "--dataset", "riddles", "--path", "riddles.jsonl", "--index", "runs/index/riddles"),
        *("--method", "two_looks", "--base_url", "http://127.0.0.1:9/v1", "--model", "m", "--dry_run", "true"),
        *("--output_dir", "runs/dry"),
    )
    assert "two_looks/query" in told
