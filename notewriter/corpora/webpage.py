"""Pages of HTML as Markdown: headings, paragraphs, lists, code, and tables with a row a line (`| key | value |`).

Elements that are no text go (`html_elements`), and so do blocks of nothing but links above the first heading or below
the text. Pictures are not read.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from notewriter.corpora import formulas
from notewriter.corpora.characters import apart, lowered, plain, raised
from notewriter.corpora.html_elements import (
    HEADINGS,
    LINKS,
    characters_in,
    characters_in_links,
    classes_of,
    has_heading,
    only_navigates,
    pruned,
    whole_number,
)
from notewriter.corpora.html_tree import tree_of
from notewriter.corpora.source import Heading
from notewriter.ground.errors import UserError

MAX_CELLS = 1_000_000
"""Cells of a table, with those that spans repeat."""

CODE = {"pre", "listing", "xmp", "plaintext"}
LISTS = {"ul", "ol", "menu", "dir"}
BLOCKS = CODE | LISTS | set(HEADINGS) | {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "head", "header", "hgroup", "hr", "legend", "li", "main",
    "p", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr",
}  # fmt: skip
"""Elements that begin a line of their own; whatever contains one does, too."""

MARKED = {"q": '"', "del": "~~", "s": "~~", "strike": "~~"}
"""Elements whose words mean something else without the marks that a browser shows: quoted, and struck through."""

CODE_CELLS = {"code", "blob-code", "hljs-ln-code"}
"""Classes of cells with a line of code each."""

_NUMERALS = re.compile(r"(lower|upper)-?(alpha|latin|roman)")
"""Letters and Roman numerals of a list, as style sheets (and Docutils's classes) name them."""

_ROMAN = (
    *((900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)

_BETWEEN = "\ue000"
"""Stands between the items of a list in a line, which are many kinds of text."""


class Block(NamedTuple):
    """A block of a page: its Markdown, the level of a heading or 0, and whether it is a paragraph or only navigates."""

    text: str
    level: int = 0
    is_paragraph: bool = False
    navigates: bool = False


class Page(NamedTuple):
    """A page's title, its text as Markdown, and its headings with their offsets in the text."""

    title: str
    text: str
    headings: tuple[Heading, ...]


def read(name: str, content: bytes | str) -> Page:
    """A page of HTML in any declared charset. The title is the only heading of level 1, or else the page's `<title>`.

    A cell over several rows is repeated in each, so that every row can be read alone; one over several columns is
    followed by empty ones.

    Raises:
        UserError: as `tree_of`; `name` is the page's in it.
    """
    tree = tree_of(name, content)
    title = plain(_words(tree.findtext(".//title") or ""))
    main = _main(pruned(tree))
    blocks = list(_blocks(main))
    if main is tree:
        blocks = _without_navigation(blocks)
    headings, parts, start = [], [], 0
    for block in blocks:
        text = plain(block.text)
        if block.level:
            headings.append(Heading(start, block.level, text[block.level + 1 :]))
        parts.append(text)
        start += len(text) + 2
    first = [heading.title for heading in headings if heading.level == 1]
    return Page(first[0] if len(first) == 1 else title, "\n\n".join(parts), tuple(headings))


def _main(tree: Any) -> Any:
    """The element that a page names its main one, or its only article if that is most of it, with the title; or all."""
    mains = [each for each in tree.iter() if each.tag == "main" or each.get("role") == "main"]
    articles = list(tree.iter("article"))
    if len(mains) == 1 and characters_in(mains[0].text_content()):
        return mains[0]
    if len(articles) == 1 and 2 * characters_in(articles[0].text_content()) > characters_in(tree.text_content()):
        has_title = tree.find(".//h1") is None or articles[0].find(".//h1") is not None
        return articles[0] if has_title else tree
    return tree


def _without_navigation(blocks: list[Block]) -> list[Block]:
    """The blocks but for those of links above the first heading and below the text; all if there are no others."""
    first = next((place for place, block in enumerate(blocks) if block.level), 0)
    end = len(blocks)
    while end and blocks[end - 1].navigates:
        end -= 1
    if end and blocks[end - 1].level:
        # Under a heading of their own they are part of the text.
        end = len(blocks)
    kept = [block for block in blocks[:first] if not block.navigates] + blocks[first:end]
    return kept if any(not block.level for block in kept) else blocks


def _blocks(node: Any) -> Iterator[Block]:
    """The blocks of an element in order; runs of words between them are paragraphs."""
    run, linked = [node.text or ""], 0
    for child in node:
        if _is_block(child):
            yield from _paragraph(run, linked)
            run, linked = [], 0
            yield from _block(child)
            run.append(child.tail or "")
        else:
            linked += characters_in_links(child)
            _write(child, run)
            run.append(child.tail or "")
    yield from _paragraph(run, linked)


def _is_block(node: Any) -> bool:
    return node.tag in BLOCKS or _holds_blocks(node)


def _paragraph(run: Iterable[str], linked: int) -> Iterator[Block]:
    if text := _words("".join(run)):
        yield Block(text, is_paragraph=True, navigates=linked > 0 and linked >= LINKS * characters_in(text))


def _block(node: Any) -> Iterator[Block]:
    if node.tag in HEADINGS:
        if text := _inline(node):
            yield Block(f"{'#' * HEADINGS[node.tag]} {text}", HEADINGS[node.tag])
    elif node.tag in CODE:
        yield from _code(node)
    elif node.tag in LISTS and not has_heading(node):
        if text := "\n".join(_items(node)):
            yield Block(text, navigates=only_navigates(node))
    elif node.tag == "dl":
        yield from _definitions(node)
    elif node.tag == "table" and (lines := _code_lines(node)):
        yield from _fenced("\n".join(lines))
    elif node.tag == "table" and "ltx_eqn_table" in classes_of(node):
        for row in _rows(node):
            yield from _paragraph([_inline(row)], 0)
    elif node.tag == "table" and not _is_layout(node):
        yield from _table(node)
    else:
        yield from _blocks(node)


def _code(node: Any) -> Iterator[Block]:
    """Code with its lines and tabs, in a fence longer than any in it."""
    yield from _fenced("".join(_code_parts(node)))


def _code_lines(table: Any) -> list[str]:
    """The lines of code of a table that has one in each row; none of any other table."""
    cells = [cell for row in _rows(table) for cell in row.iterchildren("th", "td")]
    is_code = all(CODE_CELLS & classes_of(cell) and not _holds_blocks(cell) for cell in cells)
    return ["".join(_code_parts(cell)).strip("\r\n") for cell in cells] if is_code else []


def _holds_blocks(node: Any) -> bool:
    return any(each.tag in BLOCKS for each in node.iterdescendants())


def _fenced(code: str) -> Iterator[Block]:
    lines = code.replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    if text:
        fence = "`" * max([3, *(len(each) + 1 for each in re.findall("`+", text))])
        yield Block(f"{fence}\n{text}\n{fence}")


def _code_parts(node: Any) -> Iterator[str]:
    yield node.text or ""
    for child in node:
        if child.tag == "br":
            yield "\n"
        elif child.tag == "math":
            yield formulas.of_mathml(child)
        else:
            parts = list(_code_parts(child))
            yield from parts
            if child.tag in BLOCKS and parts and not "".join(parts).endswith("\n"):
                yield "\n"
        yield child.tail or ""


def _items(listing: Any) -> Iterator[str]:
    """The items of a list, each with its contents indented below its mark: a number, letter or Roman numeral."""
    is_reversed = listing.get("reversed") is not None
    number = whole_number(listing.get("start"), sum(item.tag == "li" for item in listing) if is_reversed else 1)
    for item in listing:
        number = whole_number(item.get("value"), number)
        mark = f"{_numeral(item, number)}." if listing.tag == "ol" else "-"
        blocks = list(_block(item) if item.tag in LISTS else _blocks(item))
        if item.tag == "li":
            number += -1 if is_reversed else 1
        own = item.find("span[@class='ltx_tag ltx_tag_item']")
        if own is not None and len(blocks) > 1 and blocks[0].text == _inline(own):
            # LaTeXML writes the mark as a text.
            written = blocks.pop(0).text
            mark = written if any(map(str.isalnum, written)) else "-"
        if blocks:
            text = blocks[0].text + "".join(("\n\n" if each.is_paragraph else "\n") + each.text for each in blocks[1:])
            indent = "" if item.tag in LISTS else " " * (len(mark) + 1)
            yield f"{mark} {_indented(text, indent)}" if indent else _indented("  " + text, "  ")
        if tail := _words(item.tail or ""):
            yield tail


def _numeral(item: Any, number: int) -> str:
    """The number of an item, in letters or as a Roman numeral where its list has those."""
    listing = item.getparent()
    form = item.get("type") or listing.get("type") or ""
    style = _NUMERALS.search(f"{listing.get('class')} {listing.get('style')}".lower())
    kind = {"i": "roman", "a": "alpha"}.get(form.lower(), style[2] if style else "")
    if not kind or not 0 < number < 1000:
        return str(number)
    is_upper = style[1] == "upper" if style else form.isupper()
    text = _roman(number) if kind == "roman" else _alphabetic(number)
    return text.upper() if is_upper else text


def _roman(number: int) -> str:
    text = ""
    for value, sign in _ROMAN:
        count, number = divmod(number, value)
        text += sign * count
    return text


def _alphabetic(number: int) -> str:
    """The letters of a number: a to z, then aa, ab and so on."""
    more, last = divmod(number - 1, 26)
    return (_alphabetic(more) if more else "") + chr(ord("a") + last)


def _indented(text: str, indent: str) -> str:
    return re.sub(r"\n(?=[^\n])", "\n" + indent, text)


def _definitions(node: Any) -> Iterator[Block]:
    """The terms of a list, each above the beginning of its definition, without which it says little."""
    terms: list[Block] = []
    children = itertools.chain.from_iterable(child if child.tag == "div" else [child] for child in node)
    for child in children:
        blocks = list(_block(child) if child.tag == "table" else _blocks(child))
        is_term = child.tag == "dt" and all(block.is_paragraph for block in blocks)
        if is_term:
            terms += blocks
            continue
        if terms and blocks and not blocks[0].level:
            joined = [*terms, blocks[0]]
            blocks[0] = Block("\n".join(each.text for each in joined), 0, True, all(each.navigates for each in joined))
            terms = []
        yield from terms
        yield from blocks
        terms = []
    yield from terms


def _rows(table: Any) -> list[Any]:
    return [row for row in table.iter("tr") if next(row.iterancestors("table")) is table]


def _is_layout(table: Any) -> bool:
    """Whether a table only places its cells, which are read one after another then."""
    rows = [list(row.iterchildren("th", "td")) for row in _rows(table)]
    cells = list(itertools.chain.from_iterable(rows))
    return (
        table.get("role") == "presentation"
        or has_heading(table)
        or max(map(len, rows), default=0) < 2
        or (not any(cell.tag == "th" for cell in cells) and next(table.iter(*CODE), None) is not None)
        or any(characters_in(cell.text_content()) > 2000 for cell in cells)
    )


def _table(table: Any) -> Iterator[Block]:
    """The caption and the rows; of a table inside a cell only the words."""
    grid: dict[tuple[int, int], str] = {}
    rows = _rows(table)
    for y, row in enumerate(rows):
        x = 0
        for cell in row.iterchildren("th", "td"):
            while (y, x) in grid:
                x += 1
            if (x + _span(cell, "colspan")) * len(rows) > MAX_CELLS:
                raise UserError(f"has a table of more than {MAX_CELLS:,} cells")
            text = _inline(cell).replace("|", "\\|")
            for below in range(min(_span(cell, "rowspan"), len(rows) - y)):
                for beside in range(_span(cell, "colspan")):
                    grid[y + below, x + beside] = "" if beside else text
    width = 1 + max((x for _, x in grid), default=-1)
    cells = ([grid.get((y, x), "") for x in range(width)] for y in range(len(rows)))
    lines = [f"| {' | '.join(line)} |" for line in cells if any(line)]
    for caption in table.iterchildren("caption"):
        yield from _blocks(caption)
    if lines:
        text = "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])
        # Longer ones, of functions or packages, are part of the text though each name is a link.
        yield Block(text, navigates=len(lines) < 4 and only_navigates(table))


def _span(cell: Any, name: str) -> int:
    # As browsers: at most 1,000 columns; 0 is for "all the rest", which few pages have.
    return min(max(whole_number(cell.get(name), 1), 1), 1000)


def _inline(node: Any) -> str:
    """The words in an element, with a space where a block ends and a semicolon after an item of a list."""
    run: list[str] = []
    _write(node, run)
    return _words("".join(run))


def _write(node: Any, run: list[str]) -> None:
    """Add the words of an element to a run of words."""
    if node.tag in {"sup", "sub"}:
        inner: list[str] = []
        _write_children(node, inner)
        text, before = _words("".join(inner)), "".join(run[-4:])[-40:]
        if node.tag == "sub":
            text = lowered(before, text)
        elif text and any((each.get("href") or "").startswith("#") for each in (*node.iter("a"), node.getparent())):
            # The mark of a note.
            text = f" [{text.strip('[]()')}]"
        else:
            text = raised(before, text)
        run.append(apart(text, node.tail or ""))
    elif node.tag == "math":
        run.append(formulas.of_mathml(node))
    elif node.tag == "img":
        # Formulas that are drawn have their source here; other pictures are not read.
        alternative = node.get("alt") or ""
        run.append(alternative if re.match(r"[$\\]", alternative) else "")
    else:
        is_apart = node.tag in BLOCKS or node.tag == "br"
        mark = MARKED.get(node.tag, " " if is_apart else "")
        run.append(mark)
        _write_children(node, run)
        run.append(_BETWEEN if node.tag == "li" else mark)


def _write_children(node: Any, run: list[str]) -> None:
    run.append(node.text or "")
    for child in node:
        _write(child, run)
        run.append(child.tail or "")


def _words(text: str) -> str:
    items = (" ".join(item.split()) for item in text.split(_BETWEEN))
    return "; ".join(filter(None, items))
