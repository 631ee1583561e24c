"""HTTP services that are searched: their options, their replies, and searches that they cannot restrict themselves."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.options import option
from notewriter.ground.records import Passage
from notewriter.ground.typed import shown
from notewriter.models.connection import UnreadableReply, connect, is_transient, read_key, reason, retrying
from notewriter.retrieval.protocol import Scope, SourceOptions

if TYPE_CHECKING:
    import openai
else:
    openai = Lazy("openai")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions(SourceOptions):
    """The common options of all services."""

    timeout: Annotated[float, Interval(gt=0)] = option(60.0, "seconds that the service may be silent", effect=False)
    attempts: Annotated[int, Interval(ge=1)] = option(6, "number of attempts", effect=False)
    api_key_env: Annotated[str, MinLen(1)] | None = option(
        None, "the environment variable of the service's key", effect=False
    )


class Service:
    """A service that speaks JSON, used by the tasks of one event loop.

    Args:
        address: where requests go.
        place: the option that names it, for errors.
        options: how it is asked.
        headers: the headers of every request, given the key.

    Raises:
        UserError: the address or the key is not usable.
    """

    def __init__(
        self, address: str, place: str, options: ServiceOptions, headers: Callable[[str], dict[str, str]]
    ) -> None:
        self.address = address
        self._options = options
        key = read_key(options.api_key_env) if options.api_key_env else ""
        self._headers = {"Authorization": openai.Omit(), **(headers(key) if key else {})}
        self._api = connect(address, options.timeout, place=place)

    async def post(self, body: object, read: Callable[[Any], T]) -> T:
        """The JSON reply to a request, after `read`.

        `read` raises ValueError for a reply of the wrong form, after which the request is sent again.

        Raises:
            UserError: no usable reply after all attempts, or the service refuses the request.
        """

        async def ask() -> T:
            sent: Any = {"headers": self._headers}
            return _read(await self._api.post(self.address, body=body, cast_to=object, options=sent), read)

        return await self._until_answered(ask, self._options.attempts)

    async def get(self, address: str, read: Callable[[Any], T], attempts: int = 3) -> T:
        """The JSON at another address of the service, after `read`; errors are as for `post`."""

        async def ask() -> T:
            sent: Any = {"headers": self._headers, "timeout": min(self._options.timeout, 20.0)}
            return _read(await self._api.get(address, cast_to=object, options=sent), read)

        return await self._until_answered(ask, attempts)

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def _until_answered(self, ask: Callable[[], Awaitable[T]], attempts: int) -> T:
        try:
            return await retrying(attempts)(ask)
        except (openai.APIError, UnreadableReply) as error:
            if getattr(error, "status_code", None) in {401, 403} and self._options.api_key_env:
                raise UserError(
                    f"{self.address}: rejects the key; set a valid one in the environment variable "
                    f"{self._options.api_key_env}"
                ) from error
            words = reason(error)
            if not is_transient(error):
                raise UserError(f"{self.address}: refuses the request ({words}); correct the retriever") from error
            raise UserError(
                f"{self.address}: no usable reply after {attempts} attempts ({words}); finished questions are kept; "
                "run the same command again when it is up"
            ) from error


def _read(reply: object, read: Callable[[Any], T]) -> T:
    try:
        return read(reply)
    except (ValueError, RecursionError) as error:
        raise UnreadableReply(f"a reply of another form, {shown(reply)}: {error}") from error


async def within(
    scope: Scope | None, find: Callable[[int], Awaitable[list[Passage]]], top_k: int, deepest: int
) -> list[Passage]:
    """The first `top_k` passages of a scope, found by fetching more and more: `find` takes the number to fetch.

    At most `deepest` passages are fetched.
    """
    if scope is None:
        return await find(top_k)
    count = min(deepest, max(64, 4 * top_k))
    while True:
        passages = await find(count)
        inside = [passage for passage in passages if passage.id in scope or passage.title in scope]
        if len(inside) >= top_k or len(passages) < count or count >= deepest:
            return inside[:top_k]
        count = min(deepest, 8 * count)
