"""Question sets: a selection of a benchmark's questions, as a list of ids or as the rule that chose them.

Those of the papers are in `configs/question_sets/<benchmark>/`.
"""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from annotated_types import Interval

from notewriter.datasets import reading
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.ground.typed import hints_of
from notewriter.ground.yaml_files import check_mapping, read_mapping

NAMED = 5
"""Missing ids that an error names."""

ID_KEYS = ("question_id", "_id", "id")
"""The keys of ids in JSON Lines of questions; IRCoT's released files have `question_id`."""


class Draw(TypedDict):
    """`sample` questions drawn without replacement by Python's `random.sample`, after seeding it with `seed`."""

    sample: Annotated[int, Interval(ge=1)]
    seed: int


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that chooses questions by their place in the file.

    Args:
        questions: how many questions the whole file has; the rule means other questions in any other file.
        first: take this many from the beginning.
        draw: take these; in the order in which they are drawn.
        held_out: a draw made before, from the whole file, whose questions are left out.
        sha256: of the ids that are chosen, each followed by a line break; another file gives another one.
    """

    questions: Annotated[int, Interval(ge=1)] | None = None
    first: Annotated[int, Interval(ge=1)] | None = None
    draw: Draw | None = None
    held_out: Draw | None = None
    sha256: str | None = None


def with_question_set(questions: list[Question], path: Path, source: str | Path) -> list[Question]:
    """The questions of a set, in the set's order.

    Args:
        questions: all questions of a file.
        path: the set: a `Rule` (`.yaml`), JSON Lines of questions (`.jsonl`), or ids, one per line, where lines that
            begin with # are comments.
        source: the file that the questions are from, for errors.

    Raises:
        UserError: the set cannot be read, names a question twice or one that is missing, or is a rule for another file.
    """
    if path.suffix in (".yaml", ".yml"):
        rule = _read_rule(path)
        chosen = _by_rule(questions, rule, path, source)
        digest = hashlib.sha256("".join(f"{each.id}\n" for each in chosen).encode("utf-8", "replace")).hexdigest()
        if rule.sha256 not in (None, digest):
            raise UserError(f"{path}: chooses questions of another sha256; use the file that it was made from")
        return chosen
    by_id = {question.id: question for question in questions}
    ids = _read_ids(path)
    if missing := [id for id in ids if id not in by_id]:
        first = ", ".join(map(repr, missing[:NAMED])) + (", ..." if len(missing) > NAMED else "")
        raise UserError(
            f"{path}: {len(missing):,} of its {len(ids):,} questions are not in {source}: {first}; "
            "use the file that the set was made from"
        )
    return [by_id[id] for id in ids]


def _read_ids(path: Path) -> list[str]:
    """The ids in a file, without comments."""
    places: dict[str, str] = {}
    for place, id in _ids_of_records(path) if path.suffix == ".jsonl" else _ids_of_lines(path):
        if id in places:
            raise UserError(f"{place}: names {id!r}, which {places[id]} names already; remove one")
        places[id] = place
    if not places:
        raise UserError(f"{path}: names no questions; write one id per line")
    return list(places)


def _ids_of_lines(path: Path) -> list[tuple[str, str]]:
    with reading.open_text(path) as file:
        lines = reading.read(file, -1, path).split("\n")
    return [
        (f"{path}:{number}", line.strip())
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.startswith("#")
    ]


def _ids_of_records(path: Path) -> list[tuple[str, str]]:
    ids = []
    for place, record in reading.lines(path):
        key = next((key for key in ID_KEYS if key in record), "id")
        ids.append((place, reading.identifier(record, key, place)))
    return ids


def _read_rule(path: Path) -> Rule:
    _, content = read_mapping(path, "check the path of the question set", hints_of(Rule))
    check_mapping(content, Rule, str(path))
    if (content.get("first") is None) == (content.get("draw") is None):
        raise UserError(f"{path}: must have either first or draw; see docs/evaluation.md")
    return Rule(**content)


def _by_rule(questions: list[Question], rule: Rule, path: Path, source: str | Path) -> list[Question]:
    if rule.questions is not None and rule.questions != len(questions):
        raise UserError(
            f"{path}: is a rule for a file of {rule.questions:,} questions, and {source} has {len(questions):,}; "
            "use the whole original file, or leave this question set out"
        )
    if rule.held_out:
        left_out = {question.id for question in _drawn(questions, rule.held_out, path, source)}
        questions = [question for question in questions if question.id not in left_out]
    if rule.draw:
        return _drawn(questions, rule.draw, path, source)
    return _enough(questions, rule.first or 0, path, source)[: rule.first]


def _drawn(questions: list[Question], draw: Draw, path: Path, source: str | Path) -> list[Question]:
    return random.Random(draw["seed"]).sample(_enough(questions, draw["sample"], path, source), draw["sample"])


def _enough(questions: list[Question], number: int, path: Path, source: str | Path) -> list[Question]:
    if number > len(questions):
        raise UserError(f"{path}: takes {number:,} questions, and {source} has {len(questions):,} to take; use another")
    return questions
