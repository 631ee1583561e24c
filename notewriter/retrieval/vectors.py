"""Searching vectors by inner product with FAISS: exactly, or in a graph with a recall that is measured.

| structure | what it is | n vectors of d dimensions |
|---|---|---|
| flat | every vector compared, float32 | n x 4d bytes, memory-mapped |
| hnsw | a graph over the vectors (Malkov and Yashunin 2018) | n x (4d + 8 x 32) bytes, memory-mapped |

How far a search goes in the graph is raised until the recall@10 of sampled queries against exact search reaches a
target.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval
from tqdm import tqdm

from notewriter.ground.errors import UserError, one_line
from notewriter.ground.lazy import Lazy
from notewriter.retrieval import encoders

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]
else:
    np = Lazy("numpy")

FILE = "vectors.faiss"
STRUCTURES = ("flat", "hnsw")

LINKS, CONSTRUCTION = 32, 80
"""Of hnsw: FAISS's M and efConstruction."""

EFFORTS = [2**power for power in range(4, 13)]
"""Of hnsw: values of efSearch."""

RECALL_AT = 10
SAMPLE = 200
"""Queries that recall is measured with."""

BATCH = 65_536
"""Vectors added or copied at a time."""


@dataclass(frozen=True)
class Structure:
    """The structure of an index of vectors, as in its manifest; an exact search has no target and no recall."""

    name: str
    effort: Annotated[int, Interval(ge=1)] = 1
    target: float | None = None
    recall_at_10: float | None = None


def build_graph(embeddings: Array, file: Path, queries: Array, target: float) -> Structure:
    """Write the graph over the rows of `embeddings`; returns the structure with its measured recall.

    Args:
        embeddings: (passages, dimension), memory-mapped; the build takes memory for all of them.
        file: where the graph is written.
        queries: (queries, dimension), to measure recall with.
        target: the recall@10 to reach; it may be missed at the largest effort.
    """
    faiss = _faiss()
    count, dimension = embeddings.shape
    graph = faiss.IndexHNSWFlat(dimension, LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = CONSTRUCTION
    with tqdm(desc="hnsw", total=count, unit=" passages", unit_scale=True) as bar:
        for start in range(0, count, BATCH):
            graph.add(embeddings[start : start + BATCH])
            bar.update(min(BATCH, count - start))
    faiss.write_index(graph, str(file))
    del graph
    best = exact(embeddings, queries, RECALL_AT)
    for effort in EFFORTS:
        rows = Vectors(Structure("hnsw", effort), embeddings, file).search(queries, RECALL_AT)
        recall = round(recall_of(rows, best), 4)
        if recall >= target:
            break
    return Structure("hnsw", effort, target, recall)


def recall_of(rows: NDArray[np.int64], best: NDArray[np.int64]) -> float:
    """The mean share of the rows in `best` that are also in `rows`, query by query."""
    return float(np.mean([np.isin(row, other).mean() for row, other in zip(best, rows, strict=True)]))


def exact(embeddings: Array, queries: Array, top_k: int) -> NDArray[np.int64]:
    """The rows with the largest inner products, (queries, top_k)."""
    faiss = _faiss()
    top_k = min(top_k, len(embeddings))
    rows: NDArray[np.int64] = faiss.knn(queries, embeddings, top_k, metric=faiss.METRIC_INNER_PRODUCT)[1]
    return rows


class Vectors:
    """Vectors opened for search. Thread-safe.

    Raises:
        UserError: FAISS is not installed, or the file of the graph cannot be read.
    """

    def __init__(self, structure: Structure, embeddings: Array, file: Path) -> None:
        self._structure, self._embeddings, self._faiss = structure, embeddings, _faiss()
        self._graph: Any = None if structure.name == "flat" else _read(file)
        if self._graph is not None and self._graph.ntotal != len(embeddings):
            raise UserError(f"{file}: is damaged (its vectors are not those of the passages); build the index again")

    def search(self, queries: Array, top_k: int, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Rows of the closest vectors, best first, (queries, at most top_k); -1 for missing ones.

        A search within some rows, sorted, compares all of them.
        """
        top_k = min(top_k, len(self._embeddings) if within is None else len(within))
        if top_k == 0:
            return np.empty((len(queries), 0), np.int64)
        if within is not None:
            return within[exact(np.ascontiguousarray(self._embeddings[within]), queries, top_k)]
        if self._graph is None:
            return exact(self._embeddings, queries, top_k)
        effort = self._faiss.SearchParametersHNSW(efSearch=max(self._structure.effort, top_k))
        rows: NDArray[np.int64] = self._graph.search(queries, top_k, params=effort)[1]
        return rows


def stored(file: Path) -> Any:
    """A FAISS index that was built elsewhere and contains its vectors: one with `ntotal`, `d` and `reconstruct_n`.

    Raises:
        UserError: it cannot be read, or is of a kind that does not keep vectors as they are.
    """
    index = _read(file)
    kind = type(index).__name__
    if not kind.startswith(("IndexFlat", "IndexHNSWFlat")):
        raise UserError(f"{file}: is a FAISS {kind}, which does not keep the vectors; choose a flat or HNSW index")
    return index


def _read(file: Path) -> Any:
    faiss = _faiss()
    try:
        return faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY)
    except (RuntimeError, TypeError) as error:
        reason = one_line(error)[-200:]
        raise UserError(f"{file}: cannot be read as a FAISS index ({reason}); check the file") from error


def _faiss() -> Any:
    return encoders.library("faiss")
