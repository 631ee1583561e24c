"""The scores of a BM25 index's most frequent words, in a table of passages by words.

tantivy reads all postings of all words of a query. Most of these are of words such as "the", which add little to any
score. So a search asks for the best passages by the other words alone, adds the frequent words' scores from the table,
and knows that no further passage can be better: its score by the other words is at most that of the last candidate,
and the frequent words add at most their greatest scores (the bound of MaxScore; Turtle and Flood, Query evaluation:
strategies and optimizations, Information Processing and Management, 1995).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tantivy

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.retrieval.passages import REMEDY, Passages

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = Lazy("numpy")

SCORES, WORDS = "frequent_words.float32", "frequent_words.json"

SHARES = (0.2, 0.4)
"""A search leaves out the words in more than these shares of the passages, the first where its bound holds."""

FEWEST = 50_000
"""Smaller indexes have no table: reading all of their postings takes less than a millisecond."""

SAMPLE = 1_000
"""Passages whose words are counted to find the frequent ones; a word that it misses is searched for like any other."""

BLOCK = 500_000
"""Passages whose rows are in memory while the table is made, with some 400 bytes each."""


class FrequentWords:
    """An open table. Its rows are passages, by their positions; its columns are words.

    Raises:
        UserError: the table is damaged.
    """

    def __init__(self, folder: Path, passages: int) -> None:
        shares = jsonl.read_object(folder / WORDS, dict[str, tuple[float, float]], REMEDY)
        try:
            scores = np.memmap(folder / SCORES, np.float32, "r")
            self._scores: NDArray[np.float32] = scores.reshape(passages, len(shares))
        except (OSError, ValueError) as error:
            raise UserError(f"{folder / SCORES}: cannot be opened ({error}); {REMEDY}") from error
        self._columns = {word: column for column, word in enumerate(shares)}
        self._shares = {word: share for word, (share, _) in shares.items()}
        self._greatest = np.array([greatest for _, greatest in shares.values()])

    def above(self, share: float, words: Sequence[str]) -> list[str]:
        """The words that more than this share of the passages contain."""
        return [word for word in words if self._shares.get(word, 0) > share]

    def scores(self, words: Sequence[str], positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """The part of these words in the scores of the passages at these positions."""
        columns = [self._columns[word] for word in words]
        total: NDArray[np.float64] = self._scores[positions[:, None], columns].sum(axis=1, dtype=np.float64)
        return total

    def greatest(self, words: Sequence[str]) -> float:
        """The most that these words add to any score."""
        return float(self._greatest[[self._columns[word] for word in words]].sum())


def is_made(folder: Path) -> bool:
    """Whether an index has a table."""
    # The words are written last.
    return (folder / WORDS).exists()


def make(
    searcher: tantivy.Searcher,
    schema: tantivy.Schema,
    field: str,
    analyze: Callable[[str], list[str]],
    stored: Passages,
    folder: Path,
) -> None:
    """Write the table of a field into the folder of an index, unless the index is small or has no frequent word.

    Args:
        searcher: of the index.
        schema: of the index, with the position of each passage in `position`.
        field: the field whose scores it has.
        analyze: turns a text into words.
        stored: the passages.
        folder: where the table is written.
    """
    count = len(stored)
    if count < FEWEST:
        return
    shares = _frequent(searcher, field, analyze, stored)
    if not shares:
        return
    table = np.memmap(folder / SCORES, np.float32, "w+", shape=(count, len(shares)))
    greatest = np.zeros(len(shares))
    for start in range(0, count, BLOCK):
        rows = np.zeros((min(BLOCK, count - start), len(shares)), np.float32)
        inside = tantivy.Query.range_query(
            schema, "position", tantivy.FieldType.Integer, start, start + len(rows), include_upper=False
        )
        for column, word in enumerate(shares):
            having = tantivy.Query.term_query(schema, field, word, index_option="freq")
            query = tantivy.Query.boolean_query(
                [
                    (tantivy.Occur.Must, having),
                    (tantivy.Occur.Must, tantivy.Query.const_score_query(inside, 0.0)),
                ]
            )
            hits = searcher.search(query, len(rows), count=False).hits
            positions = searcher.fast_field_values("position", [address for _, address in hits])
            rows[np.array(positions, np.int64) - start, column] = [score for score, _ in hits]
        table[start : start + len(rows)] = rows
        greatest = np.maximum(greatest, rows.max(axis=0))
    table.flush()
    words = {word: (share, float(most)) for (word, share), most in zip(shares.items(), greatest, strict=True)}
    jsonl.write_text(folder / WORDS, [json.dumps(words, ensure_ascii=False) + "\n"])


def _frequent(
    searcher: tantivy.Searcher, field: str, analyze: Callable[[str], list[str]], stored: Passages
) -> dict[str, float]:
    """The words in more than the first of `SHARES` of the passages, with their shares, the most frequent first."""
    count = len(stored)
    size = min(SAMPLE, count)
    found: Counter[str] = Counter()
    for place in range(size):
        passage = stored[count * place // size]
        found.update({*analyze(f"{passage.title}\n{passage.text}")})
    # Half of the share, so that a sample misses hardly any.
    likely = [word for word, times in found.items() if times > SHARES[0] / 2 * size]
    shares = {word: searcher.doc_freq(field, word) / count for word in likely}
    frequent = sorted(((share, word) for word, share in shares.items() if share > SHARES[0]), reverse=True)
    return {word: share for share, word in frequent}
