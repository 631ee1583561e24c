"""BM25 on disk with tantivy: Lucene's formula with k1 = 1.2 and b = 0.75, as in Elasticsearch.

A passage is scored in two fields, title and contents (title and text), and the scores are added. Text is split at
characters that are neither letters nor digits, lower-cased, stripped of accents and, by default, stemmed as English by
Snowball. tantivy stores the length of a field as Lucene does, in one byte: exact up to 40 words, then within an eighth.

Recall of the supporting passages at 5, on small slices of three benchmarks with the union of their
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

Chinese, Japanese, Thai, Lao, Khmer and Burmese have no spaces between words, and Korean's particles are part of its
words. There each character and each pair of neighbours is a word, as the pairs are in Lucene's analyzer. Marks that end
a word for tantivy, such as the virama of Indian scripts, are left out, but not for Tamil's stemmer, which needs them.
These words are in a field of their own, so that the results of a query in another script do not depend on them.
"""

import contextlib
import functools
import itertools
import logging
import os
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import regex
import tantivy
from annotated_types import Interval

from notewriter.ground.config import choose
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.lazy import Lazy
from notewriter.ground.options import option
from notewriter.ground.records import Passage
from notewriter.ground.text import UNSPACED, without_surrogates
from notewriter.retrieval import frequent_words, index_folder, passages
from notewriter.retrieval.protocol import Scope, check_top_k

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = Lazy("numpy")

SCHEMA = "notewriter/bm25/3"
"""Changes with everything that makes older indexes unreadable or changes their results."""

WORDS = f"notewriter/words/1, tantivy {'.'.join(version('tantivy').split('.')[:2])}"
"""The version of the analysis: the tokenizer here, and the release of the library whose stemmers follow it.

The stemmers differ between releases: 0.27 makes other stems of "university" and "international" than 0.26, and an index
of one finds nothing for them with the other.
"""

FIELDS = ("title", "contents", "unspaced")
LANGUAGES = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian", "italian",
    "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil", "turkish",
)  # fmt: skip
"""Languages with a Snowball stemmer in tantivy."""

ANALYZERS = ("plain", *LANGUAGES)
TOKENIZER = "english"
"""The analyzer's name inside tantivy's schema, whichever it is."""

WRITER_BYTES = 256_000_000
"""Memory for documents not yet written to disk, in bytes, shared by all threads."""

MAX_THREADS = 16
"""tantivy gives each thread at least 15 MB of it."""

FIRST_BLOCK = 10_000
"""Passages indexed by one thread, so that small indexes have the same size in every build."""

SAMPLE = 200
"""The number of passages that are checked for words."""

CANDIDATES = 50
"""Passages, and ten more for each that is wanted, to which the scores of frequent words are added."""

MOST_BY_TABLE = 100
"""The largest number of wanted passages for which that is faster than reading all postings."""

ERROR = 1e-6
"""The relative error of a sum of some ten float32 scores, at most."""

logger = logging.getLogger(__name__)

LOCK = ".tantivy-meta.lock"
"""The file that tantivy locks while it opens an index."""


@dataclass(slots=True)
class Analysis:
    """The analysis of text into words, with the weight of titles."""

    analyzer: str = option(
        "english", f"how words are stemmed in a BM25 index: plain (not at all) or {', '.join(LANGUAGES)}"
    )
    title_boost: Annotated[float, Interval(ge=0, le=1000)] = option(
        1.0, "factor of the title's score in a BM25 index; 0 searches the contents only, titles included"
    )


@dataclass(frozen=True)
class BM25Manifest:
    """The contents of a BM25 index's `manifest.json`."""

    passages: Annotated[int, Interval(ge=1)]
    analyzer: str
    words: str
    title_boost: Annotated[float, Interval(ge=0)]


def build(
    corpus: Iterable[Passage], directory: str | Path, source: str = "", *, analysis: Analysis | None = None
) -> int:
    """Index a stream of passages; returns their number.

    Memory is bounded but for 24 bytes a passage. The folder appears under its name only when complete.

    Args:
        corpus: the passages.
        directory: the folder of the index; an existing index is replaced.
        source: a fingerprint of the corpus, recorded in the manifest.
        analysis: how text becomes words.

    Raises:
        UserError: there are no passages, an id occurs twice, the analyzer is unknown, or the folder exists and is not
            an index.
    """
    analysis = analysis or Analysis()
    choose("analyzer", analysis.analyzer, dict.fromkeys(ANALYZERS))

    def write(folder: Path) -> dict[str, Any]:
        tantivy.Index(_schema(), path=str(folder))
        with passages.Writer(folder) as store:
            _index(map(store.append, corpus), folder, analysis.analyzer)
            count = store.finish()
        stored = passages.Passages(folder)
        _warn_uncut(stored, analysis.analyzer, directory)
        _make_table(_open(folder, analysis.analyzer), analysis.analyzer, stored, folder)
        manifest = {"schema": SCHEMA, "kind": "bm25", "source": source, "analyzer": analysis.analyzer, "words": WORDS}
        return manifest | {"title_boost": analysis.title_boost, "passages": count}

    return index_folder.write_index(directory, write)


def is_current(directory: str | Path, source: str, *, analysis: Analysis | None = None) -> bool:
    """Whether the folder contains a BM25 index of this source and analyzer.

    If so, records the title boost, whose change does not require a new build, and makes the table of frequent words
    where an earlier version made none.
    """
    analysis = analysis or Analysis()
    manifest = index_folder.read_manifest(directory) or {}
    described = {"schema": SCHEMA, "source": source, "analyzer": analysis.analyzer, "words": WORDS}
    if not described.items() <= manifest.items():
        return False
    if manifest.get("title_boost") != analysis.title_boost:
        index_folder.write_manifest(directory, manifest | {"title_boost": analysis.title_boost})
    folder = Path(directory)
    if not frequent_words.is_made(folder) and os.access(folder, os.W_OK):
        _make_table(_open(folder, analysis.analyzer), analysis.analyzer, passages.Passages(folder), folder)
    return True


class BM25:
    """An open BM25 index; implements `Index`.

    Raises:
        UserError: the folder contains no index that this version can read.
    """

    def __init__(self, directory: str | Path) -> None:
        manifest = index_folder.checked_manifest(directory, SCHEMA, BM25Manifest)
        if manifest.words != WORDS:
            raise UserError(
                f"{directory}: its words were made by {manifest.words!r}, those of queries are by {WORDS!r}, so that "
                "some would not be found; build it again with `notewriter index`"
            )
        self._directory = directory
        self._analyzer = _analyzer(manifest.analyzer)
        self._name = manifest.analyzer
        boosts = zip(FIELDS, (manifest.title_boost, 1.0, 1.0), strict=True)
        self._boosts = {name: value for name, value in boosts if value}
        with _named(directory), _lockable(Path(directory)) as folder:
            index = tantivy.Index.open(str(folder))
            index.register_tokenizer(TOKENIZER, self._analyzer)
            self._schema = index.schema
            self._searcher = index.searcher()
        self._passages = passages.Passages(Path(directory))
        if not len(self) == len(self._passages) == manifest.passages:
            raise UserError(f"{directory}: is damaged (its passages and its words differ in number); {passages.REMEDY}")
        has_table = frequent_words.is_made(Path(directory))
        self._frequent = frequent_words.FrequentWords(Path(directory), len(self)) if has_table else None

    def __len__(self) -> int:
        return self._searcher.num_docs

    def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """The `top_k` best passages of the scope, or fewer if fewer share a word with the query.

        The query is plain text: each distinct word counts once, everything else is ignored. Ties are broken by
        corpus order, so that results are the same across runs and builds. Other threads run meanwhile.

        Raises:
            UserError: `top_k` is below 1, or the index is damaged.
        """
        check_top_k(top_k)
        # tantivy allocates memory for as many hits as it is asked for.
        top_k = min(top_k, len(self))
        query = without_surrogates(query)
        words = dict.fromkeys(self._analyzer.analyze(query))
        unspaced = dict.fromkeys(self._analyzer.analyze(_unspaced(query, self._name)))
        wanted = [(name, word) for word in words for name in self._boosts if name != "unspaced"]
        wanted += [("unspaced", word) for word in unspaced]
        if not (wanted and top_k):
            return []
        with _named(self._directory):
            return [self._passages[position] for position in self._best(wanted, [*words], top_k, scope)]

    def _best(self, wanted: list[tuple[str, str]], words: list[str], top_k: int, scope: Scope | None) -> list[int]:
        """Positions of the best passages; without the postings of frequent words where the others decide."""
        if self._frequent is not None and top_k <= MOST_BY_TABLE:
            # Where two shares leave out the same words, the second search would end as the first.
            left_out = dict.fromkeys(tuple(self._frequent.above(share, words)) for share in frequent_words.SHARES)
            for frequent in filter(None, left_out):
                others = [each for each in wanted if each[0] != "contents" or each[1] not in frequent]
                if others:
                    query, limit = self._query(others, scope), CANDIDATES + 10 * top_k
                    best = _surely_best(*self._hits(query, limit), limit, frequent, self._frequent, top_k)
                    if best is not None:
                        return best
        return self._best_of(self._query(wanted, scope), top_k)

    def _query(self, wanted: list[tuple[str, str]], scope: Scope | None) -> tantivy.Query:
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, self._clause(*each)) for each in wanted])
        return query if scope is None else self._within(query, scope)

    def _clause(self, name: str, word: str) -> tantivy.Query:
        query = tantivy.Query.term_query(self._schema, name, word, index_option="freq")
        boost = self._boosts[name]
        return query if boost == 1 else tantivy.Query.boost_query(query, boost)

    def _within(self, query: tantivy.Query, scope: Scope) -> tantivy.Query:
        """The query restricted to a scope, with the same scores."""
        positions = [int(position) for position in self._passages.within(scope)]
        inside = tantivy.Query.term_set_query(self._schema, "position", positions)
        return tantivy.Query.boolean_query(
            [(tantivy.Occur.Must, query), (tantivy.Occur.Must, tantivy.Query.const_score_query(inside, 0.0))]
        )

    def _best_of(self, query: tantivy.Query, top_k: int) -> list[int]:
        """Positions of the best passages, by all postings."""
        # tantivy breaks ties by document address, which differs between builds. So fetch more hits until the last one
        # scores below the last one needed, and sort ties by corpus order.
        limit = top_k + 16
        while True:
            scores, positions = self._hits(query, limit)
            rounded = _rounded(scores)
            if len(scores) < limit or rounded[-1] < rounded[top_k - 1]:
                return [int(position) for position in positions[np.lexsort((positions, -rounded))][:top_k]]
            limit *= 2

    def _hits(self, query: tantivy.Query, limit: int) -> "tuple[NDArray[np.float64], NDArray[np.int64]]":
        """The scores and positions of the best passages, the highest score first."""
        hits = self._searcher.search(query, limit, count=False).hits
        positions = self._searcher.fast_field_values("position", [address for _, address in hits])
        return np.array([score for score, _ in hits], np.float64), np.array(positions, np.int64)


def _surely_best(
    scores: "NDArray[np.float64]",
    positions: "NDArray[np.int64]",
    limit: int,
    frequent: Sequence[str],
    table: frequent_words.FrequentWords,
    top_k: int,
) -> list[int] | None:
    """Positions of the best passages, from the best `limit` by all words but the frequent ones.

    None where a further passage may be as good, or where rounding may decide between two, so that the order is always
    that of a search with all postings.
    """
    if len(scores) < top_k:
        return None
    further = (scores[-1] if len(scores) == limit else 0.0) + table.greatest(frequent)
    scores = scores + table.scores(frequent, positions)
    lowest, highest = _rounded(scores * (1 - ERROR)), _rounded(scores * (1 + ERROR))
    order = np.lexsort((positions, -highest))
    if lowest[order[top_k - 1]] <= _rounded(np.array([further * (1 + ERROR)]))[0]:
        return None
    certain = lowest == highest
    for place in range(top_k):
        one, others = order[place], order[place + 1 :]
        tied = certain[one] & certain[others] & (lowest[one] == lowest[others])
        if not np.all((lowest[one] > highest[others]) | tied):
            return None
    return [int(position) for position in positions[order[:top_k]]]


def _make_table(index: tantivy.Index, analyzer: str, stored: passages.Passages, folder: Path) -> None:
    frequent_words.make(index.searcher(), index.schema, "contents", _analyzer(analyzer).analyze, stored, folder)


@contextlib.contextmanager
def _lockable(directory: Path) -> Iterator[Path]:
    """The folder, or, where its lock cannot be written, links to its files: tantivy opens nothing without one."""
    with contextlib.ExitStack() as stack:
        try:
            open(directory / LOCK, "ab").close()
        except OSError:
            links = Path(tempfile.mkdtemp())
            stack.callback(shutil.rmtree, links, ignore_errors=True)
            for file in directory.iterdir():
                if file.name != LOCK:
                    (links / file.name).symlink_to(file.resolve())
            directory = links
        yield directory


@contextlib.contextmanager
def _named(directory: str | Path) -> Iterator[None]:
    """Name the index if the library fails on it."""
    try:
        yield
    except BaseException as error:
        # The library's panic is not an `Exception` and cannot be imported.
        if not isinstance(error, OSError | ValueError | TypeError) and type(error).__name__ != "PanicException":
            raise
        reason = one_line(error)[:200]
        raise UserError(f"{directory}: cannot be searched ({reason}); remove it and build it again") from error


def _rounded(scores: "NDArray[np.float64]") -> "NDArray[np.float64]":
    # Summed in another order, a score differs in the last of its seven digits.
    unit = 10.0 ** (np.floor(np.log10(scores)) - 4)
    rounded: NDArray[np.float64] = np.round(scores / unit) * unit
    return rounded


def _index(corpus: Iterator[Passage], folder: Path, analyzer: str) -> None:
    """Index passages in their order."""
    count = 0
    for size, threads in ((FIRST_BLOCK, 1), (sys.maxsize, min(len(os.sched_getaffinity(0)), MAX_THREADS))):
        start = count
        writer = _open(folder, analyzer).writer(heap_size=WRITER_BYTES, num_threads=threads)
        try:
            for count, passage in enumerate(islice(corpus, size), start=start + 1):
                contents = f"{passage.title}\n{passage.text}"
                fields = {"title": passage.title, "contents": contents, "unspaced": _unspaced(contents, analyzer)}
                writer.add_document(tantivy.Document(**fields, position=count - 1))
            writer.commit()
        finally:
            # Its threads may still be writing into the folder, which is removed after an error.
            writer.wait_merging_threads()
        if count - start < size:
            break


def _open(folder: Path, analyzer: str) -> tantivy.Index:
    index = tantivy.Index.open(str(folder))
    index.register_tokenizer(TOKENIZER, _analyzer(analyzer))
    return index


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in FIELDS:
        # BM25 needs frequencies only; positions would double the index.
        builder.add_text_field(name, tokenizer_name=TOKENIZER, index_option="freq")
    builder.add_integer_field("position", indexed=True, fast=True)
    return builder.build()


_RUN = regex.compile(rf"(?:(?=\w)[{UNSPACED}\p{{Hangul}}]\p{{M}}*)+")
_MARK = regex.compile(r"[\p{M}--\p{Alphabetic}--\p{Script=Inherited}]", regex.V1)


def _unspaced(text: str, analyzer: str) -> str:
    """The words of a text that tantivy would not find, with spaces between them."""
    if text.isascii():
        return ""
    text = unicodedata.normalize("NFKC", text)
    words = [word for run in _RUN.findall(text) for word in _characters_and_pairs(run)]
    if analyzer != "tamil" and _MARK.search(text):
        words += [_MARK.sub("", word) for word in text.split() if _MARK.search(word)]
    return " ".join(words)


def _characters_and_pairs(run: str) -> Iterator[str]:
    characters = regex.findall(r"\X", run)
    yield from characters
    yield from map("".join, itertools.pairwise(characters))


def _warn_uncut(stored: passages.Passages, analyzer: str, directory: str | Path) -> None:
    """Warn of passages whose letters become no words, as of a script without spaces that is not cut."""
    sample = [stored[len(stored) * place // SAMPLE] for place in range(SAMPLE)]
    texts = [each.text for each in sample]
    analyze = _analyzer(analyzer).analyze
    lost = [
        text
        for text in texts
        if sum(map(len, [*analyze(text), *analyze(_unspaced(text, analyzer))])) < sum(map(str.isalnum, text)) / 2
    ]
    if 2 * len(lost) > len(texts):
        logger.warning(
            "%s: of most passages the letters become no words, such as %r; BM25 cannot find them, build a dense index "
            "(--encoder)",
            directory,
            lost[0][:40],
        )


@functools.cache
def _analyzer(name: str) -> tantivy.TextAnalyzer:
    choose("analyzer", name, dict.fromkeys(ANALYZERS))
    fold, stem = [tantivy.Filter.ascii_fold()], [] if name == "plain" else [tantivy.Filter.stemmer(name)]
    # Tamil's words are full of marks that end one for the simple tokenizer, which is several times faster.
    tamil = tantivy.Tokenizer.regex(r"(?:[\p{Alphabetic}\p{N}]|\p{M})+") if name == "tamil" else None
    builder = tantivy.TextAnalyzerBuilder(tamil or tantivy.Tokenizer.simple())
    # Stemmers of other languages need the accents.
    for step in (
        tantivy.Filter.remove_long(40),
        tantivy.Filter.lowercase(),
        *(fold + stem if name == "english" else stem + fold),
    ):
        builder = builder.filter(step)
    return builder.build()
