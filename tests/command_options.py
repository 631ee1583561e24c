"""The spellings of a command's options, as its parser has them."""

import argparse
import contextlib
from collections.abc import Callable
from unittest import mock

from notewriter.ground.parser import Parser


def spellings_of(main: Callable[[list[str]], None]) -> set[str]:
    """The spellings of all options of a command."""
    shown: set[str] = set()

    def keep(parser: argparse.ArgumentParser) -> str:
        shown.update(spelling for action in parser._actions for spelling in action.option_strings)
        return ""

    with mock.patch.object(Parser, "format_help", keep), contextlib.suppress(SystemExit):
        main(["--help"])
    return shown
