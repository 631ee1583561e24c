"""A page of HTML as a tree: in any charset that pages declare, and within bounds that its reading takes."""

import codecs
import re
from typing import Any

from notewriter.corpora.source import INSTALL
from notewriter.ground.errors import UserError

MAX_BYTES = 20_000_000
"""Largest page that is read: its tree takes about fifty times its size."""

MAX_ATTRIBUTES = 10_000
"""Attributes of one HTML tag; the parser's time grows with their square, and nothing can interrupt it."""

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


def tree_of(name: str, content: bytes | str) -> Any:
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
