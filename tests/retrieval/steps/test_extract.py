"""Extracting sentences: the ones nearest to the query are kept, from whichever passages they are."""

from typing import ClassVar

import numpy as np
import pytest

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25, encoders
from notewriter.retrieval.chain import Chain
from notewriter.retrieval.steps.extract import Extract, ExtractOptions

PASSAGES = [
    Passage(
        "p1", "Old Bridge", "The old bridge is long. Mira built the old bridge in Osk. It was painted by J. Tolen."
    ),
    Passage("p2", "Osk", "Osk is a town.\nIts old bridge was built by Mira."),
    Passage("p3", "Empty", " "),
]


class Letters:
    """An encoder whose dimensions are words."""

    prompts: ClassVar[dict[str, str]] = {}
    similarity_fn_name = None
    WORDS = ("mira", "built", "bridge", "town", "tolen")

    def encode_query(self, sentences, **options):
        rows = [[float(word in text.lower()) for word in self.WORDS] for text in sentences]
        vectors = np.array(rows, dtype=np.float32)
        if options["normalize_embeddings"]:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors

    encode_document = encode_query


@pytest.fixture(autouse=True)
def letters(monkeypatch):
    monkeypatch.setattr(encoders, "load", lambda encoder, device: Letters())


async def kept(query: str, **options) -> list[tuple[str, str]]:
    step = Extract(ExtractOptions(extract="letters", **options))
    found = await step.apply(query, PASSAGES, len(PASSAGES))
    await step.close()
    return [(passage.id, passage.text) for passage in found]


async def test_the_nearest_sentences_of_all_passages_are_kept():
    assert await kept("Who built the bridge? Mira?") == [("p1", "Mira built the old bridge in Osk.")]
    assert await kept("Mira built the bridge", sentences=2) == [
        ("p1", "Mira built the old bridge in Osk."),
        ("p2", "Its old bridge was built by Mira."),
    ]


async def test_sentences_of_a_passage_stay_in_order_and_the_passage_of_the_nearest_comes_first():
    assert await kept("a town with a town and Mira", sentences=3) == [
        ("p1", "Mira built the old bridge in Osk."),
        ("p2", "Osk is a town. Its old bridge was built by Mira."),
    ]
    assert await kept("Tolen", sentences=1) == [("p1", "It was painted by J. Tolen.")]


async def test_a_sentence_is_embedded_with_the_title_of_its_passage():
    """A pronoun says nothing about the bridge, the title does."""
    assert await kept("the bridge and Tolen") == [("p1", "It was painted by J. Tolen.")]


async def test_similarity_is_the_inner_product_or_the_cosine():
    long = "Mira built the bridge and Tolen the town"
    assert await kept(long) == [("p1", "Mira built the old bridge in Osk.")]
    assert await kept("bridge", similarity="cosine") == [("p1", "The old bridge is long.")]


async def test_nothing_is_found_in_nothing():
    step = Extract(ExtractOptions(extract="letters"))
    assert await step.apply("who?", [PASSAGES[2]], 1) == await step.apply("who?", [], 1) == []
    await step.close()


async def test_it_is_a_part_of_a_retriever(tmp_path):
    bm25.build(PASSAGES[:2], tmp_path / "index")
    chain = Chain([{"index": str(tmp_path / "index")}, {"extract": "letters", "sentences": 1}])
    found = await chain.search("Mira built bridge", 2)
    assert [passage.text for passage in found.passages] == ["Mira built the old bridge in Osk."]
    assert [part["found"] for part in found.parts] == [2, 1]
    await chain.close()


async def test_after_a_step_that_needs_more_passages_sentences_are_from_the_best_ones_alone(tmp_path):
    bm25.build(PASSAGES[:2], tmp_path / "index")
    parts = [{"index": str(tmp_path / "index")}, {"distinct": "text"}, {"extract": "letters", "sentences": 2}]
    chain = Chain(parts)
    found = await chain.search("Mira built bridge", 1)
    assert [part["found"] for part in found.parts] == [2, 2, 1]
    (best,) = found.parts[1]["ids"]
    assert [(passage.id, passage.text.count(".")) for passage in found.passages] == [(best, 2)]
    await chain.close()


def test_an_encoder_that_is_not_there_is_named(monkeypatch):
    monkeypatch.undo()
    with pytest.raises(UserError, match="encoder: nowhere is neither a model folder nor a hub id"):
        Extract(ExtractOptions(extract="nowhere"))
