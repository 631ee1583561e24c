"""What two texts do not share, word by word."""

import difflib
import re
from typing import Literal

Marked = list[tuple[str, bool]]
"""Words in their order, and whether each is one that the other side has not."""

Change = Literal["kept", "added", "dropped"]


def marked_differences(one: str, other: str) -> tuple[Marked, Marked]:
    """Both texts as words with the space after them, those marked that the other has not in their order."""
    pieces = [_pieces(text) for text in (one, other)]
    common: tuple[set[int], set[int]] = set(), set()
    for block in _matcher(*pieces).get_matching_blocks():
        common[0].update(range(block.a, block.a + block.size))
        common[1].update(range(block.b, block.b + block.size))
    first, second = (
        [(piece, place not in shared) for place, piece in enumerate(each)]
        for each, shared in zip(pieces, common, strict=True)
    )
    return first, second


def merged_differences(before: str, after: str) -> list[tuple[str, Change]]:
    """How one text became the other: words with the space after them, with those that were dropped in their place."""
    old, new = _pieces(before), _pieces(after)
    merged: list[tuple[str, Change]] = []
    for tag, old_start, old_end, new_start, new_end in _matcher(old, new).get_opcodes():
        if tag == "equal":
            merged += [(piece, "kept") for piece in new[new_start:new_end]]
        else:
            merged += [(piece.strip() + " ", "dropped") for piece in old[old_start:old_end]]
            merged += [(piece, "added") for piece in new[new_start:new_end]]
    return merged


def _pieces(text: str) -> list[str]:
    return re.findall(r"\S+\s*|^\s+", text)


def _matcher(one: list[str], other: list[str]) -> difflib.SequenceMatcher[str]:
    words, others = ([piece.strip() for piece in each] for each in (one, other))
    return difflib.SequenceMatcher(None, words, others, autojunk=False)
