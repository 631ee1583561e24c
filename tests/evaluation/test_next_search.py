import pytest

from notewriter.evaluation.next_search import further_passages, missing, reciprocal_rank_of_missing
from notewriter.ground.records import Passage, Question

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
        ((), ("p2", "x", "p1"), (1 + 1 / 3) / 2),
        (("p1",), ("x", "p2"), 1 / 2),
        (("p1",), ("x",), 0),
        (("p1", "p2"), (), None),
    ],
)
def test_a_missing_passage_counts_by_its_reciprocal_rank(seen, further, rank):
    assert reciprocal_rank_of_missing(QUESTION, seen, passages(*further)) == rank
    assert (missing(QUESTION, seen) == []) == (rank is None)
