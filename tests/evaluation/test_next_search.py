"""What a note and its question find among passages that were not seen yet."""

from pathlib import Path
from statistics import fmean

import pytest
from tiny_world import write_config

from notewriter.datasets import load_corpus, load_questions
from notewriter.evaluation.next_search import (
    Noted,
    further_passages,
    missing,
    next_search_scores,
    reciprocal_rank_of_missing,
    scores_of,
    searched_again,
)
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.retrieval import bm25
from notewriter.retrieval.chain import Chain
from notewriter.rollouts.controls import CONTROLS

DATA = Path(__file__).parents[3] / "shared" / "data"
QUESTION = Question("q1", "Where was the mother of Osk born?", ("Tolen",), supporting_ids=("p1", "p2"))


def passages(*ids):
    return [Passage(name, name, name) for name in ids]


async def test_the_note_and_the_question_find_passages_that_were_not_seen():
    asked = []

    async def search(query, top_k):
        asked.append((query, top_k))
        return passages("p1", "x", "p2", "y")[:top_k]

    further = await further_passages(QUESTION, "Osk's mother is Mira.", {"p1"}, 2, search, words=3)
    assert [passage.id for passage in further] == ["x", "p2"]
    assert asked == [("Osk's mother is Where was the mother of Osk born?", 3)]
    assert [passage.id for passage in await further_passages(QUESTION, "", (), 1, search)] == ["p1"]
    assert asked[-1] == (QUESTION.question, 1)


@pytest.mark.parametrize(
    ("seen", "further", "rank"),
    [
        ({}, ("p2", "x", "p1"), (1 + 1 / 3) / 2),
        ({"p1": ""}, ("x", "p2"), 1 / 2),
        ({"p1": ""}, ("x",), 0),
        ({"p1": "", "p2": ""}, (), None),
    ],
)
def test_a_missing_passage_counts_by_its_reciprocal_rank(seen, further, rank):
    assert reciprocal_rank_of_missing(QUESTION, seen, passages(*further)) == rank
    assert (missing(QUESTION, seen) == []) == (rank is None)


def test_a_passage_is_seen_or_missing_by_its_title_too():
    further = [Passage("1", "x", "text"), Passage("2", "p2", "text")]
    assert reciprocal_rank_of_missing(QUESTION, {"1": "p1"}, further) == 1 / 2


def test_an_answer_is_found_in_the_title_or_the_text_as_whole_words():
    def found(answer, *texts, golds=()):
        question = Question("q", "Where?", (answer, "alias"), supporting_ids=golds)
        return next_search_scores(question, [Passage(f"p{n}", "Osk", text) for n, text in enumerate(texts)])

    assert found("the Osk", "A river.") == {"next_has_answer": 1.0}
    assert found("Tol", "Tolen lies there.") == {"next_has_answer": 0.0}
    assert found("Tol", "An ALIAS.") == {"next_has_answer": 1.0}
    # Yes and no stand nowhere, and without annotation nothing is known of the passages.
    assert found("Yes.", "Yes, it is.") == {}
    # A benchmark's file may name the passage by its title alone.
    assert found("no", "A", "B", golds=("p1", "p8", "Osk")) == {"next_recall": pytest.approx(2 / 3)}


@pytest.fixture
def towns(tmp_path):
    bm25.build(
        [
            Passage("osk", "Osk", "The mother of Osk is Mira Vell."),
            Passage("vell", "Mira Vell", "Mira Vell was born in Tolen."),
            Passage("birth", "Birth", "A mother is where one was born."),
            Passage("sea", "Sea", "Ships sail."),
        ],
        tmp_path / "index",
    )
    return str(tmp_path / "index")


async def test_a_note_that_names_what_is_missing_finds_it(towns):
    question = Question("q1", QUESTION.question, ("Tolen",), supporting_ids=("osk", "vell"))
    chain = Chain([{"index": towns}])
    seen = (await chain.search(question.question, 1)).passages
    notes = {"nothing": "", "the name": "Mira Vell", "too late": "Ships sail the sea. Mira Vell"}
    scores = {name: await scores_of([Noted(question, seen, note)], chain, k=1, words=4) for name, note in notes.items()}
    assert scores == {
        "nothing": {"q1": {"next_has_answer": 0.0, "next_recall": 0.5}},
        "the name": {"q1": {"next_has_answer": 1.0, "next_recall": 1.0}},
        "too late": {"q1": {"next_has_answer": 0.0, "next_recall": 0.5}},
    }
    # As methods search, a note that repeats its passage finds this one again.
    again = [Noted(question, seen, seen[0].text)]
    assert (await scores_of(again, chain, k=1))["q1"]["next_recall"] == 1.0
    assert (await scores_of(again, chain, k=1, fresh=False))["q1"]["next_recall"] == 0.5
    await chain.close()


async def test_the_retriever_is_the_one_that_the_run_searched(towns, tmp_path):
    (tmp_path / "run").mkdir()
    write_config(tmp_path / "run/config.yaml", {"index": [towns]})
    async with searched_again(tmp_path / "run") as chain:
        assert [passage.id for passage in (await chain.search("ships", 1)).passages] == ["sea"]
    write_config(tmp_path / "run/config.yaml", {"index": None})
    with pytest.raises(UserError, match="the run retrieved nothing"):
        async with searched_again(tmp_path / "run"):
            pass


@pytest.mark.parametrize(
    ("dataset", "file", "expected"),
    [
        ("hotpotqa", "train.json", {"first": (0.758, 0.855), "gold": (0.846, 0.915), "empty": (0.538, 0.720)}),
        ("musique", "train.jsonl", {"first": (0.470, 0.617), "gold": (0.480, 0.644), "empty": (0.280, 0.506)}),
    ],
)
async def test_notes_without_a_model_are_worth_what_others_have_measured(tmp_path, dataset, file, expected):
    """BM25 over the benchmark's own paragraphs, three passages and then the best three with at most 38 words.

    The first two rows of each set were measured by others with code of their own.
    """
    path = DATA / dataset / file
    if not path.exists():
        pytest.skip(f"no {path}")
    bm25.build(load_corpus(dataset, path), tmp_path / "index")
    chain = Chain([{"index": str(tmp_path / "index")}])
    questions = load_questions(dataset, path)
    seen = {each.id: (await chain.search(each.question, 3)).passages for each in questions}
    for control, (answer, recall) in expected.items():
        noted = [Noted(each, seen[each.id], CONTROLS[control].write(each, seen[each.id], 38)) for each in questions]
        scores = (await scores_of(noted, chain, fresh=False)).values()
        assert fmean(s["next_has_answer"] for s in scores if "next_has_answer" in s) == pytest.approx(answer, abs=5e-4)
        assert fmean(score["next_recall"] for score in scores) == pytest.approx(recall, abs=6e-4)
    await chain.close()
