"""What a note without a model is worth at a given number of words: the bar that a trained note-writer has to clear.

    python examples/notes_without_a_model.py --path questions.jsonl --index runs/index/mine --words 20 40 80

For each question the best passages of one search are cut down by rules of rollouts/controls.py; the table has their
scores. `questions.jsonl` has `supporting_facts` and `answers`, as for `notewriter evaluate`.
"""

import argparse
from pathlib import Path

from notewriter.datasets import load_questions
from notewriter.evaluation.notes import note_quality
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground.errors import run
from notewriter.retrieval.sources.index import open_index
from notewriter.rollouts.controls import CONTROLS

METRICS = ("note_fact_recall", "note_has_answer")


def main() -> None:
    """Parse the command line, search, and print a row for each control and number of words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--dataset", default="jsonl")
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--top_k", type=int, default=3)
    parser.add_argument("--words", type=int, nargs="+", required=True)
    # `similar` downloads a sentence encoder.
    parser.add_argument("--notes", choices=CONTROLS, nargs="+", default=["lead", "first", "overlap", "random", "gold"])
    arguments = parser.parse_args()

    questions = load_questions(arguments.dataset, arguments.path)
    index = open_index(arguments.index)
    found = [index.search(question.question, arguments.top_k) for question in questions]
    print(f"| note | words | {' | '.join(METRICS)} |\n|---|---:|---:|---:|")
    for words in arguments.words:
        for name in arguments.notes:
            scores = [
                note_quality(CONTROLS[name].write(question, passages, words), question)
                for question, passages in zip(questions, found, strict=True)
            ]
            values = [[each[metric] for each in scores if metric in each] for metric in METRICS]
            means = [bootstrap_interval(each).text() if each else "–" for each in values]
            print(f"| {name} | {words} | {' | '.join(means)} |")


if __name__ == "__main__":
    # Errors that a user can fix become one line.
    run(main)
