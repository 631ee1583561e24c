"""Texts and numbers in forms that compress well and that the page's script reads back."""

import re
from collections.abc import Iterable
from itertools import pairwise

TOKEN = re.compile(r"\w+ ?|\W ?")
"""A word or another character, with the space after it: these matched one after the other are the whole text."""

FIRST = 0x5D
"""The first code: from here on JSON escapes no character."""

SURROGATES = range(0xD800, 0xE000)
"""Codes that are no characters."""

FULL = 1_000_000
"""Words that get a character; what comes after them is spelled out, for which 100,000 characters are left."""


class Vocabulary:
    """The words of many texts, and a character for each: a text becomes as many characters as it has words.

    A compressor looks back some ten thousand bytes, so it would spell most words anew in every block. Numbers are
    given in the order in which words are met, and so mostly the lower, the commoner the word.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def words(self) -> list[str]:
        """The words, in the order of their numbers."""
        return list(self._numbers)

    def code(self, text: str) -> str:
        """The text with a character a word."""
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
    """The numbers, each as how many lie between it and the one before: small where they are close together."""
    return [number - before - 1 for before, number in pairwise([-1, *numbers])]
