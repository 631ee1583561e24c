"""An existing index of Elasticsearch or OpenSearch, searched over the REST API that both have.

`fields` says where a document has its id, title and text. Words are found as the index analyses them, and the scores
of title and text are added, as in `bm25`.
"""

import asyncio
import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict
from urllib.parse import quote

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.ground.text import without_surrogates
from notewriter.ground.typed import misfit
from notewriter.retrieval.protocol import Scope, Source
from notewriter.retrieval.sources.service import Service, ServiceOptions, address, within

Engine = Literal["elasticsearch", "opensearch"]
Field = Literal["id", "title", "text"]

OWN_ID = "_id"
"""The id that the engine itself gives every document."""

FIELDS: dict[Field, str] = {"id": OWN_ID, "title": "title", "text": "text"}
"""Where a document has the fields of a passage, unless the options say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EngineOptions(ServiceOptions):
    name: str = field(metadata={"help": "the index, or an alias of one"})
    fields: dict[Field, str] = field(
        default_factory=dict,
        metadata={
            "help": f"where a document has its id, title and text, by default {FIELDS}. A dot leads into an object; a "
            "title of '' means that there is none"
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticsearchOptions(_EngineOptions):
    """`elasticsearch`: the address of an Elasticsearch server."""

    elasticsearch: str = field(metadata={"effect": address})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpensearchOptions(_EngineOptions):
    """`opensearch`: the address of an OpenSearch server."""

    opensearch: str = field(metadata={"effect": address})


class SearchEngine:
    """An index of either engine, as a source of a chain.

    Raises:
        UserError: the address or the key is not usable.
    """

    def __init__(self, engine: Engine, options: _EngineOptions) -> None:
        self.name, self.corpus = f"{engine} {options.name}", ""
        self._index = f"{getattr(options, engine).rstrip('/')}/{quote(options.name, safe='')}"
        self._service = Service(
            f"{self._index}/_search", f"retriever: {engine}", options, lambda key: {"Authorization": f"ApiKey {key}"}
        )
        self._fields = FIELDS | options.fields

    async def check(self) -> None:
        """Fetch a document, which shows whether the index and its fields are there.

        Raises:
            UserError: the server does not answer, or there is no such index or field.
        """
        await self._find({"match_all": {}}, 1)

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first.

        Raises:
            UserError: the server does not answer or refuses the search, or a document lacks a field.
        """
        if not (words := _words(query)):
            return []
        fields = [name for key, name in self._fields.items() if key != "id" and name]
        match = {"multi_match": {"query": words, "fields": fields, "type": "most_fields"}}
        return await within(scope, functools.partial(self._find, match), top_k)

    async def state(self) -> str | None:
        """A digest of what the engine reports of the index; None if it cannot be asked."""
        try:
            return await self._service.get(f"{self._index}/_stats/docs?level=shards", _state, attempts=1)
        except UserError:
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    async def _find(self, query: dict[str, Any], count: int) -> list[Passage]:
        fields = [name for name in self._fields.values() if name and name != OWN_ID]
        hits = await self._service.post({"query": query, "size": count, "_source": fields}, _hits)
        return [Passage(*(self._value(hit, key) for key in ("id", "title", "text"))) for hit in hits]

    def _value(self, hit: "_Hit", key: Field) -> str:
        name = self._fields[key]
        value: Any = {"": "", OWN_ID: hit["_id"]}.get(name, hit["_source"].get(name))
        if value is None:
            value = functools.reduce(_inside, name.split("."), hit["_source"])
        if not isinstance(value, str | int):
            remedy = f"set fields: {{{key}: NAME}} to one of: {', '.join(hit['_source']) or 'those of the index'}"
            raise UserError(f"{self._index}: document {hit['_id']!r} has no text in the field {name!r}; {remedy}")
        return without_surrogates(str(value))


class _Hit(TypedDict):
    _id: str
    _source: dict[str, Any]


class _Documents(TypedDict):
    count: int


class _Primaries(TypedDict):
    docs: _Documents


class _Copy(TypedDict):
    seq_no: NotRequired[dict[str, int]]


class _Statistics(TypedDict):
    uuid: str
    primaries: _Primaries
    shards: dict[str, list[_Copy]]


def _inside(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _hits(reply: Any) -> list[_Hit]:
    hits: list[_Hit] = _inside(_inside(reply, "hits"), "hits")
    if problem := misfit(hits, list[_Hit], "hits"):
        raise ValueError(problem)
    return hits


def _state(reply: Any) -> str:
    """A digest of the index's own id, its number of documents, and the number of the last change to each shard."""
    indexes: dict[str, _Statistics] = _inside(reply, "indices")
    if problem := misfit(indexes, dict[str, _Statistics], "indices"):
        raise ValueError(problem)
    state = {
        name: (index["uuid"], index["primaries"]["docs"]["count"], list(map(_last_change, index["shards"].values())))
        for name, index in indexes.items()
    }
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _last_change(copies: list[_Copy]) -> int:
    """The number of the last change to a shard, behind which some of its copies may lag."""
    return max((copy.get("seq_no", {}).get("max_seq_no", 0) for copy in copies), default=0)


def _words(query: str) -> str:
    """Each distinct word of a query once, as in `bm25`."""
    text = "".join(character if character.isalnum() else " " for character in without_surrogates(query))
    return " ".join(dict.fromkeys(text.lower().split()))


def _source(engine: Engine, options: type[_EngineOptions]) -> Source:
    def identity(part: _EngineOptions) -> str | None:
        async def ask() -> str | None:
            source = SearchEngine(engine, part)
            try:
                return await source.state()
            finally:
                await source.close()

        return asyncio.run(ask())

    return Source(options=options, open=functools.partial(SearchEngine, engine), identity=identity)


ELASTICSEARCH = _source("elasticsearch", ElasticsearchOptions)
OPENSEARCH = _source("opensearch", OpensearchOptions)
