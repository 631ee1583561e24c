"""Text from models, endpoints and files on a terminal, which shows it and obeys none of it."""

import logging
import unicodedata

DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of the characters that change the order in which a terminal shows text."""


def harmless(text: str) -> str:
    r"""Text that can do nothing to a terminal: control characters and those that turn text around stand as `\x1b`."""
    text = text.replace("\r\n", "\n")
    return "".join(
        each.encode("unicode_escape").decode()
        if (unicodedata.category(each) == "Cc" and each not in "\n\t") or unicodedata.bidirectional(each) in DIRECTIONS
        else each
        for each in text
    )


class Formatter(logging.Formatter):
    """Writes log messages so that they can do nothing to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The message of a record, made harmless."""
        return harmless(super().format(record))
