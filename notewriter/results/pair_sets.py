"""Sets of pairs side by side: their yields, the features that separate their sides, and how far two sets agree."""

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from notewriter.artifacts.pairs import Pair, read_pairs
from notewriter.artifacts.statistics import BEYOND_QUOTA
from notewriter.ground.text import bare_words
from notewriter.pages.tables import Table
from notewriter.results.origins import statistics_of
from notewriter.rollouts.shortcuts import differences, separations, sides, strongest

Choices = dict[tuple[str, str], tuple[str, str]]
"""(Stage, prompt) -> the chosen and the rejected text."""


def pair_tables(sets: Mapping[str, str]) -> list[Table]:
    """The yields of sets of pairs, the features that separate their sides, and how often two agree on a prompt.

    Args:
        sets: what tables call a set -> its folder. A folder without pairs is listed as not run.

    Raises:
        UserError: a folder's train.parquet does not contain pairs.
    """
    folders = {name: Path(folder) for name, folder in sets.items()}
    made = {name: record for name, folder in folders.items() for _, record in statistics_of([folder])}
    pairs_of = {name: list(read_pairs(folders[name] / "train.parquet")) for name in made}
    agreement = _agreement({name: _choices(pairs) for name, pairs in pairs_of.items()})
    return [_yields(folders, made), _separations(pairs_of), *([agreement] if agreement[2] else [])]


def _yields(names: Iterable[str], made: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = []
    for name in names:
        if name not in made:
            rows.append([name, *["not run"] * 7])
            continue
        record = made[name]
        stages = list(record["stages"].values())
        pairs = sum(each["pairs"] for each in stages)
        gave = pairs + sum(each["dropped"].get(BEYOND_QUOTA, 0) for each in stages)
        prompts = pairs + sum(sum(each["dropped"].values()) for each in stages)
        agreement = record["agreement"].values()
        asked, agreed = (sum(each[key] for each in agreement) for key in ("asked", "agreed"))
        tokens = record["tokens_in_all"]
        rows.append(
            [
                name,
                str(prompts),
                str(gave),
                f"{gave / prompts:.3f}" if prompts else "",
                str(pairs),
                f"{agreed} of {asked}" if asked else "",
                f"{tokens.get('prompt_tokens', 0):,}",
                f"{tokens.get('completion_tokens', 0):,}",
            ]
        )
    header = ["set", "prompts", "with a pair", "yield", "pairs kept", "same in both orders"]
    return "Yields", [*header, "prompt tokens", "completion tokens"], rows


def _separations(pairs_of: Mapping[str, Sequence[Pair]]) -> Table:
    rows = []
    for name, pairs in pairs_of.items():
        for stage in sorted({pair["stage"] for pair in pairs}):
            both = [sides(pair) for pair in pairs if pair["stage"] == stage]
            words = [statistics.fmean(len(bare_words(side.text)) for side in each) for each in zip(*both, strict=True)]
            told = [differences(*each) for each in both]
            feature, separation = strongest(told)
            longer, most = f"{separations(told)[0].share:.0%}", f"{feature.more}: {separation.share:.0%}"
            rows.append([name, stage, str(len(both)), *(f"{each:.1f}" for each in words), longer, most])
    header = ["set", "stage", "pairs", "words, chosen", "words, rejected", "chosen is longer"]
    header += ["how often the chosen side ..."]
    return "What separates the sides beside what they say: lengths, and the feature that tells most", header, rows


def _agreement(choices: Mapping[str, Choices]) -> Table:
    """Without the sets that have no prompt in common."""
    rows = []
    for one, other in itertools.combinations(choices, 2):
        shared = choices[one].keys() & choices[other].keys()
        both = [(choices[one][prompt], choices[other][prompt]) for prompt in shared]
        if both:
            counts = [
                len(both),
                sum(first[0] == second[0] for first, second in both),
                sum(first == second for first, second in both),
                sum(first[0] == second[1] or second[0] == first[1] for first, second in both),
            ]
            rows.append([f"{one} and {other}", *map(str, counts)])
    header = ["sets", "prompts with a pair of both", "same chosen", "same pair", "one's chosen rejected"]
    return "Agreement", header, rows


def _choices(pairs: Sequence[Pair]) -> Choices:
    return {
        (pair["stage"], json.dumps(pair["prompt"])): (pair["chosen"][-1]["content"], pair["rejected"][-1]["content"])
        for pair in pairs
    }
