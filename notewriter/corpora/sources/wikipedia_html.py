"""Pages of Wikipedia in HTML, as Markdown with their tables and infoboxes.

They come from the HTML dumps of Wikimedia Enterprise (`*-ENTERPRISE-HTML.json.tar.gz`, one page a line with
`identifier`, `name`, `url` and `article_body.html`) or from MediaWiki's REST API (`page/{title}/with_html`, an object
with `id`, `title` and `html`). Links are kept as words; marks and lists of references, and what only navigates, go.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from notewriter.corpora import html_tree, reading, webpage
from notewriter.corpora.child import in_child
from notewriter.corpora.source import Document, Record, Source
from notewriter.datasets.reading import get
from notewriter.ground.errors import UserError


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
    if len(html) > html_tree.MAX_BYTES:
        raise UserError(f"{place}: is larger than {html_tree.MAX_BYTES // 1_000_000} MB")
    read = in_child(place, webpage.read, place, html)
    return [Document(id, title, read.text, reading.origin(page), is_markdown=True, headings=read.headings)]


SOURCE = Source(
    title="pages of Wikipedia in HTML",
    files="enwiki-NS0-*-ENTERPRISE-HTML.json.tar.gz, from dumps.wikimedia.org/other/enterprise_html, or JSON Lines of "
    "MediaWiki's REST API (page/{title}/with_html)",
    inputs=lambda paths: reading.expand(paths, "*.tar.gz", "*.ndjson*", "*.jsonl*"),
    records=_records,
    parse=_parse,
    split="headings",
    has_repeats=True,
    has_versions=True,
)
