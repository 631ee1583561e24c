"""Runs: folders that hold one configuration, questions that are asked once, and the models that a run is given."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import yaml
from fake_endpoint import fake_endpoint

from notewriter import runs
from notewriter.errors import UserError
from notewriter.records import Question, Sampling
from notewriter.runs import ModelArguments

QUESTIONS = [Question(f"q{number}", "Who?", ("Mira",)) for number in range(6)]


async def answer(question: Question) -> dict[str, str]:
    return {"question_id": question.id}


def ask(journal, work=answer, questions=QUESTIONS, concurrency=2):
    asyncio.run(runs.for_each_question(questions, work, journal, concurrency=concurrency, description="asking"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# Folders


def open_and_leave(folder, config, questions=()):
    with runs.open_run(folder, config, questions) as opened:
        return opened


def test_a_run_folder_holds_its_resolved_configuration(tmp_path):
    config = {"method": "deepnote", "method_options": {"top_k": 3}, "seed": 0, "name": None}
    folder = open_and_leave(tmp_path / "runs" / "a", config)
    assert yaml.safe_load((folder / "config.yaml").read_text()) == config
    assert open_and_leave(folder, config) == folder


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": 1}, r"a: holds a run with seed: 0, not 1; choose another output_dir, or remove this one"),
        ({"method_options": {"top_k": 5}}, r"method_options: \{'top_k': 3\}, not \{'top_k': 5\}"),
        ({"new": "x"}, r"holds a run with new: None, not 'x'"),
    ],
)
def test_a_folder_refuses_a_run_with_other_settings(tmp_path, change, problem):
    config = {"method_options": {"top_k": 3}, "seed": 0}
    open_and_leave(tmp_path / "a", config)
    with pytest.raises(UserError, match=problem):
        open_and_leave(tmp_path / "a", config | change)
    assert yaml.safe_load((tmp_path / "a" / "config.yaml").read_text()) == config


def test_a_setting_that_was_dropped_is_named_too(tmp_path):
    open_and_leave(tmp_path, {"seed": 0, "limit": 5})
    with pytest.raises(UserError, match="limit: 5, not None"):
        open_and_leave(tmp_path, {"seed": 0})


def test_settings_without_effect_may_differ_and_the_last_ones_are_kept(tmp_path):
    before = {"seed": 0, "concurrency": 64, "port": None, "cache": "a", "output_dir": "runs/a"}
    after = {"seed": 0, "concurrency": 8, "port": 8000, "cache": "b", "output_dir": "/runs/a"}
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == after
    assert runs.config_hash(before) == runs.config_hash(after) != runs.config_hash(before | {"seed": 1})


def test_a_model_may_be_reached_elsewhere_when_a_run_goes_on_but_must_be_the_same(tmp_path):
    def config(model, **settings):
        return {"base_url": settings["base_url"], "models": {"judge": {"model": model, **settings}}}

    before = config("m", base_url="http://node7:8000/v1", attempts=8)
    after = config("m", base_url="http://node8:8001/v1,http://node9:8001/v1", timeout=60.0)
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert runs.config_hash(before) == runs.config_hash(after)
    with pytest.raises(UserError, match=r"holds a run with models: \{'judge': \{'model': 'm'\}\}, not"):
        open_and_leave(tmp_path, config("n", base_url="http://node7:8000/v1"))


def test_the_hash_does_not_depend_on_the_order_of_keys():
    assert runs.config_hash({"a": 1, "b": {"c": 2, "d": 3}}) == runs.config_hash({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize("text", ["{", "- a\n", ""])
def test_a_folder_of_something_else_is_named(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml: is n.* choose another output_dir"):
        open_and_leave(tmp_path, {"seed": 0})


@pytest.mark.parametrize(
    "questions",
    [
        [replace(QUESTIONS[0], answers=("Osk",)), *QUESTIONS[1:]],
        QUESTIONS[:-1],
        QUESTIONS[::-1],
    ],
    ids=["another answer", "one less", "another order"],
)
def test_a_question_file_that_was_changed_in_place_is_refused(tmp_path, questions):
    open_and_leave(tmp_path, {"path": "q.jsonl"}, QUESTIONS)
    open_and_leave(tmp_path, {"path": "q.jsonl"}, [replace(question) for question in QUESTIONS])
    with pytest.raises(UserError, match=r"holds a run over other questions, the file has changed since; choose"):
        open_and_leave(tmp_path, {"path": "q.jsonl"}, questions)


def test_two_runs_in_one_folder_are_refused_and_the_other_process_is_named(tmp_path):
    with (
        runs.open_run(tmp_path / "a", {"seed": 0}),
        pytest.raises(UserError, match=rf"a: process {os.getpid()} on \S+ works in this folder; wait until"),
    ):
        open_and_leave(tmp_path / "a", {"seed": 0})
    open_and_leave(tmp_path / "a", {"seed": 0})


def test_a_killed_run_leaves_no_lock_behind(tmp_path):
    code = f"""
import os, signal
from notewriter import runs
with runs.open_run({str(tmp_path)!r}, {{"seed": 0}}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    open_and_leave(tmp_path, {"seed": 0})


# Questions


@pytest.mark.parametrize("concurrency", [1, 2, 100])
def test_every_question_is_asked_once_and_not_again(tmp_path, concurrency):
    journal, asked = tmp_path / "traces.jsonl", []

    async def work(question):
        asked.append(question.id)
        await asyncio.sleep(0)
        return {"question_id": question.id}

    assert runs.remaining(journal, QUESTIONS) == 6
    ask(journal, work, QUESTIONS[:4], concurrency)
    assert runs.remaining(journal, QUESTIONS) == 2
    ask(journal, work, QUESTIONS, concurrency)
    ask(journal, work, QUESTIONS, concurrency)
    assert sorted(asked) == [question.id for question in QUESTIONS]
    assert runs.remaining(journal, QUESTIONS) == 0


def test_as_many_questions_as_allowed_are_in_flight(tmp_path):
    in_flight, most = 0, 0

    async def work(question):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        for _ in range(5):
            await asyncio.sleep(0)
        in_flight -= 1
        return {"question_id": question.id}

    ask(tmp_path / "traces.jsonl", work, concurrency=3)
    assert most == 3


def test_what_finished_before_one_raised_is_kept_and_gone_on_from(tmp_path):
    journal = tmp_path / "traces.jsonl"

    async def work(question):
        if question.id == "q3":
            raise UserError("no reply after 8 attempts")
        return {"question_id": question.id}

    with pytest.raises(UserError, match=r"^no reply after 8 attempts$"):
        ask(journal, work, concurrency=1)
    assert [record["question_id"] for record in lines(journal)] == ["q0", "q1", "q2"]
    ask(journal)
    assert runs.remaining(journal, QUESTIONS) == 0


def test_calls_under_way_are_given_up_when_one_raises(tmp_path):
    given_up = []

    async def work(question):
        if question.id == "q1":
            raise UserError("no")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(question.id)
            raise

    with pytest.raises(UserError):
        ask(tmp_path / "traces.jsonl", work)
    assert given_up == ["q0"]


def test_a_question_whose_line_a_kill_cut_is_asked_again(tmp_path):
    journal = tmp_path / "traces.jsonl"
    journal.write_text('{"question_id": "q0"}\n{"question_id": "q1", "ste')
    assert runs.remaining(journal, QUESTIONS) == 5
    ask(journal)
    assert sorted(record["question_id"] for record in lines(journal)) == [question.id for question in QUESTIONS]


def test_the_progress_tells_the_speed_and_what_came_of_the_questions_also_of_those_before(tmp_path, capsys):
    journal = tmp_path / "traces.jsonl"
    client = SimpleNamespace(received=0)

    async def work(question):
        client.received += 7
        await asyncio.sleep(0.01)
        return {"question_id": question.id, "rows": [1, 2]}

    for questions in (QUESTIONS[:2], QUESTIONS):
        run = runs.for_each_question(
            questions,
            work,
            journal,
            concurrency=1,
            description="asking",
            clients=[client],
            count=lambda record: {"pairs": len(record["rows"])},
        )
        asyncio.run(run)
    last = capsys.readouterr().err.split("\r")[-1]
    assert "6/6" in last and "pairs=12" in last
    assert 0 < int(re.search(r"tokens/s=(\d+)", last)[1]) <= 700 * 1.05


def test_a_journal_of_other_questions_does_not_keep_these_from_being_asked(tmp_path):
    journal = tmp_path / "traces.jsonl"
    ask(journal, questions=[Question(f"other{number}", "Who?", ("Mira",)) for number in range(8)])
    ask(journal)
    assert [record["question_id"] for record in runs.finished(journal, QUESTIONS)] == [q.id for q in QUESTIONS]


def test_what_is_finished_comes_in_the_order_of_the_questions(tmp_path):
    journal = tmp_path / "traces.jsonl"
    order = [4, 0, 5, 2]
    journal.write_text("".join(f'{{"question_id": "q{number}", "text": "Ł{number}"}}\n' for number in order))
    assert list(runs.finished(journal, QUESTIONS)) == [
        {"question_id": f"q{number}", "text": f"Ł{number}"} for number in sorted(order)
    ]
    assert [record["question_id"] for record in runs.finished(journal, QUESTIONS[4:])] == ["q4", "q5"]


def test_a_run_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"file: cannot be made a folder \(File exists\); choose another output_dir"),
        runs.open_run(tmp_path / "file", {}),
    ):
        pass


# Models


def test_sampling_is_general_with_exceptions_by_stage():
    arguments = ModelArguments(temperature=0.2, max_tokens=50, stage_sampling={"deepnote/answer": {"max_tokens": 9}})
    assert runs.sampling_by_stage(arguments) == (
        Sampling(0.2, 0.9, 50),
        {"deepnote/answer": Sampling(0.2, 0.9, 9)},
    )


@pytest.mark.parametrize("changes", [{"temprature": 1}, 5, "hot"])
def test_a_stages_sampling_that_is_none_is_named(changes):
    with pytest.raises(UserError, match=r"stage_sampling: deepnote/answer: .* has other keys than temperature, top_p"):
        runs.sampling_by_stage(ModelArguments(stage_sampling={"deepnote/answer": changes}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, "^temperature: -0.1 is not a number from 0 on"),
        ({"top_p": 1.5}, "^top_p: 1.5 is not a number above 0 and at most 1"),
        ({"max_tokens": 0}, "^max_tokens: 0 is not a whole number from 1 on"),
        (
            {"stage_sampling": {"deepnote/answer": {"max_tokens": "9"}}},
            "^stage_sampling: deepnote/answer: max_tokens: ",
        ),
        ({"stage_sampling": {"deepnote/answer": {"temperature": True}}}, "temperature: True is not a number"),
    ],
)
def test_numbers_that_every_server_refuses_are_found_before_one_is_asked(settings, message):
    with pytest.raises(UserError, match=message):
        runs.check_inputs(ModelArguments(**settings), None)


@pytest.fixture
def served(monkeypatch):
    """What was served, instead of serving it: (path, options, log's name, port), and then `"stopped"`."""
    calls = []

    @contextlib.contextmanager
    def serve(path, options, *, log, port=None, devices=None):
        calls.append((path, options, log.name, port if devices is None else devices))
        yield SimpleNamespace(base_url=f"http://127.0.0.1:{8000 + len(calls)}/v1")
        calls.append("stopped")

    monkeypatch.setattr(runs, "serve", serve)
    monkeypatch.setattr(runs, "fingerprint", lambda path: f"weights of {path}")
    return calls


def roles(tmp_path, **settings):
    with runs.served_models(ModelArguments(**settings), tmp_path) as given:
        return {role: (endpoint, bool(servers)) for role, (endpoint, servers) in given.items()}


def test_an_endpoint_that_runs_already_plays_the_policy(tmp_path):
    ((endpoint, ours),) = roles(tmp_path, base_url="http://node7:8000/v1", model="m").values()
    assert (endpoint.base_url, endpoint.model, endpoint.identity, ours) == ("http://node7:8000/v1", "m", "", False)


def test_a_checkpoint_is_served_under_its_name_and_known_by_its_weights(tmp_path, served):
    given = roles(tmp_path, serve="models/tiny", serve_options={"dtype": "float32"}, port=9000)
    endpoint, ours = given["policy"]
    assert ours
    assert (endpoint.base_url, endpoint.model) == ("http://127.0.0.1:8001/v1", "tiny")
    assert "weights of models/tiny" in endpoint.identity
    # How it is served (its precision, for one) changes replies as well.
    assert "float32" in endpoint.identity
    options = {"dtype": "float32", "served_model_name": "tiny"}
    assert served == [("models/tiny", options, "vllm-policy.log", 9000), "stopped"]


def test_every_role_can_have_a_model_of_its_own(tmp_path, served):
    judge = {"base_url": "https://api.example.com/v1", "model": "big", "api_key_env": "JUDGE_KEY", "concurrency": 4}
    given = roles(tmp_path, serve="models/tiny", models={"judge": judge, "notes": {"serve": "models/notes"}})
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
    given = roles(
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


def test_more_replicas_than_devices_are_refused_before_any_is_started(tmp_path, served, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match=r"replicas: 3 devices are needed and CUDA_VISIBLE_DEVICES has 2"):
        roles(tmp_path, serve="models/tiny", replicas=3)
    assert served == []


def test_a_server_gets_as_many_requests_as_there_are_questions_in_flight_unless_its_endpoint_says_otherwise(tmp_path):
    given = roles(tmp_path, concurrency=200, models={"judge": {**URL, "concurrency": 4}}, **URL)
    assert {role: endpoint.concurrency for role, (endpoint, _) in given.items()} == {"policy": 200, "judge": 4}


URL = {"base_url": "http://node7:8000/v1", "model": "m"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, r"no model: give --serve PATH, or --base_url URL --model NAME"),
        ({"base_url": "http://node7:8000/v1"}, r"base_url is set and model is not"),
        ({"serve": "models/tiny", **URL}, r"both serve and base_url are set"),
        ({"models": {"policy": URL}, **URL}, r"both base_url and models: policy are set"),
        ({"models": {"judge": URL}}, r"no model"),
        ({"models": {"jugde": URL}, **URL}, r"unknown role in models 'jugde'; choose one of: answer, judge, notes"),
        ({"models": {"judge": "big"}, **URL}, r"models: judge: 'big' is no endpoint"),
        ({"models": {"judge": {**URL, "key": "x"}}, **URL}, r"models: judge: unknown key 'key'; an endpoint has: "),
        ({"models": {"judge": {"model": "big"}}, **URL}, r"models: judge: needs base_url and model, or serve"),
        ({"models": {"judge": {**URL, "concurrency": 0}}, **URL}, r"judge: concurrency must be a whole number above 0"),
        ({"models": {"judge": {**URL, "attempts": "x"}}, **URL}, r"judge: attempts must be a whole number above 0"),
        ({"concurrency": 0, **URL}, r"concurrency: 0 questions at once"),
        ({"serve": "models/tiny", "replicas": 0}, r"replicas: 0 servers serve nobody"),
        ({"serve": "models/tiny", "replicas": 2, "port": 8000}, r"port: 2 replicas cannot share one"),
    ],
)
def test_models_that_cannot_be_are_named(tmp_path, served, settings, problem):
    with pytest.raises(UserError, match=problem) as caught:
        roles(tmp_path, **settings)
    assert "\n" not in str(caught.value)


async def test_resources_are_checked_and_share_one_cache(tmp_path):
    with fake_endpoint() as endpoint:
        arguments = ModelArguments(
            base_url=endpoint.base_url,
            model=endpoint.model,
            cache=str(tmp_path / "cache.sqlite"),
            stage_sampling={"deepnote/answer": {"max_tokens": 3}},
        )
        with runs.served_models(arguments, tmp_path) as given:
            for _ in range(2):
                async with runs.open_resources(arguments, given, None) as resources:
                    assert resources.retriever is None
                    assert resources.stage_sampling["deepnote/answer"].max_tokens == 3
                    await resources.clients["policy"].complete([{"role": "user", "content": "hi"}], resources.sampling)
    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_does_not_serve_the_model_is_named_before_any_work(tmp_path):
    with fake_endpoint() as endpoint:
        arguments = ModelArguments(base_url=endpoint.base_url, model="other", cache=str(tmp_path / "cache.sqlite"))
        with runs.served_models(arguments, tmp_path) as given:
            resources = runs.open_resources(arguments, given, None)
            with pytest.raises(UserError, match="does not serve model 'other'; it serves fake"):
                await resources.__aenter__()
    assert endpoint.requests == []


async def test_a_stage_that_there_is_none_of_is_named(tmp_path):
    arguments = ModelArguments(**URL, stage_sampling={"deepnote/anwser": {"max_tokens": 3}})
    with runs.served_models(arguments, tmp_path) as given:
        resources = runs.open_resources(arguments, given, None)
        with pytest.raises(UserError, match="did you mean 'deepnote/answer'"):
            await resources.__aenter__()


async def test_a_dead_server_of_ours_is_revived_before_a_call_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("notewriter.llm._backoff", lambda state: 0)
    revived = []
    with fake_endpoint(faults=["reset"]) as endpoint:
        arguments = ModelArguments(base_url=endpoint.base_url, model="fake", cache=str(tmp_path / "cache.sqlite"))
        with runs.served_models(arguments, tmp_path) as given:
            server = SimpleNamespace(ensure_alive=lambda: revived.append(True))
            given["policy"] = (given["policy"][0], [server])
            async with runs.open_resources(arguments, given, None) as resources:
                await resources.clients["policy"].complete([{"role": "user", "content": "hi"}], resources.sampling)
    assert revived == [True]
