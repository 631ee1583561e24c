"""`notewriter page`: a page on this machine, to judge by hand.

It prints an address that only this machine can open, with a token that keeps others out.
"""

import asyncio
import contextlib
import re
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Interval

from notewriter.data.by_hand.items import ByHandArguments, SampleArguments, sample
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError, install

if TYPE_CHECKING:
    from notewriter.app.application import Section

HOST = "127.0.0.1"

DRAIN_SECONDS = 2
"""How long requests in flight may take to finish when the page is stopped."""

_NAME = re.compile(r"\w[\w.-]*")


@dataclass
class PageArguments:
    """Where the page listens, and who judges."""

    judge_name: str | None = field(
        default=None, metadata={"help": "who judges by hand; the answers are kept in LABELS/NAME.jsonl"}
    )
    port: Annotated[int, Interval(ge=0, le=65_535)] = field(default=8002, metadata={"help": "0 chooses a free port"})


def main(argv: list[str]) -> None:
    """Serve the page until interrupted.

    Raises:
        UserError: the extra `serve` is not installed, the port is in use, or what is to be shown cannot be read.
    """
    page, by_hand, draw = parse(
        (PageArguments, ByHandArguments, SampleArguments), argv, prog="notewriter page", description=__doc__
    )
    try:
        import uvicorn

        from notewriter.app.application import make_app
    except ImportError as error:
        raise UserError(f"the page needs {error.name}; {install('serve')}") from error
    with contextlib.ExitStack() as opened:
        sections = [opened.enter_context(_judging(page, by_hand, draw))]
        listener = opened.enter_context(_listener(page.port))
        port, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        config = uvicorn.Config(
            make_app(sections, token, port),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            # Proxies have no place before it.
            proxy_headers=False,
            server_header=False,
        )
        sys.stdout.write(f"open http://{HOST}:{port}/?token={token} in a browser on this machine; Ctrl-C ends it\n")
        sys.stdout.flush()
        # uvicorn stops in order at SIGTERM and then raises it again.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        asyncio.run(uvicorn.Server(config).serve([listener]))


@contextlib.contextmanager
def _judging(page: PageArguments, by_hand: ByHandArguments, draw: SampleArguments) -> "Iterator[Section]":
    from notewriter.app import judging
    from notewriter.app.application import Section

    if not page.judge_name:
        raise UserError("judge_name is missing; say who judges, for example --judge_name ana")
    if not _NAME.fullmatch(page.judge_name):
        raise UserError(f"judge_name: {page.judge_name!r} cannot name a file; use letters, digits, . - and _")
    items = sample(by_hand, draw)
    with judging.judging(items, page.judge_name, draw.seed, Path(by_hand.labels)) as judged:
        yield Section(
            judging.PATH, "Judge by hand", f"{len(items)} pairs of texts, as {page.judge_name}", judged.routes
        )


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UserError(f"{HOST}:{port}: cannot listen there ({error.strerror}); choose another --port") from error
