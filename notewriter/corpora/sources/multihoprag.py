"""MultiHop-RAG's news articles: `corpus.json`, a list of articles with `title`, `body` and `url`."""

from typing import Any

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Source
from notewriter.datasets import multihoprag
from notewriter.datasets.reading import array, get, passage_id
from notewriter.ground.releases import only


def _parse(place: str, article: dict[str, Any]) -> list[Document]:
    title, body = get(article, "title", str, place), get(article, "body", str, place)
    return [Document(passage_id(title, body), title, body, reading.origin(article))]


SOURCE = Source(
    title="MultiHop-RAG's news",
    files=only(multihoprag.RELEASE, "corpus.json"),
    inputs=lambda paths: reading.expand(paths, "corpus.json"),
    records=lambda name, path: array(path),
    parse=_parse,
    split="sentences",
    has_repeats=True,
)
