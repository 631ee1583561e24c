"""Reranking: the first candidates are reordered, by a cross-encoder of one random layer or by a language model."""

import json
import re

import pytest
from fake_endpoint import fake_endpoint
from tiny_encoders import save_reranker

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25
from notewriter.retrieval.chain import Chain
from notewriter.retrieval.steps.llm_rerank import LlmRerank, LlmRerankOptions
from notewriter.retrieval.steps.rerank import Rerank, RerankOptions

PASSAGES = [Passage(f"p{number}", f"Page {number}", f"text {number}") for number in range(45)]


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    """A random BERT that reads letters, with one output."""
    pytest.importorskip("sentence_transformers", reason="needs the extra `dense`")
    folder = tmp_path_factory.mktemp("models")
    save_reranker(folder / "three", labels=3)
    return str(save_reranker(folder / "reranker"))


async def test_a_cross_encoder_reorders_the_candidates_by_its_scores_and_leaves_the_rest(cross_encoder):
    from sentence_transformers import CrossEncoder

    step = Rerank(RerankOptions(rerank=cross_encoder, candidates=10, device="cpu"))
    found = await step.apply("who?", PASSAGES[:14], 3)
    pairs = [("who?", f"{passage.title}\n{passage.text}") for passage in PASSAGES[:10]]
    scores = CrossEncoder(cross_encoder, device="cpu").predict(pairs)
    expected = [PASSAGES[place] for place in sorted(range(10), key=lambda place: -scores[place])]
    assert found == expected + PASSAGES[10:14]
    assert found != PASSAGES[:14]
    assert await step.apply("who?", [], 3) == []
    await step.close()


async def test_a_reranked_chain_asks_its_sources_for_the_candidates(cross_encoder, tmp_path):
    bm25.build(PASSAGES, tmp_path / "index")
    chain = Chain([{"index": str(tmp_path / "index")}, {"rerank": cross_encoder, "candidates": 20}])
    found = await chain.search("page text", 3)
    assert len(found.passages) == 3
    assert [part["found"] for part in found.parts] == [20, 20]
    assert found.parts[1]["ids"] == [passage.id for passage in found.passages]
    await chain.close()


def test_a_model_that_is_no_reranker_is_named(cross_encoder):
    with pytest.raises(UserError, match="three has 3 outputs; choose a model with one, a reranker"):
        Rerank(RerankOptions(rerank=cross_encoder.replace("reranker", "three")))
    with pytest.raises(UserError, match="rerank: absent is neither a model folder nor a hub id"):
        Rerank(RerankOptions(rerank="absent"))


def test_a_language_model_without_the_settings_of_a_reranker_is_refused(cross_encoder, tiny_model):
    with pytest.raises(UserError, match=r"without the settings of a reranker \(modules.json\); choose a cross-encoder"):
        Rerank(RerankOptions(rerank=str(tiny_model)))


def by_number(request):
    """Orders passages by the number in their title, falling."""
    prompt = request["messages"][0]["content"]
    numbers = re.findall(r"^\[(\d+)\] Page (\d+):", prompt, re.MULTILINE)
    order = [place for place, number in sorted(numbers, key=lambda each: -int(each[1]))]
    return " > ".join(f"[{place}]" for place in order)


async def rerank(endpoint, passages, **options):
    step = LlmRerank(LlmRerankOptions(llm_rerank=endpoint.model, base_url=endpoint.base_url, **options), None)
    try:
        await step.check()
        return [int(passage.id[1:]) for passage in await step.apply("who?", passages, 3)]
    finally:
        await step.close()


async def test_a_language_model_orders_the_candidates_in_windows():
    with fake_endpoint(by_number) as endpoint:
        assert await rerank(endpoint, PASSAGES[:12]) == [*range(11, -1, -1)]
        assert len(endpoint.requests) == 1
        # The best of the last passages rise to the top, ten places a window.
        assert (await rerank(endpoint, PASSAGES[:45], candidates=40))[:10] == [*range(39, 29, -1)]
        assert len(endpoint.requests) == 1 + 3
        assert (await rerank(endpoint, PASSAGES[:45], candidates=40))[40:] == [40, 41, 42, 43, 44]


@pytest.mark.parametrize(
    ("reply", "order"),
    [
        ("[2] > [1] > [3]", [1, 0, 2]),
        ("<think>maybe [3]</think>2, 1", [1, 0, 2]),
        ("[THINK]maybe [3][/THINK]2, 1", [1, 0, 2]),
        # A thought that was cut names no order.
        ("<think>maybe [3], or rather", [0, 1, 2]),
        ("[3]", [2, 0, 1]),
        ("These are the 3 passages in order: [2] > [1] > [3]", [1, 0, 2]),
        ("The best is [2], then [2], [9] and [0].", [1, 0, 2]),
        ("I cannot rank these.", [0, 1, 2]),
        ("", [0, 1, 2]),
    ],
)
async def test_whatever_a_model_replies_no_passage_is_lost(reply, order):
    with fake_endpoint(lambda request: reply) as endpoint:
        assert await rerank(endpoint, PASSAGES[:3]) == order


async def test_braces_in_passages_are_text():
    with fake_endpoint(lambda request: "[1]") as endpoint:
        await rerank(endpoint, [Passage("p0", "{x}", "{query} {0}"), PASSAGES[1]])
    assert "[1] {x}: {query} {0}" in json.dumps(endpoint.requests[0])


async def test_an_endpoint_that_refuses_is_one_line():
    with fake_endpoint(faults=["400"]) as endpoint, pytest.raises(UserError, match=r"refuses to rerank .*fewer cand"):
        await rerank(endpoint, PASSAGES[:3])
