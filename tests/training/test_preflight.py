"""`notewriter preflight` says what a run would train on and need, with the options of the training scripts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Mistral3Config,
    Qwen3MoeConfig,
    ViTConfig,
)

from notewriter.ground.errors import UserError
from notewriter.training import dpo as train_dpo
from notewriter.training import preflight

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 19}


@pytest.fixture
def options(tiny_model: Path, write_pairs: Callable[..., Path]) -> list[str]:
    pairs = write_pairs()
    return ["--model_name_or_path", str(tiny_model), "--pairs", str(pairs), "--max_length", "64"]


def test_pairs_are_checked_shown_and_estimated(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    preflight.main([*options, "--per_device_train_batch_size", "4", "--gpu", "a100", "--num_train_epochs", "2"])

    shown = capsys.readouterr().out
    assert "train.parquet: 16 rows pass; 0 dropped as too long\n" in shown
    assert "dev.parquet: 4 rows pass" in shown
    assert shown.count("tokens are trained") == 4
    assert "refine_note" in shown
    # <user> 8 words <end> <assistant>, twice, with two and three tokens after it; two epochs of 16 rows.
    assert f"{2 * 16 * (2 * 11 + 2 + 3)} tokens, 8 optimizer steps" in shown
    assert "computed, not measured" in shown
    assert "\x1b" not in shown


def test_kto_is_estimated_by_the_sides_of_pairs(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    preflight.main([*options, "--method", "kto", "--per_device_train_batch_size", "4", "--num_train_epochs", "2"])

    shown = capsys.readouterr().out
    assert "train.parquet: 16 rows pass; 0 dropped as too long\n" in shown
    # The same tokens as in DPO, in twice as many rows.
    assert f"{2 * 16 * (2 * 11 + 2 + 3)} tokens, 16 optimizer steps" in shown
    preflight.main([*options, "--method", "kto", "--per_device_train_batch_size", "4", "--rows", "16"])
    assert "24 optimizer steps" in capsys.readouterr().out
    with pytest.raises(UserError, match="unknown method 'ppo'; choose one of: dpo, kto, sft"):
        preflight.main([*options, "--method", "ppo"])


@pytest.mark.parametrize(("loss", "has_one"), [("sigmoid", True), ("simpo", False), ("orpo", False)])
def test_a_reference_is_counted_where_there_is_one(
    loss: str, has_one: bool, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    preflight.main([*options, "--loss_type", loss, "--per_device_train_batch_size", "4"])

    def operations(shown: str) -> float:
        return float(shown.partition(" optimizer steps, ")[2].split()[0])

    with_loss = operations(capsys.readouterr().out)
    preflight.main([*options, "--per_device_train_batch_size", "4"])
    # Forward, backward (twice) and recomputation, and the forward of the reference.
    assert with_loss / operations(capsys.readouterr().out) == pytest.approx(1 if has_one else 4 / 5, rel=0.01)


def test_a_shortcut_is_a_line_of_the_preflight(
    options: list[str],
    write_pairs: Callable[..., Path],
    make_pair: Callable[..., dict],
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The rejected side is always one word longer.
    preflight.main(options)
    assert "warning" not in capsys.readouterr().out
    write_pairs([make_pair(number) for number in range(50)])
    preflight.main(options)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert [line.split(":")[1].strip() for line in lines] == ["init_note", "refine_note"]
    assert all("the side that is longer is rejected in 100% of 25 pairs" in line for line in lines)
    assert all(line.endswith("; see Shortcuts in docs/data_construction.md") for line in lines)
    card = write_pairs() / "README.md"
    card.write_text("# Pairs\n")
    write_pairs([make_pair(number) for number in range(50)])
    preflight.main(options)
    assert f"; see the card of the pairs, {card}\n" in capsys.readouterr().out


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


def test_steps_are_those_of_packed_rows_on_all_gpus(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [{"role": "user", "content": "the town"}, {"role": "assistant", "content": "a river"}]
    Dataset.from_list([{"messages": messages}] * 9).to_parquet(str(tmp_path / "train.parquet"))
    options = ["--model_name_or_path", str(tiny_model), "--data", str(tmp_path), "--packing", "true"]
    # Of eight tokens, so that two fit.
    options += ["--max_length", "17", "--num_train_epochs", "3", "--total_batch_size", "2"]
    options += ["--per_device_train_batch_size", "1"]
    preflight.main(options)
    assert "9 optimizer steps" in capsys.readouterr().out
    preflight.main([*options, "--rows", "9", "--prompt_tokens", "5", "--completion_tokens", "3"])
    assert "9 optimizer steps" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"total_batch_size 2 is not a multiple of 4 process\(es\) x"):
        preflight.main([*options, "--gpus", "4"])


def test_without_pairs_and_data_both_are_asked_for(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--pairs and --data are missing; give --pairs .* or --data"):
        preflight.main(["--model_name_or_path", str(tiny_model)])
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read"):
        preflight.main([f"--config={tmp_path / 'none.yaml'}"])


@pytest.mark.parametrize(("method", "option"), [([], "--pairs"), (["--method", "sft"], "--data")])
def test_help_lists_the_options_of_the_method(
    method: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        preflight.main([*method, "--help"])
    assert f"\n  {option} " in capsys.readouterr().out


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

    with pytest.raises(UserError, match=r"general\.jsonl: line 2: completion holds <end> in a text of the assistant"):
        preflight.main(["--model_name_or_path", str(tiny_model), "--data", str(data), "--mix", mix])


def test_a_model_that_cannot_share_prompts_is_refused_before_it_is_loaded(options: list[str], tmp_path: Path) -> None:
    preflight.main([*options, "--prefix_sharing", "true"])
    base = tmp_path / "capped"
    shutil.copytree(options[1], base)
    settings = Gemma2Config(**SIZES, tie_word_embeddings=False).to_dict()
    (base / "config.json").write_text(json.dumps(settings))

    options += ["--model_name_or_path", str(base), "--prefix_sharing", "true"]
    with pytest.raises(UserError, match=r"gemma2: caps attention scores, .*; set prefix_sharing: false"):
        preflight.main(options)


MIXTURE = SIZES | {"num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "moe_intermediate_size": 16}


def test_a_mixture_of_experts_trains_its_router_with_shared_prompts(options: list[str], tmp_path: Path) -> None:
    base = tmp_path / "mixture"
    shutil.copytree(options[1], base)
    AutoModelForCausalLM.from_config(Qwen3MoeConfig(num_experts_per_tok=2, **MIXTURE)).save_pretrained(base)
    options += ["--model_name_or_path", str(base), "--prefix_sharing", "true"]

    preflight.main(options)
    train_dpo.main([*options, "--output_dir", str(tmp_path / "run"), "--max_steps", "1"])


def test_a_language_model_that_is_known_only_with_images_is_estimated(options: list[str], tmp_path: Path) -> None:
    base = tmp_path / "mistral3"
    shutil.copytree(options[1], base)
    text = {"model_type": "mistral", **SIZES, "num_key_value_heads": 2, "head_dim": 8}
    vision = {"model_type": "pixtral", **SIZES, "head_dim": 8}
    Mistral3Config(text_config=text, vision_config=vision, tie_word_embeddings=False).save_pretrained(base)
    preflight.main([*options, "--model_name_or_path", str(base)])


def test_a_configuration_of_no_language_model_is_named(options: list[str], tmp_path: Path) -> None:
    base = tmp_path / "vit"
    shutil.copytree(options[1], base)
    ViTConfig(**(SIZES | {"vocab_size": None})).save_pretrained(base)
    with pytest.raises(UserError, match="vit is not a language model; give another"):
        preflight.main([*options, "--model_name_or_path", str(base)])


def test_what_training_refuses_is_refused(options: list[str]) -> None:
    with pytest.raises(UserError, match="rows are longer than max_length 8"):
        preflight.main([*options, "--max_length", "8"])
    with pytest.raises(UserError, match="label_smoothing: is ignored with loss_type sigmoid"):
        preflight.main([*options, "--label_smoothing", "0.1"])
    (Path(options[3]) / "dev.parquet").unlink()
    with pytest.raises(UserError, match=r"has no dev\.parquet"):
        preflight.main([*options, "--eval_strategy", "steps", "--eval_steps", "1"])
