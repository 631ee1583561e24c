"""The response cache on disk: what it refuses, how it is shared, and on which file systems."""

import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion
from notewriter.models import cache
from notewriter.models.cache import ResponseCache, file_system_of, is_shared

REPLY = Completion("in Paris", "stop", 3, 2, 0, 0.5, [("in", -0.1), (" Paris", -0.2)])


def journal_mode(path: Path) -> str:
    with sqlite3.connect(path) as database:
        (mode,) = database.execute("PRAGMA journal_mode").fetchone()
    database.close()
    return mode


def test_a_file_that_is_no_cache_is_named(tmp_path: Path):
    path = tmp_path / "cache.sqlite"
    path.write_text("This is a letter, and it is long enough to be taken for a database's first page. " * 20)
    with pytest.raises(UserError, match=r"cache\.sqlite: is not a response cache"):
        ResponseCache(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/me/runs/cache.sqlite", "ext4"),
        ("/scratch/me/cache.sqlite", "lustre"),
        ("/scratchy/cache.sqlite", "ext4"),
        ("/mnt/my disk/cache.sqlite", "fuse.sshfs"),
        ("/data/cache.sqlite", "nfs4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_innermost_mount(monkeypatch, path: str, expected: str):
    mounts = [
        ("/", "ext4"),
        ("/scratch", "lustre"),
        ("/mnt/my disk", "fuse.sshfs"),
        ("/data", "xfs"),
        ("/data", "nfs4"),
    ]
    partitions = [SimpleNamespace(mountpoint=place, fstype=kind) for place, kind in mounts]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: partitions)
    assert file_system_of(Path(path)) == expected


def test_where_mounts_are_not_listed_the_file_system_is_unknown_and_taken_for_local(monkeypatch, tmp_path: Path):
    monkeypatch.setattr("psutil.disk_partitions", lambda all: [])
    assert file_system_of(tmp_path) == ""
    assert not is_shared("")


@pytest.mark.parametrize("file_system", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "fuse", "fuse.sshfs"])
def test_network_file_systems_are_known(file_system: str):
    assert is_shared(file_system)


@pytest.mark.parametrize("file_system", ["ext4", "xfs", "tmpfs", "overlay", "zfs", "btrfs", "fuseblk"])
def test_local_file_systems_are_known(file_system: str):
    assert not is_shared(file_system)


@pytest.mark.parametrize(("file_system", "mode"), [("ext4", "wal"), ("nfs4", "delete"), ("fuse.beegfs", "delete")])
def test_the_journal_follows_from_the_file_system(tmp_path: Path, monkeypatch, caplog, file_system: str, mode: str):
    monkeypatch.setattr(cache, "file_system_of", lambda path: file_system)
    path = tmp_path / "cache.sqlite"
    with caplog.at_level("INFO"):
        responses = ResponseCache(path)
    responses.put("key", REPLY)
    assert responses.get("key") == REPLY
    assert journal_mode(path) == mode
    assert (f"on a network file system ({file_system}); using a rollback journal" in caplog.text) == (mode == "delete")
    responses.close()


def test_a_cache_that_was_moved_to_a_network_file_system_keeps_its_replies(tmp_path: Path, monkeypatch):
    path = tmp_path / "cache.sqlite"
    responses = ResponseCache(path)
    responses.put("key", REPLY)
    responses.close()
    monkeypatch.setattr(cache, "file_system_of", lambda path: "nfs")
    moved = ResponseCache(path)
    assert journal_mode(path) == "delete"
    assert moved.get("key") == REPLY
    moved.close()


@pytest.mark.parametrize("file_system", ["ext4", "nfs"])
def test_a_cache_that_another_process_keeps_locked_is_named(tmp_path: Path, monkeypatch, file_system: str):
    monkeypatch.setattr(cache, "file_system_of", lambda path: file_system)
    monkeypatch.setattr(cache, "LOCK_TIMEOUT", 0.1)
    path = tmp_path / "cache.sqlite"
    responses = ResponseCache(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(UserError, match=r"cache\.sqlite: another process has locked the response cache for 0 s; wait"):
        responses.put("key", REPLY)
    other.execute("COMMIT")
    responses.put("key", REPLY)
    other.execute("BEGIN EXCLUSIVE")
    if file_system == "nfs":
        with pytest.raises(UserError, match="another process has locked"):
            ResponseCache(path)
    other.execute("COMMIT")
    other.close()
    responses.close()


def test_a_cache_waits_for_another_process_that_opens_the_same_new_file(tmp_path: Path):
    path = tmp_path / "cache.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    committing = threading.Timer(0.3, other.execute, ["COMMIT"])
    committing.start()
    responses = ResponseCache(path)
    committing.join()
    responses.put("key", REPLY)
    assert responses.get("key") == REPLY
    assert journal_mode(path) == "wal"
    responses.close()
    other.close()
