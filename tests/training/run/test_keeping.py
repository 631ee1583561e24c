"""Of older checkpoints the weights remain, to be evaluated; the newest is whole, to resume from."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerControl, TrainerState, TrainingArguments

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import WEIGHTS_ONLY, Checkpoint, checkpoints_of
from notewriter.training import dpo as train_dpo
from notewriter.training.model.weights import Stored
from notewriter.training.run.keeping import KeepWeights, keep_weights
from notewriter.training.run.resumption import last_checkpoint

Options = Callable[..., list[str]]


@pytest.fixture
def options(four_steps: Options, write_pairs: Callable[..., Path]) -> Options:
    def build(**changes: object) -> list[str]:
        return four_steps(**({"pairs": write_pairs(), "learning_rate": 1e-3, "save_steps": 1} | changes))

    return build


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def has_optimizer(folder: Path) -> bool:
    return (folder / "optimizer.pt").exists()


def test_older_checkpoints_keep_weights_that_can_be_served_and_the_newest_is_whole(
    options: Options, tmp_path: Path
) -> None:
    train_dpo.main(options(keep_weights=True))
    train_dpo.main(options(output_dir=tmp_path / "all"))
    kept, whole = (checkpoints_of(tmp_path / name) for name in ("run", "all"))
    assert list(kept) == list(whole) == [1, 2, 3, 4]
    assert [has_optimizer(path) for path in kept.values()] == [False, False, False, True]
    assert [(path / WEIGHTS_ONLY).exists() for path in kept.values()] == [True, True, True, False]
    for step in kept:
        Checkpoint(kept[step]).check()
        assert all(torch.equal(tensors(kept[step])[name], value) for name, value in tensors(whole[step]).items())
    size = {step: sum(file.stat().st_size for file in path.rglob("*")) for step, path in kept.items()}
    assert size[4] > 2 * size[1]


def test_a_run_resumes_from_the_newest_and_never_from_weights_alone(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_dpo.main(options(keep_weights=True))
    expected = tensors(tmp_path / "run")
    run = tmp_path / "run"
    (run / "training.json").unlink()
    with caplog.at_level("INFO"):
        train_dpo.main(options(keep_weights=True))
    assert "checkpoint-4: resuming" in caplog.text
    assert all(torch.equal(tensors(run)[name], value) for name, value in expected.items())
    shutil.rmtree(run / "checkpoint-4")
    (run / "training.json").unlink()
    with pytest.raises(UserError, match=r"its checkpoints have only weights .*, and the one to resume from is gone"):
        train_dpo.main(options(keep_weights=True))


def test_weights_are_stored_as_the_base_models_and_a_kill_meanwhile_is_made_good(
    options: Options, tmp_path: Path
) -> None:
    train_dpo.main(options(save_steps=2))
    run = tmp_path / "run"
    first = run / "checkpoint-2"
    size = (first / "model.safetensors").stat().st_size
    # Killed after the mark and before all else.
    (first / WEIGHTS_ONLY).touch()
    assert last_checkpoint(run) == run / "checkpoint-4"
    keep_weights(run, Stored(Checkpoint(tmp_path / "base"), torch.bfloat16))
    assert not has_optimizer(first) and has_optimizer(run / "checkpoint-4")
    assert json.loads((first / "config.json").read_text())["dtype"] == "bfloat16"
    assert (first / "model.safetensors").stat().st_size < 0.6 * size


def test_of_an_adapter_the_optimizer_goes_too(options: Options, tmp_path: Path) -> None:
    train_dpo.main(options(keep_weights=True, use_peft=True, lora_r=2, save_steps=2))
    first, last = checkpoints_of(tmp_path / "run").values()
    assert Checkpoint(first).is_adapter and (first / "adapter_model.safetensors").exists()
    assert (has_optimizer(first), has_optimizer(last)) == (False, True)


def test_the_best_one_stays_whole_where_the_run_ends_by_loading_it(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / "global_step1").mkdir(parents=True)
        save_file({"weight": torch.ones(2)}, folder / "model.safetensors")
        (folder / "trainer_state.json").write_text("{}")
    arguments = TrainingArguments(
        str(tmp_path), load_best_model_at_end=True, eval_strategy="steps", save_strategy="steps", use_cpu=True
    )
    state = TrainerState(best_model_checkpoint=str(tmp_path / "checkpoint-1"))
    KeepWeights(tmp_path, None).on_step_end(arguments, state, TrainerControl())
    assert [(path / "global_step1").exists() for path in checkpoints_of(tmp_path).values()] == [True, False, True]


def test_a_checkpoint_without_whole_weights_is_left_as_it_is(tmp_path: Path) -> None:
    for step in (1, 2):
        folder = tmp_path / f"checkpoint-{step}"
        (folder / "pytorch_model_fsdp_0").mkdir(parents=True)
        (folder / "trainer_state.json").write_text("{}")
    keep_weights(tmp_path, None)
    assert (tmp_path / "checkpoint-1/pytorch_model_fsdp_0").is_dir()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"
