"""The description of a corpus's origin, which each origin gives in its own module."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from notewriter.ground.errors import install
from notewriter.ground.releases import Release

Record = tuple[str, Any]
"""The place of a record, for messages, and the record as it was read."""


INSTALL = install("corpora")
"""Ends messages about a missing library."""


class Origin(TypedDict, total=False):
    """The origin of a passage.

    `file` or `url` name its document, and `page` is the page on which it begins (of a PDF, from 1). `headings` are the
    headings above it, outermost first. `span` has its start and end in the document's extracted text, in characters.
    """

    file: str
    url: str
    page: int
    headings: list[str]
    span: list[int]


class Heading(NamedTuple):
    """A heading of a document: the offset of its line, its level from 1, and its words."""

    start: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Document:
    """A document before it is split.

    `page_starts` are the offsets in `text` at which its pages begin; `headings` are those that its reader knows, where
    those of other Markdown are read out of the text.
    """

    id: str
    title: str
    text: str
    origin: Origin = field(default_factory=lambda: Origin())
    is_markdown: bool = False
    page_starts: tuple[int, ...] = ()
    headings: tuple[Heading, ...] | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be used: its name and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """An origin of documents. Everything it yields comes in the same order each time, so that a build can resume.

    Args:
        title: its description, for messages.
        files: its files and where they come from; in words where nobody publishes them as files.
        inputs: the files behind the paths that the user gave, each with its name, or why one is skipped.
        records: reads the records of a file.
        parse: turns a record into documents. It raises `UserError` for one that cannot be used; that one is skipped.
        split: how its documents are split by default, a key of `splitting.SPLITS`.
        has_repeats: whether the same document may occur in several records, to be written once.
        has_versions: whether its text may differ then; the first one is written.
        is_uniform: whether the rest can be expected to fail as well once a thousand records have.
    """

    title: str
    files: Release | str
    inputs: Callable[[Sequence[Path]], Iterator[tuple[str, Path] | Skipped]]
    records: Callable[[str, Path], Iterator[Record]]
    parse: Callable[[str, Any], list[Document]]
    split: str = "none"
    has_repeats: bool = False
    has_versions: bool = False
    is_uniform: bool = True
