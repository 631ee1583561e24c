"""Sharing a pair's prompt changes what is computed, not what comes out."""

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from notewriter.errors import UserError
from training.prefix_sharing import share_prefixes

FIELDS = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")


def stack(prompts: list[int], completions: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """A batch as TRL makes it, chosen above rejected, padded on the right; lengths in tokens."""
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(6, 19, (length,), generator=generator) for length in prompts]
    length = max(prompts) + max(max(pair) for pair in completions)
    ids = torch.zeros(2 * len(prompts), length, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for row in range(len(ids)):
        side, pair = divmod(row, len(prompts))
        completion = torch.randint(6, 19, (completions[pair][side],), generator=generator)
        tokens = torch.cat([texts[pair], completion])
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        labels[row, len(texts[pair]) : len(tokens)] = completion
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@pytest.fixture
def models(tiny_model: Path) -> list[torch.nn.Module]:
    """The same model twice, with TRL's own scoring and with shared prompts."""
    plain = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    shared = copy.deepcopy(plain)
    for model in (plain, shared):
        add_fused_lm_head(model, outputs=FIELDS)
    share_prefixes(shared)
    return [plain, shared]


@pytest.mark.parametrize(
    ("prompts", "completions"),
    [([30], [(5, 9)]), ([12, 40, 3], [(4, 1), (1, 8), (7, 7)]), ([1], [(3, 2)])],
    ids=["one pair", "pairs of different lengths", "a prompt of one token"],
)
def test_scores_and_gradients_are_those_of_the_stack(models, prompts, completions):
    batch = stack(prompts, completions)
    outputs = [model(**batch, fused_lm_head=True, use_cache=False) for model in models]
    for output in outputs:
        chosen, rejected = output.log_probs.sum(1).chunk(2)
        (-torch.nn.functional.logsigmoid(chosen - rejected).mean() + 0.1 * output.loss).backward()

    for field in FIELDS:
        torch.testing.assert_close(getattr(outputs[1], field), getattr(outputs[0], field), rtol=1e-4, atol=1e-5)
    for plain, shared in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(shared.grad, plain.grad, rtol=1e-3, atol=1e-6)


def test_the_rejected_completion_does_not_see_the_chosen_one(models):
    batch = stack([10], [(6, 6)])
    before = models[1](**batch, fused_lm_head=True, use_cache=False).log_probs[1]
    batch["input_ids"][0, 10:] = 7
    batch["labels"][0, 10:] = 7
    after = models[1](**batch, fused_lm_head=True, use_cache=False).log_probs[1]
    torch.testing.assert_close(after, before)


def test_other_calls_of_the_model_stay_as_they_are(models):
    ids = torch.tensor([[6, 7, 8]])
    torch.testing.assert_close(models[1](input_ids=ids).logits, models[0](input_ids=ids).logits)


def test_prompts_that_differ_are_an_error(models):
    batch = stack([10], [(4, 4)])
    batch["input_ids"][1, 0] += 1
    with pytest.raises(ValueError, match="not the same"):
        models[1](**batch, fused_lm_head=True, use_cache=False)


def test_windowed_attention_is_refused_with_the_remedy(models):
    model = models[0]
    model.config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(UserError, match="prefix_sharing: false"):
        share_prefixes(model)
