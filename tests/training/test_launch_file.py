"""What a launch file says of training and saving is read, set right, or refused before anything is loaded."""

import logging
import os
from pathlib import Path

import pytest
from accelerate.utils import DeepSpeedPlugin
from transformers import TrainingArguments
from trl import ModelConfig

from notewriter.ground.errors import UserError
from notewriter.training.launch_file import REFUSED, check_file, check_reference_loading, settle, settle_deepspeed
from notewriter.training.profiles import PROFILES
from notewriter.training.run import launcher

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_", "PARALLELISM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT")


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("ACCELERATE_MIXED_PRECISION", "fp8", "mixed_precision: fp8 .* write bf16, fp16 or no"),
        ("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR", "dynamo_config: INDUCTOR .* --torch_compile true"),
        ("PARALLELISM_CONFIG_TP_SIZE", "2", "parallelism_config_tp_size: 2 .* write 1"),
        ("ACCELERATE_USE_MEGATRON_LM", "true", "megatron_lm_config: true .* choose FSDP"),
        ("FSDP_VERSION", "1", "fsdp_version: 1 .* write 2"),
        ("FSDP_ACTIVATION_CHECKPOINTING", "true", "fsdp_activation_checkpointing: true .* write false"),
    ],
)
def test_what_a_run_cannot_be_right_with_is_refused(
    variable: str, value: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=told):
        settle()


def test_what_our_profiles_and_accelerates_defaults_say_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_DYNAMO_BACKEND": "NO",
        "PARALLELISM_CONFIG_TP_SIZE": "1",
        "FSDP_VERSION": "2",
        "FSDP_ACTIVATION_CHECKPOINTING": "false",
    }.items():
        monkeypatch.setenv(name, value)
    settle()


def test_variables_of_fsdp_that_were_left_in_the_shell_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    monkeypatch.setenv("FSDP_VERSION", "1")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT")
    settle()
    assert os.environ["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"


def test_weights_are_saved_whole_under_fsdp(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT")
    with caplog.at_level(logging.WARNING):
        settle()
    assert os.environ["FSDP_STATE_DICT_TYPE"] == "FULL_STATE_DICT"
    assert "SHARDED_STATE_DICT is taken as FULL_STATE_DICT" in caplog.text


def deepspeed(tmp_path: Path, stage: int = 3, **config: object) -> TrainingArguments:
    """A run of DeepSpeed with this configuration, four forwards a step and gradients clipped at 1."""
    training = TrainingArguments(str(tmp_path), use_cpu=True, gradient_accumulation_steps=4, max_grad_norm=1.0)
    zero = {"stage": stage, "stage3_gather_16bit_weights_on_model_save": False}
    training.deepspeed_plugin = DeepSpeedPlugin(hf_ds_config={"zero_optimization": zero, **config})
    return training


def test_weights_are_saved_whole_under_zero_3(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training = deepspeed(tmp_path)
    with caplog.at_level(logging.WARNING):
        settle_deepspeed(training)
    config = training.deepspeed_plugin.hf_ds_config.config
    assert config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is True
    assert "zero3_save_16bit_model: false is taken as true" in caplog.text


def test_accumulation_of_one_forward_is_that_of_the_training(tmp_path: Path) -> None:
    """`accelerate config` writes it, whatever the training has."""
    training = deepspeed(tmp_path, gradient_accumulation_steps=1, gradient_clipping="auto", train_batch_size="auto")
    settle_deepspeed(training)
    assert training.deepspeed_plugin.hf_ds_config.config["gradient_accumulation_steps"] == "auto"


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"gradient_clipping": 0.5}, "gradient_clipping=0.5, but the training max_grad_norm=1.0; write auto"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps=2, but .*=4"),
        ({"train_micro_batch_size_per_gpu": 1}, "train_micro_batch_size_per_gpu=1, but .*=8"),
    ],
)
def test_other_values_than_those_of_the_training_are_refused(
    config: dict[str, object], told: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=told):
        settle_deepspeed(deepspeed(tmp_path, **config))


def test_deepspeeds_own_optimizer_and_schedule_are_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.8, 0.9]}}
    training = deepspeed(tmp_path, optimizer=given, scheduler={"type": "WarmupLR", "params": {}})
    with caplog.at_level(logging.WARNING):
        settle_deepspeed(training)
    assert not {"optimizer", "scheduler"} & training.deepspeed_plugin.hf_ds_config.config.keys()
    assert "optimizer of DeepSpeed's file is not read" in caplog.text
    assert "scheduler of DeepSpeed's file is not read" in caplog.text


def test_loading_that_leaves_the_reference_without_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    with pytest.raises(UserError, match="reference model uninitialised; set it to false"):
        check_reference_loading(ModelConfig())
    check_reference_loading(ModelConfig(use_peft=True))


AROUND = """compute_environment: LOCAL_MACHINE
debug: false
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
num_machines: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
"""
"""What `accelerate config` writes into every file."""

TWO = "num_processes: 2\n"
ZERO = f"distributed_type: DEEPSPEED\n{TWO}deepspeed_config:\n  "


@pytest.mark.parametrize(
    "text",
    [
        f"distributed_type: MULTI_GPU\ngpu_ids: all\nmixed_precision: bf16\n{TWO}use_cpu: false\n",
        "distributed_type: 'NO'\nmixed_precision: 'no'\nnum_processes: 1\nuse_cpu: true\ndynamo_backend: 'NO'\n",
        f"{ZERO}zero_stage: 2\n  gradient_accumulation_steps: 1\n  offload_optimizer_device: cpu\n",
        f"{ZERO}zero_stage: 3\n  deepspeed_multinode_launcher: pdsh\n  deepspeed_hostfile: h\n  zero3_init_flag: 1\n",
        f"distributed_type: FSDP\n{TWO}fsdp_config:\n  fsdp_version: 2\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
        "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n",
    ],
    ids=["ddp", "one", "zero2", "zero3", "fsdp2"],
)
def test_files_as_accelerate_writes_them_pass(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "own.yaml").write_text(AROUND + text)
    check_file(tmp_path / "own.yaml")
    assert not caplog.messages


def test_our_profiles_pass(caplog: pytest.LogCaptureFixture) -> None:
    for file in PROFILES.glob("*.yaml"):
        check_file(file)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"distributed_type: MULTI_CPU\n{TWO}use_cpu: true\n",
            "MULTI_CPU .* to MPI; write MULTI_GPU with use_cpu: true",
        ),
        (f"distributed_type: MULTI_GPU\n{TWO}mpirun_config:\n  mpirun_hostfile: hosts\n", "leave mpirun_config out"),
        (f"distributed_type: XLA\n{TWO}tpu_name: t\n", "distributed_type: XLA cannot be trained with"),
        (
            f"distributed_type: MEGATRON_LM\n{TWO}megatron_lm_config:\n  megatron_lm_tp_degree: 2\n",
            "MEGATRON_LM cannot",
        ),
        (
            f"distributed_type: 'NO'\n{TWO}",
            "num_processes: 2, but distributed_type: NO starts only one; write MULTI_GPU",
        ),
        (f"distributed_type: FSDP\n{TWO}use_cpu: true\nfsdp_config:\n  fsdp_version: 2\n", "FSDP divides nothing"),
        (
            f"distributed_type: FSDP\n{TWO}fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n",
            "fsdp_version: 1 .* write 2",
        ),
        (
            f"distributed_type: MULTI_GPU\n{TWO}ipex_config:\n  ipex: false\n",
            "15: ipex_config: .* remove the line",
        ),
        (f"{ZERO}zero_stage: 3\n  offload_param_device: nvme\n  offload_param_nvme_path: /nvme\n", "nvme needs a path"),
        (
            f"{ZERO}deepspeed_config_file: ds.json\n  zero_stage: 3\n",
            "zero_stage: cannot be given with deepspeed_config_file",
        ),
        (f"{ZERO}deepspeed_config_file: ds.json\nmixed_precision: bf16\n", "mixed_precision: cannot be given with"),
        (f"{ZERO}deepspeed_config_file: nowhere.json\n", "nowhere.json: cannot be read as JSON"),
        ("compute_environment: AMAZON_SAGEMAKER\n", "AMAZON_SAGEMAKER is not this machine"),
    ],
)
def test_files_that_cannot_be_trained_with_are_refused_before_a_process_starts(
    text: str, told: str, tmp_path: Path
) -> None:
    around = "" if text.startswith("compute_environment") else AROUND
    (tmp_path / "own.yaml").write_text(around + text)
    with pytest.raises(UserError, match=rf"own.yaml:.*{told}"):
        launcher.launch(["--config_file", str(tmp_path / "own.yaml"), "script.py"])


def test_a_key_that_accelerate_does_not_know_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "own.yaml").write_text(f"{AROUND}{ZERO}zero_stage: 2\n  zero_stages: 3\n")
    with caplog.at_level(logging.WARNING):
        check_file(tmp_path / "own.yaml")
    assert [line.partition("own.yaml: ")[2] for line in caplog.messages] == [
        "deepspeed_config: zero_stages is no key of accelerate, and is not read"
    ]


def test_what_the_shell_says_of_sharing_the_work_does_not_reach_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file of plain copies does not unset what an earlier `export` turned on."""
    seen: dict[str, str] = {}
    monkeypatch.setattr(launcher.signal, "signal", lambda number, handler: None)
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "1")
    monkeypatch.setattr(launcher, "launch_command", lambda arguments: seen.update(os.environ))
    (tmp_path / "own.yaml").write_text(f"{AROUND}distributed_type: MULTI_GPU\n{TWO}")
    with caplog.at_level(logging.WARNING):
        assert launcher.launch(["--config_file", str(tmp_path / "own.yaml"), "script.py"]) == 0
    assert seen and not {"ACCELERATE_USE_FSDP", "FSDP_STATE_DICT_TYPE"} & seen.keys()
    assert "ACCELERATE_USE_FSDP=true in the environment is not read" in caplog.text


def test_clipping_that_deepspeeds_file_leaves_out_is_the_trainings(tmp_path: Path) -> None:
    training = deepspeed(tmp_path)
    settle_deepspeed(training)
    config = training.deepspeed_plugin.hf_ds_config.config
    assert config["gradient_clipping"] == config["train_micro_batch_size_per_gpu"] == "auto"


def test_the_page_has_a_row_for_each_key_that_is_refused() -> None:
    page = (ROOT / "docs/clusters.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    others = ["distributed_type", "offload_param_device", "deepspeed_config_file", "fsdp_cpu_ram_efficient_loading"]
    for key in (*(key for key, _ in REFUSED.values()), *others):
        assert any(f"`{key}`" in row and "efused" in row for row in rows), key
