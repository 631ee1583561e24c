"""A file of notes: read as it was written, small, and refused if it is another one or damaged."""

import pyarrow.parquet as pq
import pytest

from notewriter.artifacts.notes import Notes, read_notes, write_notes
from notewriter.ground.errors import UserError


def note(place, cell, seed):
    return {
        "set": "near",
        "question_id": f"q{place}",
        "question": "Who sang?",
        "answers": ["Mira", "Mira Tolen"],
        "facts": [f"Mira Tolen sang {place} old songs in Osk."],
        "cell": cell,
        "seed": seed,
        "passages": ["p1", "p2"],
        "note": f"{cell} says that Mira Tolen sang {place} old songs in Osk and danced in Brel when she was young.",
        "prediction": "",
        "family": "hotpotqa",
    }


@pytest.fixture
def notes():
    rows = [note(place, cell, seed) for place in range(50) for cell in ("sft", "dpo") for seed in (None, 1, 2)]
    scores = [{"f1": 0.1 * number} if number % 7 else {} for number in range(len(rows))]
    return Notes(rows, scores, {"Costs": "| a | b |\n"})


def test_a_file_is_read_as_it_was_written_with_a_score_that_a_note_lacks_left_out(notes, tmp_path):
    write_notes(tmp_path / "of/a/page-notes.parquet", notes)
    again = read_notes(tmp_path / "of/a/page-notes.parquet")
    assert (again.rows, again.scores, again.sections) == (notes.rows, notes.scores, notes.sections)


def test_notes_on_one_question_take_little_more_room_than_one(notes, tmp_path):
    write_notes(tmp_path / "notes.parquet", notes)
    assert (tmp_path / "notes.parquet").stat().st_size < sum(len(row["note"]) for row in notes.rows) / 2


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "has the schema None, not 'notewriter/notes/1'"),
        (b"{", "has damaged metadata"),
        (b"[]", r"metadata must be dict\[str, Any\], not \[\]"),
        (b'{"schema": "notewriter/notes/1", "sections": [1]}', r"sections must be dict\[str, str\], not \[1\]"),
    ],
)
def test_a_file_that_is_another_one_is_refused(notes, tmp_path, metadata, message):
    path = tmp_path / "notes.parquet"
    write_notes(path, notes)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata(metadata and {b"notewriter": metadata}), path)
    with pytest.raises(UserError, match=message):
        read_notes(path)


def test_a_score_that_is_no_number_is_refused_with_its_row(notes, tmp_path):
    write_notes(tmp_path / "notes.parquet", notes._replace(scores=[{"f1": float("nan")}, *notes.scores[1:]]))
    with pytest.raises(UserError, match=r"notes\.parquet: row 0: f1"):
        read_notes(tmp_path / "notes.parquet")
