"""The journal of a run: a line for each finished question, written as it finishes and read when the run resumes."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Question

logger = logging.getLogger(__name__)


@dataclass
class ResumeArguments:
    """The options for resuming an earlier run."""

    retry_errors: bool = option(
        False,
        "repeat the questions that ended in an error, such as a prompt that the endpoint refused; all "
        "others are kept, and completed calls are answered from the cache",
    )


def check_journal(journal: Path, kind: type) -> None:
    """Validate a journal before anything is built on it.

    `kind` is the dataclass of a line.

    Raises:
        UserError: a line does not match `kind`; names file, line and key.
    """
    for number, record in _records(journal):
        typed.read(record, kind, f"{journal}:{number}", "remove the line, and its question is repeated")


def remaining(journal: Path, questions: Sequence[Question]) -> int:
    """The number of questions that a journal lacks."""
    done = {record["question_id"] for _, record in _records(journal)}
    return sum(question.id not in done for question in questions)


def finished(journal: Path, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """The journal's records of these questions, in the questions' order, one at a time in memory.

    The file is in the order in which questions happened to finish, on which results must not depend.
    """
    if not journal.exists():
        return
    places = {}
    with open(journal, "rb") as file:
        start = 0
        for line in file:
            if line.strip() and not jsonl.is_cut(line):
                places[json.loads(line)["question_id"]] = start
            start += len(line)
        for question in questions:
            if question.id in places:
                file.seek(places[question.id])
                yield json.loads(file.readline())


def has_errors(journal: Path) -> bool:
    """Whether a question of a journal ended in an error."""
    return any(_error_of(record) for _, record in _records(journal))


def drop_errors(journal: Path) -> None:
    """Remove the questions that ended in an error from a journal, so that they are repeated; keep all others.

    A record is a trace, has a `trace` or `traces`, and may have the `refusals` of judges' requests; or is a judgement
    with a `refusal`.
    """
    if journal.exists():
        jsonl.write(journal, (record for _, record in _records(journal) if not _error_of(record)))


def tell_errors(journal: Path, questions: Sequence[Question]) -> Counter[str]:
    """Warn of questions that ended in an error, with the commonest error and the remedy; returns all with counts."""
    errors = Counter(error for record in finished(journal, questions) if (error := _error_of(record)))
    for error, count in errors.most_common(1):
        logger.warning(
            "%d of %d questions ended in an error, %d in this one: %s. To repeat them, run the same command with "
            "--retry_errors",
            errors.total(),
            len(questions),
            count,
            error,
        )
    return errors


def check_answered(journal: Path, questions: Sequence[Question]) -> None:
    """Check that some question did not end in an error; warn of those that did.

    Raises:
        UserError: all did; gives the commonest error.
    """
    errors = tell_errors(journal, questions)
    if questions and errors.total() == len(questions):
        error, count = errors.most_common(1)[0]
        raise UserError(
            f"{journal}: all {len(questions)} questions ended in an error, {count} in this one: {error}; correct what "
            "it names, and run the same command again with --retry_errors"
        )


def _records(journal: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a journal with their numbers; none before there is one."""
    return jsonl.read(journal, journal=True) if journal.exists() else iter(())


def _error_of(record: dict[str, Any]) -> str:
    """The first error in a record's traces, or why its request was refused; empty if there is none."""
    if "refusal" in record:
        return str(record["refusal"])
    if record.get("refusals"):
        return str(record["refusals"][0])
    traces = record["traces"] if "traces" in record else [record.get("trace", record)]
    return next((str(trace["error"]) for trace in traces if trace.get("error")), "")
