"""The faults of rows that teach nothing or the wrong thing: of new pairs, of all pairs' lengths, and of chains.

Every drop has a reason, and reasons are counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from notewriter.artifacts.pairs import Pair
from notewriter.artifacts.rollouts import ChainRollout, Drop, PairsRollout
from notewriter.data.dataset.hygiene import usual_lengths
from notewriter.data.options import ChainsArguments
from notewriter.ground.text import bare_words

EMPTY = "a side is empty"
IDENTICAL = "chosen and rejected are identical"
CUT = "the chosen side was cut at its token limit"
LOOP = "the chosen side repeats itself"
UNUSUAL_SIDE = "the {}'s length is far from the others' of its stage"

CHAIN_FAULTS = {
    "malformed": "thought, action and observation do not follow each other",
    "invalid_actions": "an action could not be read",
    "unfinished": "the chain did not finish",
}
"""Events that a trace counts -> the reason for which its chain is dropped."""


def pair_fault(row: Pair, chosen_is_cut: bool) -> str | None:
    """The reason why a pair is not worth training on, or None.

    Neither side may be empty (without a letter or digit). Only the rejected side may be cut at its token limit or
    repeat itself: to teach against that is its purpose.

    Args:
        row: the pair.
        chosen_is_cut: whether the chosen side was cut at its token limit.
    """
    chosen, rejected = row["chosen"][-1]["content"], row["rejected"][-1]["content"]
    if not (bare_words(chosen) and bare_words(rejected)):
        return EMPTY
    if chosen.split() == rejected.split():
        return IDENTICAL
    if chosen_is_cut:
        return CUT
    if repeats_itself(chosen):
        return LOOP
    return None


def repeats_itself(text: str) -> bool:
    """Whether a completion is caught in a loop.

    There are two signs. A run of up to 50 words occurs at least four times in succession (16 words or more). Or more
    than half of at least 32 word trigrams are repetitions, as in a numbered list with one text at each number.
    """
    words = bare_words(text)
    for period in range(1, min(50, len(words) // 4) + 1):
        run = 0
        for earlier, later in zip(words, words[period:], strict=False):
            run = run + 1 if earlier == later else 0
            if run >= max(3 * period, 16 - period):
                return True
    trigrams = list(zip(words, words[1:], words[2:], strict=False))
    return len(trigrams) >= 32 and len(set(trigrams)) < len(trigrams) / 2


class PairLengths(NamedTuple):
    """Characters of a pair's prompt and of its chosen side.

    The rejected side may have any length: it may well show a model that does not stop.
    """

    prompt: int
    chosen: int


Bounds = Sequence[tuple[float, float]]
"""The shortest and the longest usual length of each of the `PairLengths`."""


def pair_lengths(row: Pair) -> PairLengths:
    """The lengths of a pair."""
    prompt, chosen = (sum(len(message["content"]) for message in row[part]) for part in ("prompt", "chosen"))
    return PairLengths(prompt, chosen)


def bounds_of(lengths: Iterable[PairLengths]) -> Bounds:
    """The `usual_lengths` of the pairs of one stage; empty without any pair."""
    return [usual_lengths(values) for values in zip(*lengths, strict=True)]


def unusual_sides(lengths: PairLengths, usual: Bounds) -> list[str]:
    """The sides of a pair whose lengths are far from the others' of its stage."""
    bounded = zip(("prompt", "chosen side"), lengths, usual, strict=True)
    return [side for side, length, (shortest, longest) in bounded if not shortest <= length <= longest]


def usual_pair_lengths(rows: Iterable[Pair]) -> dict[str, Bounds]:
    """The usual lengths at each stage over all pairs; only the lengths are kept in memory."""
    lengths: dict[str, list[PairLengths]] = {}
    for row in rows:
        lengths.setdefault(row["stage"], []).append(pair_lengths(row))
    return {stage: bounds_of(values) for stage, values in lengths.items()}


def length_fault(row: Pair, usual: Mapping[str, Bounds]) -> str | None:
    """The reason why a pair is dropped for its lengths, or None."""
    sides = unusual_sides(pair_lengths(row), usual[row["stage"]])
    return UNUSUAL_SIDE.format(sides[0]) if sides else None


def within_lengths(usual: Mapping[str, Bounds], records: Iterable[PairsRollout]) -> Iterator[PairsRollout]:
    """The records, with the pairs of unusual lengths moved to the drops."""
    return without_faults(records, lambda row: length_fault(row, usual))


def chain_fault(record: ChainRollout, f1: float, arguments: ChainsArguments) -> str | None:
    """The reason why a chain is not training data, or None (ReaRAG, section 3.2, and the checks of the authors' code).

    The first of these reasons is returned: the endpoint refused a request, `CHAIN_FAULTS`, a step without a thought,
    too few searches, an F1 of 0.

    Args:
        record: the chain.
        f1: of the answer that it finished with, in [0, 1].
        arguments: which chains to keep.
    """
    counts = record["trace"]["counts"]
    steps = [turn["content"] for turn in record["turns"] if turn["role"] == "assistant"]
    if record["trace"]["error"]:
        return "the endpoint refused the request"
    for event, reason in CHAIN_FAULTS.items():
        if counts.get(event):
            return reason
    if not all(step.startswith("Thought") for step in steps):
        return "a step without a thought"
    if len(steps) - 1 - counts.get("repeated_queries", 0) < arguments.min_searches:
        return "too few searches"
    if f1 == 0:
        return "the answer's F1 is 0"
    return None


def without_faults(records: Iterable[Any], fault: Callable[[Any], str | None]) -> Iterator[Any]:
    """The records of a journal, with the rows in which `fault` finds a reason moved to the drops."""
    for record in records:
        rows, drops = [], list(record["drops"])
        for row in record["rows"]:
            if reason := fault(row):
                drops.append(Drop(stage=row["stage"], reason=reason))
            else:
                rows.append(row)
        yield {**record, "rows": rows, "drops": drops}
