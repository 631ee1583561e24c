"""The pages that the questions of FanOutQA and FRAMES need, chosen out of a dump or a crawl.

FanOutQA names pages by title, FRAMES by address. NotesWriting reads them whole and as Markdown: a crawl of HTML
becomes that, while the dumps of `wikimedia/wikipedia` are plain text.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from notewriter import jsonl
from notewriter.benchmarks import load_questions
from notewriter.corpora.source import Document
from notewriter.errors import UserError
from notewriter.text import page_title


class Pages:
    """The pages that the questions of a file list.

    Raises:
        UserError: the file cannot be read, or its questions list no pages.
    """

    def __init__(self, dataset: str, path: Path) -> None:
        listed = [page for question in load_questions(dataset, path) for page in question.metadata.get("pages", [])]
        if not listed:
            raise UserError(f"{path}: its questions list no pages; use those of FanOutQA or FRAMES")
        self._listed = {title(page): page for page in listed}

    def __len__(self) -> int:
        return len(self._listed)

    def __contains__(self, document: Document) -> bool:
        return not self._listed.keys().isdisjoint(_names(document))

    def missing(self, corpus: Path) -> list[str]:
        """The pages that a corpus lacks, as the questions name them."""
        found = set[str]()
        for _, record in jsonl.read(corpus):
            # Split at headings, a passage's title has these too.
            document = Document(record["id"], record["title"].partition(" > ")[0], "", record.get("origin", {}))
            found.update(_names(document))
        return [page for name, page in self._listed.items() if name not in found]


def title(page: str) -> str:
    """The title of a page in one spelling, out of a title or an address: `.../wiki/Mira_Tolen#Life` is `Mira Tolen`."""
    if "://" in page:
        page = page_title(page) or page
    page = " ".join(page.replace("_", " ").split())
    # Wikipedia's titles begin with a capital letter, whatever links say.
    return page[:1].upper() + page[1:]


def _names(document: Document) -> Iterator[str]:
    yield title(document.title)
    if file := document.origin.get("file"):
        # A crawl's files are often named after their pages, whose titles end in "- Wikipedia".
        yield title(unquote(Path(file).stem))
    if url := document.origin.get("url"):
        yield title(url)
