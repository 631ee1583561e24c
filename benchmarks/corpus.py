"""How fast and in how much memory `notewriter corpus` writes passages, of each kind of input.

    python benchmarks/corpus.py --passages 1000000 --megabytes 45

Writes generated text into a temporary folder: wiki-18 JSON Lines, the same as a Wikipedia dump split into words, and
one large Markdown file split at its headings. Each is built in a process of its own, whose peak memory is the figure.
The last line is a JSON object.
"""

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet

from notewriter.corpora import corpus

WORDS = [f"word{number}" for number in range(5000)]


def text(generator: random.Random, words: int) -> str:
    """Sentences of random words."""
    chosen = generator.choices(WORDS, k=words)
    return " ".join(f"{word}." if number % 12 == 11 else word for number, word in enumerate(chosen))


def write_wiki18(folder: Path, passages: int) -> None:
    """JSON Lines of passages of a hundred words."""
    generator = random.Random(0)
    with open(folder / "wiki-18.jsonl", "w", encoding="utf-8") as file:
        for number in range(passages):
            file.write(json.dumps({"id": str(number), "contents": f'"T{number}"\n{text(generator, 100)}'}) + "\n")


def write_dump(folder: Path, passages: int) -> None:
    """Pages of a thousand words in row groups of a thousand, as Parquet."""
    generator = random.Random(0)
    schema = pyarrow.schema([(name, pyarrow.string()) for name in ("id", "url", "title", "text")])
    with pyarrow.parquet.ParquetWriter(folder / "train-00000-of-00001.parquet", schema) as writer:
        for start in range(0, passages // 10, 1000):
            rows = [
                {"id": str(n), "url": f"https://w.example/{n}", "title": f"T{n}", "text": text(generator, 1000)}
                for n in range(start, min(start + 1000, passages // 10))
            ]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def write_markdown(folder: Path, megabytes: int) -> None:
    """One file of sections of two hundred words."""
    generator, written, number = random.Random(0), 0, 0
    with open(folder / "large.md", "w", encoding="utf-8") as file:
        while written < megabytes * 1_000_000:
            number += 1
            written += file.write(f"## Section {number}\n\n{text(generator, 200)}\n\n")


def build(source: str, folder: Path, output: Path, results: "multiprocessing.SimpleQueue[dict[str, float]]") -> None:
    """Build one corpus and report seconds, passages and peak memory."""
    start = time.perf_counter()
    corpus.main(["--source", source, "--path", str(folder), "--output_dir", str(output)])
    seconds = time.perf_counter() - start
    manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
    results.put(
        {
            "passages": manifest["passages"],
            "megabytes": round(manifest["source"]["bytes"] / 1e6),
            "seconds": round(seconds, 1),
            "passages_per_second": round(manifest["passages"] / seconds),
            "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        }
    )


def main() -> None:
    """Build each corpus once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=int, default=45)
    arguments = parser.parse_args()
    inputs: dict[str, tuple[Callable[[Path, int], None], int]] = {
        "wiki-18": (write_wiki18, arguments.passages),
        "wikipedia": (write_dump, arguments.passages),
        "folder": (write_markdown, arguments.megabytes),
    }
    # A forked process would begin with this one's memory.
    processes = multiprocessing.get_context("spawn")
    measured = {}
    with tempfile.TemporaryDirectory() as name:
        for source, (write, amount) in inputs.items():
            folder = Path(name) / source
            folder.mkdir()
            write(folder, amount)
            results = processes.SimpleQueue()
            process = processes.Process(target=build, args=(source, folder, Path(name) / f"{source}-out", results))
            process.start()
            process.join()
            measured[source] = results.get()
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
