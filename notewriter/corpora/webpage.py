"""Pages of HTML as Markdown: headings, paragraphs, lists, code, and tables with a row a line (`| key | value |`).

What only navigates goes: by HTML's own elements and roles, by the names that generators of manuals and MediaWiki give
it, and where blocks of nothing but links stand above the first heading or below the text. Pictures are not read.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from notewriter.corpora import formulas
from notewriter.corpora.characters import apart, lowered, plain, raised
from notewriter.corpora.source import INSTALL, Heading
from notewriter.ground.errors import UserError

MAX_BYTES = 20_000_000
"""Largest page that is read: its tree takes about fifty times its size."""

MAX_ATTRIBUTES = 10_000
"""Attributes of one HTML tag; the parser's time grows with their square, and nothing can interrupt it."""

MAX_CELLS = 1_000_000
"""Cells of a table, with those that spans repeat."""

_ATTRIBUTE = rb"""[\s/]++[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>]*+))?+"""
_TAG = re.compile(
    rb"(?is)<(?=[a-z])(script|style)?+[^\s/>]*+(?P<attributes>(?:%b)*+)(?(1).*?(?:</(?:script|style)|\Z))" % _ATTRIBUTE
)
"""A tag, or a script with its contents, in which `a <b` is none."""

_CHARSET = re.compile(rb"""(?i)(?:charset|encoding)\s*=\s*["']?\s*([\w-]+)""")
_CHARSETS = re.compile(
    r"(?i)utf-?(8|16(le|be)?)|(us-)?ascii|(iso-?|latin-?|windows-|cp)[\d-]+|koi8-[ru]|mac(intosh)?|tis-620|shift[_-]jis"
    r"|euc-(jp|kr|tw)|iso-2022-(jp|kr)|gb(2312|k|18030)|big5(-hkscs)?"
)
"""Charsets that pages are written in. Python has others whose time grows with the square of the text."""

HEADINGS = {f"h{level}": level for level in range(1, 7)}
CODE = {"pre", "listing", "xmp", "plaintext"}
LISTS = {"ul", "ol", "menu", "dir"}
BLOCKS = CODE | LISTS | set(HEADINGS) | {
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "head", "header", "hgroup", "hr", "legend", "li", "main",
    "p", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr",
}  # fmt: skip
"""Elements that begin a line of their own; whatever contains one does, too."""

NO_TEXT = {
    "audio", "base", "canvas", "datalist", "dialog", "embed", "iframe", "input", "link", "meta", "nav",
    "noframes", "noscript", "object", "option", "rp", "rt", "script", "select", "style", "svg", "template", "textarea",
    "title", "track", "video",
}  # fmt: skip
MARKED = {"q": '"', "del": "~~", "s": "~~", "strike": "~~"}
"""Elements whose words mean something else without the marks that a browser shows: quoted, and struck through."""

ROLES = {"navigation", "banner", "contentinfo", "search", "doc-toc", "tablist", "dialog"}
NAMES = {
    # MediaWiki
    "mw-editsection", "mw-ref", "navbox", "hatnote", "sistersitebox", "side-box", "ambox", "asbox", "shortdescription",
    "noprint", "mw-jump-link", "catlinks", "printfooter", "siteSub",
    # Manuals
    "sphinxsidebar", "headerlink", "viewcode-link", "linenos", "lineno", "linenumbers", "navheader", "navfooter",
    "docnav", "toc", "quickview", "toplang", "bottomlang", "page-metadata", "hash-link", "copybtn", "footer",
    "footer-text", "page-header", "skip-link", "rustdoc-toolbar", "ttc", "wy-nav-side", "rst-versions",
    "onlyprint", "prev-next-area", "bd-header-article", "col-sidebar", "classifier-delimiter",
    # LaTeXML
    "ltx_note_mark", "ltx_tag_note", "ltx_role_footnotemark", "ltx_listing_data", "ltx_tag_listingline",
}  # fmt: skip
"""Ids and classes of elements that are no part of the text."""

FRAME = {"footer", "footer-text", "page-header"}
"""Those of `NAMES` that rows and cells of a table may have, such as the row of sums."""

TABLE_PARTS = {"thead", "tbody", "tfoot", "tr", "th", "td"}

ONLY_AS = {
    **{"reference": "sup", "sidebar": "table", "references": "ol", "reflist": "div"},
    **dict.fromkeys(("gutter", "rouge-gutter", "blob-num", "hljs-ln-numbers"), "td"),
}
"""Classes that mean no text on this element alone, such as the numbers of lines of code."""

CODE_CELLS = {"code", "blob-code", "hljs-ln-code"}
"""Classes of cells with a line of code each."""

GRIDS = {"summary-table", "details-table"}
"""Classes of Javadoc's tables, whose cells have no rows around them; the first cell of each is a `col-first`."""

SPANS = {"ltx_p": "p", "ltx_tabular": "table", "ltx_tr": "tr", "ltx_td": "td", "ltx_listingline": "div"}
"""Class of a `<span>` -> the element for which it stands in a line, as LaTeXML writes tables that are scaled."""

BOXES = {"note", "tip", "important", "warning", "caution", "ltx_theorem", "ltx_proof"}
"""Classes of boxes of DocBook and LaTeXML, whose headings do not stand above the text that follows the box."""

TABS = {"tabs", "tabbed-labels"}
"""Classes of elements with the names of panels in labels, beside the role `tablist`."""

_NAVIGATES = re.compile(
    r"(?i)(.*[-_])?(\w*nav(bar|igation|header|footer|path)?|menu|(bread)?crumbs?|side-?bar|toc|pag(er|ination))([-_].*)?"
    r"|contents|header|footer|related(-\w+)?|path|topics?|up|next|prev(ious)?|lang(uages)?|list-of-\w+"
)
"""Ids and classes of elements that are no part of the text if most of it is links."""

_NUMERALS = re.compile(r"(lower|upper)-?(alpha|latin|roman)")
"""Letters and Roman numerals of a list, as style sheets (and Docutils's classes) name them."""

_ROMAN = (
    *((900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl")),
    *((10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)

_BETWEEN = "\ue000"
"""Stands between the items of a list in a line, which are many kinds of text."""

LINKS = 0.6
"""Share of characters in links from which on an element only navigates."""


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
        UserError: as `html_tree`; `name` is the page's in it.
    """
    tree = html_tree(name, content)
    title = plain(_words(tree.findtext(".//title") or ""))
    main = _main(_pruned(tree))
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


def html_tree(name: str, content: bytes | str) -> Any:
    """A page as the tree of lxml's parser, which is bounded in its attributes and depth.

    Raises:
        UserError: the library is missing, or the page is none, in no known charset or beyond a bound.
    """
    try:
        from lxml import etree, html
    except ImportError as error:
        raise UserError(f"{name}: HTML cannot be read without lxml; {INSTALL}") from error
    text = content if isinstance(content, str) else _decoded(name, content)
    raw = text.replace("\0", "").encode(errors="replace")
    if any(_count_attributes(tag["attributes"]) > MAX_ATTRIBUTES for tag in _TAG.finditer(raw)):
        raise UserError(
            f"{name}: has a tag of more than {MAX_ATTRIBUTES:,} attributes; remove it or convert it to text"
        )
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(raw, parser)
    except etree.ParserError as error:
        raise UserError(f"{name}: is not HTML") from error
    if limits := [entry.message for entry in parser.error_log if entry.type_name == "ERR_RESOURCE_LIMIT"]:
        # The parser leaves out the rest of the page, and says so here alone.
        raise UserError(f"{name}: is nested too deeply or too large for the parser ({limits[0]}); convert it to text")
    return tree


def _decoded(name: str, content: bytes) -> str:
    """A page's text, by its byte order mark, as UTF-8, or else as browsers read what it declares."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        declared = _CHARSET.search(content[:4096])
    # Only scripts of the Latin alphabet have letters beyond ASCII that stand alone.
    default = "" if re.search(rb"[\x80-\xff]{3}", content) else "latin-1"
    charset = declared[1].decode().lower() if declared else default
    if charset in {"iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii"}:
        charset = "cp1252"
    try:
        if not _CHARSETS.fullmatch(charset):
            raise LookupError
        return content.decode(charset, "replace")
    except LookupError as error:
        found = f"declares the charset {charset!r}, which is not known" if declared else "declares no charset"
        raise UserError(f"{name}: is not UTF-8 and {found}; convert it") from error


def _count_attributes(text: bytes) -> int:
    """The number of attributes in a tag; 0 for one too short to have many."""
    return sum(1 for _ in re.finditer(_ATTRIBUTE, text)) if len(text) > MAX_ATTRIBUTES else 0


def _pruned(tree: Any) -> Any:
    """A page without elements that are no text. Without a `<body>` the parser leaves the text in the head."""
    for bar in [each for each in tree.iter() if each.get("role") == "tablist" or TABS & _classes(each)]:
        _name_panels(bar)
    for node in list(tree.iterdescendants()):
        if _is_text(node):
            _rewrite(node)
        else:
            node.drop_tree()
    return tree


def _classes(node: Any) -> set[str]:
    return {*(node.get("class") or "").split()}


def _name_panels(bar: Any) -> None:
    """Put the name of each tab of a bar above its panel, where as many follow the bar or are in what follows it."""
    tabs = [each for each in bar.iterdescendants() if each.get("role") == "tab" or each.tag == "label"]
    following = list(bar.itersiblings())
    panels = next((each for each in (following, [*following[0]] if following else []) if len(each) == len(tabs)), [])
    for tab, panel in zip(tabs, panels, strict=False):
        name = panel.makeelement("p")
        name.text, name.tail, panel.text = tab.text_content(), panel.text, None
        panel.insert(0, name)
    if panels:
        bar.drop_tree()


def _rewrite(node: Any) -> None:
    """Make an element that is a heading, code or a table by its style alone one by its tag."""
    names = _classes(node)
    if node.get("role") == "heading" and node.tag not in HEADINGS:
        node.tag = f"h{min(max(_whole(node.get('aria-level'), 2), 1), 6)}"
    elif node.tag in {"h3", "h6"} and node.getparent().tag == "div" and BOXES & _classes(node.getparent()):
        node.tag = "p"
    elif node.tag == "span" and (part := next(filter(None, map(SPANS.get, names)), None)):
        node.tag = part
        for name, number in re.findall(r"ltx_(colspan|rowspan)_(\d+)", node.get("class")):
            node.set(name, number)
    elif "ltx_note" in names:
        _set_apart(node)
    elif "ltx_listing" in names:
        node.tag = "pre"
        for line in node.iterdescendants("div", "span"):
            if "ltx_listingline" in _classes(line):
                line.text, line.tail = (line.text or "").lstrip("\n"), None
    elif "classifier" in names:
        # Sphinx's types of a term.
        node.text = f" : {node.text or ''}"
    elif "tsd-tag" in names:
        # TypeDoc's `Optional`.
        node.tail = f" {node.tail or ''}"
    elif "SCodeFlow" in names or ("fragment" in names and node.find(".//div[@class='line']") is not None):
        # Racket's and Doxygen's code.
        node.tag = "pre"
        for line in node.iterdescendants("div", "tr"):
            line.tail = None
    elif GRIDS & names:
        node.tag = "table"
        rows: list[Any] = []
        for cell in list(node):
            if not rows or "col-first" in _classes(cell):
                rows.append(node.makeelement("tr"))
            cell.tag = "th" if "table-header" in _classes(cell) else "td"
            rows[-1].append(cell)
        node.extend(rows)


def _set_apart(note: Any) -> None:
    """Put a footnote of LaTeXML, which stands in its sentence, in brackets, and one of a heading below that."""
    heading = next((each for each in note.iterancestors(*HEADINGS) if each.getparent() is not None), None)
    if heading is None:
        note.text, note.tail = f" [{note.text or ''}", f"]{note.tail or ''}"
    else:
        note.drop_tree()
        note.tag, note.tail = "p", None
        heading.addnext(note)


def _is_text(node: Any) -> bool:
    if not isinstance(node.tag, str):
        return False
    role, style = node.get("role") or "", (node.get("style") or "").replace(" ", "").lower()
    if "button" in (node.tag, role):
        # Headings that unfold a text, as of answers to questions, are buttons; others have one beside their words.
        heading = next(node.iterancestors(*HEADINGS), None)
        return heading is not None and _length(heading.text_content()) == _length(node.text_content()) > 0
    if node.tag in NO_TEXT:
        # MathJax reads formulas in scripts, and LaTeXML draws frames around paragraphs.
        is_frame = node.tag == "svg" and any("ltx_minipage" in _classes(each) for each in node.iter("span", "div"))
        return is_frame or (node.tag == "script" and (node.get("type") or "").startswith("math/tex"))
    is_folded = node.get("hidden") not in (None, "until-found")
    is_hidden = is_folded or node.get("aria-hidden") == "true" or "display:none" in style
    if is_hidden and role != "tabpanel" and node.find(".//math") is None:
        return False
    names = [*(node.get("class") or "").split(), _own_id(node)]
    dropped = NAMES.intersection(names)
    if node.tag in TABLE_PARTS:
        dropped -= FRAME
    if "page-header" in dropped and _has_heading(node):
        # Bootstrap's wrapper of titles.
        dropped.remove("page-header")
    if role in ROLES or dropped or any(ONLY_AS.get(each) == node.tag for each in names):
        return node.tag in {"main", "body", "html"}
    if node.tag in {"header", "footer"} and not _is_inside(node, "article", "main", "section", "blockquote"):
        return node.tag == "header" and node.find(".//h1") is not None
    if node.tag == "a" and (node.get("href") or "").startswith("#"):
        # The mark beside a heading that links to itself.
        return len(node) > 0 or any(map(str.isalnum, node.text_content()))
    is_aside = node.tag == "aside" or any(map(_NAVIGATES.fullmatch, names))
    if not is_aside or node.tag in {"a", "body", "html", *HEADINGS} or not _navigates(node):
        return True
    # Themes name what is beside their menu after it.
    return any(each.tag in {"h1", "main"} or each.get("role") == "main" for each in node.iterdescendants())


def _own_id(node: Any) -> str:
    """An element's id; empty where generators make it of words, as they do for headings and their sections."""
    identifier = node.get("id") or ""
    heading = next(node.iter(*HEADINGS), None) if identifier else None
    if heading is None:
        return identifier
    return "" if heading is node or _letters(heading.text_content()) == _letters(identifier) else identifier


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text.lower()))


def _is_inside(node: Any, *tags: str) -> bool:
    return next(node.iterancestors(*tags), None) is not None


def _navigates(node: Any) -> bool:
    length = _length(node.text_content())
    return length > 0 and _linked(node) >= LINKS * length


def _linked(node: Any) -> int:
    """The characters of an element that are in links."""
    return sum(_length(link.text_content()) for link in node.iter("a") if link.get("href"))


def _length(text: str) -> int:
    return len("".join(text.split()))


def _main(tree: Any) -> Any:
    """The element that a page names its main one, or its only article if that is most of it, with the title; or all."""
    mains = [each for each in tree.iter() if each.tag == "main" or each.get("role") == "main"]
    articles = list(tree.iter("article"))
    if len(mains) == 1 and _length(mains[0].text_content()):
        return mains[0]
    if len(articles) == 1 and 2 * _length(articles[0].text_content()) > _length(tree.text_content()):
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
            linked += _linked(child)
            _write(child, run)
            run.append(child.tail or "")
    yield from _paragraph(run, linked)


def _is_block(node: Any) -> bool:
    return node.tag in BLOCKS or _holds_blocks(node)


def _paragraph(run: Iterable[str], linked: int) -> Iterator[Block]:
    if text := _words("".join(run)):
        yield Block(text, is_paragraph=True, navigates=linked > 0 and linked >= LINKS * _length(text))


def _block(node: Any) -> Iterator[Block]:
    if node.tag in HEADINGS:
        if text := _inline(node):
            yield Block(f"{'#' * HEADINGS[node.tag]} {text}", HEADINGS[node.tag])
    elif node.tag in CODE:
        yield from _code(node)
    elif node.tag in LISTS and not _has_heading(node):
        if text := "\n".join(_items(node)):
            yield Block(text, navigates=_navigates(node))
    elif node.tag == "dl":
        yield from _definitions(node)
    elif node.tag == "table" and (lines := _code_lines(node)):
        yield from _fenced("\n".join(lines))
    elif node.tag == "table" and "ltx_eqn_table" in _classes(node):
        for row in _rows(node):
            yield from _paragraph([_inline(row)], 0)
    elif node.tag == "table" and not _is_layout(node):
        yield from _table(node)
    else:
        yield from _blocks(node)


def _has_heading(node: Any) -> bool:
    return next(node.iter(*HEADINGS), None) is not None


def _code(node: Any) -> Iterator[Block]:
    """Code with its lines and tabs, in a fence longer than any in it."""
    yield from _fenced("".join(_code_parts(node)))


def _code_lines(table: Any) -> list[str]:
    """The lines of code of a table that has one in each row; none of any other table."""
    cells = [cell for row in _rows(table) for cell in row.iterchildren("th", "td")]
    is_code = all(CODE_CELLS & {*(cell.get("class") or "").split()} and not _holds_blocks(cell) for cell in cells)
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
    number = _whole(listing.get("start"), sum(item.tag == "li" for item in listing) if is_reversed else 1)
    for item in listing:
        number = _whole(item.get("value"), number)
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


def _whole(value: str | None, default: int) -> int:
    return int(value) if value and re.fullmatch(r"-?[0-9]{1,9}", value) else default


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
        or _has_heading(table)
        or max(map(len, rows), default=0) < 2
        or (not any(cell.tag == "th" for cell in cells) and next(table.iter(*CODE), None) is not None)
        or any(_length(cell.text_content()) > 2000 for cell in cells)
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
        yield Block(text, navigates=len(lines) < 4 and _navigates(table))


def _span(cell: Any, name: str) -> int:
    # As browsers: at most 1,000 columns; 0 is for "all the rest", which few pages have.
    return min(max(_whole(cell.get(name), 1), 1), 1000)


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
