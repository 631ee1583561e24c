"""The command that makes an experiment's data sets again from its cached replies."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, tiny_world, write_config

from data_construction import pairs
from notewriter.models.adapters import groups
from notewriter.pipelines.pipeline import read_pipeline

ROOT = Path(__file__).parents[2]


def made_again(file):
    command = [sys.executable, "benchmarks/pairs_again.py", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.integration
def test_pairs_are_made_again_from_the_cache_and_a_missing_reply_is_seen(tmp_path):
    model, cache, output_dir = tmp_path / "model", tmp_path / "cache.sqlite", tmp_path / "run" / "pairs"
    model.mkdir()
    (model / "config.json").write_text("{}")
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
        pairs.main([*argv, "--base_url", endpoint.base_url, "--model", endpoint.model, "--served", str(model)])
    equal = [f"equal, 0 requests: {output_dir}", '{"data_sets": 1, "equal": 1, "requests": 0}']
    assert made_again(file) == (0, equal)

    cache.unlink()
    code, (told, _) = made_again(file)
    assert code == 1 and told.startswith("DIFFERENT") and "DIFFERENT, 0 requests" not in told
