"""Calls through a batch API: gathered, answered, retried, and not paid for twice after a kill."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
import test_damage
from fake_batch_api import FakeBatchApi, expired, fake_batch_api, line
from fake_endpoint import completion, default_reply, fake_endpoint
from json_service import Answer

from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Sampling
from notewriter.models import batches
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint, RequestRefused
from notewriter.models.roles import ModelArguments, check_endpoints
from notewriter.rollouts.identity import differences

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=40)
REPLY = FakeBatchApi.reply


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "QUIET", 0.05)
    monkeypatch.setattr(batches, "POLL", 0.02)
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)


@pytest.fixture
def cache(tmp_path):
    cache = ResponseCache(tmp_path / "cache.sqlite")
    yield cache
    cache.close()


@pytest.fixture
async def connect(cache) -> AsyncIterator[Callable[..., Client]]:
    clients = []

    def make(api: FakeBatchApi, **settings) -> Client:
        clients.append(Client(Endpoint(api.base_url, "fake", batch=True, patience=0, **settings), cache))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


async def ask(client: Client, *texts: str) -> list[Completion]:
    chats = ([{"role": "user", "content": text}] for text in texts)
    return await asyncio.gather(*(client.complete(chat, SAMPLING) for chat in chats))


async def test_calls_are_gathered_into_a_batch_and_answered_as_they_would_be_at_once(connect):
    questions = [f"question {number}" for number in range(5)]
    with fake_batch_api(polls=2) as api:
        client = connect(api, extra_body={"top_k": 3})
        await client.check()
        replies = await ask(client, *questions)
    assert api.sizes == [5]
    sent = [request["body"] for request in api.files["file-0"]]
    assert [reply.text for reply in replies] == [default_reply(body) for body in sent]
    with fake_endpoint() as live:
        client = Client(Endpoint(live.base_url, "fake", extra_body={"top_k": 3}))
        await client.check()
        assert [reply.text for reply in await ask(client, *questions)] == [reply.text for reply in replies]
        await client.close()
    assert sorted(live.requests, key=str) == sorted(sent, key=str)


async def test_a_batch_is_submitted_at_once_when_it_is_full(connect, monkeypatch):
    monkeypatch.setattr(batches, "MAX_REQUESTS", 3)
    with fake_batch_api() as api:
        await ask(connect(api), *"abcdefg")
    assert api.sizes == [3, 3, 1]


async def test_a_batch_is_submitted_before_its_file_is_too_large(connect, monkeypatch):
    monkeypatch.setattr(batches, "MAX_BYTES", 840)
    with fake_batch_api() as api:
        await ask(connect(api), "a" * 200, "b" * 200, "c")
    assert api.sizes == [1, 2]


async def test_a_finished_call_is_answered_from_the_cache(connect):
    with fake_batch_api() as api:
        first = await ask(connect(api), "a", "b")
        assert await ask(connect(api), "a", "b") == first
    assert api.sizes == [2]


async def test_a_request_that_failed_for_the_moment_goes_into_another_batch(connect):
    failures = iter([line("", 500, {"error": {"message": "overloaded"}}), line("", 429, {"error": {}})])

    def outcome(custom_id, body):
        failed = next(failures, None) if "unlucky" in str(body) else None
        return failed | {"custom_id": custom_id} if failed else REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome) as api:
        replies = await ask(connect(api), "a", "unlucky", "c")
    assert api.sizes == [3, 1, 1]
    assert all(reply.text for reply in replies)


async def test_a_refused_request_is_refused_and_the_others_are_answered(connect):
    def outcome(custom_id, body):
        if "long" in str(body["messages"]):
            return line(custom_id, 400, {"error": {"message": "maximum context length is 4096 tokens"}})
        return REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome) as api:
        client = connect(api)
        good, bad = await asyncio.gather(ask(client, "short"), ask(client, "long"), return_exceptions=True)
        assert good[0].text
        assert isinstance(bad, RequestRefused)
        assert "maximum context length" in str(bad)
        with pytest.raises(RequestRefused):
            await ask(client, "long")
    assert api.sizes == [2, 1]


@pytest.mark.parametrize(("finish_reason", "sizes"), [("content_filter", [1, 1]), ("abort", [1, 1])])
async def test_a_reply_that_answers_nothing_is_not_read_again_from_its_batch(connect, finish_reason, sizes):
    """A filter refuses the question until it is asked anew; what was broken off goes into another batch at once."""
    reasons = iter([finish_reason])

    def outcome(custom_id, body):
        reply = REPLY(custom_id, body)
        (choice,) = reply["response"]["body"]["choices"]
        choice["finish_reason"] = next(reasons, "stop")
        return reply

    with fake_batch_api(outcome=outcome) as api:
        if finish_reason == "content_filter":
            with pytest.raises(RequestRefused, match="content_filter"):
                await ask(connect(api), "a")
        (reply,) = await ask(connect(api), "a")
    assert (reply.finish_reason, api.sizes) == ("stop", sizes)


async def test_what_an_expired_batch_left_is_sent_again(connect, caplog):
    def outcome(custom_id, body):
        if len(api.batches) > 1:
            api.end = "completed"
            return REPLY(custom_id, body)
        return expired(custom_id) if "late" in str(body) else REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome, end="expired") as api:
        replies = await ask(connect(api), "early", "late", "later")
    assert api.sizes == [3, 2]
    assert all(reply.text for reply in replies)


@pytest.mark.parametrize("lost", [None, "not JSON", '{"custom_id": 3}', "[]"])
async def test_a_request_without_a_readable_line_is_sent_again(connect, caplog, lost):
    def outcome(custom_id, body):
        return lost if len(api.batches) == 1 and "lost" in str(body) else REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome) as api:
        replies = await ask(connect(api), "kept", "lost")
    assert api.sizes == [2, 1]
    assert all(reply.text for reply in replies)
    assert "without a reply to 1 of 2 requests" in caplog.text


async def test_any_field_of_a_line_may_be_damaged_and_its_call_is_answered_or_refused(connect, monkeypatch):
    monkeypatch.setattr(test_damage, "EVERYTHING", True)
    monkeypatch.setattr("notewriter.models.client.REFUSALS", 1000)
    lines = dict(enumerate(each for _, each in test_damage.damaged("line", REPLY("its id", {"messages": []}))))

    def outcome(custom_id, body):
        number = int(body["messages"][-1]["content"])
        if not isinstance(lines.get(number), dict):
            return REPLY(custom_id, body)
        return json.dumps(lines.pop(number)).replace("its id", custom_id)

    numbers = [*map(str, lines), "1000"]
    with fake_batch_api(outcome=outcome) as api:
        there = connect(api, attempts=2)
        ends = await asyncio.gather(*(ask(there, number) for number in numbers), return_exceptions=True)
    faults = [end for end in ends if not isinstance(end, list | RequestRefused | UserError)]
    assert not faults
    assert sum(isinstance(end, list) for end in ends) > len(ends) / 2
    assert isinstance(ends[-1], list)


async def test_a_batch_without_failed_requests_may_have_an_empty_file_of_them(connect):
    with fake_batch_api(empty_files=True) as api:
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert api.sizes == [2]


async def test_an_api_may_count_the_requests_of_a_batch_in_part(connect):
    counted = {"id": "batch_0", "object": "batch", "created_at": 0, "status": "in_progress"}
    counted["request_counts"] = {"total": 1}
    with fake_batch_api(faults=[("GET /batches/", Answer(body=counted))]) as api:
        assert all(reply.text for reply in await ask(connect(api), "hi"))


async def test_requests_of_a_batch_whose_files_are_empty_are_sent_again(connect):
    def outcome(custom_id, body):
        return REPLY(custom_id, body) if len(api.batches) > 1 else None

    with fake_batch_api(outcome=outcome, empty_files=True) as api:
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert api.sizes == [2, 2]


async def test_replies_are_kept_if_the_file_of_failed_requests_cannot_be_read(connect, cache):
    def outcome(custom_id, body):
        return line(custom_id, 400, {"error": {"message": "no"}}) if "bad" in str(body) else REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome, faults=[("GET /files/error", Answer(503, {}))] * 3) as api:
        client = connect(api, attempts=3)
        good, bad = await asyncio.gather(ask(client, "good"), ask(client, "bad"), return_exceptions=True)
        assert good[0].text
        assert isinstance(bad, UserError)
        assert len(cache.execute("SELECT * FROM batched")) == 1
        with pytest.raises(RequestRefused):
            await ask(connect(api), "bad")
    assert api.sizes == [2]


@pytest.mark.parametrize("fault", [Answer(429, {}), Answer(500, {}), Answer(drop=True), Answer(body=b"<html>")])
@pytest.mark.parametrize("at", ["POST /files", "POST /batches", "GET /batches/", "GET /files/"])
async def test_faults_of_the_api_are_waited_out(connect, fault, at):
    with fake_batch_api(faults=[(at, fault)] * 2, polls=1) as api:
        assert (await ask(connect(api), "a"))[0].text
    assert api.sizes == [1]


async def test_a_batch_whose_creation_was_not_acknowledged_is_not_created_twice(connect):
    with fake_batch_api(faults=[("POST /batches", Answer(500, {}, {"X-After": "yes"}))]) as api:
        await ask(connect(api), "a", "b")
    assert api.sizes == [2]


async def test_an_unreachable_api_ends_the_run_and_the_batch_is_fetched_later(connect):
    with fake_batch_api(faults=[("GET /batches/", Answer(503, {}))] * 3) as api:
        with pytest.raises(UserError, match=r"batch API does not answer .*run the same command again"):
            await ask(connect(api, attempts=3), "a", "b")
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert api.sizes == [2]


@pytest.mark.parametrize("status", [None, 3, "lost", ["completed"]])
async def test_a_batch_of_an_unknown_status_is_not_polled_for_ever_and_is_fetched_later(connect, status):
    with fake_batch_api(end=status) as api:
        with pytest.raises(UserError, match=r"batch_0 has the status .*run the same command again"):
            await ask(connect(api, attempts=3), "hi")
        assert api.calls["GET /batches/batch_0"] == 3
        api.end = "completed"
        await ask(connect(api, attempts=3), "hi")
        assert len(api.batches) == 1


async def interrupted(client: Client, until: Callable[[], bool], *texts: str) -> None:
    """Ask, and end as by a kill as soon as `until` holds."""
    asking = asyncio.create_task(ask(client, *texts))
    while not until():
        await asyncio.sleep(0.005)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await client.close()


async def test_a_killed_run_fetches_the_replies_of_its_running_batch(connect, cache):
    with fake_batch_api(polls=10**6) as api:
        await interrupted(connect(api), lambda: api.calls["GET /batches/batch_0"] > 0, "a", "b", "c")
        api.polls = 0
        client = connect(api)
        # They need not all be asked at once, and new ones get a batch of their own.
        assert (await ask(client, "a"))[0].text
        assert all(reply.text for reply in await ask(client, "b", "new", "c"))
        assert client.received > 0
    assert api.sizes == [3, 1]
    assert cache.execute("SELECT * FROM batched") == []


async def test_a_run_killed_before_it_knew_its_batch_finds_it_by_its_file(connect, cache):
    with fake_batch_api(polls=10**6) as api:
        await interrupted(connect(api), lambda: api.calls["GET /batches/batch_0"] > 0, "a", "b")
        cache.execute("UPDATE batched SET batch = NULL")
        api.polls = 0
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert api.sizes == [2]


async def test_a_run_killed_before_it_created_its_batch_creates_it(connect):
    with fake_batch_api(faults=[("POST /batches", Answer(500, {}))] * 10**4) as api:
        client = connect(api, attempts=10**6)
        await interrupted(client, lambda: api.calls["POST /batches"] > 2, "a", "b")
        api.faults.clear()
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert api.sizes == [2]
    assert api.calls["POST /files"] == 1


async def test_requests_of_a_batch_that_no_longer_exists_are_sent_again(connect, caplog):
    with fake_batch_api(polls=10**6) as api:
        await interrupted(connect(api), lambda: api.calls["GET /batches/batch_0"] > 0, "a", "b")
        api.batches.clear()
        api.polls = 0
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert "no longer exists" in caplog.text


async def test_requests_of_a_batch_whose_replies_were_deleted_are_sent_again(connect):
    with fake_batch_api(polls=10**6) as api:
        await interrupted(connect(api), lambda: api.calls["GET /batches/batch_0"] > 0, "a", "b")
        api.faults.append(("GET /files/", Answer(404, {"error": {"message": "no such file"}})))
        api.polls = 0
        assert all(reply.text for reply in await ask(connect(api), "a", "b"))
    assert api.sizes == [2, 2]


async def test_replies_beside_a_deleted_file_are_not_asked_for_again(connect):
    def outcome(custom_id, body):
        return expired(custom_id) if "late" in str(body) and len(api.batches) == 1 else REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome, polls=10**6) as api:
        await interrupted(connect(api), lambda: api.calls["GET /batches/batch_0"] > 0, "a", "b", "late")
        api.faults.append(("GET /files/error", Answer(404, {"error": {"message": "no such file"}})))
        api.polls = 0
        client = connect(api)
        # The others are asked for after the batch was read.
        assert (await ask(client, "late"))[0].text
        assert all(reply.text for reply in await ask(client, "a", "b"))
    assert api.sizes == [3, 1]


async def test_a_cancelled_batch_ends_the_run_and_what_it_finished_is_kept(connect):
    def outcome(custom_id, body):
        return REPLY(custom_id, body) if "first" in str(body) else None

    with fake_batch_api(outcome=outcome, end="cancelled") as api:
        with pytest.raises(UserError, match=r"batch batch_0 is cancelled; finished calls are kept"):
            await ask(connect(api), "first", "second")
        api.outcome, api.end = None, "completed"
        assert all(reply.text for reply in await ask(connect(api), "first", "second"))
    assert api.sizes == [2, 1]


async def test_a_batch_that_fails_says_why(connect):
    with (
        fake_batch_api(outcome=lambda *_: None, end="failed") as api,
        pytest.raises(UserError, match=r"batch batch_0 is failed \(too many tokens\)"),
    ):
        await ask(connect(api), "a")


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "rejects the key"), (404, "has no batch API; remove `batch: true`"), (400, "refuses the batch")],
)
async def test_an_api_that_cannot_be_used_says_so(connect, status, message):
    with (
        fake_batch_api(faults=[("POST /files", Answer(status, {"error": {"message": "no"}}))]) as api,
        pytest.raises(UserError, match=message),
    ):
        await ask(connect(api), "a")


async def test_a_schema_that_the_api_refuses_is_left_out_in_the_next_batch(connect):
    def outcome(custom_id, body):
        if "response_format" in body:
            return line(custom_id, 400, {"error": {"message": "no schemas"}})
        return REPLY(custom_id, body)

    with fake_batch_api(outcome=outcome) as api:
        sampling = replace(SAMPLING, json_schema={"type": "object"})
        assert (await connect(api).complete([{"role": "user", "content": "a"}], sampling)).text
    assert api.sizes == [1, 1]


@pytest.mark.parametrize("endpoint", [{"serve": "m"}, {"base_url": "http://a/v1,http://b/v1", "model": "m"}])
def test_a_batch_needs_one_api(endpoint):
    with pytest.raises(UserError, match=r"models: judge: batch needs the base_url of one batch API"):
        check_endpoints(ModelArguments(models={"judge": endpoint | {"batch": True}}))


def test_a_run_may_go_on_without_batches():
    before = {"models": {"judge": {"base_url": "http://a/v1", "model": "m", "batch": True}}}
    assert differences(before, {"models": {"judge": {"base_url": "http://b/v1", "model": "m"}}}) == {}


@pytest.mark.parametrize(("at_once", "text"), [("One word. </think> yes", ""), ("yes", "Mira or"), ("", "Mira or")])
async def test_a_reply_outside_of_batches_shows_whether_those_that_were_cut_are_thoughts(
    connect, caplog, at_once, text
):
    def outcome(custom_id, body):
        return line(custom_id, 200, json.loads(completion(body | {"max_tokens": 2}, "Mira or Osk", "fake")))

    with fake_batch_api(outcome=outcome, at_once=at_once) as api:
        replies = await ask(connect(api), "Who?", "Where?")
    assert [reply.text for reply in replies] == [text] * 2
    assert api.calls["POST /chat/completions"] == 1 and api.sizes == [2]
    assert ("it is unknown whether they are thoughts" in caplog.text) == (not at_once)
