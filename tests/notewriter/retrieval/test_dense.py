"""Dense retrieval with an encoder of one random layer."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_construction.world.generation import generate
from notewriter.errors import UserError
from notewriter.records import Passage
from notewriter.retrieval import MANIFEST, bm25, dense, open_index
from notewriter.retrieval.dense import Dense, Encoder, build
from notewriter.retrieval.index import main

pytest.importorskip("faiss", reason="needs the extra `dense`")
sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs the extra `dense`")

WORLD = generate(3, {"test": 12})["test"]
QUESTIONS = [question.question for question in WORLD.questions]


def save_encoder(folder: Path, seed: int = 0, **options) -> Path:
    """A random BERT that reads letters, and the mean of its outputs."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    letters = [prefix + chr(code) for code in range(33, 127) for prefix in ("", "##")]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    bert = folder.with_name(folder.name + "-bert")
    bert.mkdir()
    (bert / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(str(bert / "vocab.txt"), model_max_length=128).save_pretrained(bert)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(pieces), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(bert)
    parts = sentence_transformers.sentence_transformer.modules
    modules = [parts.Transformer(str(bert)), parts.Pooling(32)]
    sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder))
    return folder


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
    dense._load.cache_clear()
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
    encode, chunks = dense._encode, []

    def counted(function, texts, *rest):
        chunks.append(len(texts))
        if len(chunks) == 4:
            raise Killed
        return encode(function, texts, *rest)

    monkeypatch.setattr(dense, "_encode", counted)
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
    for name in (dense.EMBEDDINGS, dense.PASSAGES, dense.LINES, MANIFEST):
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
    with pytest.raises(UserError, match=r"dense retrieval needs faiss; install notewriter\[dense\]"):
        open_index(directory)


def test_a_bm25_and_a_dense_index_of_one_corpus_are_fused_and_share_its_ids(tmp_path, directory):
    bm25.build(WORLD.passages, tmp_path / "bm25", "world")
    words, vectors, both = (open_index(each) for each in (tmp_path / "bm25", directory, [tmp_path / "bm25", directory]))
    for question in QUESTIONS:
        known = {*ids(words.search(question, 5)), *ids(vectors.search(question, 5))}
        found = ids(both.search(question, 10_000))
        assert known <= set(found) <= set(ids(WORLD.passages))
        assert len(found) == len(set(found))
        assert found[0] in known
