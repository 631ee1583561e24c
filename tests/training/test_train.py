"""`notewriter train`: a profile by name, the processes of this machine, and a run from any folder."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from accelerate.commands import launch as accelerate_launch

from notewriter.ground.errors import UserError
from notewriter.training import train


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines that the launcher gets, which launches nothing."""
    commands: list[list[str]] = []
    monkeypatch.setattr(train, "launch", lambda argv: commands.append(argv) or 0)
    return commands


def test_a_profile_is_named_and_the_rest_is_trainings(launched: list[list[str]]) -> None:
    train.main(["dpo", "--accelerate", "zero3", "--num_processes", "4", "--learning_rate", "-1", "--mix", '{"a": 1}'])

    (command,) = launched
    assert command[:4] == ["--config_file", str(train.PROFILES / "zero3.yaml"), "--num_processes", "4"]
    assert command[4:] == ["--module", "notewriter.training.dpo", "--learning_rate", "-1", "--mix", '{"a": 1}']


@pytest.mark.parametrize(("gpus", "name", "processes"), [(0, "cpu", "1"), (1, "single", "1"), (4, "ddp", "4")])
def test_the_default_is_what_the_machine_is(
    launched: list[list[str]], monkeypatch: pytest.MonkeyPatch, gpus: int, name: str, processes: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: gpus > 0)

    train.main(["sft", "--config", "x.yaml"])

    assert launched[0][1:4] == [str(train.PROFILES / f"{name}.yaml"), "--num_processes", processes]


@pytest.mark.parametrize(
    ("profile", "installed", "own", "preloaded"),
    [
        pytest.param("cpu", "libtcmalloc_minimal.so.4", None, "libtcmalloc_minimal.so.4", id="on the CPU"),
        pytest.param("cpu", "libtcmalloc_minimal.so.4", "libmine.so", "libmine.so", id="not instead of another one"),
        pytest.param("cpu", None, None, None, id="not where it is missing"),
        pytest.param("single", "libtcmalloc_minimal.so.4", None, None, id="not on a GPU"),
    ],
)
def test_a_run_on_the_cpu_uses_tcmalloc_where_it_is_installed(
    launched: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    profile: str,
    installed: str | None,
    own: str | None,
    preloaded: str | None,
) -> None:
    monkeypatch.setattr(train, "find_library", {"tcmalloc_minimal": installed}.get)
    # Also undoes what the run sets.
    monkeypatch.setenv("LD_PRELOAD", own or "")
    if own is None:
        monkeypatch.delenv("LD_PRELOAD")

    train.main(["dpo", "--accelerate", profile])

    assert os.environ.get("LD_PRELOAD") == preloaded


@pytest.mark.parametrize(
    ("profile", "seen", "left"),
    [
        pytest.param("single", None, "0", id="one process gets the first of four"),
        pytest.param("single", "2,3", "2", id="or the first that it may see"),
        pytest.param("ddp", None, None, id="a process for each gets all"),
        pytest.param("cpu", None, None, id="the CPU gets none"),
    ],
)
def test_a_single_process_sees_a_single_gpu(
    launched: list[list[str]], monkeypatch: pytest.MonkeyPatch, profile: str, seen: str | None, left: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen or "")
    if seen is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")

    train.main(["dpo", "--accelerate", profile])

    assert os.environ.get("CUDA_VISIBLE_DEVICES") == left


@pytest.mark.parametrize(
    ("processes", "own", "threads"), [("1", "", "8"), ("3", "", "2"), ("9", "", "1"), ("1", "5", "5")]
)
def test_processes_on_the_cpu_share_its_cores_and_accelerate_has_nothing_to_say(
    launched: list[list[str]], monkeypatch: pytest.MonkeyPatch, processes: str, own: str, threads: str
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", own)

    train.main(["dpo", "--accelerate", "cpu", "--num_processes", processes])

    said: list[str] = []
    monkeypatch.setattr(accelerate_launch.logger, "warning", said.append)
    parsed = accelerate_launch.launch_command_parser().parse_args(launched[0])
    assert accelerate_launch._validate_launch_command(parsed)[0].num_cpu_threads_per_process == int(threads)
    assert not said


def test_several_machines_start_the_processes_of_all(
    launched: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)

    machines = ["--num_machines", "2", "--machine_rank", "1", "--main_process_ip", "node1"]
    train.main(["dpo", "--accelerate", "zero3", *machines])

    assert launched[0][2:-2] == ["--num_processes", "16", *machines]
    # By its path it is the same profile.
    train.main(["dpo", "--accelerate", os.path.relpath(train.PROFILES / "zero3.yaml"), *machines])
    assert launched[1][2:-2] == ["--num_processes", "16", *machines]


def test_a_file_of_ones_own_and_one_that_is_not_there(
    launched: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    own = ["--config_file", str(tmp_path / "own.yaml")]
    (tmp_path / "own.yaml").write_text("num_processes: 3\nuse_cpu: true\n")
    train.main(["dpo", "--accelerate", own[1]])
    assert launched[0] == [*own, "--module", "notewriter.training.dpo"]
    train.main(["dpo", "--accelerate", own[1], "--num_processes", "2"])
    assert launched[1][:4] == [*own, "--num_processes", "2"]

    with pytest.raises(UserError, match=r"zero9: .*choose one of: .*zero3"):
        train.main(["dpo", "--accelerate", "zero9"])
    with pytest.raises(UserError, match="num_machines: invalid int value: 'two'"):
        train.main(["dpo", "--num_machines", "two"])
    with pytest.raises(UserError, match=r"ppo.*choose one of: dpo, kto, sft"):
        train.main(["ppo"])


def test_help_has_the_options_of_the_launch_and_of_training(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        train.main(["dpo", "--help"])
    assert not end.value.code
    shown = capsys.readouterr().out
    ours, of_trl = shown.split("options of TRL and transformers:")
    assert all(f"  --{option} " in ours for option in ("accelerate NAME", "prefix_sharing", "learning_rate"))
    assert "  --adam_beta1 " in of_trl


def test_a_launch_that_fails_ends_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "launch", lambda argv: 75)
    with pytest.raises(SystemExit) as end:
        train.main(["dpo"])
    assert end.value.code == 75


@pytest.mark.integration
def test_two_steps_from_a_folder_that_has_a_training_of_its_own(
    four_steps: Callable[..., list[str]], tiny_pairs: Path, tmp_path: Path
) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training/__init__.py").write_text("raise AssertionError('not ours')")
    options = four_steps(pairs=tiny_pairs, max_steps=2, save_strategy="no", bf16=False)
    environment = os.environ | {"PYTHONPATH": str(Path(train.__file__).parents[2])}
    command = [sys.executable, "-m", "notewriter.cli", "train", "dpo"]

    done = subprocess.run(
        [*command, "--accelerate", "cpu", *options], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/training.json").is_file()
    refused = subprocess.run([*command, *options, "--min_margin", "x"], cwd=tmp_path, env=environment, text=True)
    assert refused.returncode == 2
