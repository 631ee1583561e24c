"""Probes: what they find here, and what becomes of one that fails, crashes or hangs."""

import contextlib
import os

import psutil
import pytest

from notewriter.doctor.probes import probe


@pytest.fixture
def vllm(tmp_path, monkeypatch):
    """Install a package of that name with this text in front of the real one."""

    def make(text):
        (tmp_path / "vllm.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return make


def test_a_package_that_cannot_be_imported_is_named_by_its_error(vllm):
    vllm("raise ImportError('libcudart.so.13: cannot open shared object file')")
    assert probe("vllm", 60) == {"error": "ImportError: libcudart.so.13: cannot open shared object file"}


def test_one_that_crashes_or_hangs_ends_within_its_time(vllm):
    vllm("import os; os.abort()")
    assert probe("vllm", 60) == {"error": "crashed (signal 6)"}
    vllm("import time; time.sleep(60)")
    assert probe("vllm", 1.0) == {"error": "no answer within 1 s"}


def test_what_one_that_hangs_has_started_has_ended_by_then(vllm, tmp_path):
    """Its memory is large enough that it ends some time after it was killed."""
    child = tmp_path / "child.py"
    child.write_text(
        f"import os, pathlib, time; pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid())); "
        "held = b'x' * 2**29; time.sleep(60)"
    )
    vllm(f"import subprocess, sys, time; subprocess.Popen([sys.executable, {str(child)!r}]); time.sleep(60)")
    assert probe("vllm", 5.0) == {"error": "no answer within 5 s"}
    # The machine's first process may not have collected it yet.
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int((tmp_path / "pid").read_text())).memory_info().rss == 0


def test_what_a_library_prints_is_not_taken_for_the_answer(vllm, tmp_path):
    vllm("print('welcome'); __path__ = []; __version__ = '0.32.0'")
    (tmp_path / "vllm.py").unlink()
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("print('welcome'); __version__ = '0.32.0'")
    (tmp_path / "vllm/platforms.py").write_text("class current_platform: device_type = 'cuda'")
    assert probe("vllm", 60) == {"version": "0.32.0", "device": "cuda"}


def test_a_disk_has_a_kind_room_and_a_speed_and_keeps_nothing(tmp_path):
    found = probe("disk", 60, str(tmp_path / "runs" / "new"))
    assert found.keys() == {"kind", "shared", "free", "bytes_per_second"}
    assert found["free"] > 0 and found["bytes_per_second"] > 0
    assert os.listdir(tmp_path) == []


@pytest.mark.integration
def test_a_forward_pass_is_right_here():
    found = probe("torch", 300)
    assert found["relative_error"] < 0.02 and found["version"]
