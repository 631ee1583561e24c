"""The log says how many tokens went through, what of it was padding or a prompt's second time, and how well it ran."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from notewriter.training import dpo as train_dpo
from notewriter.training.run.throughput import Meter, operations

CPU = torch.device("cpu")


def read(meter: Meter, seconds: float, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A reading so many seconds after the last."""
    monkeypatch.setattr("time.perf_counter", lambda: meter.since + seconds)
    return meter.read(lambda counts: counts, 1)


@pytest.fixture
def model(tiny_model: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(tiny_model)


def test_padding_and_the_second_prompt_of_a_pair_are_told_apart(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter(model, CPU, peak=None, paired=True)
    # One pair: a prompt of four tokens, a chosen side of two and a rejected one of four.
    mask = torch.tensor([[1] * 6 + [0] * 2, [1] * 8])
    completion = torch.tensor([[0] * 4 + [1] * 2 + [0] * 2, [0] * 4 + [1] * 4])

    meter.count({"input_ids": torch.zeros(2, 8), "attention_mask": mask, "completion_mask": completion})

    assert read(meter, 2, monkeypatch) == {
        "tokens_per_second": 7.0,
        "unique_tokens_per_second": 5.0,
        "padding": 0.125,
    }
    assert read(meter, 2, monkeypatch)["tokens_per_second"] == 0


def test_pairs_that_share_prompts_are_computed_without_padding(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter(model, CPU, peak=None, paired=True, shared=True)
    mask = torch.tensor([[1] * 6 + [0] * 2, [1] * 8])
    completion = torch.tensor([[0] * 4 + [1] * 2 + [0] * 2, [0] * 4 + [1] * 4])

    meter.count({"input_ids": torch.zeros(2, 8), "attention_mask": mask, "completion_mask": completion})

    assert read(meter, 1, monkeypatch)["padding"] == 0.0


def test_what_pairs_of_one_prompt_share_counts_once(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Meter(model, CPU, peak=None, paired=True, shared=True)
    # Two pairs of a prompt of two tokens and a chosen side of one; rejected sides of one and of two.
    ids = torch.tensor([[6, 7, 8, 0], [6, 7, 8, 0], [6, 7, 9, 0], [6, 7, 9, 9]])
    mask, completion = (ids > 0).int(), (ids > 7).int()

    meter.count({"input_ids": ids, "attention_mask": mask, "completion_mask": completion})

    assert read(meter, 1, monkeypatch)["unique_tokens_per_second"] == 2 + 1 + 1 + 2


def test_packed_rows_have_no_padding_and_attention_of_their_parts(
    model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter(model, CPU, peak=1e-6, paired=False)
    positions = torch.tensor([[0, 1, 2, 0, 1]])

    meter.count({"input_ids": torch.zeros(1, 5, dtype=torch.long), "position_ids": positions})

    figures = read(meter, 1, monkeypatch)
    assert (figures["tokens_per_second"], figures["padding"]) == (5.0, 0.0)
    token, attended = operations(model, lora=False)
    assert figures["mfu"] == pytest.approx((5 * token + (9 + 4) * attended) / 1e6, rel=1e-3)


def test_operations_leave_out_the_embedding_and_what_lora_does_not_need(model: torch.nn.Module) -> None:
    parameters = model.num_parameters() - model.get_input_embeddings().weight.numel()

    assert operations(model, lora=False) == (6 * parameters, 6 * 2 * 32)
    assert operations(model, lora=True) == (4 * parameters, 4 * 2 * 32)


def test_the_log_of_a_run_has_the_throughput_beside_the_loss(
    tiny_model: Path, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    options = f"--model_name_or_path {tiny_model} --pairs {write_pairs()} --output_dir {tmp_path / 'run'}"
    options += " --max_steps 2 --logging_steps 1 --max_length 64 --peak_tflops 1 --disable_tqdm true --save_steps 2"

    train_dpo.main(options.split())

    history = json.loads((tmp_path / "run/checkpoint-2/trainer_state.json").read_text())["log_history"]
    assert len(history) == 2
    for entry in history:
        assert {"loss", "rewards/margins", "tokens_per_second", "padding", "mfu"} <= entry.keys()
        # Prompts of 11 tokens, completions of two and three.
        assert entry["unique_tokens_per_second"] / entry["tokens_per_second"] == pytest.approx(16 / 27, rel=1e-3)
