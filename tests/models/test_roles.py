"""Roles: which models a run uses, how they are reached, and how they sample."""

import contextlib
import json
import os
from dataclasses import asdict
from types import SimpleNamespace
from urllib.request import proxy_bypass_environment

import pytest
from fake_endpoint import fake_endpoint

from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models import roles, servers
from notewriter.models.adapters import Group
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.client import cache_key
from notewriter.models.nodes import Place
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.resources import check_inputs, open_resources

CPU = {"dtype": "float32", "enforce_eager": True}
"""The options of a server on a CPU without bfloat16 units."""


def test_sampling_is_general_with_exceptions_by_stage():
    arguments = ModelArguments(temperature=0.2, max_tokens=50, stage_sampling={"deepnote/answer": {"max_tokens": 9}})
    assert roles.sampling_by_stage(arguments) == (
        Sampling(0.2, 0.9, 50),
        {"deepnote/answer": Sampling(0.2, 0.9, 9)},
    )


@pytest.mark.parametrize("changes", [{"temprature": 1}, 5, "hot"])
def test_a_stages_sampling_that_is_none_is_named(changes):
    with pytest.raises(UserError, match=r"stage_sampling: deepnote/answer: .* must be a mapping of temperature, top_p"):
        roles.sampling_by_stage(ModelArguments(stage_sampling={"deepnote/answer": changes}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "^temperature: -0.1 is too small; give at least 0"),
        ({"top_p": 1.5}, "^top_p: 1.5 is too large; give above 0 and at most 1"),
        ({"max_tokens": 0}, "^max_tokens: 0 is too small; give at least 1"),
        (
            {"stage_sampling": {"deepnote/answer": {"max_tokens": "9"}}},
            "^stage_sampling: deepnote/answer: max_tokens must be int, not '9'",
        ),
        ({"stage_sampling": {"deepnote/answer": {"temperature": True}}}, "temperature must be float, not True"),
    ],
)
def test_numbers_that_every_server_refuses_are_found_before_one_is_asked(settings, message):
    with pytest.raises(UserError, match=message):
        check_inputs(ModelArguments(**settings), None)


@pytest.fixture
def served(monkeypatch):
    """Records each server instead of starting it: (path, options, log's name, port), then `"stopped"`."""
    calls = []
    monkeypatch.setattr("notewriter.models.serve_options.runs_on_cpu", lambda: True)
    monkeypatch.setattr("notewriter.models.serve_options.number_format", lambda: "float32")

    @contextlib.contextmanager
    def serve(path, options, *, log, port=None, place=None, host=servers.LOOPBACK, ready_timeout, given_up=None):
        calls.append((path, options, log.name, port if place is None else place.devices))
        yield SimpleNamespace(base_url=f"http://127.0.0.1:{8000 + len(calls)}/v1")
        calls.append("stopped")

    monkeypatch.setattr(servers, "serve", serve)
    monkeypatch.setattr(roles, "check_template", lambda path, variables, file: None)
    fingerprint = Checkpoint.fingerprint
    monkeypatch.setattr(
        Checkpoint,
        "fingerprint",
        lambda model: fingerprint(model) if os.path.isdir(model.path) else f"weights of {model.path}",
    )
    return calls


def given_roles(tmp_path, **settings):
    with roles.served_models(ModelArguments(**settings), tmp_path) as given:
        return {role: (endpoint, bool(servers)) for role, (endpoint, servers) in given.items()}


def test_an_endpoint_that_runs_already_plays_the_policy(tmp_path):
    ((endpoint, ours),) = given_roles(tmp_path, base_url="http://node7:8000/v1", model="m").values()
    assert (endpoint.base_url, endpoint.model, endpoint.identity, ours) == ("http://node7:8000/v1", "m", "", False)


def test_a_checkpoint_is_served_under_its_name_and_known_by_its_weights(tmp_path, served):
    given = given_roles(tmp_path, serve="models/tiny", serve_options={"dtype": "float32"}, port=9000)
    endpoint, ours = given["policy"]
    assert ours
    assert (endpoint.base_url, endpoint.model) == ("http://127.0.0.1:8001/v1", "tiny")
    assert "weights of models/tiny" in endpoint.identity
    # How it is served, such as its precision, changes replies too.
    assert "float32" in endpoint.identity
    options = CPU | {"served_model_name": "tiny"}
    assert served == [("models/tiny", options, "vllm-policy.log", 9000), "stopped"]


@pytest.mark.parametrize("option", ["chat_template", "tokenizer", "generation_config"])
@pytest.mark.parametrize("inside", ["", "tokenizer.json"], ids=["a file", "a folder"])
def test_files_that_options_name_are_known_by_their_contents(tmp_path, served, option, inside):
    def identity():
        ((endpoint, _),) = given_roles(tmp_path, serve="models/tiny", serve_options={option: str(path)}).values()
        return endpoint.identity

    path = tmp_path / "named"
    if inside:
        path.mkdir()
    file = path / inside
    file.write_text("before")
    before = identity()
    assert identity() == before
    file.write_text("after!")
    assert identity() != before
    file.write_text("before")
    path = path.rename(tmp_path / "moved")
    assert identity() == before


def test_options_that_name_no_files_leave_the_identity_as_it_was(tmp_path, served):
    options = CPU | {"chat_template": "{{ messages }}" * 1000, "tokenizer": "owner/name", "seed": 0}
    ((endpoint, _),) = given_roles(tmp_path, serve="models/tiny", serve_options=options).values()
    assert endpoint.identity == f"weights of models/tiny {json.dumps(options, sort_keys=True)}"


def test_variables_of_a_chat_template_go_with_every_request_of_their_model_alone(tmp_path, served):
    off, low = {"enable_thinking": False}, {"reasoning_effort": "low"}
    judge = {**URL, "chat_template_kwargs": low, "extra_body": {"top_k": 7}}
    given = given_roles(
        tmp_path,
        serve="models/tiny",
        chat_template_kwargs=off,
        models={"judge": judge, "notes": {"serve": "models/notes"}, "query": URL},
    )
    assert {role: endpoint.extra_body for role, (endpoint, _) in given.items()} == {
        "policy": {"chat_template_kwargs": off},
        "judge": {"top_k": 7, "chat_template_kwargs": low},
        "notes": {},
        "query": {},
    }
    ((endpoint, _),) = given_roles(tmp_path, chat_template_kwargs=off, models={"policy": URL}).values()
    assert endpoint.extra_body == {"chat_template_kwargs": off}


def test_replies_are_kept_apart_by_the_variables_and_those_of_before_are_found_without(tmp_path):
    def key(**settings):
        ((endpoint, _),) = given_roles(tmp_path, **URL, **settings).values()
        return cache_key(endpoint, [{"role": "user", "content": "hi"}], Sampling(0.1, 0.9, 8), 0)

    assert key() == key(chat_template_kwargs={}) == "1c9ce7ffe40a9b8d924af72d8fd4fec244ddf30805a4e11e8364c002f34ed283"
    assert len({key(), key(chat_template_kwargs={"a": 1}), key(chat_template_kwargs={"a": 2})}) == 3


def test_a_served_models_template_is_checked_with_its_own_variables(tmp_path, served, monkeypatch):
    checked = []
    monkeypatch.setattr(roles, "check_template", lambda *arguments: checked.append(arguments))
    given_roles(
        tmp_path,
        serve="models/tiny",
        serve_options={"chat_template": "fixed.jinja"},
        models={"judge": {"serve": "models/judge", "chat_template_kwargs": {"enable_thinking": False}}},
    )
    assert checked == [
        ("models/judge", {"enable_thinking": False}, "fixed.jinja"),
        ("models/tiny", {}, "fixed.jinja"),
    ]


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        pytest.param({"serve": "models/tiny"}, CPU, id="served"),
        pytest.param({"models": {"notes": {"serve": "models/tiny"}}}, CPU, id="served in a role"),
        pytest.param({"serve": "x", "serve_options": {"dtype": "half"}}, CPU | {"dtype": "half"}, id="the user's word"),
        pytest.param({"base_url": "http://node7:8000/v1", "model": "m"}, {}, id="served elsewhere"),
    ],
)
def test_the_configuration_names_what_the_processor_decided(monkeypatch, settings, recorded):
    monkeypatch.setattr("notewriter.models.serve_options.runs_on_cpu", lambda: True)
    monkeypatch.setattr("notewriter.models.serve_options.number_format", lambda: "float32")
    assert asdict(ModelArguments(**settings))["serve_options"] == recorded


def test_every_role_can_have_a_model_of_its_own(tmp_path, served):
    judge = {"base_url": "https://api.example.com/v1", "model": "big", "api_key_env": "JUDGE_KEY", "concurrency": 4}
    given = given_roles(tmp_path, serve="models/tiny", models={"judge": judge, "notes": {"serve": "models/notes"}})
    assert {role: ours for role, (_, ours) in given.items()} == {"judge": False, "notes": True, "policy": True}
    assert {key: asdict(given["judge"][0])[key] for key in judge} == judge
    assert [call if call == "stopped" else call[2] for call in served] == [
        "vllm-notes.log",
        "vllm-policy.log",
        "stopped",
        "stopped",
    ]


def test_replicas_of_every_model_get_devices_of_their_own(tmp_path, served, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join("abcdefgh"))
    given = given_roles(
        tmp_path,
        serve="models/tiny",
        models={"judge": {"serve": "models/judge"}},
        serve_options={"tensor_parallel_size": 2},
        replicas=2,
    )
    started = sorted((path, log, devices) for path, _, log, devices in (call for call in served if call != "stopped"))
    assert started == [
        ("models/judge", "vllm-judge-0.log", "a,b"),
        ("models/judge", "vllm-judge-1.log", "c,d"),
        ("models/tiny", "vllm-policy-0.log", "e,f"),
        ("models/tiny", "vllm-policy-1.log", "g,h"),
    ]
    assert [len(set(endpoint.addresses)) for endpoint, _ in given.values()] == [2, 2]
    assert served.count("stopped") == 4


def test_a_model_has_its_own_options_and_replicas_beside_those_of_all(tmp_path, served, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join("abcdefgh"))
    judge = {"serve": "models/judge", "serve_options": {"tensor_parallel_size": 4, "seed": 1}, "replicas": 1}
    settings = {"serve": "models/tiny", "serve_options": {"dtype": "half", "seed": 0}, "replicas": 2}
    given = given_roles(tmp_path, **settings, models={"judge": judge})
    started = {(path, options["seed"], devices) for path, options, _, devices in served[:3]}
    assert started == {("models/judge", 1, "a,b,c,d"), ("models/tiny", 0, "e"), ("models/tiny", 0, "f")}
    assert all(options["dtype"] == "half" for _, options, _, _ in served[:3])
    assert '"tensor_parallel_size": 4' in given["judge"][0].identity
    assert "tensor_parallel_size" not in given["policy"][0].identity


def test_adapters_share_a_server_only_where_their_options_are_the_same(tmp_path, served, monkeypatch):
    monkeypatch.setattr(
        servers, "groups", lambda paths: [Group(paths[0], dict.fromkeys(paths, "m"), {"served_model_name": "m"})]
    )
    models = {role: {"serve": f"models/{role}"} for role in ("notes", "query", "judge")}
    models["judge"]["serve_options"] = {"max_model_len": 8192}
    given_roles(tmp_path, base_url="http://host/v1", model="m", models=models)
    assert [(path, options.get("max_model_len")) for path, options, _, _ in served[:2]] == [
        ("models/notes", None),
        ("models/judge", 8192),
    ]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ({"judge": {"serve": "models/tiny", "replicas": 2}}, "other serve_options or replicas in another role"),
        ({"judge": {"base_url": "http://host/v1", "model": "m", "replicas": 2}}, "models: judge: replicas is for"),
        ({"judge": {"serve": "m", "serve_options": {"api_key": "x"}}}, "models: judge: serve_options: api_key"),
        ({"judge": {"serve": "m", "serve_options": {"trust_remote_code": True}}}, "serve_options: trust_remote_code"),
        ({"judge": {"serve": "m", "replicas": 0}}, "models: judge: replicas"),
    ],
)
def test_options_of_a_model_that_cannot_be_are_named(tmp_path, served, models, message):
    with pytest.raises(UserError, match=message):
        given_roles(tmp_path, serve="models/tiny", models=models)
    assert served == []


@pytest.mark.parametrize(
    ("devices", "each"), [("a,b,c,d", {"a,b", "c,d"}), ("a,b,c", {None}), ("a", {None}), ("", {None})]
)
def test_single_servers_of_several_models_get_devices_of_their_own_where_there_are_enough(
    tmp_path, served, monkeypatch, devices, each
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    models = {"judge": {"serve": "models/judge"}}
    given_roles(tmp_path, serve="models/tiny", models=models, serve_options={"tensor_parallel_size": 2})
    assert {device for _, _, _, device in (call for call in served if call != "stopped")} == each


def test_servers_that_run_already_keep_their_devices(tmp_path, served, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    settings = ModelArguments(serve="models/tiny", models={"judge": {"serve": "models/judge"}}, replicas=2)
    with servers.keep() as kept:
        kept.start([servers.Wanted("models/tiny", {}, 2)], tmp_path / "vllm.log")
        with roles.served_models(settings, tmp_path):
            pass
    devices = {(path, device) for path, _, _, device in (call for call in served if call != "stopped")}
    assert devices == {("models/tiny", "0"), ("models/tiny", "1"), ("models/judge", "2"), ("models/judge", "3")}


def test_requests_to_servers_on_other_nodes_bypass_proxies(tmp_path, served, monkeypatch):
    environment = {"http_proxy": "http://proxy:3128", "no_proxy": "", "NO_PROXY": "other", "VLLM_API_KEY": "k"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    nodes = [Place(None, ("n2", "n3")), Place(None, ("n1",))]
    monkeypatch.setattr(servers, "places", lambda before, options, replicas: nodes)
    for _ in range(2):
        given_roles(tmp_path, serve="models/tiny", replicas=2)
    assert os.environ["no_proxy"] == "other,n1,n2"
    assert all(proxy_bypass_environment(host) for host in ("n1", "n2", "other"))


def test_more_replicas_than_devices_are_refused_before_any_is_started(tmp_path, served, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match=r"replicas: 3 devices are needed but CUDA_VISIBLE_DEVICES lists 2; lower"):
        given_roles(tmp_path, serve="models/tiny", replicas=3)
    assert served == []


def test_a_server_gets_as_many_requests_as_there_are_questions_in_flight_unless_its_endpoint_says_otherwise(tmp_path):
    given = given_roles(tmp_path, concurrency=200, models={"judge": {**URL, "concurrency": 4}}, **URL)
    assert {role: endpoint.concurrency for role, (endpoint, _) in given.items()} == {"policy": 200, "judge": 4}


URL = {"base_url": "http://node7:8000/v1", "model": "m"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, r"no model; give --serve PATH, or --base_url URL --model NAME"),
        ({"base_url": "http://node7:8000/v1"}, r"base_url is set but model is not"),
        ({"serve": "models/tiny", **URL}, r"both serve and base_url are set"),
        ({"models": {"policy": URL}, **URL}, r"both base_url and models: policy are set"),
        ({"models": {"judge": URL}}, r"no model"),
        ({"models": {"jugde": URL}, **URL}, r"unknown role in models 'jugde'; choose one of: answer, judge, notes"),
        ({"models": {"judge": "big"}, **URL}, r"models: judge: is not an endpoint"),
        ({"models": {"judge": {**URL, "key": "x"}}, **URL}, r"models: judge: unknown key 'key'; an endpoint has: "),
        (
            {"models": {"judge": {**URL, "chat_template_kwargs": 1}}, **URL},
            r"models: judge: chat_template_kwargs must be dict",
        ),
        ({"chat_template_kwargs": {"tools": []}, **URL}, r"chat_template_kwargs: tools cannot be set"),
        ({"models": {"judge": {"model": "big"}}, **URL}, r"models: judge: needs base_url and model, or serve"),
        (
            {"models": {"judge": {**URL, "concurrency": 0}}, **URL},
            r"judge: concurrency: 0 is too small; give at least 1",
        ),
        ({"models": {"judge": {**URL, "attempts": "x"}}, **URL}, r"judge: attempts must be int"),
        ({"concurrency": 0, **URL}, r"concurrency: 0 is too small"),
        ({"serve": "models/tiny", "replicas": 0}, r"replicas: 0 is too small"),
        ({"serve": "models/tiny", "replicas": 2, "port": 8000}, r"port: 2 servers cannot share a port"),
        (
            {"serve": "models/tiny", "models": {"judge": {"serve": "models/judge"}}, "port": 8000},
            r"port: 2 servers cannot share a port",
        ),
    ],
)
def test_models_that_cannot_be_are_named(tmp_path, served, settings, problem):
    with pytest.raises(UserError, match=problem) as caught:
        given_roles(tmp_path, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({**URL, "base_url": "https://me:pa55word@host/v1"}, "^base_url: contains a user name or password"),
        ({**URL, "base_url": "http://node7/v1, pa55word@node8/v1"}, "^base_url: contains a user name or password"),
        (
            {"models": {"judge": {**URL, "base_url": "https://pa55word@host"}}},
            "^models: judge: base_url: contains a user",
        ),
        (
            {"models": {"judge": {**URL, "api_key": "pa55word"}}},
            "^models: judge: unknown key 'api_key'; .* api_key_env",
        ),
        ({"models": {"judge": "https://me:pa55word@host/v1"}}, "^models: judge: is not an endpoint"),
    ],
)
def test_a_secret_is_refused_before_anything_is_written_and_is_not_repeated(settings, problem):
    with pytest.raises(UserError, match=problem) as caught:
        check_inputs(ModelArguments(**settings), None)
    assert "api_key_env" in str(caught.value) or "base_url and model" in str(caught.value)
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({**URL, "base_url": "http://node7:99999/v1"}, r"^base_url: 'http://node7:99999/v1' is not the address of an"),
        (
            {**URL, "base_url": "http://node7:8000/v1,http://[::1/v1"},
            r"^base_url: 'http://\[::1/v1' is not the address",
        ),
        ({**URL, "base_url": "http://node7:8000/v1, "}, r"^base_url: '' is not the address"),
        ({"models": {"judge": {**URL, "base_url": "node8"}}, **URL}, r"^models: judge: base_url: 'node8' is not"),
        ({"serve_options": {"trust_remote_code": True}}, r"^serve_options: trust_remote_code: code .* never run"),
        ({"serve_options": {"trust-remote-code": True}}, r"^serve_options: trust-remote-code: code .* never run"),
        ({"serve_options": {"api_key": "pa55word"}}, r"^serve_options: api_key: .* environment variable VLLM_API_KEY"),
        ({"serve_options": {"hf-token": "pa55word"}}, r"^serve_options: hf-token: .* environment variable HF_TOKEN"),
        # vLLM completes abbreviations.
        ({"serve_options": {"hf_tok": "pa55word"}}, r"^serve_options: hf_tok: .* environment variable HF_TOKEN"),
    ],
)
def test_what_no_server_can_be_asked_or_started_with_is_named_before_anything_is_written(settings, problem):
    with pytest.raises(UserError, match=problem) as caught:
        check_inputs(ModelArguments(**settings), None)
    assert "\n" not in str(caught.value) and "pa55word" not in str(caught.value)


@pytest.mark.parametrize("value", [True, False, None])
def test_a_server_may_use_the_token_that_this_machine_is_logged_in_with(value):
    check_inputs(ModelArguments(serve_options={"hf_token": value}), None)


def test_a_server_of_ours_gets_no_key_of_another_service(tmp_path, served):
    judge = {"serve": "models/judge", "api_key_env": "JUDGE_KEY"}
    given = given_roles(tmp_path, serve="models/tiny", models={"judge": judge})
    assert {role: endpoint.api_key_env for role, (endpoint, _) in given.items()} == {
        "policy": "VLLM_API_KEY",
        "judge": "JUDGE_KEY",
    }


def test_a_sign_in_a_path_is_no_secret():
    check_inputs(ModelArguments(base_url="http://node7:8000/v1/@team/model", model="m"), None)


def test_the_environment_in_a_configuration_file_names_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTEWRITER_CACHE", "ours.sqlite")
    (tmp_path / "run.yaml").write_text("env: {NOTEWRITER_CACHE: theirs.sqlite}\n")
    (arguments,) = parse(ModelArguments, ["--config", str(tmp_path / "run.yaml")])
    assert arguments.cache == "theirs.sqlite"


async def test_resources_are_checked_and_share_one_cache(tmp_path):
    with fake_endpoint() as endpoint:
        arguments = ModelArguments(
            base_url=endpoint.base_url,
            model=endpoint.model,
            cache=str(tmp_path / "cache.sqlite"),
            stage_sampling={"deepnote/answer": {"max_tokens": 3}},
        )
        with roles.served_models(arguments, tmp_path) as given:
            for _ in range(2):
                async with open_resources(arguments, given, None) as resources:
                    assert resources.retriever is None
                    assert resources.stage_sampling["deepnote/answer"].max_tokens == 3
                    await resources.clients["policy"].complete([{"role": "user", "content": "hi"}], resources.sampling)
    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_does_not_serve_the_model_is_named_before_any_work(tmp_path):
    with fake_endpoint() as endpoint:
        arguments = ModelArguments(base_url=endpoint.base_url, model="other", cache=str(tmp_path / "cache.sqlite"))
        with roles.served_models(arguments, tmp_path) as given:
            resources = open_resources(arguments, given, None)
            with pytest.raises(UserError, match="does not serve model 'other'; it serves fake"):
                await resources.__aenter__()
    assert endpoint.requests == []


async def test_a_stage_that_there_is_none_of_is_named(tmp_path):
    arguments = ModelArguments(**URL, stage_sampling={"deepnote/anwser": {"max_tokens": 3}})
    with roles.served_models(arguments, tmp_path) as given:
        resources = open_resources(arguments, given, None)
        with pytest.raises(UserError, match="did you mean 'deepnote/answer'"):
            await resources.__aenter__()


async def test_a_dead_server_of_ours_is_revived_before_a_call_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)
    revived = []
    with fake_endpoint(faults=["reset"]) as endpoint:
        arguments = ModelArguments(base_url=endpoint.base_url, model="fake", cache=str(tmp_path / "cache.sqlite"))
        with roles.served_models(arguments, tmp_path) as given:
            server = SimpleNamespace(ensure_alive=lambda: revived.append(True))
            given["policy"] = (given["policy"][0], [server])
            async with open_resources(arguments, given, None) as resources:
                await resources.clients["policy"].complete([{"role": "user", "content": "hi"}], resources.sampling)
    assert revived == [True]
