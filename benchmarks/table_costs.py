"""The cost of each paper's main table on eight A100s, by rehearsal over a stand-in corpus with the papers' lengths.

    python benchmarks/table_costs.py --output_dir runs/table_costs

Questions and passages are random words: of a rehearsal's prompts only the lengths matter. Pages are as long as
NotesWriting's Table 2 says: tokens of the note-taker per search and page.
"""

import argparse
import json
import random
import sys
from pathlib import Path

from notewriter.experiments.cost import cost_of, cost_table
from notewriter.experiments.grid import Substitutes, read_grid
from notewriter.ground import jsonl
from notewriter.pages.tables import aligned
from notewriter.retrieval import index
from notewriter.rollouts.rehearsal import DryRunArguments

TABLES = ("deepnote/table_1", "rearag/table_1", "resp/table_2", "noteswriting/table_2")

WORDS = {
    "deepnote": {"hotpotqa": 70, "2wikimultihopqa": 70, "musique": 85, "asqa": 100, "strategyqa": 100},
    "rearag": {"musique": 85, "hotpotqa": 70, "iirc": 100, "nq": 100},
    "resp": {"hotpotqa": 100, "2wikimultihopqa": 100},
    "noteswriting": {"fanoutqa": 7000, "frames": 6500, "hotpotqa": 6200, "multihoprag": 1700},
}
"""Paper -> benchmark -> words of a passage or page."""

PARAGRAPH = 80
"""Words of a paragraph of a page."""

PASSAGES, CORPUS = 60, 45_000
"""At least so many passages and words: what fills the context of a model that reads the whole corpus (ReaRAG)."""

VOCABULARY = [f"word{number}" for number in range(2000)]


def stand_in(folder: Path, words: int) -> Path:
    """Build an index of passages of that length, and questions of 16 words; returns the questions' file."""
    chance = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)

    def text(length: int) -> str:
        lines = (min(PARAGRAPH, length - start) for start in range(0, length, PARAGRAPH))
        return "\n".join(" ".join(chance.choices(VOCABULARY, k=line)) for line in lines)

    corpus = folder / "corpus.jsonl"
    jsonl.write(
        corpus,
        ({"id": f"p{n}", "title": f"Page {n}", "text": text(words)} for n in range(max(PASSAGES, CORPUS // words))),
    )
    index.main(["--path", str(corpus), "--index", str(folder / "index")])
    questions = folder / "questions.jsonl"
    jsonl.write(questions, ({"id": f"q{n}", "question": text(16), "answers": ["word1"]} for n in range(8)))
    return questions


def main() -> None:
    """Print the cost of each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/table_costs"))
    parser.add_argument("--reply_share", type=float, default=0.1)
    arguments = parser.parse_args()
    configs = Path(__file__).parents[1] / "configs/papers"
    summary = {}
    for name in TABLES:
        paper = name.partition("/")[0]
        folder = arguments.output_dir / paper
        questions = {each: str(stand_in(folder / each, words)) for each, words in WORDS[paper].items()}
        indexes = folder / "indexes"
        indexes.mkdir(exist_ok=True)
        for each in questions:
            if not (indexes / each).exists():
                (indexes / each).symlink_to((folder / each / "index").resolve())
        substitutes = Substitutes(indexes=str(indexes), questions=questions, options={"dataset": "jsonl"})
        table = read_grid(configs / f"{name}.yaml", {}, substitutes)
        dry = DryRunArguments(dry_run=True, dry_run_questions=4, reply_share=arguments.reply_share)
        costs = cost_of(table, table.cells, dry, folder)
        hours, money = sum(cost.gpu_hours for cost in costs), sum(cost.money for cost in costs)
        summary[table.content.title] = {
            "cells": len(costs),
            "calls": sum(cost.calls for cost in costs),
            "prompt_tokens": sum(cost.prompt_tokens for cost in costs),
            "completion_tokens": sum(cost.completion_tokens for cost in costs),
            "hours_on_8": round(hours / 8, 1),
            "money": round(money),
        }
        sys.stdout.write(aligned([cost_table(costs, 8)]) + "\n")
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
