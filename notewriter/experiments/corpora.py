"""Whether a cell searches the corpus that its table is about, by the number of passages, with the same retriever."""

from pathlib import Path

from notewriter.corpora.published import PUBLISHED
from notewriter.experiments.tables.files import SEARCHED, Cell, indexes_of
from notewriter.retrieval import read_manifest

TOLERANCE = 0.01
"""The share of its passages by which an index of the same corpus may differ.

Repeated paragraphs, which IRCoT counts, are in an index once, and a malformed line is not in it.
"""


def other_corpus(cell: Cell) -> str:
    """What a cell searches in place of the table's corpus or retriever; empty where it searches these.

    Raises:
        UserError: the manifest of an index cannot be read.
    """
    if cell.searched is None:
        return ""
    published = PUBLISHED.get(cell.searched.corpus)
    indexes = [manifest for folder in indexes_of(cell.options) if (manifest := read_manifest(folder))]
    if not indexes:
        return "corpus not counted" if any(cell.options.get(key) for key in SEARCHED) else ""
    for manifest in indexes:
        passages = int(manifest.get("passages", 0))
        if published and abs(passages - published.documents) > TOLERANCE * published.documents:
            return f"another corpus: {passages:,} passages"
    retrievers = ["BM25" if each.get("kind") == "bm25" else Path(str(each.get("encoder"))).name for each in indexes]
    return "" if cell.searched.retriever in retrievers else f"another retriever: {', '.join(retrievers)}"


def corpus_of_table(cell: Cell) -> str:
    """What the cell should search, in words; empty where that is not stated."""
    if cell.searched is None:
        return ""
    published = PUBLISHED.get(cell.searched.corpus)
    size = f", {published.documents:,} passages" if published else ""
    return f"{cell.searched.corpus}{size}, by {cell.searched.retriever}"
