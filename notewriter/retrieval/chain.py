"""Chains of retrievers: sources that are searched together and fused, and steps that restrict, reorder and drop.

A configuration lists the parts under `retriever:`. Each part is a mapping with one key that says what it is:

    retriever:
      - index: runs/index/wiki             # sources: index, url, elasticsearch, opensearch, web
      - index: runs/index/wiki-dense
        weight: 0.5
      - distinct: text                     # steps, in the order in which they are applied
      - rerank: BAAI/bge-reranker-v2-m3
        candidates: 50

`index: A` alone, the short form, is `retriever: [{index: A}]`.
"""

import asyncio
import difflib
import functools
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Interval

from notewriter.ground.config import check
from notewriter.ground.errors import UserError
from notewriter.ground.options import with_effect
from notewriter.ground.records import Passage, Question, SearchPart
from notewriter.ground.typecheck import misfit, shown
from notewriter.models import checkpoints
from notewriter.models.cache import ResponseCache
from notewriter.retrieval import Retriever, Scope, check_top_k, index_fingerprint, open_index, read_manifest
from notewriter.retrieval.source import Local, Source, Step
from notewriter.retrieval.sources.documents import Documents, DocumentsPart
from notewriter.retrieval.sources.remote import Remote, ServerPart, health_of
from notewriter.retrieval.sources.search_engine import ElasticsearchPart, OpensearchPart, SearchEngine, content_of
from notewriter.retrieval.sources.web import Web, WebPart
from notewriter.retrieval.steps import fusion
from notewriter.retrieval.steps.extract import Extract, ExtractPart
from notewriter.retrieval.steps.rerank import CrossEncoderRerank, LlmRerank, LlmRerankPart, RerankPart
from notewriter.retrieval.steps.scope import Scopes, WithinPart, digest_of

Part = dict[str, Any]
"""A part as the configuration writes it."""


@dataclass(frozen=True, slots=True)
class IndexPart:
    """`index`: a folder made by `notewriter index`. `weight` is that of its ranking in the fusion."""

    index: str
    weight: Annotated[float, Interval(gt=0)] = 1.0


@dataclass(frozen=True, slots=True)
class DistinctPart:
    """`distinct`: keep only the best passage of those with the same `text`, or the same `title`."""

    distinct: Literal["text", "title"]


class Found(NamedTuple):
    """The passages of a search, and what each part of the chain did; empty for a single index."""

    passages: list[Passage]
    parts: list[SearchPart]


class Distinct:
    """Drops all but the best passage of those that share text or title, ignoring case and white space."""

    def __init__(self, part: DistinctPart) -> None:
        self.name = f"distinct {part.distinct}"
        self._field = part.distinct

    def candidates(self, top_k: int) -> int:
        """How many passages it needs in order to return `top_k`, if no more than half are dropped."""
        return 2 * top_k

    async def check(self) -> None:
        """Nothing can be missing."""

    async def apply(self, query: str, passages: list[Passage]) -> list[Passage]:
        """The first passage of each text or title."""
        first: dict[str, Passage] = {}
        for passage in passages:
            first.setdefault(" ".join(getattr(passage, self._field).casefold().split()), passage)
        return list(first.values())

    async def close(self) -> None:
        """Nothing is open."""


def _local(part: IndexPart) -> Local:
    source = (read_manifest(part.index) or {}).get("source")
    return Local(open_index(part.index), part.index, source if isinstance(source, str) else "")


SOURCES: dict[str, tuple[Any, Callable[[Any], Source]]] = {
    "index": (IndexPart, _local),
    "documents": (DocumentsPart, Documents),
    "url": (ServerPart, Remote),
    "elasticsearch": (ElasticsearchPart, SearchEngine),
    "opensearch": (OpensearchPart, SearchEngine),
    "web": (WebPart, Web),
}
"""The key that names a source -> its options, and what opens it."""

STEPS: dict[str, tuple[Any, Callable[[Any, ResponseCache | None], Step]]] = {
    "distinct": (DistinctPart, lambda part, cache: Distinct(part)),
    "rerank": (RerankPart, lambda part, cache: CrossEncoderRerank(part)),
    "llm_rerank": (LlmRerankPart, LlmRerank),
    "extract": (ExtractPart, lambda part, cache: Extract(part)),
}
"""The key that names a step -> its options, and what opens it."""

PARTS = {name: kind for name, (kind, _) in {**SOURCES, **STEPS}.items()} | {"within": WithinPart}


def parts_of(index: Sequence[str] | None, retriever: Sequence[Part] | None) -> list[Part]:
    """The parts of a command's retriever; `index` is the short form. Empty if neither is given.

    Raises:
        UserError: both are given, or a part is not valid.
    """
    if index and retriever:
        raise UserError("index and retriever are both given; write each index as a part of retriever: {index: PATH}")
    parts = list(retriever) if retriever else [{"index": path} for path in index or []]
    if parts:
        _read(parts)
    return parts


class Chain:
    """An open chain of retrievers, for the tasks of one event loop; close it at the end.

    Raises:
        UserError: a part is not valid or cannot be opened.
    """

    def __init__(self, parts: Sequence[Part], cache: ResponseCache | None = None) -> None:
        """`cache` stores the replies of language models that rerank."""
        read = _read(parts)
        self._sources: list[Source] = [SOURCES[kind][1](part) for kind, part in read if kind in SOURCES]
        self._weights: list[float] = [part.weight for kind, part in read if kind in SOURCES]
        self._steps: list[Step] = [STEPS[kind][1](part, cache) for kind, part in read if kind in STEPS]
        self._scopes = next((Scopes(part) for kind, part in read if kind == "within"), None)
        self._is_single = len(parts) == 1
        self._parts = parts

    @functools.cached_property
    def fingerprint(self) -> str:
        """As `fingerprint`; asks the servers of the chain once, and not in an event loop."""
        return fingerprint(self._parts)

    @property
    def corpus(self) -> str:
        """Identifies the corpus if all sources share one; else empty."""
        corpora = {source.corpus for source in self._sources}
        return corpora.pop() if len(corpora) == 1 else ""

    async def check(self) -> None:
        """Check servers and models before any work is done.

        Raises:
            UserError: one cannot be reached or used.
        """
        parts: list[Source | Step] = [*self._sources, *self._steps]
        await asyncio.gather(*(part.check() for part in parts))

    def scope_of(self, question: Question | None) -> Scope | None:
        """What the searches of a question are restricted to; None for the whole corpus.

        Raises:
            UserError: the chain restricts its searches, and the question's documents are not known.
        """
        return self._scopes.of(question) if self._scopes else None

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> Found:
        """At most `top_k` passages of the scope, best first.

        Raises:
            UserError: `top_k` is below 1, or a part fails.
        """
        check_top_k(top_k)
        if self._is_single:
            return Found(await self._sources[0].search(query, top_k, scope), [])
        depth, depths = top_k, list[int]()
        for step in reversed(self._steps):
            depth = step.candidates(depth)
            depths.insert(0, depth)
        log: list[SearchPart] = []
        rankings = await asyncio.gather(
            *(_timed(source.name, source.search(query, depth, scope), top_k) for source in self._sources)
        )
        log += [done for _, done in rankings]
        passages = rankings[0][0]
        if len(rankings) > 1:
            corpora = [source.corpus for source in self._sources]
            passages = fusion.fuse([found for found, _ in rankings], corpora, self._weights)[:depth]
        for step, most in zip(self._steps, depths, strict=True):
            if isinstance(step, Extract):
                # Sentences of passages that were only candidates would displace those of the best ones.
                passages = passages[:most]
            passages, done = await _timed(step.name, step.apply(query, passages), top_k)
            log.append(done)
        return Found(passages[:top_k], log)

    async def close(self) -> None:
        """Close every part."""
        parts: list[Source | Step] = [*self._sources, *self._steps]
        await asyncio.gather(*(part.close() for part in parts))


async def find(retriever: "Chain | Retriever", query: str, top_k: int, question: Question | None = None) -> Found:
    """Search a chain for a question, or a single retriever in a thread of its own."""
    if isinstance(retriever, Chain):
        return await retriever.search(query, top_k, retriever.scope_of(question))
    return Found(await asyncio.to_thread(retriever.search, query, top_k), [])


CONTENTS: dict[str, Callable[[Part], str | None]] = {
    "index": lambda part: index_fingerprint(part["index"]),
    "documents": lambda part: index_fingerprint(part["documents"]),
    "url": lambda part: (health_of(part["url"]) or {}).get("fingerprint"),
    "elasticsearch": content_of,
    "opensearch": content_of,
    "within": lambda part: digest_of(part["within"]),
    "rerank": lambda part: checkpoints.fingerprint(part["rerank"]),
    "extract": lambda part: checkpoints.fingerprint(part["extract"]),
}
"""The setting of a part that names a path or an address -> a fingerprint of what is there."""


def identity(part: Part) -> dict[str, Any]:
    """The settings of a part that can change what it finds: not where it is, nor how it is asked.

    What is at an address is compared by its contents (`contents`).
    """
    return with_effect(part, *(PARTS[key] for key in part if key in PARTS))


def contents(part: Part) -> dict[str, str]:
    """The fingerprints of what is behind a part's paths and addresses, by setting; none of what is not known.

    Asks servers, so not in an event loop.
    """
    found = {key: CONTENTS[key](part) for key in part if key in CONTENTS}
    # The fingerprint of an unknown model is its name.
    return {key: content for key, content in found.items() if content and content != part[key]}


def fingerprint(parts: Sequence[Part]) -> str:
    """A hash of what a chain finds: its parts and the contents behind their paths and addresses."""
    known = [identity(part) | contents(part) for part in parts]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


async def _timed(name: str, work: Awaitable[list[Passage]], top_k: int) -> tuple[list[Passage], SearchPart]:
    start = time.perf_counter()
    found = await work
    seconds = round(time.perf_counter() - start, 4)
    ids = [passage.id for passage in found[:top_k]]
    return found, SearchPart(part=name, found=len(found), ids=ids, seconds=seconds)


def _read(parts: Sequence[Part]) -> list[tuple[str, Any]]:
    """The kind and the checked options of each part.

    Raises:
        UserError: a part is not valid, there is no source, or an index is listed twice.
    """
    read = [
        _read_part(part, f"retriever[{number}]" if len(parts) > 1 else "retriever") for number, part in enumerate(parts)
    ]
    kinds = [kind for kind, _ in read]
    if not set(kinds) & set(SOURCES):
        raise UserError(f"retriever: has no source; add one of: {', '.join(SOURCES)}")
    if kinds.count("within") > 1:
        raise UserError("retriever: within is given twice; name one key or file")
    sources = [_place(kind, part) for kind, part in read if kind in SOURCES]
    for (kind, part), place in zip(read, (_place(*each) for each in read), strict=True):
        if sources.count(place) > 1:
            raise UserError(f"{getattr(part, kind)}: this {kind} is listed twice; list each one once")
    return read


def _place(kind: str, part: Any) -> tuple[str, ...]:
    """Where a source searches."""
    where = getattr(part, kind)
    return (
        kind,
        str(Path(where).resolve()) if kind in ("index", "documents") else where,
        *(getattr(part, name, "") for name in ("name", "search")),
    )


def _read_part(part: Mapping[str, Any], place: str) -> tuple[str, Any]:
    named = [key for key in part if key in PARTS]
    if len(named) != 1:
        raise UserError(f"{place}: {shown(dict(part))} must have exactly one of the keys {', '.join(PARTS)}")
    (kind,) = named
    options = PARTS[kind]
    known = [field.name for field in fields(options)]
    if unknown := next((key for key in part if key not in known), None):
        near = difflib.get_close_matches(unknown, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"{kind} has: {', '.join(known)}"
        raise UserError(f"{place}: unknown key {unknown!r}; {remedy}")
    if problem := misfit(dict(part), options, place):
        raise UserError(problem)
    if missing := next((f.name for f in fields(options) if f.default is MISSING and f.name not in part), None):
        raise UserError(f"{place}: {kind} needs {missing!r}; add it")
    read = options(**part)
    try:
        check(read)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    return kind, read
