"""A run whose loss, gradient or weights are no longer finite ends with the step and the last good checkpoint."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from notewriter.ground.errors import UserError
from notewriter.training import dpo, kto, sft
from notewriter.training.run.saved import last_finite
from notewriter.training.run.trainers import MeteredDPOTrainer

Options = Callable[..., list[str]]

DIVERGES = {"learning_rate": 1e30, "optim": "sgd", "max_grad_norm": 0, "lr_scheduler_type": "constant"}


@pytest.mark.parametrize("method", ["dpo", "kto", "sft"])
def test_it_stops_at_the_first_step_whose_loss_is_not_finite(
    method: str, four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    data = {"data" if method == "sft" else "pairs": write_pairs()}
    train = {"dpo": dpo, "kto": kto, "sft": sft}[method].main  # type: ignore[attr-defined]

    with pytest.raises(
        UserError, match=r"run: step 2: the (loss|gradient's norm) is not finite: training has diverged"
    ):
        train(four_steps(**data, **DIVERGES, save_steps=1))

    assert not (tmp_path / "run/training.json").exists()


def test_weights_that_are_not_finite_after_the_last_step_are_no_finished_model(
    four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"run: training has diverged in its last step: .* not finite"):
        dpo.main(
            four_steps(pairs=write_pairs(), **DIVERGES | {"learning_rate": 3e38, "weight_decay": 1e3}, max_steps=1)
        )
    assert not (tmp_path / "run/training.json").exists()


def spoilt_at(step: int, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a hook put this value into one gradient of the backward before a step."""
    original = MeteredDPOTrainer.training_step

    def training_step(self: MeteredDPOTrainer, *arguments: Any, **options: Any) -> torch.Tensor:
        loss: torch.Tensor = original(self, *arguments, **options)
        if self.state.global_step + 1 == step:
            parameter = next(each for each in self.model.parameters() if each.grad is not None)
            assert parameter.grad is not None
            parameter.grad[0, 0] = value
        return loss

    monkeypatch.setattr(MeteredDPOTrainer, "training_step", training_step)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_never_reaches_the_weights(
    value: float,
    lora: bool,
    four_steps: Options,
    write_pairs: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loss of that step is, and so are the weights."""
    spoilt_at(3, value, monkeypatch)
    good = tmp_path / "run/checkpoint-2"
    with pytest.raises(
        UserError, match=rf"step 3: the gradient's norm is not finite: .* from {re.escape(str(good))}, the last"
    ):
        dpo.main(four_steps(pairs=write_pairs(), use_peft=lora))
    steps = [each["step"] for each in json.loads((good / "trainer_state.json").read_text())["log_history"]]
    assert max(steps) == 2


def test_a_checkpoint_with_broken_weights_is_not_the_last_good_one(tmp_path: Path) -> None:
    for step, value in ((2, 1.0), (4, float("inf"))):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").touch()
        save_file({"a": torch.tensor([value])}, folder / "model.safetensors")
    assert last_finite(tmp_path) == tmp_path / "checkpoint-2"
    assert torch.isinf(load_file(tmp_path / "checkpoint-4/model.safetensors")["a"]).all()
