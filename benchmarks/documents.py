"""How much of real manuals `notewriter corpus` keeps: headings, words, rows of tables and lines of code of each page.

    python benchmarks/documents.py --folder /tmp/manuals
    python benchmarks/documents.py --folder /tmp/manuals --reader trafilatura

Downloads Debian's documentation packages into the folder (`apt-get download`) and unpacks them there. Pages are spread
evenly over each manual. What a page has is counted in its tree by another way than the reader's: everything in `<body>`
but what the generator is known to write for navigation. The last line is a JSON object.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from lxml import etree, html

from notewriter.corpora import html_elements, webpage
from notewriter.corpora.characters import plain
from notewriter.corpora.splitting import headings

NO_TEXT = "//script|//style|//noscript|//template|//svg|//button|//select|//nav|//head"


class Manual(NamedTuple):
    """The pages of a manual in a Debian package, and an XPath of what its generator writes for navigation."""

    generator: str
    package: str
    pages: str
    navigation: str


def named(*names: str) -> str:
    """An XPath of the elements of some classes or ids."""
    return "|".join(f"//*[contains(concat(' ',@class,' '),' {name} ') or @id='{name}']" for name in names)


DOCBOOK = named("navheader", "navfooter", "toc", "list-of-tables", "list-of-figures")
SPHINX = named("related", "sphinxsidebar", "footer", "headerlink", "linenos")
TEXINFO = "//div[@class='header' or @class='nav-panel']|" + named("contents", "shortcontents", "copiable-anchor")
LATEX2HTML = re.compile(rb"(?s)<!--Navigation Panel-->.*?<!--End of Navigation Panel-->")
MANUALS = (
    Manual("DocBook", "postgresql-doc-15", "usr/share/doc/postgresql-doc-15/html/*.html", DOCBOOK),
    Manual("DocBook", "gimp-help-en", "usr/share/gimp/2.0/help/en/*.html", DOCBOOK),
    Manual("DocBook", "debian-reference-en", "usr/share/debian-reference/*.html", DOCBOOK),
    Manual(
        "Publican",
        "debian-handbook",
        "usr/share/doc/debian-handbook/html/en-US/*.html",
        DOCBOOK + "|" + named("docnav", "banner"),
    ),
    Manual(
        "Sphinx",
        "python-django-doc",
        "usr/share/doc/python-django-doc/html/**/*.html",
        SPHINX + "|" + named("hd", "ft", "global-nav", "sidebar"),
    ),
    Manual("Sphinx", "python3.11-doc", "usr/share/doc/python3.11/html/**/*.html", SPHINX + "|" + named("mobile-nav")),
    Manual("Sphinx", "cmake-doc", "usr/share/doc/cmake-data/html/**/*.html", SPHINX),
    Manual("AsciiDoc", "git-doc", "usr/share/doc/git-doc/**/*.html", named("footer", "toc")),
    Manual("Texinfo", "octave-doc", "usr/share/doc/octave/octave.html/*.html", TEXINFO),
    Manual("Texinfo", "maxima-doc", "usr/share/doc/maxima-doc/html/*.html", TEXINFO),
    Manual("latex2html", "gnuplot-doc", "usr/share/doc/gnuplot/htmldocs/*.html", named("ChildLinks")),
    Manual(
        "MkDocs",
        "mkdocs-doc",
        "usr/share/doc/mkdocs/html/**/*.html",
        named("navbar", "col-md-3", "headerlink", "mkdocs_search_modal", "mkdocs_keyboard_modal") + "|//footer",
    ),
    Manual("Asciidoctor", "kicad-doc-en", "usr/share/doc/kicad/help/en/**/*.html", named("footer", "toc")),
    Manual("gtk-doc", "libglib2.0-doc", "usr/share/gtk-doc/html/**/*.html", named("navigation", "toc", "footer")),
    Manual(
        "XSLT of its own",
        "apache2-doc",
        "usr/share/doc/apache2-doc/manual/en/**/*.html",
        named("page-header", "path", "quickview", "toplang", "bottomlang", "footer", "up", "top", "comments_section")
        + "|//a[@class='permalink']",
    ),
)

Read = Callable[[str, bytes], tuple[str, list[str]]]
"""Reads a page: its text and the words of its headings."""


def own(name: str, content: bytes) -> tuple[str, list[str]]:
    """A page as `notewriter corpus` reads it."""
    page = webpage.read(name, content)
    return page.text, [heading.title for heading in page.headings]


def trafilatura(name: str, content: bytes) -> tuple[str, list[str]]:
    """A page as trafilatura reads it with formatting, and with recall before precision."""
    from trafilatura import extract

    text = extract(content, output_format="markdown", include_formatting=True, favor_recall=True) or ""
    return text, [heading.title for heading in headings(text)]


READERS: dict[str, Read] = {"own": own, "trafilatura": trafilatura}


def words(text: str) -> Counter[str]:
    """The words of a text with their numbers, in one spelling."""
    return Counter(re.findall(r"\w+", plain(text).lower()))


def measure(content: bytes, navigation: str, read: Read) -> Counter[str]:
    """What a page has, and what of it a reader keeps."""
    text, found = read("page", content)
    content = LATEX2HTML.sub(b"", content)
    tree = html.document_fromstring(content, html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True))
    for node in tree.xpath("|".join(filter(None, (NO_TEXT, navigation)))):
        if node.getparent() is not None:
            node.drop_tree()
    for node in tree.iter():
        # Where blocks meet, words end.
        if node.tag in webpage.BLOCKS | {"br"}:
            node.tail = " " + (node.tail or "")
    has, kept = words(tree.text_content()), words(text)
    remaining = Counter(" ".join(words(each)) for each in found)
    counts = Counter(words=has.total(), kept_words=(has & kept).total(), other_words=(kept - has).total())
    for heading in tree.iter("h1", "h2", "h3", "h4", "h5", "h6"):
        is_box = html_elements.BOXES & html_elements.classes_of(heading.getparent())
        if not is_box and (key := " ".join(words(heading.text_content()))):
            counts["headings"] += 1
            counts["kept_headings"] += remaining[key] > 0
            remaining[key] -= 1
    lines = {" ".join(words(line)) for line in text.splitlines()}
    rows = [line for line in lines if line]
    for row in tree.iter("tr"):
        cells = [" ".join(words(cell.text_content())) for cell in row.iterchildren("td", "th")]
        if len(list(filter(None, cells))) > 1 and next(row.iter("pre", "h1", "h2", "h3", "table"), None) is None:
            wanted = set(" ".join(cells).split())
            counts["rows"] += 1
            counts["kept_rows"] += any(wanted <= set(line.split()) for line in rows)
    code = {line.strip() for line in plain(text).splitlines()}
    for pre in tree.iter("pre"):
        for line in filter(str.strip, plain(pre.text_content()).splitlines()):
            counts["code"] += 1
            counts["kept_code"] += line.strip() in code
    fences = [len(mark) for mark in re.findall(r"(?m)^ *(`{3,})", text)]
    return counts + Counter(pages=1, odd_fences=len(fences) % 2)


def unpacked(package: str, folder: Path) -> Path:
    """A Debian package's files, downloaded where they are not there yet."""
    target = folder / package
    if not target.is_dir():
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, target], check=True)
    return target


def spread(files: list[Path], number: int) -> Iterator[bytes]:
    """Some pages of at least fifty words, evenly spread over a manual."""
    long = [content for content in map(Path.read_bytes, files) if len(re.sub(rb"<[^>]*>", b"", content).split()) > 50]
    yield from long[:: max(1, len(long) // number)][:number]


def main() -> None:
    """Print a table with a row a manual, and the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the packages are unpacked")
    parser.add_argument("--pages", type=int, default=25, help="pages of each manual")
    parser.add_argument("--reader", choices=READERS, default="own")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results = []
    sys.stdout.write(
        "| generator | manual | headings | words | rows of tables | lines of code | other words | odd fences |" + "\n"
    )
    sys.stdout.write("|---|---|---:|---:|---:|---:|---:|---:|" + "\n")
    for manual in MANUALS:
        files = sorted(unpacked(manual.package, arguments.folder).glob(manual.pages))
        counts: Counter[str] = Counter()
        for content in spread(files, arguments.pages):
            try:
                counts += measure(content, manual.navigation, READERS[arguments.reader])
            except etree.ParserError as error:
                sys.stderr.write(f"{manual.package}: {error}\n")
        shares = [f"{counts['kept_headings']}/{counts['headings']}"]
        for key in ("words", "rows", "code"):
            shares.append(f"{counts[f'kept_{key}'] / counts[key]:.3f}" if counts[key] else "")
        shares.append(f"{counts['other_words'] / max(1, counts['kept_words'] + counts['other_words']):.3f}")
        sys.stdout.write(
            f"| {manual.generator} | {manual.package} | {' | '.join(shares)} | {counts['odd_fences']} |" + "\n"
        )
        results.append({"generator": manual.generator, "manual": manual.package, **counts})
    sys.stdout.write(json.dumps({"reader": arguments.reader, "manuals": results}) + "\n")


if __name__ == "__main__":
    main()
