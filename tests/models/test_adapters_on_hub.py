"""A LoRA adapter by its name on the hub is one wherever a model is named: served, trained from, merged."""

import json
import threading

import pytest
from fake_hub import Hub
from huggingface_hub import constants

from notewriter.ground.errors import UserError
from notewriter.models import checkpoint
from notewriter.models.adapters import groups
from notewriter.models.checkpoint import Checkpoint
from notewriter.training import merge

ADAPTER, MODEL = "someone/notes-lora", "someone/whole-model"


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def hub(base, tmp_path, monkeypatch):
    """A hub with an adapter and a whole model; what was asked of it before is forgotten."""
    with Hub() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        settings = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 16}
        server.repository("model", ADAPTER).branches["main"] = {
            "adapter_config.json": json.dumps(settings).encode(),
            "adapter_model.safetensors": b"adapter",
            "optimizer.pt": b"of no use",
        }
        server.repository("model", MODEL).branches["main"] = {"config.json": b"{}", "model.safetensors": b"weights"}
        checkpoint._adapter_on_hub.cache_clear()
        yield server
        server.shutdown()
    checkpoint._adapter_on_hub.cache_clear()


def test_an_adapter_is_known_by_its_files_and_a_whole_model_is_left_to_those_who_load_it(hub, base):
    adapter, model = Checkpoint(ADAPTER), Checkpoint(MODEL)
    assert (adapter.is_adapter, model.is_adapter) == (True, False)
    assert adapter.base.path == adapter.tokenizer == str(base)
    assert {path.name for path in adapter.folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert model.base is model and model.check() == MODEL and not model.folder.exists()
    with pytest.raises(UserError, match=f"{ADAPTER}: is a LoRA adapter, not a full model; merge it"):
        adapter.check()


def test_a_server_holds_it_beside_its_base_under_its_name(hub, base):
    (group,) = groups([ADAPTER, str(base)])
    assert (group.model, group.names) == (str(base), {ADAPTER: "notes-lora", str(base): "base"})
    assert group.options["lora_modules"] == [f"notes-lora={Checkpoint(ADAPTER).folder}"]


def test_its_identity_is_that_of_its_files_wherever_they_are(hub, base, tmp_path):
    first = Checkpoint(ADAPTER).fingerprint()
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in Checkpoint(ADAPTER).folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert Checkpoint(copy).fingerprint() == first
    (base / "model.safetensors").write_bytes(b"other")
    assert Checkpoint(ADAPTER).fingerprint() != first


def test_once_downloaded_it_is_known_without_the_hub(hub, monkeypatch):
    folder = Checkpoint(ADAPTER).folder
    checkpoint._adapter_on_hub.cache_clear()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert Checkpoint(ADAPTER).folder == folder
    assert not Checkpoint("someone/other").is_adapter


def test_it_is_asked_for_once(hub):
    assert Checkpoint(ADAPTER).is_adapter
    asked = len(hub.requests)
    assert Checkpoint(ADAPTER).is_adapter and Checkpoint(ADAPTER).base
    assert len(hub.requests) == asked


def test_merging_takes_its_name(hub, tmp_path, monkeypatch):
    merged = []
    monkeypatch.setattr(merge, "merge", lambda adapter, output: merged.append(adapter))
    merge.main(["--checkpoint", ADAPTER, "--output_dir", str(tmp_path / "merged")])
    assert merged == [Checkpoint(ADAPTER).folder]
