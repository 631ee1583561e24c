"""`notewriter serve retriever`: serve a retriever over HTTP.

The contract is that of Search-R1's server: `POST /retrieve` and `GET /health` (docs/retrieval.md).
"""

import asyncio
import gc
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict

from annotated_types import Interval, MinLen

from notewriter.datasets.questions import INDEX, RETRIEVER
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError, install
from notewriter.ground.loopback import NAMES, body_of, is_of_a_page
from notewriter.ground.options import option
from notewriter.ground.typed import misfit
from notewriter.retrieval.chain import Chain, parts_of, restrictions
from notewriter.retrieval.sources.remote import SCHEMA, reply_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 4 * 2**20
"""The largest request accepted."""

MAX_TOP_K, MAX_QUERIES = 1000, 512
"""The most passages per query and queries per request."""

MAX_WAITING = 4096
"""Searches that may run or wait; further requests are answered with 503."""

DRAIN_SECONDS = 5
"""How long requests in flight may take to finish when the server is stopped."""


@dataclass
class RetrieverServeArguments:
    """The retriever to serve, and its address."""

    index: list[str] | None = field(default=None, metadata=INDEX)
    retriever: list[dict[str, Any]] | None = field(default=None, metadata=RETRIEVER)
    host: str = option("127.0.0.1", "the address to listen on; 0.0.0.0 serves the whole network, without a password")
    port: Annotated[int, Interval(ge=0, le=65_535)] = option(8001, "0 chooses a free port")
    top_k: Annotated[int, Interval(ge=1, le=MAX_TOP_K)] = option(
        5, "passages per query for requests that name no number"
    )
    concurrency: Annotated[int, Interval(ge=1)] = option(64, "searches that run at once; others wait their turn")


class RetrieveRequest(TypedDict, total=False):
    """The body of `POST /retrieve`; `topk` of 0 or None stands for the server's own number."""

    queries: Required[Annotated[list[str], MinLen(1)]]
    topk: int | None
    return_scores: bool
    within: list[str] | None


def main(argv: list[str]) -> None:
    """Serve until interrupted.

    Raises:
        UserError: the extra `serve` is not installed, the retriever cannot be opened, or there is no such host or the
            port is in use.
    """
    (arguments,) = parse(RetrieverServeArguments, argv, prog="notewriter serve retriever", description=__doc__)
    parts = parts_of(arguments.index, arguments.retriever)
    if not parts:
        raise UserError("there is nothing to serve; add --index PATH (notewriter index builds one) or --retriever")
    for key in restrictions(parts):
        raise UserError(f"{key} restricts the searches of a question, which a server does not know; set it where used")
    try:
        import uvicorn

        chain = Chain(parts)
        app = make_app(chain, arguments)
    except ImportError as error:
        raise UserError(f"serving needs {error.name}; {install('serve')}") from error
    try:
        listener = socket.create_server((arguments.host, arguments.port), backlog=2048)
    except (OSError, TypeError) as error:  # TypeError: the resolver cannot encode the name
        place, reason = f"{arguments.host}:{arguments.port}", getattr(error, "strerror", error)
        raise UserError(f"{place}: cannot listen there ({reason}); choose another --host or --port") from error
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=DRAIN_SECONDS, http="httptools"
    )

    async def serve() -> None:
        await chain.check()
        # Searching threads give way to the event loop after this many seconds, instead of 5 ms for every socket.
        sys.setswitchinterval(0.0005)
        # Garbage collections need not look through what is loaded by now, which is needed until the end.
        gc.freeze()
        host, port = listener.getsockname()[:2]
        sys.stdout.write(f"serving at http://{host}:{port} (POST /retrieve, GET /health)\n")
        sys.stdout.flush()
        # uvicorn stops in order at SIGTERM and then raises it again; threads that still search then end at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        await uvicorn.Server(config).serve([listener])

    with listener, asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())


def make_app(chain: Chain, arguments: RetrieverServeArguments) -> "Starlette":
    """The ASGI application that serves a checked chain of retrievers, and closes it at the end.

    Raises:
        ImportError: the extra `serve` is not installed.
    """
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    slots = asyncio.Semaphore(arguments.concurrency)
    waiting = 0

    def answer(status: int, body: object, **headers: str) -> Response:
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return Response(content, status, headers, "application/json")

    async def search(request: RetrieveRequest) -> dict[str, object]:
        top_k, within = request.get("topk") or arguments.top_k, request.get("within")
        scope = None if within is None else dict.fromkeys(within)

        async def find(query: str) -> Any:
            async with slots:
                return (await chain.search(query, top_k, scope)).passages

        results = await asyncio.gather(*map(find, request["queries"]))
        return reply_of(results, scores=request.get("return_scores", False))

    async def retrieve(request: Request) -> Response:
        try:
            return await respond(request)
        except asyncio.CancelledError:
            return answer(503, {"detail": "the server stops"})

    def is_foreign(request: Request) -> bool:
        name = request.headers.get("host", "").partition(":")[0]
        return is_of_a_page(request.headers) or (arguments.host in NAMES and name not in NAMES)

    async def respond(request: Request) -> Response:
        nonlocal waiting
        if is_foreign(request):
            return answer(403, {"detail": "the request comes from a web page, or calls this machine by another name"})
        try:
            content = await body_of(request, MAX_BODY_BYTES)
            if content is None:
                raise ValueError(f"the request is larger than {MAX_BODY_BYTES // 2**20} MiB; send fewer queries")
            body = _read(content)
        except ValueError as error:
            return answer(422, {"detail": str(error)})
        except ClientDisconnect:
            return answer(408, {"detail": "the request did not arrive"})
        searches = len(body["queries"])
        # A request that is larger than the limit is admitted alone.
        if waiting and waiting + searches > MAX_WAITING:
            return answer(503, {"detail": "too many queries are waiting; send fewer at once"}, **{"Retry-After": "1"})
        waiting += searches
        try:
            return answer(200, await search(body))
        except UserError as error:
            logger.error("%s", error)
            return answer(502, {"detail": str(error)})
        finally:
            waiting -= searches

    async def health(request: Request) -> Response:
        about = {"schema": SCHEMA, "status": "ok", "corpus": chain.corpus, "fingerprint": chain.fingerprint}
        return answer(200, about)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(lambda: chain.fingerprint)
        try:
            yield
        finally:
            await chain.close()

    routes = [Route("/retrieve", retrieve, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan)


def _read(body: bytes) -> RetrieveRequest:
    """The request in a body.

    Raises:
        ValueError: it is not one, or exceeds a limit; names the right form.
    """
    try:
        request: RetrieveRequest = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the request is not JSON ({error})") from error
    if problem := misfit(request, RetrieveRequest, "request"):
        raise ValueError(f'{problem}; send {{"queries": [...], "topk": 5, "return_scores": true}}')
    if len(request["queries"]) > MAX_QUERIES:
        raise ValueError(f"{len(request['queries'])} queries; send at most {MAX_QUERIES} in a request")
    top_k = request.get("topk")
    if top_k is not None and not 0 <= top_k <= MAX_TOP_K:
        raise ValueError(f"topk: {top_k} is not between 1 and {MAX_TOP_K}")
    return request
