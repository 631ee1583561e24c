"""Notes on disk: every note of an experiment with its scores, from which its page can be written again."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

import pyarrow as pa

from notewriter.artifacts.parquet import columns_of, new_rows, read_checked, read_schema
from notewriter.ground import typed
from notewriter.ground.errors import UserError, writing

SCHEMA = "notewriter/notes/1"

METADATA = b"notewriter"
"""The key of the file's metadata for facts that belong to no single note."""


class Note(TypedDict):
    """A row: the note and answer of a run of a cell on a question; its scores are further columns.

    `facts` are the question's supporting facts, and `passages` the ids of those that the note was written from; both
    are empty where the question file or the index was no longer at hand. `seed` is null in a cell without seeds, and
    `family` the metric family that scored the answer.
    """

    set: str
    question_id: str
    question: str
    answers: list[str]
    facts: list[str]
    cell: str
    seed: int | None
    passages: list[str]
    note: str
    prediction: str
    family: str


class Notes(NamedTuple):
    """A file of notes.

    Attributes:
        rows: the notes, those of one question together.
        scores: the scores of each row by name, a row without one left out.
        sections: a page's sections on the run folders, by heading, in Markdown.
    """

    rows: Sequence[Note]
    scores: Sequence[Mapping[str, float]]
    sections: Mapping[str, str]


def write_notes(path: Path, notes: Notes) -> None:
    """Write a file of notes; it appears when it is complete.

    Raises:
        UserError: it cannot be written.
    """
    names = sorted({name for scores in notes.scores for name in scores})
    metadata = json.dumps({"schema": SCHEMA, "sections": notes.sections})
    fields = [*columns_of(Note), *(pa.field(name, pa.float64()) for name in names)]
    columns = pa.schema(fields, metadata={METADATA: metadata})
    # In one piece and strongly compressed: the notes on a question have most of their words in common.
    options = {"compression": "zstd", "compression_level": 19, "data_page_size": 2**26}
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with new_rows(path, columns, batch=len(notes.rows) + 1, **options) as writer:
        for row, scores in zip(notes.rows, notes.scores, strict=True):
            writer.write({**row, **scores})


def read_notes(path: Path) -> Notes:
    """A file of notes.

    Raises:
        UserError: the file is missing, damaged, or of another kind.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; `notewriter table` writes it beside the page")
    remedy = "give a file that `notewriter table` wrote"
    columns = read_schema(path)
    metadata = _metadata(columns, path, remedy)
    if metadata.get("schema") != SCHEMA:
        raise UserError(f"{path}: has the schema {metadata.get('schema')!r}, not {SCHEMA!r}; {remedy}")
    sections = typed.read(metadata.get("sections"), dict[str, str], f"{path}: sections", remedy)
    names = [name for name in columns.names if name not in Note.__annotations__]
    rows, scores = [], []
    for number, row in enumerate(cast(Iterable[dict[str, Any]], read_checked(path, Note))):
        found = {name: row[name] for name in names if row[name] is not None}
        scores.append(typed.read(found, dict[str, float], f"{path}: row {number}", remedy))
        rows.append(cast(Note, {name: row[name] for name in Note.__annotations__}))
    return Notes(rows, scores, sections)


def _metadata(columns: pa.Schema, path: Path, remedy: str) -> dict[str, Any]:
    try:
        value = json.loads((columns.metadata or {}).get(METADATA, b"{}").decode())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: has damaged metadata ({error}); {remedy}") from error
    return typed.read(value, dict[str, Any], f"{path}: metadata", remedy)
