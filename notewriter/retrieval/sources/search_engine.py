"""Elasticsearch and OpenSearch as sources of a chain, through their official clients: BM25 and kNN.

The analysis is that of `bm25`: words are letters and digits, lower-cased, without accents, stemmed (Snowball's English
stemmer), at most 40 characters long; a passage is scored in its title and in its contents and the scores are added.
Both engines compute Lucene's BM25 with k1 = 1.2 and b = 0.75, though per shard, so `bulk-index` makes one shard.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar

import tenacity
from annotated_types import Interval

from notewriter.ground.errors import UserError, install
from notewriter.ground.records import Passage
from notewriter.ground.terminal import escape_controls
from notewriter.ground.text import without_surrogates
from notewriter.ground.typecheck import misfit
from notewriter.models import checkpoints
from notewriter.models.connection import check_address, read_key
from notewriter.retrieval import Scope, checked, encoders
from notewriter.retrieval.source import address

SCHEMA = "notewriter/search-engine/1"

Engine = Literal["elasticsearch", "opensearch"]

CHUNK = 500
"""Passages sent in one bulk request."""

ANALYSIS = {
    "analyzer": {
        "passages": {
            "type": "custom",
            "tokenizer": "letters_and_digits",
            "filter": ["not_too_long", "lowercase", "asciifolding", "english"],
        }
    },
    "tokenizer": {"letters_and_digits": {"type": "pattern", "pattern": r"[^\p{L}\p{N}]+"}},
    "filter": {
        "not_too_long": {"type": "length", "max": 40},
        "english": {"type": "stemmer", "language": "porter2"},
    },
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _EnginePart:
    """What the parts of both engines have in common.

    `name` is the index; `search` is bm25 or knn, for which the index needs embeddings. `api_key_env` names the
    environment variable of an API key. `timeout` is in seconds, `attempts` the number of tries.
    """

    name: str
    search: Literal["bm25", "knn"] = "bm25"
    weight: Annotated[float, Interval(gt=0)] = 1.0
    timeout: Annotated[float, Interval(gt=0)] = field(default=30.0, metadata={"effect": False})
    attempts: Annotated[int, Interval(ge=1)] = field(default=6, metadata={"effect": False})
    api_key_env: str | None = field(default=None, metadata={"effect": False})
    device: str | None = field(default=None, metadata={"effect": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticsearchPart(_EnginePart):
    """`elasticsearch`: the address of an Elasticsearch server; see `_EnginePart`."""

    elasticsearch: str = field(metadata={"effect": address})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpensearchPart(_EnginePart):
    """`opensearch`: the address of an OpenSearch server; see `_EnginePart`."""

    opensearch: str = field(metadata={"effect": address})


class Meta(TypedDict):
    """What `bulk-index` writes into the index's mapping; `encoder` is empty without embeddings."""

    schema: str
    source: str
    encoder: str
    fingerprint: str
    query_prompt: str
    passage_prompt: str


class Embedder(NamedTuple):
    """A sentence-transformers model with its prompts; vectors have length 1."""

    model: encoders.EncoderModel
    query_prompt: str
    passage_prompt: str

    def queries(self, texts: list[str]) -> list[list[float]]:
        """The embeddings of queries."""
        return self._encode(self.model.encode_query, texts, "query_prompt")

    def passages(self, texts: list[str]) -> list[list[float]]:
        """The embeddings of passages."""
        return self._encode(self.model.encode_document, texts, "passage_prompt")

    def _encode(self, function: Callable[..., Any], texts: list[str], prompt: str) -> list[list[float]]:
        settings = {"similarity": "cosine", "query_prompt": self.query_prompt, "passage_prompt": self.passage_prompt}
        vectors: list[list[float]] = encoders.encode(function, texts, settings, prompt, batch_size=32).tolist()
        return vectors


class Connection:
    """A server of either engine, with its index; methods block and are thread-safe.

    Raises:
        UserError: the client is not installed, or the address is not usable.
    """

    def __init__(self, engine: Engine, address: str, name: str, timeout: float, attempts: int, key: str = "") -> None:
        check_address(address, engine)
        self.engine, self.address, self.name = engine, address, name
        self._attempts = attempts
        try:
            self._client, self.bulk, self._errors = _client(engine, address, timeout, read_key(key) if key else "")
        except ImportError as error:
            raise UserError(f"{engine}: needs {error.name}; {install('search-engines')}") from error
        except ValueError as error:
            raise UserError(f"{engine}: {address!r} cannot be used ({error}); write it as http://HOST:9200") from error

    def call(self, method: Callable[[Any], T]) -> T:
        """The outcome of a call of the client, repeated while the server cannot be reached or is overloaded.

        Raises:
            UserError: it fails for good.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._may_help),
            wait=tenacity.wait_random_exponential(multiplier=0.25, max=20),
            stop=tenacity.stop_after_attempt(self._attempts),
            reraise=True,
        )
        try:
            return retrying(method, self._client)
        except self._errors as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> UserError:
        """An error of the client in one line."""
        words = " ".join(escape_controls(str(error)).split())[:300]
        again = self._may_help(error)
        remedy = "run the same command again when it is up" if again else "check the address, the index and its name"
        return UserError(
            f"{self.address}/{self.name}: {f'no reply after {self._attempts} attempts ' if again else ''}"
            f"({words}); {remedy}"
        )

    def meta(self) -> Meta | None:
        """What `bulk-index` wrote into the index; None if there is no such index.

        Raises:
            UserError: an index that `bulk-index` did not make.
        """
        if not self.call(lambda client: bool(client.indices.exists(index=self.name))):
            return None
        mappings: Any = self.call(lambda client: client.indices.get_mapping(index=self.name))
        indexes: list[Any] = list(dict(mappings).values())
        meta: Any = indexes[0].get("mappings", {}).get("_meta") if indexes else None
        if misfit(meta, Meta) or meta["schema"] != SCHEMA:
            raise UserError(
                f"{self.address}/{self.name}: is not an index of this version; choose another --name, or make it with "
                "`notewriter bulk-index`"
            )
        found: Meta = meta
        return found

    def count(self) -> int:
        """The number of passages in the index."""
        return self.call(lambda client: int(client.count(index=self.name)["count"]))

    def close(self) -> None:
        """Close the connections."""
        self.call(lambda client: client.close())

    def _may_help(self, error: BaseException) -> bool:
        if not isinstance(error, self._errors):
            return False
        status = getattr(error, "status_code", None)  # OpenSearch's is "N/A" for connection errors
        return not isinstance(status, int) or status in {408, 429} or status >= 500


class SearchEngine:
    """An index of Elasticsearch or OpenSearch, as a source of a chain."""

    def __init__(self, part: ElasticsearchPart | OpensearchPart) -> None:
        engine: Engine = "elasticsearch" if isinstance(part, ElasticsearchPart) else "opensearch"
        address = part.elasticsearch if isinstance(part, ElasticsearchPart) else part.opensearch
        self.name, self.corpus = f"{engine} {part.name} {part.search}", ""
        self._part = part
        self._connection = Connection(engine, address, part.name, part.timeout, part.attempts, part.api_key_env or "")
        # Threads that wait for a server, not for a core.
        self._threads = ThreadPoolExecutor(64, thread_name_prefix="search-engine")
        self._embedder: Embedder | None = None
        self._embedding = threading.Lock()

    async def check(self) -> None:
        """Read what the index is.

        Raises:
            UserError: there is no such index, it has no embeddings, or its encoder cannot be loaded or has changed.
        """
        await self._in_thread(self._check)

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` passages of the scope, best first; BM25 breaks ties by corpus order.

        Raises:
            UserError: the server does not answer or refuses the search.
        """
        return await self._in_thread(self._search, without_surrogates(query), top_k, scope)

    async def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._connection.close()

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def _check(self) -> None:
        meta = self._connection.meta()
        if meta is None:
            raise UserError(
                f"{self._connection.address}/{self._connection.name}: no such index; make it with "
                "`notewriter bulk-index`"
            )
        self.corpus = meta["source"]
        if self._part.search == "knn":
            if not meta["encoder"]:
                raise UserError(f"{self.name}: has no embeddings; make it with `notewriter bulk-index --encoder MODEL`")
            if checkpoints.fingerprint(meta["encoder"]) != meta["fingerprint"]:
                raise UserError(f"{self.name}: {meta['encoder']} has changed since; make the index again")
            options = encoders.Encoder(
                encoder=meta["encoder"],
                query_prompt=meta["query_prompt"],
                passage_prompt=meta["passage_prompt"],
                device=self._part.device,
            )
            self._embedder = load_embedder(options)

    def _search(self, query: str, top_k: int, scope: Scope | None) -> list[Passage]:
        body: dict[str, Any] = {"size": top_k, "_source": ["title", "text"]}
        if self._embedder is None:
            if not (words := _words(query)):
                return []
            body |= bm25_query(words, scope)
        else:
            with self._embedding:
                (vector,) = self._embedder.queries([query])
            body |= knn_query(self._connection.engine, vector, top_k, scope)
        reply: Any = self._connection.call(lambda client: client.search(index=self._part.name, body=body))
        try:
            hits = reply["hits"]["hits"]
            return [Passage(hit["_id"], hit["_source"]["title"], hit["_source"]["text"]) for hit in hits]
        except (LookupError, TypeError) as error:
            raise UserError(f"{self.name}: an unreadable reply ({error!r}); check the server") from error


def content_of(part: Mapping[str, Any]) -> str | None:
    """A hash of what `bulk-index` wrote into a part's index and of the number of passages; None if it does not answer.

    An index of the same corpus on another server has the same.
    """
    engine: Engine = "elasticsearch" if "elasticsearch" in part else "opensearch"
    try:
        connection = Connection(engine, part[engine], part["name"], 20.0, 3, part.get("api_key_env") or "")
        with contextlib.closing(connection):
            known = (connection.meta(), connection.count())
    except UserError:
        return None  # Where the index is searched, the error is told.
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def bm25_query(words: str, scope: Scope | None) -> dict[str, Any]:
    """The sum of BM25 over title and contents, among the passages of a scope; ties by corpus order."""
    query: dict[str, Any] = {"should": [{"match": {field: words}} for field in ("title", "contents")]}
    query["minimum_should_match"] = 1
    if scope is not None:
        query["filter"] = _filter(scope)
    return {"query": {"bool": query}, "sort": ["_score", {"position": "asc"}]}


def knn_query(engine: Engine, vector: list[float], top_k: int, scope: Scope | None) -> dict[str, Any]:
    """The `top_k` passages of a scope that are nearest to a vector, in the engine's own form."""
    restriction = {} if scope is None else {"filter": _filter(scope)}
    if engine == "opensearch":
        return {"query": {"knn": {"embedding": {"vector": vector, "k": top_k, **restriction}}}}
    # 1.5 times the number of hits is Elasticsearch's own default, from its documentation, and 100 a floor for recall.
    candidates = min(10_000, max(100, 3 * top_k // 2))
    return {
        "knn": {
            "field": "embedding",
            "query_vector": vector,
            "k": top_k,
            "num_candidates": max(candidates, top_k),
            **restriction,
        }
    }


def fill(
    connection: Connection,
    passages: Iterable[Passage],
    encoder: Embedder | None,
    meta: Meta,
    progress: Callable[[int], object],
) -> int:
    """Index a stream of passages, after those that an interrupted call has left; returns the number of passages.

    Passages are sent in order, and each request waits for the one before. So if the server has a passage, it has all
    passages of earlier requests.

    Raises:
        UserError: the server does not answer, refuses a passage, or has an index of another corpus under the name.
    """
    existing = connection.meta()
    if existing is None:
        body = _index(connection.engine, meta, encoder)
        connection.call(lambda client: client.indices.create(index=connection.name, body=body))
    elif existing != meta:
        raise UserError(
            f"{connection.address}/{connection.name}: is an index of another corpus or encoder; choose another --name "
            "or delete it"
        )
    connection.call(lambda client: client.indices.refresh(index=connection.name))
    done = _last_position(connection) // CHUNK * CHUNK
    stream = enumerate(checked(passages))
    count = sum(1 for _ in islice(stream, done))
    progress(done)
    while chunk := list(islice(stream, CHUNK)):
        actions = list(_actions(connection.name, chunk, encoder))
        connection.call(functools.partial(_send, connection.bulk, actions))
        count += len(chunk)
        progress(len(chunk))
    connection.call(lambda client: client.indices.refresh(index=connection.name))
    if (found := connection.count()) != count:
        raise UserError(
            f"{connection.address}/{connection.name}: has {found} passages instead of {count}; delete it and run the "
            "same command again"
        )
    return count


def load_embedder(options: encoders.Encoder) -> Embedder:
    """An encoder with its prompts, as for a dense index (`encoders.prompts`).

    Raises:
        UserError: sentence-transformers is not installed, or the model cannot be loaded.
    """
    model = encoders.load(str(options.encoder), options.device)
    return Embedder(model, *encoders.prompts(model, options))


def _client(engine: Engine, address: str, timeout: float, key: str) -> tuple[Any, Any, tuple[type[Exception], ...]]:
    """The official client, its `bulk`, and its errors; retries are ours."""
    if engine == "elasticsearch":
        import elasticsearch
        from elasticsearch import helpers

        client: Any = elasticsearch.Elasticsearch(address, api_key=key or None, request_timeout=timeout, max_retries=0)
        errors = (elasticsearch.ApiError, elasticsearch.TransportError, helpers.BulkIndexError)
        return client, helpers.bulk, errors
    import opensearchpy
    from opensearchpy import helpers as opensearch_helpers

    headers = {"Authorization": f"ApiKey {key}"} if key else {}
    client = opensearchpy.OpenSearch([address], timeout=timeout, max_retries=0, headers=headers)
    return client, opensearch_helpers.bulk, (opensearchpy.OpenSearchException,)


def _index(engine: Engine, meta: Meta, encoder: Embedder | None) -> dict[str, Any]:
    """Settings and mapping of a new index."""
    text = {"type": "text", "analyzer": "passages", "index_options": "freqs"}
    properties: dict[str, Any] = {
        "title": text | {"fields": {"exact": {"type": "keyword", "ignore_above": 8191}}},
        "contents": text,
        "text": {"type": "text", "index": False},
        "position": {"type": "long"},
    }
    settings: dict[str, Any] = {"number_of_shards": 1, "analysis": ANALYSIS}
    if encoder is not None:
        dimension = len(encoder.queries(["test"])[0])
        if engine == "elasticsearch":
            vector = {"type": "dense_vector", "dims": dimension, "index": True, "similarity": "dot_product"}
        else:
            settings["index.knn"] = True
            method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
            vector = {"type": "knn_vector", "dimension": dimension, "method": method}
        properties["embedding"] = vector
    mappings = {"dynamic": "strict", "_meta": meta, "_source": {"excludes": ["contents", "embedding"]}}
    return {"settings": settings, "mappings": mappings | {"properties": properties}}


def _actions(name: str, chunk: list[tuple[int, Passage]], encoder: Embedder | None) -> Iterator[dict[str, Any]]:
    texts = [f"{passage.title}\n{passage.text}" for _, passage in chunk]
    vectors = encoder.passages(texts) if encoder else None
    for place, (position, passage) in enumerate(chunk):
        document: dict[str, Any] = {"title": passage.title, "text": passage.text, "contents": texts[place]}
        document["position"] = position
        if vectors is not None:
            document["embedding"] = vectors[place]
        yield {"_op_type": "index", "_index": name, "_id": passage.id, "_source": document}


def _send(bulk: Callable[..., object], actions: list[dict[str, Any]], client: Any) -> None:
    bulk(client, actions, max_retries=3, initial_backoff=1)


def _last_position(connection: Connection) -> int:
    """The largest position in the index; 0 if it is empty."""
    body = {"size": 0, "aggs": {"last": {"max": {"field": "position"}}}}
    reply: Any = connection.call(lambda client: client.search(index=connection.name, body=body))
    return int(reply["aggregations"]["last"]["value"] or 0)


def _filter(scope: Scope) -> dict[str, Any]:
    names = sorted(scope)
    return {"bool": {"should": [{"ids": {"values": names}}, {"terms": {"title.exact": names}}]}}


def _words(query: str) -> str:
    """Each distinct word of a query once, as in `bm25`."""
    words = "".join(character if character.isalnum() else " " for character in query).lower().split()
    return " ".join(dict.fromkeys(words))
