"""The parts of retrieval: indexes, the sources of a chain, the steps after them, and the identity of each.

A part of a chain has a file of its own with its options, the class that it opens, and its identity, which a `Source`,
`Step` or `Restriction` puts together. `chain` has one table of each; an installed package can add its own.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

from annotated_types import Interval

from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Passage, Question
from notewriter.models.cache import ResponseCache

Scope = Collection[str]
"""The ids or titles of the passages that a search is restricted to."""


class Retriever(Protocol):
    """A finder of passages."""

    def search(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first. `query` may be any text. Thread-safe."""
        ...


class Index(Protocol):
    """The interface of every index."""

    def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first. `query` may be any text. Thread-safe."""
        ...


@runtime_checkable
class BatchIndex(Index, Protocol):
    """An index that searches for several queries at once faster than one by one."""

    def search_all(self, queries: list[str], top_k: int, scope: Scope | None = None) -> list[list[Passage]]:
        """The result of `search` for each query."""
        ...


class OpenSource(Protocol):
    """Finds passages; used by the tasks of one event loop.

    `name` is how traces and errors call it; `corpus` identifies its corpus, empty if unknown.
    """

    name: str
    corpus: str

    async def check(self) -> None:
        """Check that it can be searched, before any work is done; by default that was checked when it was opened."""
        return

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first."""
        ...

    async def close(self) -> None:
        """Release connections and threads; by default there are none."""
        return


class OpenStep(Protocol):
    """Reorders, drops or shortens passages; `name` is how traces and errors call it."""

    name: str

    def candidates(self, top_k: int) -> int:
        """The number of passages that it needs to return `top_k`; by default as many."""
        return top_k

    async def check(self) -> None:
        """Check that it can be used, before any work is done; by default that was checked when it was opened."""
        return

    async def apply(self, query: str, passages: list[Passage], top_k: int) -> list[Passage]:
        """The passages to go on with, best first; `top_k` are needed."""
        ...

    async def close(self) -> None:
        """Release connections and threads; by default there are none."""
        return


class OpenRestriction(Protocol):
    """Restricts the searches of a question."""

    def of(self, question: Question | None) -> Scope:
        """The passages that a question is restricted to."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of part.

    Args:
        options: a dataclass with the part's keys. The field with the name of the kind has the place or model to use.
        open: opens a part with its options.
        identity: identifies the contents behind a part's path or address, None if they are unknown. May ask a server,
            so it is not for event loops.
        is_local: whether it reads files of this machine and contacts nothing. Only such a part is used where no user
            but a folder names it.
    """

    options: type[Any]
    open: Callable[..., Any]
    identity: Callable[[Any], str | None] = lambda options: None
    is_local: bool = False


@dataclass(frozen=True, kw_only=True)
class Source(Kind):
    """A kind of source; its options derive from `SourceOptions`."""

    open: Callable[[Any], OpenSource]


@dataclass(frozen=True, kw_only=True)
class Step(Kind):
    """A kind of step. `open` also takes the store of models' replies; a dry run leaves out what `calls_model`."""

    open: Callable[[Any, ResponseCache | None], OpenStep]
    calls_model: bool = False


@dataclass(frozen=True, kw_only=True)
class Restriction(Kind):
    """A kind of restriction, which holds for all sources."""

    open: Callable[[Any], OpenRestriction]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The common options of all sources."""

    weight: Annotated[float, Interval(gt=0)] = option(1.0, "weight of its ranking in the fusion")


def check_top_k(top_k: int) -> None:
    """Check that a search requests at least one passage.

    Raises:
        UserError: it does not.
    """
    if top_k < 1:
        raise UserError(f"top_k: {top_k} passages cannot be retrieved; request at least 1")
