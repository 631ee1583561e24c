"""The time left of a run, from its calls: hundreds of questions are in flight before the first one is done."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.models.client import RequestRefused
from notewriter.retrieval.chain import Part, is_of_others, without_models
from notewriter.rollouts.rehearsal import Rehearsal, estimated
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.usage import Usage, usage_of

REHEARSED = 2
"""Questions that are rehearsed before a run."""

WEIGHT = 5
"""The weight of the rehearsal in finished questions; its loops run to their limits."""

AT_LEAST = 0.1
"""The share of the expected calls that a question which has made them all may still need."""


def calls_in(record: Mapping[str, Any]) -> int:
    """The model calls in a question's record."""
    return sum(tokens["calls"] for _, _, tokens in usage_of(record))


async def expected_calls(
    work: Callable[[Question, Resources], Awaitable[Mapping[str, Any] | None]] | None,
    questions: Sequence[Question],
    resources: Resources,
    parts: Sequence[Part],
    folder: Path,
) -> float | None:
    """The calls of a question, from the dry run of a folder or a rehearsal of two questions; None if neither can be.

    An upper bound, since rehearsed loops run to their limits.
    """
    if known := estimated(folder).get("estimate"):
        calls, of = float(known["tokens_in_all"].get("calls", 0)), int(known["questions"])
        return calls / max(1, of)
    if work is None or list(parts) != without_models(parts) or any(map(is_of_others, parts)):
        return None
    settings = {each.name: getattr(resources, each.name) for each in fields(Resources)} | {"budget": None}
    stage = Rehearsal(count=lambda _: 0, share=0.1, tokens_a_word=1.3, **settings)
    usage = Usage()
    sample = questions[:REHEARSED]
    try:
        for question in sample:
            usage.add(await work(question, stage) or {"usage": []})
    except (UserError, RequestRefused):
        # The run itself will say what is wrong.
        return None
    return usage.to_dict()["tokens_in_all"].get("calls", 0) / max(1, len(sample))


def seconds_left(
    finished: Sequence[int], started: Collection[int], waiting: int, rate: float, expected: float | None
) -> float | None:
    """The seconds until the last question is done; None if nothing is known yet.

    Args:
        finished: the calls of each question that is done.
        started: the calls so far of each question in flight.
        waiting: how many questions have not begun.
        rate: calls per second.
        expected: the calls of a question by the rehearsal, if there was one.
    """
    weight = WEIGHT if expected else 0
    if rate <= 0 or not (finished or weight):
        return None
    a_question = (sum(finished) + weight * (expected or 0)) / (len(finished) + weight)
    calls = sum(max(a_question - calls, AT_LEAST * a_question) for calls in started) + waiting * a_question
    return calls / rate


class Bar(tqdm):  # type: ignore[type-arg]
    """A bar over questions whose time left is set from outside; until then it is tqdm's own."""

    left: float | None = None

    @property
    def format_dict(self) -> dict[str, Any]:
        """The values that the bar is written from."""
        known = dict(super().format_dict)
        left, done = self.left, known["n"] - known["initial"]
        if left is None and done:
            left = known["elapsed"] / done * (known["total"] - known["n"])
        known["left"] = "?" if left is None else self.format_interval(0 if known["n"] == known["total"] else left)
        return known


BAR_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{left}, {rate_fmt}{postfix}]"
