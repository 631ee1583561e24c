"""Model folders: completeness, and what changes a fingerprint."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from notewriter.ground.errors import UserError
from notewriter.models import checkpoint
from notewriter.models.checkpoint import Checkpoint

REMOTE_CODE = "trust_remote_code"
"""The option that transformers asks for, which no message of ours repeats."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A complete model folder, judging by its files."""
    path = tmp_path / "model"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"weights")
    return path


def test_a_whole_folder_is_accepted(folder: Path) -> None:
    assert Checkpoint(folder).check() == str(folder)


@pytest.mark.parametrize(
    ("missing", "named"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights"), ("tokenizer.json", "no tokenizer")],
)
def test_what_is_missing_is_named(folder: Path, missing: str, named: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(UserError, match=named) as caught:
        Checkpoint(folder).check()
    assert str(folder) in str(caught.value)


def test_a_missing_shard_is_named(folder: Path) -> None:
    weight_map = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"first")
    with pytest.raises(UserError, match=r"model-00002-of-00002\.safetensors"):
        Checkpoint(folder).check()
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"second")
    assert Checkpoint(folder).check() == str(folder)


@pytest.mark.parametrize("text", ['{"weight_map": {"a": "model-0', "[]", "\udcff"])
def test_an_index_of_weights_that_was_cut_is_named(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text, errors="surrogateescape")
    with pytest.raises(UserError, match=r"has no readable model\.safetensors\.index\.json; copy or save"):
        Checkpoint(folder).check()


def test_weights_beside_the_index_of_others_are_refused(folder: Path) -> None:
    """transformers reads model.safetensors, and vLLM the files of the index."""
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-00001-of-00001.safetensors").write_bytes(b"first")
    with pytest.raises(UserError, match=r"has model\.safetensors beside model\.safetensors\.index\.json, which names"):
        Checkpoint(folder).check()
    index["weight_map"]["a"] = "model.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert Checkpoint(folder).check() == str(folder)


@pytest.mark.parametrize(
    ("tied", "head", "is_whole"),
    [(True, 2.0, False), (False, 2.0, True), (True, 1.0, True), (True, None, True), (None, 2.0, True)],
)
def test_a_head_of_its_own_beside_tied_embeddings_is_refused(
    folder: Path, tied: bool | None, head: float | None, is_whole: bool
) -> None:
    weights = {"model.embed_tokens.weight": torch.ones(4, 2, dtype=torch.bfloat16)}
    # Some store it in more bytes; its values count.
    weights |= {"lm_head.weight": torch.full((4, 2), head)} if head else {}
    save_file(weights, folder / "model.safetensors")
    settings = {"model_type": "llama"} | ({} if tied is None else {"tie_word_embeddings": tied})
    (folder / "config.json").write_text(json.dumps(settings))
    if is_whole:
        assert Checkpoint(folder).check() == str(folder)
    else:
        with pytest.raises(UserError, match=r"tie_word_embeddings true, and the weights have an lm_head other than"):
            Checkpoint(folder).check()


def test_the_folder_above_a_model_points_to_it(folder: Path) -> None:
    with pytest.raises(UserError, match=f"did you mean {folder}"):
        Checkpoint(folder.parent).check()


def test_an_adapter_is_told_from_a_model(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")
    with pytest.raises(UserError, match="LoRA adapter"):
        Checkpoint(folder).check()


def test_an_adapter_beside_the_configuration_of_its_base_is_one(folder: Path) -> None:
    """As some trainers save it."""
    assert not Checkpoint(folder).is_adapter
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    assert Checkpoint(folder).is_adapter


def test_a_file_is_not_a_model(folder: Path) -> None:
    with pytest.raises(UserError, match="is a file"):
        Checkpoint(folder / "config.json").check()


def test_a_hub_id_is_passed_through() -> None:
    assert Checkpoint("Qwen/Qwen2.5-7B-Instruct").check() == "Qwen/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize("name", ["models/not-fetched-yet", "/no/such/folder", "./a/b", "no-owner", "a/b/c"])
def test_a_path_that_is_not_there_is_not_taken_for_a_hub_id(name: str) -> None:
    with pytest.raises(UserError, match="notewriter fetch model"):
        Checkpoint(name).check()


def test_a_missing_folder_beside_others_is_not_taken_for_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError):
        Checkpoint("mine/model").check()


def test_a_copy_has_the_same_fingerprint(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "elsewhere")
    assert Checkpoint(copy).fingerprint() == Checkpoint(folder).fingerprint()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_changed_file_changes_the_fingerprint_even_at_the_same_size_and_time(folder: Path, name: str) -> None:
    before = Checkpoint(folder).fingerprint()
    file = folder / name
    stat = file.stat()
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert Checkpoint(folder).fingerprint() != before


@pytest.mark.parametrize(
    "name",
    [
        "generation_config.json",
        "chat_template.jinja",
        "adapter_model.safetensors",
        "adapter_model.bin",
        "1_Dense/model.safetensors",
        "router_config.json",
        "document_0_Transformer/model.safetensors",
    ],
)
def test_a_new_file_that_changes_replies_changes_the_fingerprint(folder: Path, name: str) -> None:
    before = Checkpoint(folder).fingerprint()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("new")
    assert Checkpoint(folder).fingerprint() != before


@pytest.mark.parametrize("name", ["README.md", "training.json", "origin.json", "optimizer.pt"])
def test_notes_beside_a_model_do_not_change_its_fingerprint(folder: Path, name: str) -> None:
    before = Checkpoint(folder).fingerprint()
    (folder / name).write_text("new")
    assert Checkpoint(folder).fingerprint() == before


def test_a_hub_ids_fingerprint_names_the_cached_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert Checkpoint("owner/name").fingerprint() == "owner/name"
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    (repository / "snapshots" / commit / "config.json").write_text("{}")
    assert Checkpoint("owner/name").fingerprint() == f"owner/name@{commit}"
    assert Checkpoint("owner/name", "other").fingerprint() == "owner/name"
    (repository / "refs" / "other").write_text(commit)
    assert Checkpoint("owner/name", "other").fingerprint() == Checkpoint("owner/name", commit).fingerprint()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no\nfile"), r"x/y: cannot be loaded as a model \(no file\); check the name"),
        (KeyError("layers"), r"x/y: cannot be loaded as a model \('layers'\)"),
        (EOFError(), r"x/y: cannot be loaded as a model \(EOFError\)"),
        (TypeError("not iterable"), r"x/y: cannot be loaded as a model \(not iterable\)"),
        (UserError("z: is empty; fill it"), "^z: is empty; fill it$"),
        (
            ValueError(f"custom code. Please pass the argument `{REMOTE_CODE}=True`"),
            r"^x/y: cannot be loaded as a model without running code shipped with it, which is never done; use an",
        ),
    ],
)
def test_a_model_that_cannot_be_loaded_is_named_on_one_line(error, words):
    with pytest.raises(UserError, match=words) as told, checkpoint.loading("x/y"):
        raise error
    assert "\n" not in str(told.value) and REMOTE_CODE not in str(told.value)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files being hashed, once per hash."""
    names = []
    digest = checkpoint.file_digest

    def recorded(path: Path) -> str:
        names.append(path.name)
        return digest(path)

    monkeypatch.setattr(checkpoint, "file_digest", recorded)
    return names


def test_files_are_hashed_once_until_one_of_them_changes(folder: Path, hashed: list[str]) -> None:
    for file in folder.iterdir():
        os.utime(file, ns=(1, 1))
    first = Checkpoint(folder).fingerprint()
    assert sorted(hashed) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert Checkpoint(folder).fingerprint() == first
    assert Checkpoint(folder).fingerprint(checkpoint.WEIGHTS) != first
    assert len(hashed) == 3
    (folder / "model.safetensors").write_bytes(b"changed")
    os.utime(folder / "model.safetensors", ns=(1, 1))
    assert Checkpoint(folder).fingerprint() != first
    assert hashed[3:] == ["model.safetensors"]


@pytest.mark.parametrize("file", ["additional_chat_templates/tool_use.jinja", "preprocessor_config.json"])
def test_further_templates_and_processors_are_a_part_of_what_a_model_is(tmp_path, file):
    (tmp_path / "config.json").write_text("{}")
    before = Checkpoint(tmp_path).fingerprint()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("{}")
    assert Checkpoint(tmp_path).fingerprint() != before
