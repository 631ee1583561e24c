"""Texts and numbers in forms that compress well and that the page's script decodes."""

import re
from collections.abc import Iterable
from itertools import pairwise

TOKEN = re.compile(r"\w+ ?|\W ?")
"""A word or any other character, with the space after it; successive matches cover the whole text."""

FIRST = 0x5D
"""The first code point in use: JSON escapes no character from here on."""

SURROGATES = range(0xD800, 0xE000)
"""Code points that are not characters."""

FULL = 1_000_000
"""Words that get a character; later words are spelled out, for which 100,000 characters are left."""


class Vocabulary:
    """The words of many texts, each with a character of its own: a coded text has one character per word.

    A compressor looks back about ten thousand bytes, so it would spell out most words again in every block. Words are
    numbered as they are met, so common words mostly get low numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self._numbers)

    def code(self, text: str) -> str:
        """The text with one character per word."""
        numbers = self._numbers
        coded = []
        for token in TOKEN.findall(text):
            for part in (token,) if token in numbers or len(numbers) < FULL else token:
                coded.append(_character(numbers.setdefault(part, len(numbers))))
        return "".join(coded)


def _character(number: int) -> str:
    code = FIRST + number
    return chr(code if code < SURROGATES.start else code + len(SURROGATES))


def gaps(numbers: Iterable[int]) -> list[int]:
    """Ascending numbers as differences, each the count of numbers skipped: small where they are close together."""
    return [number - before - 1 for before, number in pairwise([-1, *numbers])]
