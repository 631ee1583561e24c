"""A fork stands for the process that was asked for: its output, exit code, signals and end."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm import warm

pytestmark = pytest.mark.integration

SCRIPT = """
import json, os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ["OWN"], "colorsys" in sys.modules]), flush=True)
time.sleep(float(sys.argv[1]))
sys.exit("it went wrong")
"""


@pytest.fixture(scope="module")
def program() -> Iterator[list[str]]:
    with warm("colorsys") as program:
        yield program


@pytest.fixture
def process(program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setenv("OWN", "mine")
    command = [*program, str(tmp_path / "script.py"), "30"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f'[["30"], "{tmp_path}", "mine", true]\n'
        yield running
        running.kill()


def test_a_fork_ends_as_a_script_does(program: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setenv("OWN", "mine")
    command = [*program, str(tmp_path / "script.py"), "0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr) == (1, "it went wrong\n")
    done = subprocess.run([*program, "notewriter", "no-such"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.startswith("error: unknown command 'no-such'")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 75), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_reaches_the_fork(process: subprocess.Popen[str], number: int, code: int) -> None:
    process.send_signal(number)
    assert process.wait(30) == code


def test_a_fork_dies_with_the_process_that_asked_for_it(process: subprocess.Popen[str]) -> None:
    process.kill()
    # Its end of the pipes is closed only when it has ended.
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGKILL


def test_a_variable_that_a_library_has_read_by_then_is_refused(program: list[str]) -> None:
    done = subprocess.run(["env", "HF_HOME=/elsewhere", *program, sys.argv[0]], capture_output=True, text=True)
    assert done.returncode == 1 and "{'HF_HOME'}" in done.stderr
