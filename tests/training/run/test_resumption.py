"""A run resumes in all of its processes from the checkpoint that the main process found, or in none."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from transformers import Trainer

from notewriter.ground.errors import UserError
from notewriter.training.run import resumption


def test_a_checkpoint_that_a_machine_does_not_see_ends_the_run_in_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer_state.json").touch()
    assert resumption.on_every_machine(tmp_path) == tmp_path
    assert resumption.on_every_machine(None) is None

    def gather(seen: list[Any]) -> list[Any]:
        return [*seen, False]

    monkeypatch.setattr(resumption, "gather_object", gather)
    with pytest.raises(UserError, match="is not there on every machine; put the run's folder on a disk"):
        resumption.on_every_machine(tmp_path)


def trainer(now: str, processes: int = 2) -> Trainer:
    """As much of a trainer as says how its processes share the work."""
    args = SimpleNamespace(world_size=processes)
    return cast(
        Trainer, SimpleNamespace(args=args, is_deepspeed_enabled=now == "DeepSpeed", is_fsdp_enabled=now == "FSDP")
    )


SAVED = {
    "DeepSpeed": ("global_step8/zero_pp_rank_0_optim_states.pt", "global_step8/zero_pp_rank_1_optim_states.pt"),
    "FSDP": ("optimizer.bin", "pytorch_model_fsdp.bin"),
    "whole copies": ("optimizer.pt",),
}


@pytest.mark.parametrize("began", SAVED)
@pytest.mark.parametrize("now", SAVED)
def test_an_optimizers_state_is_read_by_processes_that_share_it_alike(began: str, now: str, tmp_path: Path) -> None:
    for name in SAVED[began]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    if began == now:
        resumption.check_sharing(tmp_path, trainer(now))
    else:
        with pytest.raises(UserError, match=f"was saved under {began}, and .* cannot be read under {now}; start it"):
            resumption.check_sharing(tmp_path, trainer(now))


@pytest.mark.parametrize("now", SAVED)
def test_weights_in_parts_of_an_older_version_are_joined_first(now: str, tmp_path: Path) -> None:
    for name in ("pytorch_model_fsdp_0/__0_0.distcp", "optimizer_0/__0_0.distcp"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(
        UserError, match=r"sharded weights .*join them with `accelerate merge-weights .*pytorch_model_fsdp_0 "
    ):
        resumption.check_sharing(tmp_path, trainer(now))


def test_zero_goes_on_with_as_many_processes(tmp_path: Path) -> None:
    (tmp_path / "global_step8").mkdir()
    for name in SAVED["DeepSpeed"]:
        (tmp_path / name).touch()
    with pytest.raises(
        UserError, match=r"saved by 2 processes, .* not with 1; start 2 processes, or begin a new run from"
    ):
        resumption.check_sharing(tmp_path, trainer("DeepSpeed", 1))
