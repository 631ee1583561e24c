"""Commands whose models are paid by the call: through a batch API, within a budget, killed and run again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_batch_api import fake_batch_api
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import build_pairs
from notewriter.evaluation import evaluate, judge
from notewriter.ground.errors import UserError
from notewriter.models import batches


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tiny_world(tmp_path_factory.mktemp("world"), 4)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "QUIET", 0.05)
    monkeypatch.setattr(batches, "POLL", 0.02)


def batched(base_url: str) -> dict[str, object]:
    endpoint = {"base_url": base_url, "model": "fake", "batch": True}
    return {"base_url": None, "model": None, "models": {"policy": endpoint}}


def test_pairs_through_a_batch_api_are_those_of_a_live_endpoint(tmp_path: Path, world: dict[str, str]) -> None:
    with fake_endpoint() as live:
        build_pairs.main(run_config(tmp_path, "live", world, live, DEEPNOTE_PAIRS))
        with fake_batch_api() as api:
            build_pairs.main(run_config(tmp_path, "batched", world, live, DEEPNOTE_PAIRS | batched(api.base_url)))
    for name in ("train.parquet", "dev.parquet"):
        assert (tmp_path / "batched" / name).read_bytes() == (tmp_path / "live" / name).read_bytes()
    # All questions are in each round.
    assert sum(api.sizes) == len(live.requests)
    assert len(api.sizes) < len(live.requests) / 4


def test_a_judged_run_may_mix_a_live_model_and_a_batched_judge(tmp_path: Path, world: dict[str, str]) -> None:
    with fake_endpoint(lambda request: "Yes") as live, fake_batch_api() as api:
        evaluate.main(run_config(tmp_path, "run", world, live, {"method": "vanilla"}))
        endpoint = {"base_url": api.base_url, "model": "fake", "batch": True}
        options = ["--models", json.dumps({"policy": endpoint}), "--cache", str(tmp_path / "judge.sqlite")]
        judge.main(["--runs", str(tmp_path / "run"), *options])
    assert api.sizes == [4]


def test_a_run_stops_at_its_limit_and_goes_on_with_a_higher_one(tmp_path: Path, world: dict[str, str]) -> None:
    # A reply has twelve words.
    settings = {"method": "deepnote", "max_tokens": 12, "prices": {"policy": [0, 1e6]}}
    with fake_endpoint() as live:
        evaluate.main(run_config(tmp_path, "free", world, live, settings | {"prices": {}}))
        calls = len(live.requests)
        with pytest.raises(UserError, match=r"max_cost: 60\.0000 of 70 are spent"):
            evaluate.main(run_config(tmp_path, "run", world, live, settings | {"max_cost": 70}))
        assert len(live.requests) == calls + 5
        evaluate.main(run_config(tmp_path, "run", world, live, settings | {"max_cost": 10_000}))
        assert len(live.requests) == 2 * calls
    scores = [json.loads((tmp_path / name / "metrics.json").read_text())["metrics"] for name in ("free", "run")]
    assert scores[0] == scores[1]
    spent = [json.loads(line)["cost"] for line in (tmp_path / "run" / "spent.jsonl").read_text().splitlines()]
    # Without the calls that the cache answered, unlike costs.json.
    assert sum(spent) == 12 * calls


@pytest.mark.parametrize("command", [build_pairs, evaluate])
def test_a_limit_without_prices_is_refused_before_anything_starts(
    tmp_path: Path, world: dict[str, str], command
) -> None:
    with fake_endpoint() as live, pytest.raises(UserError, match="max_cost: there are no prices"):
        settings = DEEPNOTE_PAIRS if command is build_pairs else {"method": "vanilla"}
        command.main(run_config(tmp_path, "run", world, live, settings | {"max_cost": 3}))
    assert not (tmp_path / "run").exists()


@pytest.mark.integration
def test_a_run_that_is_killed_while_its_batch_runs_pays_for_it_once(tmp_path: Path, world: dict[str, str]) -> None:
    program = (
        "from notewriter.models import batches; batches.QUIET, batches.POLL = 0.2, 0.05; "
        "from notewriter.cli import main; main()"
    )
    with fake_endpoint() as live, fake_batch_api(polls=10**6) as api:
        settings = {"method": "vanilla"} | batched(api.base_url)
        arguments = run_config(tmp_path, "run", world, live, settings)
        command = [sys.executable, "-c", program, "evaluate", *arguments]
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}) as running:
            while api.calls["GET /batches/batch_0"] < 3:
                assert running.poll() is None
                time.sleep(0.02)
            running.send_signal(signal.SIGKILL)
        api.polls = 0
        evaluate.main(arguments)
    assert api.sizes == [4]
