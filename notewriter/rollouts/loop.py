"""The loop over a run's questions: many at once, each finished one on disk, a bar that shows how far it is."""

import asyncio
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from notewriter import jsonl
from notewriter.models.client import Client, Endpoint
from notewriter.models.roles import ModelArguments, served_models
from notewriter.models.server import Server
from notewriter.records import Question
from notewriter.rollouts.resources import Resources, open_resources


async def for_each_question(
    questions: Sequence[Question],
    work: Callable[[Question], Awaitable[dict[str, Any] | None]],
    journal: Path,
    *,
    concurrency: int,
    description: str,
    clients: Collection[Client] = (),
    count: Callable[[dict[str, Any]], Mapping[str, int]] = lambda record: {},
) -> None:
    """Run `work` for every question that the journal does not hold yet, and append what it returns.

    Each record must have a `question_id`; None says that there is nothing to do for a question, and leaves no trace.
    What is finished when the run is killed stays finished.
    The first error ends the run, after the calls under way were given up. Beside the progress stand the
    completion tokens that the clients received a second, and the sums of what `count` tells of each record.
    """
    totals: Counter[str] = Counter()
    done = set()
    with jsonl.Journal(journal) as file:
        for _, record in jsonl.read(journal):
            done.add(record["question_id"])
            totals.update(count(record))
        waiting = [question for question in questions if question.id not in done]
        before = len(questions) - len(waiting)
        queue = iter(waiting)
        # The last points in time with the tokens received until then; the first and the last one give the rate.
        points = deque([_received(clients)], maxlen=50)
        # A terminal gets a bar that moves, a log file a line now and then.
        interval = 0.5 if sys.stderr.isatty() else 30.0
        with tqdm(
            total=len(questions),
            initial=before,
            desc=description,
            unit="question",
            smoothing=0.05,
            mininterval=interval,
            maxinterval=max(interval, 10.0),
        ) as bar:

            async def worker() -> None:
                for question in queue:
                    record = await work(question)
                    if record is not None:
                        file.append(record)
                        totals.update(count(record))
                    points.append(_received(clients))
                    seconds, tokens = (last - first for first, last in zip(points[0], points[-1], strict=True))
                    rate = {"tokens/s": round(tokens / max(seconds, 1e-9))} if clients else {}
                    bar.set_postfix({**rate, **totals}, refresh=False)
                    bar.update()

            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(concurrency, len(waiting))):
                        workers.create_task(worker())
            except BaseExceptionGroup as group:
                raise _first_leaf(group) from None


def run_questions(
    models: ModelArguments,
    index: Sequence[str] | None,
    questions: Sequence[Question],
    work: Callable[[Question, Resources], Awaitable[dict[str, Any] | None]],
    journal: Path,
    *,
    description: str,
    count: Callable[[dict[str, Any]], Mapping[str, int]] = lambda record: {},
) -> None:
    """`for_each_question` with the models that it needs: servers are started, and stopped at the end.

    The servers' logs go beside the journal.
    """

    async def run(roles: dict[str, tuple[Endpoint, list[Server]]]) -> None:
        async with open_resources(models, roles, index) as resources:
            await for_each_question(
                questions,
                lambda question: work(question, resources),
                journal,
                concurrency=models.concurrency,
                description=description,
                clients=resources.clients.values(),
                count=count,
            )

    with served_models(models, journal.parent) as roles:
        asyncio.run(run(roles))


def _received(clients: Collection[Client]) -> tuple[float, int]:
    """The time in seconds, and the completion tokens received until now."""
    return time.monotonic(), sum(client.received for client in clients)


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
