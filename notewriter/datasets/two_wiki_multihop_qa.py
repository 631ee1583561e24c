"""2WikiMultihopQA: HotpotQA's format, with aliases of the answers in a second file."""

import logging
from dataclasses import replace
from pathlib import Path

from notewriter.datasets import hotpotqa, reading
from notewriter.datasets.benchmark import Benchmark
from notewriter.datasets.hotpotqa import load_contexts, load_corpus
from notewriter.ground.records import Question
from notewriter.ground.releases import Release

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
    logger.info("%s: aliases in this file count as gold answers", aliases_path)
    return [
        replace(
            question,
            answers=reading.distinct([*question.answers, *aliases.get(question.metadata.get("answer_id", ""), [])]),
        )
        for question in questions
    ]


BENCHMARK = Benchmark(
    title="2WikiMultihopQA",
    load_questions=load_questions,
    load_corpus=load_corpus,
    load_contexts=load_contexts,
    family="2wikimultihopqa",
    source=Release(
        name="2wikimultihopqa",
        page="github.com/Alab-NII/2wikimultihop",
        licence="apache-2.0",
        files=(),
        note="dev.json, train.json, with id_aliases.json beside them",
    ),
)
