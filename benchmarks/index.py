"""BM25 over generated passages of natural word frequencies: building, opening and searching, beside bm25s.

Each query is also searched by all postings, without the table of frequent words; `as_by_all_postings` counts those with
the same passages in the same order, `processor` are milliseconds of the process's processor time.

    pip install bm25s
    python benchmarks/index.py --dataset 2wikimultihopqa --path data/2wiki/train.json --passages 1000000

Words are drawn with the frequencies of the paragraphs in the questions' file, continued by Zipf's law with made-up
words; each passage repeats the words of its title. The queries are the questions. Each step runs in a process of its
own. bm25s (`--without_bm25s` leaves it out) has the same k1, b, words and fields, with their scores added.

Agreement is the share of the first five passages that both find. The last line is a JSON object.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from notewriter.datasets import load_corpus, load_questions
from notewriter.ground import jsonl
from notewriter.retrieval import bm25, index
from notewriter.retrieval.frequent_words import SCORES
from notewriter.retrieval.sources.index import open_index

TOP = 5
MADE_UP = 500_000
"""Made-up words that continue the real ones."""


def generate(arguments: argparse.Namespace, path: Path) -> None:
    """Write the corpus."""
    counts: Counter[str] = Counter()
    for passage in load_corpus(arguments.dataset, arguments.path):
        counts.update(passage.text.split())
    words = [word for word, _ in counts.most_common()]
    frequencies = np.array(sorted(counts.values(), reverse=True) + [0.0] * MADE_UP)
    ranks = np.arange(len(words), len(words) + MADE_UP)
    # Zipf's law through the middle of the real words.
    frequencies[len(words) :] = frequencies[len(words) // 10] * (len(words) // 10) / ranks
    words += [f"v{rank:x}" for rank in ranks]
    cumulated = np.cumsum(frequencies / frequencies.sum())
    rng = np.random.default_rng(arguments.seed)
    vocabulary = np.array(words, dtype=object)

    def draw(count: int) -> Any:
        return vocabulary[np.minimum(np.searchsorted(cumulated, rng.random(count)), len(words) - 1)]

    def passages() -> Iterator[dict[str, str]]:
        for start in tqdm(range(0, arguments.passages, 10_000), desc="generate"):
            sizes = np.clip(rng.lognormal(math.log(80), 0.5, 10_000), 10, 400).astype(int)
            drawn, titles = draw(int(sizes.sum())), vocabulary[rng.integers(200, len(counts), (10_000, 2))]
            ends = np.cumsum(sizes)
            for number in range(min(10_000, arguments.passages - start)):
                text = drawn[ends[number] - sizes[number] : ends[number]]
                text[:: int(rng.integers(10, 30))] = titles[number, number % 2]
                yield {"id": f"g{start + number}", "title": " ".join(titles[number]), "text": " ".join(text)}

    jsonl.write(path, passages())


def build(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """`notewriter index`."""
    start = time.perf_counter()
    index.main(["--path", str(folder / "corpus.jsonl"), "--index", str(folder / "index")])
    seconds, processor = time.perf_counter() - start, time.process_time()
    return {"index_seconds": round(seconds, 1), "index_cpu_seconds": round(processor, 1), "peak_memory_gb": _peak()}


def search(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Open and search the index."""
    queries = _queries(arguments)
    start = time.perf_counter()
    retriever = open_index(folder / "index")
    opened = 1000 * (time.perf_counter() - start)
    assert isinstance(retriever, bm25.BM25)
    start = time.perf_counter()
    retriever.search(queries[0], TOP)
    first = 1000 * (time.perf_counter() - start)
    table, ways = retriever._frequent, ("table", "all_postings")
    milliseconds: dict[str, list[float]] = {way: [] for way in ways}
    processor: dict[str, list[float]] = {way: [] for way in ways}
    rankings: dict[str, list[list[int]]] = {way: [] for way in ways}
    for query in queries:
        for way in ways:
            retriever._frequent = table if way == "table" else None
            started = time.perf_counter(), time.process_time()
            hits = retriever.search(query, TOP)
            milliseconds[way].append(1000 * (time.perf_counter() - started[0]))
            processor[way].append(1000 * (time.process_time() - started[1]))
            rankings[way].append([int(passage.id[1:]) for passage in hits])
    (folder / "tantivy.json").write_text(json.dumps(rankings["table"]))
    size = sum(path.stat().st_size for path in (folder / "index").iterdir()) / 1e9
    same = sum(one == other for one, other in zip(*rankings.values(), strict=True))
    return {
        "open_ms": round(opened, 1),
        "first_ms": round(first, 1),
        **{way: _quantiles(milliseconds[way]) for way in ways},
        **{f"{way}_processor": _quantiles(processor[way]) for way in ways},
        "as_by_all_postings": f"{same} of {len(queries)}",
        "table_gb": round((folder / "index" / SCORES).stat().st_size / 1e9, 3) if table else 0,
        "size_gb": round(size, 3),
        "segments": retriever._searcher.num_segments,
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    return {f"p{100 * share:.0f}": round(float(np.quantile(values, share)), 2) for share in (0.5, 0.95, 0.99)}


def second(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Index and search with bm25s, and compare."""
    import bm25s

    analyze = bm25._analyzer("english").analyze
    queries = [list(dict.fromkeys(analyze(query))) for query in _queries(arguments)]
    start = time.perf_counter()
    vocabulary: dict[str, int] = {}
    fields: list[list[Any]] = [[], []]
    for passage in load_corpus("jsonl", folder / "corpus.jsonl"):
        for field, text in zip(fields, (passage.title, f"{passage.title}\n{passage.text}"), strict=True):
            ids = [vocabulary.setdefault(word, len(vocabulary)) for word in analyze(text)]
            field.append(np.array(ids, np.int32))
    models = []
    for field in fields:
        model = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
        model.index((field, vocabulary), show_progress=False)
        models.append(model)
    made = {"bm25s_index_seconds": round(time.perf_counter() - start, 1), "bm25s_peak_memory_gb": _peak()}
    seconds, rankings = [], []
    for query in queries:
        start = time.perf_counter()
        words = [vocabulary[word] for word in query if word in vocabulary]
        scores = sum(model.get_scores_from_ids(words) for model in models) if words else np.zeros(1)
        best = np.argpartition(-scores, min(TOP, len(scores) - 1))[:TOP]
        best = best[np.lexsort((best, -np.round(scores[best], 4)))]
        seconds.append(time.perf_counter() - start)
        rankings.append([int(row) for row in best if scores[row] > 0])
    ours: list[list[int]] = json.loads((folder / "tantivy.json").read_text())
    made["bm25s_p50_ms"] = round(1000 * float(np.median(seconds)), 2)
    shared = [len({*a} & {*b}) / TOP for a, b in zip(ours, rankings, strict=True)]
    made["agreement"] = round(float(np.mean(shared)), 4)
    made["questions_that_differ"] = sum(share < 1 for share in shared)
    return made


def _queries(arguments: argparse.Namespace) -> list[str]:
    questions = load_questions(arguments.dataset, arguments.path)[: arguments.questions]
    return [question.question for question in questions]


def _peak() -> float:
    """The most memory that this process had resident, mapped files included, in GB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return round(int(line.split()[1]) * 1024 / 1e9, 2)


STEPS = {"build": build, "search": search, "second": second}


def main() -> None:
    """Run the steps and print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="2wikimultihopqa", help="the questions' format")
    parser.add_argument("--path", required=True, help="the file of questions and paragraphs")
    parser.add_argument("--passages", type=int, default=1_000_000, help="how many to generate")
    parser.add_argument("--questions", type=int, default=200, help="number of queries, from the start of the file")
    parser.add_argument("--folder", default="runs/benchmark-index", help="where corpus and index are written")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without_bm25s", action="store_true", help="leave the second implementation out")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder = Path(arguments.folder) / str(arguments.passages)
    if arguments.step:
        sys.stdout.write("\n" + json.dumps(STEPS[arguments.step](arguments, folder)) + "\n")
        return
    if not (folder / "corpus.jsonl").exists():
        generate(arguments, folder / "corpus.jsonl")
    measured: dict[str, Any] = {"passages": arguments.passages}
    for step in [step for step in STEPS if not (step == "second" and arguments.without_bm25s)]:
        command = [sys.executable, __file__, *sys.argv[1:], "--step", step]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        measured |= json.loads(done.stdout.splitlines()[-1])
        sys.stderr.write(f"{step}: {done.stdout.splitlines()[-1]}\n")
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
