"""`gradient_checkpointing: auto` recomputes what memory forces, and changes no bit of a gradient."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import add_fused_lm_head

from notewriter.training import dpo
from notewriter.training.run import recomputation
from notewriter.training.run.recomputation import RecomputesByNeed, layers_of
from notewriter.training.sharing.prefix_sharing import share_prefixes

LAYERS = 4
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 19, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def random_model() -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **SIZES))
    add_fused_lm_head(model)
    share_prefixes(model)
    return model.train()


class Stand(RecomputesByNeed):
    """What the mixin needs of a trainer."""

    def __init__(self) -> None:
        self.accelerator = Accelerator(cpu=True)


def needing(per_layer: int) -> Callable[[int], float]:
    """The bytes of a run whose layers keep so many each, and a tenth where they are recomputed."""
    return lambda count: 100 + per_layer * (LAYERS - count) + per_layer / 10 * count


def chosen(monkeypatch: pytest.MonkeyPatch, room: int | None, model: PreTrainedModel, share: float = 0.9) -> int:
    monkeypatch.setattr(recomputation, "available", lambda _: room)
    stand = Stand()
    stand.recompute_by_need(model, needing(100), share)
    model.gradient_checkpointing_enable()
    assert stand.recomputed is not None
    return stand.recomputed


@pytest.mark.parametrize(
    ("room", "count"),
    # 500 bytes without recomputation, 410 with one layer, 320, 230, and 140 with all.
    [(556, 0), (550, 1), (456, 1), (450, 2), (156, 4), (10, 4), (None, 4)],
)
def test_as_few_layers_are_recomputed_as_fit_into_the_share(
    room: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model()
    assert chosen(monkeypatch, room, model) == count
    # The first ones.
    assert [layer.gradient_checkpointing for layer in layers_of(model)] == [place < count for place in range(LAYERS)]
    # TRL switches it off for the reference, and on again.
    with disable_gradient_checkpointing(model):
        assert not any(layer.gradient_checkpointing for layer in layers_of(model))
    assert [layer.gradient_checkpointing for layer in layers_of(model)] == [place < count for place in range(LAYERS)]


def test_the_share_is_an_option_and_the_choice_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert chosen(monkeypatch, 556, random_model(), share=0.5) == 3
    (line,) = caplog.messages
    assert line.startswith("recomputing 3 of 4 layers: ")


def test_processes_take_the_most_that_one_of_them_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    monkeypatch.setattr(recomputation, "available", lambda _: 556)
    stand = Stand()
    monkeypatch.setattr(stand.accelerator, "gather", lambda counts: torch.cat([counts, counts + 2]))
    stand.recompute_by_need(model, needing(100), 0.9)
    assert stand.recomputed == 2


def test_gradients_are_those_of_all_and_of_none_in_every_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    prompt, sides = torch.randint(6, 19, (20,), generator=generator), torch.randint(6, 19, (2, 7), generator=generator)
    ids = torch.cat([prompt.expand(2, 20), sides], dim=1)
    labels = ids.clone()
    labels[:, :20] = -100
    recomputed_gradients = []
    for room in (556, 450, 10):
        model = random_model()
        chosen(monkeypatch, room, model)
        calls: list[int] = []
        for layer in layers_of(model):
            layer.self_attn.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels, fused_lm_head=True).loss.backward()
        recomputed_gradients.append((len(calls), [each.grad for each in model.parameters()]))
    assert [forwards for forwards, _ in recomputed_gradients] == [LAYERS, LAYERS + 2, 2 * LAYERS]
    for _, gradients in recomputed_gradients[1:]:
        for one, other in zip(gradients, recomputed_gradients[0][1], strict=True):
            assert torch.equal(one, other)


Train = Callable[..., dict[str, Any]]


@pytest.fixture
def train(four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path], tmp_path: Path) -> Train:
    """A run of two steps of two forwards each; returns its weights, its record and its log."""

    def run(name: str, **changes: Any) -> dict[str, Any]:
        folder = tmp_path / name
        settings = {"output_dir": folder, "pairs": write_pairs(), "max_steps": 2, "per_device_train_batch_size": 2}
        settings |= {"prefix_sharing": True, "report_to": "none", "save_steps": 2, "learning_rate": 1e-2}
        dpo.main(four_steps(**settings | changes))
        history = json.loads((folder / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
        timed = {"tokens_per_second", "unique_tokens_per_second", "mfu", "train_runtime"}
        return {
            "weights": load_file(next(folder.glob("*model.safetensors"))),
            "record": json.loads((folder / "training.json").read_text()),
            "log": [{key: value for key, value in entry.items() if key not in timed} for entry in history],
        }

    return run


def assert_same_run(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["weights"].keys() == other["weights"].keys()
    assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])
    assert one["log"] == other["log"]


LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear", "lora_dropout": 0.1}


@pytest.mark.parametrize("adapter", [{}, LORA], ids=["all parameters", "LoRA"])
def test_a_run_by_need_is_that_without_recomputation_even_where_memory_runs_out(
    adapter: dict[str, Any], train: Train, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain = train("plain", **adapter)
    assert "recomputed_layers" not in plain["record"]

    monkeypatch.setattr(recomputation, "available", lambda _: 10**12)
    by_need = train("by need", gradient_checkpointing="auto", **adapter)
    assert by_need["record"]["recomputed_layers"] == 0
    assert_same_run(by_need, plain)

    # Memory runs out in the backward of a step's second forward, which has added to some gradients already.
    backward, backwards = Accelerator.backward, []

    def failing(self: Accelerator, loss: torch.Tensor, **options: Any) -> None:
        backwards.append(loss)
        backward(self, loss, **options)
        if len(backwards) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory (simulated)")

    monkeypatch.setattr(Accelerator, "backward", failing)
    caplog.set_level(logging.WARNING)
    fallen = train("fallen", gradient_checkpointing="auto", **adapter)
    assert len(backwards) == 2 * 2 + 2
    assert fallen["record"]["recomputed_layers"] == 1
    assert any(
        "memory ran out with 0 of 2 layers recomputed; the step is repeated with 1" in m for m in caplog.messages
    )
    assert_same_run(fallen, plain)


def test_with_all_layers_recomputed_running_out_is_an_error(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory (simulated)")

    monkeypatch.setattr(Accelerator, "backward", failing)
    with pytest.raises(torch.OutOfMemoryError):
        train("run", gradient_checkpointing="auto")
