"""2WikiMultihopQA: HotpotQA's format, with aliases of the answers in a second file."""

import logging
from dataclasses import replace
from pathlib import Path

from notewriter.datasets import hotpotqa, reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.datasets.hotpotqa import load_contexts, load_corpus
from notewriter.ground.records import Question
from notewriter.ground.releases import File, Release

logger = logging.getLogger(__name__)


def load_questions(path: Path) -> list[Question]:
    """The questions, with the aliases and demonyms of `id_aliases.json` if it is in the same folder.

    The official scorer takes the maximum over them.
    """
    questions = hotpotqa.load_questions(path)
    aliases_path = path.with_name("id_aliases.json")
    if not aliases_path.exists():
        return questions
    aliases = {
        reading.get(record, "Q_id", str, place): [
            *reading.strings(record, "aliases", place),
            *reading.strings(record, "demonyms", place, optional=True),
        ]
        for place, record in reading.lines(aliases_path)
    }
    if any("answer_id" in question.metadata for question in questions):
        logger.info("%s: aliases in this file count as gold answers", aliases_path)
    else:
        # Copies on the Hub leave it out; of the original's questions, those of yes and no have none.
        logger.warning(
            "%s: no question has an 'answer_id', so that the aliases in %s do not count as in the official scorer; use "
            "the original file",
            path,
            aliases_path.name,
        )
    return [
        replace(
            question,
            answers=reading.distinct([*question.answers, *aliases.get(question.metadata.get("answer_id", ""), [])]),
        )
        for question in questions
    ]


def _member(name: str, split: str = "", rows: int | None = None) -> File:
    """A file in the authors' archive of April 2021, whose size and hash others have recorded."""
    return File(
        address="https://www.dropbox.com/scl/fi/32t7pv1dyf3o2pp0dl25u/data_ids_april7.zip"
        "?rlkey=u868q6h0jojw4djjg7ea65j46&dl=1",
        member=name,
        split=split,
        rows=rows,
        size=258_968_175,
        sha256="95df2bf56fdabe034e27aebc580e02264232203cf52552f9efe8a919e5529eef",
    )


RELEASE = Release(
    name="2wikimultihopqa",
    page="github.com/Alab-NII/2wikimultihop",
    licence="apache-2.0",
    # The loader takes the aliases that lie beside the questions; the test questions are part of IRCoT's corpus.
    files=(
        _member("id_aliases.json"),
        _member("test.json"),
        _member("dev.json", split="dev", rows=12_576),
        _member("train.json", split="train", rows=167_454),
    ),
)

BENCHMARK = Benchmark(
    title="2WikiMultihopQA",
    load_questions=load_questions,
    load_corpus=load_corpus,
    load_contexts=load_contexts,
    family="2wikimultihopqa",
    source=RELEASE,
)
