"""Searching over HTTP: `POST /retrieve`, the contract of the retrieval servers of Search-R1 and FlashRAG's users.

The request is `{"queries": [...], "topk": 3, "return_scores": true}`, the reply `{"result": [[{"document": {"id": ...,
"contents": "\\"title\\"\\ntext"}, "score": 0.9}, ...], ...]}`, a list for each query; without scores the documents are
not wrapped. Contents without a line break are a text without a title. Scores are always requested: Search-R1's own
server fails without them.

`notewriter serve retriever` adds `title` and `text` to each document, and accepts `within`, the ids or titles that the
search is restricted to.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.records import Passage
from notewriter.ground.text import unquoted, without_surrogates
from notewriter.ground.typed import misfit
from notewriter.retrieval.protocol import OpenSource, Scope, Source
from notewriter.retrieval.sources.batching import Batching
from notewriter.retrieval.sources.service import Service, ServiceOptions, within

SCHEMA = "notewriter/retriever/1"
"""In the reply to `GET /health` of our own servers."""

MOST_QUERIES = 32
"""Queries sent in one request at most."""

IN_FLIGHT = 6
"""Requests in flight at most; further queries wait and are sent together, since a request costs as much as a search."""

LONGEST_TITLE = 257
"""Bytes of a first line that is a title, the longest of Wikipedia's and two quotation marks; a longer one is text."""

IDS = ("id", "docid", "_id")
"""The keys of a document's id: FlashRAG's, Pyserini's and BEIR's."""

MOST_RESTRICTED = 1000
"""Passages fetched at most from servers that cannot restrict a search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions(ServiceOptions):
    """`url`: a retrieval server; its key is sent as a bearer token."""

    url: str = field(metadata={"effect": False})


class Health(TypedDict, total=False):
    """The reply of our own servers at `/health`."""

    schema: str
    status: str
    corpus: str
    fingerprint: str


class Remote(OpenSource):
    """A retrieval server, as a source of a chain.

    Queries that wait for a free connection and ask for the same number of passages are sent in one request.
    """

    def __init__(self, options: RemoteOptions) -> None:
        self.name, self.corpus = options.url, ""
        self._base = options.url.rstrip("/").removesuffix("/retrieve")
        self._service = Service(
            f"{self._base}/retrieve", "retriever: url", options, lambda key: {"Authorization": f"Bearer {key}"}
        )
        self._ours = False
        self._batches = Batching(self._send, MOST_QUERIES, IN_FLIGHT)

    async def check(self) -> None:
        """Ask the server for its identity; one of another kind is asked for a passage.

        Raises:
            UserError: it cannot be reached.
        """
        try:
            health = await self._service.get(f"{self._base}/health", _health)
        except UserError:
            await self._service.post(_request(["test"], 1, None), functools.partial(read_reply, queries=1))
        else:
            self._ours, self.corpus = health.get("schema") == SCHEMA, health.get("corpus", "")

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first.

        Raises:
            UserError: no usable reply.
        """
        query = without_surrogates(query)
        if scope is not None and not self._ours:
            return await within(scope, lambda count: self._batches.search(query, count, None), top_k, MOST_RESTRICTED)
        return await self._batches.search(query, top_k, scope)

    async def close(self) -> None:
        """Close the connections."""
        self._batches.close()
        await self._service.close()

    async def _send(self, queries: list[str], top_k: int, scope: Scope | None) -> list[list[Passage]]:
        read = functools.partial(read_reply, queries=len(queries))
        return await self._service.post(_request(queries, top_k, scope), read)


def _identity(options: RemoteOptions) -> str | None:
    """The fingerprint of the chain that a server of ours serves; None of another, or if it cannot be reached."""

    async def ask() -> Health:
        remote = Remote(options)
        try:
            return await remote._service.get(f"{remote._base}/health", _health, attempts=1)
        except UserError:
            return {}
        finally:
            await remote.close()

    health = run_async(ask())
    return health.get("fingerprint") if health.get("schema") == SCHEMA else None


def _health(reply: Any) -> Health:
    if problem := misfit(reply, Health, "health"):
        raise ValueError(problem)
    health: Health = reply
    return health


def _request(queries: Sequence[str], top_k: int, scope: Scope | None) -> dict[str, object]:
    body: dict[str, object] = {"queries": list(queries), "topk": top_k, "return_scores": True}
    return body if scope is None else body | {"within": list(scope)}


def reply_of(results: Sequence[Sequence[Passage]], scores: bool) -> dict[str, object]:
    """The reply to a request. Chains have ranks but no common scores, so the score is 1 / rank."""
    documents = [[_document(passage) for passage in passages] for passages in results]
    if not scores:
        return {"result": documents}
    return {
        "result": [
            [{"document": document, "score": 1 / rank} for rank, document in enumerate(passages, start=1)]
            for passages in documents
        ]
    }


def read_reply(reply: Any, queries: int) -> list[list[Passage]]:
    """The passages in a reply, for each query.

    Raises:
        ValueError: the reply has another form.
    """
    result = reply.get("result") if isinstance(reply, dict) else None
    if problem := misfit(result, list[list[dict[str, Any]]], "result"):
        raise ValueError(problem)
    assert isinstance(result, list)
    if len(result) != queries:
        raise ValueError(f"{len(result)} results for {queries} queries")
    return [[_passage(each.get("document", each)) for each in passages] for passages in result]


def _document(passage: Passage) -> dict[str, str]:
    contents = f'"{passage.title}"\n{passage.text}'
    return {"id": passage.id, "title": passage.title, "text": passage.text, "contents": contents}


def _passage(document: object) -> Passage:
    if not isinstance(document, Mapping):
        raise ValueError("a document that is not an object")
    title, text = document.get("title"), document.get("text")
    contents = document.get("contents")
    if isinstance(contents, str) and not (isinstance(title, str) and isinstance(text, str)):
        head, line_break, rest = contents.partition("\n")
        bare = unquoted(head.strip())
        if line_break and len(head.encode("utf-8", "replace")) <= LONGEST_TITLE and title in (None, "", head, bare):
            title, text = bare, rest
        else:
            title, text = title if isinstance(title, str) else "", contents
    if not (isinstance(title, str) and isinstance(text, str)):
        raise ValueError("a document without contents")
    id = next((document[key] for key in IDS if isinstance(document.get(key), str | int)), None)
    if id is None:
        # Search-R1's BM25 server leaves ids out.
        id = hashlib.sha256(f"{title}\n{text}".encode("utf-8", "replace")).hexdigest()[:16]
    return Passage(*map(without_surrogates, (str(id), title, text)))


SOURCE = Source(options=RemoteOptions, open=Remote, identity=_identity)
