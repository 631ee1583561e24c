"""Sets of pairs side by side: what each judge yielded, and how far two of them agree."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet

from eval.report.markup import Table
from eval.results.origins import statistics_of

Choices = dict[tuple[str, str], tuple[str, str]]
"""(Stage, prompt) -> the chosen and the rejected text."""


def judge_tables(sets: Mapping[str, str]) -> list[Table]:
    """The yields of sets of pairs, and how often two of them agree on the same prompt.

    Args:
        sets: what tables call a set -> its folder. A folder without pairs is listed as not run.
    """
    found = {name: dict(statistics_of([Path(folder)])) for name, folder in sets.items()}
    yields = []
    for name, statistics in found.items():
        if not statistics:
            yields.append([name, *["not run"] * 6])
            continue
        (record,) = statistics.values()
        stages = record["stages"].values()
        pairs, without = sum(each["pairs"] for each in stages), sum(sum(each["dropped"].values()) for each in stages)
        agreement = record["agreement"].values()
        asked, agreed = (sum(each[key] for each in agreement) for key in ("asked", "agreed"))
        tokens = record["tokens_in_all"]
        yields.append(
            [
                name,
                str(pairs + without),
                str(pairs),
                f"{pairs / (pairs + without):.3f}" if pairs + without else "",
                f"{agreed} of {asked}" if asked else "",
                f"{tokens.get('prompt_tokens', 0):,}",
                f"{tokens.get('completion_tokens', 0):,}",
            ]
        )
    header = ["judge", "prompts", "pairs", "yield", "same in both orders", "prompt tokens", "completion tokens"]
    choices = {name: _choices(Path(sets[name])) for name, statistics in found.items() if statistics}
    rows = []
    for one, other in itertools.combinations(choices, 2):
        shared = choices[one].keys() & choices[other].keys()
        both = [(choices[one][prompt], choices[other][prompt]) for prompt in shared]
        rows.append(
            [
                f"{one} and {other}",
                str(len(both)),
                str(sum(first[0] == second[0] for first, second in both)),
                str(sum(first == second for first, second in both)),
                str(sum(first == second[::-1] or first[0] == second[1] for first, second in both)),
            ]
        )
    agreement_header = ["judges", "prompts with a pair of both", "same chosen", "same pair", "one's chosen rejected"]
    return [("Yields", header, yields), ("Agreement", agreement_header, rows)]


def _choices(folder: Path) -> Choices:
    rows = pyarrow.parquet.read_table(
        folder / "train.parquet", columns=["stage", "prompt", "chosen", "rejected"]
    ).to_pylist()
    return {
        (row["stage"], json.dumps(row["prompt"])): (row["chosen"][-1]["content"], row["rejected"][-1]["content"])
        for row in rows
    }
