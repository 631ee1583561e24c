"""Asking: a question answered step by step as it happens, by one answerer or by two side by side."""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from notewriter.app.application import Render
from notewriter.artifacts.traces import Generation, Retrieval, Step
from notewriter.evaluation.asking import AskArguments, answer, cost_of, cost_of_step, prepared
from notewriter.ground.config import check, load_places
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.ground.text import without_surrogates
from notewriter.models.roles import ModelArguments, Roles, served_models, wanted_by
from notewriter.models.servers import keep
from notewriter.pages.differences import UNCOMPARED, TooAlike, merged_differences
from notewriter.results.traces import NOTES_ROLE, note_before
from notewriter.retrieval.chain import Part
from notewriter.rollouts.method import Method
from notewriter.rollouts.resources import Resources, open_resources

logger = logging.getLogger(__name__)

PATH = "/ask"

Event = dict[str, Any]

LONG = 5_000
"""The longest note, in characters, that is compared at once."""

QUIET = 5.0
"""Seconds without a step between two messages on what an answer waits for."""


@dataclass(frozen=True)
class Answerer:
    """A method with its models, to put questions to.

    Args:
        name: what tells it from the other.
        arguments: its options.
        models: its models.
        method: its method.
        parts: its retriever.
        roles: the endpoints of its models.
    """

    name: str
    arguments: AskArguments
    models: ModelArguments
    method: Method
    parts: Sequence[Part]
    roles: Roles


@contextmanager
def answerer(arguments: AskArguments, models: ModelArguments, folder: Path) -> Iterator[Answerer]:
    """An answerer, whose servers run as long as the block.

    Raises:
        UserError: an option is not valid, or a server cannot be started.
    """
    method, parts = prepared(arguments, models)
    if models.serve:
        logger.info("starting a server for %s", models.serve)
    with served_models(models, folder) as roles:
        names = dict.fromkeys(endpoint.model for endpoint, _ in roles.values())
        yield Answerer(f"{arguments.method} with {', '.join(names)}", arguments, models, method, parts, roles)


@contextmanager
def served_together(sides: Sequence[tuple[AskArguments, ModelArguments]], folder: Path) -> Iterator[None]:
    """Start the servers of all answerers at once, so that they share them, or else the devices.

    Raises:
        UserError: an option is not valid, or a server cannot be started.
    """
    for side in sides:
        prepared(*side)
    _, models = sides[0]
    wanted = {each.key: each for _, own in sides for each in wanted_by(own).values()}
    with keep() as kept:
        kept.start([*wanted.values()], folder / "vllm.log", models.port, models.ready_timeout)
        yield


def changed(
    arguments: AskArguments, models: ModelArguments, changes: dict[str, Any]
) -> tuple[AskArguments, ModelArguments]:
    """The options of the answerer beside: those of the first with these changes.

    Raises:
        UserError: there is no such option, or a value is not valid.
    """
    own, of_models = ({each.name for each in fields(kind)} for kind in (AskArguments, ModelArguments))
    if unknown := changes.keys() - own - of_models:
        raise UserError(f"beside: unknown option {min(unknown)!r}; give options of `notewriter ask`")
    beside = replace(arguments, **{name: value for name, value in changes.items() if name in own})
    models = replace(models, **{name: value for name, value in changes.items() if name in of_models})
    check(beside)
    check(models)
    load_places(beside)
    return beside, models


class Asking:
    """The answerers and their shared resources while the page is open; `asking` opens it."""

    def __init__(self, answerers: Sequence[tuple[Answerer, Resources]]) -> None:
        self._answerers = answerers
        self._salt = secrets.token_hex()
        self._running: set[asyncio.Task[Event]] = set()

    def sides(self, question: str, blind: bool) -> list[tuple[Answerer, Resources]]:
        """The answerers from left to right; blind, the order is drawn for each question."""
        turned = blind and hashlib.sha256((self._salt + question).encode("utf-8", "replace")).digest()[0] % 2
        return [*self._answerers][:: -1 if turned else 1]

    def stop(self) -> None:
        """End the answers that are under way, each with an event on its end."""
        for task in self._running:
            task.cancel()

    def routes(self, render: Render) -> list[Route]:
        """The pages: the form with the answers' places, and the events that fill one of these."""

        async def page(request: Request) -> Response:
            question, blind = _asked(request)
            names = [answerer.name for answerer, _ in self.sides(question, blind)]
            return render("ask.html.jinja", here=PATH, question=question, blind=blind, names=names)

        async def stream(request: Request) -> Response:
            question, blind = _asked(request)
            sides = self.sides(question, blind)
            side = request.query_params.get("side", "")
            if not question or side not in map(str, range(len(sides))):
                return Response("no such question or side\n", 400)
            answering = events(question, *sides[int(side)], blind=blind, running=self._running)
            told = (f"data: {json.dumps(event)}\n\n" async for event in answering)
            return StreamingResponse(told, media_type="text/event-stream")

        return [Route(PATH, page), Route(f"{PATH}/events", stream)]


def _asked(request: Request) -> tuple[str, bool]:
    question = without_surrogates(request.query_params.get("question", "").strip())
    return question, "blind" in request.query_params


@asynccontextmanager
async def asking(answerers: Sequence[Answerer]) -> AsyncIterator[Asking]:
    """The answerers with their connections, which are closed at the end.

    Raises:
        UserError: an endpoint or the retriever cannot be used.
    """
    async with AsyncExitStack() as opened:
        resources = [
            await opened.enter_async_context(open_resources(each.models, each.roles, each.parts)) for each in answerers
        ]
        yield Asking(list(zip(answerers, resources, strict=True)))


async def events(
    question: str,
    answerer: Answerer,
    resources: Resources,
    *,
    blind: bool = False,
    running: set[asyncio.Task[Event]] | None = None,
) -> AsyncIterator[Event]:
    """The events of an answer: one for each step as it is finished, then the answer or the error.

    While no step is finished, an event names every `QUIET` seconds what the answer waits for. The rollout ends where
    nobody reads on, and where its task, which is in `running` meanwhile, is cancelled. Blind, nothing names the method
    or model.
    """
    queue: asyncio.Queue[tuple[Step, Sequence[Passage]] | None] = asyncio.Queue()
    notes: list[str] = []
    start = time.perf_counter()

    def tell(step: Step, passages: Sequence[Passage]) -> None:
        queue.put_nowait((step, passages))

    async def run() -> Event:
        try:
            trace = await answer(question, answerer.method, answerer.arguments, resources, tell)
        except UserError as error:
            return {"kind": "error", "text": str(error)}
        except Exception as error:
            logger.exception("the question %r failed", question)
            return {"kind": "error", "text": f"{type(error).__name__}; the terminal says more"}
        finally:
            queue.put_nowait(None)
        cost = "" if blind else cost_of(trace, time.perf_counter() - start)
        return {"kind": "answer", "text": trace.answer, "note": trace.note or "", "cost": cost}

    task = asyncio.create_task(run())
    tasks = set() if running is None else running
    tasks.add(task)
    try:
        while True:
            try:
                async with asyncio.timeout(QUIET):
                    told = await queue.get()
            except TimeoutError:
                yield {"kind": "waiting", "text": _waited_for(resources, time.perf_counter() - start, blind)}
                continue
            if told is None:
                break
            step, passages = told
            # Others need not wait for the comparison of long notes.
            in_thread = isinstance(step, Generation) and len(step.text) > LONG
            shown = partial(_event_of, step, passages, notes, blind)
            yield await asyncio.to_thread(shown) if in_thread else shown()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        yield ended if isinstance(ended, dict) else {"kind": "error", "text": "the page was stopped"}
    finally:
        tasks.discard(task)
        task.cancel()


def _waited_for(resources: Resources, seconds: float, blind: bool) -> str:
    """The thing that an answer waits for, in words."""
    waiting = next((client.waiting for client in resources.clients.values() if client.waiting), "")
    if waiting and blind:
        # It has the address.
        waiting = "a model's server does not answer; it is asked again"
    return waiting or f"answering for {seconds:.0f} s"


def _event_of(step: Step, passages: Sequence[Passage], notes: list[str], blind: bool) -> Event:
    """A step as the page shows it; a note is added to `notes` and compared with the one that it was written from."""
    if isinstance(step, Retrieval):
        found = [{"title": passage.title, "text": passage.text} for passage in passages]
        return {"kind": "search", "query": step.query, "passages": found, "cost": f"{step.seconds:.2f} s"}
    text = step.text.strip()
    previous, cost = "", "without a model"
    if isinstance(step, Generation):
        cost = cost_of_step(step)
    if is_note := step.role == NOTES_ROLE:
        number = note_before(step.messages, notes)
        previous = notes[number] if number >= 0 else ""
        notes.append(text)
    # A first note is not marked as a whole.
    words: list[tuple[str, str]] = [(text, "kept")]
    if previous:
        try:
            words = [*merged_differences(previous, text)]
        except TooAlike:
            cost = f"{cost}; differences are {UNCOMPARED}"
    return {
        "kind": "write",
        "stage": step.stage.rpartition("/")[2].replace("_", " "),
        "is_note": is_note,
        "text": text,
        "words": words,
        "cost": "" if blind else cost,
    }
