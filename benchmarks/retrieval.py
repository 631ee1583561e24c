"""Recall of the gold passages by BM25, a dense index and both together, on a benchmark's own questions.

    python benchmarks/retrieval.py --dataset 2wikimultihopqa --path data/2wiki/train.json \
      --index runs/index/2wiki runs/index/2wiki-dense

Each index alone, then all of them fused. Prints recall of the supporting passages for one search with the question
itself, with its 95% bootstrap interval, and milliseconds per search; the last line is a JSON object.
"""

import argparse
import json
import sys
import time

from tqdm import tqdm

from eval.statistics import bootstrap_interval
from notewriter.benchmarks import load_questions
from notewriter.retrieval import open_index


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="jsonl", help="the questions' format, as for `notewriter evaluate`")
    parser.add_argument("--path", required=True, help="the file of questions")
    parser.add_argument("--index", nargs="+", required=True, help="indexes of one corpus")
    parser.add_argument("--questions", type=int, default=100, help="the first so many that have gold passages")
    parser.add_argument("--top_k", type=int, nargs="+", default=[2, 5, 10])
    arguments = parser.parse_args()

    questions = [question for question in load_questions(arguments.dataset, arguments.path) if question.supporting_ids]
    questions = questions[: arguments.questions]
    choices = [[path] for path in arguments.index] + ([arguments.index] if len(arguments.index) > 1 else [])
    results = {}
    for paths in choices:
        retriever = open_index(paths)
        retriever.search("warm up", 1)
        recalls: dict[int, list[float]] = {top_k: [] for top_k in arguments.top_k}
        start = time.perf_counter()
        for question in tqdm(questions, desc=" + ".join(paths), unit="question"):
            found = [passage.id for passage in retriever.search(question.question, max(arguments.top_k))]
            gold = question.supporting_ids
            for top_k, scores in recalls.items():
                scores.append(sum(id in found[:top_k] for id in gold) / len(gold))
        milliseconds = 1000 * (time.perf_counter() - start) / len(questions)
        name = " + ".join(paths)
        intervals = {f"recall@{top_k}": bootstrap_interval(scores) for top_k, scores in recalls.items()}
        for metric, interval in intervals.items():
            sys.stdout.write(f"{name}: {metric} {interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]\n")
        results[name] = {metric: round(interval.mean, 3) for metric, interval in intervals.items()}
        results[name]["milliseconds"] = round(milliseconds, 1)
    sys.stdout.write(json.dumps({"questions": len(questions), "indexes": results}) + "\n")


if __name__ == "__main__":
    main()
