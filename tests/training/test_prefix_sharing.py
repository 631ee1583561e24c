"""Sharing a pair's prompt changes what is computed, not what comes out."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from notewriter.errors import UserError
from training import prefix_sharing
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


def twice(plain: torch.nn.Module, max_length: int | None = None) -> list[torch.nn.Module]:
    """The same model twice, with TRL's own scoring and with shared prompts."""
    shared = copy.deepcopy(plain)
    for model in (plain, shared):
        add_fused_lm_head(model, outputs=FIELDS)
    share_prefixes(shared, max_length)
    return [plain, shared]


@pytest.fixture
def models(tiny_model: Path) -> list[torch.nn.Module]:
    return twice(AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32))


def random_model(architecture: str, **options: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 19, "max_position_embeddings": 128}
    # Phi-3's own padding and end tokens lie beyond this vocabulary.
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **(sizes | tokens | options)))


def assert_same_scores_and_gradients(models: list[torch.nn.Module], batch: dict[str, torch.Tensor]) -> None:
    outputs = [model(**batch, fused_lm_head=True, use_cache=False) for model in models]
    for output in outputs:
        chosen, rejected = output.log_probs.sum(1).chunk(2)
        (-torch.nn.functional.logsigmoid(chosen - rejected).mean() + 0.1 * output.loss).backward()

    for field in FIELDS:
        torch.testing.assert_close(getattr(outputs[1], field), getattr(outputs[0], field), rtol=1e-4, atol=1e-5)
    for plain, shared in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(shared.grad, plain.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("prompts", "completions"),
    [([30], [(5, 9)]), ([12, 40, 3], [(4, 1), (1, 8), (7, 7)]), ([1], [(3, 2)]), ([5], [(1, 1)])],
    ids=["one pair", "pairs of different lengths", "a prompt of one token", "completions of one token"],
)
def test_scores_and_gradients_are_those_of_the_stack(models, prompts, completions):
    assert_same_scores_and_gradients(models, stack(prompts, completions))


@pytest.mark.parametrize("reentrant", [False, True], ids=["plain", "reentrant"])
def test_gradients_are_the_same_with_gradient_checkpointing(models, reentrant):
    for model in models:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
    assert_same_scores_and_gradients(models, stack([12, 20], [(4, 6), (3, 2)]))


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("llama", {}),
        ("qwen2", {}),
        ("qwen3", {}),
        ("mistral", {"sliding_window": None}),
        ("gemma", {}),
        ("phi", {}),
        ("phi3", {"sliding_window": None}),
        ("glm4", {}),
        # Windows that no row of the batch reaches across.
        ("mistral", {"sliding_window": 32}),
        ("gemma3_text", {"sliding_window": 32}),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.get("sliding_window", "")),
)
def test_architectures_give_the_same_scores_and_gradients(architecture, options):
    models = twice(random_model(architecture, **options), max_length=32)
    assert_same_scores_and_gradients(models, stack([12, 20], [(4, 6), (3, 12)]))


@pytest.mark.parametrize(
    ("architecture", "options", "reason"),
    [
        ("mistral", {"sliding_window": 16}, "sliding_attention over 16 tokens"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, "sliding_attention"),
        ("gemma2", {"sliding_window": 64}, "attn_logit_softcapping"),
        ("gemma3_text", {"sliding_window": 16}, "sliding_attention over 16 tokens"),
        ("mamba", {}, "a way of its own"),
    ],
)
def test_attention_that_cannot_be_shared_is_refused_with_the_remedy(architecture, options, reason):
    model = random_model(architecture, **options)
    add_fused_lm_head(model)
    with pytest.raises(UserError, match=f"^{architecture}: .*{reason}.*; set prefix_sharing: false"):
        share_prefixes(model, max_length=32)


def test_a_head_of_another_trl_is_refused(tiny_model):
    with pytest.raises(UserError, match=r"as TRL 1\.16 does; set prefix_sharing: false"):
        share_prefixes(AutoModelForCausalLM.from_pretrained(tiny_model))


def test_no_mask_of_the_rows_length_is_made(models, monkeypatch):
    sizes = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def attention(query, key, value, attn_mask=None, **options):
        sizes.append(None if attn_mask is None else tuple(attn_mask.shape[-2:]))
        return plain(query, key, value, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    models[1](**stack([30, 20], [(5, 9), (2, 3)]), fused_lm_head=True, use_cache=False)
    # The last token of a completion predicts nothing and is not computed.
    assert sizes == 2 * [None, (12, 42), None, (3, 23)]


def test_flash_attention_gets_the_same_row_in_sequences(models, monkeypatch):
    """Where there is no CUDA: PyTorch's own attention, sequence by sequence, their ends lined up."""

    def varlen_attention(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa):
        assert (window_size, enable_gqa) == ((-1, 0), True)
        assert (max_q, max_k) == (cu_seq_q.diff().max(), cu_seq_k.diff().max())
        outputs = []
        for queries, keys in zip(cu_seq_q.unfold(0, 2, 1).tolist(), cu_seq_k.unfold(0, 2, 1).tolist(), strict=True):
            q, k, v = query[slice(*queries)], key[slice(*keys)], value[slice(*keys)]
            sees = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
            parts = (part.transpose(0, 1)[None] for part in (q, k, v))
            outputs.append(
                torch.nn.functional.scaled_dot_product_attention(*parts, sees, scale=scale, enable_gqa=True)[0]
            )
        return torch.cat(outputs, dim=1).transpose(0, 1)

    monkeypatch.setattr(prefix_sharing, "varlen_attn", varlen_attention)
    monkeypatch.setattr(prefix_sharing, "_has_flash_attention", lambda *_: True)
    assert_same_scores_and_gradients(models, stack([12, 40, 3], [(4, 1), (1, 8), (7, 7)]))


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
    with pytest.raises(UserError, match="do not begin with the same prompt; set prefix_sharing: false"):
        models[1](**batch, fused_lm_head=True, use_cache=False)


def test_a_routers_loss_is_refused_with_the_remedy(models):
    with pytest.raises(UserError, match="router_aux_loss_coef: 0, or set prefix_sharing: false"):
        models[1](**stack([10], [(4, 4)]), fused_lm_head=True, output_router_logits=True)
