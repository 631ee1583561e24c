"""The values that the papers report, row by row of their tables."""

import functools
from pathlib import Path
from typing import TypedDict, cast

import yaml

FOLDER = Path(__file__).with_name("papers")

PAPERS = {
    "deepnote": "DeepNote",
    "rearag": "ReaRAG",
    "resp": "ReSP",
    "noteswriting": "NotesWriting",
    "search_r1": "Search-R1",
}
"""The name of a file here, and of a folder in configs/papers/ -> the paper."""


class PublishedRow(TypedDict):
    """A paper's figures for a method on a dataset.

    `place` is the table or section, `setting` what differs from the paper's own settings (empty: nothing). `values`
    are in the units of the paper: percent for scores, counts for searches and tokens, dollars, seconds, minutes.
    """

    paper: str
    place: str
    dataset: str
    method: str
    model: str
    setting: str
    values: dict[str, float]


@functools.cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Every row of every paper, in the papers' order.

    A file lists tables. The `values` of a row are a list in the order of the table's `columns` (dataset -> metrics);
    where the paper has a line for each dataset, a list by dataset in the order of the table's `metrics`.
    """
    rows: list[PublishedRow] = []
    for name, paper in PAPERS.items():
        for table in yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")):
            for row in table["rows"]:
                left = iter(row["values"])
                columns = table.get("columns") or dict.fromkeys(row["values"], table["metrics"])
                for dataset, metrics in columns.items():
                    listed = row["values"][dataset] if "metrics" in table else [next(left) for _ in metrics]
                    values = {metric: value for metric, value in zip(metrics, listed, strict=True) if value is not None}
                    of = {"paper": paper, "place": table["place"], "dataset": dataset, "setting": ""}
                    rows.append(cast(PublishedRow, of | row | {"values": values}))
    return tuple(rows)
