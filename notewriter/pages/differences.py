"""The differences of two texts, word by word."""

import difflib
import re
from typing import Literal

Marked = list[tuple[str, bool]]
"""Words in their order, and whether the other side lacks each."""

Change = Literal["kept", "added", "dropped"]

MAX_STEPS = 3_000_000
"""Pairs of equal words that are looked at, half a second; texts that repeat themselves have billions."""

UNCOMPARED = "not marked: the texts are too long, or repeat themselves too much, to compare them"
"""The remark on texts whose differences take more than `MAX_STEPS`."""


class TooAlike(Exception):
    """Two texts with too many equal words to compare them."""


def marked_differences(one: str, other: str) -> tuple[Marked, Marked]:
    """Both texts as words with the space after them; words that the other text lacks, in order, are marked.

    Raises:
        TooAlike: the comparison would take more than `MAX_STEPS`.
    """
    pieces, others = _pieces(one), _pieces(other)
    first: Marked = []
    second: Marked = []
    for tag, start, end, other_start, other_end in _Matcher(pieces, others).get_opcodes():
        first += [(piece, tag != "equal") for piece in pieces[start:end]]
        second += [(piece, tag != "equal") for piece in others[other_start:other_end]]
    return first, second


def merged_differences(before: str, after: str) -> list[tuple[str, Change]]:
    """The way from one text to the other: words with the space after them, with the dropped ones in their place.

    Raises:
        TooAlike: the comparison would take more than `MAX_STEPS`.
    """
    old, new = _pieces(before), _pieces(after)
    merged: list[tuple[str, Change]] = []
    for tag, old_start, old_end, new_start, new_end in _Matcher(old, new).get_opcodes():
        if tag == "equal":
            merged += [(piece, "kept") for piece in new[new_start:new_end]]
        else:
            merged += [(piece.strip() + " ", "dropped") for piece in old[old_start:old_end]]
            merged += [(piece, "added") for piece in new[new_start:new_end]]
    return merged


def _pieces(text: str) -> list[str]:
    return re.findall(r"\S+\s*|^\s+", text)


class _Matcher(difflib.SequenceMatcher[str]):
    """The library's matcher, which compares equal words pair by pair; here the pairs are counted."""

    a: list[str]
    b2j: dict[str, list[int]]

    def __init__(self, one: list[str], other: list[str]) -> None:
        words, others = ([piece.strip() for piece in each] for each in (one, other))
        self.steps = 0
        super().__init__(None, words, others, autojunk=False)

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """The library's search, with a limit of steps.

        Raises:
            TooAlike: it would take too long.
        """
        self.steps += sum(1 + len(self.b2j.get(word, ())) for word in self.a[alo:ahi])
        if self.steps > MAX_STEPS:
            raise TooAlike
        return super().find_longest_match(alo, ahi, blo, bhi)
