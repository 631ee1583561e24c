"""Splitting documents into passages, with the headings above each.

Sentences, tokens and Markdown are split by semantic-text-splitter, which cuts at the largest boundary that fits: a
paragraph rather than a sentence, a sentence rather than a word.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from notewriter.corpora.source import INSTALL, Document, Heading, Origin
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.options import option
from notewriter.ground.text import word_spans, words_in

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Span = tuple[int, int]
Split = Callable[[Document], Iterator[Span]]
Chunks = Callable[[str], Iterable[tuple[int, str]]]
"""Splits a text into chunks, each with its offset."""

BLOCK = 100_000
"""Characters that the library is given at once. Its time grows with their square: a tenth of a second to a second for
these, and hours for an endless line of fifty million.
"""

_BLOCK_ENDS = (r"\Z", r"(?<=\n\n)", r"(?<=\n)", r"(?<=[.!?]\s)", r"(?<=\s)", "")
_BLOCKS = re.compile("|".join(f".{{1,{BLOCK}}}{end}" for end in _BLOCK_ENDS), re.DOTALL)


@dataclass
class SplitArguments:
    """The options for splitting documents into passages."""

    split: str | None = option(
        None,
        "none (whole documents), words (exactly --size words, as DPR), tokens, sentences (at most --size "
        "tokens or words, cut between sentences where possible) or headings (a section each, longer ones cut as by "
        "sentences). Default: headings for folders and Wikipedia in HTML, words for Wikipedia in plain text, "
        "sentences for news, none for corpora of passages",
    )
    size: Annotated[int, Interval(ge=1, le=1_000_000)] = option(
        100, "words in a passage, or tokens with --split tokens"
    )
    overlap: Annotated[int, Interval(ge=0, le=1_000_000)] = option(
        0, "words or tokens that a passage may share with the one before it"
    )
    tokenizer: str | None = option(None, "for tokens: a model's folder, its tokenizer.json, or a hub id")


def headings(text: str) -> list[Heading]:
    """The headings of a Markdown text in order, also those in HTML. Those in code blocks, lists and quotes are none.

    Raises:
        UserError: the library is missing.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise UserError(f"Markdown cannot be split without markdown-it-py; {INSTALL}") from error
    # Blocks alone: what is inside a line does not matter here, and takes most of the time.
    tokens = MarkdownIt("commonmark").disable("inline").parse(text)
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    inline = MarkdownIt("commonmark")
    found = []
    for opening, content in itertools.pairwise([*tokens, None]):
        if opening is None or opening.level or not opening.map:
            continue
        if opening.type == "heading_open" and content is not None:
            level, title = int(opening.tag[1]), content.content
        elif opening.type == "html_block" and (html := _HTML_HEADING.match(opening.content)):
            level, title = int(html[1]), html[2]
        else:
            continue
        (line,) = inline.parseInline(_ATTRIBUTES.sub("", title))
        found.append(Heading(starts[opening.map[0]], level, _said(line) or _said(line, ("html_inline",))))
    return found


_HTML_HEADING = re.compile(r"\s*<h([1-6])\b[^>]*>(.*?)</h\1>\s*\Z", re.DOTALL | re.IGNORECASE)

_ATTRIBUTES = re.compile(r"\s*\{:?\s*[#.][^{}]*\}\s*\Z")
"""The name or class that Pandoc, MkDocs, Docusaurus and kramdown let a heading end with: `{#name}`."""


def _said(line: Any, silent: Sequence[str] = ("html_inline", "image")) -> str:
    """The words of a line, without the marks of links, emphasis, HTML and pictures."""
    words = (" " if each.type == "softbreak" else each.content for each in line.children if each.type not in silent)
    return " ".join("".join(words).split())


def splitter(arguments: SplitArguments, default: str) -> Callable[[Document], Iterator[tuple[str, str, Origin]]]:
    """A function that splits a document into its passages: the title, the text and the origin of each.

    Passages are stripped of white space; blank ones are left out.

    Raises:
        UserError: the split is unknown, lacks its tokenizer or library, or the overlap is not below the size.
    """
    name = arguments.split or default
    if name not in SPLITS:
        raise UserError(f"unknown split {name!r}; choose one of: {', '.join(SPLITS)}")
    if arguments.overlap >= arguments.size:
        raise UserError(f"overlap: {arguments.overlap} is not below the size {arguments.size}; choose a smaller one")
    split = SPLITS[name](arguments)

    def passages(document: Document) -> Iterator[tuple[str, str, Origin]]:
        above = _headings_of(document) if name != "none" else []
        starts, paths = [heading.start for heading in above], _paths(above)
        for start, end in split(document):
            text = document.text[start:end]
            start += len(text) - len(text.lstrip())
            if not (text := text.strip()):
                continue
            path = paths[bisect.bisect_right(starts, start)]
            title = document.title
            if name == "headings":
                # A section says little without the headings above it.
                title = " > ".join([title, *path[path[:1] == [title] :]])
            origin = Origin(**document.origin)
            if document.page_starts:
                origin["page"] = bisect.bisect_right(document.page_starts, start)
            if path:
                origin["headings"] = path
            if name != "none":
                origin["span"] = [start, start + len(text)]
            yield title, text, origin

    return passages


def _headings_of(document: Document) -> Sequence[Heading]:
    if document.headings is not None:
        return document.headings
    return headings(document.text) if document.is_markdown else []


def _paths(above: Sequence[Heading]) -> list[list[str]]:
    """The headings above a text, outermost first: before the first heading, below it, below the second and so on."""
    path: list[Heading] = []
    paths: list[list[str]] = [[]]
    for heading in above:
        path = [each for each in path if each.level < heading.level] + [heading]
        paths.append([each.title for each in path])
    return paths


def _whole(_: SplitArguments) -> Split:
    return lambda document: iter([(0, len(document.text))])


def _words(arguments: SplitArguments) -> Split:
    """Passages of exactly `size` words but for the last, each beginning `overlap` words before the last one's end."""

    def split(document: Document) -> Iterator[Span]:
        window: list[Span] = []
        fresh = 0
        for span in word_spans(document.text):
            window.append(span)
            fresh += 1
            if len(window) == arguments.size:
                yield window[0][0], window[-1][1]
                window, fresh = window[arguments.size - arguments.overlap :], 0
        if fresh:
            yield window[0][0], window[-1][1]

    return split


def _sentences(arguments: SplitArguments) -> Split:
    return _by(_by_words(_library().TextSplitter, arguments))


def _tokens(arguments: SplitArguments) -> Split:
    library, tokenizer = _library(), load_tokenizer(arguments.tokenizer)
    size, overlap = arguments.size, arguments.overlap
    return _by(_in_blocks(library.TextSplitter.from_huggingface_tokenizer(tokenizer, size, overlap).chunk_indices))


def _headings(arguments: SplitArguments) -> Split:
    library = _library()
    plain, markdown = (_by_words(kind, arguments) for kind in (library.TextSplitter, library.MarkdownSplitter))

    def split(document: Document) -> Iterator[Span]:
        chunks = markdown if document.is_markdown else plain
        found = _headings_of(document)
        if not (found or document.is_markdown):
            yield from _by(plain)(document)
            return
        # A bookmark may have no line of its own in its text.
        of_lines = document.headings is None
        headed = {heading.start for heading in found if of_lines or _has_line(document.text, heading)}
        starts = {heading.start for heading in found}
        sections = list(itertools.pairwise(sorted({0, *starts, len(document.text)})))
        # A heading with nothing before the next one is in the path of those below it.
        with_text = [each for each in sections if not _is_bare(document.text[slice(*each)], each[0] in headed)]
        for start, end in with_text or sections:
            for offset, chunk in chunks(document.text[start:end]):
                # A heading that is cut off from a long paragraph is in that one's path, too.
                if offset or len(chunk) == end - start or not (with_text and _is_bare(chunk, start in headed)):
                    yield start + offset, start + offset + len(chunk)

    return split


def _has_line(text: str, heading: Heading) -> bool:
    line = text[heading.start : text.find("\n", heading.start) + 1 or None]
    return " ".join(heading.title.split()).casefold() in " ".join(line.split()).casefold()


def _is_bare(section: str, has_heading: bool) -> bool:
    lines = [line for line in section.splitlines() if line.strip(" \t=-")]
    return len(lines) <= has_heading


def _by(chunks: Chunks) -> Split:
    return lambda document: ((start, start + len(chunk)) for start, chunk in chunks(document.text))


def _by_words(kind: Any, arguments: SplitArguments) -> Chunks:
    """A splitter of the library whose chunks are measured in words."""
    return _in_blocks(kind.from_callback(count_words, arguments.size, arguments.overlap).chunk_indices)


def _in_blocks(chunk_indices: Chunks) -> Chunks:
    """Split a long text in blocks that end with a paragraph, or else a line, a sentence or a word."""
    return lambda text: (
        (block.start() + start, chunk) for block in _BLOCKS.finditer(text) for start, chunk in chunk_indices(block[0])
    )


def count_words(text: str) -> int:
    """The number of words (`ground.text.words_in`)."""
    return len(words_in(text))


def load_tokenizer(name: str | None) -> "Tokenizer":
    """The tokenizer in a folder, a `tokenizer.json` or a repository of the Hugging Face Hub.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    if name is None:
        raise UserError("tokens cannot be counted without a tokenizer; add --tokenizer FOLDER")
    try:
        from huggingface_hub import hf_hub_download
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UserError(f"tokens cannot be counted without tokenizers; {INSTALL}") from error
    path = Path(name)
    try:
        if path.is_dir():
            path /= "tokenizer.json"
        elif not path.exists():
            path = Path(hf_hub_download(name, "tokenizer.json"))
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        # The library raises plain exceptions; those of the hub are many.
        reason = one_line(error)[:200]
        raise UserError(f"tokenizer: {name} cannot be loaded ({reason}); name a folder with tokenizer.json") from error
    # Both may be stored with the tokenizer, for training.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _library() -> ModuleType:
    try:
        import semantic_text_splitter
    except ImportError as error:
        raise UserError(f"documents cannot be split without semantic-text-splitter; {INSTALL}") from error
    return semantic_text_splitter


SPLITS: dict[str, Callable[[SplitArguments], Split]] = {
    "none": _whole,
    "words": _words,
    "tokens": _tokens,
    "sentences": _sentences,
    "headings": _headings,
}
"""Ways to split, by their `--split` name."""
