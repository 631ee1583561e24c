"""The command `serve`, with a stand-in for the servers."""

import contextlib
import json
import os
import stat
from types import SimpleNamespace

import pytest

from notewriter.ground.errors import UserError
from notewriter.ground.locks import locked
from notewriter.models import serve as command
from notewriter.models.client import Endpoint


@pytest.fixture
def started(monkeypatch):
    """Records (model, options, port, host) of each server in place of starting it."""
    calls = []

    @contextlib.contextmanager
    def serve(model, options, *, log, port=None, place=None, host=command.LOOPBACK, ready_timeout, given_up=None):
        calls.append((model, options, port, host))
        yield SimpleNamespace(base_url=f"http://node7:{8000 + len(calls)}/v1", ensure_alive=lambda: None)

    monkeypatch.setattr("notewriter.models.servers.serve", serve)
    monkeypatch.setattr(command, "check_template", lambda *arguments: None)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    return calls


def serve_until_stopped(monkeypatch, tmp_path, *argv):
    """Run the command and stop it at once; returns what was in its folder while it ran."""
    seen = {}

    def look(seconds):
        seen.update({file.name: file.read_text() for file in tmp_path.iterdir() if file.name != ".lock"})
        raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", look)
    command.main([*argv, "--output_dir", str(tmp_path)])
    return seen


def test_addresses_are_in_files_while_the_models_are_served(started, monkeypatch, tmp_path, capsys):
    seen = serve_until_stopped(monkeypatch, tmp_path, "models/a", "models/b", "--serve_options", '{"dtype": "half"}')
    assert seen == {"a.url": "http://node7:8001/v1\n", "b.url": "http://node7:8002/v1\n"}
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == "a: http://node7:8001/v1\nb: http://node7:8002/v1\n"
    options = {"dtype": "half", "shutdown_timeout": 60}
    assert started == [
        ("models/a", options | {"served_model_name": "a"}, None, "127.0.0.1"),
        ("models/b", options | {"served_model_name": "b"}, None, "127.0.0.1"),
    ]


def test_replicas_have_one_file_that_a_client_takes_as_it_is(started, monkeypatch, tmp_path):
    seen = serve_until_stopped(monkeypatch, tmp_path, "models/a", "--replicas", "2")
    assert len(set(Endpoint(seen["a.url"].strip(), "a").addresses)) == 2


def test_what_other_machines_can_reach_has_a_key_that_only_its_user_can_read(started, monkeypatch, tmp_path):
    seen = serve_until_stopped(monkeypatch, tmp_path, "models/a", "--host", "0.0.0.0")
    assert started[0][3] == "0.0.0.0"
    assert seen["key"].strip() == os.environ["VLLM_API_KEY"]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_the_key_of_a_server_that_runs_already_is_left_alone(started, monkeypatch, tmp_path):
    (tmp_path / "key").write_text("in use")
    with locked(tmp_path), pytest.raises(UserError, match=r"is using this folder; .* choose another output_dir"):
        serve_until_stopped(monkeypatch, tmp_path, "models/a", "--host", "0.0.0.0")
    assert (tmp_path / "key").read_text() == "in use"
    assert started == []


def test_adapters_with_other_templates_get_a_server_each_of_one_base(started, monkeypatch, tmp_path_factory, tmp_path):
    models = tmp_path_factory.mktemp("models")
    for name in ("base", "notes", "query"):
        (models / name).mkdir()
        (models / name / "tokenizer.json").write_text("{}")
        if name == "base":
            (models / name / "config.json").write_text("{}")
            (models / name / "model.safetensors").touch()
        else:
            settings = {"peft_type": "LORA", "base_model_name_or_path": str(models / "base"), "r": 8, "revision": None}
            (models / name / "adapter_config.json").write_text(json.dumps(settings))
            (models / name / "adapter_model.safetensors").touch()
            (models / name / "chat_template.jinja").write_text(name)
    seen = serve_until_stopped(monkeypatch, tmp_path, str(models / "notes"), str(models / "query"))
    assert seen == {
        "notes.url": "http://node7:8001/v1\n",
        "base.url": "http://node7:8001/v1\n",
        "query.url": "http://node7:8002/v1\n",
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["models/a", "models/b", "--port", "8000"], "port: 2 servers cannot share a port; omit it"),
        (["x/checkpoint", "y/checkpoint"], "two models are called checkpoint; rename a folder"),
        (["models/a", "--serve_options", '{"api_key": "x"}'], "serve_options: api_key"),
    ],
)
def test_what_cannot_be_served_together_is_named(started, monkeypatch, tmp_path, argv, message):
    with pytest.raises(UserError, match=message):
        serve_until_stopped(monkeypatch, tmp_path, *argv)
    assert list(tmp_path.iterdir()) == [] and started == []
