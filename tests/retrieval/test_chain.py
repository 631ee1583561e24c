"""Chains: parts are read and checked, sources fused, passages restricted, reranked and dropped; traces say how."""

import asyncio

import pytest

from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.retrieval import bm25
from notewriter.retrieval.chain import Chain, find, fingerprint, parts_of
from notewriter.retrieval.sources.index import Local
from notewriter.retrieval.sources.service import within
from notewriter.rollouts.identity import differences
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

WIKI = [
    Passage("w1", "River", "The river crosses a town."),
    Passage("w2", "Town", "The town has a museum of clocks."),
    Passage("w3", "Mayor", "The mayor of the town opened the museum."),
    Passage("w4", "Town", "In the town lives a clock maker."),
]
NEWS = [
    Passage("n1", "Museum", "The museum of the town was closed."),
    Passage("n2", "Town", "The town  has a Museum of clocks."),
]


@pytest.fixture(scope="module")
def indexes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("indexes")
    bm25.build(WIKI, folder / "wiki", "wiki")
    bm25.build(WIKI, folder / "same", "wiki")
    bm25.build(NEWS, folder / "news", "news")
    return folder


def search(parts, query="town museum", top_k=3, question=None):
    async def run():
        chain = Chain(parts)
        await chain.check()
        try:
            return await find(chain, query, top_k, question)
        finally:
            await chain.close()

    return asyncio.run(run())


def ids(found):
    return [passage.id for passage in found.passages]


def test_a_single_index_is_searched_as_before_and_leaves_no_parts(indexes):
    found = search([{"index": str(indexes / "wiki")}])
    assert found.passages == bm25.BM25(indexes / "wiki").search("town museum", 3)
    assert found.parts == []


def test_index_is_the_short_form_of_a_list_of_parts(indexes):
    wiki, news = str(indexes / "wiki"), str(indexes / "news")
    assert parts_of([wiki, news], None) == [{"index": wiki}, {"index": news}]
    assert parts_of(None, [{"index": wiki}]) == [{"index": wiki}]
    assert parts_of(None, None) == []
    with pytest.raises(UserError, match="index and retriever are both given"):
        parts_of([wiki], [{"index": news}])


def test_sources_are_fused_by_weighted_rank_and_keep_the_ids_of_the_first(indexes):
    wiki, news = {"index": str(indexes / "wiki")}, {"index": str(indexes / "news")}
    even = search([wiki, news])
    assert [id.startswith("2:") for id in ids(even)] == [False, True, False]
    assert ids(search([wiki | {"weight": 0.01}, news], top_k=2)) == ["2:n1", "2:n2"]
    assert all(not id.startswith("2:") for id in ids(search([wiki, news | {"weight": 0.01}], top_k=2)))


def test_indexes_of_one_corpus_share_their_ids(indexes):
    found = search([{"index": str(indexes / "wiki")}, {"index": str(indexes / "same")}])
    assert ids(found) == ids(search([{"index": str(indexes / "wiki")}]))


def test_each_part_says_what_it_found_and_how_long_it_took(indexes):
    wiki, news = str(indexes / "wiki"), str(indexes / "news")
    found = search([{"index": wiki}, {"index": news}, {"distinct": "text"}], top_k=2)
    assert [part["part"] for part in found.parts] == [wiki, news, "distinct text"]
    assert [part["found"] for part in found.parts[:2]] == [4, 2]
    assert [len(part["ids"]) for part in found.parts] == [2, 2, 2]
    assert all(0 <= part["seconds"] < 5 for part in found.parts)


def test_distinct_drops_what_differs_in_case_and_space_alone(indexes):
    parts = [{"index": str(indexes / "wiki")}, {"index": str(indexes / "news")}]
    # Their titles and texts differ in one space and one capital.
    assert {"w2", "2:n2"} <= set(ids(search(parts, "museum of clocks", 6)))
    distinct = ids(search([*parts, {"distinct": "text"}], "museum of clocks", 6))
    assert len({"w2", "2:n2"} & set(distinct)) == 1
    assert len(ids(search([parts[0], {"distinct": "title"}], "town", 4))) == 3


def test_a_question_is_restricted_to_the_ids_or_titles_in_its_metadata(indexes):
    parts = [{"index": str(indexes / "wiki")}, {"within": "pages"}]
    question = Question("q", "Who?", (), metadata={"pages": ["w3", "https://en.wikipedia.org/wiki/River#Course"]})
    assert set(ids(search(parts, "town", 5, question))) == {"w1", "w3"}
    with pytest.raises(UserError, match="question 'q' has no list of ids or titles under 'pages'"):
        search(parts, "town", 5, Question("q", "Who?", ()))


@pytest.mark.parametrize("page", ["river", "River ", "https://en.wikipedia.org/wiki/river"])
def test_a_page_is_found_by_its_title_however_a_question_spells_it(indexes, page):
    question = Question("q", "Who?", (), metadata={"pages": [page]})
    assert ids(search([{"index": str(indexes / "wiki")}, {"within": "pages"}], "town", 5, question)) == ["w1"]


def test_a_question_is_restricted_to_the_passages_that_a_file_lists(indexes, tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text('{"question_id": "q", "passages": ["w1", "w4"]}\n')
    parts = [{"index": str(indexes / "wiki")}, {"within": str(file)}]
    assert set(ids(search(parts, "town", 5, Question("q", "Who?", ())))) == {"w1", "w4"}
    with pytest.raises(UserError, match="has no line for question 'other'"):
        search(parts, "town", 5, Question("other", "Who?", ()))
    file.write_text('{"question_id": "q", "passages": []}\n')
    with pytest.raises(UserError, match=r"own.jsonl: its line of question 'q' lists nothing; list some"):
        search(parts, "town", 5, Question("q", "Who?", ()))
    file.write_text('{"question_id": "q"}\n')
    with pytest.raises(UserError, match=r"own.jsonl:1 has no 'passages'; write"):
        search(parts)
    file.write_text('{"question_id": "q", "passages": ["w1"]}\n\n{"question_id": "q", "passages": ["w2"]}\n')
    with pytest.raises(UserError, match=r"own.jsonl:3: question 'q' has a line already, the one at .*own.jsonl:1"):
        search(parts)


def test_a_chain_is_known_by_what_its_file_of_passages_contains(indexes, tmp_path):
    file, copy = tmp_path / "own.jsonl", tmp_path / "copy.jsonl"
    parts = [{"index": str(indexes / "wiki")}, {"within": str(file)}]
    file.write_text('{"question_id": "q", "passages": ["w1"]}\n')
    copy.write_text(file.read_text())
    before = fingerprint(parts)
    assert fingerprint([parts[0], {"within": str(copy)}]) == before
    file.write_text('{"question_id": "q", "passages": ["w2"]}\n')
    assert fingerprint(parts) != before


def test_documents_are_read_in_the_order_of_their_file_whatever_the_query(indexes, tmp_path):
    file = tmp_path / "per_question.jsonl"
    file.write_text('{"question_id": "q", "passage_ids": ["w4", "w1", "w3"], "own": 2, "tokens": 30}\n')
    wiki = {"documents": str(indexes / "wiki")}
    question = Question("q", "Who?", ())
    assert ids(search([wiki, {"within": str(file)}], "zebra", 5, question)) == ["w4", "w1", "w3"]
    assert ids(search([wiki, {"within": str(file)}], "zebra", 2, question)) == ["w4", "w1"]
    assert ids(search([wiki], "zebra", 3)) == ["w1", "w2", "w3"]
    assert fingerprint([wiki]) == fingerprint([{"documents": str(indexes / "same")}])
    assert fingerprint([wiki]) not in (fingerprint([{"index": str(indexes / "wiki")}]), fingerprint([{"within": "x"}]))


def test_documents_that_are_not_in_the_index_are_an_error(indexes, tmp_path):
    file = tmp_path / "other.jsonl"
    file.write_text('{"question_id": "q", "passages": ["n1"]}\n')
    with pytest.raises(UserError, match="has none of the question's documents"):
        search([{"documents": str(indexes / "wiki")}, {"within": str(file)}], question=Question("q", "Who?", ()))
    with pytest.raises(UserError, match="contains no index"):
        search([{"documents": str(tmp_path)}])


async def test_a_scope_is_found_however_deep_it_lies():
    ranking = [Passage(str(number), "", "") for number in range(5000)]
    asked = []

    async def fetch(count):
        asked.append(count)
        return ranking[:count]

    assert await within({"4000", "70"}, fetch, 2, deepest=10_000) == [ranking[70], ranking[4000]]
    assert asked == [64, 512, 4096]
    assert await within({"absent"}, fetch, 1, deepest=10_000) == []
    assert await within({"4000"}, fetch, 1, deepest=100) == []


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([{"distinct": "text"}], "retriever: has no source"),
        ([{"weight": 1}], "must have exactly one of the keys index"),
        ([{"index": "a", "url": "http://b"}], "must have exactly one of the keys"),
        ([{"index": "a", "wieght": 1.0}], "unknown key 'wieght'; did you mean 'weight'"),
        ([{"index": "a", "weight": 0}], "weight: 0 is too small"),
        ([{"index": 3}], "index must be str, not 3"),
        ([{"index": ""}], "index is empty"),
        ([{"index": "a"}, {"index": "b/../a"}], "this index is listed twice"),
        ([{"index": "a"}, {"distinct": "words"}], "distinct must be one of text, title, not 'words'"),
        ([{"index": "a"}, {"within": "x"}, {"within": "y"}], "within is given twice"),
    ],
)
def test_a_part_that_is_wrong_is_named(parts, problem):
    with pytest.raises(UserError, match=problem):
        parts_of(None, parts)


def test_a_chain_is_known_by_its_parts_and_not_by_its_paths(indexes):
    wiki, same, news = ([{"index": str(indexes / name)}] for name in ("wiki", "same", "news"))
    assert fingerprint(wiki) == fingerprint(same) != fingerprint(news)
    assert fingerprint([{"url": "http://a"}]) == fingerprint([{"url": "http://b"}])


SHELF = """
from dataclasses import dataclass
from pathlib import Path
from notewriter.ground.records import Passage
from notewriter.retrieval.protocol import Source, SourceOptions

@dataclass(frozen=True, slots=True, kw_only=True)
class ShelfOptions(SourceOptions):
    shelf: str

class Shelf:
    def __init__(self, options):
        self.name, self.corpus, self._books = options.shelf, "", Path(options.shelf).read_text().splitlines()
    async def check(self): ...
    async def search(self, query, top_k, scope=None):
        return [Passage(book, book, "A book.") for book in self._books][:top_k]
    async def close(self): ...

shelf = Source(options=ShelfOptions, open=Shelf, identity=lambda options: Path(options.shelf).read_text())
"""


def test_a_source_of_ones_own_is_a_part_like_any_other(indexes, tmp_path):
    (tmp_path / "library.py").write_text(SHELF)
    (tmp_path / "books").write_text("Emma\nUlysses\n")
    plugins.load(f"{tmp_path}/library.py:shelf")
    parts = [{f"{tmp_path}/library.py:shelf": str(tmp_path / "books"), "weight": 0.5}, {"distinct": "title"}]
    assert ids(search(parts)) == ["Emma", "Ulysses"]
    assert {"2:Emma", "w2"} <= set(ids(search([{"index": str(indexes / "wiki")}, parts[0]], top_k=9)))
    before = fingerprint(parts)
    (tmp_path / "books").write_text("Emma\n")
    assert fingerprint(parts) != before
    with pytest.raises(UserError, match="unknown key 'wieght'; did you mean 'weight'"):
        search([{f"{tmp_path}/library.py:shelf": "books", "wieght": 1}])


HERE, THERE = "http://127.0.0.1:9", "http://127.0.0.1:10"


@pytest.mark.parametrize(
    ("part", "moved", "another"),
    [
        ({"url": HERE}, {"url": THERE}, {"weight": 0.5}),
        ({"web": HERE}, {"web": THERE, "api_key_env": "KEY"}, {"weight": 0.5}),
        ({"llm_rerank": "qwen", "base_url": HERE}, {"base_url": THERE}, {"candidates": 40}),
    ],
    ids=lambda each: next(iter(each)),
)
def test_where_a_part_is_and_how_it_is_asked_is_no_other_chain(part, moved, another):
    before = {"retriever": [{"index": "wiki"}, part]}
    now = {"retriever": [{"index": "wiki"}, part | moved | {"timeout": 5.0, "attempts": 2}]}
    other = {"retriever": [{"index": "wiki"}, part | another]}
    # A served chain and a run that resumes agree on it, under `chains` of evaluate too.
    assert fingerprint(now["retriever"]) == fingerprint(before["retriever"]) != fingerprint(other["retriever"])
    assert differences(before, now) == {} != differences(before, other)
    assert differences({"chains": {"a": before["retriever"]}}, {"chains": {"a": now["retriever"]}}) == {}
    assert differences({"chains": {"a": before["retriever"]}}, {"chains": {"a": other["retriever"]}})


def test_what_kind_of_server_is_searched_makes_another_chain():
    parts = [{"url": HERE}, {"web": HERE}]
    assert len({fingerprint([part]) for part in parts}) == len(parts)


def test_a_reranker_is_known_by_its_weights_and_not_by_its_device(tmp_path):
    def known(weights: bytes, **options):
        for name, content in (("config.json", b"{}"), ("model.safetensors", weights)):
            (tmp_path / name).write_bytes(content)
        return fingerprint([{"rerank": str(tmp_path), **options}])

    assert known(b"a", device="cuda:1", batch_size=8) == known(b"a") != known(b"b")


async def test_searches_run_beside_the_event_loop():
    """Sixty-four searches of ten milliseconds leave the loop free to turn."""
    import time

    class Slow:
        def search(self, query, top_k, scope=None):
            time.sleep(0.01)
            return []

    local, turns = Local(Slow(), "slow", ""), 0

    async def turn():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    turning = asyncio.create_task(turn())
    await asyncio.gather(*(local.search("q", 1) for _ in range(64)))
    turning.cancel()
    assert turns > 64
    await local.close()


async def test_queries_that_arrive_during_a_search_are_searched_together():
    calls = []

    class Batching:
        def search(self, query, top_k, scope=None):
            raise AssertionError("one by one")

        def search_all(self, queries, top_k, scope=None):
            calls.append((len(queries), top_k, scope))
            if "bad" in queries:
                raise UserError("the encoder failed")
            return [[Passage(query, "", "")] for query in queries]

    local = Local(Batching(), "batching", "")
    found = await asyncio.gather(
        *(local.search(str(number), 1) for number in range(100)),
        *(local.search("inside", 1, frozenset({"a"})) for _ in range(2)),
        local.search("deeper", 2),
    )
    assert [passages[0].id for passages in found] == [*map(str, range(100)), "inside", "inside", "deeper"]
    assert calls == [(64, 1, None), (36, 1, None), (2, 1, frozenset({"a"})), (1, 2, None)]
    with pytest.raises(UserError, match="the encoder failed"):
        await local.search("bad", 1)
    assert await local.search("good", 1) == [Passage("good", "", "")]
    await local.close()


async def test_a_trace_keeps_what_each_part_did(indexes):
    chain = Chain([{"index": str(indexes / "wiki")}, {"index": str(indexes / "news")}])
    rollout = Rollout(Question("q", "Who?", ()), "m", Resources({}, Prompts(), chain))
    await rollout.retrieve("town", 2)
    (step,) = type(rollout.trace).from_dict(rollout.trace.to_dict()).retrievals
    assert step == rollout.trace.retrievals[0]
    assert [part["found"] for part in step.parts] == [2, 2]
    record = rollout.trace.to_dict()
    del record["steps"][0]["parts"]
    assert type(rollout.trace).from_dict(record).retrievals[0].parts is None
    await chain.close()
