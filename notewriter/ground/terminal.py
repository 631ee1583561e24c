"""Printing text from models, endpoints and files without letting it control the terminal."""

import functools
import logging
import unicodedata

DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""Bidirectional classes of the characters that reorder text on a terminal."""


def escape_controls(text: str) -> str:
    r"""Write control characters and bidirectional overrides as escapes such as `\x1b`; newlines and tabs stay."""
    text = text.replace("\r\n", "\n")
    return "".join(
        each.encode("unicode_escape").decode()
        if (unicodedata.category(each) == "Cc" and each not in "\n\t") or unicodedata.bidirectional(each) in DIRECTIONS
        else each
        for each in text
    )


@functools.cache
def say_once(logger: logging.Logger, line: str) -> None:
    """Warn, once in a process."""
    logger.warning("%s", line)


class Formatter(logging.Formatter):
    """A log formatter that escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The formatted record, with control characters escaped."""
        return escape_controls(super().format(record))
