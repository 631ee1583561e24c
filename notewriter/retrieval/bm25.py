"""BM25 on disk with tantivy: Lucene's formula with k1 = 1.2 and b = 0.75, as in Elasticsearch.

A passage is scored in two fields, title and contents (title and text), and the scores are added. Text is split at
characters that are neither letters nor digits, lower-cased, stripped of accents and stemmed (Porter's stemmer for
English). Recall of the supporting passages at 5, on small slices of three benchmarks with the union of their
paragraphs as the corpus:

| fields, analysis            | HotpotQA | 2WikiMultihopQA | MuSiQue |
|-----------------------------|----------|-----------------|---------|
| contents, plain words       | 0.770    | 0.638           | 0.489   |
| title + contents, plain     | 0.795    | 0.666           | 0.549   |
| title + contents, stemmed   | 0.795    | 0.669           | 0.544   |
| the same, without accents   | 0.795    | 0.669           | 0.557   |

The title field also lets a search for an entity's name find its page: 0.99 of the titles ranked their own page
first, against 0.95 without the field. Stop words are kept: removing them made almost no difference, and some names
consist of nothing else.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tantivy

from notewriter.errors import UserError
from notewriter.records import Passage
from notewriter.retrieval import check_top_k, checked, read_manifest, write_index
from notewriter.text import without_surrogates

SCHEMA = "notewriter/bm25/1"
"""Changes with everything that makes older indexes unreadable or changes their results."""

FIELDS = ("title", "contents")
ANALYZER = "english"
WRITER_BYTES = 256_000_000
"""Memory for documents not yet written to disk, in bytes."""


def build(passages: Iterable[Passage], directory: str | Path, source: str = "") -> int:
    """Index a stream of passages; returns their number.

    Memory is bounded except for the ids. The folder appears under its name only when complete.

    Args:
        passages: the corpus.
        directory: the folder of the index; an existing index is replaced.
        source: a fingerprint of the corpus, recorded in the manifest.

    Raises:
        UserError: there are no passages, an id occurs twice, or the folder exists and is not an index.
    """

    def write(folder: Path) -> dict[str, Any]:
        return {"schema": SCHEMA, "kind": "bm25", "passages": _write(passages, folder), "source": source}

    count: int = write_index(directory, write)["passages"]
    return count


def is_current(directory: str | Path, source: str) -> bool:
    """Whether the folder contains a BM25 index of this version and source."""
    manifest = read_manifest(directory) or {}
    return (manifest.get("schema"), manifest.get("source")) == (SCHEMA, source)


class BM25:
    """An open BM25 index; implements `Retriever`.

    Raises:
        UserError: the folder contains no index that this version can read.
    """

    def __init__(self, directory: str | Path) -> None:
        manifest = read_manifest(directory) or {}
        if manifest.get("schema") != SCHEMA:
            raise UserError(f"{directory}: contains no {SCHEMA} index; build it again with `notewriter index`")
        self._directory = directory
        self._analyzer = _analyzer()
        with _named(directory):
            index = tantivy.Index.open(str(directory))
            index.register_tokenizer(ANALYZER, self._analyzer)
            self._schema = index.schema
            self._searcher = index.searcher()

    def __len__(self) -> int:
        return self._searcher.num_docs

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The `top_k` best passages, or fewer if fewer share a word with the query.

        The query is plain text: each distinct word counts once, everything else is ignored. Ties are broken by
        corpus order, so that results are the same across runs and builds.

        Raises:
            UserError: `top_k` is below 1, or the index is damaged.
        """
        check_top_k(top_k)
        # tantivy allocates memory for as many hits as it is asked for.
        top_k = min(top_k, len(self))
        words = dict.fromkeys(self._analyzer.analyze(without_surrogates(query)))
        if not (words and top_k):
            return []
        with _named(self._directory):
            clauses = [
                (tantivy.Occur.Should, tantivy.Query.term_query(self._schema, field, word, index_option="freq"))
                for word in words
                for field in FIELDS
            ]
            addresses = self._best(tantivy.Query.boolean_query(clauses), top_k)
            stored = (self._searcher.doc(address).get_first("passage") for address in addresses)
            return [Passage(*json.loads(bytes(passage))) for passage in stored if passage is not None]

    def _best(self, query: tantivy.Query, top_k: int) -> list[tantivy.DocAddress]:
        # tantivy breaks ties by document address, which differs between builds. So fetch more hits until the last one
        # scores below the last one needed, and sort ties by corpus order.
        limit = top_k + 16
        while True:
            hits = [(_rounded(score), a) for score, a in self._searcher.search(query, limit, count=False).hits]
            if len(hits) < limit or hits[-1][0] < hits[top_k - 1][0]:
                break
            limit *= 2
        positions = self._searcher.fast_field_values("position", [address for _, address in hits])
        ranked = sorted(zip(hits, positions, strict=True), key=lambda hit: (-hit[0][0], hit[1] or 0))
        return [address for (_, address), _ in ranked[:top_k]]


@contextlib.contextmanager
def _named(directory: str | Path) -> Iterator[None]:
    """Name the index if the library fails on it."""
    try:
        yield
    except BaseException as error:
        # The library's panic is not an `Exception` and cannot be imported.
        if not isinstance(error, OSError | ValueError | TypeError) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{directory}: cannot be searched ({reason}); remove it and build it again") from error


def _rounded(score: float) -> float:
    # Summed in another order, a score differs in the last of its seven digits.
    return float(f"{score:.5g}")


def _write(passages: Iterable[Passage], folder: Path) -> int:
    index = tantivy.Index(_schema(), path=str(folder))
    index.register_tokenizer(ANALYZER, _analyzer())
    writer = index.writer(heap_size=WRITER_BYTES)
    try:
        count = _add(passages, writer)
        writer.commit()
    finally:
        # Also after an error: its threads may still be writing into the folder about to be removed.
        writer.wait_merging_threads()
    return count


def _add(passages: Iterable[Passage], writer: tantivy.IndexWriter) -> int:
    count = 0
    for count, passage in enumerate(checked(passages), start=1):
        writer.add_document(
            tantivy.Document(
                title=passage.title,
                contents=f"{passage.title}\n{passage.text}",
                passage=json.dumps([passage.id, passage.title, passage.text], ensure_ascii=False).encode("utf-8"),
                position=count - 1,
            )
        )
    return count


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for field in FIELDS:
        # BM25 needs frequencies only; positions would double the index.
        builder.add_text_field(field, tokenizer_name=ANALYZER, index_option="freq")
    builder.add_bytes_field("passage", stored=True)
    builder.add_integer_field("position", fast=True)
    return builder.build()


def _analyzer() -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for step in (
        tantivy.Filter.remove_long(40),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
        tantivy.Filter.stemmer("english"),
    ):
        builder = builder.filter(step)
    return builder.build()
