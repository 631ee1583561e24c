"""The pages that the questions of FanOutQA and FRAMES need, chosen out of a dump or a crawl.

FanOutQA names pages by title, FRAMES by address. NotesWriting reads them whole and as Markdown with their tables and
infoboxes: `wikipedia_html` makes that of HTML, while the dumps of `wikimedia/wikipedia` are plain text.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from notewriter.corpora.source import Document
from notewriter.datasets import load_questions
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.text import page_title


class Pages:
    """The pages that the questions of a file list.

    Raises:
        UserError: the file cannot be read, or its questions list no pages.
    """

    def __init__(self, dataset: str, path: Path) -> None:
        self._listed: dict[str, str] = {}
        self._revisions: dict[str, int] = {}
        for question in load_questions(dataset, path):
            pages = question.metadata.get("pages", [])
            revisions = question.metadata.get("revisions", [None] * len(pages))
            for page, revision in zip(pages, revisions, strict=True):
                self._listed[page_title(page)] = page
                if revision is not None:
                    self._revisions[page_title(page)] = revision
        if not self._listed:
            raise UserError(f"{path}: its questions list no pages; use those of FanOutQA or FRAMES")

    def __len__(self) -> int:
        return len(self._listed)

    def __iter__(self) -> Iterator[tuple[str, int | None]]:
        """The pages as the questions name them, by title or address, and their revisions where these are known."""
        return ((page, self._revisions.get(name)) for name, page in self._listed.items())

    def title_of(self, document: Document) -> str | None:
        """The title of the listed page that a document is, as `page_title` writes it, or None if it is none."""
        return next((name for name in map(page_title, _names(document)) if name in self._listed), None)

    def missing(self, corpus: Path) -> list[str]:
        """The pages that a corpus lacks, as the questions name them."""
        titles = {record["title"] for _, record in jsonl.read(corpus)}
        return [page for name, page in self._listed.items() if name not in titles]


def _names(document: Document) -> Iterator[str]:
    if file := document.origin.get("file"):
        # A crawl's files are often named after their pages, whose titles end in "- Wikipedia".
        yield unquote(Path(file).stem)
    if url := document.origin.get("url"):
        yield url
    yield document.title
