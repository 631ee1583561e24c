import asyncio
import contextlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="needs the extra `serve`")

import httpx2
import openai
from fake_endpoint import fake_endpoint

from notewriter.app import asking
from notewriter.app.application import AppSection, make_app
from notewriter.evaluation.asking import AskArguments
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.models import servers
from notewriter.models.roles import ModelArguments
from notewriter.retrieval import bm25

HOSTILE = "</script><script>alert(1)</script>"
DEEPNOTE = {"max_step": 1, "max_failure": 1, "top_k": 2}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ask")
    bm25.build(
        [Passage("p1", "Bridge", "Mira built the bridge."), Passage("p2", HOSTILE, "The bridge flows.")], folder / "one"
    )
    return str(folder / "one")


@pytest.fixture
def options(index, tmp_path):
    """The options of an answerer at an endpoint."""

    def of(endpoint, **changes):
        arguments = AskArguments(index=[index], method_options=DEEPNOTE, output_dir=str(tmp_path))
        models = ModelArguments(base_url=endpoint.base_url, model=endpoint.model, cache=str(tmp_path / "cache.sqlite"))
        return asking.changed(arguments, models, changes)

    return of


@contextlib.asynccontextmanager
async def opened(*answerers_options, folder):
    """What the page asks with; a command opens its answerers before there is a loop."""
    with contextlib.ExitStack() as stack:
        answerers = [
            await asyncio.to_thread(stack.enter_context, asking.answerer(*each, folder)) for each in answerers_options
        ]
        async with asking.asking(answerers) as asked:
            yield asked


@contextlib.asynccontextmanager
async def browser(*answerers_options, folder):
    """A client that has opened the page of these answerers."""
    async with opened(*answerers_options, folder=folder) as asked:
        app = make_app([AppSection(asking.PATH, "Ask", "", asked.routes)], "right", 8002)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8002") as client:
            await client.get("/?token=right")
            yield client


@pytest.fixture
def ask(options, tmp_path):
    """The page of a question and the events of each of its sides; `beside` are the options of a second answerer."""

    async def ask_it(reply, question="Who built the bridge?", beside=None, blind=False, faults=None):
        with fake_endpoint(reply, faults) as endpoint:
            answerers = [options(endpoint)] + ([options(endpoint, **beside)] if beside is not None else [])
            async with browser(*answerers, folder=tmp_path) as client:
                asked = {"question": question} | ({"blind": "1"} if blind else {})
                page = await client.get("/ask", params=asked)
                sides = []
                for side in range(len(answerers)):
                    reply = await client.get("/ask/events", params=asked | {"side": str(side)})
                    assert reply.headers["content-type"].startswith("text/event-stream")
                    sides.append([json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n\n") if line])
                return page.text, sides

    return ask_it


async def test_a_note_grows_step_by_step(ask):
    replies = iter(["Mira built it.", "the bridge", "Mira built the old bridge.", '{"status": "True"}', "Mira"])
    page, (events,) = await ask(lambda request: next(replies))
    assert 'data-events="/ask/events?question=Who+built+the+bridge%3F&amp;side=0"' in page
    assert [event["kind"] for event in events] == [
        "search",
        "write",
        "write",
        "search",
        "write",
        "write",
        "write",
        "answer",
    ]
    assert events[0]["query"] == "Who built the bridge?"
    assert {"title": "Bridge", "text": "Mira built the bridge."} in events[0]["passages"]
    first, grown = (event for event in events if event.get("is_note"))
    assert first["words"] == [["Mira built it.", "kept"]]
    assert [(word.strip(), change) for word, change in grown["words"]] == [
        ("Mira", "kept"),
        ("built", "kept"),
        ("it.", "dropped"),
        ("the", "added"),
        ("old", "added"),
        ("bridge.", "added"),
    ]
    assert (events[-1]["text"], events[-1]["note"]) == ("Mira", "Mira built the old bridge.")
    assert re.fullmatch(r"searches: 2, calls: 5, \d+ \+ \d+ tokens, \d+\.\d s", events[-1]["cost"])


async def test_each_step_is_told_before_the_next_one_is_asked_for(options, tmp_path):
    asked = []

    def reply(request):
        asked.append(len(seen))
        return f"step {len(asked)}"

    seen = []
    with fake_endpoint(reply) as endpoint:
        async with opened(options(endpoint), folder=tmp_path) as page:
            async for event in asking.events("Who?", *page.sides("Who?", False)[0]):
                seen.append(event)
    assert asked == sorted(asked) and asked[0] == 1 and asked[-1] >= 5


async def test_while_the_models_server_is_gone_the_page_is_told(options, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "QUIET", 0.2)
    with fake_endpoint(lambda request: "step") as endpoint:
        async with opened(options(endpoint), folder=tmp_path) as page:
            answerer, resources = page.sides("Who?", False)[0]
            (client,) = resources.clients.values()

            async def gone(api, call):
                raise openai.APIConnectionError(request=httpx2.Request("POST", endpoint.base_url))

            monkeypatch.setattr(client, "_ask_once", gone)
            told = await first_told(asking.events("Who?", answerer, resources))
            assert told.startswith(f"{endpoint.base_url} does not answer (Connection error.)")
            assert told.endswith("it is asked again, for up to 300 s")
            blind = await first_told(asking.events("Who else?", answerer, resources, blind=True))
            assert blind == "a model's server does not answer; it is asked again"


async def first_told(events):
    """What the page is told first of what is waited for, once a call has failed."""
    async for event in events:
        if event["kind"] == "waiting" and "answering" not in event["text"]:
            await events.aclose()
            return event["text"]


async def test_a_silent_model_is_told_too(options, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "QUIET", 0.2)
    with fake_endpoint(lambda request: "step", delay=1) as endpoint:
        async with opened(options(endpoint), folder=tmp_path) as page:
            events = asking.events("Who?", *page.sides("Who?", False)[0])
            waiting = [event async for event in events if event["kind"] == "waiting"]
    assert waiting and all(re.fullmatch(r"answering for \d+ s", event["text"]) for event in waiting)


async def test_answers_that_are_under_way_end_when_the_page_is_stopped(options, tmp_path, caplog):
    with fake_endpoint(lambda request: "step", delay=0.2) as endpoint:
        async with opened(options(endpoint), folder=tmp_path) as page:
            running = set()
            streams = [asking.events(f"Who {n}?", *page.sides("", False)[0], running=running) for n in range(4)]
            monitored = [asyncio.create_task(all_of(stream)) for stream in streams]
            while len(running) < 4 or not endpoint.requests:
                await asyncio.sleep(0.01)
            page._running = running
            page.stop()
            for events in await asyncio.gather(*monitored):
                assert events[-1] == {"kind": "error", "text": "the page was stopped"}
    assert running == set() and caplog.text == ""


async def all_of(events):
    return [event async for event in events]


async def test_the_rollout_ends_where_nobody_reads_on(options, tmp_path):
    with fake_endpoint(lambda request: "step", delay=0.1) as endpoint:
        async with opened(options(endpoint), folder=tmp_path) as page:
            events = asking.events("Who?", *page.sides("Who?", False)[0])
            await anext(events)
            await events.aclose()
            await asyncio.sleep(0.5)
    assert len(endpoint.requests) <= 1


async def test_two_answerers_stand_side_by_side(ask):
    page, (first, second) = await ask(lambda request: "Mira", beside={"method": "vanilla", "method_options": {}})
    assert re.findall(r"<h2>(.*?) <span", page) == ["deepnote with fake", "vanilla with fake"]
    assert len(first) > len(second) == 3 and first[-1]["text"] == second[-1]["text"] == "Mira"


async def test_blind_neither_side_says_who_it_is_and_the_order_is_drawn(options, tmp_path):
    vanilla = {"method": "vanilla", "method_options": {}}
    with fake_endpoint(lambda request: "Mira") as endpoint:
        async with browser(options(endpoint), options(endpoint, **vanilla), folder=tmp_path) as client:
            orders = set()
            for number in range(12):
                page = (await client.get("/ask", params={"question": f"Who {number}?", "blind": "1"})).text
                before, told = page.split("Which is which")
                assert "deepnote" not in before and "vanilla" not in before and "Answer 2" in before
                orders.add(tuple(re.findall(r"<li>(\w+) with", told)))
            assert orders == {("deepnote", "vanilla"), ("vanilla", "deepnote")}
            events = (await client.get("/ask/events", params={"question": "Who?", "blind": "1", "side": "0"})).text
            assert "deepnote" not in events and "vanilla" not in events and "tokens" not in events


async def test_hostile_text_is_text(ask):
    page, (events,) = await ask(lambda request: HOSTILE, question=HOSTILE)
    assert "<script>alert" not in page and "&lt;/script&gt;" in page
    # JSON for the page's script, which makes text nodes of it.
    assert events[-1]["text"] == HOSTILE


async def test_a_note_that_no_model_wrote_is_shown_too(options, tmp_path):
    controlled = {"models": {"notes": {"control": "lead", "words": 4}}}
    with fake_endpoint(lambda request: "Mira") as endpoint:
        async with opened(options(endpoint, **controlled), folder=tmp_path) as page:
            events = [event async for event in asking.events("the bridge", *page.sides("", False)[0])]
    notes = [event for event in events if event.get("is_note")]
    assert notes and all(note["cost"] == "without a model" and note["text"] for note in notes)


async def test_an_error_of_the_endpoint_is_told_on_the_page(ask):
    _, (events,) = await ask(lambda request: "Mira", faults=["400"])
    assert events[-1]["kind"] == "error" and "rejected a request" in events[-1]["text"]
    assert "context length is 4096" in events[-1]["text"]


async def test_without_a_question_the_page_is_a_form(options, tmp_path):
    with fake_endpoint(lambda request: "Mira") as endpoint:
        async with browser(options(endpoint), folder=tmp_path) as client:
            page = (await client.get("/ask")).text
            assert 'name="question"' in page and "data-events" not in page and "blind" not in page
            for wrong in (
                {},
                {"question": "Who?"},
                {"question": "Who?", "side": "1"},
                {"question": "Who?", "side": "²"},
            ):
                assert (await client.get("/ask/events", params=wrong)).status_code == 400
    assert endpoint.requests == []


def test_servers_of_two_answerers_start_together_and_the_model_of_both_has_one(
    options, tmp_path, tiny_model, monkeypatch
):
    calls = []

    @contextlib.contextmanager
    def serve(path, options, *, log, **settings):
        calls.append((Path(path).name, log.name))
        yield SimpleNamespace(base_url=f"http://127.0.0.1:{8000 + len(calls)}/v1", ensure_alive=lambda: None)
        calls.append(Path(path).name)

    monkeypatch.setattr(servers, "serve", serve)
    writers = [str(tmp_path / name) for name in ("one", "two")]
    for writer in writers:
        shutil.copytree(tiny_model, writer)
    with fake_endpoint() as endpoint:
        sides = [
            options(endpoint, models={"notes": {"serve": writer}, "answer": {"serve": writers[0]}})
            for writer in writers
        ]
        with asking.served_together(sides, tmp_path), contextlib.ExitStack() as stack:
            answerers = [stack.enter_context(asking.answerer(*side, tmp_path)) for side in sides]
            notes, answers = ([each.roles[role][0].base_url for each in answerers] for role in ("notes", "answer"))
    assert calls == [("one", "vllm-0.log"), ("two", "vllm-1.log"), "two", "one"]
    assert notes == ["http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1"] and answers == [notes[0]] * 2


@pytest.mark.parametrize(
    ("beside", "problem"),
    [
        ({"colour": 1}, "beside: unknown option 'colour'"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"method": "deepnotes"}, "unknown method 'deepnotes'"),
        ({"serve": "models/x"}, "both serve and base_url are set"),
    ],
)
def test_a_second_answerer_that_cannot_be_is_one_line(options, tmp_path, beside, problem):
    with (
        fake_endpoint() as endpoint,
        pytest.raises(UserError, match=problem),
        asking.answerer(*options(endpoint, **beside), tmp_path),
    ):
        pass
