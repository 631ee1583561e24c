"""FAISS structures over vectors in random clusters: seconds to build, size, milliseconds a query, recall@10.

    python benchmarks/vectors.py --count 1000000 --dimension 384 --structures flat hnsw

Passages and queries are drawn around the same centres and normalised. hnsw is tuned to recall@10
of 0.95 on half of the queries, as `notewriter index` does, and measured on the other half. Queries come one by one.
The last line is a JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from notewriter.retrieval import vectors


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="vectors")
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--per_cluster", type=int, default=100, help="vectors a cluster")
    parser.add_argument("--spread", type=float, default=1.0, help="distance from a centre, whose own length is 1")
    parser.add_argument("--structures", nargs="+", default=list(vectors.STRUCTURES), choices=vectors.STRUCTURES)
    parser.add_argument("--recall", type=float, default=0.95, help="the recall@10 to tune for")
    parser.add_argument("--folder", default=None, help="where the vectors are written; by default a temporary one")
    arguments = parser.parse_args()
    measured: dict[str, Any] = {"count": arguments.count, "dimension": arguments.dimension}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        embeddings, queries = draw(arguments, Path(name) / "embeddings.float32")
        tuned_on, held_out = queries[::2], queries[1::2]
        best = vectors.exact(embeddings, held_out, vectors.RECALL_AT)
        for structure in arguments.structures:
            file = Path(name) / f"{structure}.faiss"
            start = time.perf_counter()
            made = vectors.Structure(structure)
            if structure == "hnsw":
                made = vectors.build_graph(embeddings, file, tuned_on, arguments.recall)
            seconds = time.perf_counter() - start
            opened = vectors.Vectors(made, embeddings, file)
            times, hits = [], []
            for query in held_out:
                start = time.perf_counter()
                hits.append(opened.search(query[None], vectors.RECALL_AT)[0])
                times.append(time.perf_counter() - start)
            measured[structure] = {
                "build_and_tune_seconds": round(seconds, 1),
                "size_mb": round((file.stat().st_size if file.exists() else embeddings.nbytes) / 1e6),
                "p50_ms": round(1000 * float(np.median(times)), 2),
                "recall_at_10": round(vectors.recall_of(np.stack(hits), best), 4),
                "effort": made.effort,
            }
            sys.stderr.write(f"{structure}: {json.dumps(measured[structure])}\n")
    sys.stdout.write(json.dumps(measured) + "\n")


def draw(arguments: argparse.Namespace, file: Path) -> tuple[vectors.Array, vectors.Array]:
    """Vectors on disk, and 200 queries."""
    rng = np.random.default_rng(0)
    count, dimension = arguments.count, arguments.dimension
    centres = rng.standard_normal((max(1, count // arguments.per_cluster), dimension), dtype=np.float32)
    embeddings: vectors.Array = np.memmap(file, np.float32, "w+", shape=(count, dimension))

    def around(number: int) -> vectors.Array:
        rows = centres[rng.integers(len(centres), size=number)]
        rows = rows + arguments.spread * rng.standard_normal((number, dimension), dtype=np.float32)
        drawn: vectors.Array = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return drawn

    for start in range(0, count, 50_000):
        embeddings[start : start + 50_000] = around(min(50_000, count - start))
    return embeddings, around(200)


if __name__ == "__main__":
    main()
