"""Pages of Wikipedia in HTML, as Markdown with their tables and infoboxes.

They come from the HTML dumps of Wikimedia Enterprise (`*-ENTERPRISE-HTML.json.tar.gz`, one page a line with
`identifier`, `name`, `url` and `article_body.html`) or from MediaWiki's REST API (`page/{title}/with_html`, an object
with `id`, `title` and `html`). Links are kept as words; marks and lists of references, and what only navigates, go.
"""

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from notewriter.corpora import reading
from notewriter.corpora.child import in_child
from notewriter.corpora.extraction import MAX_HTML_BYTES, html_tree
from notewriter.corpora.source import Document, Record, Source
from notewriter.datasets.reading import get
from notewriter.ground.errors import UserError

MAX_CELLS = 1_000_000
"""Cells of a table, with those that spans repeat."""

NO_TEXT = {"style", "script", "noscript", "link", "meta", "img", "audio", "video"}
NO_CONTENT = {
    "mw-editsection",
    "mw-ref",
    "reference",
    "references",
    "reflist",
    "navbox",
    "hatnote",
    "sidebar",
    "sistersitebox",
    "shortdescription",
    "metadata",
    "noprint",
    "toc",
}
"""Classes of what is no part of the text."""

ENDS_WORD = {"br", "p", "div", "td", "th", "tr", "dt", "dd", "caption", "table", "ul", "ol"}


def markdown(name: str, html: str) -> str:
    """A page's text as Markdown: headings, paragraphs, lists, and tables with a row a line (`| key | value |`).

    A cell over several rows is repeated in each, so that every row can be read alone; one over several columns is
    followed by empty ones.

    Raises:
        UserError: as `html_tree`; `name` is the page's in it.
    """
    body = html_tree(name, f"<html>{html}").find("body")
    if body is None:
        raise UserError(f"{name}: is not HTML")
    return "\n\n".join(filter(None, _blocks(body)))


def _is_content(node: Any) -> bool:
    if not isinstance(node.tag, str) or node.tag in NO_TEXT:
        return False
    classes, style = (node.get("class") or "").split(), (node.get("style") or "").replace(" ", "")
    return NO_CONTENT.isdisjoint(classes) and "display:none" not in style


def _blocks(node: Any) -> Iterator[str]:
    """The blocks of an element in order; runs of words between them are paragraphs."""
    words = node.text or ""
    for child in node:
        if _is_content(child):
            if blocks := list(_block(child)):
                yield from filter(None, [_words(words), *blocks])
                words = ""
            else:
                words += _spaced(child)
        words += child.tail or ""
    yield from filter(None, [_words(words)])


def _block(node: Any) -> Iterator[str]:
    """The blocks of an element that is one or contains some; none for one that belongs to its paragraph."""
    if re.fullmatch("h[1-6]", node.tag):
        yield f"{'#' * int(node.tag[1])} {_words(_inline(node))}"
    elif node.tag in {"p", "dt", "dd", "figcaption"}:
        yield _words(_inline(node))
    elif node.tag == "pre":
        yield f"```\n{node.text_content().strip()}\n```"
    elif node.tag in {"ul", "ol"}:
        yield "\n".join(_items(node))
    elif node.tag == "table":
        yield _table(node)
    elif node.tag in {"div", "section", "blockquote", "dl", "figure", "center", "main", "article", "details"}:
        yield from _blocks(node)


def _items(listing: Any, depth: int = 0) -> Iterator[str]:
    for number, item in enumerate(filter(_is_content, listing.iterchildren("li")), start=1):
        below = [child for child in item if child.tag in {"ul", "ol"} and _is_content(child)]
        text = _words(_inline(item, without=below))
        mark = "-" if listing.tag == "ul" else f"{number}."
        yield f"{'  ' * depth}{mark} {text}".rstrip()
        for each in below:
            yield from _items(each, depth + 1)


def _table(table: Any) -> str:
    """The caption and the rows; of a table inside a cell only the words."""
    grid: dict[tuple[int, int], str] = {}
    rows = [row for row in table.iter("tr") if next(row.iterancestors("table")) is table and _is_content(row)]
    for y, row in enumerate(rows):
        x = 0
        for cell in filter(_is_content, row.iterchildren("th", "td")):
            while (y, x) in grid:
                x += 1
            if (x + _span(cell, "colspan")) * len(rows) > MAX_CELLS:
                raise UserError(f"has a table of more than {MAX_CELLS:,} cells")
            text = _words(_inline(cell)).replace("|", "\\|")
            for below in range(min(_span(cell, "rowspan"), len(rows) - y)):
                for beside in range(_span(cell, "colspan")):
                    grid[y + below, x + beside] = "" if beside else text
    width = 1 + max((x for _, x in grid), default=-1)
    cells = ([grid.get((y, x), "") for x in range(width)] for y in range(len(rows)))
    lines = [f"| {' | '.join(line)} |" for line in cells if any(line)]
    if not lines:
        return ""
    caption = [_words(_inline(each)) + "\n" for each in table.iterchildren("caption") if _is_content(each)]
    return "\n".join([*caption, lines[0], "|" + " --- |" * width, *lines[1:]])


def _span(cell: Any, name: str) -> int:
    value = cell.get(name) or ""
    # As browsers: at most 1,000 columns; 0 is for "all the rest", which few pages have.
    return min(max(int(value), 1), 1000) if value.isascii() and value.isdigit() else 1


def _inline(node: Any, without: Sequence[Any] = ()) -> str:
    """The words in an element, with a space where a block ends and a semicolon after an item of a list."""
    parts = [node.text or ""]
    for child in node:
        if _is_content(child) and child not in without:
            parts.append(_spaced(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _spaced(node: Any) -> str:
    words = _inline(node)
    return f"{words}; " if node.tag == "li" else f" {words} " if node.tag in ENDS_WORD else words


def _words(text: str) -> str:
    return re.sub(r"(?: ?;)+", ";", " ".join(text.split())).rstrip(";")


def _records(name: str, path: Path) -> Iterator[Record]:
    if not path.name.endswith(".tar.gz"):
        yield from reading.lines(name, path)
        return
    try:
        # tarfile's own decompression takes a truncated file for a complete one.
        with gzip.open(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member)
                for number, line in enumerate(content or (), start=1):
                    yield f"{name}: {member.name}:{number}", line.decode("utf-8", "surrogateescape")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise UserError(f"{name}: is truncated or damaged ({error}); download it again") from error


def _parse(place: str, line: str) -> list[Document]:
    page = reading.json_object(place, line)
    if "article_body" in page:
        id, title = reading.identifier(page, "identifier", place), get(page, "name", str, place)
        html = get(get(page, "article_body", dict, place), "html", str, place)
    else:
        id, title = reading.identifier(page, "id", place), get(page, "title", str, place)
        html = get(page, "html", str, place)
    if len(html) > MAX_HTML_BYTES:
        raise UserError(f"{place}: is larger than {MAX_HTML_BYTES // 1_000_000} MB")
    return [Document(id, title, in_child(place, markdown, place, html), reading.origin(page), is_markdown=True)]


SOURCE = Source(
    title="pages of Wikipedia in HTML",
    files="enwiki-NS0-*-ENTERPRISE-HTML.json.tar.gz, from dumps.wikimedia.org/other/enterprise_html, or JSON Lines of "
    "MediaWiki's REST API (page/{title}/with_html)",
    inputs=lambda paths: reading.expand(paths, "*.tar.gz", "*.ndjson*", "*.jsonl*"),
    records=_records,
    parse=_parse,
    split="headings",
    has_repeats=True,
)
