"""FanOutQA: questions over several Wikipedia pages, whose answer may be a list or a mapping.

The questions were written from revisions of November 2023, which the file names beside each page. In July 2026 its
authors corrected 82 of the 310 answers, reworded 12 questions and changed the pages of 33; both files are published.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """The gold answer is the answer as text; the metadata have its original form, the pages needed and their revisions.

    `revisions` is as long as `pages`, or missing where the file names none.
    """
    if "answer" not in record:
        raise UserError(f"{place}: has no 'answer'; the test set has no answers, use the dev set")
    pages: dict[str, int | None] = {}
    for title, revision in _pages(record, place):
        # Of a page that is listed twice, once with a revision, that revision counts.
        pages[title] = revision or pages.get(title)
    metadata = {"answer": record["answer"], "pages": list(pages)}
    return Question(
        id=reading.get(record, "id", str, place),
        question=reading.get(record, "question", str, place),
        answers=(_text(record["answer"]),),
        metadata=metadata | ({"revisions": list(pages.values())} if any(pages.values()) else {}),
    )


def _text(answer: Any) -> str:
    if isinstance(answer, dict):
        return "; ".join(f"{key}: {_text(value)}" for key, value in answer.items())
    if isinstance(answer, list):
        return ", ".join(map(_text, answer))
    return {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else str(answer)


def _pages(record: dict[str, Any], place: str) -> Iterator[tuple[str, int | None]]:
    for part in reading.objects(record, "decomposition", place):
        if part.get("evidence"):
            evidence = reading.get(part, "evidence", dict, place)
            revision = evidence.get("revid")
            # Some copies of the file have "###TBD###" in the place of one.
            yield reading.get(evidence, "title", str, place), revision if isinstance(revision, int) else None
        yield from _pages(part, place)


RELEASE = Release(
    name="fanoutqa",
    page="github.com/zhudotexe/fanoutqa",
    licence="cc-by-sa-4.0",
    files=(
        File(
            address="https://raw.githubusercontent.com/zhudotexe/fanoutqa/"
            "989f4c40d9deea1ecb0897d7a17a9c0fe20d5c33/fanoutqa/data/fanout-final-dev.json",
            split="dev",
            rows=310,
            size=1_205_846,
            sha256="b62a9797732c716e6b17ba4086f277d154d747ce2fa01614cb76a3372e7fb88c",
        ),
        File(
            address="https://raw.githubusercontent.com/zhudotexe/fanoutqa/"
            "989f4c40d9deea1ecb0897d7a17a9c0fe20d5c33/fanoutqa/data/fanout-final-dev-nov23.json",
            split="nov23",
            rows=310,
            size=1_177_174,
            sha256="359300b029c6891567816f351bf8786e9b018d7af8a1a44b7da9ba5ef4651288",
        ),
    ),
    note="`nov23` is the dev set before its authors' corrections of July 2026, as papers until then have it",
)

BENCHMARK = Benchmark(
    title="FanOutQA",
    load_questions=partial(reading.questions, reading.records, _question),
    family="fanoutqa",
    answer_style="list",
    source=RELEASE,
)
