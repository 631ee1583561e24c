"""Running servers: found by what they serve, in this process and in those it starts; kept as long as they are asked."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from notewriter.ground.errors import UserError
from notewriter.models import servers
from notewriter.models.roles import ModelArguments, served_models
from notewriter.models.servers import Wanted, keep, use


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Records each server instead of starting it: its model's name, and `-name` when it stops."""
    calls = []

    @contextlib.contextmanager
    def serve(path, options, *, log, port=None, place=None, host=servers.LOOPBACK, ready_timeout, given_up=None):
        name = Path(path).name
        if name == "broken":
            calls.append("broken")
            raise UserError("the server for broken did not start")
        calls.append(name)
        yield SimpleNamespace(base_url=f"http://127.0.0.1:{8000 + len(calls)}/v1", log=log)
        calls.append(f"-{name}")

    monkeypatch.setattr(servers, "serve", serve)
    # There are no such models.
    monkeypatch.setattr(servers, "options_of", lambda model, options: dict(options))
    monkeypatch.setattr(servers.Checkpoint, "fingerprint", lambda model, files=(): f"weights of {model.name}")
    return calls


def run(*paths: str, **options) -> dict[str, str]:
    """A run that asks for checkpoints; returns their addresses."""
    with use([Wanted(path, options) for path in paths], {path: Path("own.log") for path in paths}) as running:
        return {path: each.base_url for path, each in running.items()}


@pytest.fixture
def placed(monkeypatch, started):
    """Makes this a machine of so many GPUs; returns each server's options of memory and its devices."""
    calls = []
    record = servers.serve

    def serve(path, options, *, place=None, **settings):
        calls.append((Path(path).name, options.get("gpu_memory_utilization"), place and place.devices))
        return record(path, options, place=place, **settings)

    def make(gpus):
        monkeypatch.setattr(servers, "serve", serve)
        monkeypatch.setattr(servers, "runs_on_cpu", lambda: False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus))))
        return calls

    return make


def test_servers_on_one_gpu_get_equal_shares_of_its_memory(placed):
    calls = placed(1)
    run("a", "b")
    run("a")
    assert calls == [("a", 0.46, None), ("b", 0.46, None), ("a", None, None)]


def test_a_share_that_the_user_gives_stays(placed):
    calls = placed(1)
    run("a", "b", gpu_memory_utilization=0.3)
    assert [share for _, share, _ in calls] == [0.3, 0.3]


def test_servers_with_a_gpu_each_have_the_whole_of_it(placed):
    calls = placed(2)
    run("a", "b")
    assert calls == [("a", None, "0"), ("b", None, "1")]


def test_a_command_leaves_the_gpus_of_its_parents_servers_alone(placed, monkeypatch, tmp_path):
    calls = placed(4)
    with keep() as parent:
        parent.start([Wanted("policy", {"tensor_parallel_size": 2})], tmp_path / "vllm.log")
        monkeypatch.setenv(*parent.environment().copy().popitem())
    run("judge")
    assert calls == [("policy", None, None), ("judge", None, "2")]


def test_a_lone_runs_servers_stop_with_it(started):
    run("a")
    run("a")
    assert started == ["a", "-a", "a", "-a"]


def test_the_next_run_finds_the_servers_of_the_run_before(started):
    with keep():
        first = run("a", "b")
        assert run("a", "b") == first
        assert run("a") == {"a": first["a"]}
        assert started == ["a", "b"]
    assert started == ["a", "b", "-b", "-a"]


def test_servers_are_known_by_weights_and_options_not_by_paths(started):
    with keep():
        address = run("models/a", dtype="half")["models/a"]
        assert run("copies/a", dtype="half")["copies/a"] == address
        assert run("models/a", dtype="float32")["models/a"] != address
    assert started == ["a", "-a", "a", "-a"]


def test_servers_stop_before_a_run_starts_others_in_their_memory(started):
    with keep():
        run("a", "judge")
        run("b", "judge")
    assert started == ["a", "judge", "-judge", "-a", "b", "judge", "-judge", "-b"]


def test_servers_that_were_started_to_stay_stay_beside_those_of_runs(started, tmp_path):
    with keep() as kept:
        kept.start([Wanted("policy", {})], tmp_path / "vllm.log")
        kept.start([Wanted("policy", {})], tmp_path / "vllm.log")
        run("policy", "a")
        run("policy", "b")
        assert started == ["policy", "a", "-a", "b"]
    assert started == ["policy", "a", "-a", "b", "-b", "-policy"]


def test_a_run_that_fails_stops_its_servers_since_they_may_be_the_reason(started):
    with keep():
        with pytest.raises(ValueError), use([Wanted("a", {})], {"a": Path("own.log")}):
            raise ValueError
        run("a")
    assert started == ["a", "-a", "a", "-a"]


def test_a_server_that_did_not_start_is_not_tried_again(started):
    with keep():
        for _ in range(2):
            with pytest.raises(UserError, match="did not start"):
                run("broken")
        run("a")
    assert started == ["broken", "a", "-a"]


def test_a_checkpoint_whose_base_is_downloaded_as_it_starts_is_found_then(started, monkeypatch):
    """An adapter's fingerprint has its base's commit once the hub's cache has that."""
    # There are no such models.
    monkeypatch.setattr(servers, "options_of", lambda model, options: dict(options))
    monkeypatch.setattr(servers.Checkpoint, "fingerprint", lambda model, files=(): f"{model.name}@{len(started)}")
    assert run("a") == {"a": "http://127.0.0.1:8001/v1"}


def test_when_a_replica_fails_the_others_are_given_up(started, monkeypatch):
    """They may take an hour to be ready, and nobody would wait for them."""

    @contextlib.contextmanager
    def serve(path, options, *, place, given_up, **_):
        if place.devices == "1":
            raise UserError("no memory")
        assert given_up.wait(timeout=60)
        started.append(f"gave up {place.devices}")
        yield SimpleNamespace(base_url="http://127.0.0.1:8001/v1")

    monkeypatch.setattr(servers, "serve", serve)
    monkeypatch.setattr(servers, "runs_on_cpu", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match="no memory"), use([Wanted("a", {}, 2)], {"a": Path("own.log")}):
        pass
    assert started == ["gave up 0"]


def test_a_block_within_another_keeps_nothing_of_its_own(started):
    with keep():
        with keep():
            run("a")
        run("a")
    assert started == ["a", "-a"]


def test_logs_are_the_runs_own_or_in_the_folder_of_all(started, tmp_path):
    with keep(), use([Wanted("a", {})], {"a": Path("own.log")}) as running:
        assert running["a"].servers[0].log == Path("own.log")
    with keep(tmp_path), use([Wanted("a", {})], {"a": Path("run/own.log")}) as running:
        assert running["a"].servers[0].log == tmp_path / "own.log"


def test_a_command_finds_the_servers_of_the_process_that_started_it(stand_in, model, tmp_path):
    """Under its own `--serve PATH`, known by its weights; with other options it starts its own."""
    script = """
import json, sys
from pathlib import Path
from notewriter.models import roles
roles.check_template = lambda *arguments: None
models = roles.ModelArguments(serve=sys.argv[1], serve_options=json.loads(sys.argv[2]))
with roles.served_models(models, Path(sys.argv[3])) as found:
    endpoint, servers = found["policy"]
    servers[0].ensure_alive()
    print(json.dumps([endpoint.base_url, endpoint.model, endpoint.identity]))
"""

    def child(options):
        command = [sys.executable, "-c", script, model, json.dumps(options), str(tmp_path)]
        environment = os.environ | kept.environment()
        environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[2])
        return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)

    with keep() as kept:
        kept.start([Wanted(model, {"max_model_len": 64})], tmp_path / "kept.log")
        found = child({"max_model_len": 64})
        assert len(stand_in()) == 1
        kept.ensure_alive()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("notewriter.models.roles.check_template", lambda *arguments: None)
            with served_models(ModelArguments(serve=model, serve_options={"max_model_len": 64}), tmp_path) as roles:
                endpoint, _ = roles["policy"]
        assert found == [endpoint.base_url, endpoint.model, endpoint.identity]
        other = child({"max_model_len": 32})
    assert len(stand_in()) == 2
    assert other[0] != found[0]
