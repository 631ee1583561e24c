"""Web search as a source of a chain, in the form of Serper's API (https://serper.dev).

`POST /search` with `{"q": query, "num": n}` and the key in the header X-API-KEY; the reply lists the hits under
`organic`, each with `title`, `link` and `snippet`. A passage is a hit's snippet, and its id the link.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.ground.text import without_surrogates
from notewriter.ground.typed import misfit
from notewriter.models.connection import read_key
from notewriter.retrieval.protocol import OpenSource, Scope, Source
from notewriter.retrieval.sources.service import Service, ServiceOptions, within

MOST_HITS = 100
"""Hits that Serper returns at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions(ServiceOptions):
    """`web`: the address of a search API in Serper's form."""

    # Its address has no effect on results, but that there is one does.
    web: str = field(metadata={"effect": lambda address: ""})
    timeout: Annotated[float, Interval(gt=0)] = field(default=30.0, metadata={"effect": False})
    api_key_env: Annotated[str, MinLen(1)] = field(default="SERPER_API_KEY", metadata={"effect": False})


class Web(OpenSource):
    """A web search API, as a source of a chain; not checked before the first search, since searches cost money.

    Raises:
        UserError: the address is not usable, or the key is not set.
    """

    def __init__(self, options: WebOptions) -> None:
        if not read_key(options.api_key_env):
            raise UserError(
                f"{options.api_key_env}: is not set; set this environment variable to the key of {options.web}"
            )
        self.name, self.corpus = options.web, "web"
        self._service = Service(options.web, "retriever: web", options, lambda key: {"X-API-KEY": key})

    async def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """At most `top_k` hits, best first.

        Raises:
            UserError: no usable reply.
        """

        async def find(count: int) -> list[Passage]:
            body = {"q": without_surrogates(query), "num": min(count, MOST_HITS)}
            return (await self._service.post(body, _hits))[:count]

        return await within(scope, find, top_k, MOST_HITS)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()


def _hits(reply: Any) -> list[Passage]:
    # Nothing found has no list; the reply of another service has none either.
    nothing: list[Any] | None = [] if isinstance(reply, dict) and "searchParameters" in reply else None
    hits = reply.get("organic", nothing) if isinstance(reply, dict) else None
    if problem := misfit(hits, list[dict[str, Any]], "organic"):
        raise ValueError(problem)
    assert isinstance(hits, list)
    passages = [
        Passage(*(without_surrogates(str(hit.get(key) or "")) for key in ("link", "title", "snippet"))) for hit in hits
    ]
    return [passage for passage in passages if passage.id]


SOURCE = Source(options=WebOptions, open=Web)
