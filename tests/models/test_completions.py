"""What a request for a completion asks for, and what is read of its reply."""

from dataclasses import replace

import pytest
from fake_endpoint import Fault, completion, fake_endpoint

from notewriter.ground.records import Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import RequestRefused

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
    bound, free = endpoint.requests
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
