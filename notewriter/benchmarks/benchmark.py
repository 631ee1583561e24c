"""What there is to know about a benchmark; each one says it of itself, in its own file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from notewriter.records import Passage, Question

WIKIPEDIA = "its passages are Wikipedia's, CC BY-SA"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark.

    Args:
        title: its name in print.
        load_questions: reads the questions of a file of its own format.
        load_corpus: reads the passages of a file, one by one.
        family: the metric family that scores it, unless a run says otherwise.
        answer_style: how it is answered: `short`, `long` or `yes_no`.
        source: where its files are, and what they are called there.
        licence: as the benchmark states it, by the Hub's identifier; empty where the data are the user's own.
        passages: whose the passages are, for the card of a dataset that is made from them.
    """

    title: str
    load_questions: Callable[[Path], list[Question]]
    load_corpus: Callable[[Path], Iterator[Passage]]
    family: str
    answer_style: str = "short"
    source: str = ""
    licence: str = ""
    passages: str = WIKIPEDIA
