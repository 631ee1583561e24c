"""Measurements in a process that dies and hangs, and the file of results."""

import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu_measurements.plan import Measurement
from benchmarks.gpu_measurements.results import Results, read
from benchmarks.gpu_measurements.supervisor import Worker, supervise

# Does with each measurement what its name says.
FAKE_WORKER = """
import json, os, sys, time
request = json.loads(sys.stdin.readline())
def say(record):
    sys.stdout.write(json.dumps(record) + "\\n")
    sys.stdout.flush()
say({"header": {"device": "a GPU", "versions": {"torch": "2"}, "command": "python gpu.py"}})
for name, function, options in request["measurements"]:
    say({"begins": name})
    if name == "dies":
        os._exit(9)
    if name == "hangs":
        time.sleep(60)
    if name == "out of memory":
        say({"name": name, "options": options, "outcome": "out of memory", "reason": "CUDA out of memory."})
        continue
    say({"name": name, "options": options, "outcome": "measured", "number": 1.5})
"""


@pytest.fixture
def take(tmp_path: Path):
    """Measure by name with a worker that computes nothing; returns how many processes it took."""

    def take(names: list[str], seconds: float = 60, limit: int = 30) -> int:
        started = []

        def start(left: list[Measurement]) -> Worker:
            started.append(left)
            request = {"measurements": [(each.name, each.function, each.options) for each in left]}
            with open(tmp_path / "log", "a") as log:
                return Worker([sys.executable, "-c", FAKE_WORKER], request, {}, log)

        wanted = [Measurement(name, "", {}, limit) for name in names]
        supervise(wanted, Results(tmp_path / "r.jsonl"), start, time.monotonic() + seconds)
        return len(started)

    return take


def test_a_measurement_that_dies_is_recorded_and_the_next_one_begins(take, tmp_path):
    assert take(["first", "dies", "out of memory", "last"]) == 2
    headers, records = read(tmp_path / "r.jsonl")
    assert headers == [{"device": "a GPU", "versions": {"torch": "2"}, "command": "python gpu.py"}]
    assert [record["outcome"] for record in records.values()] == ["measured", "failed", "out of memory", "measured"]
    assert "status 9" in records["dies"]["reason"]


def test_a_measurement_that_hangs_is_ended_at_its_limit(take, tmp_path):
    take(["hangs", "last"], limit=1)
    _, records = read(tmp_path / "r.jsonl")
    assert records["hangs"]["reason"] == "no result within 1 s"
    assert records["last"]["outcome"] == "measured"


def test_a_run_ends_when_its_time_is_up_and_the_next_takes_up_what_is_missing(take, tmp_path):
    take(["first", "hangs"], seconds=3)
    _, records = read(tmp_path / "r.jsonl")
    assert list(records) == ["first"]
    with open(tmp_path / "r.jsonl", "a") as file:
        file.write('{"name": "cut o')
    assert take(["first", "second"]) == 1
    _, records = read(tmp_path / "r.jsonl")
    assert list(records) == ["first", "second"]
    assert take(["first", "second"]) == 0


def test_a_failure_is_tried_again_by_the_next_run_and_other_results_are_not(take):
    assert take(["dies", "out of memory"]) == 2
    assert take(["out of memory"]) == 0
    assert take(["dies"]) == 1


def test_results_of_another_machine_are_not_mixed(take, tmp_path):
    take(["first"])
    with pytest.raises(SystemExit, match="measured with a GPU, not another; name another file"):
        Results(tmp_path / "r.jsonl").add_header({"device": "another", "versions": {"torch": "2"}})
