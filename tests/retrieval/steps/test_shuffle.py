"""The sentences of a passage in a random order, the same one whenever the question finds the passage."""

import asyncio

from notewriter.ground.records import Passage
from notewriter.ground.text import sentences_in
from notewriter.retrieval.steps.shuffle import Shuffle, ShuffleOptions

TEXT = " ".join(f"Sentence {number} is here." for number in "ABCDEFGH")
PASSAGES = [Passage("p1", "One", TEXT), Passage("p2", "Two", TEXT), Passage("p3", "Three", " ")]


def shuffled(query="Who?", passages=PASSAGES, seed=0):
    step = Shuffle(ShuffleOptions(shuffle="sentences", seed=seed))
    return asyncio.run(step.apply(query, passages, len(passages)))


def test_passages_keep_their_order_ids_titles_and_sentences():
    found = shuffled()
    assert [(each.id, each.title) for each in found] == [(each.id, each.title) for each in PASSAGES]
    assert [sorted(sentences_in(each.text)) for each in found] == [sorted(sentences_in(each.text)) for each in PASSAGES]
    assert TEXT not in {each.text for each in found}


def test_an_order_follows_from_the_query_the_passage_and_the_seed():
    assert shuffled() == shuffled()
    assert shuffled(passages=PASSAGES[1:]) == shuffled()[1:]
    one, two, _ = (each.text for each in shuffled())
    others = {shuffled("Where?")[0].text, shuffled(seed=1)[0].text}
    assert len({one, two, *others}) == 4
