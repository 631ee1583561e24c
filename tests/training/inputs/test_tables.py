"""Tables: each cell is the text that stands in it, and no row loses or gains one."""

from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewriter.ground.errors import UserError
from notewriter.training.inputs import tables


def read(folder: Path, text: str, delimiter: str = ",") -> list[tuple[str, dict[str, Any]]]:
    path = folder / "rows.csv"
    path.write_bytes(text.encode())
    return list(tables.records(path, delimiter))


@pytest.mark.parametrize(
    "cell", ["007", "1.50", "2026-01-02", "None", "null", "NA", "true", "1e5", " a ", "", "#a", "'a'"]
)
def test_a_cell_is_its_text(tmp_path: Path, cell: str) -> None:
    assert read(tmp_path, f"prompt,completion\nWho?,{cell}\n") == [("line 2", {"prompt": "Who?", "completion": cell})]


TEXTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=2, max_size=2)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from([",", "\t"]))
def test_what_pandas_writes_in_quotation_marks_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[str]], delimiter: str
) -> None:
    path = tmp_path_factory.mktemp("table") / "rows.csv"
    pandas.DataFrame(cells, columns=["prompt", "completion"]).to_csv(path, index=False, sep=delimiter, quoting=1)
    assert [list(record.values()) for _, record in tables.records(path, delimiter)] == cells


def test_a_row_is_named_by_its_first_line_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    text = 'prompt,completion\r\n"a\r\nb",c\r\n\r\nd,e\r\n'
    assert read(tmp_path, text) == [
        ("line 2", {"prompt": "a\r\nb", "completion": "c"}),
        ("line 5", {"prompt": "d", "completion": "e"}),
    ]


def test_labels_weights_and_scores_are_values(tmp_path: Path) -> None:
    rows = read(tmp_path, "label,chosen_score,weight\nTrue,4.5,1\nfalse,,\nyes,high,0\n")
    assert [list(row.values()) for _, row in rows] == [[True, 4.5, 1], [False, None, None], ["yes", "high", 0]]


def test_a_column_without_a_name_is_named_by_its_place(tmp_path: Path) -> None:
    assert read(tmp_path, ",prompt\n0,Who?\n") == [("line 2", {"column 1": "0", "prompt": "Who?"})]


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    assert read(tmp_path, f"prompt,completion\nWho?,{'a' * 200_000}\n")[0][1]["completion"] == "a" * 200_000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prompt,completion\na,b\nc,d,e\n", r":3: has 3 cells, and the first row 2; quote cells that hold ','"),
        ("prompt,completion\na\n", r":2: has 1 cells, and the first row 2"),
        ('prompt,completion\na,b\nc,"d\ne,f\n', r":3: its quoting is malformed \(unexpected end of data\)"),
        ('prompt,completion\na,"b" c\n', r":2: its quoting is malformed"),
        ("prompt,completion,completion\na,b,c\n", r":1: has 2 columns of the name completion; rename or remove one"),
        ("prompt;completion\na;b\n", r":1: has only one column, prompt;completion; separate columns by ','"),
    ],
)
def test_what_would_lose_a_cell_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=rf"rows\.csv{told}") as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("prompt\né\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"rows\.csv: is not UTF-8"):
        list(tables.records(tmp_path / "rows.csv", ","))
