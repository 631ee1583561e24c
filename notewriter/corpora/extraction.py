"""Text out of files: Markdown and plain text as they are, HTML as Markdown (trafilatura), PDF page by page (pypdf)."""

import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import yaml

from notewriter.corpora import webpage
from notewriter.corpora.characters import plain
from notewriter.corpora.child import in_child
from notewriter.corpora.source import INSTALL, Document, Origin
from notewriter.corpora.splitting import headings
from notewriter.ground.config import load_yaml
from notewriter.ground.errors import UserError, one_line

MAX_BYTES = 50_000_000
"""Largest text that is read; parsers need a multiple of it as memory."""

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
    return plain(text.replace("\r\n", "\n").replace("\r", "\n"))


def _bytes(name: str, path: Path, limit: int = MAX_BYTES) -> bytes:
    # The file may grow after its size was asked for.
    with open(path, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{name}: is larger than {limit // 1_000_000} MB; split it into several files")
    return content


def _html(name: str, path: Path) -> Document:
    page = webpage.read(name, _bytes(name, path, webpage.MAX_BYTES))
    return Document(
        name, page.title or path.stem, page.text, Origin(file=name), is_markdown=True, headings=page.headings
    )


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
