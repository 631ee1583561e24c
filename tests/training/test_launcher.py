"""The launcher of a cluster's nodes, with a script in place of the training."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.integration


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
    command = [sys.executable, "-m", "training.launcher", "--config_file", "configs/accelerate/cpu.yaml"]
    command += ["--log_dir", str(tmp_path / "logs"), str(script)]
    with subprocess.Popen(command, cwd=ROOT) as launcher:
        deadline = time.monotonic() + 60
        while not (tmp_path / "started").exists():
            assert launcher.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

        launcher.send_signal(number)

        assert launcher.wait(timeout=30) == 75
    assert (tmp_path / "logs/stopped").exists()
