"""`notewriter preflight` says what a run would train on and need, with the options of the training scripts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset
from transformers import MistralConfig

from notewriter.errors import UserError
from training import estimate, preflight

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 19}


@pytest.fixture
def options(tiny_model: Path, write_pairs: Callable[..., Path]) -> list[str]:
    pairs = write_pairs()
    return ["--model_name_or_path", str(tiny_model), "--pairs", str(pairs), "--max_length", "64"]


def test_pairs_are_checked_shown_and_estimated(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    preflight.main([*options, "--per_device_train_batch_size", "4", "--gpu", "A100", "--num_train_epochs", "2"])

    shown = capsys.readouterr().out
    assert "train.parquet: 16 rows pass; 0 dropped as too long\n" in shown
    assert "dev.parquet: 4 rows pass" in shown
    assert shown.count("tokens are trained") == 4
    assert "refine_note" in shown
    # <user> 8 words <end> <assistant>, twice, with two and three tokens after it; two epochs of 16 rows.
    assert f"{2 * 16 * (2 * 11 + 2 + 3)} tokens, 8 optimizer steps" in shown
    assert "computed, not measured" in shown
    assert "\x1b" not in shown


def test_conversations_are_taken_where_there_is_data(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [{"role": "user", "content": "the town"}, {"role": "assistant", "content": "a river"}]
    Dataset.from_list([{"messages": messages, "dataset": "musique"}] * 3).to_parquet(str(tmp_path / "train.parquet"))
    file = tmp_path / "sft.yaml"
    file.write_text(f"model_name_or_path: {tiny_model}\ndata: {tmp_path}\nmax_length: 64\n")

    preflight.main(["--config", str(file)])

    shown = capsys.readouterr().out
    assert "3 rows pass" in shown
    assert "<user> the town <end> <assistant>⟦a river <end>⟧" in shown


def test_without_pairs_and_data_both_are_asked_for(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--pairs and --data are missing; give --pairs .* or --data"):
        preflight.main(["--model_name_or_path", str(tiny_model)])
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read"):
        preflight.main([f"--config={tmp_path / 'none.yaml'}"])


def test_rows_are_numbered_as_in_their_file(
    options: list[str], write_pairs: Callable[..., Path], make_pair: Callable[..., dict]
) -> None:
    same = make_pair(2)
    same["rejected"] = same["chosen"]
    write_pairs([make_pair(0, words=80), make_pair(1), same])

    with pytest.raises(UserError, match=r"train\.parquet: 1 fault\(s\) in 2 rows: row 2 \(question q2\): chosen and"):
        preflight.main([*options, "--drop_long_rows", "true"])


def test_faults_of_what_is_mixed_in_name_its_file_and_row(tiny_model: Path, tmp_path: Path) -> None:
    data, general = tmp_path / "data.jsonl", tmp_path / "general.jsonl"
    data.write_text('{"prompt": "the town", "completion": "a river"}\n' * 2)
    general.write_text(
        '{"prompt": "the town", "completion": "a river"}\n{"prompt": "the town", "completion": "a <end> river"}\n'
    )
    mix = json.dumps({str(general): 1})

    with pytest.raises(
        UserError, match=r"general\.jsonl: 1 fault\(s\) in 2 rows: row 1: <end> ends a turn in the middle"
    ):
        preflight.main(["--model_name_or_path", str(tiny_model), "--data", str(data), "--mix", mix])


def test_a_model_that_cannot_share_prompts_is_refused_before_it_is_loaded(options: list[str], tmp_path: Path) -> None:
    preflight.main([*options, "--prefix_sharing", "true"])
    base = tmp_path / "windowed"
    shutil.copytree(options[1], base)
    settings = MistralConfig(sliding_window=16, **SIZES).to_dict()
    (base / "config.json").write_text(json.dumps(settings))

    with pytest.raises(UserError, match=r"mistral: has sliding_attention over 16 tokens .*; set prefix_sharing: false"):
        preflight.main([*options, "--model_name_or_path", str(base), "--prefix_sharing", "true"])


def test_what_training_refuses_is_refused(options: list[str]) -> None:
    with pytest.raises(UserError, match="rows are longer than max_length 8"):
        preflight.main([*options, "--max_length", "8"])
    with pytest.raises(UserError, match="model is not; add --model"):
        preflight.main([*options, "--base_url", "http://127.0.0.1:1/v1"])


def test_a_server_that_is_not_there_is_named(options: list[str]) -> None:
    with pytest.raises(UserError, match=r"127\.0\.0\.1:1/tokenize: gave no token ids"):
        preflight.main([*options, "--base_url", "http://127.0.0.1:1/v1", "--model", "notes"])


def estimated(
    tiny_model: Path, machine: estimate.Arguments, *options: str, peak: float | None = None
) -> dict[str, float]:
    from trl import ModelConfig

    from notewriter.config import parse
    from training import train_dpo

    defaults = ["--pairs", "p", "--model_name_or_path", str(tiny_model), "--bf16", "false", "--dtype", "float32"]
    _, training, model = parse([train_dpo.Arguments, train_dpo.Configuration, ModelConfig], [*defaults, *options])
    load = estimate.Load(rows=100, forward_tokens=10_000, longest=200, longest_sequence=120, trained=40)
    return estimate.estimate(estimate.shape_of(model), load, machine, training, model, peak)


def test_parameters_are_counted_from_the_configuration(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM
    from trl import ModelConfig

    shape = estimate.shape_of(ModelConfig(model_name_or_path=str(tiny_model)))

    network = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert shape.parameters == shape.trained == network.num_parameters()
    assert shape.computing == network.num_parameters() - network.get_input_embeddings().weight.numel()
    assert (shape.layers, shape.hidden, shape.intermediate, shape.key_value) == (2, 32, 64, 16)


def test_a_fully_trained_model_needs_its_size_five_times_and_less_when_divided(tiny_model: Path) -> None:
    alone = estimated(tiny_model, estimate.Arguments())
    size = alone["weights"]
    # Gradients, two moments and the reference, all in float32.
    assert (alone["gradients"], alone["optimizer"], alone["reference"]) == (size, 2 * size, size)
    divided = estimated(tiny_model, estimate.Arguments(gpus=4, sharding="zero2"))
    assert (divided["weights"], divided["gradients"], divided["optimizer"]) == (size, size / 4, size / 2)
    assert estimated(tiny_model, estimate.Arguments(), "--precompute_ref_log_probs", "true")["reference"] == 0


def test_lora_trains_little_and_needs_no_reference(tiny_model: Path) -> None:
    options = ["--use_peft", "true", "--lora_r", "2", "--lora_target_modules", "all-linear"]
    lora = estimated(tiny_model, estimate.Arguments(), *options)

    assert lora["reference"] == 0
    assert lora["optimizer"] == 2 * lora["gradients"] < lora["weights"]


def test_hours_follow_the_peak_and_the_number_of_gpus(tiny_model: Path) -> None:
    one = estimated(tiny_model, estimate.Arguments(utilization=0.5), peak=1)
    assert one["hours"] == pytest.approx(one["operations"] / 0.5e12 / 3600)
    four = estimated(tiny_model, estimate.Arguments(gpus=4, utilization=0.5), peak=1)
    assert four["hours"] == pytest.approx(one["hours"] / 4)
    assert "hours" not in estimated(tiny_model, estimate.Arguments())
    with pytest.raises(UserError, match="unknown gpu 'A1000'"):
        estimated(tiny_model, estimate.Arguments(gpu="A1000"))


def test_gpus_are_known_by_their_drivers_names() -> None:
    assert estimate.peak_tflops("NVIDIA A100-SXM4-80GB") == 312
    assert estimate.peak_tflops("NVIDIA H100 80GB HBM3") == 989
    assert estimate.peak_tflops("NVIDIA GeForce RTX 4090") == 165
    assert estimate.peak_tflops("NVIDIA L40S") == 362
    assert estimate.peak_tflops("Some CPU") is None
