"""Searching for every question with a chain: first one at a time, for latencies, then many at once, for throughput."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

from tqdm import tqdm

from notewriter.ground import jsonl, typed
from notewriter.ground.records import Question, SearchPart
from notewriter.retrieval.chain import Chain, Part

L = TypeVar("L")


class Searched(TypedDict):
    """A line of searches.jsonl: what a chain found for a question, in how many seconds."""

    chain: str
    question_id: str
    passages: list[str]
    seconds: float
    parts: list[SearchPart]


class Load(TypedDict):
    """A line of loads.jsonl: how a chain fares with many questions at once, and what it occupies.

    `memory` is the growth of this process's memory in bytes while the chain was opened and searched, None if the
    system does not say; `size` the bytes of its indexes on disk.
    """

    chain: str
    queries_per_second: float
    concurrency: int
    memory: int | None
    size: int


async def search_all(
    name: str, parts: Sequence[Part], questions: Sequence[Question], folder: Path, *, top_k: int, concurrency: int
) -> None:
    """Append what is missing of a chain's searches and load to the journals in a run folder.

    Raises:
        UserError: the chain cannot be opened, or a search fails.
    """
    done = {question_id for chain, question_id in read_searches(folder / "searches.jsonl") if chain == name}
    waiting = [question for question in questions if question.id not in done]
    if not waiting and name in read_loads(folder / "loads.jsonl"):
        return
    before = resident_bytes()
    # Without a cache of a reranking model's replies, which would take no time the second time.
    chain = Chain(parts)
    try:
        await chain.check()
        # Opens files and loads what is loaded lazily.
        await chain.search(questions[0].question, top_k, chain.scope_of(questions[0]))
        bar = tqdm(waiting, desc=name, unit="question", total=len(questions), initial=len(questions) - len(waiting))
        with jsonl.Journal(folder / "searches.jsonl") as journal, bar:
            for question in bar:
                start = time.perf_counter()
                result = await chain.search(question.question, top_k, chain.scope_of(question))
                seconds = round(time.perf_counter() - start, 6)
                ids = [passage.id for passage in result.passages]
                journal.append(
                    dict(
                        Searched(chain=name, question_id=question.id, passages=ids, seconds=seconds, parts=result.parts)
                    )
                )
        rate = await _throughput(chain, questions, top_k, concurrency)
        after = resident_bytes()
        load = Load(
            chain=name,
            queries_per_second=round(rate, 2),
            concurrency=concurrency,
            memory=None if before is None or after is None else max(0, after - before),
            size=sum(_size(Path(part["index"])) for part in parts if "index" in part),
        )
        with jsonl.Journal(folder / "loads.jsonl") as journal:
            journal.append(dict(load))
    finally:
        await chain.close()


def read_searches(path: Path) -> dict[tuple[str, str], Searched]:
    """Chain and question id -> the search.

    Raises:
        UserError: a line is not a search.
    """
    return {(line["chain"], line["question_id"]): line for line in _lines(path, Searched)}


def read_loads(path: Path) -> dict[str, Load]:
    """Chain -> its load.

    Raises:
        UserError: a line is not a load.
    """
    return {line["chain"]: line for line in _lines(path, Load)}


def _lines(path: Path, kind: type[L]) -> Iterator[L]:
    for number, record in jsonl.read(path, journal=True):
        yield typed.read(record, kind, f"{path}:{number}", "remove the line and run the same command again")


async def _throughput(chain: Chain, questions: Sequence[Question], top_k: int, concurrency: int) -> float:
    """Queries per second with so many at once."""
    queue = iter(questions)

    async def work() -> None:
        for question in queue:
            await chain.search(question.question, top_k, chain.scope_of(question))

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(min(concurrency, len(questions)))))
    return len(questions) / (time.perf_counter() - start)


def resident_bytes() -> int | None:
    """The memory of this process that is in RAM, in bytes; None where the system does not say (not Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
