"""What two texts do not share, word by word."""

import difflib
import re

Marked = list[tuple[str, bool]]
"""Words in their order, and whether each is one that the other side has not."""


def marked_differences(one: str, other: str) -> tuple[Marked, Marked]:
    """Both texts as words with the space after them, those marked that the other has not in their order."""
    pieces = [re.findall(r"\S+\s*|^\s+", text) for text in (one, other)]
    left, right = ([piece.strip() for piece in each] for each in pieces)
    common: tuple[set[int], set[int]] = set(), set()
    for block in difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        common[0].update(range(block.a, block.a + block.size))
        common[1].update(range(block.b, block.b + block.size))
    first, second = (
        [(piece, place not in shared) for place, piece in enumerate(each)]
        for each, shared in zip(pieces, common, strict=True)
    )
    return first, second
