"""Running the questions of a run concurrently, with a journal of finished ones and a progress bar."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from notewriter.artifacts.run_record import add_parameters
from notewriter.artifacts.trackers import Track
from notewriter.ground import jsonl
from notewriter.ground.errors import first_leaf
from notewriter.ground.event_loop import run_async
from notewriter.ground.records import Question
from notewriter.models.client import Client
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments, Roles, served_models
from notewriter.retrieval.chain import Part
from notewriter.rollouts.resources import Resources, budget_of, open_resources

INTERVAL, INTERVAL_IN_LOG = 0.5, 10.0
"""Seconds between two states of a progress bar."""

Record = dict[str, Any]
"""The record of a finished question, as JSON."""


async def for_each_question(
    questions: Sequence[Question],
    work: Callable[[Question], Awaitable[Record | None]],
    journal: Path,
    *,
    concurrency: int,
    description: str,
    clients: Collection[Client] = (),
    track: Track | None = None,
    count: Callable[[Record], Mapping[str, int]] = lambda record: {},
) -> None:
    """Run `work` for every question missing from the journal, and append its record.

    Each record needs a `question_id`; None means that there is nothing to do and is not recorded. Finished questions
    survive a kill. The first error cancels the calls in flight and ends the run.

    The progress bar also shows the completion tokens per second received by `clients`, and the sums of `count` over all
    records. `track` gets the same.
    """
    totals: Counter[str] = Counter()
    done = set()
    with jsonl.Journal(journal) as file:
        for _, record in jsonl.read(journal):
            done.add(record["question_id"])
            totals.update(count(record))
        waiting = [question for question in questions if question.id not in done]
        queue = iter(waiting)

        def received() -> int:
            return sum(client.received for client in clients)

        def speed() -> int:
            return round((received() - before) / max(time.monotonic() - start, 1e-9))

        start, before = time.monotonic(), received()
        # A terminal gets a moving bar, a log file an occasional line.
        interval = INTERVAL if sys.stderr.isatty() else INTERVAL_IN_LOG
        with tqdm(
            total=len(questions),
            initial=len(questions) - len(waiting),
            desc=description,
            unit="question",
            mininterval=interval,
            maxinterval=max(interval, 10.0),
            # No moving average: after a resumption the first questions finish at once, from the cache, which would
            # distort it.
            smoothing=0,
        ) as bar:

            def tell() -> None:
                if track:
                    track({**totals, "questions": bar.n, "tokens_per_second": speed()}, int(bar.n))

            async def tick() -> None:
                """Move the time on before the first question is done."""
                while True:
                    await asyncio.sleep(interval)
                    bar.refresh()
                    tell()

            async def worker() -> None:
                for question in queue:
                    record = await work(question)
                    if record is not None:
                        file.append(record)
                        totals.update(count(record))
                    bar.set_postfix({**({"tokens/s": speed()} if clients else {}), **totals}, refresh=False)
                    bar.update()

            ticking = asyncio.create_task(tick())
            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(concurrency, len(waiting))):
                        workers.create_task(worker())
            except BaseExceptionGroup as group:
                raise first_leaf(group) from None
            finally:
                ticking.cancel()
            tell()


def run_questions(
    models: ModelArguments,
    retriever: Sequence[Part],
    questions: Sequence[Question],
    work: Callable[[Question, Resources], Awaitable[Record | None]],
    journal: Path,
    *,
    description: str,
    count: Callable[[Record], Mapping[str, int]] = lambda record: {},
    costs: CostArguments | None = None,
    track: Track | None = None,
) -> None:
    """`for_each_question` with the configured models (`served_models`).

    The servers' logs, and the spending if `costs` sets a limit, are written beside the journal.
    """

    async def run(roles: Roles) -> None:
        budget = budget_of(costs, models, roles, journal.parent) if costs else None
        async with open_resources(models, roles, retriever, budget) as resources:
            try:
                await resources.try_out()
                await for_each_question(
                    questions,
                    lambda question: work(question, resources),
                    journal,
                    concurrency=models.concurrency,
                    description=description,
                    clients=resources.clients.values(),
                    track=track,
                    count=count,
                )
            finally:
                add_parameters(journal.parent, resources.parameters)

    with served_models(models, journal.parent) as roles:
        run_async(run(roles))
