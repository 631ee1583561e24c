"""Modules that are imported when they are first used, because a command would start more slowly with them."""

import importlib
from typing import Any


class Lazy:
    """Stands for a module until one of its names is asked for.

    if TYPE_CHECKING:
        import openai
    else:
        openai = Lazy("openai")
    """

    def __init__(self, name: str) -> None:
        self._module = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
