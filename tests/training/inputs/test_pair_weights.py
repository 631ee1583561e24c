"""Pairs are dropped and weighted by their margins."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoTokenizer
from trl import DPOConfig

from notewriter.ground.errors import UserError
from notewriter.training import dpo as train_dpo
from notewriter.training.inputs import pairs, rows
from notewriter.training.run.losses import WEIGHT
from notewriter.training.run.trainers import MeteredDPOTrainer

Pair = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def tokenized(make_pair: Pair, tiny_model: Path) -> Dataset:
    """Four pairs of four lengths."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    dataset = Dataset.from_list([make_pair(number, words=8 + 3 * number) for number in range(4)])
    return pairs.tokenize(dataset, tokenizer, frozenset([tokenizer.eos_token_id]), Path("train.parquet"))


@pytest.fixture
def gradients(tokenized: Dataset, tiny_model: Path, tmp_path: Path) -> Callable[..., tuple[float, torch.Tensor]]:
    """The loss of one batch of pairs, by their numbers, and its gradient; `weights` are a pair's each."""

    def compute(numbers: list[int], weights: list[float] | None = None, **options: Any) -> tuple[float, torch.Tensor]:
        dataset = tokenized.select(numbers).select_columns(["prompt_ids", "chosen_ids", "rejected_ids", "length"])
        if weights:
            dataset = dataset.add_column(WEIGHT, weights)
        shared = options.pop("prefix_sharing", False)
        settings = {"max_length": 64, "per_device_train_batch_size": 4, "use_cpu": True, "bf16": False}
        settings |= {"gradient_checkpointing": False, "report_to": "none", "disable_tqdm": True, "max_steps": 1}
        trainer = MeteredDPOTrainer(
            str(tiny_model),
            prefix_sharing=shared,
            reference_cache=tmp_path / "reference",
            args=DPOConfig(output_dir=str(tmp_path / "run"), **(settings | options)),
            train_dataset=dataset,
            processing_class=AutoTokenizer.from_pretrained(tiny_model),
        )
        (batch,) = trainer.get_train_dataloader()
        trainer.model.train()
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        return loss.item(), torch.cat([each.grad.flatten() for each in trainer.model.parameters()])

    return compute


SEVERAL = {"loss_type": ["sigmoid", "hinge"], "loss_weights": [1.0, 0.2]}


@pytest.mark.parametrize("options", [{}, SEVERAL, {"prefix_sharing": True}, {"precompute_ref_log_probs": True}])
def test_a_weight_of_one_everywhere_is_no_weight_to_the_bit(
    gradients: Callable[..., tuple[float, torch.Tensor]], options: dict[str, Any]
) -> None:
    loss, gradient = gradients([0, 1, 2, 3], **options)
    same_loss, same_gradient = gradients([0, 1, 2, 3], [1.0] * 4, **options)
    assert same_loss == loss and torch.equal(same_gradient, gradient) and gradient.abs().max() > 0


@pytest.mark.parametrize("options", [{}, SEVERAL, {"prefix_sharing": True}])
def test_a_pair_of_weight_zero_is_left_out_up_to_the_number_of_pairs(
    gradients: Callable[..., tuple[float, torch.Tensor]], options: dict[str, Any]
) -> None:
    _, without = gradients([0, 1, 3], **options)
    _, weighted = gradients([0, 1, 2, 3], [1.0, 1.0, 0.0, 1.0], **options)
    torch.testing.assert_close(weighted * 4 / 3, without, rtol=1e-4, atol=1e-7)


def test_the_gradient_is_the_weighted_mean_of_each_pairs(
    gradients: Callable[..., tuple[float, torch.Tensor]],
) -> None:
    weights = [0.25, 2.0, 0.0, 1.5]
    each = [gradients([number])[1] for number in range(4)]
    expected = sum(weight * gradient for weight, gradient in zip(weights, each, strict=True)) / 4
    torch.testing.assert_close(gradients([0, 1, 2, 3], weights)[1], expected, rtol=1e-4, atol=1e-7)


def scored(make_pair: Pair, scores: list[tuple[float | None, float | None]]) -> list[dict[str, Any]]:
    return [
        make_pair(number) | {"chosen_score": chosen, "rejected_score": rejected}
        for number, (chosen, rejected) in enumerate(scores)
    ]


def test_weights_average_one_in_each_stage_and_pairs_without_scores_count_once(
    make_pair: Pair, write_pairs: Callable[..., Path]
) -> None:
    # Stages alternate.
    made = scored(make_pair, [(0.3, 0.1), (9.0, 1.0), (0.9, 0.3), (None, None), (0.1, 0.2), (5.0, 1.0)])
    stages = [pair["stage"] for pair in made]
    assert stages == ["init_note", "refine_note"] * 3
    file = write_pairs(made) / "train.parquet"
    weights = pairs.weights_by_margin(pairs.read(file), file)
    # Margins of the first stage 0.2, 0.6 and -0.1; of the second 8 and 4.
    assert weights == pytest.approx([0.75, 8 / 6, 2.25, 1.0, 0.0, 4 / 6])


def test_min_margin_drops_pairs_whose_scores_differ_by_less(
    make_pair: Pair, write_pairs: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    file = write_pairs(scored(make_pair, [(1.0, 0.0), (0.5, 0.25), (None, 0.0), (0.75, 0.5)])) / "train.parquet"
    with caplog.at_level("INFO"):
        kept = pairs.with_margin(pairs.read(file), 0.5, file)
    assert kept["question_id"] == ["q0", "q2"]
    assert "2 of 4 pairs dropped as below min_margin 0.5" in caplog.text
    with pytest.raises(UserError, match=r"no margin reaches min_margin 2; give --min_margin 1 or less"):
        pairs.with_margin(pairs.read(file).select([0, 1]), 2, file)


def test_pairs_without_scores_that_are_mixed_in_stay(
    four_steps: Callable[..., list[str]], make_pair: Pair, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    unscored = write_pairs().rename(tmp_path / "unscored")
    now = write_pairs(scored(make_pair, [(1.0, 0.0), (0.5, 0.25), (0.75, 0.0), (1.0, 0.0)] * 4))
    mixed = json.dumps({str(unscored): 0.5})
    train_dpo.main([*four_steps(pairs=now, max_steps=1, save_steps=1, min_margin=0.5), "--mix", mixed])
    record = json.loads((tmp_path / "run/training.json").read_text())
    assert sum(record["rows"]["train"].values()) == 12 + 6


@pytest.mark.parametrize("option", ["min_margin", "weight_by_margin"])
def test_margins_need_scores(
    four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path], option: str
) -> None:
    value = 0.1 if option == "min_margin" else True
    with pytest.raises(UserError, match=f"train.parquet: {option} needs scores, and its judges gave none; leave"):
        train_dpo.main(four_steps(pairs=write_pairs(), **{option: value}))


def test_a_loss_that_sorts_pairs_has_no_weights(
    four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path]
) -> None:
    with pytest.raises(UserError, match="weight_by_margin: aot sorts the pairs of a batch"):
        train_dpo.main(four_steps(pairs=write_pairs(), weight_by_margin=True, loss_type="aot"))


def test_a_run_trains_on_weights_and_evaluates_without(
    make_pair: Pair, four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    made = scored(make_pair, [(number / 8, 0.0) for number in range(16)])
    options = {"pairs": write_pairs(made), "learning_rate": 1e-3, "eval_strategy": "steps", "eval_steps": 4}
    train_dpo.main(four_steps(**options, weight_by_margin=True, min_margin=0.5))
    train_dpo.main(four_steps(**options, output_dir=tmp_path / "plain"))
    ours, plain = (rows.sha256([tmp_path / run / "model.safetensors"]) for run in ("run", "plain"))
    assert ours != plain
