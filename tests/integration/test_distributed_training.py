"""DPO as `accelerate launch` runs it, under each configuration, on two processes of the CPU.

The measure is what one process arrives at: sharded or not, stopped or not, the weights are the same.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from safetensors.torch import load_file

from notewriter.ground.errors import UserError
from notewriter.training import dpo as train_dpo
from notewriter.training.run.signals import STOPPED

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration

Launch = Callable[..., Path]
AS_CONFIGURED = {
    "fsdp2": ["--fsdp_state_dict_type", "SHARDED_STATE_DICT"],
    "zero2": ["--gradient_accumulation_steps", "1", "--gradient_clipping", "1.0"],
    "zero3": ["--zero3_save_16bit_model", "false", "--gradient_accumulation_steps", "1", "--gradient_clipping", "1.0"],
}
"""What `accelerate config` writes by default, and our profiles do not."""

ADAM = {"optim": "adamw_torch", "adam_epsilon": 0.1, "learning_rate": 0.1}
"""Adam whose large epsilon keeps gradients near zero small.

It has a state, without which torch 2.13 cannot resume under FSDP2, as with plain gradient descent.
"""


@pytest.fixture(scope="module")
def options(tiny_model: Path, tiny_pairs: Path) -> Callable[..., list[str]]:
    """The options of a run of two steps into a folder, with changes by name."""

    def line(output: Path, changes: dict[str, object]) -> list[str]:
        values = {
            "model_name_or_path": tiny_model,
            "pairs": tiny_pairs,
            "output_dir": output,
            "max_length": 64,
            "max_steps": 2,
            "total_batch_size": 4,
            "per_device_train_batch_size": 2,
            # Plain gradient descent: Adam would blow up the last digits of gradients near zero.
            "optim": "sgd",
            "learning_rate": 0.5,
            "bf16": False,
            "save_strategy": "no",
            "disable_tqdm": True,
            "reference_cache": output.parent / "reference",
        } | changes
        lists = {key: value if isinstance(value, list) else [value] for key, value in values.items()}
        return [part for key, value in lists.items() for part in (f"--{key}", *map(str, value))]

    return line


@pytest.fixture(scope="module")
def alone(options: Callable[..., list[str]]) -> Launch:
    """Train in this process, with changed options by name; returns the output folder."""

    def run(output: Path, **changes: object) -> Path:
        train_dpo.main(options(output, changes))
        return output

    return run


@pytest.fixture(scope="module")
def launch(
    options: Callable[..., list[str]],
    training_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Launch:
    """Train from a folder that is not the project's root, with changed options by name; returns the output folder.

    What `disturb` describes (`signalled.py`) happens in the first step, under our own launcher. `flags` are further
    options of `accelerate launch`.
    """
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def run(
        accelerate: str, output: Path, disturb: str = "", code: int = 0, flags: Sequence[str] = (), **changes: object
    ) -> Path:
        command = [sys.executable, "-m", "accelerate.commands.launch"]
        if disturb:
            command = [
                sys.executable,
                str(ROOT / "notewriter/training/run/launcher.py"),
                "--log_dir",
                str(output.parent / "logs"),
            ]
        scripts = [str(Path(__file__).with_name("signalled.py"))] if disturb else []
        # What is for eight GPUs, on two processes of the CPU.
        command += ["--main_process_port", "0", "--num_processes", "2"]
        command += [*arguments(accelerate, flags, scripts), *options(output, changes)]
        # TRL keeps the reference's log-probs there, and what one launch has computed no other checks.
        environment = training_environment | {"HF_DATASETS_CACHE": str(output.parent / "cache"), "DISTURB": disturb}
        done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == code, done.stderr[-6000:]
        log_of(output).write_text(done.stderr)
        return output

    return run


def arguments(accelerate: str, flags: Sequence[str], scripts: Sequence[str] = ()) -> list[str]:
    """What follows `accelerate launch`, to the training's script; `scripts` run it."""
    line = ["--config_file", str(ROOT / f"configs/accelerate/{accelerate}.yaml"), "--mixed_precision", "no", *flags]
    line += [str(Path(__file__).with_name("fsdp_on_cpu.py"))] if accelerate == "fsdp2" else []
    return [*line, *scripts, str(ROOT / "training/train_dpo.py")]


@pytest.fixture(scope="module")
def fork(options: Callable[..., list[str]], training_environment: dict[str, str], imported: list[str]) -> Launch:
    """As `launch`, with ranks that have not to import the libraries (`ranks.py`), so without torchrun."""

    def run(
        accelerate: str,
        output: Path,
        code: int = 0,
        processes: int = 2,
        flags: Sequence[str] = (),
        **changes: object,
    ) -> Path:
        environment = training_environment | {"HF_DATASETS_CACHE": str(output.parent / "cache")}
        line = [*arguments(accelerate, flags), *options(output, changes)]
        codes = ranks.train(imported, line, environment, log_of(output), processes)
        assert codes == [code] * processes, log_of(output).read_text()[-6000:]
        return output

    return run


def log_of(folder: Path) -> Path:
    return folder.with_suffix(".log")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()


def assert_same(folder: Path, expected: dict[str, torch.Tensor]) -> None:
    found = weights(folder)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], atol=1e-5, rtol=0, msg=lambda text, n=name: f"{n} {text}"
        )


@pytest.fixture(scope="module")
def expected(alone: Launch, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """The weights that one process arrives at, which are not those it started from."""
    return trained(alone(tmp_path_factory.mktemp("alone") / "run"), tiny_model)


@pytest.fixture(scope="module")
def expected_of_adam(
    alone: Launch, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, torch.Tensor]:
    """The same of Adam, whose state is saved and loaded too."""
    return trained(alone(tmp_path_factory.mktemp("alone") / "run", **ADAM), tiny_model)


def trained(folder: Path, base: Path) -> dict[str, torch.Tensor]:
    found, before = weights(folder), weights(base)
    assert max((found[name] - before[name]).abs().max() for name in before) > 1e-3
    return found


@pytest.mark.parametrize(
    ("accelerate", "precomputed"), [("ddp", False), ("fsdp2", True), ("zero2", True), ("zero3", True)]
)
def test_two_processes_that_share_prompts_arrive_where_one_does_that_does_not(
    accelerate: str,
    precomputed: bool,
    launch: Launch,
    expected: dict[str, torch.Tensor],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    folder = launch(accelerate, tmp_path / "run", prefix_sharing=True, precompute_ref_log_probs=precomputed)

    assert_same(folder, expected)
    # Reference and policy, each with eight pairs of five trained tokens on each of two processes.
    checked = re.findall(r"shared prompts score as stacked ones: .* over (\d+) tokens", log_of(folder).read_text())
    assert checked == ["80", "80"]
    assert (folder / "chat_template.jinja").read_text() == (tiny_model / "chat_template.jinja").read_text()
    hyperparameters = json.loads((folder / "training.json").read_text())["hyperparameters"]
    assert (hyperparameters["processes"], hyperparameters["batch_size"]) == (2, 4)


@pytest.mark.parametrize("accelerate", ["fsdp2", "zero2", "zero3"])
def test_a_likelihood_of_tokens_is_a_mean_over_the_whole_step(
    accelerate: str,
    alone: Launch,
    fork: Launch,
    make_pair: Callable[[int], dict[str, Any]],
    write_pairs: Callable[..., Path],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    pairs = [make_pair(number) for number in range(16)]
    for number, pair in enumerate(pairs):
        pair["chosen"][0]["content"] += " river crosses" * (number % 4)
    changes = {"pairs": write_pairs(pairs), "loss_type": ["sigmoid", "sft"], "loss_weights": [1, 1]}
    changes |= {"total_batch_size": 8, "train_sampling_strategy": "sequential"}

    whole = trained(alone(tmp_path / "alone", **changes, per_device_train_batch_size=8), tiny_model)
    changes |= {"flags": AS_CONFIGURED[accelerate]}
    assert_same(fork(accelerate, tmp_path / "run", **changes, per_device_train_batch_size=1), whole)


def test_processes_refuse_a_base_that_has_changed_together(
    alone: Launch, fork: Launch, tiny_model: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    folder = alone(tmp_path / "run", model_name_or_path=base)
    (folder / "training.json").unlink()
    settings = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(settings | {"rms_norm_eps": 0.1}))

    # Both, and well before their time limit: no process waits for one that has given up.
    fork("ddp", folder, code=2, model_name_or_path=base)
    assert "run: contains a run with other contents of model_name_or_path" in log_of(folder).read_text()


def test_offloaded_parameters_and_optimizer_state_change_nothing(
    launch: Launch, expected_of_adam: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    # Offloaded, every optimizer is DeepSpeed's Adam.
    assert_same(launch("zero3_offload", tmp_path / "run", **ADAM), expected_of_adam)


@pytest.mark.parametrize(
    ("accelerate", "disturb"),
    [("ddp", "launcher SIGUSR1"), ("fsdp2", "rank SIGTERM"), ("zero3", "launcher SIGTERM")],
)
def test_a_signal_in_the_middle_of_a_step_loses_nothing(
    accelerate: str,
    disturb: str,
    alone: Launch,
    launch: Launch,
    fork: Launch,
    expected_of_adam: dict[str, torch.Tensor],
    tmp_path: Path,
) -> None:
    folder = launch(accelerate, tmp_path / "run", disturb, STOPPED, **ADAM)

    # `save_strategy: no`: only the signal saves a checkpoint.
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-1"]
    assert log_of(folder).read_text().count("stopped by a signal, with a checkpoint after step 1") == 1
    assert not (folder / "training.json").exists()
    if accelerate == "fsdp2":
        # Without the state of the optimizer and of the schedule, which only its like can read.
        with pytest.raises(UserError, match=r"checkpoint-1: was saved under .* cannot be read under whole copies"):
            alone(folder, **ADAM)
    if accelerate == "zero3":
        fork(accelerate, folder, code=2, processes=1, **ADAM)
        told = "checkpoint-1: was saved by 2 processes, and ZeRO resumes only with as many, not with 1; start 2"
        assert told in log_of(folder).read_text() and "Traceback" not in log_of(folder).read_text().split(told)[0]
    fork(accelerate, folder, **ADAM)
    assert "checkpoint-1: resuming" in log_of(folder).read_text()
    assert_same(folder, expected_of_adam)


def test_the_rank_that_failed_first_is_shown_last(launch: Launch, tmp_path: Path) -> None:
    folder = launch("ddp", tmp_path / "run", "error shard 7 is broken", 1)

    *_, end = re.split("^rank ", log_of(folder).read_text(), flags=re.MULTILINE)
    assert re.match(r"1 on \S+ failed first, with exit code 1; the end of its log:\n", end)
    assert "RuntimeError: shard 7 is broken" in end
    assert len(end.splitlines()) <= 42
    (failure,) = (tmp_path / "logs").glob("failed-*-rank1.txt")
    assert failure.read_text() in "rank " + end


LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": "all-linear"}


@pytest.fixture(scope="module")
def first(alone: Launch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter for the tiny model."""
    return alone(tmp_path_factory.mktemp("first round") / "run", **LORA)


def test_sharded_round_starts_from_an_adapter(alone: Launch, fork: Launch, first: Path, tmp_path: Path) -> None:
    again = {"model_name_or_path": first, "precompute_ref_log_probs": True} | LORA
    sharded, single = fork("zero3", tmp_path / "sharded", **again), alone(tmp_path / "single", **again)

    found, expected = (load_file(folder / "adapter_model.safetensors") for folder in (sharded, single))
    before = load_file(first / "adapter_model.safetensors")
    assert found.keys() == expected.keys() == before.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=0)
    assert any(not torch.equal(found[name], before[name]) for name in before)
    assert_same(sharded / "base", weights(single / "base"))


@pytest.mark.parametrize("accelerate", ["fsdp2", "zero3"])
def test_adapter_is_saved_whole_and_changes_what_the_model_says(
    accelerate: str, fork: Launch, tiny_model: Path, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = fork(accelerate, tmp_path / "run", flags=AS_CONFIGURED[accelerate], prefix_sharing=True, **LORA)

    adapter = load_file(folder / "adapter_model.safetensors")
    # Seven linear layers in each of two blocks, an A and a B for each; B starts at zero.
    assert len(adapter) == 7 * 2 * 2
    assert all(tensor.numel() > 0 for tensor in adapter.values())
    assert all(torch.any(tensor != 0) for name, tensor in adapter.items() if "lora_B" in name)

    with_adapter = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model), folder)
    ids = torch.tensor([[6, 7, 8, 9]])
    with torch.no_grad():
        changed = with_adapter(ids).logits
        with with_adapter.disable_adapter():
            unchanged = with_adapter(ids).logits
    assert (changed - unchanged).abs().max() > 1e-3
