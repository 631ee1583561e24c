"""The client: caching, retries, replicas, and the errors it gives up with."""

import asyncio
import hashlib
import itertools
import json
import threading
from dataclasses import asdict, replace

import pytest
from fake_endpoint import FAULTS, Fault, default_reply, error, fake_endpoint

from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import REFUSALS, TAKE_ALL, TRIAL, Endpoint, RequestRefused, cache_key
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=40)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_extra_body_and_key_are_sent(connect, monkeypatch):
    monkeypatch.setenv("A_KEY", "secret")
    with fake_endpoint() as endpoint:
        client = connect(endpoint.base_url, extra_body={"top_k": 7}, api_key_env="A_KEY")
        await client.complete(chat("hi"), SAMPLING)
    assert endpoint.requests[0]["top_k"] == 7
    assert endpoint.headers[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("owner", "sent"),
    [
        *((owner, {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0}) for owner in TAKE_ALL),
        ("llamacpp", {"top_k": -1, "min_p": 0, "repeat_penalty": 1}),
        ("system", {}),
    ],
)
async def test_a_server_adds_no_sampling_of_its_own_to_what_the_options_say(connect, tmp_path, owner, sent):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint() as endpoint:
        endpoint.owner = owner
        for asked_first in (False, True):
            client = connect(endpoint.base_url, cache)
            if asked_first:
                await client.check()
            await client.complete(chat("hi"), SAMPLING)
    unnamed, *named = endpoint.requests
    assert unnamed.items().isdisjoint(sent.items())
    # Replies with what the server added are not taken for others; of a server that gets nothing more, they are.
    assert len(named) == bool(sent)
    assert all(request.items() >= (unnamed | sent).items() for request in named)


async def test_sampling_that_the_users_own_fields_name_or_leave_to_the_server_stays_so(connect):
    with fake_endpoint() as endpoint:
        client = connect(endpoint.base_url, extra_body={"top_k": 7, "min_p": None})
        await client.check()
        await client.complete(chat("hi"), SAMPLING)
    (request,) = endpoint.requests
    assert (request["top_k"], request["min_p"], request["repetition_penalty"]) == (7, None, 1.0)


async def test_a_server_that_this_process_started_was_told_when_it_started(connect):
    with fake_endpoint() as endpoint:
        client = connect(endpoint.base_url, revive=[lambda: None])
        await client.check()
        await client.complete(chat("hi"), SAMPLING)
    assert "top_k" not in endpoint.requests[0]


async def test_a_server_that_takes_no_such_fields_is_named_once_with_what_it_adds(connect, caplog):
    with fake_endpoint() as endpoint:
        endpoint.owner = "library"
        clients = [connect(endpoint.base_url) for _ in range(2)]
        for client in clients:
            await client.check()
    (line,) = (each for each in caplog.messages if "samples with its own" in each)
    assert "Ollama samples with its own top_k, min_p, repetition_penalty, which no option of the run names" in line
    (given,) = {frozenset(Resources({"policy": client}, Prompts()).parameters["policy"].items()) for client in clients}
    assert given == {("top_k", None), ("min_p", None), ("repetition_penalty", None)}


async def test_replicas_of_several_kinds_of_servers_get_the_names_of_all(connect, caplog):
    with fake_endpoint() as one, fake_endpoint() as other:
        one.owner, other.owner = "vllm", "llamacpp"
        client = connect(f"{one.base_url},{other.base_url}")
        await client.check()
        await client.complete(chat("hi"), SAMPLING)
        (request,) = one.requests + other.requests
        assert {"repetition_penalty": 1.0, "repeat_penalty": 1.0, "top_k": -1, "min_p": 0.0}.items() <= request.items()
        # What another kind would make of them is not known.
        other.owner = "somebody"
        client = connect(f"{one.base_url},{other.base_url}")
        await client.check()
        await client.complete(chat("hi"), SAMPLING)
    assert "repetition_penalty" not in (one.requests + other.requests)[-1]
    assert "somebody and vllm samples with its own top_k, min_p, repetition_penalty" in caplog.text
    assert client.left_to_server == ("top_k", "min_p", "repetition_penalty")


async def test_other_models_behind_the_same_proxy_say_nothing_of_this_one(connect):
    def with_another(path, reply):
        if path == "/v1/models":
            reply["data"].append({"id": "gpt", "object": "model", "created": 0, "owned_by": "openai"})
        return reply

    with fake_endpoint() as endpoint:
        endpoint.alter = with_another
        client = connect(endpoint.base_url)
        await client.check()
        await client.complete(chat("hi"), SAMPLING)
    assert endpoint.requests[0]["repetition_penalty"] == 1.0


async def test_a_proxy_in_the_environment_does_not_catch_requests_to_this_machine(connect, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with fake_endpoint() as endpoint:
        await connect(endpoint.base_url).complete(chat("hi"), SAMPLING)


# The cache


async def test_an_equal_call_is_answered_from_the_cache_even_when_it_was_empty_and_after_reopening(connect, tmp_path):
    path = tmp_path / "new" / "cache.sqlite"
    with fake_endpoint() as endpoint:
        cache = ResponseCache(path)
        assert len(cache) == 0
        client = connect(endpoint.base_url, cache)
        first = await client.complete(chat("hi"), SAMPLING)
        assert len(cache) == 1
        assert await client.complete(chat("hi"), SAMPLING) == first
        cache.close()
        reopened = ResponseCache(path)
        assert await connect(endpoint.base_url, reopened).complete(chat("hi"), SAMPLING) == first
        reopened.close()
    assert len(endpoint.requests) == 1


async def test_samples_of_one_prompt_are_asked_one_by_one(connect, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint() as endpoint:
        client = connect(endpoint.base_url, cache)
        for sample in (0, 1, 0, 1):
            await client.complete(chat("hi"), SAMPLING, sample=sample)
    assert len(endpoint.requests) == 2


async def test_without_a_cache_every_call_is_sent(connect):
    with fake_endpoint() as endpoint:
        client = connect(endpoint.base_url)
        await client.complete(chat("hi"), SAMPLING)
        await client.complete(chat("hi"), SAMPLING)
    assert len(endpoint.requests) == 2


async def test_the_same_call_made_twice_at_once_is_sent_once(connect, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(delay=0.05) as endpoint:
        client = connect(endpoint.base_url, cache)
        replies = await asyncio.gather(*(client.complete(chat(text), SAMPLING) for text in "aabab"))
    assert sorted(request["messages"][0]["content"] for request in endpoint.requests) == ["a", "b"]
    assert replies[0] == replies[1] == replies[3] != replies[2]


async def test_when_the_first_of_two_equal_calls_fails_the_second_still_gets_its_reply(connect, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(faults=["400"]) as endpoint:
        client = connect(endpoint.base_url, cache)
        first, second = await asyncio.gather(
            *(client.complete(chat("hi"), SAMPLING) for _ in range(2)), return_exceptions=True
        )
    assert isinstance(first, RequestRefused)
    assert second.text == default_reply(endpoint.requests[1])


ENDPOINT = Endpoint("http://node7:8000/v1", "a-model", extra_body={"top_k": 20})
KEY = cache_key(ENDPOINT, chat("hi"), SAMPLING, 0)


@pytest.mark.parametrize(
    ("endpoint", "messages", "sampling", "sample"),
    [
        pytest.param(ENDPOINT, chat("ho"), SAMPLING, 0, id="messages"),
        pytest.param(ENDPOINT, [{"role": "system", "content": "hi"}], SAMPLING, 0, id="role"),
        pytest.param(ENDPOINT, chat("hi"), replace(SAMPLING, temperature=0.6), 0, id="temperature"),
        pytest.param(ENDPOINT, chat("hi"), replace(SAMPLING, top_p=0.8), 0, id="top_p"),
        pytest.param(ENDPOINT, chat("hi"), replace(SAMPLING, max_tokens=41), 0, id="max_tokens"),
        pytest.param(replace(ENDPOINT, model="other"), chat("hi"), SAMPLING, 0, id="model"),
        pytest.param(replace(ENDPOINT, base_url="http://node8:8000/v1"), chat("hi"), SAMPLING, 0, id="base_url"),
        pytest.param(replace(ENDPOINT, identity="weights"), chat("hi"), SAMPLING, 0, id="identity"),
        pytest.param(replace(ENDPOINT, extra_body={"top_k": 21}), chat("hi"), SAMPLING, 0, id="extra_body"),
        pytest.param(ENDPOINT, chat("hi"), SAMPLING, 1, id="sample"),
    ],
)
def test_the_key_changes_with_all_that_can_change_the_reply(endpoint, messages, sampling, sample):
    assert cache_key(endpoint, messages, sampling, sample) != KEY


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 1},
        {"timeout": 5.0},
        {"attempts": 2},
        {"patience": 5.0},
        {"api_key_env": "OTHER"},
        {"base_url": "http://node7:8000/v1, http://node8:8000/v1"},
    ],
    ids=str,
)
def test_the_key_does_not_change_with_what_cannot(settings):
    assert cache_key(replace(ENDPOINT, **settings), chat("hi"), SAMPLING, 0) == KEY


def test_a_served_checkpoint_keeps_its_replies_when_its_port_changes():
    served = [
        Endpoint(f"http://127.0.0.1:{port}/v1", "m", identity="hash of the weights", extra_body={}) for port in (1, 2)
    ]
    assert len({cache_key(endpoint, chat("hi"), SAMPLING, 0) for endpoint in served}) == 1


# Concurrency


async def test_as_many_requests_as_allowed_are_in_flight_and_no_more(connect):
    all_three_are_there = threading.Barrier(3, timeout=30)

    def wait_for_two_others(request):
        all_three_are_there.wait()
        return "yes"

    with fake_endpoint(reply=wait_for_two_others) as endpoint:
        client = connect(endpoint.base_url, concurrency=3)
        replies = await asyncio.gather(*(client.complete(chat(str(number)), SAMPLING) for number in range(12)))
    assert [reply.text for reply in replies] == ["yes"] * 12
    assert endpoint.most_at_once == 3


# Failures


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"400", "401", "403", "404"}))
async def test_a_passing_fault_is_tried_again_and_the_reply_is_right(connect, waits, fault):
    revived = []
    with fake_endpoint(faults=[fault, fault]) as endpoint:
        client = connect(endpoint.base_url, revive=[lambda: revived.append(fault)], timeout=2.0)
        completion = await client.complete(chat("hi"), SAMPLING)
    assert completion.text == default_reply(endpoint.requests[0])
    assert endpoint.requests == [endpoint.requests[0]] * 3
    assert revived == [fault, fault]


async def test_the_server_is_waited_for_as_long_as_it_asks_but_a_minute_at_most(connect, waits):
    asked = [error(429, "slow down", Retry_After="7"), error(503, "loading", Retry_After="86400")]
    with fake_endpoint(faults=asked) as endpoint:
        await connect(endpoint.base_url).complete(chat("hi"), SAMPLING)
    assert waits == [7, 60]


async def test_without_the_servers_word_the_wait_grows_and_is_bounded(connect, waits):
    with fake_endpoint(faults=["500"] * 11) as endpoint:
        await connect(endpoint.base_url, attempts=12).complete(chat("hi"), SAMPLING)
    assert len(waits) == 11
    bounds = [min(0.5 * 2**number, 30) for number in range(11)]
    assert all(wait <= bound for wait, bound in zip(waits, bounds, strict=True))


async def test_a_faulty_endpoint_is_given_up_with_the_reason(connect, waits):
    with fake_endpoint(faults=itertools.repeat("500")) as endpoint:
        with pytest.raises(UserError, match=r"no reply after 3 attempts \(engine is dead\); finished calls") as caught:
            await connect(endpoint.base_url, attempts=3).complete(chat("hi"), SAMPLING)
        assert len(endpoint.requests) == 3
    assert "\n" not in str(caught.value)
    assert endpoint.base_url in str(caught.value)


@pytest.mark.parametrize("fault", ["cut", "reset", "429"])
async def test_every_kind_of_fault_ends_in_one_line_when_it_does_not_pass(connect, waits, fault):
    with fake_endpoint(faults=itertools.repeat(fault)) as endpoint:
        client = connect(endpoint.base_url, attempts=2, patience=0.0)
        with pytest.raises(UserError, match="no reply after 2 attempts") as caught:
            await client.complete(chat("hi"), SAMPLING)
    assert "\n" not in str(caught.value)


async def test_nothing_is_cached_of_a_fault(connect, waits, tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(faults=["empty", "400"]) as endpoint:
        with pytest.raises(RequestRefused):
            await connect(endpoint.base_url, cache).complete(chat("hi"), SAMPLING)
        assert len(cache) == 0


async def test_a_prompt_beyond_the_context_is_refused_without_a_second_try(connect, waits):
    with fake_endpoint(faults=["400"]) as endpoint:
        with pytest.raises(RequestRefused, match=r"^This model's maximum context length is 4096 tokens"):
            await connect(endpoint.base_url).complete(chat("hi"), SAMPLING)
        assert len(endpoint.requests) == 1


async def test_refusals_in_a_row_end_the_run_with_their_reason(connect):
    with fake_endpoint(refuses=lambda request: error(400, "tools are required")) as endpoint:
        client = connect(endpoint.base_url)
        for sample in range(REFUSALS - 1):
            with pytest.raises(RequestRefused):
                await client.complete(chat("hi"), SAMPLING, sample=sample)
        with pytest.raises(UserError, match=r"tools are required.*--retry_errors"):
            await client.complete(chat("hi"), SAMPLING, sample=REFUSALS)


@pytest.mark.parametrize(
    "reason",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "request (936 tokens) exceeds the available context size (512 tokens), try increasing it",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280000 tokens.",
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens",
        "Please reduce the length of the messages or completion.",
        "`inputs` must have less than 1024 tokens. Given: 2000",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000",
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
        "Your request exceeded model token limit: 131072",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081",
        "Range of input length should be [1, 30720]",
        "Prompt exceeds max length",
    ],
)
async def test_prompts_that_are_too_long_end_no_run(connect, reason):
    with fake_endpoint(refuses=lambda request: error(400, reason)) as endpoint:
        client = connect(endpoint.base_url)
        for sample in range(2 * REFUSALS):
            with pytest.raises(RequestRefused):
                await client.complete(chat("hi"), SAMPLING, sample=sample)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "The response was filtered due to the prompt", "code": "content_filter"}}),
        (400, {"error": {"message": "It was rejected because it was considered high risk", "type": "content_filter"}}),
        (400, {"error": {"message": "Content Exists Risk", "code": "invalid_request_error"}}),
        (
            400,
            {"error": {"message": "Input data may contain inappropriate content.", "code": "data_inspection_failed"}},
        ),
        (
            400,
            {"error": {"message": "Your prompt was flagged as violating our usage policy.", "code": "invalid_prompt"}},
        ),
        (400, {"error": {"message": "litellm.ContentPolicyViolationError: filtered", "code": "400"}}),
        (403, {"code": "permission-denied", "error": "Content violates usage guidelines. Failed check: BIO"}),
        (403, {"error": {"message": "The model requires moderation and your input was flagged", "code": 403}}),
    ],
)
async def test_prompts_that_a_provider_refuses_for_what_they_say_end_no_run(connect, status, body):
    with fake_endpoint(refuses=lambda request: Fault(status, json.dumps(body).encode())) as endpoint:
        client = connect(endpoint.base_url)
        for sample in range(2 * REFUSALS):
            with pytest.raises(RequestRefused):
                await client.complete(chat("hi"), SAMPLING, sample=sample)


async def test_a_reply_in_between_forgives_refusals(connect):
    refuse = error(400, "no such tool")
    faults = [*[refuse] * (REFUSALS - 1), None, *[refuse] * (REFUSALS - 1)]
    with fake_endpoint(faults=faults) as endpoint:
        client = connect(endpoint.base_url)
        for sample, fault in enumerate(faults):
            if fault is None:
                await client.complete(chat("hi"), SAMPLING, sample=sample)
            else:
                with pytest.raises(RequestRefused):
                    await client.complete(chat("hi"), SAMPLING, sample=sample)


@pytest.mark.parametrize(
    ("fault", "remedy"),
    [
        ("401", "rejects the key; set a valid one in the environment variable A_KEY .*Incorrect API key provided"),
        ("403", "rejects the key"),
        (error(403, "Your region is not served"), r"\(it says: Your region is not served\)"),
        ("404", r"has no model 'fake' .* correct model or base_url \(which usually ends in /v1\)"),
        (error(404, "No endpoint matches your data policy"), r"\(it says: No endpoint matches your data policy\)"),
    ],
)
async def test_a_wrong_key_or_address_is_named_at_once(connect, waits, fault, remedy):
    with fake_endpoint(faults=[fault]) as endpoint:
        with pytest.raises(UserError, match=remedy) as caught:
            await connect(endpoint.base_url, api_key_env="A_KEY").complete(chat("hi"), SAMPLING)
        assert len(endpoint.requests) == 1
    assert "\n" not in str(caught.value)


@pytest.fixture
def nobody(unused_tcp_port: int) -> str:
    """An address without a server."""
    return f"http://127.0.0.1:{unused_tcp_port}/v1"


async def test_an_endpoint_that_is_not_there_is_named(connect, waits, nobody):
    with pytest.raises(UserError, match=rf"{nobody}: no reply after 4 attempts .*Connect call failed") as caught:
        await connect(nobody, attempts=4, patience=0.0).complete(chat("hi"), SAMPLING)
    assert len(waits) == 3
    assert "\n" not in str(caught.value)


async def test_a_server_that_is_started_again_is_waited_for_beyond_the_attempts(connect, waits):
    with fake_endpoint(faults=["503", "reset"] * 6) as endpoint:
        completion = await connect(endpoint.base_url, attempts=2).complete(chat("hi"), SAMPLING)
    assert completion.text == default_reply(endpoint.requests[0])
    assert len(waits) == 12


async def test_the_wait_for_a_server_that_is_gone_ends(connect, waits, nobody):
    with pytest.raises(UserError, match="no reply after"):
        await connect(nobody, attempts=2, patience=100.0).complete(chat("hi"), SAMPLING)
    # The longest wait between two attempts is 30 s.
    assert 100 <= sum(waits) <= 130


async def test_what_revive_cannot_mend_ends_the_call(connect, waits):
    def revive():
        raise UserError("the vLLM server died 4 times")

    with fake_endpoint(faults=["reset"]) as endpoint, pytest.raises(UserError, match="died 4 times"):
        await connect(endpoint.base_url, revive=[revive]).complete(chat("hi"), SAMPLING)


async def test_calls_move_to_another_replica_while_a_dead_server_is_restarted_once(connect, waits, nobody):
    restarts, answered = [], threading.Event()

    def restart():
        restarts.append("begun")
        answered.wait(60)

    with fake_endpoint() as endpoint:
        client = connect(f"{nobody},{endpoint.base_url}", revive=[restart, lambda: None])
        calls = (client.complete(chat(str(number)), SAMPLING, affinity=str(number)) for number in range(20))
        replies = await asyncio.gather(*calls)
        answered.set()
    assert len(replies) == len(endpoint.requests) == 20
    assert restarts == ["begun"]


async def test_a_server_that_could_not_be_restarted_ends_the_next_call_that_fails(connect, waits):
    def restart():
        raise UserError("the vLLM server died 4 times")

    with fake_endpoint() as endpoint, fake_endpoint(faults=itertools.repeat("reset")) as faulty:
        client = connect(f"{faulty.base_url},{endpoint.base_url}", revive=[restart, lambda: None])
        with pytest.raises(UserError, match="died 4 times"):
            for number in itertools.count():
                await client.complete(chat(str(number)), SAMPLING, affinity=str(number))


# The check before a run


async def test_an_endpoint_that_serves_the_model_passes_the_check(connect):
    with fake_endpoint() as endpoint:
        await connect(endpoint.base_url).check()
    assert endpoint.requests == []


async def test_the_check_tells_which_models_there_are(connect):
    with fake_endpoint() as endpoint:
        client = connect(endpoint.base_url, model="gpt-7")
        with pytest.raises(UserError, match="does not serve model 'gpt-7'; it serves fake"):
            await client.check()


async def test_the_check_refuses_a_wrong_key(connect):
    with fake_endpoint(models_faults=["401"]) as endpoint, pytest.raises(UserError, match="OPENAI_API_KEY"):
        await connect(endpoint.base_url).check()


async def test_an_endpoint_that_does_not_list_its_models_passes_the_check(connect):
    with fake_endpoint(models_faults=["404", "403"]) as endpoint:
        await connect(endpoint.base_url, model="gpt-7").check()
        await connect(endpoint.base_url, model="gpt-7").check()


async def test_the_check_says_that_nobody_listens(connect, waits, nobody):
    with pytest.raises(UserError, match=rf"{nobody}: cannot be reached .* start the server, or correct base_url"):
        await connect(nobody).check()


async def test_the_check_says_that_something_else_listens(connect, waits):
    with fake_endpoint(models_faults=itertools.repeat("cut")) as endpoint:
        client = connect(endpoint.base_url)
        with pytest.raises(UserError, match="cannot be reached"):
            await client.check()


@pytest.mark.parametrize("fault", ["429", "503", "reset", "empty", "cut", "not an object"])
async def test_the_check_passes_over_a_passing_fault(connect, waits, fault):
    with fake_endpoint(models_faults=[fault, fault]) as endpoint:
        await connect(endpoint.base_url).check()


# Several servers of one model


async def test_requests_of_one_affinity_go_to_one_replica_and_all_replicas_work(connect):
    with fake_endpoint() as first, fake_endpoint() as second:
        client = connect(f"{first.base_url}, {second.base_url}")
        for number in range(40):
            await client.complete(chat(f"{number % 20} {number}"), SAMPLING, affinity=f"q{number % 20}")
    told = [{request["messages"][0]["content"].split()[0] for request in each.requests} for each in (first, second)]
    assert len(told[0]) > 2 and len(told[1]) > 2
    assert len(told[0]) + len(told[1]) == 20


async def test_every_replica_has_as_many_requests_in_flight_as_allowed(connect):
    with fake_endpoint(delay=0.02) as first, fake_endpoint(delay=0.02) as second:
        client = connect(f"{first.base_url},{second.base_url}", concurrency=3)
        await asyncio.gather(*(client.complete(chat(str(n)), SAMPLING, affinity=str(n)) for n in range(40)))
    assert first.most_at_once + second.most_at_once > 3


async def test_another_replica_does_the_work_of_one_that_is_down(connect, waits, nobody):
    with fake_endpoint() as endpoint:
        client = connect(f"{nobody},{endpoint.base_url}")
        await client.check()
        for number in range(20):
            await client.complete(chat(str(number)), SAMPLING, affinity=str(number))
    assert len(endpoint.requests) == 20
    # Only the first call to the dead one had to be retried.
    assert len([wait for wait in waits if wait]) <= 3


async def test_a_reply_is_known_whichever_replica_gave_it(connect, tmp_path, waits):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint() as first, fake_endpoint() as second:
        both = f"{first.base_url},{second.base_url}"
        for number in range(8):
            await connect(both, cache).complete(chat("hi"), SAMPLING, affinity=str(number))
    assert len(first.requests) + len(second.requests) == 1


async def test_a_replica_of_another_model_is_named(connect):
    with fake_endpoint() as first, fake_endpoint() as second:
        second.model = "other"
        with pytest.raises(UserError, match=rf"{second.base_url}: does not serve model 'fake'; it serves other"):
            await connect(f"{first.base_url},{second.base_url}").check()


async def test_replicas_that_are_all_down_are_named(connect, waits, nobody):
    with pytest.raises(UserError, match=rf"{nobody}: cannot be reached"):
        await connect(f"{nobody},{nobody}").check()


def test_parameters_that_are_not_used_leave_the_key_of_the_cache_as_it_was():
    """Caches of earlier versions stay valid."""
    old = ["http://a/v1", "m", chat("Where"), asdict(SAMPLING), {}, 0]
    for name in ("alternatives", "raw", "continues", "score_from"):
        del old[3][name]
    expected = hashlib.sha256(json.dumps(old, sort_keys=True).encode()).hexdigest()
    endpoint = Endpoint("http://a/v1", "m")
    assert cache_key(endpoint, chat("Where"), SAMPLING, 0) == expected
    assert cache_key(endpoint, chat("Where"), replace(SAMPLING, raw=True), 0) != expected


@pytest.mark.parametrize("status", [400, 422])
async def test_an_endpoint_that_takes_no_schema_is_asked_without_it_from_then_on(connect, status):
    unknown = error(status, "Unrecognized request argument supplied: response_format")
    with fake_endpoint(reply=lambda request: "plain", faults=[unknown]) as endpoint:
        client = connect(endpoint.base_url)
        for number in range(3):
            completion = await client.complete(
                chat(f"Judge {number}"), replace(SAMPLING, json_schema={"type": "object"})
            )
            assert completion.text == "plain"
    assert ["response_format" in request for request in endpoint.requests] == [True, False, False, False]


async def test_a_prompt_beyond_the_context_is_no_reason_to_leave_the_schema_out(connect):
    with fake_endpoint(faults=["400", "400"]) as endpoint:
        client = connect(endpoint.base_url)
        with pytest.raises(RequestRefused, match="maximum context length"):
            await client.complete(chat("Long"), replace(SAMPLING, json_schema={"type": "object"}))
        await client.complete(chat("Short"), replace(SAMPLING, json_schema={"type": "object"}))
    assert ["response_format" in request for request in endpoint.requests] == [True, False, True]


# Replies that were cut within a thought


@pytest.mark.parametrize(
    ("owner", "prompt", "trial", "text"),
    [
        # vLLM says what it made of the chat.
        ("vllm", "<assistant><think>\n", "yes", ""),
        ("vllm", "<assistant>", "yes", "Mira or Osk or"),
        ("vllm", "<assistant><think>\n\n</think>\n\n", "yes", "Mira or Osk or"),
        # Older versions do not, nor do others: the reply to a short prompt shows it.
        ("vllm", None, "One word. </think> yes", ""),
        ("sglang", None, "One word. </think> yes", ""),
        ("llamacpp", None, "One word. [/THINK] yes", ""),
        ("sglang", None, "<think> One word. </think> yes", "Mira or Osk or"),
        ("sglang", None, "yes", "Mira or Osk or"),
    ],
)
async def test_what_was_cut_within_a_thought_that_the_template_began_is_no_reply(connect, owner, prompt, trial, text):
    def said(request):
        return trial if request["messages"][-1]["content"] == TRIAL else "Mira or Osk or Tolen, who knows."

    def with_prompt(path, answer):
        if "choices" in answer:
            answer.pop("prompt_text", None)
            return answer | ({"prompt_text": prompt} if prompt else {})
        return answer

    with fake_endpoint(said) as endpoint:
        endpoint.owner, endpoint.alter = owner, with_prompt
        client = connect(endpoint.base_url)
        await client.check()
        replies = [await client.complete(chat(word), Sampling(max_tokens=4)) for word in ("Who?", "Where?")]
    assert [reply.text for reply in replies] == [text] * 2
    assert [reply.thought for reply in replies] == ["" if text else "Mira or Osk or"] * 2
    # It is found out once.
    assert len(endpoint.requests) == 2 + (1 if prompt or owner != "vllm" else 2)


async def test_a_whole_thought_without_its_beginning_says_what_a_cut_one_is(connect):
    def said(request):
        return "Mira or Osk. </think> Mira" if request["max_tokens"] > 4 else "Mira or Osk or Tolen, who knows."

    with fake_endpoint(said) as endpoint:
        endpoint.owner = "sglang"
        client = connect(endpoint.base_url)
        whole = await client.complete(chat("Who?"), Sampling(max_tokens=40))
        cut = await client.complete(chat("Who?"), Sampling(max_tokens=4))
    assert (whole.text, cut.text, cut.thought) == ("Mira or Osk. </think> Mira", "", "Mira or Osk or")
    assert len(endpoint.requests) == 2


async def test_a_cut_reply_of_which_nothing_says_whether_it_is_a_thought_stays_and_is_told_of(connect, caplog):
    with fake_endpoint(lambda request: "Mira or Osk " * 2000) as endpoint:
        endpoint.owner = "sglang"
        cut = await connect(endpoint.base_url).complete(chat("Who?"), Sampling(max_tokens=3))
    assert (cut.text, cut.thought) == ("Mira or Osk", "")
    assert "it is unknown whether they are thoughts of fake; if it thinks, raise --max_tokens" in caplog.text


@pytest.mark.parametrize(("trial", "text"), [("One word. </think> yes", ""), ("yes", "Mira or Osk")])
async def test_a_stop_string_may_end_a_thought_that_the_template_began(connect, trial, text):
    with fake_endpoint(lambda request: trial if TRIAL in str(request) else "Mira or Osk") as endpoint:
        endpoint.owner = "sglang"
        client = connect(endpoint.base_url)
        stopped = await client.complete(chat("Who?"), replace(SAMPLING, stop=("\nObservation",)))
        await client.complete(chat("Where?"), SAMPLING)
    assert (stopped.text, stopped.thought, stopped.finish_reason) == (text, "" if text else "Mira or Osk", "stop")
    # Where nothing may have ended it early nothing is asked.
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("Action: search[Osk]\nObservation", "Action: search[Osk]"),
        ("Action: search[Osk]\nObservation: a town.\nAction: finish", "Action: search[Osk]"),
        ("<think>A\nObservation?</think>Mira\nObservation: no.", "<think>A\nObservation?</think>Mira"),
        ("<think>A\nObservation?", "<think>A\nObservation?"),
    ],
)
async def test_a_stop_string_that_a_server_leaves_is_no_part_of_the_reply(connect, reply, text):
    with fake_endpoint(lambda request: reply) as endpoint:
        client = connect(endpoint.base_url)
        stopped = await client.complete(chat("Who?"), replace(SAMPLING, stop=("\nObservation",)))
        whole = await client.complete(chat("Who?"), SAMPLING)
    assert (stopped.text, whole.text) == (text, reply)
