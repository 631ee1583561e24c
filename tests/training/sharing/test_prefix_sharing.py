"""Sharing a pair's prompt changes what is computed, not what comes out."""

import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.bias import CausalBias
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Gemma3ForConditionalGeneration,
    Mistral3ForConditionalGeneration,
    PreTrainedModel,
)
from trl.trainer.utils import add_fused_lm_head

from notewriter.ground.errors import UserError
from notewriter.training.sharing import prefix_sharing
from notewriter.training.sharing.prefix_sharing import Layout, share_prefixes

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


def repeat(batch: dict[str, torch.Tensor], pair: int, prompt: int, part: str = "chosen") -> None:
    """Give a pair the prompt, of so many tokens, of the pair before it in the batch, and its chosen side too."""
    ids = batch["input_ids"]
    ids[[pair, len(ids) // 2 + pair], :prompt] = ids[pair - 1, :prompt]
    if part == "chosen":
        for name in ("input_ids", "labels"):
            batch[name][pair] = batch[name][pair - 1]


def twice(plain: torch.nn.Module) -> list[torch.nn.Module]:
    """The same model twice, with TRL's own scoring and with shared prompts."""
    shared = copy.deepcopy(plain)
    for model in (plain, shared):
        add_fused_lm_head(model, outputs=FIELDS)
    share_prefixes(shared)
    return [plain, shared]


@pytest.fixture
def models(tiny_model: Path) -> list[torch.nn.Module]:
    return twice(AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32))


SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 19, "max_position_embeddings": 128}
# Phi-3's own padding and end tokens lie beyond this vocabulary.
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# Ten times the usual weights: what a token sees has to matter.
TEXT = SIZES | TOKENS | {"initializer_range": 0.2}
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 28, "patch_size": 14}


def random_model(architecture: str, **options: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **(TEXT | options)))


def random_wrapper(model: type[PreTrainedModel], text: str, **options: Any) -> torch.nn.Module:
    """A model of images and text around a language model."""
    torch.manual_seed(0)
    parts = {"text_config": TEXT | options | {"model_type": text}, "vision_config": VISION}
    configuration = model.config_class(**parts)
    # Beyond the vocabulary otherwise, which these random tokens are not to hit either.
    configuration.image_token_id = 5
    return model(configuration)


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


@pytest.mark.parametrize(
    ("alike", "tokens"),
    [
        # Which part of a pair is that of the pair before it, and what is left of 3 x (20 + 5 + 9) tokens.
        ({1: "chosen", 2: "chosen"}, 20 + 5 + 3 * 9),
        ({1: "prompt", 2: "prompt"}, 20 + 3 * (5 + 9)),
        ({1: "chosen", 2: "prompt"}, 20 + 2 * 5 + 3 * 9),
        ({2: "chosen"}, 20 + 5 + 9 + 20 + 5 + 2 * 9),
    ],
    ids=["one prompt and chosen", "one prompt", "one prompt, two chosen", "two prompts"],
)
def test_pairs_of_the_same_prompt_share_it_and_their_chosen(models, alike, tokens):
    batch = stack([20, 20, 20], 3 * [(5, 9)])
    for pair, part in alike.items():
        repeat(batch, pair, 20, part)
    seen = []
    models[1].get_input_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numel()))
    assert_same_scores_and_gradients(models, batch)
    assert seen == [tokens]


def test_a_chosen_that_only_begins_alike_is_not_shared(models):
    batch = stack([20, 20], [(5, 9), (8, 9)])
    repeat(batch, 1, 20, "prompt")
    batch["input_ids"][1, :25] = batch["input_ids"][0, :25]
    batch["labels"][1, 20:28] = batch["input_ids"][1, 20:28]
    assert_same_scores_and_gradients(models, batch)


@pytest.mark.parametrize("reentrant", [False, True], ids=["plain", "reentrant"])
def test_gradients_are_the_same_with_gradient_checkpointing(models, reentrant):
    for model in models:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model.enable_input_require_grads()
    assert_same_scores_and_gradients(models, stack([12, 20], [(4, 6), (3, 2)]))


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma", "phi", "glm4", "gpt2"])
def test_architectures_give_the_same_scores_and_gradients(architecture):
    models = twice(random_model(architecture).eval())
    assert_same_scores_and_gradients(models, stack([12, 20], [(4, 6), (3, 12)]))


WINDOW = 7
"""Shorter than every prompt below, and than some completions."""

BOTH_KINDS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}

WINDOWED: dict[str, Callable[[], torch.nn.Module]] = {
    "Gemma 3 text": lambda: random_model("gemma3_text", **BOTH_KINDS),
    "OLMo 3": lambda: random_model("olmo3", **BOTH_KINDS),
    "Mistral v0.1": lambda: random_model("mistral", sliding_window=WINDOW),
    "Phi-3-mini": lambda: random_model("phi3", sliding_window=WINDOW),
    "Qwen 2": lambda: random_model("qwen2", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1),
    "Gemma 3 with images": lambda: random_wrapper(Gemma3ForConditionalGeneration, "gemma3_text", **BOTH_KINDS),
    "Mistral Small 3 with images": lambda: random_wrapper(Mistral3ForConditionalGeneration, "mistral"),
}


def log_probs_alone(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The summed log-probs of each row's completion, from a forward of that row alone and as transformers runs it."""
    sums = []
    for ids, mask, labels in zip(*batch.values(), strict=True):
        ids, labels = ids[mask.bool()][None], labels[mask.bool()][1:]
        scores = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        sums.append(scores[labels != -100, labels[labels != -100]].sum())
    return torch.stack(sums)


def differences_from_each_sequence_alone(plain: torch.nn.Module) -> tuple[float, float]:
    """The largest relative difference of a completion's log-prob, and that of all gradients of a DPO loss together."""
    plain.train()
    shared = copy.deepcopy(plain)
    add_fused_lm_head(shared)
    share_prefixes(shared)
    batch = stack([12, 20], [(4, 6), (3, 12)])
    expected, found = log_probs_alone(plain, batch), shared(**batch, fused_lm_head=True).log_probs.sum(1)
    for sums in (expected, found):
        chosen, rejected = sums.chunk(2)
        (-torch.nn.functional.logsigmoid(0.1 * (chosen - rejected))).mean().backward()
    gradients = [
        (one.grad, other.grad)
        for one, other in zip(plain.parameters(), shared.parameters(), strict=True)
        if one.grad is not None
    ]
    apart = sum((one - other).square().sum() for one, other in gradients) / sum(g.square().sum() for g, _ in gradients)
    return ((found - expected) / expected).abs().max().item(), apart.sqrt().item()


@pytest.mark.parametrize("name", WINDOWED)
def test_windows_and_wrapped_text_models_score_as_each_sequence_alone(name):
    log_probs, gradients = differences_from_each_sequence_alone(WINDOWED[name]())
    assert log_probs < 1e-6
    assert gradients < 5e-6


@pytest.mark.parametrize("name", [name for name in WINDOWED if "Mistral Small" not in name])
def test_the_test_above_fails_where_a_window_is_dropped(name, monkeypatch):
    mask = Layout.mask
    monkeypatch.setattr(Layout, "mask", lambda layout, queries, keys, _: mask(layout, queries, keys, None))
    log_probs, gradients = differences_from_each_sequence_alone(WINDOWED[name]())
    assert log_probs > 1e-3
    assert gradients > 1e-3


def test_a_window_that_the_model_keeps_from_its_attention_is_refused():
    options = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 0}
    model = twice(random_model("qwen2_moe", num_experts=4, moe_intermediate_size=16, **options))[1]
    with pytest.raises(
        UserError, match="does not pass its window of 7 tokens on to its attention; set prefix_sharing: false"
    ):
        model(**stack([12], [(4, 6)]), fused_lm_head=True)
    model(**stack([3], [(4, 2)]), fused_lm_head=True)


@pytest.mark.parametrize(
    ("architecture", "options", "reason"),
    [
        ("gemma2", {"sliding_window": 64}, "caps attention scores"),
        ("gpt_oss", {"num_local_experts": 4, "num_experts_per_tok": 2}, "its own implementation of attention"),
        ("qwen3_next", {"layer_types": ["linear_attention", "full_attention"]}, "linear attention, whose state"),
        ("mamba", {}, "linear attention, whose state"),
        ("bloom", {}, "its own implementation of attention"),
        ("doge", {}, "its own attention masks"),
        ("recurrent_gemma", {"attention_window_size": 16}, "has recurrent layers"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "has conv"),
        ("gemma", {"is_causal": False}, "attends to later tokens too"),
    ],
)
def test_attention_that_cannot_be_shared_is_refused_with_the_remedy(architecture, options, reason):
    model = random_model(architecture, **options)
    add_fused_lm_head(model)
    with pytest.raises(UserError, match=f"^{architecture}: .*{reason}.*; set prefix_sharing: false"):
        share_prefixes(model)


def test_a_model_on_several_devices_is_refused(models):
    plain = models[0]
    plain.hf_device_map = {"model.layers.0": 0, "model.layers.1": 1}
    with pytest.raises(UserError, match=r"split over several devices \(device_map\); set prefix_sharing: false"):
        share_prefixes(plain)


@pytest.mark.parametrize(
    ("window", "seen"),
    [
        # The first pair's prompt and chosen, then its rejected: how many keys each token sees.
        (None, [None, [*range(31, 40)]]),
        (7, [[1, 2, 3, 4, 5, 6, *29 * [7]], 9 * [7]]),
    ],
)
def test_a_pair_is_two_causal_sequences(window, seen, monkeypatch):
    calls = []
    plain = prefix_sharing.sdpa_attention_forward

    def attention(module, query, key, value, mask, **options):
        calls.append((query.shape[2], key.shape[2], mask))
        return plain(module, query, key, value, mask, **options)

    monkeypatch.setattr(prefix_sharing, "sdpa_attention_forward", attention)
    model = twice(random_model("mistral", sliding_window=window))[1]
    model(**stack([30, 20], [(5, 9), (2, 3)]), fused_lm_head=True, use_cache=False)
    assert [call[:2] for call in calls[:4]] == [(35, 35), (9, 39), (22, 22), (3, 23)]
    # In the last layer a prompt's last token and its completions alone ask.
    assert [call[:2] for call in calls[4:]] == [(6, 35), (9, 39), (3, 22), (3, 23)]
    assert [mask if mask is None else mask.sum(1).tolist() for *_, mask in calls[:2]] == seen
    # The layers share their masks.
    assert all(calls[4 + place][2] is calls[place][2] for place in (1, 3))


def test_on_a_gpu_only_a_window_makes_a_mask():
    layout = Layout([(20, 2, 3)], torch.device("cuda"))
    assert layout.mask(22, 22, None) is None
    bias = layout.mask(3, 23, None)
    assert isinstance(bias, CausalBias)
    elsewhere = Layout([(20, 2, 3)], torch.device("cpu")).mask(3, 23, None)
    assert torch.equal(bias._materialize(), elsewhere)


@pytest.fixture
def flash_attention(monkeypatch) -> list[dict[str, Any]]:
    """A device with FlashAttention: PyTorch's own attention, sequence by sequence, their ends lined up.

    Returns:
        What it was called with, call by call.
    """
    calls = []

    def varlen_attention(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa):
        calls.append(
            {
                "dtypes": {query.dtype, key.dtype, value.dtype},
                "shapes": [tuple(states.shape) for states in (query, key, value)],
                "cu_seq_q": cu_seq_q.tolist(),
                "cu_seq_k": cu_seq_k.tolist(),
                "window_size": window_size,
            }
        )
        # What PyTorch's kernel demands.
        assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
        assert (max_q, max_k) == (cu_seq_q.diff().max(), cu_seq_k.diff().max())
        assert all(states.stride(-1) == 1 for states in (query, key, value))
        assert enable_gqa == (query.shape[1] != key.shape[1])
        before, after = window_size
        outputs = []
        for queries, keys in zip(cu_seq_q.unfold(0, 2, 1).tolist(), cu_seq_k.unfold(0, 2, 1).tolist(), strict=True):
            q, k, v = query[slice(*queries)], key[slice(*keys)], value[slice(*keys)]
            own = torch.arange(len(q))[:, None] + len(k) - len(q)
            distance = own - torch.arange(len(k))
            sees = (distance >= -after) & ((distance <= before) | (before == -1))
            parts = (part.transpose(0, 1)[None] for part in (q, k, v))
            outputs.append(
                torch.nn.functional.scaled_dot_product_attention(*parts, sees, scale=scale, enable_gqa=True)[0]
            )
        return torch.cat(outputs, dim=1).transpose(0, 1)

    monkeypatch.setattr(prefix_sharing, "varlen_attn", varlen_attention)
    monkeypatch.setattr(
        prefix_sharing, "can_use_flash_attention", lambda given: given.query.dtype in (torch.float16, torch.bfloat16)
    )
    return calls


@pytest.mark.parametrize("window", [None, 7])
def test_flash_attention_gets_the_same_row_in_sequences(window, flash_attention, monkeypatch):
    monkeypatch.setattr(prefix_sharing, "can_use_flash_attention", lambda _: True)
    models = twice(random_model("mistral", sliding_window=window))
    assert_same_scores_and_gradients(models, stack([12, 40, 3], [(4, 1), (1, 8), (7, 7)]))
    assert flash_attention[0] == {
        "dtypes": {torch.float32},
        "shapes": [(83, 4, 8), (138, 2, 8), (138, 2, 8)],
        # Of each pair: prompt and chosen, then the rejected, whose keys begin with the prompt's.
        "cu_seq_q": [0, 16, 17, 58, 66, 76, 83],
        "cu_seq_k": [0, 16, 29, 70, 118, 128, 138],
        "window_size": (-1, 0) if window is None else (6, 0),
    }


def test_flash_attention_gets_a_prompt_again_for_each_further_completion(models, flash_attention, monkeypatch):
    monkeypatch.setattr(prefix_sharing, "can_use_flash_attention", lambda _: True)
    batch = stack([12, 12], [(4, 6), (4, 9)])
    repeat(batch, 1, 12)
    assert_same_scores_and_gradients(models, batch)
    assert flash_attention[0]["cu_seq_q"] == [0, 12 + 4, 16 + 6, 22 + 9]
    assert flash_attention[0]["cu_seq_k"] == [0, 12 + 4, 16 + 12 + 6, 34 + 12 + 9]


@pytest.mark.parametrize(
    ("architecture", "options", "windows"),
    [
        ("llama", {}, [(-1, 0), (-1, 0)]),
        ("qwen3", {}, [(-1, 0), (-1, 0)]),
        ("gemma3_text", BOTH_KINDS, [(6, 0), (-1, 0)]),
    ],
)
def test_flash_attention_is_reached_from_float32_weights_under_autocast(
    architecture, options, windows, flash_attention
):
    """Rotary embeddings and norms leave queries and keys in float32 then, and values in bfloat16."""
    models = twice(random_model(architecture, **options))
    batch = stack([12, 20], [(4, 6), (3, 12)])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain, shared = (model(**batch, fused_lm_head=True).log_probs for model in models)
    assert [call["dtypes"] for call in flash_attention] == 2 * [{torch.bfloat16}]
    assert [call["window_size"] for call in flash_attention] == windows
    torch.testing.assert_close(shared, plain, rtol=0.05, atol=0.05)

    with torch.no_grad():
        models[1](**batch, fused_lm_head=True)
    assert len(flash_attention) == 2


def test_a_head_size_that_flash_attention_would_have_to_pad_goes_another_way(flash_attention):
    model = twice(random_model("llama", head_dim=12))[1]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(**stack([12], [(4, 6)]), fused_lm_head=True)
    assert not flash_attention


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


MIXTURES = {
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize("architecture", MIXTURES)
@pytest.mark.parametrize("asked", ["by the call", "by the configuration"])
def test_the_loss_of_a_router_counts_what_is_shared_as_often_as_the_stack_has_it(architecture, asked):
    options = MIXTURES[architecture] | {"router_aux_loss_coef": 0.5, "output_router_logits": asked != "by the call"}
    models = twice(random_model(architecture, **options))
    batch = stack([12, 12, 20], [(4, 6), (4, 3), (3, 12)])
    repeat(batch, 1, 12)
    call = {"output_router_logits": True} if asked == "by the call" else {}
    plain, shared = (model(**batch, fused_lm_head=True, **call) for model in models)
    torch.testing.assert_close(shared.aux_loss, plain.aux_loss)
    torch.testing.assert_close(shared.loss, plain.loss)
    for output in (plain, shared):
        (output.aux_loss - output.log_probs.sum()).backward()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-5)


def test_flash_attention_that_takes_no_grouped_heads_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    states = SimpleNamespace(is_cuda=True, dtype=torch.bfloat16, shape=(1, 4, 8, 64))
    monkeypatch.setattr(prefix_sharing, "GROUPED_HEADS", False)

    assert not prefix_sharing._has_flash_attention(states, states, states)


def tokens_by_part(model: torch.nn.Module, layer: int) -> dict[str, int]:
    """How many tokens each part of a layer computes of a row of 20 + 5 + 9 tokens, backward included."""
    seen: dict[str, int] = {}
    for place, module in model.get_decoder().layers[layer].named_modules():
        if not list(module.children()):

            def see(_: torch.nn.Module, inputs: Any, output: Any, name: str = place) -> None:
                seen[name.rpartition(".")[2]] = inputs[0].shape[-2]

            module.register_forward_hook(see)
    model(**stack([20], [(5, 9)]), fused_lm_head=True, use_cache=False).log_probs.sum().backward()
    return seen


@pytest.mark.parametrize("checkpointed", [False, True])
def test_the_last_layer_computes_a_prompts_keys_and_values_and_nothing_else_of_it(checkpointed):
    model = twice(random_model("qwen2"))[1].train()
    if checkpointed:
        model.gradient_checkpointing_enable()
    before, last = tokens_by_part(model, 0), tokens_by_part(model, 1)
    assert set(before.values()) == {34}
    parts = ("q_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    # The prompt's last token predicts both completions' first.
    assert {part: last[part] for part in parts} == dict.fromkeys(parts, 1 + 5 + 9)
    assert {part: last[part] for part in ("k_proj", "v_proj")} == {"k_proj": 34, "v_proj": 34}


def test_where_one_matrix_makes_queries_keys_and_values_it_stays_whole():
    last = tokens_by_part(twice(random_model("phi3"))[1], 1)
    assert last["qkv_proj"] == 34
    assert last["o_proj"] == last["down_proj"] == 15


def test_in_a_mixture_of_experts_the_last_layer_stays_whole_for_the_router():
    options = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1}
    last = tokens_by_part(twice(random_model("qwen3_moe", **options))[1], 1)
    assert last["o_proj"] == last["gate"] == 34
