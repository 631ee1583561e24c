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
from notewriter.ground.typecheck import misfit
from notewriter.models.connection import read_key
from notewriter.retrieval import Scope
from notewriter.retrieval.source import address, within
from notewriter.retrieval.sources.service import Service

MOST_HITS = 100
"""Hits that Serper returns at most."""


@dataclass(frozen=True, slots=True)
class WebPart:
    """`web`: the address of a search API in Serper's form.

    The key is read from the environment variable `api_key_env` and sent, but written nowhere. `timeout` is in
    seconds and covers the whole reply, `attempts` the number of tries.
    """

    web: str = field(metadata={"effect": address})
    weight: Annotated[float, Interval(gt=0)] = 1.0
    timeout: Annotated[float, Interval(gt=0)] = field(default=30.0, metadata={"effect": False})
    attempts: Annotated[int, Interval(ge=1)] = field(default=6, metadata={"effect": False})
    api_key_env: Annotated[str, MinLen(1)] = field(default="SERPER_API_KEY", metadata={"effect": False})


class Web:
    """A web search API, as a source of a chain.

    Raises:
        UserError: the address is not usable, or the key is not set.
    """

    def __init__(self, part: WebPart) -> None:
        key = read_key(part.api_key_env)
        if not key:
            raise UserError(f"{part.api_key_env}: is not set; set this environment variable to the key of {part.web}")
        self.name, self.corpus = part.web, "web"
        self._service = Service(
            part.web, "retriever: web", part.timeout, part.attempts, {"X-API-KEY": key}, part.api_key_env
        )

    async def check(self) -> None:
        """Searches cost money, so the first one shows whether the service can be used."""

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
    hits = reply.get("organic", []) if isinstance(reply, dict) else None
    if problem := misfit(hits, list[dict[str, Any]], "organic"):
        raise ValueError(problem)
    assert isinstance(hits, list)
    passages = [
        Passage(*(without_surrogates(str(hit.get(key) or "")) for key in ("link", "title", "snippet"))) for hit in hits
    ]
    return [passage for passage in passages if passage.id]
