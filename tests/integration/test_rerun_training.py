"""`notewriter lineage CHECKPOINT --rerun FILE`: the pipeline of a training gives the same data and the same weights."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import build_pairs
from notewriter.experiments import lineage
from notewriter.experiments.pipelines import command
from notewriter.experiments.pipelines.pipeline import PROJECT

pytestmark = pytest.mark.integration

OPTIONS = (
    "--max_length 2048 --max_steps 2 --per_device_train_batch_size 2 --gradient_checkpointing false "
    "--learning_rate 1e-2 --save_strategy no --use_cpu true --seed 3"
)


def test_a_training_is_done_again_with_equal_weights(tiny_model: Path, tmp_path: Path) -> None:
    made, again = tmp_path / "made", tmp_path / "again"
    made.mkdir()
    world = tiny_world(tmp_path / "world", 4)
    checkpoint = made / "checkpoint"
    training = [sys.executable, str(PROJECT / "training/train_dpo.py"), "--model_name_or_path", str(tiny_model)]
    training += ["--pairs", str(made / "pairs"), "--output_dir", str(checkpoint), *shlex.split(OPTIONS)]
    with fake_endpoint(lambda request: " ".join(str(request["messages"][-1]["content"]).split()[-12:])) as endpoint:
        build_pairs.main(run_config(made, "pairs", world, endpoint, DEEPNOTE_PAIRS))
        subprocess.run(training, cwd=PROJECT, check=True, capture_output=True)
        lineage.main([str(checkpoint), "--rerun", str(tmp_path / "again.yaml")])
        command.main([str(tmp_path / "again.yaml"), "--output_dir", str(again)])

    for file in ("pairs/train.parquet", "checkpoint/model.safetensors"):
        assert (again / file).read_bytes() == (made / file).read_bytes(), file
    assert (checkpoint / "model.safetensors").read_bytes() != (tiny_model / "model.safetensors").read_bytes()
