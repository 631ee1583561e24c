"""The description of a benchmark, which each benchmark gives in its own module."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from notewriter.ground.records import Passage, Question
from notewriter.ground.releases import Release

WIKIPEDIA = "its passages are Wikipedia's, CC BY-SA"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark.

    Args:
        title: its display name.
        load_questions: reads the questions of a file in its own format.
        family: the default metric family.
        answer_style: the expected answers: `short`, `list`, `long` or `yes_no`.
        source: where its files are, and under which licence; None for the user's own data.
        passages: the origin of the passages, for dataset cards.
        load_corpus: streams the passages of a file; None if its files name pages that they do not contain.
        load_contexts: streams the id of each question with the paragraphs beside it; None if there are none.
    """

    title: str
    load_questions: Callable[[Path], list[Question]]
    family: str
    answer_style: str = "short"
    source: Release | None = None
    passages: str = WIKIPEDIA
    load_corpus: Callable[[Path], Iterator[Passage]] | None = None
    load_contexts: Callable[[Path], Iterator[tuple[str, list[Passage]]]] | None = None

    @property
    def licence(self) -> str:
        """The Hub's identifier of its licence; empty for the user's own data."""
        return self.source.licence if self.source else ""
