"""Training refuses what would go wrong silently, goes on where it stopped, and records what it did."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaModel
from trl import ModelConfig

from notewriter.artifacts.run_record import read_inputs
from notewriter.ground import recipes
from notewriter.ground.errors import UserError
from notewriter.ground.locks import locked
from notewriter.models.checkpoint import Checkpoint
from notewriter.training import dpo as train_dpo
from notewriter.training import options as training_options
from notewriter.training.options import DPOArguments, DPOConfiguration
from notewriter.training.run.trainers import MeteredDPOTrainer
from notewriter.training.sharing import self_check

Options = Callable[..., list[str]]


@pytest.fixture
def options(four_steps: Options, write_pairs: Callable[..., Path]) -> Options:
    return partial(four_steps, pairs=write_pairs(), learning_rate=1e-3)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def losses(checkpoint: Path) -> list[float]:
    """The loss of each step up to a checkpoint."""
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def test_full_training_changes_the_weights_and_keeps_the_chat_template(
    options: Options, tiny_model: Path, tmp_path: Path
) -> None:
    train_dpo.main(options(eval_strategy="steps", eval_steps=4))

    before, after = weights(tiny_model), weights(tmp_path / "run")
    assert before.keys() == after.keys()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(tiny_model).chat_template


def test_record_says_what_was_trained_on_what_and_how(options: Options, tiny_model: Path, tmp_path: Path) -> None:
    train_dpo.main(options(loss_type="sigmoid", eval_strategy="steps", eval_steps=4))

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert record["schema"] == "notewriter/training/1"
    assert (record["method"], record["parameters"]) == ("dpo", "full")
    assert record["base_model"] == str(tiny_model)
    assert record["base_model_fingerprint"] == Checkpoint(tiny_model).fingerprint()
    assert record["rows"] == {
        "train": {"init_note": 8, "refine_note": 8},
        "dev": {"init_note": 2, "refine_note": 2},
    }
    assert record["hyperparameters"]["learning_rate"] == 1e-3
    assert record["hyperparameters"]["batch_size"] == 4
    assert record["hyperparameters"]["bf16"] is False
    assert {"train_loss", "rewards/accuracies", "rewards/margins", "eval_loss"} <= record["metrics"].keys()
    # Left by the libraries: a pickle of every option, and a card of a "fine-tuned version of None".
    assert not [name for name in ("training_args.bin", "README.md") if (tmp_path / "run" / name).exists()]


THINKING = (
    "{% for message in messages %}<{{ message.role }}> "
    "{% if message.role == 'assistant' %}<unknown> {% endif %}{{ message.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> "
    "{% if quiet is defined %}<unknown> {% else %}<user> {% endif %}{% endif %}"
)
"""What opens an answer is another token than stands there afterwards, unless a variable says so."""


def test_a_variable_of_the_template_is_trained_recorded_and_the_checkpoints_default(
    options: Options, tiny_model: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    (base / "chat_template.jinja").write_text(THINKING)
    thinking = options(model_name_or_path=base)
    with pytest.raises(UserError, match=r"its prompt is not the beginning of both sides: .*<user>"):
        train_dpo.main(thinking)
    with pytest.raises(UserError, match=r"the chat template of .*base has no variable quite; it has quiet"):
        train_dpo.main([*thinking, "--chat_template_kwargs", '{"quite": true}'])

    train_dpo.main([*thinking, "--chat_template_kwargs", '{"quiet": true}'])

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert record["hyperparameters"]["chat_template_kwargs"] == {"quiet": True}
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["chat_template_kwargs"] == {"quiet": True}
    question, how = [{"role": "user", "content": "the town"}], {"add_generation_prompt": True, "tokenize": False}
    own, trained = AutoTokenizer.from_pretrained(base), AutoTokenizer.from_pretrained(tmp_path / "run")
    assert trained.apply_chat_template(question, **how) == own.apply_chat_template(question, quiet=True, **how)
    with pytest.raises(UserError, match=r"chat_template_kwargs: \{'quiet': True\}, not \{'quiet': False\}"):
        train_dpo.main([*thinking, "--chat_template_kwargs", '{"quiet": false}'])


def test_a_template_with_todays_date_is_refused(options: Options, tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    own = (tiny_model / "chat_template.jinja").read_text()
    today = "'ago' if strftime_now('%p') == 'AM' else 'one'"  # in words of the small vocabulary
    dated = f"{{% if not date_string is defined %}}{{% set date_string = {today} %}}{{% endif %}}{{{{ date_string }}}} "
    (base / "chat_template.jinja").write_text(dated + own)

    with pytest.raises(
        UserError, match=r"base: its chat template writes today's date .* {date_string: \"26 Jul 2024\"}"
    ):
        train_dpo.main(options(model_name_or_path=base))
    train_dpo.main([*options(model_name_or_path=base), "--chat_template_kwargs", '{"date_string": "ago"}'])


def test_resolved_configuration_starts_the_same_run(options: Options, tmp_path: Path) -> None:
    train_dpo.main(options(loss_weights=0.5))
    first = weights(tmp_path / "run")

    train_dpo.main(["--config", str(tmp_path / "run/config.yaml"), "--output_dir", str(tmp_path / "again")])

    second = weights(tmp_path / "again")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_lora_saves_an_adapter_that_was_trained(options: Options, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    train_dpo.main(options(use_peft=True, lora_r=4, lora_target_modules="all-linear"))

    adapter = load_file(tmp_path / "run/adapter_model.safetensors")
    # B starts at zero: what is not zero has been trained.
    assert all(torch.any(tensor != 0) for name, tensor in adapter.items() if "lora_B" in name)
    assert len(adapter) == 2 * 7 * 2
    record = json.loads((tmp_path / "run/training.json").read_text())
    assert record["parameters"] == "lora"
    assert not (tmp_path / "run/README.md").exists()
    assert record["hyperparameters"]["lora_r"] == 4


def test_the_end_of_a_turn_is_trained_under_a_template_that_leaves_it_open(
    options: Options, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    # As GLM-4's: the next turn's role is what ends a turn.
    (base / "chat_template.jinja").write_text(
        "{% for message in messages %}<{{ message.role }}> {{ message.content }} {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    tokenizer = AutoTokenizer.from_pretrained(base)
    user = tokenizer.convert_tokens_to_ids("<user>")
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokenizer.eos_token_id, user]}))
    last = []
    step = MeteredDPOTrainer.training_step

    def look(self: Any, model: Any, inputs: dict[str, torch.Tensor], *arguments: Any) -> torch.Tensor:
        for ids, mask in zip(inputs["input_ids"], inputs["completion_mask"], strict=True):
            last.append(ids[mask.bool()][-1].item())
        return step(self, model, inputs, *arguments)

    monkeypatch.setattr(MeteredDPOTrainer, "training_step", look)
    train_dpo.main(options(model_name_or_path=base, max_steps=1))

    assert last == [user] * 8


def test_a_sweep_runs_the_reference_in_its_first_run_alone(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_gradients = []
    forward = LlamaModel.forward

    def count(self: Any, *arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            without_gradients.append(1)
        return forward(self, *arguments, **options)

    monkeypatch.setattr(LlamaModel, "forward", count)
    # An earlier run of this test computed the same.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    # Every run scores a few pairs without gradients.
    monkeypatch.setattr(self_check, "check", lambda *_: None)
    sweep = {"precompute_ref_log_probs": True, "reference_cache": tmp_path / "reference", "prefix_sharing": True}
    train_dpo.main(options(**sweep))
    assert without_gradients

    without_gradients.clear()
    changes = {"learning_rate": 1e-4, "beta": 0.5, "loss_type": "ipo", "output_dir": tmp_path / "second"}
    train_dpo.main(options(**sweep, **changes))
    assert not without_gradients
    assert len(losses(tmp_path / "second/checkpoint-4")) == 4


@pytest.mark.parametrize(
    "loading", [{"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}, {"num_hidden_layers": 1}]
)
def test_a_model_that_is_loaded_otherwise_starts_from_its_own_reference(
    options: Options, tmp_path: Path, loading: dict[str, Any]
) -> None:
    cached = {"precompute_ref_log_probs": True, "reference_cache": tmp_path / "reference", "max_steps": 1}
    train_dpo.main(options(**cached, output_dir=tmp_path / "as it is"))

    train_dpo.main(options(**cached, output_dir=tmp_path / "otherwise", model_init_kwargs=json.dumps(loading)))

    (first, *_) = json.loads((tmp_path / "otherwise/checkpoint-1/trainer_state.json").read_text())["log_history"]
    # The policy is its own reference still.
    assert (first["rewards/chosen"], first["rewards/rejected"]) == pytest.approx((0, 0), abs=1e-6)


def test_weights_are_stored_in_the_precision_of_the_base_model(
    options: Options, tiny_model: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16).save_pretrained(base)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(base)

    train_dpo.main(options(model_name_or_path=base))

    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run", dtype="auto").dtype == torch.bfloat16
    before, after = weights(base), weights(tmp_path / "run")
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_stopped_run_goes_on_from_its_last_checkpoint(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_dpo.main(options())
    whole = weights(tmp_path / "run")
    undisturbed = losses(tmp_path / "run/checkpoint-4")
    # What is left of a run that was killed while it wrote its second checkpoint.
    for name in ("training.json", "model.safetensors", "checkpoint-4/trainer_state.json", "checkpoint-4/optimizer.pt"):
        (tmp_path / "run" / name).unlink()

    with caplog.at_level(logging.INFO):
        train_dpo.main(options())

    assert "checkpoint-2: resuming" in caplog.text
    assert losses(tmp_path / "run/checkpoint-4") == pytest.approx(undisturbed, rel=1e-6)
    resumed = weights(tmp_path / "run")
    assert all(torch.allclose(whole[name], resumed[name], atol=1e-6) for name in whole)


def test_finished_run_is_left_as_it_is(options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train_dpo.main(options())
    finished = (tmp_path / "run/training.json").read_text()

    with caplog.at_level(logging.INFO):
        train_dpo.main(options(logging_steps=2))

    assert "this run is finished" in caplog.text
    assert (tmp_path / "run/training.json").read_text() == finished


def test_output_of_another_configuration_is_refused(options: Options) -> None:
    train_dpo.main(options())

    with pytest.raises(UserError, match=r"run: contains a run with .*; choose another output_dir") as error:
        train_dpo.main(options(beta=0.5, learning_rate=1e-4))
    assert "beta: 0.1, not 0.5" in str(error.value) and "learning_rate: 0.001, not 0.0001" in str(error.value)


def test_output_of_other_pairs_is_refused(
    options: Options, write_pairs: Callable[..., Path], make_pair: Callable[..., dict]
) -> None:
    train_dpo.main(options())
    write_pairs([make_pair(number) for number in range(12)])

    with pytest.raises(UserError, match="contains a run with other contents of pairs, which have changed"):
        train_dpo.main(options())


def test_a_run_of_an_earlier_version_resumes(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_dpo.main(options(max_length=64))
    for name in ("training.json", "checkpoint-4/trainer_state.json"):
        (tmp_path / "run" / name).unlink()
    file = tmp_path / "run/config.yaml"
    stored = yaml.safe_load(file.read_text())
    # It had fewer options, one of which is on by default now, and left out those that were None.
    for newer in ("average_tokens_across_devices", "prefix_sharing", "reference_cache"):
        del stored[newer]
    file.write_text(yaml.safe_dump({key: value for key, value in stored.items() if value is not None}))

    with caplog.at_level(logging.INFO):
        train_dpo.main(options(max_length=64))
    assert "checkpoint-2: resuming" in caplog.text


def test_an_option_that_was_switched_off_is_not_taken_for_its_default(options: Options, tmp_path: Path) -> None:
    default = DPOConfiguration.__dataclass_fields__["max_length"].default
    (tmp_path / "unlimited.yaml").write_text("max_length: null\n")
    argv = options(max_length=default, max_steps=1)
    place = argv.index("--max_length")
    unlimited = [*argv[:place], *argv[place + 2 :], "--config", str(tmp_path / "unlimited.yaml")]
    train_dpo.main(unlimited)
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["max_length"] is None
    with pytest.raises(UserError, match=f"contains a run with max_length: None, not {default}; choose"):
        train_dpo.main(argv)
    train_dpo.main(unlimited)


def test_a_folder_in_the_place_of_the_record_is_no_finished_run(options: Options, tmp_path: Path) -> None:
    (tmp_path / "run/training.json").mkdir(parents=True)
    with pytest.raises(UserError, match=r"training\.json: is a folder, where the run's record belongs; remove it"):
        train_dpo.main(options())


def test_the_help_names_commands_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train_dpo.main(["--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage: notewriter train dpo ")
    root = Path(__file__).parents[2]
    assert all((root / path).is_file() for path in re.findall(r"(?:training|configs)/[\w/.-]+\.(?:py|yaml)", shown))
    for profile, recipe in re.findall(r"--accelerate (\w+)\s+--config (\S+)", shown):
        assert {f"accelerate/{profile}", recipe} <= set(recipes.names())


def other_weights(tiny_model: Path, folder: Path) -> None:
    """Put other weights of the same shapes into a copy of the model, made where it is not there."""
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        model.lm_head.weight += 0.1
    model.save_pretrained(folder)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "LoRA"])
def test_continuation_on_other_base_weights_is_refused(
    options: Options, tiny_model: Path, tmp_path: Path, lora: bool
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    changes = {"use_peft": True, "lora_target_modules": "all-linear"} if lora else {}
    train_dpo.main(options(model_name_or_path=base, **changes))
    (tmp_path / "run/training.json").unlink()
    other_weights(tiny_model, base)

    with pytest.raises(UserError, match=r"run: contains a run with other contents of model_name_or_path: .*base,"):
        train_dpo.main(options(model_name_or_path=base, **changes))


def test_a_run_that_was_begun_without_a_record_goes_on_and_has_one_from_then_on(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train_dpo.main(options())
    inputs = read_inputs(tmp_path / "run")
    for name in ("run.json", "training.json", "checkpoint-4/trainer_state.json"):
        (tmp_path / "run" / name).unlink()

    with caplog.at_level(logging.INFO):
        train_dpo.main(options())

    assert "checkpoint-2: resuming" in caplog.text
    assert read_inputs(tmp_path / "run") == inputs


def test_a_folder_that_another_run_trains_into_is_left_to_it(options: Options, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(UserError, match=r"run: process \d+ on .* is using this folder"):
        train_dpo.main(options())
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_base_model_is_not_overwritten(options: Options, tiny_model: Path) -> None:
    with pytest.raises(UserError, match="is the base model"):
        train_dpo.main(options(output_dir=tiny_model))


def test_completions_that_would_be_cut_stop_the_run(
    options: Options, write_pairs: Callable[..., Path], make_pair: Callable[..., dict], tmp_path: Path
) -> None:
    write_pairs([make_pair(0), make_pair(1, words=80), make_pair(2), make_pair(3, words=70)])

    with pytest.raises(UserError) as error:
        train_dpo.main(options())

    message = str(error.value)
    # A prompt of 80 words, a completion of 2, and for each a role and an end.
    assert "train.parquet: 2 of 4 rows" in message
    assert "row 1 (question q1): stage refine_note, 86 tokens" in message
    assert "row 3 (question q3): stage refine_note, 76 tokens" in message
    assert "--max_length 86" in message
    assert not (tmp_path / "run").exists()


def test_long_rows_are_dropped_on_request_and_counted(
    options: Options, write_pairs: Callable[..., Path], make_pair: Callable[..., dict], tmp_path: Path
) -> None:
    write_pairs([*(make_pair(number) for number in range(8)), make_pair(8, words=80)])

    train_dpo.main(options(drop_long_rows=True, max_steps=1))

    record = json.loads((tmp_path / "run/training.json").read_text())
    assert record["dropped_long_rows"] == {"train": 1, "dev": 0}
    assert sum(record["rows"]["train"].values()) == 8


def test_batch_size_does_not_depend_on_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = DPOConfiguration(output_dir=str(tmp_path), per_device_train_batch_size=2, total_batch_size=8)
    assert alone.gradient_accumulation_steps == 4

    with pytest.raises(UserError, match=r"total_batch_size 8 is not a multiple of 1 process\(es\) x .* 3"):
        DPOConfiguration(output_dir=str(tmp_path), per_device_train_batch_size=3, total_batch_size=8)


@pytest.mark.parametrize(
    ("processor", "options", "bf16"),
    [
        pytest.param("float32", {}, False, id="without units"),
        pytest.param("bfloat16", {}, True, id="with units"),
        pytest.param("bfloat16", {"bf16": False}, False, id="the user's word"),
        pytest.param("float32", {"bf16": True}, True, id="the user's word again"),
    ],
)
def test_training_on_a_cpu_is_in_the_number_format_that_it_is_fast_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processor: str, options: dict[str, bool], bf16: bool
) -> None:
    monkeypatch.setattr(training_options, "number_format", lambda: processor)
    assert DPOConfiguration(output_dir=str(tmp_path), use_cpu=True, **options).bf16 is bf16


@pytest.mark.parametrize(
    ("use_cpu", "deepspeed", "cuda", "bf16"),
    [
        pytest.param(False, False, True, True, id="a CUDA device"),
        pytest.param(False, True, True, True, id="a CUDA device under DeepSpeed"),
        pytest.param(True, False, True, True, id="the CPU beside a CUDA device"),
        pytest.param(True, True, True, False, id="DeepSpeed on the CPU"),
    ],
)
def test_a_gpu_computes_in_bfloat16_and_deepspeed_on_a_cpu_does_not(
    monkeypatch: pytest.MonkeyPatch, use_cpu: bool, deepspeed: bool, cuda: bool, bf16: bool
) -> None:
    monkeypatch.setattr(training_options, "number_format", lambda: "bfloat16")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert training_options.computes_in_bfloat16(use_cpu, deepspeed) is bf16


def test_a_gpu_that_emulates_bfloat16_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert not training_options.computes_in_bfloat16(use_cpu=False, deepspeed=False)


def test_the_profile_of_the_cpu_trains_there_beside_a_gpu_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(training_options, "number_format", lambda: "float32")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    training = DPOConfiguration(output_dir=str(tmp_path))
    assert (training.use_cpu, training.bf16) == (True, False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_name_or_path": "/nowhere/model"}, "neither a model folder nor a hub id"),
        ({"pairs": "/nowhere/pairs"}, "no such file or folder"),
        ({"trust_remote_code": True}, "never run"),
        ({"model_init_kwargs": '{"trust_remote_code": true}'}, "never run"),
        ({"model_init_kwargs": '{"token": "hf_x"}'}, "model_init_kwargs: token would be written .*set HF_TOKEN"),
        ({"total_batch_size": 3}, "not a multiple"),
        ({"total_batch_size": 0}, "total_batch_size 0 is not a multiple"),
        ({"total_batch_size": -4}, "total_batch_size -4 is not a multiple"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size: 0 is below 1; give 1 or more"),
        ({"save_only_model": True}, "save_only_model: .* leave it out"),
        ({"resume_from_checkpoint": "runs/a/checkpoint-4"}, "resume_from_checkpoint: .* model_name_or_path"),
        ({"beta": "much"}, "beta"),
        ({"loss_type": "sigmoyd"}, "unknown loss_type 'sigmoyd'; choose one of: .*; did you mean 'sigmoid'"),
        ({"loss_type": "zzz"}, "unknown loss_type 'zzz'; choose one of: aot, aot_unpaired"),
        ({"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0]}, "Got 1 weights for 2 loss types"),
        ({"label_smoothing": 0.1}, "with loss_type sigmoid; leave it out, or set loss_type to aot or aot_unpaired or"),
        ({"label_smoothing": 0.1, "loss_type": ["ipo", "sft"]}, "label_smoothing: is ignored with loss_type ipo, sft"),
        ({"discopop_tau": 0.1}, "discopop_tau: is ignored with loss_type sigmoid; .* set loss_type to discopop"),
        ({"ld_alpha": 0.5, "loss_type": "sft"}, "ld_alpha: is ignored with loss_type sft"),
        ({"f_divergence_type": "forward_kl", "loss_type": "sft"}, "f_divergence_type: is ignored with loss_type sft"),
        ({"f_alpha_divergence_coef": 0.3}, "f_alpha_divergence_coef: .* set f_divergence_type to alpha_divergence"),
        ({"ref_model_sync_steps": 8}, "ref_model_sync_steps: is ignored with sync_ref_model false; .* to true"),
        ({"precompute_ref_batch_size": 8}, "precompute_ref_batch_size: .* set precompute_ref_log_probs to true"),
        ({"loss_type": "exo_pair"}, "label_smoothing: exo_pair needs a value between 0 and 1, not 0.0; try 0.001"),
        ({"loss_type": "robust", "label_smoothing": 0.5}, "label_smoothing: robust needs a value from 0 to below 0.5"),
    ],
)
def test_mistakes_are_named(options: Options, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        train_dpo.main(options(**changes))


def test_one_process_trains_on_one_gpu(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DPOConfiguration, "n_gpu", 8)
    with pytest.raises(UserError, match="one process has 8 GPUs; set CUDA_VISIBLE_DEVICES"):
        train_dpo.main(options())


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_type": ["sigmoid", "robust"], "label_smoothing": 0.1},
        {"loss_type": "exo_pair", "label_smoothing": 1e-3},
        {"loss_type": "aot", "label_smoothing": 0.1},
        {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.3},
        {"precompute_ref_log_probs": True, "precompute_ref_batch_size": 8},
    ],
    ids=str,
)
def test_options_that_the_loss_reads_are_taken(tmp_path: Path, changes: dict[str, Any]) -> None:
    DPOConfiguration(output_dir=str(tmp_path), **changes)


def test_model_without_a_chat_template_is_refused(options: Options, tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    AutoModelForCausalLM.from_pretrained(tiny_model).save_pretrained(base)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(base)

    with pytest.raises(UserError, match="no chat template"):
        train_dpo.main(options(model_name_or_path=base))


def test_evaluation_needs_a_dev_split(options: Options, write_pairs: Callable[..., Path]) -> None:
    (write_pairs() / "dev.parquet").unlink()

    with pytest.raises(UserError, match=r"has no dev\.parquet"):
        train_dpo.main(options(eval_strategy="steps"))


CONFIGURATIONS = sorted((Path(__file__).parents[2] / "configs/dpo").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_configurations_of_the_repository_have_no_unknown_keys(path: Path) -> None:
    from notewriter.ground import config

    values = yaml.safe_load(path.read_text())
    # bf16 and many processes need hardware; everything else is read as it would be in the run.
    _, training, model = config.parse(
        [DPOArguments, DPOConfiguration, ModelConfig],
        ["--config", str(path), "--bf16", "false", "--pairs", "pairs"],
    )
    assert training.output_dir == values["output_dir"]
    assert training.beta == values["beta"]
    assert model.model_name_or_path == values["model_name_or_path"]


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_sharing_prompts_trains_the_same_weights(options: Options, tmp_path: Path, lora: bool) -> None:
    changes = {"use_peft": True, "lora_target_modules": "all-linear"} if lora else {}
    saved = []
    for shared in (False, True):
        folder = tmp_path / f"shared-{shared}"
        train_dpo.main(options(output_dir=folder, prefix_sharing=shared, loss_type="sigmoid", **changes))
        saved.append(load_file(folder / ("adapter_model.safetensors" if lora else "model.safetensors")))
    for name, expected in saved[0].items():
        # Adam's first steps divide by the gradient's own size, which magnifies the last digit.
        torch.testing.assert_close(saved[1][name], expected, rtol=1e-3, atol=1e-5)


def test_four_small_batches_are_one_of_four(options: Options, tmp_path: Path) -> None:
    for size in (1, 4):
        changes = {"output_dir": tmp_path / f"batch-{size}", "per_device_train_batch_size": size}
        # Plain gradient descent: Adam would blow up the last digits of gradients near zero.
        train_dpo.main(options(**changes, optim="sgd", learning_rate=0.5, loss_type="sigmoid"))

    expected, found = weights(tmp_path / "batch-4"), weights(tmp_path / "batch-1")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-5)
