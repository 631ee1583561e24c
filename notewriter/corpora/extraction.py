"""Text out of files: Markdown and plain text as they are, HTML as Markdown (trafilatura), PDF page by page (pypdf)."""

import itertools
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from notewriter.corpora.child import in_child
from notewriter.corpora.source import INSTALL, Document, Origin
from notewriter.corpora.splitting import headings
from notewriter.ground.config import load_yaml
from notewriter.ground.errors import UserError, one_line

MAX_BYTES = 50_000_000
"""Largest text that is read; parsers need a multiple of it as memory."""

MAX_HTML_BYTES = 20_000_000
"""The same of HTML, whose tree takes about fifty times its size."""

MAX_ATTRIBUTES = 10_000
"""Attributes of one HTML tag; the parser's time grows with their square, and nothing can interrupt it."""

_ATTRIBUTE = rb"""[\s/]++[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>]*+))?+"""
_TAG = re.compile(
    rb"(?is)<(?=[a-z])(script|style)?+[^\s/>]*+(?P<attributes>(?:%b)*+)(?(1).*?(?:</(?:script|style)|\Z))" % _ATTRIBUTE
)
"""A tag, with what is in a script, where `a <b` is none."""

BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


def extract(name: str, path: Path) -> Document:
    """The document in a file.

    Raises:
        UserError: it is empty, too large, damaged, encrypted, not UTF-8, contains no text, takes too long, or makes its
            parser crash.
    """
    try:
        if not path.stat().st_size:
            raise UserError(f"{name}: is empty")
        document = in_child(name, EXTRACTORS[path.suffix.lower()], name, path)
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error})") from error
    except (RecursionError, MemoryError) as error:
        raise UserError(f"{name}: is damaged or nested too deeply ({type(error).__name__})") from error
    if not document.text.strip():
        raise UserError(f"{name}: contains no text")
    return document


def _text(name: str, path: Path) -> Document:
    return Document(name, path.stem, _decoded(name, path), Origin(file=name))


def _markdown(name: str, path: Path) -> Document:
    matter, text = _front_matter(_decoded(name, path))
    first = next((heading.title for heading in headings(text) if heading.level == 1), "")
    return Document(name, matter or first or path.stem, text, Origin(file=name), is_markdown=True)


def _front_matter(text: str) -> tuple[str, str]:
    """The title in a YAML front matter, if there is one, and the text below it."""
    if not text.startswith("---\n") or (end := text.find("\n---\n", 3)) < 0:
        return "", text
    try:
        matter = load_yaml(text[4:end])
    except yaml.YAMLError:
        return "", text
    title = matter.get("title") if isinstance(matter, dict) else None
    title = "" if isinstance(title, list | dict) else str(title or "")
    return " ".join(title.split()), text[end + 5 :]


def _decoded(name: str, path: Path) -> str:
    content = _bytes(name, path)
    encoding = next((each for mark, each in BYTE_ORDER_MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: is not UTF-8 ({error.reason} at byte {error.start}); convert it") from error
    if "\0" in text:
        raise UserError(f"{name}: is not text, it contains NUL characters")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bytes(name: str, path: Path, limit: int = MAX_BYTES) -> bytes:
    # The file may grow after its size was asked for.
    with open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{name}: is larger than {limit // 1_000_000} MB; split it into several files")
    return content


def _html(name: str, path: Path) -> Document:
    tree = html_tree(name, _bytes(name, path, MAX_HTML_BYTES))
    import trafilatura

    metadata = trafilatura.extract_metadata(tree)
    text = trafilatura.extract(
        tree, output_format="markdown", include_formatting=True, include_comments=False, favor_recall=True
    )
    title = " ".join((metadata.title or "").split()) if metadata else ""
    return Document(name, title or path.stem, text or "", Origin(file=name), is_markdown=True)


def html_tree(name: str, content: bytes | str) -> Any:
    """A page as the tree of lxml's parser, which is bounded in its attributes and depth; bytes have any encoding.

    Raises:
        UserError: the library is missing, or the page is none or beyond a bound.
    """
    try:
        import trafilatura
        from trafilatura.utils import HTML_PARSER
    except ImportError as error:
        raise UserError(f"{name}: HTML cannot be read without trafilatura; {INSTALL}") from error
    # It logs what it does not find, which is an error here.
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    raw = content if isinstance(content, bytes) else content.encode(errors="replace")
    if any(_count_attributes(tag["attributes"]) > MAX_ATTRIBUTES for tag in _TAG.finditer(raw)):
        raise UserError(
            f"{name}: has a tag of more than {MAX_ATTRIBUTES:,} attributes; remove it or convert it to text"
        )
    if raw.lstrip().startswith(b"<") and b"<html" not in raw[:10_000].lower():
        # The library takes a page without this for something else.
        content = b"<html>" + content if isinstance(content, bytes) else f"<html>{content}"
    tree = trafilatura.load_html(content)
    if tree is None:
        raise UserError(f"{name}: is not HTML")
    if limits := [entry.message for entry in HTML_PARSER.error_log if entry.type_name == "ERR_RESOURCE_LIMIT"]:
        # The parser leaves out the rest of the page, and says so here alone.
        raise UserError(f"{name}: is nested too deeply or too large for the parser ({limits[0]}); convert it to text")
    return tree


def _count_attributes(text: bytes) -> int:
    """The number of attributes in a tag; 0 for one too short to have many."""
    return sum(1 for _ in re.finditer(_ATTRIBUTE, text)) if len(text) > MAX_ATTRIBUTES else 0


def _pdf(name: str, path: Path) -> Document:
    try:
        import pypdf
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise UserError(f"{name}: PDF cannot be read without pypdf; {INSTALL}") from error
    # It logs every oddity of a file that it can read all the same.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise UserError(f"{name}: is encrypted; remove the password")
        pages = []
        for page in reader.pages:
            pages.append((page.extract_text() or "").strip() + "\n\n")
            if sum(map(len, pages)) > MAX_BYTES:
                raise UserError(f"{name}: contains more than {MAX_BYTES // 1_000_000} MB of text; split it")
        title = reader.metadata.title if reader.metadata else None
    except (UserError, OSError):
        raise
    except (PyPdfError, Exception) as error:
        # On damaged files it also fails with KeyError, TypeError, AttributeError and others.
        raise UserError(f"{name}: is a damaged PDF ({type(error).__name__}: {one_line(error)})") from error
    if not any(page.strip() for page in pages):
        raise UserError(f"{name}: contains no text; if it is a scan, run OCR on it first")
    starts = tuple(itertools.accumulate((len(page) for page in pages[:-1]), initial=0))
    title = " ".join(str(title or "").split())
    return Document(name, title or path.stem, "".join(pages), Origin(file=name), page_starts=starts)


EXTRACTORS: dict[str, Callable[[str, Path], Document]] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _text,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
}
"""How files are read, by their ending."""
