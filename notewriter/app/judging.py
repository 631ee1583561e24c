"""Judging by hand: two texts at a time, blind, one key each; every answer is kept as it is given."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notewriter.app.application import Render
from notewriter.artifacts.hand_labels import PREFERENCES, HandLabel, Preference, read_hand_labels
from notewriter.data.by_hand.items import Item, left_index
from notewriter.ground.errors import UserError
from notewriter.ground.jsonl import Journal
from notewriter.ground.locks import locked
from notewriter.ground.loopback import body_of
from notewriter.pages.differences import UNCOMPARED, TooAlike, marked_differences

logger = logging.getLogger(__name__)

PATH = "/judge"

MAX_BODY_BYTES = 4096
"""The largest body of an answer, which is the id of an item and a word."""


class Judging:
    """A person's pass through the items, in their order, and the labels so far; `judging` opens it."""

    def __init__(self, items: Sequence[Item], judge: str, seed: int, journal: Journal) -> None:
        self.items, self.judge, self.seed = items, judge, seed
        self.journal = journal
        self.labels = read_hand_labels(journal.path)
        self._places = {item.id: place for place, item in enumerate(items)}
        self._shown: dict[str, float] = {}

    @property
    def done(self) -> int:
        """The number of items with a label."""
        return sum(item.id in self.labels for item in self.items)

    @property
    def next_place(self) -> int:
        """The place of the first item without a label; the number of items where all have one."""
        return next((place for place, item in enumerate(self.items) if item.id not in self.labels), len(self.items))

    def sides(self, item: Item) -> tuple[str, str]:
        """An item's texts as this person sees them, left and right."""
        left = left_index(item, self.seed, self.judge)
        return item.texts[left], item.texts[1 - left]

    def answer(self, identifier: str, preferred: Preference) -> None:
        """Keep an answer, which replaces an earlier one of the same item.

        Raises:
            KeyError: there is no such item.
            UserError: it cannot be written.
        """
        now = time.monotonic()
        item = self.items[self._places[identifier]]
        left, right = self.sides(item)
        label = HandLabel(
            item=item.id,
            judge=self.judge,
            question_id=item.question_id,
            stage=item.stage,
            dataset=item.dataset,
            left=left,
            right=right,
            preferred=preferred,
            seconds=round(now - self._shown.get(item.id, now), 1),
        )
        self.journal.append(label.to_dict())
        self.labels[item.id] = label

    def routes(self, render: Render) -> list[Route]:
        """The pages: an item to judge, and the address for its answer."""

        async def shown(place: int, problem: str = "") -> Response:
            progress = {"done": self.done, "all": len(self.items), "place": place, "here": PATH}
            if place == len(self.items):
                return render("judged.html.jinja", **progress, path=self.journal.path)
            item = self.items[place]
            texts = self.sides(item)
            # The clock of its answer begins.
            self._shown[item.id] = time.monotonic()
            label = self.labels.get(item.id)
            try:
                sides = await asyncio.to_thread(marked_differences, *texts)
            except TooAlike:
                sides = [(texts[0], False)], [(texts[1], False)]
                problem = problem or f"Differences are {UNCOMPARED}."
            given = label.preferred if label else None
            return render("judge.html.jinja", **progress, item=item, sides=sides, given=given, problem=problem)

        async def page(request: Request) -> Response:
            # Places in addresses begin at 1.
            at = request.query_params.get("at", "").lstrip("0")
            # No list has a place of ten digits.
            place = min(int(at[:10]) - 1, len(self.items)) if at.isascii() and at.isdecimal() else self.next_place
            return await shown(place)

        async def receive(request: Request) -> Response:
            body = await body_of(request, MAX_BODY_BYTES)
            if body is None:
                return Response("too large for an answer\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            form = parse_qs(body.decode("utf-8", "replace"))
            item, preferred = (form.get(name, [""])[0] for name in ("item", "preferred"))
            if item not in self._places or preferred not in PREFERENCES:
                return Response("no such item or answer\n", HTTPStatus.BAD_REQUEST)
            try:
                self.answer(item, preferred)
            except UserError as error:
                logger.error("%s", error)
                reply = await shown(self._places[item], f"This answer was not kept: {error}.")
                reply.status_code = HTTPStatus.INSUFFICIENT_STORAGE
                return reply
            return RedirectResponse(PATH, HTTPStatus.SEE_OTHER)

        return [Route(PATH, page), Route(PATH, receive, methods=["POST"])]


@contextmanager
def judging(items: Sequence[Item], judge: str, seed: int, folder: Path) -> Iterator[Judging]:
    """A person's pass through the items, with earlier answers; no other page has it meanwhile.

    Raises:
        UserError: the folder cannot be written, another page judges under this name, or a label is damaged.
    """
    with locked(folder, folder / f".{judge}.lock"), Journal(folder / f"{judge}.jsonl") as journal:
        yield Judging(items, judge, seed, journal)
