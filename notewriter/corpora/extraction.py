"""Text out of files: Markdown and plain text as they are, HTML and Word as Markdown, PDF page by page (PDFium)."""

import ctypes
import itertools
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from notewriter.corpora import html_tree, webpage, word
from notewriter.corpora.characters import plain
from notewriter.corpora.child import in_child
from notewriter.corpora.source import INSTALL, Document, Heading, Origin
from notewriter.corpora.splitting import headings
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.yaml_files import load_yaml

MAX_BYTES = 50_000_000
"""Largest text that is read; parsers need a multiple of it as memory."""

BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}

NO_TITLES = {"", "untitled"}
"""Titles of a PDF that its writer did not give: none, and the default of a library."""


def extract(name: str, path: Path) -> Document:
    """The document in a file.

    Raises:
        UserError: it is empty, too large, damaged, encrypted, not UTF-8, contains no text, takes too long, or makes its
            parser crash.
    """
    try:
        if not path.stat().st_size:
            raise UserError(f"{name}: is empty")
        # The child's working directory is the one at its start.
        document = in_child(name, EXTRACTORS[path.suffix.lower()], name, path.absolute())
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
    first = [heading.title for heading in headings(text) if heading.level == 1]
    return Document(
        name, matter or (first[0] if len(first) == 1 else path.stem), text, Origin(file=name), is_markdown=True
    )


_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?=\S)(.*?\n)(?:\1|(?<!\+)\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
"""Fields before a Markdown text, in YAML or (Hugo's) in TOML; what stands between two rules is none."""


def _front_matter(text: str) -> tuple[str, str]:
    """The title in a front matter, if there is one, and the text below it."""
    if not (found := _MATTER.match(text)):
        return "", text
    try:
        matter = load_yaml(found[2]) if found[1] == "---" else tomllib.loads(found[2])
    except (yaml.YAMLError, tomllib.TOMLDecodeError):
        return "", text
    if not isinstance(matter, dict):
        return "", text
    title = matter.get("title")
    title = "" if isinstance(title, list | dict) else str(title or "")
    return " ".join(title.split()), text[found.end() :]


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
    page = webpage.read(name, _bytes(name, path, html_tree.MAX_BYTES))
    return Document(
        name, page.title or path.stem, page.text, Origin(file=name), is_markdown=True, headings=page.headings
    )


def _docx(name: str, path: Path) -> Document:
    """A Word file by way of HTML."""
    page = webpage.read(name, f"<html><body>{word.read(name, path)}</body></html>")
    return Document(
        name, page.title or path.stem, page.text, Origin(file=name), is_markdown=True, headings=page.headings
    )


def _pdf(name: str, path: Path) -> Document:
    try:
        import pypdfium2
    except ImportError as error:
        raise UserError(f"{name}: PDF cannot be read without pypdfium2; {INSTALL}") from error
    try:
        with pypdfium2.PdfDocument(path) as pdf:
            # Without this, which does nothing for a PDF without a form, the values of fields are not on the pages.
            pdf.init_forms()
            texts, size = [], 0
            for number in range(len(pdf)):
                if pdf.formenv:
                    # A page that is open already does not change.
                    pdf[number].flatten()
                texts.append(_page_text(pdf[number]))
                size += len(texts[-1])
                if size > MAX_BYTES:
                    raise UserError(f"{name}: contains more than {MAX_BYTES // 1_000_000} MB of text; split it")
            bookmarks = [(each.level, _title(each.get_title), each.get_dest()) for each in pdf.get_toc()]
            marks = [(level, title, to.get_index()) for level, title, to in bookmarks if title and to]
            title = _title(lambda: pdf.get_metadata_value("Title"))
    except pypdfium2.PdfiumError as error:
        if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise UserError(f"{name}: is encrypted; remove the password") from error
        raise UserError(f"{name}: is a damaged PDF ({one_line(error)})") from error
    if not any(texts):
        raise UserError(f"{name}: contains no text; if it is a scan, run OCR on it first")
    pages = [page + "\n\n" for page in _whole_words(_without_running_lines(texts))]
    starts = tuple(itertools.accumulate((len(page) for page in pages[:-1]), initial=0))
    text, found = "".join(pages), tuple(_bookmarked(pages, starts, marks))
    title = " ".join(title.split())
    if title.lower() in NO_TITLES:
        title = path.stem
    return Document(name, title, text, Origin(file=name), page_starts=starts, headings=found)


def _title(title: Callable[[], str]) -> str:
    """The title of a PDF or a bookmark; empty if its bytes are no text, which costs nothing but the title."""
    try:
        return plain(title())
    except UnicodeDecodeError:
        return ""


def _page_text(page: Any) -> str:
    """The text of a page of a PDF; `DIVIDED` is in it where the library found a word to be divided."""
    text = _with_powers(page.get_textpage()).replace("\r\n", "\n").replace("\r", "\n")
    return plain(re.sub(r"[\x00-\x08\x0b-\x1f\uffff]", "", text)).strip()


SMALLER, HIGHER = 0.9, 0.2
"""The largest size and the least height of a raised digit, as shares of the size of the character before it."""


def _with_powers(textpage: Any) -> str:
    """A page's text with `^` before digits that are raised, so that 10 to the 6th is not 106."""
    from pypdfium2 import raw

    def size_and_height(place: int) -> tuple[float, float]:
        raw.FPDFText_GetCharOrigin(textpage, place, x, y)
        return raw.FPDFText_GetFontSize(textpage, place), y.value

    text, x, y = textpage.get_text_range(), ctypes.c_double(), ctypes.c_double()
    if len(text) != (count := textpage.count_chars()):
        # Each place on the page has a character here: half of one beyond 16 bits, or none.
        text = "".join(chr(raw.FPDFText_GetUnicode(textpage, place)) for place in range(count))
    parts, done = [], 0
    for match in _AFTER_WORD.finditer(text):
        start, end = match.span()
        size, height = size_and_height(start - 1)
        places = [size_and_height(place) for place in range(start, end)]
        is_raised = [own <= SMALLER * size and above - height >= HIGHER * size for own, above in places]
        if not is_raised[-1] or start < done:
            continue
        begin = start + is_raised.index(True)
        parts.append(f"{text[done:begin]}^{text[begin:end]}")
        done = end
        if text[end : end + 2] == "\r\n" and end + 2 < len(text):
            beside, level = size_and_height(end + 2)
            if abs(level - height) < HIGHER * beside:
                # The library ends a line where the height changes.
                parts.append(" " if text[end + 2].isalnum() else "")
                done = end + 2
    return "".join([*parts, text[done:]]).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_AFTER_WORD = re.compile(r"(?<=[^\W_])[-+\u2212]?\d+")

DIVIDED = "\ufffe"
"""PDFium's character for a hyphen at the end of a line that it takes for one of a divided word."""


def _without_running_lines(pages: list[str]) -> list[str]:
    """Pages without the lines that recur among the first or last two of three pages or more.

    Numbers are words like any other, but for one of a line that runs with the pages.
    """
    split = [page.split("\n") for page in pages]
    above = Counter(form for page, lines in enumerate(split) for form in _forms(lines[:2], page))
    below = Counter(form for page, lines in enumerate(split) for form in _forms(lines[-2:], page))
    kept = []
    for page, lines in enumerate(split):
        for place, counts in ((0, above), (-1, below)):
            for _ in range(2):
                if lines and any(counts[form] >= 3 for form in _forms([lines[place]], page)):
                    del lines[place]
                else:
                    break
        kept.append("\n".join(lines).strip())
    return kept if any(kept) else pages


_NUMBER = re.compile(r"(?<!\d)\d{1,9}(?!\d)|\b[ivxlc]{1,15}\b")
"""A number that may be a page's; one of more digits is none, and Python refuses to read very long ones."""

LONGEST = 300
"""Characters of a line up to which a number in it may be the page's."""


def _forms(lines: Iterable[str], page: int) -> set[str]:
    """Lines as they are, and with a number in its distance from the page, which is the same for all page numbers."""
    forms = set()
    for line in map(str.strip, lines):
        forms.add(line)
        # The forms of a line take a square of its length, and no long one runs.
        for number in _NUMBER.finditer(line) if len(line) <= LONGEST else ():
            forms.add(f"{line[: number.start()]}\0{_value(number[0]) - page}{line[number.end() :]}")
    return forms


def _value(number: str) -> int:
    """The value of a number in digits or in Roman letters."""
    if number.isdecimal():
        return int(number)
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in number]
    return sum(-one if one < after else one for one, after in itertools.pairwise([*values, 0]))


def _whole_words(pages: list[str]) -> list[str]:
    """Pages without the hyphens of words that are divided at the ends of lines.

    A compound keeps its own hyphen where the document has it with one within a line.
    """
    compounds = {each.lower() for page in pages for each in re.findall(r"\w+-\w+", page)}

    def join(match: re.Match[str]) -> str:
        hyphenated = f"{match[1]}-{match[2]}"
        is_compound = hyphenated.lower() in compounds or not (match[1] + match[2]).isalpha()
        return hyphenated if is_compound else match[1] + match[2]

    divided = re.compile(rf"(\w+)(?:{DIVIDED}\n?|-\n(?=[^\W\d_A-Z]))(\w+)")
    return [divided.sub(join, page).replace(DIVIDED, "-") for page in pages]


def _bookmarked(
    pages: Sequence[str], starts: Sequence[int], marks: Iterable[tuple[int, str, int | None]]
) -> Iterator[Heading]:
    """The bookmarks of a PDF as headings, each at the line of its page that has its words, or else at the page."""
    last = 0
    for level, title, number in marks:
        words = re.findall(r"\w+", title)
        if number is None or not 0 <= number < len(pages) or not words:
            continue
        # Before the words the page may have the number of the section.
        line = re.compile(r"(?im)^(?:\w+ )?[\w.]*\W*" + r"\W+".join(map(re.escape, words)) + r"\W*$")
        after = max(0, last - starts[number])
        match = line.search(pages[number], after)
        last = max(last, starts[number] + (match.start() if match else 0))
        yield Heading(last, level + 1, " ".join(title.split()))


EXTRACTORS: dict[str, Callable[[str, Path], Document]] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _text,
    ".html": _html,
    ".htm": _html,
    ".pdf": _pdf,
    ".docx": _docx,
}
"""The reader of a file, by its ending."""
