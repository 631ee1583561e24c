"""However a step is split into forwards, it has one gradient, for every loss on pairs and their sides."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from notewriter.ground.errors import UserError
from notewriter.training import dpo, kto, sft
from notewriter.training.run.losses import LOSSES

Options = Callable[..., list[str]]
Pair = dict[str, Any]

SORTING = {"aot", "aot_unpaired"}
"""They sort the pairs that a process scores at once."""

OURS = [name for name, loss in LOSSES.items() if not loss.is_of_trl]
WITH_REFERENCE = [loss for loss in LOSSES if loss not in SORTING.union(OURS)]
MIXED: list[tuple[list[str], list[float]]] = [
    *(([loss], [1.0]) for loss in WITH_REFERENCE),
    (["sigmoid", "sft"], [1, 0.2]),
    (["ipo", "apo_zero", "sft"], [1, 0.5, 2]),
]
WITHOUT: list[tuple[list[str], list[float]]] = [*(([loss], [1]) for loss in OURS), (["simpo", "sft"], [1, 1])]


class Built(Exception):
    """Carries a run's trainer out of it, before the first step."""


@pytest.fixture
def build(
    four_steps: Options,
    make_pair: Callable[[int], Pair],
    write_pairs: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """The trainer of a run on ten pairs of unlike lengths, a step on eight of which is followed by one on two."""
    pairs = [make_pair(number) for number in range(10)]
    for number, pair in enumerate(pairs):
        for side, times in (("chosen", number % 4), ("rejected", (3 * number) % 5)):
            pair[side][0]["content"] += " river crosses" * times

    def stop(trainer: Any, *_: Any) -> None:
        raise Built(trainer)

    monkeypatch.setattr("notewriter.training.run.loop.train", stop)

    def built(main: Callable[[list[str]], None], **changes: Any) -> Any:
        order = {} if main is kto.main else {"train_sampling_strategy": "sequential"}
        data = {"data" if main is sft.main else "pairs": write_pairs(pairs)}
        with pytest.raises(Built) as caught:
            main(four_steps(**data, optim="sgd", **order, **changes))
        return caught.value.args[0]

    return built


def gradients(trainer: Any, sizes: list[int]) -> torch.Tensor:
    """The gradient of one step on the first rows of a run, in forwards of these sizes."""
    rows = iter(list(trainer.train_dataset))
    batches = [trainer.data_collator([next(rows) for _ in range(size)]) for size in sizes]
    # As `Trainer.train` prepares a step.
    samples, items = trainer.get_batch_samples(iter(batches), len(batches), torch.device("cpu"))
    trainer.current_gradient_accumulation_steps = len(samples)
    trainer.model.zero_grad()
    for batch in samples:
        trainer.training_step(trainer.model, batch, items)
    return torch.cat([each.grad.double().flatten() for each in trainer.model.parameters() if each.grad is not None])


def moved(trainer: Any) -> Any:
    """The trainer, whose model is no longer its reference: else all pairs have the same weight."""
    torch.manual_seed(3)
    for parameter in trainer.model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return trainer


def check(trainer: Any, loss: str = "") -> None:
    whole = gradients(trainer, [8])
    for sizes in ([1] * 8, [4, 4], [5, 3], [2, 2, 2, 1, 1]):
        difference = gradients(trainer, sizes) - whole
        assert difference.norm() <= 1e-5 * whole.norm(), (loss, sizes)


def test_a_step_of_pairs_is_one_however_it_is_split(build: Callable[..., Any]) -> None:
    trainer = moved(build(dpo.main, loss_type="exo_pair", label_smoothing=0.1))
    for trainer.loss_types, trainer.loss_weights in MIXED:
        check(trainer, str(trainer.loss_types))


def test_pairs_that_are_weighted_by_their_likelihood_too(build: Callable[..., Any]) -> None:
    check(moved(build(dpo.main, use_weighting=True)))


def test_without_a_reference_too(build: Callable[..., Any]) -> None:
    trainer = moved(build(dpo.main, loss_type="simpo", beta=2.5))
    for trainer.loss_types, trainer.loss_weights in WITHOUT:
        check(trainer, str(trainer.loss_types))


def test_and_with_shared_prompts(build: Callable[..., Any]) -> None:
    check(moved(build(dpo.main, loss_type=["sigmoid", "sft"], loss_weights=[1, 0.2], prefix_sharing=True)))


def test_a_step_of_sides_too(build: Callable[..., Any]) -> None:
    """KTO's own loss has a divergence of the rows that are scored at once."""
    check(moved(build(kto.main, loss_type="apo_zero_unpaired")))


def test_a_step_of_conversations_too(build: Callable[..., Any]) -> None:
    check(moved(build(sft.main)))


def test_an_evaluation_is_left_as_it_is(build: Callable[..., Any]) -> None:
    trainer = moved(build(dpo.main, loss_type=["sigmoid", "sft"], loss_weights=[1, 0.2]))
    gradients(trainer, [5, 3])
    trainer.model.eval()
    assert trainer.shares(trainer.data_collator([trainer.train_dataset[0]])) == (1.0, 1.0)


def test_weighted_pairs_and_a_likelihood_of_tokens_are_not_one_loss(four_steps: Options) -> None:
    with pytest.raises(UserError, match=r"use_weighting: weights pairs, .*leave out use_weighting or sft"):
        dpo.main(four_steps(pairs="none", loss_type=["sigmoid", "sft"], use_weighting=True))
