"""Chains of retrievers: sources that are searched together and fused, and steps that restrict, reorder and drop.

A configuration lists the parts under `retriever:`. Each part is a mapping, in which one key names its kind:

    retriever:
      - index: runs/index/wiki             # a source
      - index: runs/index/wiki-dense
        weight: 0.5
      - distinct: text                     # steps, in the order in which they are applied
      - rerank: BAAI/bge-reranker-v2-m3
        candidates: 50

`index: A` alone, the short form, is `retriever: [{index: A}]`.
"""

import asyncio
import functools
import hashlib
import json
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NamedTuple

from notewriter.ground import typed
from notewriter.ground.config import check
from notewriter.ground.errors import UserError, meant
from notewriter.ground.options import with_effect
from notewriter.ground.plugins import Plugins, is_place
from notewriter.ground.records import Passage, Question, SearchPart
from notewriter.ground.typed import shown
from notewriter.models.cache import ResponseCache
from notewriter.retrieval import fusion
from notewriter.retrieval.protocol import (
    Kind,
    OpenSource,
    OpenStep,
    Restriction,
    Retriever,
    Scope,
    Source,
    Step,
    check_top_k,
)
from notewriter.retrieval.sources import documents, index, remote, web
from notewriter.retrieval.steps import distinct, extract, llm_rerank, rerank, shuffle, within

Part = dict[str, Any]
"""A part as the configuration writes it."""

SOURCES: dict[str, Source] = {
    "index": index.SOURCE,
    "documents": documents.SOURCE,
    "url": remote.SOURCE,
    "web": web.SOURCE,
}
STEPS: dict[str, Step] = {
    "distinct": distinct.STEP,
    "rerank": rerank.STEP,
    "llm_rerank": llm_rerank.STEP,
    "extract": extract.STEP,
    "shuffle": shuffle.STEP,
}
RESTRICTIONS: dict[str, Restriction] = {"within": within.RESTRICTION}

PARTS: Plugins[Kind] = Plugins("retrievers", Kind, {**SOURCES, **STEPS, **RESTRICTIONS})
"""All kinds of parts, those of other packages included. A plug-in's option has the name of its object."""


class Found(NamedTuple):
    """The passages of a search, with the record of each part of the chain; empty for a single index."""

    passages: list[Passage]
    parts: list[SearchPart]


def kinds_of(part: Mapping[str, Any]) -> dict[str, Kind]:
    """The keys of a part that name its kind, exactly one in a valid part, with that kind."""
    ours = {key: kind for key, kind in PARTS.items() if key in part}
    return ours or {key: PARTS[key] for key in part if key in PARTS}


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


def without_models(parts: Sequence[Part]) -> list[Part]:
    """The parts that call no language model, as for a dry run."""
    kinds = [(part, kind) for part in parts for kind in kinds_of(part).values()]
    return [part for part, kind in kinds if not (isinstance(kind, Step) and kind.calls_model)]


def is_local(part: Part) -> bool:
    """Whether a part only reads files of this machine."""
    return all(kind.is_local for kind in kinds_of(part).values())


def only_local(parts: Sequence[Part]) -> list[Part]:
    """The parts of a retriever that a folder has recorded, which only read files of this machine.

    Raises:
        UserError: a part is not valid, or may contact an address.
    """
    for key, kind, _ in _read(parts):
        if not kind.is_local:
            raise UserError(
                f"retriever: {key}: an address or a key that a folder names is not used; give the retriever to search "
                "with --index or --retriever"
            )
    return list(parts)


def restrictions(parts: Sequence[Part]) -> list[str]:
    """The keys of parts that restrict the searches of a question."""
    return [key for part in parts for key, kind in kinds_of(part).items() if isinstance(kind, Restriction)]


class Chain:
    """An open chain of retrievers, for the tasks of one event loop; close it at the end.

    Raises:
        UserError: a part is not valid or cannot be opened.
    """

    def __init__(self, parts: Sequence[Part], cache: ResponseCache | None = None) -> None:
        """`cache` stores the replies of language models that rerank."""
        read = _read(parts)
        self._sources: list[OpenSource] = [kind.open(each) for _, kind, each in read if isinstance(kind, Source)]
        self._weights: list[float] = [each.weight for _, kind, each in read if isinstance(kind, Source)]
        self._steps: list[OpenStep] = [kind.open(each, cache) for _, kind, each in read if isinstance(kind, Step)]
        self._restriction = next((kind.open(each) for _, kind, each in read if isinstance(kind, Restriction)), None)
        self._opened: list[OpenSource | OpenStep] = [*self._sources, *self._steps]
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
        await asyncio.gather(*(part.check() for part in self._opened))

    def scope_of(self, question: Question | None) -> Scope | None:
        """The scope of a question's searches; None for the whole corpus.

        Raises:
            UserError: the chain restricts its searches, and the question's documents are not known.
        """
        return self._restriction.of(question) if self._restriction else None

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> Found:
        """At most `top_k` passages of the scope, best first.

        Raises:
            UserError: `top_k` is below 1, or a part fails.
        """
        check_top_k(top_k)
        if self._is_single:
            return Found(await self._sources[0].search(query, top_k, scope), [])
        # How many passages each step has to return: as many as the steps after it need.
        depths = [top_k]
        for step in reversed(self._steps):
            depths.insert(0, step.candidates(depths[0]))
        log: list[SearchPart] = []
        depth = depths.pop(0)
        rankings = await asyncio.gather(
            *(_timed(source.name, source.search(query, depth, scope), top_k) for source in self._sources)
        )
        log += [done for _, done in rankings]
        passages = rankings[0][0]
        if len(rankings) > 1:
            corpora = [source.corpus for source in self._sources]
            passages = fusion.fuse([ranking for ranking, _ in rankings], corpora, self._weights)[:depth]
        for step, depth in zip(self._steps, depths, strict=True):
            passages, done = await _timed(step.name, step.apply(query, passages, depth), top_k)
            log.append(done)
        return Found(passages[:top_k], log)

    async def close(self) -> None:
        """Close every part."""
        await asyncio.gather(*(part.close() for part in self._opened))


async def find(retriever: "Chain | Retriever", query: str, top_k: int, question: Question | None = None) -> Found:
    """Search a chain for a question, or a single retriever in a thread of its own."""
    if isinstance(retriever, Chain):
        return await retriever.search(query, top_k, retriever.scope_of(question))
    return Found(await asyncio.to_thread(retriever.search, query, top_k), [])


def identity(part: Part) -> dict[str, Any]:
    """The settings of a part that can change its results: neither its place nor the manner of requests.

    What is at an address is compared by its contents (`contents`).
    """
    return with_effect(part, *(kind.options for kind in kinds_of(part).values()))


def contents(part: Part) -> dict[str, str]:
    """The fingerprint of the contents behind a part's path or address, by its key; empty if it is not known.

    Asks servers, so not in an event loop.
    """
    if not kinds_of(part):
        return {}
    key, kind, options = _read_part(part, "retriever")
    content = kind.identity(options)
    return {key: content} if content else {}


def fingerprint(parts: Sequence[Part]) -> str:
    """A hash of a chain: its parts and the contents behind their paths and addresses."""
    identities = [identity(part) | contents(part) for part in parts]
    return hashlib.sha256(json.dumps(identities, sort_keys=True).encode()).hexdigest()


async def _timed(name: str, work: Awaitable[list[Passage]], top_k: int) -> tuple[list[Passage], SearchPart]:
    start = time.perf_counter()
    passages = await work
    seconds = round(time.perf_counter() - start, 4)
    ids = [passage.id for passage in passages[:top_k]]
    return passages, SearchPart(part=name, found=len(passages), ids=ids, seconds=seconds)


def _read(parts: Sequence[Part]) -> list[tuple[str, Kind, Any]]:
    """The key, the kind and the checked options of each part.

    Raises:
        UserError: a part is not valid, there is no source, or one is listed twice.
    """
    for key in (key for part in parts for key in part if is_place(key)):
        PARTS.choose("part of a retriever", key)
    read = [
        _read_part(part, f"retriever[{number}]" if len(parts) > 1 else "retriever") for number, part in enumerate(parts)
    ]
    if not any(isinstance(kind, Source) for _, kind, _ in read):
        raise UserError(f"retriever: has no source; add one of: {', '.join(SOURCES)}")
    restrictions = [key for key, kind, _ in read if isinstance(kind, Restriction)]
    if len(restrictions) > 1:
        raise UserError(f"retriever: {restrictions[1]} is given twice; name one key or file")
    places = set[tuple[str, ...]]()
    for key, kind, options in read:
        place = (key, *_place(options))
        if isinstance(kind, Source) and place in places:
            raise UserError(f"{getattr(options, _field(key))}: this {key} is listed twice; list each one once")
        places.add(place)
    return read


def _place(options: Any) -> Iterator[str]:
    """The searched place: the options without a default. Paths are made absolute, which does no harm to addresses."""
    required = (each for each in fields(options) if each.default is each.default_factory is MISSING)
    return (str(Path(str(getattr(options, each.name))).resolve()) for each in required)


def _field(key: str) -> str:
    """The option that a key names; a plug-in's is the name of its object in `package.module:object`."""
    return key.rpartition(":")[2]


def _read_part(part: Mapping[str, Any], place: str) -> tuple[str, Kind, Any]:
    kinds = kinds_of(part)
    if len(kinds) != 1:
        raise UserError(f"{place}: {shown(dict(part))} must have exactly one of the keys {', '.join(PARTS)}")
    ((key, kind),) = kinds.items()
    settings = {_field(each) if each == key else each: value for each, value in part.items()}
    names = [field.name for field in fields(kind.options)]
    if unknown := next((each for each in settings if each not in names), None):
        remedy = meant(unknown, names, f"{key} has: {', '.join(names)}")
        raise UserError(f"{place}: unknown key {unknown!r}; {remedy}")
    options: Any = typed.read(settings, kind.options, place)
    try:
        check(options)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    return key, kind, options
