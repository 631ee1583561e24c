"""Without the token that ends a turn, the loss is that over all other tokens of the two sides."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from trl import ModelConfig

from notewriter.ground import config
from notewriter.ground.errors import UserError
from notewriter.training import dpo as train_dpo
from notewriter.training.inputs import pairs, rows
from notewriter.training.inputs.rendering import load_tokenizer, stop_tokens
from notewriter.training.options import DPOArguments, DPOConfiguration
from notewriter.training.run.trainers import MeteredDPOTrainer
from notewriter.training.run.trainers import build as build_trainer

Options = Callable[..., list[str]]
BETA = 0.3


@pytest.fixture
def trainer(four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path) -> Callable[..., MeteredDPOTrainer]:
    """The trainer of a run with these options, whose policy is not its reference any more."""

    def build(**changes: object) -> MeteredDPOTrainer:
        options = {"pairs": write_pairs(), "beta": BETA, "reference_cache": tmp_path / "reference"} | changes
        kinds = [DPOArguments, DPOConfiguration, ModelConfig]
        arguments, training, model = config.parse(kinds, four_steps(**options), prog="train")
        base = str(model.model_name_or_path)
        tokenizer = load_tokenizer(base, "main", {})
        files = rows.find_splits(arguments.pairs, "--pairs")
        datasets, _ = pairs.load(files, tokenizer, stop_tokens(base, "main", tokenizer), training, arguments)
        built = build_trainer(base, tokenizer, datasets, arguments, training, model)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in built.model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
        return built

    return build


def log_prob(model: PreTrainedModel, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """The summed log-probability of a completion, by transformers alone."""
    scores = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return scores.gather(1, torch.tensor(completion)[:, None]).sum()


def plain_loss(policy: PreTrainedModel, reference: PreTrainedModel, batch: list[dict[str, Any]]) -> torch.Tensor:
    """DPO (Rafailov et al. 2023, equation 7) over the words of each side, which are all but its last token."""
    losses = []
    for pair in batch:
        rewards = [
            log_prob(policy, pair["prompt_ids"], pair[side][:-1])
            - log_prob(reference, pair["prompt_ids"], pair[side][:-1])
            for side in ("chosen_ids", "rejected_ids")
        ]
        losses.append(-torch.nn.functional.logsigmoid(BETA * (rewards[0] - rewards[1])))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("precomputed", [False, True])
def test_loss_and_gradient_are_those_over_the_words(
    trainer: Callable[..., MeteredDPOTrainer], tiny_model: Path, shared: bool, precomputed: bool
) -> None:
    options = {"prefix_sharing": shared, "precompute_ref_log_probs": precomputed}
    with_end = trainer(**options)
    without = trainer(**options, train_end_of_turn=False)
    # The pairs with their ends, in the order of the batch.
    (batch, *_) = without.get_train_dataloader()
    whole = {tuple(row["prompt_ids"]): row for row in with_end.train_dataset}
    masks = zip(batch["input_ids"], batch["attention_mask"], batch["completion_mask"], strict=True)
    prompts = [tuple(ids[mask.bool() & ~trained.bool()].tolist()) for ids, mask, trained in masks]
    half = [whole[prompt] for prompt in prompts[: len(prompts) // 2]]

    policy = copy.deepcopy(AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)).train()
    policy.load_state_dict(without.model.state_dict())
    expected = plain_loss(policy, AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32), half)
    expected.backward()
    without.model.train()
    loss = without.compute_loss(without.model, dict(batch))
    loss.backward()

    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(without.model.parameters(), policy.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)
    (ended, *_) = with_end.get_train_dataloader()
    assert abs(with_end.compute_loss(with_end.model, ended).item() - loss.item()) > 1e-3


def test_a_run_evaluates_without_the_end_too_and_says_so_in_its_record(
    four_steps: Options, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    options = {"pairs": write_pairs(), "eval_strategy": "steps", "eval_steps": 4, "prefix_sharing": True}
    train_dpo.main(four_steps(**options, train_end_of_turn=False))
    assert "train_end_of_turn: false" in (tmp_path / "run/config.yaml").read_text()
    with pytest.raises(UserError, match="train_end_of_turn"):
        train_dpo.main(four_steps(**options))


def test_a_side_without_words_is_refused(
    four_steps: Options, write_pairs: Callable[..., Path], make_pair: Callable[..., dict[str, Any]]
) -> None:
    empty = make_pair(1) | {"rejected": [{"role": "assistant", "content": ""}]}
    options = four_steps(pairs=write_pairs([make_pair(0), empty]), train_end_of_turn=False)
    with pytest.raises(UserError, match=r"train\.parquet: row 1 \(question q1\): rejected has an empty message"):
        train_dpo.main(options)
