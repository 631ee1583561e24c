"""Several indexes as one: ranks are merged, ids are unique, duplicates are dropped."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from notewriter.ground.records import Passage
from notewriter.retrieval import fusion
from notewriter.retrieval.fusion import reciprocal_rank_fusion


def named(*names: str) -> list[Passage]:
    return [Passage(name, name, f"about {name}") for name in names]


def ids(passages):
    return [passage.id for passage in passages]


def fuse(*rankings):
    return "".join(reciprocal_rank_fusion(rankings, key=str))


def test_what_several_rankings_agree_on_comes_first():
    # b: 1/62 + 1/61, c: 1/63 + 1/62, a: 1/61, d: 1/63.
    assert fuse("abc", "bcd") == "bcad"


def test_equals_come_in_the_order_of_the_rankings():
    assert fuse("ab", "cd") == "acbd"


def test_two_middling_places_beat_a_first_one():
    """What the constant of 60 is for: with 1 / rank alone, x and y would win."""
    assert fuse("xa", "ya") == "axy"


def test_what_a_ranking_names_twice_counts_once():
    assert fuse("aab", "bc") == "bac"
    assert fuse("", "a") == "a"
    assert fuse() == ""


@given(st.lists(st.lists(st.integers(0, 8)), max_size=4))
def test_nothing_is_lost_or_made_up_and_one_ranking_stays_as_it_is(rankings):
    fused = reciprocal_rank_fusion(rankings, key=str)
    assert sorted(fused) == sorted(set(itertools.chain(*rankings)))
    for ranking in rankings:
        assert reciprocal_rank_fusion([ranking], key=str) == list(dict.fromkeys(ranking))


def test_sources_take_turns():
    assert ids(fusion.fuse([named("a", "b", "c"), named("x", "y")])) == ["a", "2:x", "b", "2:y", "c"]


def test_ids_are_numbered_by_corpus_however_many_rankings_each_has():
    rankings = [named("a"), named("b"), named("x")]
    assert ids(fusion.fuse(rankings, ["one", "one", "other"])) == ["a", "b", "2:x"]


def test_a_passage_that_two_sources_hold_is_one_passage_with_the_first_ones_id():
    one = [Passage("1", "River", "It flows."), Passage("2", "Bridge", "Mira built it.")]
    other = [Passage("17", "Bridge", "Mira built it."), Passage("1", "River", "Another one.")]
    assert fusion.fuse([one, other]) == [
        Passage("2", "Bridge", "Mira built it."),
        Passage("1", "River", "It flows."),
        Passage("2:1", "River", "Another one."),
    ]


IDS = st.text("12:ab", min_size=1, max_size=4)


@given(st.lists(st.lists(IDS, unique=True, max_size=5), min_size=2, max_size=3))
def test_ids_are_unique_whatever_they_are_in_the_sources(sources):
    passages = [
        [Passage(id, f"{number} {id}", "text") for id in source] for number, source in enumerate(sources, start=1)
    ]
    found = fusion.fuse(passages)
    assert len(set(ids(found))) == len(found) == sum(map(len, sources))
    assert [passage.id for passage in found if passage.title.startswith("1 ") and ":" not in passage.id] == [
        id for id in sources[0] if ":" not in id
    ]
