"""With the table of frequent words a search finds what it finds by all postings, and reads few of them."""

import json
import random

import numpy as np
import pytest
import tantivy

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25, frequent_words
from notewriter.retrieval.bm25 import BM25, Analysis, build, is_current

FREQUENT = ["the", "of", "in", "was", "and"]
RARE = [f"name{number}" for number in range(400)]


def zipf(seed: int, count: int) -> list[Passage]:
    """Passages with words of natural frequencies; some are copies of others."""
    rng = random.Random(seed)
    words = FREQUENT + RARE
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    made: list[Passage] = []
    for number in range(count):
        size = rng.randint(5, 60)
        text = rng.choice(made).text if number % 17 == 16 else " ".join(rng.choices(words, weights, k=size))
        made.append(Passage(f"p{number}", " ".join(rng.choices(RARE, k=2)), text))
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tables for small indexes, made in several blocks, and few candidates, so that the bound often fails."""
    monkeypatch.setattr(frequent_words, "FEWEST", 1)
    monkeypatch.setattr(frequent_words, "BLOCK", 700)
    monkeypatch.setattr(bm25, "CANDIDATES", 0)


def by_all_postings(index: BM25, *arguments) -> list[str]:
    table, index._frequent = index._frequent, None
    found = [passage.id for passage in index.search(*arguments)]
    index._frequent = table
    return found


@pytest.mark.parametrize(
    ("analysis", "top_k"),
    [(Analysis(), 5), (Analysis("plain"), 1), (Analysis(title_boost=0), 5), (Analysis(title_boost=2.5), 20)],
)
def test_results_are_those_of_a_search_by_all_postings(tmp_path, monkeypatch, analysis, top_k):
    passages = zipf(1, 2_000)
    build(passages, tmp_path / "i", analysis=analysis)
    index = BM25(tmp_path / "i")
    whole, calls = BM25._best_of, []
    monkeypatch.setattr(BM25, "_best_of", lambda *given: calls.append(given) or whole(*given))
    rng = random.Random(2)
    queries = [" ".join(rng.sample(FREQUENT, 3) + rng.sample(RARE, rng.randint(0, 4))) for _ in range(150)]
    found = [[passage.id for passage in index.search(query, top_k)] for query in queries]
    read_whole = len(calls)
    assert found == [by_all_postings(index, query, top_k) for query in queries]
    # Both ways were taken.
    assert 0 < read_whole < len(queries)


def test_results_within_a_scope_are_the_same_too(tmp_path):
    passages = zipf(3, 1_000)
    build(passages, tmp_path / "i")
    index = BM25(tmp_path / "i")
    scope = [passage.id for passage in passages[::3]]
    for name in RARE[:40]:
        assert [each.id for each in index.search(f"the {name} of", 5, scope)] == by_all_postings(
            index, f"the {name} of", 5, scope
        )


def test_the_table_has_the_scores_of_each_frequent_word(tmp_path):
    build(zipf(5, 1_500), tmp_path / "i", analysis=Analysis("plain"))
    index = BM25(tmp_path / "i")
    table = index._frequent
    assert table.above(0.2, ["name399", "of", "the"]) == ["of", "the"]
    query = tantivy.Query.term_query(index._schema, "contents", "the")
    hits = index._searcher.search(query, 1_500).hits
    positions = np.array(index._searcher.fast_field_values("position", [address for _, address in hits]))
    assert table.scores(["the"], positions) == pytest.approx([score for score, _ in hits], abs=0)
    assert table.greatest(["the"]) == hits[0][0]


def test_a_small_index_has_no_table_and_a_larger_one_gets_it_without_a_new_build(tmp_path, monkeypatch):
    monkeypatch.setattr(frequent_words, "FEWEST", 10_000)
    passages = zipf(7, 300)
    build(passages, tmp_path / "i", source="s")
    assert not frequent_words.is_made(tmp_path / "i")
    before = [each.id for each in BM25(tmp_path / "i").search("the name3", 5)]
    monkeypatch.setattr(frequent_words, "FEWEST", 100)
    assert is_current(tmp_path / "i", "s") and frequent_words.is_made(tmp_path / "i")
    assert [each.id for each in BM25(tmp_path / "i").search("the name3", 5)] == before


def test_a_damaged_table_is_refused_with_the_remedy(tmp_path):
    build(zipf(9, 200), tmp_path / "i")
    (tmp_path / "i" / "files.json").unlink()
    scores = tmp_path / "i" / frequent_words.SCORES
    scores.write_bytes(scores.read_bytes()[:-4])
    with pytest.raises(UserError, match=r"frequent_words\.float32: .*build it again"):
        BM25(tmp_path / "i")
    (tmp_path / "i" / frequent_words.WORDS).write_text(json.dumps({"the": "often"}))
    with pytest.raises(UserError, match=r"frequent_words\.json: .*build it again"):
        BM25(tmp_path / "i")
