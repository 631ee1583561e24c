"""The papers' numbers are data that the report can use."""

import re
from pathlib import Path

import pytest
import yaml

from eval.catalogue import METRICS
from eval.report.tables import PUBLISHED
from notewriter.benchmarks import BENCHMARKS
from notewriter.methods import METHODS

ROWS = yaml.safe_load(PUBLISHED.read_text())
OTHERS = {
    *("deepnote with DPO", "deepnote without adaptive retrieval"),
    *("rearag without reasoning", "ircot with notes", "flare with notes"),
}
PAPERS = {
    "DeepNote": "deepnote-2410.08821.txt",
    "ReaRAG": "rearag-2503.21729.txt",
    "ReSP": "resp-2407.13101.txt",
    "NotesWriting": "noteswriting-2505.16293.txt",
}


def test_rows_name_datasets_methods_and_metrics_that_there_are():
    for row in ROWS:
        assert set(row) == {"paper", "table", "dataset", "method", "model", "values"}
        assert row["dataset"] in BENCHMARKS
        assert row["method"] in {*METHODS, *OTHERS}
        assert set(row["values"]) <= set(METRICS)
        assert all(0 <= value <= 100 for value in row["values"].values())


def test_no_row_is_there_twice():
    keys = [tuple(row[key] for key in ("paper", "dataset", "method", "model")) for row in ROWS]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("paper", "dataset", "method", "model", "values"),
    [
        ("DeepNote", "2wikimultihopqa", "deepnote", "Qwen-2.5-7B-Instruct", {"acc": 50.0, "f1": 51.4, "em": 41.8}),
        ("DeepNote", "musique", "deepnote with DPO", "Llama-3.1-8B-Instruct", {"acc": 24.4, "f1": 27.3, "em": 14.4}),
        ("DeepNote", "asqa", "vanilla", "Llama-3.1-8B-Instruct", {"str_em": 39.3, "str_hit": 13.3}),
        ("DeepNote", "musique", "rat", "GPT-4o-mini", {"acc": 25.2, "f1": 33.5, "em": 21.0}),
        (
            *("DeepNote", "2wikimultihopqa", "deepnote without adaptive retrieval", "Llama-3.1-8B-Instruct"),
            {"acc": 39.6, "f1": 41.2, "em": 38.0},
        ),
        ("ReaRAG", "nq", "direct", "QwQ-32B", {"graded_accuracy": 37.5, "em": 12.0}),
        ("NotesWriting", "multihoprag", "ircot with notes", "GPT-4o-mini", {"f1": 36.0, "explained_accuracy": 65.6}),
        ("ReaRAG", "iirc", "rearag", "ReaRAG-9B", {"graded_accuracy": 42.75, "em": 29.0}),
        ("ReSP", "2wikimultihopqa", "resp", "Llama3-8B-Instruct", {"f1": 38.3}),
        ("NotesWriting", "fanoutqa", "renact", "Llama-3.1-70B-Instruct", {"f1": 43.0, "explained_accuracy": 26.1}),
    ],
)
def test_rows_say_what_the_tables_say(paper, dataset, method, model, values):
    chosen = {"paper": paper, "dataset": dataset, "method": method, "model": model}
    (row,) = (row for row in ROWS if row | chosen == row)
    assert row["values"] == values


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_stands_in_the_paper_as_neighbouring_numbers(paper):
    path = Path(__file__).parents[3].parent / "shared/papers" / PAPERS[paper]
    if not path.exists():
        pytest.skip("needs the papers' texts in ../shared")
    lines = [[float(part) for part in numbers(line)] for line in path.read_text().splitlines()]
    for row in ROWS:
        if row["paper"] == paper:
            values = list(row["values"].values())
            assert any(line[start : start + len(values)] == values for line in lines for start in range(len(line))), row


def numbers(line):

    return re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", re.sub("<.*?>", "", line))
