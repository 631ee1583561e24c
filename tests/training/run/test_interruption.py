"""A signal ends a run with a checkpoint after the step at hand; the same command continues as if nothing had been."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from notewriter.artifacts.trackers import run_id
from notewriter.training import dpo as train_dpo
from notewriter.training.run.keeping import REFERENCE
from notewriter.training.run.signals import SIGNALS, STOPPED
from notewriter.training.run.trainers import MeteredDPOTrainer

Options = Callable[..., list[str]]


@pytest.fixture
def options(four_steps: Options, tiny_pairs: Path) -> Options:
    """Four steps that save nothing until they are done."""
    return partial(four_steps, pairs=tiny_pairs, learning_rate=1e-3, save_steps=100, total_batch_size=2)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A stopped run keeps its handlers until its process ends, which here goes on."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def send(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int, signal.Signals], None]:
    """Send a signal to this process inside a call of a trainer's method, counted from one; the later calls pass."""

    def arrange(method: str, call: int, number: signal.Signals) -> None:
        original = getattr(MeteredDPOTrainer, method)
        calls = 0

        def interrupted(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == call:
                os.kill(os.getpid(), number)
            return original(*args, **kwargs)

        monkeypatch.setattr(MeteredDPOTrainer, method, interrupted)

    return arrange


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("method", "call", "number", "changes", "step"),
    [
        ("training_step", 2, signal.SIGTERM, {}, 2),
        # In the first of two batches of the second step.
        ("training_step", 3, signal.SIGUSR1, {"per_device_train_batch_size": 1}, 2),
        # The last step, in the middle of an epoch of eight.
        ("training_step", 4, signal.SIGTERM, {}, 4),
        ("prediction_step", 1, signal.SIGUSR1, {"eval_strategy": "steps", "eval_steps": 3}, 3),
    ],
)
def test_a_signal_saves_a_checkpoint_and_nothing_is_lost(
    method: str,
    call: int,
    number: signal.Signals,
    changes: dict[str, object],
    step: int,
    options: Options,
    send: Callable[[str, int, signal.Signals], None],
    tmp_path: Path,
) -> None:
    train_dpo.main(options(**({"output_dir": tmp_path / "undisturbed", "per_device_train_batch_size": 2} | changes)))
    send(method, call, number)

    with pytest.raises(SystemExit) as stopped:
        train_dpo.main(options(**({"per_device_train_batch_size": 2} | changes)))

    assert stopped.value.code == STOPPED
    assert checkpoints(tmp_path / "run") == [f"checkpoint-{step}"]
    assert not (tmp_path / "run/training.json").exists()
    train_dpo.main(options(**({"per_device_train_batch_size": 2} | changes)))
    undisturbed, continued = weights(tmp_path / "undisturbed"), weights(tmp_path / "run")
    assert all(torch.equal(undisturbed[name], continued[name]) for name in undisturbed)
    assert checkpoints(tmp_path / "run") == sorted({f"checkpoint-{step}", "checkpoint-4"})
    before, after = (json.loads((tmp_path / run / "training.json").read_text()) for run in ("undisturbed", "run"))
    assert after["metrics"]["num_tokens"] == before["metrics"]["num_tokens"]
    # That of the last start's steps would pass for the whole run's.
    assert "train_loss" in before["metrics"] and "train_loss" not in after["metrics"]


def test_steps_since_the_last_entry_of_the_log_are_logged_before_the_run_stops(
    options: Options, send: Callable[[str, int, signal.Signals], None], tmp_path: Path
) -> None:
    send("training_step", 3, signal.SIGTERM)
    with pytest.raises(SystemExit):
        train_dpo.main(options(logging_steps=10, per_device_train_batch_size=2))
    state = json.loads((tmp_path / "run/checkpoint-3/trainer_state.json").read_text())
    assert [entry["step"] for entry in state["log_history"] if "loss" in entry] == [3]


def test_a_checkpoint_from_an_evaluation_has_the_reference_that_followed_the_model(
    options: Options, send: Callable[[str, int, signal.Signals], None], tmp_path: Path
) -> None:
    following = {"sync_ref_model": True, "ref_model_sync_steps": 1}
    arguments = options(eval_strategy="steps", eval_steps=3, per_device_train_batch_size=2, **following)
    send("prediction_step", 1, signal.SIGTERM)
    with pytest.raises(SystemExit):
        train_dpo.main(arguments)
    assert (tmp_path / "run/checkpoint-3" / REFERENCE).is_file()
    train_dpo.main(arguments)
    assert (tmp_path / "run/training.json").is_file()


def test_a_signal_in_the_last_evaluation_leaves_the_last_checkpoint_alone(
    options: Options, send: Callable[[str, int, signal.Signals], None], tmp_path: Path
) -> None:
    arguments = options(eval_strategy="steps", eval_steps=3, per_device_train_batch_size=2)
    send("evaluate", 2, signal.SIGTERM)
    saves = []
    original = MeteredDPOTrainer._save_checkpoint
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as stopped:
        patched.setattr(
            MeteredDPOTrainer,
            "_save_checkpoint",
            lambda self, *rest, **named: (saves.append(self.state.global_step), original(self, *rest, **named))[1],
        )
        train_dpo.main(arguments)
    assert stopped.value.code == STOPPED
    assert saves == [4]
    train_dpo.main(arguments)
    assert (tmp_path / "run/training.json").is_file()


@pytest.mark.integration
def test_a_run_that_goes_on_does_so_in_weights_and_biases_too(
    options: Options, send: Callable[[str, int, signal.Signals], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_RUN_ID", "WANDB_RESUME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    # Otherwise with the environment of an earlier test.
    wandb.teardown()
    argv = [*options(per_device_train_batch_size=2), "--report_to", "wandb"]
    send("training_step", 2, signal.SIGTERM)
    with pytest.raises(SystemExit):
        train_dpo.main(argv)
    wandb.finish()
    train_dpo.main(argv)
    wandb.finish()
    ids = [folder.name.rpartition("-")[2] for folder in tmp_path.glob("wandb/offline-run-*")]
    assert len(ids) == 2 and ids == [run_id(tmp_path / "run")] * 2
