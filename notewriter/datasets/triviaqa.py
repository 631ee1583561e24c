"""TriviaQA: one JSON object whose `Data` lists questions, each with its answer's aliases (Joshi et al., 2017).

The Hub has the same questions as rows, whose keys are in lower case: `question_id`, `answer`, `normalized_aliases`.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import flashrag, reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release

UNKNOWN = "<unk>"
"""The answer of the test questions on the Hub."""


def _records(path: Path) -> reading.Records:
    if not reading.is_object(path):
        yield from reading.records(path)
        return
    content = dict(reading.mapping(path))
    for number, record in enumerate(reading.objects(content, "Data", str(path)), start=1):
        yield f"{path}: record {number}", record


def _question(record: dict[str, Any], place: str) -> Question:
    """The main answer is `Value`; the aliases follow, and those that the official scorer reads."""
    named = _on_the_hub if "question_id" in record else str
    if named("Answer") not in record:
        raise UserError(f"{place}: has no {named('Answer')!r}; use a split with answers")
    answer = reading.get(record, named("Answer"), dict, place)
    value = reading.get(answer, named("Value"), str, place)
    if value == UNKNOWN:
        raise UserError(f"{place}: its answer is {UNKNOWN}; use a split with answers")
    keys = map(named, ("Aliases", "NormalizedAliases", "HumanAnswers"))
    aliases = (reading.strings(answer, key, place, optional=True) for key in keys)
    return Question(
        id=reading.get(record, named("QuestionId"), str, place),
        question=reading.get(record, named("Question"), str, place),
        answers=reading.distinct([value, *(each for some in aliases for each in some)]),
    )


def _on_the_hub(key: str) -> str:
    """`QuestionId` as `question_id`."""
    return re.sub(r"\B(?=[A-Z])", "_", key).lower()


RELEASE = Release(
    name="triviaqa",
    page="nlp.cs.washington.edu/triviaqa (unfiltered)",
    # The authors license their code (Apache-2.0) and say that they do not own the questions.
    licence="unknown",
    files=(
        File(address=f"{flashrag.REPOSITORY}/triviaqa/test.jsonl", split="test", rows=11_313, about=4_800_000),
        File(address=f"{flashrag.REPOSITORY}/triviaqa/dev.jsonl", split="dev", rows=8837, about=3_710_000),
        File(address=f"{flashrag.REPOSITORY}/triviaqa/train.jsonl", split="train", rows=78_785, about=33_000_000),
    ),
    note="FlashRAG's files, whose test questions are the original development set, unfiltered-web-dev.json; "
    "corpus: `notewriter corpus --source dpr`",
)

BENCHMARK = Benchmark(
    title="TriviaQA",
    load_questions=partial(reading.questions, _records, _question),
    family="triviaqa",
    source=RELEASE,
)
