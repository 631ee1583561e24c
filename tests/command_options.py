"""The spellings of a command's options, as its parser has them."""

from collections.abc import Callable

from docs.hooks import actions_of


def spellings_of(main: Callable[[list[str]], None]) -> set[str]:
    """The spellings of all options of a command."""
    return {spelling for action in actions_of(main) for spelling in action.option_strings}
