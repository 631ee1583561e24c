"""Evaluation and pair building on a real vLLM server of a small model."""

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import jinja2
import pytest
from chat_families import TEMPLATES
from real_templates import FAMILIES, template_of
from tiny_world import tiny_world, write_config
from transformers import AutoTokenizer

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.predictions import read_predictions
from notewriter.data import build_pairs
from notewriter.evaluation import evaluate
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Sampling
from notewriter.models import continuation
from notewriter.models.client import Client, Endpoint
from notewriter.results.compare import compare
from notewriter.results.report import write_report
from notewriter.results.runs import Run
from notewriter.rollouts.prompts import Prompts
from notewriter.training.inputs import rendering

pytestmark = pytest.mark.integration

QUESTIONS = 3
COMMAND = [sys.executable, "-c", "from notewriter.cli import main; main()"]
METHODS = {
    "deepnote": {"top_k": 2, "max_step": 1, "max_failure": 1},
    "vanilla": {"top_k": 2},
    "direct": {},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return AutoTokenizer.from_pretrained(smollm2)


@pytest.fixture(scope="module")
def runs(vllm_server, world, tmp_path_factory):
    """The run folder of each method."""
    folder = tmp_path_factory.mktemp("runs")
    for method, method_options in METHODS.items():
        options = {
            **world,
            "output_dir": str(folder / method),
            "cache": str(folder / "cache.sqlite"),
            "method": method,
            "method_options": method_options,
            "max_tokens": 24,
            "base_url": vllm_server.base_url,
            "model": vllm_server.model,
        }
        evaluate.main(write_config(folder / f"{method}.yaml", options))
    return {method: folder / method for method in METHODS}


def ask(server, path, body=None):
    """What the server says at a path beside its API, without any proxy."""
    request = urllib.request.Request(
        server.base_url.removesuffix("/v1") + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as reply:
        return reply.read().decode()


def counted(server, name, labels=""):
    """The sum of one of vLLM's counters over the series whose labels match."""
    values = re.findall(rf"^{name}{{.*{labels}.*}} (\S+)$", ask(server, "/metrics"), re.MULTILINE)
    return sum(map(float, values))


def cached(path):
    """The response cache: key -> completion as JSON, with the seconds that it took."""
    if not path.exists():
        return {}
    with sqlite3.connect(path, timeout=30) as database:
        # The command makes the file before the table.
        made = database.execute("SELECT name FROM sqlite_master WHERE name = 'replies'").fetchall()
        return dict(database.execute("SELECT key, completion FROM replies")) if made else {}


def token_ids(tokenizer, messages):
    return tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]


def test_the_server_lists_the_model_by_its_name(vllm_server):
    (model,) = json.loads(ask(vllm_server, "/v1/models"))["data"]
    assert model["id"] == vllm_server.model
    assert model["max_model_len"] == 2048


def test_the_server_sees_the_tokens_that_training_sees(vllm_server, tokenizer):
    prompts = Prompts()
    passages = [
        Passage("1", "Mira Tolen", "Mira Tolen, geboren in Öd — 東京; it cost 5 €.\n\n"),
        Passage("2", "<|x|>", ""),
    ]
    for stage, variables in (
        ("deepnote/init_note", {"passages": passages}),
        ("deepnote/refine_query", {"note": "  Mira. ", "queries": ["Who?"]}),
        ("deepnote/answer", {"note": "", "answer_style": "short"}),
    ):
        messages = prompts.render(stage, question="Who opened “the bridge”?", **variables)
        body = {"model": vllm_server.model, "messages": messages, "add_generation_prompt": True}
        assert json.loads(ask(vllm_server, "/tokenize", body))["tokens"] == token_ids(tokenizer, messages)


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_server_sees_the_tokens_that_training_sees_under_the_template_of_every_family(vllm_server, smollm2, family):
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    tokenizer.chat_template = TEMPLATES[family]
    turns = [
        {"role": "system", "content": "You write notes."},
        {"role": "user", "content": " Who opened “the bridge”?\n"},
        {"role": "assistant", "content": "Mira Tolen, geboren in Öd — 東京."},
        {"role": "user", "content": "When?"},
    ]
    for messages, generate in ((turns, True), (turns[:2], True), (turns[:3], False)):
        body = {"messages": messages, "chat_template": tokenizer.chat_template, "add_generation_prompt": generate}
        tokens = json.loads(ask(vllm_server, "/tokenize", {"model": vllm_server.model, **body}))["tokens"]
        assert [tokens] == rendering.render([messages], tokenizer, generate)


ROLES = [
    {"role": "system", "content": "You write notes."},
    {"role": "user", "content": " Who opened “the bridge”?\n"},
    {"role": "assistant", "content": "Mira Tolen."},
    {"role": "observation", "content": "It is by the river. "},
]


@pytest.mark.parametrize("family", [family for family in FAMILIES if not FAMILIES[family].settings])
def test_every_role_is_served_as_it_was_trained(vllm_server, smollm2, family):
    """Gemma 4's template writes a list of parts, which vLLM would make of a text, otherwise than a text."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    tokenizer.chat_template = template_of(family)
    turns = []
    for turn in ROLES:
        # Not every template takes each role.
        with contextlib.suppress(jinja2.TemplateError, UserError):
            rendering.render([[*turns, turn, *([ROLES[1]] if turn["role"] == "system" else [])]], tokenizer)
            turns.append(turn)
    if not turns:
        pytest.skip("writes today's date, and is not trained so")
    trained = rendering.render([turns], tokenizer, generate=True)
    body = {"model": vllm_server.model, "messages": turns, "chat_template": tokenizer.chat_template}
    assert [json.loads(ask(vllm_server, "/tokenize", body))["tokens"]] == trained


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_is_continued_begins_with_the_tokens_of_its_chat(vllm_server, smollm2, family):
    """As `continuation` sends it: the prompt's text, with none of the tokenizer's own tokens before it."""
    body = {
        "model": vllm_server.model,
        "messages": ROLES[1:2],
        "chat_template": template_of(family),
        "chat_template_kwargs": FAMILIES[family].settings,
    }
    tokens = json.loads(ask(vllm_server, "/tokenize", body))["tokens"]
    reply = json.loads(ask(vllm_server, "/v1/chat/completions", body | {"max_tokens": 1} | continuation.FIRST))
    raw = {"model": vllm_server.model, "prompt": continuation.opening_of(SimpleNamespace(**reply))}
    assert json.loads(ask(vllm_server, "/tokenize", raw | continuation.AS_IT_IS))["tokens"] == tokens


@pytest.mark.parametrize("family", [family for family, known in FAMILIES.items() if known.settings])
def test_the_server_sees_the_tokens_that_training_sees_with_the_variables_of_a_template(vllm_server, smollm2, family):
    own, settings = template_of(family), FAMILIES[family].settings
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    tokenizer.chat_template = own
    rendering.set_variables(tokenizer, settings)
    turns = [
        {"role": "user", "content": "Who opened “the bridge”?"},
        {"role": "assistant", "content": "Mira Tolen."},
        {"role": "user", "content": "When?"},
    ]

    def served(**body):
        question = {"model": vllm_server.model, "messages": turns, "add_generation_prompt": True}
        return json.loads(ask(vllm_server, "/tokenize", question | body))["tokens"]

    (trained,) = rendering.render([turns], tokenizer, generate=True)
    assert trained == served(chat_template=own, chat_template_kwargs=settings)
    # The template that is saved with the trained model needs no variables, and still takes them.
    assert trained == served(chat_template=tokenizer.chat_template)
    other = {"enable_thinking": True} if "enable_thinking" in settings else {"date_string": "1 Jan 2000"}
    overridden = served(chat_template=tokenizer.chat_template, chat_template_kwargs=other)
    assert overridden == served(chat_template=own, chat_template_kwargs=other) != trained


def test_variables_that_are_sent_with_requests_change_what_the_model_reads(vllm_server, tmp_path):
    """The tokens that the server counts for a completion, with a variable that SmolLM2's own template has none of."""
    messages = [{"role": "user", "content": "Who?"}]
    template = "{% if quiet %}the town {% endif %}" + TEMPLATES["chatml"]

    async def prompt_tokens(**variables):
        body = {"chat_template": template, "chat_template_kwargs": variables}
        client = Client(Endpoint(vllm_server.base_url, vllm_server.model, extra_body=body))
        # Whose server it is: another one is asked for a whole reply, to see whether a short one is a cut thought.
        await client.check()
        completion = await client.complete(messages, Sampling(0.1, 0.9, 1))
        await client.close()
        return completion.prompt_tokens

    assert asyncio.run(prompt_tokens(quiet=True)) == asyncio.run(prompt_tokens()) + 2


def test_a_judge_that_is_bound_to_a_schema_always_names_two_candidates(vllm_server, world, tmp_path):
    options = {
        **world,
        "output_dir": str(tmp_path / "pairs"),
        "cache": str(tmp_path / "cache.sqlite"),
        "stages": {"deepnote/init_note": "llm"},
        "method_options": {"deepnote": {"max_step": 1, "max_failure": 1, "adaptive_retrieval": False}},
        "top_k_range": [1, 1],
        "temperatures": [0.1, 0.9],
        "top_ps": [0.9],
        "max_tokens": 24,
        "dev_share": 0.0,
        "base_url": vllm_server.base_url,
        "model": vllm_server.model,
    }
    name = "stats.json"
    try:
        build_pairs.main(write_config(tmp_path / "pairs.yaml", options))
    except UserError as error:
        # A 135M model may contradict itself about every prompt; which ones depends on the processor.
        assert "nothing was made" in str(error)
        name = "stats_of_nothing.json"
    stats = json.loads((tmp_path / "pairs" / name).read_text())
    reasons = stats["stages"]["deepnote/init_note"]["dropped"]
    assert "judge reply not readable" not in reasons
    # A 135M model often names the same place whatever stands there, which two orders bring to light.
    assert reasons.keys() <= {
        "judge named others in the other order",
        "judge named one candidate twice",
        "fewer than two distinct candidates",
        "the best candidate was cut at its token limit",
    }


def test_evaluation_finishes_and_counts_the_tokens_of_every_method(runs):
    for method, folder in runs.items():
        metrics = read_metrics(folder / "metrics.json")
        assert (metrics.method, metrics.questions, metrics.errors) == (method, QUESTIONS, 0)
        assert metrics.per_question["prompt_tokens"] > metrics.per_question["completion_tokens"] > 0
        assert len(read_predictions(folder / "predictions.jsonl")) == QUESTIONS


def test_the_tokens_counted_are_those_of_the_chat_template(runs, tokenizer):
    for _, trace in jsonl.read(runs["deepnote"] / "traces.jsonl"):
        generations = [step for step in trace["steps"] if step["kind"] == "generate"]
        assert len(generations) == 5
        for step in generations:
            assert step["completion"]["prompt_tokens"] == len(token_ids(tokenizer, step["messages"]))
            assert 0 < step["completion"]["completion_tokens"] <= 24


def test_runs_can_be_compared_and_reported(runs, tmp_path):
    assert compare([Run(runs["direct"])], [Run(runs["deepnote"])])["prompt_tokens"].difference.mean > 0
    write_report(list(runs.values()), tmp_path / "report.html")
    assert all(method in (tmp_path / "report.html").read_text() for method in METHODS)


def test_pairs_killed_in_the_middle_keep_every_reply_and_ask_none_twice(vllm_server, world, tmp_path):
    cache = tmp_path / "cache.sqlite"
    options = {
        **world,
        "output_dir": str(tmp_path / "pairs"),
        "cache": str(cache),
        "stages": {"deepnote/init_note": "reference", "deepnote/answer": "metric"},
        "gold_stages": ["deepnote/init_note", "deepnote/answer"],
        "method_options": {"deepnote": {"max_step": 1, "max_failure": 1}},
        "top_k_range": [2, 3],
        "max_tokens": 16,
        "concurrency": 2,
        "base_url": vllm_server.base_url,
        "model": vllm_server.model,
    }
    command = [*COMMAND, "pairs", *write_config(tmp_path / "pairs.yaml", options)]

    def answered() -> float:
        """Requests that ended in a reply, once none is under way any more; those of a killed caller are aborted."""
        while counted(vllm_server, "vllm:num_requests_running") + counted(vllm_server, "vllm:num_requests_waiting"):
            time.sleep(0.2)
        return counted(vllm_server, "vllm:request_success_total", 'finished_reason="(?:stop|length)"')

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        # Three questions make some sixty calls; the first notes are there by then.
        while running.poll() is None and len(cached(cache)) < 12:
            time.sleep(0.05)
        running.kill()
        _, errors = running.communicate()
    assert running.returncode == -signal.SIGKILL, errors
    before, asked_before = cached(cache), answered()

    subprocess.run(command, check=True, capture_output=True)
    after, asked_after = cached(cache), answered()
    # A reply that had been asked again would have taken other seconds.
    assert before and before.items() < after.items()
    # Each command also asks for one token, once, to see how the server writes a chat.
    assert asked_after - asked_before == len(after) - len(before) + 1
    stats = json.loads((tmp_path / "pairs" / "stats.json").read_text())
    for stage in options["stages"]:
        count = stats["stages"][stage]
        assert count["pairs"] + sum(count["dropped"].values()) == QUESTIONS


def test_a_server_killed_in_the_middle_of_calls_is_started_again_and_they_are_answered(vllm_server):
    messages = [[{"role": "user", "content": f"Count from {number} to a thousand."}] for number in range(6)]
    killed = vllm_server._process

    async def complete_all():
        # As long as they may be: on a busy machine a short reply would be there before its request is counted.
        endpoint = Endpoint(vllm_server.base_url, vllm_server.model, extra_body={"ignore_eos": True})
        client = Client(endpoint, revive=[vllm_server.ensure_alive])
        await client.check()
        calls = [asyncio.create_task(client.complete(each, Sampling(0.1, 0.9, 256))) for each in messages]
        while not await asyncio.to_thread(counted, vllm_server, "vllm:num_requests_running"):
            await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)
        killed.kill()
        completions = await asyncio.gather(*calls)
        await client.close()
        return completions

    completions = asyncio.run(complete_all())
    assert all(completion.completion_tokens == 256 for completion in completions)
    assert killed.returncode == -signal.SIGKILL
    # The new one outlives the event loop in which it was started; it would take a moment to end.
    with pytest.raises(subprocess.TimeoutExpired):
        vllm_server._process.wait(timeout=3)
    ask(vllm_server, "/health")
