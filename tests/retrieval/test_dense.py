"""Dense retrieval with an encoder of one random layer."""

import json
import random
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_encoders import save_encoder

from notewriter.data.world.generation import generate
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25, dense, encoders, passages, vectors
from notewriter.retrieval.chain import Chain
from notewriter.retrieval.dense import Dense, Encoder, build
from notewriter.retrieval.index import main
from notewriter.retrieval.index_folder import MANIFEST
from notewriter.retrieval.sources.index import open_index

pytest.importorskip("faiss", reason="needs the extra `dense`")
sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs the extra `dense`")

WORLD = generate(3, {"test": 12})["test"]
QUESTIONS = [question.question for question in WORLD.questions]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Encoder:
    return Encoder(str(save_encoder(tmp_path_factory.mktemp("models") / "tiny")), device="cpu")


@pytest.fixture(scope="module")
def directory(tmp_path_factory, encoder) -> Path:
    directory = tmp_path_factory.mktemp("index") / "dense"
    assert build(WORLD.passages, directory, "world", options=encoder) == len(WORLD.passages)
    return directory


@pytest.fixture
def corpus(tmp_path) -> list[str]:
    lines = (json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in WORLD.passages)
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    return ["--path", str(tmp_path / "corpus.jsonl")]


def manifest_of(directory: Path) -> dict:
    return json.loads((directory / MANIFEST).read_text())


def ids(passages: list[Passage]) -> list[str]:
    return [passage.id for passage in passages]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_the_nearest_are_those_that_a_comparison_with_every_passage_finds(tmp_path, encoder, similarity):
    options = replace(encoder, similarity=similarity, query_prompt="ask: ", passage_prompt="read: ")
    build(WORLD.passages, tmp_path / "i", options=options)
    retriever = open_index(tmp_path / "i")

    model = sentence_transformers.SentenceTransformer(encoder.encoder, device="cpu")
    passages = model.encode([f"read: {p.title}\n{p.text}" for p in WORLD.passages])
    queries = model.encode([f"ask: {question}" for question in QUESTIONS])
    if similarity == "cosine":
        passages /= np.linalg.norm(passages, axis=1, keepdims=True)
    scores = queries @ passages.T
    for question, row in zip(QUESTIONS, scores, strict=True):
        found = retriever.search(question, 7)
        positions = [WORLD.passages.index(passage) for passage in found]
        assert row[positions] == pytest.approx(np.sort(row)[::-1][:7], abs=1e-5)


def test_a_search_within_a_scope_compares_all_of_its_passages_and_no_others(directory):
    retriever = Dense(directory)
    scope = {WORLD.passages[3].id, *(passage.title for passage in WORLD.passages[10:30])}
    for question in QUESTIONS:
        everything = retriever.search(question, len(retriever))
        inside = [passage for passage in everything if passage.id in scope or passage.title in scope]
        assert retriever.search(question, 5, scope) == inside[:5]
    assert retriever.search(QUESTIONS[0], 5, {"nothing"}) == []


def test_queries_that_are_searched_together_find_what_each_finds_alone(directory):
    retriever = Dense(directory)
    assert retriever.search_all(QUESTIONS, 5) == [retriever.search(question, 5) for question in QUESTIONS]


def test_all_passages_come_where_fewer_are_there_and_none_is_refused(directory):
    retriever = Dense(directory)
    assert sorted(ids(retriever.search("Who?", 10_000))) == sorted(ids(WORLD.passages))
    assert len(retriever) == len(WORLD.passages)
    with pytest.raises(UserError, match="top_k: 0 passages"):
        retriever.search("Who?", 0)


def test_any_text_is_a_query_and_any_text_a_passage(tmp_path, encoder):
    odd = Passage("2", "café\u2028", 'river \ud800 "tower"\n\0')
    build([Passage("1", "", ""), odd, Passage("3", "long", "x " * 999)], tmp_path / "i", options=encoder)
    for query in ("", "\ud800", "\0", "y " * 9999):
        found = Dense(tmp_path / "i").search(query, 3)
        assert sorted(ids(found)) == ["1", "2", "3"]
        assert replace(odd, text='river ? "tower"\n\0') in found


def test_threads_can_search_at_once(directory):
    retriever = Dense(directory)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda question: retriever.search(question, 5), QUESTIONS * 4))
    assert found == [retriever.search(question, 5) for question in QUESTIONS] * 4


@pytest.mark.parametrize(
    ("name", "own", "given", "expected"),
    [
        ("bge-base-en-v1.5", None, {}, ("Represent this sentence for searching relevant passages: ", "")),
        ("multilingual-e5-small", None, {}, ("query: ", "passage: ")),
        ("e5-base-v2", {"query": "Q ", "passage": "P "}, {}, ("Q ", "P ")),
        ("own", {"query": "Q ", "document": "D "}, {"query_prompt": ""}, ("", "D ")),
        ("own-e5-base-v2", None, {}, ("", "")),
    ],
)
def test_prompts_are_the_given_ones_else_the_encoders_own_else_those_of_its_name(tmp_path, name, own, given, expected):
    path = save_encoder(tmp_path / name, prompts=own)
    build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(path), device="cpu", **given))
    manifest = manifest_of(tmp_path / "i")
    assert (manifest["query_prompt"], manifest["passage_prompt"]) == expected


def test_the_similarity_is_the_encoders_own_and_one_that_is_no_product_is_refused(tmp_path):
    path = save_encoder(tmp_path / "dot", similarity_fn_name="dot")
    build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(path)))
    assert manifest_of(tmp_path / "i")["similarity"] == "dot"
    path = save_encoder(tmp_path / "far", similarity_fn_name="euclidean")
    with pytest.raises(UserError, match="similarity: 'euclidean' cannot be searched"):
        build(WORLD.passages[:2], tmp_path / "j", options=Encoder(str(path)))


def test_an_encoder_that_is_another_or_gone_is_refused(tmp_path):
    path = save_encoder(tmp_path / "encoder")
    build(WORLD.passages[:3], tmp_path / "i", options=Encoder(str(path)))
    config = path / "1_Pooling" / "config.json"
    config.write_text(config.read_text().replace("mean", "max"))
    with pytest.raises(UserError, match=r"encoder is no longer the encoder .* or build the index again"):
        open_index(tmp_path / "i")
    shutil.rmtree(path)
    encoders.load.cache_clear()
    with pytest.raises(UserError, match="is neither a model folder nor a hub id"):
        open_index(tmp_path / "i")


def test_an_index_is_not_built_again_because_its_encoder_has_moved(tmp_path, corpus, capsys):
    argv = [*corpus, "--index", str(tmp_path / "i")]
    path = save_encoder(tmp_path / "before")
    main([*argv, "--encoder", str(path)])
    assert f"indexed {len(WORLD.passages)} passages" in capsys.readouterr().out
    path.rename(tmp_path / "after")
    main([*argv, "--encoder", str(tmp_path / "after")])
    assert "already an index of this corpus" in capsys.readouterr().out
    assert len(open_index(tmp_path / "i").search("Who?", 3)) == 3
    main([*argv, "--encoder", str(tmp_path / "after"), "--similarity", "dot"])
    assert f"indexed {len(WORLD.passages)} passages" in capsys.readouterr().out


class Killed(BaseException):
    """Ends a build as Ctrl-C does."""


def test_a_killed_build_leaves_no_index_and_goes_on_to_the_same_one(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(dense, "CHUNK", 16)
    encode, chunks = encoders.encode, []

    def counted(function, texts, *rest):
        chunks.append(len(texts))
        if len(chunks) == 4:
            raise Killed
        return encode(function, texts, *rest)

    monkeypatch.setattr(encoders, "encode", counted)
    with pytest.raises(Killed):
        build(WORLD.passages, tmp_path / "killed", options=encoder)
    for name in ("killed", "killed.partial"):
        with pytest.raises(UserError, match="contains no index"):
            open_index(tmp_path / name)
    with open(tmp_path / "killed.partial" / dense.EMBEDDINGS, "ab") as file:
        file.write(b"torn")

    # The first text determines the dimension.
    assert chunks == [1, 16, 16, 16]
    build([], tmp_path / "killed", options=encoder)
    assert sum(chunks[4:]) == 1 + len(WORLD.passages) - 32
    build(WORLD.passages, tmp_path / "whole", options=encoder)
    for name in (dense.EMBEDDINGS, passages.PASSAGES, passages.LINES, MANIFEST):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


def test_a_build_with_other_settings_does_not_go_on_with_what_a_killed_one_left(tmp_path, encoder, monkeypatch):
    def killed(*_):
        raise Killed

    monkeypatch.setattr(dense, "_embed", killed)
    with pytest.raises(Killed):
        build(WORLD.passages, tmp_path / "i", options=encoder)
    monkeypatch.undo()
    build(WORLD.passages[:3], tmp_path / "i", "another source", options=encoder)
    assert len(Dense(tmp_path / "i")) == 3


def test_bad_corpora_options_and_folders_are_named_and_lose_no_index(tmp_path, encoder, corpus):
    build(WORLD.passages[:3], tmp_path / "i", options=encoder)
    with pytest.raises(UserError, match="no passages to index"):
        build([], tmp_path / "i", "nothing", options=encoder)
    with pytest.raises(UserError, match="passages 1 and 2 have the same id"):
        build([WORLD.passages[0]] * 2, tmp_path / "i", "twice", options=encoder)
    with pytest.raises(UserError, match="batch_size: 0 passages"):
        build(WORLD.passages, tmp_path / "i", options=replace(encoder, batch_size=0))
    with pytest.raises(UserError, match=r"i: contains a dense index; choose another --index"):
        main([*corpus, "--index", str(tmp_path / "i")])
    with pytest.raises(UserError, match="add --encoder"):
        main([*corpus, "--index", str(tmp_path / "j"), "--similarity", "dot"])
    with pytest.raises(UserError, match=r"absent is neither a model folder nor a hub id"):
        main([*corpus, "--index", str(tmp_path / "j"), "--encoder", str(tmp_path / "absent")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: cannot be loaded as an encoder"):
        main([*corpus, "--index", str(tmp_path / "j"), "--encoder", str(tmp_path / "empty")])
    assert len(Dense(tmp_path / "i")) == 3
    (tmp_path / "i" / dense.EMBEDDINGS).write_bytes(b"cut")
    with pytest.raises(UserError, match=r"embeddings.float32: is damaged.* build the index again"):
        open_index(tmp_path / "i")


def test_code_that_an_encoder_brings_is_never_run(tmp_path):
    path = save_encoder(tmp_path / "encoder")
    (path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Pooling: ...\n")
    modules = (path / "modules.json").read_text()
    parts = json.loads(modules)
    parts[1]["type"] = "mine.Pooling"
    (path / "modules.json").write_text(json.dumps(parts))
    with pytest.raises(UserError, match="cannot be loaded as an encoder"):
        build(WORLD.passages[:3], tmp_path / "i", options=Encoder(str(path)))
    assert not (tmp_path / "ran").exists()


def test_a_missing_library_is_named_with_the_extra_that_brings_it(directory, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UserError, match=r"faiss is not installed; .*pip install -e '\.\[dense\]'"):
        open_index(directory)


async def test_a_bm25_and_a_dense_index_of_one_corpus_are_fused_and_share_its_ids(tmp_path, directory):
    bm25.build(WORLD.passages, tmp_path / "bm25", "world")
    both = Chain([{"index": str(tmp_path / "bm25")}, {"index": str(directory)}])
    words, vectors = open_index(tmp_path / "bm25"), open_index(directory)
    for question in QUESTIONS:
        known = {*ids(words.search(question, 5)), *ids(vectors.search(question, 5))}
        found = ids((await both.search(question, 10_000)).passages)
        assert known <= set(found) <= set(ids(WORLD.passages))
        assert len(found) == len(set(found))
        assert found[0] in known
    await both.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("e5-base-v2", ("query: ", "passage: ")),
        ("bge-large-en-v1.5", ("Represent this sentence for searching relevant passages: ", "")),
        ("bge-m3", ("", "")),
        ("gte-base", ("", "")),
        ("gtr-t5-xxl", ("", "")),
        ("Qwen3-Embedding-0.6B", (encoders.INSTRUCTION, "")),
        ("e5-mistral-7b-instruct", (f"{encoders.INSTRUCTION} ", "")),
        ("static-retrieval-mrl-en-v1", ("", "")),
        ("potion-retrieval-32M", ("", "")),
    ],
)
def test_every_family_of_encoders_has_its_prompts(name, expected):
    model = SimpleNamespace(prompts={})
    assert encoders.prompts(model, Encoder(f"owner/{name}")) == expected
    assert any(re.fullmatch(pattern, name.lower()) for pattern in encoders.KNOWN)


@pytest.fixture(scope="module")
def many() -> list[Passage]:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefgh", k=4)) for _ in range(50)]
    return [Passage(f"p{n}", "", " ".join(rng.choices(words, k=6)) + ".") for n in range(2_600)]


def test_a_graph_says_its_recall_and_reuses_the_embeddings(tmp_path, encoder, many):
    build(many, tmp_path / "i", "many", options=encoder)
    flat = Dense(tmp_path / "i")
    expected = {passage.text: ids(flat.search(passage.text, 10)) for passage in many[::100]}
    before = (tmp_path / "i" / dense.EMBEDDINGS).read_bytes()

    options = replace(encoder, structure="hnsw", recall=0.9)
    assert not dense.is_current(tmp_path / "i", "many", options=options)
    assert build([], tmp_path / "i", "many", options=options) == len(many)
    assert dense.is_current(tmp_path / "i", "many", options=options)
    assert not dense.is_current(tmp_path / "i", "many", options=replace(options, recall=0.99))
    assert (tmp_path / "i" / dense.EMBEDDINGS).read_bytes() == before

    made = manifest_of(tmp_path / "i")["structure"]
    assert (made["name"], made["target"]) == ("hnsw", 0.9)
    assert made["recall_at_10"] >= 0.9
    assert f"hnsw, recall@10 {made['recall_at_10']:.3f}" in dense.structure_of(tmp_path / "i")
    retriever = open_index(tmp_path / "i")
    found = {text: ids(retriever.search(text, 10)) for text in expected}
    assert np.mean([len({*found[text]} & {*expected[text]}) / 10 for text in expected]) > 0.8
    assert len(retriever.search("abcd", 1)) == 1


def test_an_unknown_structure_is_refused(tmp_path, encoder):
    with pytest.raises(UserError, match="unknown structure 'tree'; choose one of: flat, hnsw"):
        build(WORLD.passages, tmp_path / "i", options=replace(encoder, structure="tree"))


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory, encoder):
    """FAISS indexes of the world as FlashRAG writes them."""
    import faiss

    model = sentence_transformers.SentenceTransformer(encoder.encoder, device="cpu")
    embedded = model.encode([f"{p.title}\n{p.text}" for p in WORLD.passages], normalize_embeddings=True)
    folder = tmp_path_factory.mktemp("elsewhere")
    for name, kind in (("e5_Flat", "Flat"), ("e5_HNSW", "HNSW16"), ("e5_IVF", "IVF4,Flat"), ("e5_LSH", "LSH")):
        index = faiss.index_factory(embedded.shape[1], kind, faiss.METRIC_INNER_PRODUCT if kind != "LSH" else 1)
        index.train(embedded)
        index.add(embedded)
        faiss.write_index(index, str(folder / f"{name}.index"))
    return folder


@pytest.mark.parametrize("name", ["e5_Flat", "e5_HNSW"])
def test_a_faiss_index_built_elsewhere_serves_with_its_corpus(tmp_path, directory, encoder, corpus, elsewhere, name):
    options = ["--encoder", encoder.encoder, "--vectors", str(elsewhere / f"{name}.index")]
    main([*corpus, "--index", str(tmp_path / "i"), *options])
    retriever, exact = open_index(tmp_path / "i"), Dense(directory)
    shared = [{*ids(retriever.search(each, 5))} & {*ids(exact.search(each, 5))} for each in QUESTIONS]
    assert np.mean([len(each) for each in shared]) > 4.5
    # Another structure afterwards is made of the same vectors.
    main([*corpus, "--index", str(tmp_path / "i"), *options[:2], "--structure", "hnsw"])
    same = [{*ids(open_index(tmp_path / "i").search(each, 5))} & {*ids(exact.search(each, 5))} for each in QUESTIONS]
    assert np.mean([len(each) for each in same]) > 4.5


def test_vectors_of_other_lengths_are_compared_by_their_angle_as_the_encoder_says(tmp_path, directory, encoder):
    """Other tools leave it to the search to make the vectors of an encoder with cosine one long."""
    import faiss

    embedded = dense._map(directory, len(WORLD.passages), manifest_of(directory)["dimension"])
    index = faiss.IndexFlatIP(embedded.shape[1])
    index.add(embedded * np.linspace(1, 20, len(embedded), dtype=np.float32)[:, None])
    faiss.write_index(index, str(tmp_path / "raw.index"))
    build(WORLD.passages, tmp_path / "i", options=replace(encoder, vectors=str(tmp_path / "raw.index")))
    assert manifest_of(tmp_path / "i")["similarity"] == "cosine"
    found, exact = open_index(tmp_path / "i"), Dense(directory)
    assert [ids(found.search(each, 5)) for each in QUESTIONS] == [ids(exact.search(each, 5)) for each in QUESTIONS]


def test_a_scope_is_searched_exactly_in_a_graph_too(tmp_path):
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((12_000, 16), dtype=np.float32)
    file, rows = tmp_path / "v.faiss", np.arange(7, 12_000, 1000)
    made = vectors.build_graph(embeddings, file, embeddings[:20], 0.5)
    found = vectors.Vectors(made, embeddings, file).search(embeddings[:5], 20, rows)
    scores = embeddings[:5] @ embeddings[rows].T
    assert (found == rows[np.argsort(-scores)]).all()


def test_a_faiss_index_of_something_else_is_refused(tmp_path, encoder, elsewhere):
    def built(name: str, passages=WORLD.passages, **changes) -> None:
        options = replace(encoder, vectors=str(elsewhere / name), **changes)
        build(passages, tmp_path / "i", f"{len(passages)} passages from {passages[0].id}", options=options)

    with pytest.raises(UserError, match=r"e5_Flat.index: has \d+ vectors of 32 dimensions for 5 passages"):
        built("e5_Flat.index", WORLD.passages[:5])
    with pytest.raises(UserError, match=r"of 20 passages \d are found by their own embeddings"):
        built("e5_Flat.index", WORLD.passages[::-1])
    with pytest.raises(UserError, match=r"is a FAISS IndexLSH, .*; choose a flat or HNSW"):
        built("e5_LSH.index")
    with pytest.raises(UserError, match=r"absent.index: cannot be read .*; check the file"):
        built("absent.index")
    whole = (elsewhere / "e5_Flat.index").read_bytes()
    for content in (whole[:100], b"", b"not an index at all"):
        (elsewhere / "cut.index").write_bytes(content)
        with pytest.raises(UserError, match=r"cut.index: cannot be read as a FAISS index"):
            built("cut.index")
        (elsewhere / "cut.index").unlink()
    assert not (tmp_path / "i").exists()


def test_a_current_index_on_a_read_only_disk_is_left_as_it_is(tmp_path, directory, encoder, monkeypatch):
    def refused(path, lines):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("notewriter.ground.jsonl.write_text", refused)
    assert dense.is_current(directory, str(manifest_of(directory)["source"]), options=encoder)


def test_several_devices_have_a_process_each_and_embed_what_one_does(tmp_path, encoder, directory, monkeypatch):
    """The processes are stood in for: they take half a minute to start."""
    started, stopped, encode = [], [], encoders.encode
    model = sentence_transformers.SentenceTransformer
    monkeypatch.setattr(model, "start_multi_process_pool", lambda _, devices: started.append(devices) or {"number": 1})
    monkeypatch.setattr(model, "stop_multi_process_pool", lambda _, pool: stopped.append(pool))
    monkeypatch.setattr(dense, "CHUNK", 16)
    sizes = []

    def without_pool(function, texts, settings, prompt, batch_size=1, pool=None):
        sizes.extend([len(texts)] if pool == {"number": 1} else [])
        return encode(function, texts, settings, prompt, batch_size)

    monkeypatch.setattr(encoders, "encode", without_pool)
    build(WORLD.passages, tmp_path / "i", "world", options=replace(encoder, device="cpu,cpu"))
    assert (started, stopped, sizes[:2]) == ([["cpu", "cpu"]], [{"number": 1}], [32, 32])
    one, two = (np.fromfile(each / dense.EMBEDDINGS, np.float32) for each in (directory, tmp_path / "i"))
    assert two == pytest.approx(one, abs=1e-5)


def test_a_damaged_file_of_an_interrupted_build_is_reported(tmp_path, caplog):
    (tmp_path / "settings.json").write_text('{"half')
    assert dense._read_json(tmp_path / "settings.json") is None
    assert f"{tmp_path / 'settings.json'}: cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"retrieval.query": "Q ", "retrieval.passage": "P "}, ("Q ", "P ")),
        ({"search_query": "Q ", "search_document": "P ", "clustering": "C "}, ("Q ", "P ")),
        ({"s2p_query": "Q ", "s2s_query": "S "}, ("Q ", "")),
        ({"query": "Q ", "Retrieval-query": "Q ", "document": "P ", "Retrieval-document": "P "}, ("Q ", "P ")),
    ],
)
def test_prompts_are_found_under_the_names_that_families_give_them(tmp_path, prompts, expected):
    path = save_encoder(tmp_path / "m", prompts=prompts)
    (tmp_path / "m/README.md").unlink()
    build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(path), device="cpu"))
    manifest = manifest_of(tmp_path / "i")
    assert (manifest["query_prompt"], manifest["passage_prompt"]) == expected


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (None, "neither its configuration nor its name says it"),
        ({"clustering": "C "}, "its prompts are called clustering"),
        ({"search_query": "Q ", "retrieval.query": "R "}, "its prompts are called retrieval.query, search_query"),
    ],
)
def test_an_encoder_whose_prompts_cannot_be_known_is_refused_until_they_are_given(tmp_path, prompts, said):
    path = save_encoder(tmp_path / "m", prompts=prompts)
    (tmp_path / "m/README.md").unlink()
    with pytest.raises(UserError, match=f"{said}.*--query_prompt TEXT and --passage_prompt TEXT"):
        build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(path)))
    build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(path), query_prompt="", passage_prompt="P "))
    assert manifest_of(tmp_path / "i")["passage_prompt"] == "P "


@pytest.mark.parametrize(
    "where",
    ["models--intfloat--e5-base-v2/snapshots/" + "0" * 40, "intfloat--e5-base-v2", "card", "configuration"],
)
def test_an_encoder_is_known_by_the_hubs_cache_its_card_or_its_configuration(tmp_path, where):
    path = save_encoder(tmp_path / where)
    (path / "README.md").write_text("---\nlanguage: en\n---\n# E5-base-v2\n" if where == "card" else "")
    if where == "configuration":
        config = json.loads((path / "config.json").read_text()) | {"_name_or_path": "intfloat/e5-base-v2"}
        (path / "config.json").write_text(json.dumps(config))
    build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(path), device="cpu"))
    assert manifest_of(tmp_path / "i")["passage_prompt"] == "passage: "


def test_pooling_is_the_files_or_that_of_a_known_name_else_refused(tmp_path):
    tiny = save_encoder(tmp_path / "tiny")
    build(WORLD.passages[:2], tmp_path / "i", options=Encoder(str(tiny), device="cpu"))
    assert (manifest_of(tmp_path / "i")["pooling"], manifest_of(tmp_path / "i")["max_tokens"]) == ("mean", 128)
    bare = tmp_path / "tiny-bert"
    with pytest.raises(UserError, match=r"tiny-bert: has no modules\.json"):
        build(WORLD.passages[:2], tmp_path / "j", options=Encoder(str(bare), device="cpu"))
    shutil.copytree(bare, tmp_path / "bge-base-en-v1.5")
    build(WORLD.passages[:2], tmp_path / "j", options=Encoder(str(tmp_path / "bge-base-en-v1.5"), device="cpu"))
    assert manifest_of(tmp_path / "j")["pooling"] == "cls"


@pytest.mark.parametrize("left", ["an index", "an unfinished build"])
def test_embeddings_of_another_pooling_are_not_taken_over(tmp_path, left):
    """An earlier version took the mean of every encoder without modules.json, and did not record it."""
    save_encoder(tmp_path / "tiny")
    encoder = Encoder(str(shutil.copytree(tmp_path / "tiny-bert", tmp_path / "bge-base-en-v1.5")), device="cpu")
    build(WORLD.passages[:4], tmp_path / "i", "four", options=encoder)
    new = (tmp_path / "i" / dense.EMBEDDINGS).read_bytes()
    manifest = manifest_of(tmp_path / "i")
    del manifest["pooling"], manifest["max_tokens"]
    old = tmp_path / "i" if left == "an index" else (tmp_path / "i").rename(tmp_path / "i.partial")
    (old / dense.EMBEDDINGS).write_bytes(bytes(len(new)))
    (old / "manifest.json").write_text(json.dumps(manifest))
    if left != "an index":
        names = ("kind", "source", "fingerprint", "query_prompt", "passage_prompt", "similarity")
        (old / dense.SETTINGS).write_text(json.dumps({name: manifest[name] for name in names}))
    build(WORLD.passages[:4], tmp_path / "i", "four", options=encoder)
    assert (tmp_path / "i" / dense.EMBEDDINGS).read_bytes() == new


def test_passages_longer_than_the_encoder_reads_are_told(tmp_path, caplog):
    corpus = [Passage("a", "t", "word " * 200), Passage("b", "t", "short")]
    build(corpus, tmp_path / "i", options=Encoder(str(save_encoder(tmp_path / "tiny")), device="cpu"))
    assert "of 2 passages looked at, 1 are longer than the 128 tokens" in caplog.text


@pytest.mark.parametrize(("ways", "tokens"), [("static", None), ("static queries", 128)])
def test_an_encoder_without_a_transformer_is_searched_as_the_library_does(tmp_path, caplog, ways, tokens):
    """Static embeddings read all of a text, and so do the queries of a model that has a transformer for passages."""
    from tokenizers import Tokenizer

    save_encoder(tmp_path / "tiny")
    parts = sentence_transformers.sentence_transformer.modules
    words = parts.StaticEmbedding(Tokenizer.from_file(str(tmp_path / "tiny-bert/tokenizer.json")), embedding_dim=32)
    passages = [parts.Transformer(str(tmp_path / "tiny-bert")), parts.Pooling(32)]
    router = sentence_transformers.base.modules.Router
    only = words if ways == "static" else router.for_query_document([words], passages)
    model = sentence_transformers.SentenceTransformer(modules=[only], device="cpu")
    model.save(str(tmp_path / "m"))

    corpus = [*WORLD.passages[:20], Passage("long", "t", "word " * 200)]
    build(corpus, tmp_path / "i", options=Encoder(str(tmp_path / "m"), "", "", device="cpu"))
    assert manifest_of(tmp_path / "i")["max_tokens"] == tokens
    limit = "" if tokens is None else f", at most {tokens} tokens"
    assert dense.texts_of(tmp_path / "i") == f"query prompt '', passage prompt '', no pooling{limit}"
    assert ("1 are longer than the 128 tokens" in caplog.text) is (tokens is not None)
    scores = model.similarity(
        model.encode_query(QUESTIONS), model.encode_document([f"{p.title}\n{p.text}" for p in corpus])
    ).numpy()
    for question, row in zip(QUESTIONS, scores, strict=True):
        positions = [corpus.index(passage) for passage in Dense(tmp_path / "i").search(question, 5)]
        assert row[positions] == pytest.approx(np.sort(row)[::-1][:5], abs=1e-5)


@pytest.mark.parametrize("kind", ["SparseEncoder", "MultiVectorEncoder", "CrossEncoder"])
def test_a_model_of_another_kind_is_not_made_into_an_encoder(tmp_path, kind):
    """The library would drop what makes it sparse, late or cross, and take the mean of all tokens."""
    save_encoder(tmp_path / "tiny")
    model = getattr(sentence_transformers, kind)(str(tmp_path / "tiny"), device="cpu")
    model.save_pretrained(str(tmp_path / "m"))
    with pytest.raises(UserError, match=f"m is a {kind}; choose a model with one vector for a text"):
        build(WORLD.passages, tmp_path / "i", options=Encoder(str(tmp_path / "m"), "", "", device="cpu"))
