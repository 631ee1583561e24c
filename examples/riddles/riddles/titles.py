"""Titles: a source that finds the passages of a JSON Lines file whose titles the query contains."""

from dataclasses import dataclass

from notewriter import Passage
from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.retrieval.protocol import Scope, Source, SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TitlesOptions(SourceOptions):
    """`titles`: a file of passages with `id`, `title` and `text`."""

    titles: str


class Titles:
    """The passages of a file, in memory."""

    def __init__(self, options: TitlesOptions) -> None:
        self.name, self.corpus = options.titles, "titles"
        records = jsonl.read(options.titles)
        self._passages = [Passage(record["id"], record["title"], record["text"]) for _, record in records]

    async def check(self) -> None:
        """It was read when it was opened."""

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages whose title is in the query, the longest title first."""
        among = [passage for passage in self._passages if scope is None or passage.id in scope]
        titled = [passage for passage in among if passage.title.lower() in query.lower()]
        return sorted(titled, key=lambda passage: -len(passage.title))[:top_k]

    async def close(self) -> None:
        """Nothing is open."""


titles = Source(options=TitlesOptions, open=Titles, identity=lambda options: file_digest(options.titles))
