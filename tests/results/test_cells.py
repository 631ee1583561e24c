"""What a cell searches, against the corpus that its table is about."""

import json
from pathlib import Path

import pytest

from notewriter.results.cells import corpus_of, other_corpus
from notewriter.results.paper_table import Evaluated
from notewriter.results.table_file import Model, TableIndex


@pytest.fixture
def index(tmp_path):
    """Writes the manifest of an index; returns its folder."""

    def index(name, passages, **manifest):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "manifest.json").write_text(json.dumps({"kind": "bm25", "passages": passages} | manifest))
        return str(folder)

    return index


def cell(searched, **options):
    names = ("vanilla, Other", "hotpotqa", {1: Path("cell")}, "vanilla", "Other", "")
    return Evaluated(*names, options, Model({}), None, searched)


IRCOT = TableIndex("ircot-hotpotqa")


def test_repeated_paragraphs_that_are_in_the_index_once_make_no_other_corpus(index):
    """IRCoT counts 5,233,329 with repetitions."""
    assert other_corpus(cell(IRCOT, index=[index("distinct", 5_200_000)])) == ""
    own = index("own", 66_000)
    assert other_corpus(cell(IRCOT, index=[own])) == "another corpus: 66,000 passages"
    assert other_corpus(cell(IRCOT, index=[index("whole", 5_233_329), own])) == "another corpus: 66,000 passages"


def test_a_dense_index_is_known_by_the_name_of_its_encoder(index):
    folder = index("dense", 5_233_329, kind="dense", encoder="/models/bge-base-en-v1.5")
    assert other_corpus(cell(TableIndex("ircot-hotpotqa", "BAAI/bge-base-en-v1.5"), index=[folder])) == ""
    assert other_corpus(cell(IRCOT, retriever=[{"index": folder}])) == "another retriever: bge-base-en-v1.5"


def test_a_corpus_of_unknown_size_has_a_retriever(index):
    searched = TableIndex("rearag-musique", "BAAI/bge-base-en-v1.5")
    folder = index("documents", 7, kind="dense", encoder="BAAI/bge-base-en-v1.5")
    chain = [{"documents": folder}, {"within": "per_question.jsonl"}]
    assert other_corpus(cell(searched, retriever=chain)) == ""
    assert corpus_of(cell(searched)) == "rearag-musique, by bge-base-en-v1.5"


def test_what_a_server_searches_is_not_counted():
    assert other_corpus(cell(IRCOT, retriever=[{"url": "http://node7:8001"}])) == "corpus not counted"


def test_a_table_that_states_no_corpus_has_no_other_one(index):
    assert other_corpus(cell(None, index=[index("any", 3)])) == corpus_of(cell(None)) == ""
