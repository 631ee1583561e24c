"""Storage and path errors of any library become one line that names the place and the remedy."""

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from notewriter.ground import errors
from notewriter.ground.errors import UserError, storage_error, writing

FULL = "No space left on device"


def system(number: int, *names: str | None) -> OSError:
    """An error of the operating system about one or two files."""
    first, second = (*names, None, None)[:2]
    return OSError(number, os.strerror(number), first, None, second)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            system(errno.ENOSPC),
            "a.jsonl: cannot be written (No space left on device: 7 bytes are free",
        ),
        (
            system(errno.EDQUOT),
            "a.jsonl: cannot be written (Disk quota exceeded: 7 bytes are free",
        ),
        (system(errno.EFBIG), "a.jsonl: cannot be written (File too large); raise the limit on file sizes (ulimit -f)"),
        (system(errno.EROFS), "a.jsonl: cannot be written (Read-only file system); choose a writable location"),
        (system(errno.EACCES), "a.jsonl: cannot be written (Permission denied); change its permissions or choose"),
        (system(errno.ENAMETOOLONG), "a.jsonl: cannot be written (File name too long); choose a shorter path"),
        # Users do not know the name of the partial file.
        (
            system(errno.EISDIR, "a.jsonl.partial", "a.jsonl"),
            "a.jsonl: cannot be written (Is a directory); it is a folder",
        ),
        (system(errno.EROFS, "a.jsonl.partial"), "a.jsonl: cannot be written (Read-only file system)"),
        # Another file than the one being written: its folder or an input.
        (
            system(errno.EEXIST, "runs"),
            "runs: cannot be created as a folder (File exists); part of the path is a file, not a folder",
        ),
        (system(errno.ENOENT, "/other"), "/other: cannot be written (No such file or directory); check the path"),
        (sqlite3.OperationalError("database or disk is full"), "a.jsonl: cannot be written (No space left on device: "),
        (sqlite3.OperationalError("disk I/O error"), "a.jsonl: cannot be written (No space left on device: "),
        (
            sqlite3.OperationalError("attempt to write a readonly database"),
            "a.jsonl: cannot be written (Read-only file",
        ),
        (
            ValueError("An IO error occurred: 'No space left on device (os error 28)'"),
            "a.jsonl: cannot be written (No sp",
        ),
        (ValueError("A worker thread encountered an error (io::Error most likely) or panicked."), "a.jsonl: cannot be"),
        (RuntimeError("basic_ios::clear: iostream error"), "a.jsonl: cannot be written (No space left on device: "),
        (OSError("Not enough disk space. Needed: 3 GB"), "a.jsonl: cannot be written (No space left on device: "),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, Exception) else "",
)
def test_what_a_disk_or_a_path_refuses_is_one_line(error, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(errors, "free", lambda path: 7)
    with pytest.raises(UserError) as caught, writing("a.jsonl"):
        raise error
    assert str(caught.value).startswith(told)
    assert "\n" not in str(caught.value)


def test_an_error_that_led_to_another_counts_where_it_is_a_disks(tmp_path):
    with pytest.raises(UserError, match="No space left on device"), writing(tmp_path / "a"):
        try:
            raise system(errno.ENOSPC)
        except OSError as error:
            raise RuntimeError("An error occurred while generating the dataset") from error
    with pytest.raises(KeyError), writing(tmp_path / "a"):
        try:
            raise system(errno.ENOENT, "optional.json")
        except OSError:
            raise KeyError("a mistake of ours") from None


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(errno.ECONNREFUSED, "refused"), ValueError("two columns"), TimeoutError()],
    ids=repr,
)
def test_other_errors_pass(error, tmp_path):
    assert storage_error(error, tmp_path) is None
    with pytest.raises(type(error)), writing(tmp_path):
        raise error


def test_without_any_path_only_a_disks_fault_is_one_of_standard_output():
    assert str(storage_error(system(errno.ENOSPC))).startswith("standard output: cannot be used (No space left")
    assert storage_error(system(errno.EACCES)) is None


def test_an_input_output_error_where_there_is_room_is_no_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "free", lambda path: 1 << 30)
    told = str(storage_error(sqlite3.OperationalError("disk I/O error"), tmp_path / "a"))
    assert told == (
        f"{tmp_path}/a: cannot be written (Input/output error); free some space or check the disk, and run the same "
        "command again"
    )


def test_a_command_that_meets_such_an_error_anywhere_ends_with_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        errors.run(Path("/absent/file").mkdir)
    told = "error: /absent/file: cannot be used (No such file or directory); check the path\n"
    assert capsys.readouterr().err == told


def test_a_line_of_the_hubs_library_is_printed_once():
    script = """
from notewriter.ground.errors import run

def main():
    from huggingface_hub.utils import logging

    logging.get_logger("huggingface_hub.utils._http").warning("Retrying in 1s")

run(main)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stderr == "Retrying in 1s\n"


def test_an_extra_is_installed_from_the_clone_or_by_its_packages_where_a_wheel_was_installed(monkeypatch, tmp_path):
    assert errors.install("dense") == "run pip install -e '.[dense]' in the project's folder (docs/install.md)"
    monkeypatch.setattr(errors, "CLONE", tmp_path)
    monkeypatch.setattr("importlib.metadata.requires", lambda name: REQUIRED if name == "notewriter" else [])
    assert errors.install("serve") == "run pip install 'starlette<2,>=1.10' 'uvloop<0.24,>=0.23' (docs/install.md)"
    assert errors.install("dense") == "run pip install 'faiss-cpu<2,>=1.15' (docs/install.md)"


REQUIRED = [
    "torch<2.14,>=2.11",
    'starlette<2,>=1.10; extra == "serve"',
    'uvloop<0.24,>=0.23; sys_platform != "win32" and extra == "serve"',
    'faiss-cpu<2,>=1.15; extra == "dense"',
]
