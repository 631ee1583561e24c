"""Rounds of training from a pipeline file: killed and resumed, ended by their score, traceable to the base."""

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tiny_world import tiny_world

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.run_folder import read_config
from notewriter.artifacts.training_record import read_training_record
from notewriter.datasets import load_questions
from notewriter.experiments.lineage import lineage

pytestmark = pytest.mark.integration

PROJECT = Path(__file__).parents[2]
QUESTIONS = 8

FILE = """
    output_dir: FOLDER/run
    variables:
      questions: --dataset jsonl --path PATH --index INDEX --cache {{ output_dir }}/cache.sqlite
      method: --method_options '{"top_k":1,"adaptive_retrieval":false}'
      previous: "{{ 'MODEL' if round == 1 else output_dir ~ '/round-' ~ (round - 1) ~ '/checkpoint' }}"
      earlier: >-
        '{ {%- for before in range(1, round) %}{{ ", " if before > 1 }}"{{ output_dir }}/round-{{ before }}/pairs": 0.5
        {%- endfor %}}'
      scores: "f1{% for before in range(round) %}:{{ output_dir }}/round-{{ before }}/dev{% endfor %}"
    runs:
      - title: the start on dev
        serve: MODEL
        command: >-
          notewriter evaluate {{ questions }} {{ method }} --max_tokens 100
          --output_dir {{ output_dir }}/round-0/dev
      - each: {round: [1, 2, 3]}
        runs:
          - title: round {{ round }} pairs
            while_rising: "{{ scores }}"
            serve: "{{ previous }}"
            command: >-
              notewriter pairs {{ questions }} --stages '{"deepnote/init_note":"reference"}'
              --gold_stages deepnote/init_note
              --method_options '{"deepnote":{"adaptive_retrieval":false}}' --top_k_range 1 1 --temperatures 0.5
              --top_ps 1.0 --dev_share 0 --seed {{ round }}
              --output_dir {{ output_dir }}/round-{{ round }}/pairs
          - title: round {{ round }} DPO
            while_rising: "{{ scores }}"
            command: >-
              PYTHON PROJECT/training/train_dpo.py --model_name_or_path {{ previous }} --mix {{ earlier }}
              --pairs {{ output_dir }}/round-{{ round }}/pairs
              --output_dir {{ output_dir }}/round-{{ round }}/checkpoint
              --max_length 2048 --max_steps 1 --per_device_train_batch_size 2 --gradient_checkpointing false
              --learning_rate 1e-2 --precompute_ref_log_probs true --reference_cache {{ output_dir }}/reference
              --save_strategy no --use_cpu true
            result: "{{ output_dir }}/round-{{ round }}/checkpoint/training.json"
          - title: round {{ round }} on dev
            while_rising: "{{ scores }}"
            serve: "{{ output_dir }}/round-{{ round }}/checkpoint"
            command: >-
              notewriter evaluate {{ questions }} {{ method }} --max_tokens 10{{ round }}
              --output_dir {{ output_dir }}/round-{{ round }}/dev
    """


SERVER = """
import argparse, json, os
from fake_endpoint import make_server

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--port", type=int)
parser.add_argument("--served-model-name")
given, _ = parser.parse_known_args()

def answer(request):
    text = request["messages"][-1]["content"]
    # The scripted student tells its rounds apart by the token limit.
    known = json.loads(os.environ["ANSWERS"]) if request["max_tokens"] in (101, 102) else {}
    return next((known[each] for each in known if each in text), "a guess that is wrong")

server, endpoint = make_server(answer, port=given.port)
endpoint.model = given.served_model_name
server.serve_forever()
"""


REJECTION = {
    "train_dpo.py": "train_sft.py",
    "--pairs {{ output_dir }}": "--data {{ output_dir }}",
    "--precompute_ref_log_probs true --reference_cache {{ output_dir }}/reference": "",
    "round: [1, 2, 3]": "round: [1]",
}
"""What makes one round of rejection sampling of the file."""


def prepared(file: str, tiny_model: Path, folder: Path) -> dict[str, str]:
    """Write `rounds.yaml` for a world and a student of their own; returns the environment that it runs in."""
    world = tiny_world(folder / "world", QUESTIONS)
    # The student answers half of the questions from round 1 on, so round 2 raises nothing.
    questions = load_questions("jsonl", world["path"])[: QUESTIONS // 2]
    answers = {question.question: question.answers[0] for question in questions}
    for package in ("vllm", "vllm/entrypoints", "vllm/entrypoints/openai"):
        (folder / "site" / package).mkdir(parents=True)
        (folder / "site" / package / "__init__.py").touch()
    (folder / "site/vllm/entrypoints/openai/api_server.py").write_text(SERVER)
    for name, value in {
        "FOLDER": folder,
        "PATH": world["path"],
        "INDEX": world["index"],
        "MODEL": tiny_model,
        "PYTHON": shlex.quote(sys.executable),
        "PROJECT": PROJECT,
    }.items():
        file = file.replace(name, str(value))
    (folder / "rounds.yaml").write_text(textwrap.dedent(file))
    return os.environ | {
        "PYTHONPATH": f"{folder}/site:{PROJECT}:{PROJECT}/tests",
        "ANSWERS": json.dumps(answers),
    }


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "notewriter.cli", "pipeline", str(folder / "rounds.yaml")]


def test_rejection_sampling_goes_from_samples_to_a_checkpoint_and_its_scores(tiny_model: Path, tmp_path: Path) -> None:
    file = FILE
    for part, other in REJECTION.items():
        assert part in file
        file = file.replace(part, other)
    environment = prepared(file, tiny_model, tmp_path)

    done = subprocess.run(command(tmp_path), cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=900)

    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "run"
    record = read_training_record(run / "round-1/checkpoint")
    assert record is not None
    # The better sides of the pairs that were made of its own samples.
    assert (record.method, record.data) == ("sft", str(run / "round-1/pairs"))
    assert record.rows["train"].keys() == {"deepnote/init_note"}
    scores = [read_metrics(run / f"round-{number}/dev/metrics.json").metrics["f1"].mean for number in range(2)]
    assert scores[0] == 0 < scores[1]
    assert f"{run}/round-1/pairs: " in "\n".join(lineage(run / "round-1/dev"))


def test_two_rounds_survive_a_kill_and_a_third_that_is_not_needed_is_skipped(tiny_model: Path, tmp_path: Path) -> None:
    environment = prepared(FILE, tiny_model, tmp_path)

    def start():
        return subprocess.Popen(
            command(tmp_path),
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    run = tmp_path / "run"
    with start() as running:
        # In the second round, while it trains.
        while running.poll() is None and not (run / "round-2/checkpoint/config.yaml").exists():
            time.sleep(0.05)
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        printed = running.stdout.read()
    assert running.returncode == -signal.SIGKILL, printed
    first_round = (run / "round-1/checkpoint/model.safetensors").stat().st_mtime_ns
    with start() as running:
        printed = running.stdout.read()
    assert running.returncode == 0, printed

    assert (run / "round-1/checkpoint/model.safetensors").stat().st_mtime_ns == first_round
    scores = [read_metrics(run / f"round-{number}/dev/metrics.json").metrics["f1"].mean for number in range(3)]
    assert scores[0] == 0
    assert scores[1] == scores[2] > 0
    assert printed.count("skipped: round 2 did not raise f1") == 3
    assert not (run / "round-3").exists()

    # Each round starts from the one before, which is also its reference, and mixes in the earlier pairs.
    assert read_config(run / "round-2/checkpoint")["model_name_or_path"] == str(run / "round-1/checkpoint")
    record = read_training_record(run / "round-2/checkpoint")
    assert record is not None
    assert record.mix == {str(run / "round-1/pairs"): 0.5}
    assert len(list((run / "reference").iterdir())) == 2
    shown = "\n".join(lineage(run / "round-2/dev"))
    for made in ("round-2/checkpoint", "round-2/pairs", "round-1/checkpoint", "round-1/pairs"):
        assert f"{run}/{made}: " in shown
    assert str(tiny_model) in shown
