"""Adapters: what one server holds, under which names, with which of vLLM's options."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from notewriter.ground.errors import UserError
from notewriter.models import identity, roles, servers
from notewriter.models.adapters import groups, with_group
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.roles import ModelArguments


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


ABSENT = "absent"


@pytest.fixture
def make_adapter(tmp_path, base):
    """Write an adapter's folder, with a tokenizer if it is given a chat template; returns its path."""

    def make(name, template=None, **changes):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        settings = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 16, "revision": None}
        settings = {key: value for key, value in (settings | changes).items() if value != ABSENT}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        (folder / "adapter_model.safetensors").write_bytes(name.encode())
        if template:
            (folder / "tokenizer.json").write_text("{}")
            (folder / "chat_template.jinja").write_text(template)
        return str(folder)

    return make


def test_adapters_of_one_base_share_a_server_under_their_own_names(make_adapter, base):
    notes, query = make_adapter("notes", r=12), make_adapter("query", r=64)
    (group,) = groups([notes, query, str(base)])
    assert group.model == str(base)
    assert group.names == {notes: "notes", query: "query", str(base): "base"}
    assert group.options == {
        "served_model_name": "base",
        "enable_lora": True,
        "max_lora_rank": 64,
        "max_loras": 2,
        "lora_modules": [f"notes={notes}", f"query={query}"],
    }


def test_adapters_trained_with_another_template_have_a_server_of_their_own_that_uses_it(make_adapter, base):
    plain, dated = make_adapter("plain", template="a"), make_adapter("dated", template="b")
    assert [group.options["tokenizer"] for group in groups([plain, dated])] == [plain, dated]
    assert [group.model for group in groups([plain, str(base)])] == [str(base)] * 2


def test_folders_of_one_name_are_told_apart_by_their_paths(make_adapter):
    notes, query = make_adapter("notes/checkpoint"), make_adapter("query/checkpoint")
    (group,) = groups([notes, query])
    assert group.names == {notes: notes, query: query}


def test_a_model_without_adapters_is_served_as_ever(base):
    (group,) = groups([str(base), str(base)])
    assert (group.model, group.options) == (str(base), {"served_model_name": "base"})


def test_a_users_options_win_except_for_the_names(make_adapter):
    (group,) = groups([make_adapter("notes")])
    options = with_group({"max_loras": 4, "served_model_name": "x", "max_model_len": 99}, group)
    assert (options["max_loras"], options["served_model_name"], options["max_model_len"]) == (4, "base", 99)


def test_an_adapter_is_known_by_its_weights_and_those_of_its_base(make_adapter, base):
    adapter = make_adapter("notes")
    before = Checkpoint(adapter).fingerprint()
    (base / "model.safetensors").write_bytes(b"other weights")
    assert Checkpoint(adapter).fingerprint() != before


@pytest.mark.parametrize("setting", ["serve", "model_name_or_path"])
def test_an_adapter_has_no_identity_until_its_base_is_downloaded(make_adapter, base, setting):
    """So that a run which downloads the base is the same one when it is started again."""
    assert identity.contents({setting: make_adapter("away", base_model_name_or_path="owner/base")}) == {}
    assert len(identity.contents({setting: make_adapter("notes")})) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"r": 1024}, "rank 1024 is above vLLM's 512; use notewriter merge"),
        ({"r": 0}, "r: 0 is too small"),
        ({"peft_type": "IA3", "r": ABSENT}, "peft_type is IA3; only LoRA adapters are supported"),
        ({"base_model_name_or_path": "models/absent"}, "notes: its base model: models/absent: is neither a model"),
    ],
)
def test_an_adapter_that_cannot_be_served_is_named(make_adapter, changes, message):
    with pytest.raises(UserError, match=message):
        groups([make_adapter("notes", **changes)])


def test_roles_with_adapters_of_one_base_start_one_server(make_adapter, base, tmp_path, monkeypatch):
    started = []

    @contextlib.contextmanager
    def serve(path, options, *, log, port=None, place=None, host=servers.LOOPBACK, ready_timeout, given_up=None):
        started.append((path, log.name))
        yield SimpleNamespace(base_url="http://127.0.0.1:8001/v1")

    monkeypatch.setattr(servers, "serve", serve)
    monkeypatch.setattr(roles, "check_template", lambda *arguments: None)
    notes, query = make_adapter("notes"), make_adapter("query")
    arguments = ModelArguments(serve=str(base), models={"notes": {"serve": notes}, "query": {"serve": query}})
    with roles.served_models(arguments, tmp_path) as given:
        played = {role: endpoint.model for role, (endpoint, _) in given.items()}
        assert len({endpoint.base_url for endpoint, _ in given.values()}) == 1
        assert len({endpoint.identity for endpoint, _ in given.values()}) == 3
    assert played == {"notes": "notes", "query": "query", "policy": "base"}
    assert started == [(str(base), "vllm-notes.log")]
