"""A run with shared prompts shows at its start that they change nothing, in its own number format, or is refused."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from notewriter.ground.errors import UserError
from notewriter.training.sharing import prefix_sharing, self_check
from notewriter.training.sharing.prefix_sharing import share_prefixes

Batch = dict[str, torch.Tensor]

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 19, "max_position_embeddings": 128}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

GOOD = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 16},
    "gemma3_text": {"sliding_window": 16},
    "gemma": {},
    "phi3": {"sliding_window": None},
    "glm4": {},
    "olmo2": {},
    "smollm3": {"use_sliding_window": False},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}


def shared_model(architecture: str, **options: Any) -> torch.nn.Module:
    """A random model that shares prompts; its embeddings and head are large enough for scores to differ."""
    torch.manual_seed(0)
    attention = options.pop("attn_implementation", None)
    configuration = AutoConfig.for_model(architecture, **(SIZES | TOKENS | {"initializer_range": 0.2} | options))
    model = AutoModelForCausalLM.from_config(configuration, attn_implementation=attention)
    add_fused_lm_head(model)
    share_prefixes(model)
    return model


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    """Two batches of two pairs, as TRL's collator makes them."""
    generator = torch.Generator().manual_seed(0)

    def words(count: int) -> list[int]:
        return torch.randint(6, 19, (count,), generator=generator).tolist()

    def stack(*pairs: tuple[int, int, int]) -> Batch:
        rows = []
        for prompt, *completions in pairs:
            start = words(prompt)
            rows.append([(start, words(length)) for length in completions])
        sides = [pair[side] for side in (0, 1) for pair in rows]
        longest = max(len(prompt) + len(completion) for prompt, completion in sides)
        batch = {name: torch.zeros(len(sides), longest, dtype=torch.long) for name in ("input_ids", "attention_mask")}
        batch["completion_mask"] = torch.zeros_like(batch["input_ids"])
        for row, (prompt, completion) in enumerate(sides):
            end = len(prompt) + len(completion)
            batch["input_ids"][row, :end] = torch.tensor(prompt + completion)
            batch["attention_mask"][row, :end] = 1
            batch["completion_mask"][row, len(prompt) : end] = 1
        return batch

    return [stack((40, 12, 14), (25, 13, 11)), stack((7, 3, 9), (18, 20, 5))]


@pytest.fixture
def run(batches: list[Batch]) -> Iterator[Callable[..., None]]:
    """Check a model as one process on the CPU would, in the precision of an accelerate configuration."""

    def check(model: torch.nn.Module, mixed_precision: str = "no") -> None:
        accelerator = Accelerator(cpu=True, mixed_precision=mixed_precision)
        self_check.check(model, model, batches, accelerator)

    Accelerator._shared_state = {}
    yield check
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("precision", ["float32", "bfloat16 autocast", "bfloat16", "float16"])
@pytest.mark.parametrize("architecture", GOOD)
def test_good_models_pass_in_every_number_format(
    run: Callable[..., None], architecture: str, precision: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = shared_model(architecture, **GOOD[architecture])
    dtype, *autocast = precision.split()
    with caplog.at_level(logging.INFO):
        run(model if autocast else model.to(getattr(torch, dtype)), "bf16" if autocast else "no")
    (message,) = [
        record.message for record in caplog.records if record.name == "notewriter.training.sharing.self_check"
    ]
    assert message.startswith("shared prompts score as stacked ones: a token's log-probability differs by ")
    assert f"over 87 tokens, where {dtype} explains" in message


@pytest.mark.parametrize(("floor", "times"), [(self_check.FLOOR, 0), (0.0, 1)])
def test_rounding_is_measured_only_where_scores_differ_by_more_than_is_never_a_fault(
    run: Callable[..., None], floor: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    monkeypatch.setattr(self_check, "FLOOR", floor)
    perturbed = self_check.perturbed
    monkeypatch.setattr(self_check, "perturbed", lambda *arguments: measured.append(1) or perturbed(*arguments))
    run(shared_model("llama"))
    assert len(measured) == times


@pytest.fixture
def without_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a model's configuration told nothing of what it cannot share."""
    monkeypatch.setattr(prefix_sharing, "_obstacle", lambda *_: "")


@pytest.mark.usefixtures("without_obstacles")
@pytest.mark.parametrize(
    ("architecture", "options", "mixed_precision"),
    [
        # Its recurrent layers carry what they read over the whole row.
        ("recurrent_gemma", {"lru_width": 32, "attention_window_size": 128}, "no"),
        ("recurrent_gemma", {"lru_width": 32, "attention_window_size": 128}, "bf16"),
        # The attention of a shared row knows no soft caps.
        ("gemma2", {"attn_logit_softcapping": 1.0, "sliding_window": 128, "attn_implementation": "eager"}, "no"),
    ],
)
def test_a_model_that_scores_otherwise_is_refused_with_the_difference(
    run: Callable[..., None], architecture: str, options: dict[str, Any], mixed_precision: str
) -> None:
    model = shared_model(architecture, **options)
    form = {"no": "float32", "bf16": "bfloat16"}[mixed_precision]
    with pytest.raises(
        UserError,
        match=rf"^{architecture}: with shared prompts a token's log-probability differs by \S+ on average, where "
        rf"{form} explains \S+; set prefix_sharing: false$",
    ):
        run(model, mixed_precision)


@pytest.mark.usefixtures("without_obstacles")
def test_a_crash_is_a_refusal_in_one_line(run: Callable[..., None]) -> None:
    model = shared_model("doge")
    with pytest.raises(UserError, match=r"^doge: scoring shared prompts fails \(\w+: .*\); set prefix_sharing: false$"):
        run(model)


def test_scores_that_are_no_numbers_are_refused(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared_model("llama")
    attention = prefix_sharing.sdpa_attention_forward

    def broken(module: torch.nn.Module, *arguments: Any, **options: Any) -> tuple[torch.Tensor, None]:
        output, _ = attention(module, *arguments, **options)
        return output * float("nan"), None

    monkeypatch.setattr(prefix_sharing, "sdpa_attention_forward", broken)
    with pytest.raises(UserError, match=r"llama: .* differs by nan on average"):
        run(model)


def test_the_model_is_as_it_was_after_the_check(run: Callable[..., None], batches: list[Batch]) -> None:
    model = shared_model("llama").train()
    state = torch.get_rng_state()
    before = self_check.score(model, batches[0])
    run(model)
    assert model.training
    assert model.config._attn_implementation == prefix_sharing.ATTENTION
    assert torch.equal(self_check.score(model, batches[0]), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("pairs", [1, 3, 100])
def test_processes_score_as_many_pairs_from_the_shortest_to_the_longest(processes: int, pairs: int) -> None:
    lengths = [10 + (7 * number) % pairs for number in range(pairs)]
    rows = [self_check.choose(lengths, processes, process) for process in range(processes)]
    assert {len(each) for each in rows} == {self_check.PAIRS}
    scored = [lengths[row] for each in rows for row in each]
    assert (min(scored), max(scored)) == (min(lengths), max(lengths))
    assert len(set(scored)) == min(pairs, self_check.PAIRS * processes)
