"""FlashRAG's JSON Lines of `id`, `question` and `golden_answers`, its form of all benchmarks, and Search-R1's.

The files are read with the `--dataset` of any benchmark, which gives metric family and answer style. They have no
supporting facts in a common form.
"""

from functools import partial
from pathlib import Path
from typing import Any

from notewriter.datasets import reading
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question

KEY = "golden_answers"

REPOSITORY = "hf://datasets/RUC-NLPIR/FlashRAG_datasets@bcafb8dd07d453be3cbeeeb3f78be1841bddf92c"
"""The addresses of their files."""


def is_flashrag(path: Path) -> bool:
    """Whether the first record of a file is of this form; False for a file that cannot be read."""
    try:
        _, record = next(reading.records(path), ("", {}))
    except UserError:
        return False
    return KEY in record


def _question(record: dict[str, Any], place: str) -> Question:
    """Numbers, strings and truth values of the metadata are kept, whole contexts are not."""
    question = reading.get(record, "question", str, place).strip()
    answers = reading.distinct(filter(str.strip, reading.strings(record, KEY, place)))
    if not answers:
        raise UserError(f"{place}: {KEY!r} is empty; use a split with answers")
    metadata = reading.get(record, "metadata", dict, place) if record.get("metadata") is not None else {}
    return Question(
        id=reading.identifier(record, "id", place),
        question=question,
        answers=answers,
        metadata={key: value for key, value in metadata.items() if isinstance(value, str | int | float)},
    )


load_questions = partial(reading.questions, reading.records, _question)
