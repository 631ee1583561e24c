"""Commands that are killed at any moment and run again: nothing that was answered is asked again, nothing is lost."""

import json
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fake_endpoint import __file__ as fake_endpoint_file
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.ground.records import Sampling
from notewriter.models.client import Endpoint, cache_key
from notewriter.models.dialects import NEUTRAL

pytestmark = pytest.mark.integration

KILLS = 5
CONCURRENCY = 3
DELAY = 0.05
"""Seconds a reply takes, so that calls are in flight when the kill comes."""
COMMAND = [sys.executable, "-c", "from notewriter.cli import main; main()"]

PAIRS = DEEPNOTE_PAIRS | {
    "stages": DEEPNOTE_PAIRS["stages"] | {"deepnote/init_note": ["outcome", "llm"]},
    "quotas": {"deepnote/init_note": 4, "deepnote/answer": 4, "deepnote/refine_query": 3},
    "quota_block": 2,
}
EVALUATE = {"method": "deepnote", "name": "run"}


@dataclass
class Process:
    """The endpoint as a process of its own, which outlives the commands; `log` has a line a reply."""

    endpoint: Endpoint
    log: Path
    _told: int = 0

    def count(self) -> int:
        """How many requests were answered."""
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0

    def replies(self) -> Counter[str]:
        """How often each request was answered since this was last asked, by its key in the response cache."""
        lines = self.log.read_text().splitlines()[self._told :]
        self._told += len(lines)
        return Counter(self._key(json.loads(line)) for line in lines)

    def _key(self, request) -> str:
        schema = request.get("response_format", {}).get("json_schema", {}).get("schema")
        sampling = Sampling(request["temperature"], request["top_p"], request["max_tokens"], json_schema=schema)
        return cache_key(replace(self.endpoint, extra_body={**NEUTRAL}), request["messages"], sampling, 0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), 12)


@pytest.fixture
def process(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "replies.jsonl"
    command = [sys.executable, fake_endpoint_file, "--port", str(port), "--log", str(log), "--delay", str(DELAY)]
    with subprocess.Popen(command) as running:
        base_url = f"http://127.0.0.1:{port}/v1"
        try:
            while running.poll() is None and not answers(f"{base_url}/models"):
                time.sleep(0.05)
            yield Process(Endpoint(base_url, "fake"), log)
        finally:
            running.kill()


def answers(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5):
            return True
    except OSError:
        return False


def cached(path: Path) -> dict[str, str]:
    """The response cache: key -> completion as JSON."""
    with sqlite3.connect(path) as database:
        return dict(database.execute("SELECT key, completion FROM replies"))


@pytest.mark.parametrize(
    ("command", "settings", "calls_at_once", "results"),
    [
        # A question draws its four candidates at once, and rolls five forward: one is gold.
        ("pairs", PAIRS, 5 * CONCURRENCY, ["train.parquet", "dev.parquet", "stats.json"]),
        ("evaluate", EVALUATE, CONCURRENCY, ["metrics.json", "predictions.jsonl"]),
    ],
)
def test_a_command_killed_five_times_ends_like_one_that_was_not(
    command, settings, calls_at_once, results, world, process, tmp_path
):
    def start(name: str) -> subprocess.Popen[str]:
        arguments = run_config(tmp_path, name, world, process.endpoint, settings | {"concurrency": CONCURRENCY})
        return subprocess.Popen(
            [*COMMAND, command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(name: str) -> None:
        with start(name) as running:
            _, errors = running.communicate()
        assert running.returncode == 0, errors

    def check(cache: Path, already: dict[str, str]) -> dict[str, str]:
        """What was in the cache is there unchanged and was not asked again, and nothing was asked twice in one go."""
        replies, now = process.replies(), cached(cache)
        assert already.items() <= now.items()
        assert not replies.keys() & already.keys()
        assert set(replies.values()) <= {1}
        return now

    finish("undisturbed")
    total = process.count()
    calls = check(tmp_path / "undisturbed.sqlite", {}).keys()
    assert len(calls) == total

    cache = tmp_path / "killed.sqlite"
    seed = random.randrange(2**32)
    print(f"moments of the kills: seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    replies: dict[str, str] = {}
    for moment in sorted(random.Random(seed).sample(range(1, total * 9 // 10), KILLS)):
        with start("killed") as running:
            # The moment is counted in replies, which come whatever the speed of the machine.
            while running.poll() is None and process.count() < total + moment:
                time.sleep(0.01)
            running.kill()
            _, errors = running.communicate()
        assert running.returncode == -signal.SIGKILL, errors
        # The endpoint comes to the end of what was in flight.
        time.sleep(4 * DELAY)
        replies = check(cache, replies)
    finish("killed")
    assert check(cache, replies).keys() == calls
    # Only what was in flight at a kill was asked again.
    assert process.count() - 2 * total <= KILLS * calls_at_once

    for name in results:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
