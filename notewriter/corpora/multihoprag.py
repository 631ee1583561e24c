"""MultiHop-RAG's news articles: `corpus.json`, a list of articles with `title`, `body` and `url`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Origin, Record, Source
from notewriter.datasets.reading import array, get, passage_id


def _articles(name: str, path: Path) -> Iterator[Record]:
    return array(path)


def _parse(place: str, article: dict[str, Any]) -> list[Document]:
    title, body = get(article, "title", str, place), get(article, "body", str, place)
    origin = Origin(url=article["url"]) if isinstance(article.get("url"), str) else Origin()
    return [Document(passage_id(title, body), title, body, origin)]


SOURCE = Source(
    title="MultiHop-RAG's news",
    files="corpus.json, from huggingface.co/datasets/yixuantt/MultiHopRAG",
    inputs=lambda paths: reading.expand(paths, "corpus.json"),
    records=_articles,
    parse=_parse,
    split="sentences",
    has_repeats=True,
)
