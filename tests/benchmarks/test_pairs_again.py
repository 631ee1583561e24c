"""The command that makes an experiment's data sets again from its cached replies."""

import contextlib
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from fake_endpoint import fake_endpoint
from notewriter.experiments.pipelines.pipeline import read_pipeline
from tiny_world import DEEPNOTE_PAIRS, tiny_world, write_config

from notewriter.data import build_pairs
from notewriter.models import roles, servers
from notewriter.models.adapters import groups

ROOT = Path(__file__).parents[2]


def made_again(file):
    done = run(file)
    return done.returncode, done.stdout.splitlines()


def run(file):
    command = [sys.executable, "benchmarks/pairs_again.py", str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def model_folder(path):
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


@pytest.mark.integration
def test_pairs_are_made_again_from_the_cache_and_a_missing_reply_is_seen(tmp_path):
    model, cache, output_dir = model_folder(tmp_path / "model"), tmp_path / "cache.sqlite", tmp_path / "run" / "pairs"
    config = write_config(tmp_path / "pairs.yaml", {**tiny_world(tmp_path / "world"), **DEEPNOTE_PAIRS})
    stage = {
        "title": "pairs",
        "command": f"notewriter pairs {' '.join(config)} --cache {cache} --output_dir {output_dir}",
        "result": str(output_dir / "stats.json"),
        "serve": str(model),
    }
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(tmp_path / "run"), "stages": [stage]}))
    assert made_again(file) == (0, ['{"data_sets": 0, "equal": 0, "requests": 0}'])

    (group,) = groups([str(model)])
    with fake_endpoint() as endpoint:
        endpoint.model = group.names[str(model)]
        argv = read_pipeline(file).stages[0].argv()[2:]
        build_pairs.main([*argv, "--base_url", endpoint.base_url, "--model", endpoint.model, "--served", str(model)])
    equal = [f"equal, 0 requests: {output_dir}", '{"data_sets": 1, "equal": 1, "requests": 0}']
    assert made_again(file) == (0, equal)

    cache.unlink()
    code, (told, _) = made_again(file)
    assert code == 1 and told.startswith("DIFFERENT") and "DIFFERENT, 0 requests" not in told


@pytest.fixture
def answering(monkeypatch):
    """Has an endpoint of its own answer for each model that a command serves."""

    @contextlib.contextmanager
    def serve(path, options, **_):
        with fake_endpoint() as endpoint:
            endpoint.model = options["served_model_name"]
            yield SimpleNamespace(base_url=endpoint.base_url, ensure_alive=lambda: None)

    monkeypatch.setattr(servers, "serve", serve)
    # The folder has no tokenizer.
    monkeypatch.setattr(roles, "check_template", lambda *_: None)


@pytest.mark.integration
def test_every_shard_is_made_again_and_the_models_of_roles_are_not_started_either(tmp_path, answering):
    model, judge = model_folder(tmp_path / "model"), model_folder(tmp_path / "judge")
    cache, output_dir = tmp_path / "cache.sqlite", tmp_path / "run" / "pairs"
    judged = {**DEEPNOTE_PAIRS, "stages": DEEPNOTE_PAIRS["stages"] | {"deepnote/init_note": "llm"}}
    config = write_config(tmp_path / "pairs.yaml", {**tiny_world(tmp_path / "world"), **judged})
    models = shlex.quote(json.dumps({"judge": {"serve": str(judge)}}))
    stage = {
        "title": "pairs",
        "command": f"notewriter pairs {' '.join(config)} --models {models} --cache {cache} --shard $shard/$shards "
        f"--output_dir {output_dir}-$shard",
        "result": f"{output_dir}-$shard/stats.json",
        "serve": str(model),
        "shards": 2,
    }
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(tmp_path / "run"), "stages": [stage]}))
    for shard in (1, 2):
        build_pairs.main([*read_pipeline(file).stages[0].argv(shard)[2:], "--serve", str(model)])
    told = [f"equal, 0 requests: {output_dir}-{shard}" for shard in (1, 2)]
    assert made_again(file) == (0, [*told, '{"data_sets": 2, "equal": 2, "requests": 0}'])

    (tmp_path / "world/train/questions.jsonl").unlink()
    failed = run(file)
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"{output_dir}-1: its command fails:\n") and "questions.jsonl" in failed.stderr
