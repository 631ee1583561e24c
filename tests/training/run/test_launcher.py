"""The launcher of a cluster's nodes, with a script in place of the training."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from notewriter.training.run import launcher

ROOT = Path(__file__).parents[3]


def test_of_nodes_that_share_their_logs_each_shows_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 3 of 0 to 7 and rank 11 of 8 to 15 are both the third of their nodes."""
    for node, said, age in (("a", "connection closed by peer", 0), ("b", "CUDA out of memory", 5)):
        log = tmp_path / node / "none_x/attempt_0/3/stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(said + "\n")
        moment = time.time() - age
        os.utime(log, (moment, moment))
    monkeypatch.setenv("SLURMD_NODENAME", "b")
    failure = ProcessFailure(local_rank=3, pid=1, exitcode=1, error_file="")

    assert launcher.show_first_failure({11: failure}, tmp_path) == 1

    told = capsys.readouterr().err
    assert "rank 11 on b failed first" in told and "CUDA out of memory" in told
    (file,) = tmp_path.glob("failed-*-b-rank11.txt")
    assert "CUDA out of memory" in file.read_text()


def test_the_first_error_counts_and_not_the_log_that_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 1 writes on after its error, and meanwhile rank 0 notices that it has gone."""
    for rank, said, noted, ended in ((0, "connection closed by peer", 2, 3), (1, "shard 7 is broken", 1, 4)):
        folder = tmp_path / f"a/none_x/attempt_0/{rank}"
        folder.mkdir(parents=True)
        for name, moment in (("error.json", noted), ("stderr.log", ended)):
            (folder / name).write_text(said + "\n")
            os.utime(folder / name, (moment, moment))
    monkeypatch.setenv("SLURMD_NODENAME", "a")
    failures = {rank: ProcessFailure(local_rank=rank, pid=1, exitcode=1, error_file="") for rank in (0, 1)}

    assert launcher.show_first_failure(failures, tmp_path) == 1
    assert "rank 1 on a failed first" in capsys.readouterr().err


@pytest.mark.parametrize("noticed", [True, False])
def test_a_rank_that_torchrun_ended_did_not_fail_first(
    noticed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both end within a second, and the time of a failure that torchrun notes is in whole ones."""
    second = int(time.time())
    for rank, moment in ((0, second + 0.9), (1, second + 0.5)):
        folder = tmp_path / f"a/none_x/attempt_0/{rank}"
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("")
        if rank or noticed:
            (folder / "error.json").touch()
            os.utime(folder / "error.json", (moment, moment))
    monkeypatch.setenv("SLURMD_NODENAME", "a")
    codes = {0: -signal.SIGTERM, 1: 1}
    failures = {
        rank: ProcessFailure(local_rank=rank, pid=1, exitcode=code, error_file="") for rank, code in codes.items()
    }
    for failure in failures.values():
        failure.timestamp = second

    assert launcher.show_first_failure(failures, tmp_path) == 1
    assert "rank 1 on a failed first" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_single_process_gets_the_signal_and_its_exit_code_is_the_launchers(
    number: signal.Signals, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(75))\n"
        f"pathlib.Path({str(tmp_path / 'started')!r}).touch()\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-m", "notewriter.training.run.launcher", "--config_file", "configs/accelerate/cpu.yaml"]
    command += ["--log_dir", str(tmp_path / "logs"), str(script)]
    with subprocess.Popen(command, cwd=ROOT) as launched:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert launched.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

        launched.send_signal(number)

        assert launched.wait(timeout=30) == 75
    assert (tmp_path / "logs/stopped").exists()
