"""Searching vectors by inner product with FAISS: exactly, or approximately with a recall that is measured.

| structure | what it is | memory at search, n vectors of d dimensions |
|---|---|---|
| flat | every vector compared, float32 | n x 4d bytes, memory-mapped |
| hnsw | a graph over the vectors (Malkov and Yashunin 2018) | n x (4d + 8 x M) bytes, memory-mapped |
| ivf_pq | codes (Jégou et al. 2011) in lists, the best rescored exactly | n x (d/8 + 8) bytes, and few rows |

Parameters follow from the number of vectors (`parameters`); the one that trades time for recall is raised until the
recall@10 of sampled queries against exact search reaches a target.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray
from tqdm import tqdm

from notewriter.ground.config import choose
from notewriter.ground.errors import UserError, one_line
from notewriter.retrieval import encoders

Array = NDArray[np.float32]

FILE = "vectors.faiss"
STRUCTURES = {"flat": 1, "hnsw": 1, "ivf_pq": 10_000}
"""Each with the fewest vectors that it is for; below, exact search is fast."""

RECALL_AT = 10
SAMPLE = 200
"""Queries that recall is measured with."""

BATCH = 65_536
"""Vectors added at a time."""

RESCORED = 10
"""Candidates of ivf_pq that are compared exactly, times `top_k`; more if the target needs it."""

MAX_RESCORED = 160

HNSW_QUANTIZER = 16_384
"""From so many lists on, their centroids are searched with HNSW."""


@dataclass(frozen=True)
class Structure:
    """How an index searches its vectors, as its manifest says; None of what could not be measured."""

    name: str
    effort: Annotated[int, Interval(ge=1)] = 1
    rescored: Annotated[int, Interval(ge=0)] = 0
    target: float | None = None
    recall_at_10: float | None = None
    parameters: dict[str, int] | None = None


def parameters(name: str, count: int, dimension: int) -> dict[str, int]:
    """FAISS's parameters by the number of vectors (its guidelines: 4 to 16 lists per square root of the number).

    Raises:
        UserError: the structure is unknown, or there are too few vectors for it.
    """
    if count < choose("structure", name, STRUCTURES):
        raise UserError(f"structure: {name} needs at least {STRUCTURES[name]:,} passages, not {count:,}; use flat")
    if name == "flat":
        return {}
    if name == "hnsw":
        return {"M": 32, "efConstruction": 80}
    lists = min(2 ** round(math.log2(4 * math.sqrt(count))), count // 39)
    codes = next(size for size in range(max(1, dimension // 8), 0, -1) if dimension % size == 0)
    return {"nlist": lists, "m": codes}


def build(name: str, embeddings: Array, file: Path, queries: Array, target: float) -> Structure:
    """Index the rows of `embeddings`; returns how it is searched and with what recall.

    Args:
        name: a key of `STRUCTURES`.
        embeddings: (passages, dimension), memory-mapped; HNSW takes memory for all of them.
        file: where the FAISS index is written; nothing is for flat.
        queries: (queries, dimension), to measure recall with.
        target: the recall@10 to reach.

    Raises:
        UserError: as `parameters`.
    """
    chosen = parameters(name, *embeddings.shape)
    if name == "flat":
        return Structure(name)
    faiss = _faiss()
    count, dimension = embeddings.shape
    if name == "hnsw":
        index = faiss.IndexHNSWFlat(dimension, chosen["M"], faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = chosen["efConstruction"]
    else:
        index = _inverted_lists(chosen, embeddings)
    with tqdm(desc=name, total=count, unit=" passages", unit_scale=True) as bar:
        for start in range(0, count, BATCH):
            index.add(embeddings[start : start + BATCH])
            bar.update(min(BATCH, count - start))
    # Not overwritten: another index may have the same file under its own name.
    file.unlink(missing_ok=True)
    faiss.write_index(index, str(file))
    del index
    rescored = RESCORED if name == "ivf_pq" else 0
    structure = Structure(name, rescored=rescored, parameters=chosen)
    return tune(Vectors(structure, embeddings, file), queries, exact(embeddings, queries, RECALL_AT), target)


def _inverted_lists(chosen: Mapping[str, int], embeddings: Array) -> Any:
    faiss = _faiss()
    count, dimension = embeddings.shape
    inner_product = faiss.METRIC_INNER_PRODUCT
    lists = chosen["nlist"]
    if lists >= HNSW_QUANTIZER:
        quantizer = faiss.IndexHNSWFlat(dimension, 32, inner_product)
    else:
        quantizer = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFPQ(quantizer, dimension, lists, chosen["m"], 8, inner_product)
    index.cp.min_points_per_centroid = 1
    step = max(1, count // max(40 * lists, 65_536))
    index.train(np.ascontiguousarray(embeddings[::step]))
    return index


def tune(vectors: "Vectors", queries: Array, best: NDArray[np.int64], target: float) -> Structure:
    """The structure with its effort, and of ivf_pq its candidates, raised until recall reaches the target or no more.

    `best` are the rows of exact search, (queries, 10). Whichever of the two gives more is doubled.
    """

    def measured(structure: Structure) -> Structure:
        vectors.structure = structure
        rows = np.concatenate([vectors.search(query[None], best.shape[1]) for query in queries])
        return replace(structure, recall_at_10=round(recall_of(rows, best), 4))

    efforts = vectors.efforts()
    chosen = measured(replace(vectors.structure, target=target, effort=efforts[0]))
    while (chosen.recall_at_10 or 0) < target:
        more = [replace(chosen, effort=effort) for effort in efforts if effort > chosen.effort][:1]
        if 0 < chosen.rescored < MAX_RESCORED:
            more.append(replace(chosen, rescored=2 * chosen.rescored))
        if not more:
            break
        chosen = max(map(measured, more), key=lambda structure: structure.recall_at_10 or 0)
    return chosen


def recall_of(rows: NDArray[np.int64], best: NDArray[np.int64]) -> float:
    """The mean share of the rows in `best` that are also in `found`."""
    return float(np.mean([np.isin(row, other).mean() for row, other in zip(best, rows, strict=True)]))


def exact(embeddings: Array, queries: Array, top_k: int) -> NDArray[np.int64]:
    """The rows with the largest inner products, (queries, top_k)."""
    faiss = _faiss()
    rows: NDArray[np.int64] = faiss.knn(
        queries, embeddings, min(top_k, len(embeddings)), metric=faiss.METRIC_INNER_PRODUCT
    )[1]
    return rows


class Vectors:
    """Vectors opened for search. Thread-safe.

    Raises:
        UserError: the file of the FAISS index cannot be read.
    """

    def __init__(self, structure: Structure, embeddings: Array | None, file: Path) -> None:
        self.structure = structure
        self._faiss = _faiss()
        # None where the embeddings themselves are searched.
        self._index: Any = None if structure.name == "flat" and embeddings is not None else _read(file)
        self.vectors = embeddings if embeddings is not None else _stored_vectors(file)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dimension(self) -> int:
        """Of the vectors."""
        return int(self.vectors.shape[1])

    def efforts(self) -> list[int]:
        """What `Structure.effort` can be: of HNSW efSearch, of inverted lists the lists that are read."""
        if self.structure.name == "flat":
            return [1]
        if self.structure.name == "hnsw":
            return [2**power for power in range(4, 13)]
        lists = int(self._index.nlist)
        return [*(2**power for power in range(lists.bit_length()) if 2**power < lists), lists]

    def search(self, queries: Array, top_k: int, within: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Rows of the closest vectors, best first, (queries, at most top_k); -1 for what was not found.

        A search within some rows, sorted, compares all of them.
        """
        top_k = min(top_k, len(self) if within is None else len(within))
        if top_k == 0:
            return np.empty((len(queries), 0), np.int64)
        if within is not None:
            return within[exact(np.ascontiguousarray(self.vectors[within]), queries, top_k)]
        if self._index is None:
            return exact(self.vectors, queries, top_k)
        name, effort, rescored = self.structure.name, self.structure.effort, self.structure.rescored
        depth = min(len(self), top_k * max(1, rescored))
        parameters = None
        if name == "hnsw":
            parameters = self._faiss.SearchParametersHNSW(efSearch=max(effort, depth))
        elif name != "flat":
            parameters = self._faiss.SearchParametersIVF(nprobe=effort)
        rows: NDArray[np.int64] = self._index.search(queries, depth, params=parameters)[1]
        if not rescored:
            return rows
        return np.stack([self._rescored(*each, top_k) for each in zip(queries, rows, strict=True)])

    def _rescored(self, query: Array, rows: NDArray[np.int64], top_k: int) -> NDArray[np.int64]:
        scores = np.where(rows < 0, -np.inf, self.vectors[rows] @ query)
        return rows[np.argsort(-scores, kind="stable")[:top_k]]


def structure_of(file: Path, similarity: str) -> str:
    """Which structure a FAISS index has. `similarity` is the encoder's, `cosine` or `dot`.

    Raises:
        UserError: it cannot be read, is of another kind, or compares vectors in another way.
    """
    index = _read(file)
    kind = type(index).__name__
    names = {"IndexFlat": "flat", "IndexHNSWFlat": "hnsw"}
    name = next((name for prefix, name in names.items() if kind.startswith(prefix)), None)
    if name is None:
        raise UserError(f"{file}: is a FAISS {kind}; choose a flat or HNSW index")
    faiss = _faiss()
    # Between vectors of length 1, the closest have the largest product.
    if index.metric_type not in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2 if similarity == "cosine" else None):
        raise UserError(
            f"{file}: compares vectors by distance, the encoder by inner product; build it with inner products"
        )
    return name


def _stored_vectors(file: Path) -> Array:
    """The vectors inside a flat or HNSW index of FAISS."""
    index = _read(file)
    flat = _faiss().downcast_index(index.storage) if hasattr(index, "storage") else index
    if not hasattr(flat, "get_xb"):
        raise UserError(f"{file}: contains no vectors; build the index again")
    vectors: Array = _faiss().rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
    return vectors


@functools.lru_cache(maxsize=8)
def _opened(file: str, changed: int) -> Any:
    faiss = _faiss()
    with open(file, "rb") as stream:
        inverted = stream.read(2) == b"Iw"
    # Lists can be left on disk, graphs and plain vectors mapped without a copy.
    flags = faiss.IO_FLAG_MMAP if inverted else faiss.IO_FLAG_MMAP_IFC
    return faiss.read_index(file, flags | faiss.IO_FLAG_READ_ONLY)


def _read(file: Path) -> Any:
    try:
        return _opened(str(file), file.stat().st_mtime_ns)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}); check the path") from error
    except (RuntimeError, TypeError) as error:
        reason = one_line(error)[-200:]
        raise UserError(f"{file}: is not a FAISS index ({reason}); check the file or build it again") from error


def _faiss() -> Any:
    return encoders.library("faiss")
