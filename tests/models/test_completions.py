"""What a request for a completion asks for, and what is read of its reply."""

import contextlib
import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import test_damage
from fake_endpoint import Fault, completion, fake_endpoint
from openai._models import construct_type
from openai.types import Completion as TextCompletion
from openai.types.chat import ChatCompletion

from notewriter import testing
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import REFUSALS, Client, RequestRefused, cache_key
from notewriter.models.completions import UNREADABLE, NoAnswer, read
from notewriter.models.connection import UnreadableReply

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=40)
WITHOUT_LOGPROBS = Fault(body=completion({"messages": []}, "in Paris", "fake"))


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_completion_has_its_text_and_its_cost(connect):
    with fake_endpoint(reply=lambda request: "In  Paris.") as endpoint:
        completion = await connect(endpoint.base_url).complete(chat("Where is she"), SAMPLING)
    assert (completion.text, completion.finish_reason) == ("In  Paris.", "stop")
    assert (completion.prompt_tokens, completion.completion_tokens, completion.cached_tokens) == (3, 2, 0)
    (request,) = endpoint.requests
    assert request["messages"] == chat("Where is she")
    assert (request["model"], request["temperature"], request["top_p"], request["max_tokens"]) == ("fake", 0.5, 0.9, 40)


async def test_a_reply_that_was_cut_says_so(connect):
    with fake_endpoint() as endpoint:
        completion = await connect(endpoint.base_url).complete(chat("hi"), replace(SAMPLING, max_tokens=2))
    assert completion.finish_reason == "length"
    assert completion.completion_tokens == 2


async def test_half_a_surrogate_pair_in_a_reply_becomes_a_character_that_every_file_can_hold(connect):
    with fake_endpoint(reply=lambda request: "cut \ud83d here") as endpoint:
        completion = await connect(endpoint.base_url).complete(chat("hi"), SAMPLING)
    assert completion.text == "cut ? here"


async def test_where_it_stops_and_what_json_it_writes_is_asked_of_the_server(connect):
    schema = {"type": "object", "properties": {"best_id": {"type": "integer"}}}
    with fake_endpoint() as endpoint:
        await connect(endpoint.base_url).complete(chat("Judge"), replace(SAMPLING, stop=("###",), json_schema=schema))
        await connect(endpoint.base_url).complete(chat("Judge"), SAMPLING)
    bound, *_, free = endpoint.requests
    assert bound["stop"] == ["###"]
    assert bound["response_format"]["type"] == "json_schema"
    assert bound["response_format"]["json_schema"]["schema"] == schema
    assert free.keys().isdisjoint({"stop", "response_format", "logprobs"})


async def test_log_probabilities_come_with_their_tokens_also_from_the_cache(connect, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(reply=lambda request: "in Paris") as endpoint:
        for _ in range(2):
            completion = await connect(endpoint.base_url, cache).complete(
                chat("Where"), replace(SAMPLING, logprobs=True)
            )
            assert [tuple(each) for each in completion.tokens] == [(" in", -0.2), (" Paris", -0.5)]
    assert len(endpoint.requests) == 1


async def test_an_endpoint_without_log_probabilities_is_told_of(connect):
    with (
        fake_endpoint(faults=[WITHOUT_LOGPROBS]) as endpoint,
        pytest.raises(RequestRefused, match="returns no log-probabilities"),
    ):
        await connect(endpoint.base_url).complete(chat("Where"), replace(SAMPLING, logprobs=True))


async def test_alternatives_are_looked_up_among_the_likely_tokens_of_each_position(connect, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    sampling = replace(SAMPLING, logprobs=True, alternatives=(" Paris", " Osk"))
    for raw in (False, True):
        with fake_endpoint(reply=lambda request: "in Paris") as endpoint:
            for _ in range(2):
                client = connect(endpoint.base_url, cache)
                completion = await client.complete(chat("Where"), replace(sampling, raw=raw))
                assert completion.alternatives == [{}, {" Paris": -0.5}]
        (request,) = endpoint.requests
        assert (request["logprobs"], request.get("top_logprobs")) == ((20, None) if raw else (True, 20))


async def test_a_raw_prompt_is_the_texts_of_the_messages_and_special_tokens_stay(connect):
    with fake_endpoint(reply=lambda request: "in Paris") as endpoint:
        client = connect(endpoint.base_url)
        messages = [*chat("### Question:"), {"role": "assistant", "content": "\nWhere"}]
        sampling = replace(SAMPLING, raw=True, stop=("###",))
        completion = await client.complete(messages, sampling)
        scored = await client.complete(messages, replace(sampling, logprobs=True))
    assert (completion.text, completion.prompt_tokens, completion.tokens) == ("in Paris", 3, None)
    assert scored.tokens == [(" in", -0.2), (" Paris", -0.5)] and scored.alternatives is None
    request = endpoint.requests[0]
    assert request["prompt"] == "### Question:\nWhere" and "messages" not in request
    assert request["skip_special_tokens"] is False and request["stop"] == ["###"]


async def test_a_reply_is_scored_by_the_log_probabilities_of_the_prompt(connect):
    with fake_endpoint(reply=lambda request: "<end>") as endpoint:
        client = connect(endpoint.base_url)
        messages = [*chat("Where is it?"), {"role": "assistant", "content": "in Paris"}]
        sampling = replace(SAMPLING, max_tokens=1, logprobs=True, alternatives=(" <end>",), score_from=3)
        completion = await client.complete(messages, sampling)
    assert completion.tokens == [(" in", -0.2), (" Paris", -0.5)]
    assert completion.alternatives == [{" <end>": -0.5}]
    (request,) = endpoint.requests
    assert request["prompt_logprobs"] == 0 and request["continue_final_message"]
    assert request["add_generation_prompt"] is False


async def test_an_endpoint_that_does_not_score_prompts_is_told_of(connect):
    plain = Fault(body=completion({"messages": chat("Where"), "logprobs": True}, "in", "fake"))
    with (
        fake_endpoint(faults=[plain]) as endpoint,
        pytest.raises(RequestRefused, match="returns no log-probabilities"),
    ):
        sampling = replace(SAMPLING, logprobs=True, score_from=1)
        await connect(endpoint.base_url).complete(chat("Where"), sampling)


# Replies of servers, as they were seen: what differs from a plain one


def reply(content: Any = "Mira", *, finish_reason: Any = "stop", usage: Any = None, **fields: Any) -> dict[str, Any]:
    """The body of a chat completion; `fields` are further ones of its message."""
    counts = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    message = {"role": "assistant", "content": content} | fields
    return {
        "id": "reply",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message, "logprobs": None}],
        "usage": counts | (usage or {}),
    }


async def said(client: Callable[[str], Client], *bodies: dict[str, Any], **sampling: Any) -> Completion:
    """What a client reads of the replies of a server, which sends one after another."""
    with fake_endpoint(faults=[Fault(body=json.dumps(body).encode()) for body in bodies]) as endpoint:
        return await client(endpoint.base_url).complete(chat("Who built it?"), replace(SAMPLING, **sampling))


@pytest.mark.parametrize(
    ("finish_reason", "kept"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("stop_sequence", "stop"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("COMPLETE", "stop"),
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("model_context_window_exceeded", "length"),
        ("repetition", "length"),
        ("CONTINUATION", "length"),
    ],
)
async def test_a_reply_is_ended_by_the_model_or_cut_whatever_the_servers_word_for_it(connect, finish_reason, kept):
    assert (await said(connect, reply(finish_reason=finish_reason))).finish_reason == kept


CALL = [{"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}]

NO_ANSWERS = [
    (reply("", finish_reason="content_filter"), "'content_filter': a filter of the provider stopped it"),
    (reply("Mi", finish_reason="content_filter: RECITATION"), "'content_filter: RECITATION': a filter"),
    (reply("Mi", finish_reason="SAFETY"), "'SAFETY': a filter"),
    (reply("Mi", finish_reason="sensitive"), "'sensitive': a filter"),
    (reply("Mi", finish_reason="MODEL_ARMOR"), "'MODEL_ARMOR': a filter"),
    (reply(None, refusal="I cannot help with that."), "the model refuses: I cannot help with that."),
    (reply([{"type": "refusal", "refusal": "I will not."}]), "the reply has a part of type 'refusal': I will not."),
    (reply(None, finish_reason="tool_calls", tool_calls=CALL), "the reply calls a tool .finish_reason 'tool_calls'"),
    (reply("I look.", tool_calls=CALL), "the reply calls a tool .finish_reason 'stop'"),
    (reply(None, function_call={"name": "find", "arguments": "{}"}), "the reply calls a tool"),
    (reply("", finish_reason="tool_calls"), "'tool_calls', the call of a tool"),
    (reply("", finish_reason="function_call_filter: MALFORMED_FUNCTION_CALL"), "the call of a tool"),
    (reply("Mira", finish_reason="paused"), "'paused', which is not known"),
    (reply(None, reasoning="Mira built it."), "no content, only reasoning"),
    (reply("", reasoning_content="Mira built it."), "no content, only reasoning"),
    (reply("\n\n", reasoning_details=[{"type": "reasoning.text", "text": "Mira."}]), "no content, only reasoning"),
    (reply([{"type": "thinking", "thinking": [{"type": "text", "text": "Mira."}]}]), "no content, only reasoning"),
    (reply("", usage={"completion_tokens_details": {"reasoning_tokens": 10}}), "no content, only reasoning"),
    (reply([{"type": "image_url", "image_url": {"url": "data:"}}]), "a part of type 'image_url'"),
    (reply("Mi", finish_reason="IMAGE_RECITATION"), "'IMAGE_RECITATION': a filter"),
    (reply("", finish_reason="UNEXPECTED_TOOL_CALL"), "the call of a tool"),
    ({"error": {"code": "401", "message": "Invalid key"}}, "an error in place of a reply: Invalid key"),
    ({"error": {"code": 402, "message": "Insufficient credits"}}, "an error in place of a reply: Insufficient credits"),
]


@pytest.mark.parametrize(("body", "why"), NO_ANSWERS)
async def test_a_reply_that_answers_nothing_is_refused_with_its_reason_and_never_kept(
    connect, waits, tmp_path, body, why
):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(reply=lambda request: "Mira", faults=[Fault(body=json.dumps(body).encode())]) as endpoint:
        client = connect(endpoint.base_url, cache)
        with pytest.raises(RequestRefused, match=why):
            await client.complete(chat("Who?"), SAMPLING)
        assert (len(endpoint.requests), len(cache)) == (1, 0)
        assert (await client.complete(chat("Who?"), SAMPLING)).text == "Mira"


BROKEN = [
    (reply("Mi", finish_reason="abort"), "the reply ended with finish_reason 'abort'"),
    (reply("", finish_reason="error"), "the reply ended with finish_reason 'error'"),
    (reply("", finish_reason="insufficient_system_resource"), "'insufficient_system_resource'"),
    ({"error": {"code": 502, "message": "Provider returned error"}}, "in place of a reply: Provider returned error"),
    ({"object": "error", "message": "engine is dead", "code": 500}, "in place of a reply: engine is dead"),
    (reply() | {"choices": []}, "a reply without choices"),
    (reply() | {"choices": None}, "a reply without choices"),
    (reply("Mi", finish_reason="TIMEOUT"), "'TIMEOUT'"),
    (reply("Mi", finish_reason="MALFORMED_RESPONSE"), "'MALFORMED_RESPONSE'"),
    (reply(finish_reason=None), "a reply without a finish reason"),
    (reply(finish_reason=""), "a reply without a finish reason"),
    ({"code": 50508, "message": "System is too busy", "data": None}, "in place of a reply: System is too busy"),
    ({"code": "Model.Error", "description": "Too busy", "link": ""}, "in place of a reply: Too busy"),
    ({"detail": [{"msg": "Too busy", "type": "load"}]}, "in place of a reply: Too busy"),
    ({"error": "Unexpected endpoint or method."}, "in place of a reply: Unexpected endpoint or method."),
]


@pytest.mark.parametrize(("body", "why"), BROKEN)
async def test_a_reply_that_the_server_broke_off_is_asked_for_again(connect, waits, body, why):
    assert (await said(connect, body, body, reply("Mira"))).text == "Mira"
    with pytest.raises(RequestRefused, match=why):
        await said(lambda address: connect(address, attempts=2), body, body)


async def test_an_answer_that_a_filter_stopped_is_not_taken_from_an_older_cache(connect, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(reply=lambda request: "Mira") as endpoint:
        client = connect(endpoint.base_url, cache)
        key = cache_key(client.endpoint, chat("Who?"), SAMPLING, 0)
        cache.put(key, Completion("", "content_filter", 3, 0, 0, 0.5))
        assert (await client.complete(chat("Who?"), SAMPLING)).text == "Mira"


@pytest.mark.parametrize("body", [NO_ANSWERS[0][0], NO_ANSWERS[4][0]])
async def test_prompts_that_a_filter_or_the_model_refuses_end_no_run(connect, body):
    with fake_endpoint(faults=itertools.repeat(Fault(body=json.dumps(body).encode()))) as endpoint:
        client = connect(endpoint.base_url)
        for sample in range(2 * REFUSALS):
            with pytest.raises(RequestRefused):
                await client.complete(chat("hi"), SAMPLING, sample=sample)


async def test_a_server_that_takes_every_reply_for_a_thought_ends_the_run(connect):
    body = reply(None, reasoning="Mira")
    with fake_endpoint(faults=itertools.repeat(Fault(body=json.dumps(body).encode()))) as endpoint:
        client = connect(endpoint.base_url)
        with pytest.raises(UserError, match=r"refused 20 requests in a row .*reasoning parser"):
            for sample in range(REFUSALS):
                with contextlib.suppress(RequestRefused):
                    await client.complete(chat("hi"), SAMPLING, sample=sample)


@pytest.mark.parametrize(
    ("body", "text", "thought"),
    [
        (reply("Mira", reasoning="She did."), "Mira", "She did."),
        (reply("Mira", reasoning_content="She did."), "Mira", "She did."),
        (reply("Mira", reasoning=None, reasoning_content=""), "Mira", ""),
        (reply("Mira", reasoning_details=[{"type": "reasoning.summary", "summary": "She."}]), "Mira", "She."),
        (reply([{"type": "text", "text": "Mi"}, {"type": "text", "text": "ra"}]), "Mira", ""),
        (reply([{"type": "text", "text": "Mira"}, {"type": "reference", "reference_ids": [2]}]), "Mira", ""),
        (
            reply(
                [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "She did."}]},
                    {"type": "text", "text": "Mira"},
                ]
            ),
            "Mira",
            "She did.",
        ),
        (reply("Mira", refusal=None, tool_calls=[], function_call=None), "Mira", ""),
        (reply(""), "", ""),
        (reply(None), "", ""),
    ],
)
async def test_a_reply_has_a_text_and_a_thought_however_they_are_sent(connect, body, text, thought):
    completion = await said(connect, body)
    assert (completion.text, completion.thought) == (text, thought)


async def test_a_thought_that_was_cut_or_stopped_is_a_reply_without_a_text(connect):
    cut = await said(connect, reply(None, reasoning="Mira or", finish_reason="length"))
    assert (cut.text, cut.thought, cut.finish_reason) == ("", "Mira or", "length")
    # The rollout draws it again without the stop string.
    for left in (None, "/think>", "</think>\n"):
        stopped = await said(connect, reply(left, reasoning="Mira or"), stop=("\n",))
        assert (stopped.text, stopped.thought) == ("", "Mira or")


@pytest.mark.parametrize(
    ("usage", "completion", "cached"),
    [
        ({}, 10, 0),
        # Within the completion tokens, as OpenAI counts, and beside them, as xAI and Gemini do.
        ({"completion_tokens_details": {"reasoning_tokens": 8}}, 10, 0),
        ({"total_tokens": 2110, "completion_tokens_details": {"reasoning_tokens": 2000}}, 2010, 0),
        ({"total_tokens": 2110}, 2010, 0),
        ({"total_tokens": None, "completion_tokens_details": {"reasoning_tokens": 2000}}, 2010, 0),
        ({"total_tokens": 0}, 10, 0),
        ({"completion_tokens": None}, 10, 0),
        ({"completion_tokens": None, "total_tokens": 100}, 0, 0),
        ({"completion_tokens": 10.0}, 10, 0),
        ({"prompt_tokens_details": {"cached_tokens": 64}}, 10, 64),
        ({"prompt_tokens_details": None, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, 10, 64),
        ({"cached_tokens": 64}, 10, 64),
    ],
)
async def test_all_tokens_that_are_billed_are_counted(connect, usage, completion, cached):
    read = await said(connect, reply(usage=usage))
    assert (read.prompt_tokens, read.completion_tokens, read.cached_tokens) == (100, completion, cached)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        # "Who built it?" has 13 bytes, "Mira Tolen" 10.
        (None, (5, 4)),
        ({}, (5, 4)),
        ({"prompt_tokens": 7}, (7, 4)),
        ({"completion_tokens": 3, "prompt_tokens": None}, (5, 3)),
        ({"total_tokens": 12, "prompt_tokens": 7}, (7, 5)),
    ],
)
async def test_tokens_that_a_server_does_not_count_are_estimated_and_told_of_once(connect, caplog, usage, counts):
    completion = await said(connect, reply("Mira Tolen") | {"usage": usage})
    assert (completion.text, completion.prompt_tokens, completion.completion_tokens) == ("Mira Tolen", *counts)
    is_estimated = (usage or {}).get("prompt_tokens") is None
    assert caplog.text.count("does not say how many tokens prompts and replies have") == is_estimated


async def test_log_probabilities_are_not_looked_for_behind_an_estimated_prompt(connect):
    body = testing.completion(REQUEST, "built in Osk", "fake") | {"usage": None}
    with pytest.raises(RequestRefused, match="does not say how many tokens a prompt has"):
        await said(connect, body, logprobs=True)


async def test_a_thought_is_part_of_an_estimate(connect):
    completion = await said(connect, reply("Mira", reasoning="x" * 300) | {"usage": None})
    assert completion.completion_tokens == (4 + 300) // 3 + 1


@pytest.mark.parametrize("usage", [{"prompt_tokens": -100}, {"completion_tokens": -1}, {"completion_tokens": 1.5}])
async def test_a_usage_that_cannot_be_is_no_reply(connect, waits, usage):
    with pytest.raises(UserError, match=r"no reply after 2 attempts \(unreadable reply"):
        await said(lambda address: connect(address, attempts=2), *[reply(usage=usage)] * 2)


SHAPES = [body for body, _ in (*NO_ANSWERS, *BROKEN)] + [
    reply("Mira", reasoning="She did.", finish_reason="length"),
    reply([{"type": "thinking", "thinking": [{"type": "text", "text": "She."}]}, {"type": "text", "text": "Mira"}]),
    reply(usage={"prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 8}}),
]


REQUEST = {"messages": chat("Who built it?"), "logprobs": True}
SCORED = replace(SAMPLING, logprobs=True)
TEXTS = [
    (testing.text_completion(REQUEST, "built in Osk", "fake"), replace(SCORED, raw=True)),
    (testing.text_completion(REQUEST, "built in Osk", "fake"), replace(SCORED, raw=True, alternatives=(" in",))),
    (testing.completion(REQUEST, "built in Osk", "fake"), SCORED),
    (testing.completion(REQUEST, "built in Osk", "fake"), replace(SCORED, alternatives=(" in",))),
    (testing.completion(REQUEST | {"prompt_logprobs": 0}, "in", "fake"), replace(SCORED, score_from=1)),
]
"""Replies with log-probabilities, as texts and as chats, and what they were asked with."""


@pytest.mark.parametrize(("shape", "sampling"), [*((shape, SAMPLING) for shape in SHAPES), *TEXTS])
def test_any_field_of_a_reply_may_be_damaged_and_the_reply_is_read_or_refused(monkeypatch, shape, sampling):
    monkeypatch.setattr(test_damage, "EVERYTHING", True)
    form = TextCompletion if sampling.raw else ChatCompletion
    for what, body in test_damage.damaged("reply", shape):
        try:
            completion = read(construct_type(type_=form, value=body), chat("Who?"), sampling, 0.5)
        except (NoAnswer, UnreadableReply, *UNREADABLE):
            continue
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
        assert isinstance(completion.text, str), what
        assert completion.finish_reason in ("stop", "length"), what
        assert min(completion.prompt_tokens, completion.completion_tokens, completion.cached_tokens) >= 0, what
        for token, logprob in completion.tokens or []:
            assert isinstance(token, str), what
            assert logprob <= 0, what
        json.dumps(asdict(completion), allow_nan=False)
