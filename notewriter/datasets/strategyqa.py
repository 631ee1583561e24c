"""StrategyQA: a JSON list of yes-no questions, and a JSON object of paragraphs by id."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import File, Release


def _question(record: dict[str, Any], place: str) -> Question:
    """The supporting passages are those of the first annotator who gives any.

    `facts` are the annotators' own sentences, which occur in no passage; they are kept in the metadata.
    """
    annotations = [
        _paragraphs(each) for each in (reading.get(record, "evidence", list, place) if "evidence" in record else [])
    ]
    return Question(
        id=reading.get(record, "qid", str, place),
        question=reading.get(record, "question", str, place),
        answers=("yes" if reading.get(record, "answer", bool, place) else "no",),
        supporting_ids=reading.distinct(next(filter(None, annotations), [])),
        metadata={key: record[key] for key in ("facts", "decomposition") if key in record},
    )


def _paragraphs(evidence: Any) -> list[str]:
    """The paragraph ids in an annotator's evidence, which is nested lists with words such as `operation`."""
    if isinstance(evidence, list):
        return [id for part in evidence for id in _paragraphs(part)]
    return [] if evidence in ("operation", "no_evidence") else [str(evidence)]


def load_corpus(path: Path) -> Iterator[Passage]:
    """`strategyqa_train_paragraphs.json`: paragraph id -> `title`, `content`."""
    for id, record in reading.mapping(path):
        place = f"{path}: paragraph {id}"
        if not isinstance(record, dict):
            raise UserError(f"{place}: is a {type(record).__name__}, not an object; use the original file")
        yield Passage(id, reading.get(record, "title", str, place), reading.get(record, "content", str, place))


_ARCHIVE = "https://storage.googleapis.com/ai2i/strategyqa/data/strategyqa_dataset.zip"
_SHA256 = "4911d85eb6721a93bed7645419df77e721808b32b9785dee14ad80e6249e0a90"

RELEASE = Release(
    name="strategyqa",
    page="allenai.org/data/strategyqa",
    licence="mit",
    files=(
        File(address=_ARCHIVE, member="strategyqa_train.json", sha256=_SHA256, split="train", rows=2290),
        File(address=_ARCHIVE, member="strategyqa_train_paragraphs.json", sha256=_SHA256, split="corpus"),
    ),
)

BENCHMARK = Benchmark(
    title="StrategyQA",
    load_questions=partial(reading.questions, reading.records, _question),
    load_corpus=load_corpus,
    family="strategyqa",
    answer_style="yes_no",
    source=RELEASE,
)
