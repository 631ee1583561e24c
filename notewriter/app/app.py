"""`notewriter app`: a page on this machine, to ask questions, to judge by hand and to watch runs.

It prints an address that only this machine can open, with a token that keeps others out. `--pairs` or `--runs` give the
texts to judge, the options of `notewriter ask` the model that answers, `--beside` a second one for comparison, and
`--watch` the runs to watch. `notewriter app labels` measures judges by people's answers.
"""

import contextlib
import re
import secrets
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.data.by_hand.items import ByHandArguments, SampleArguments, sample
from notewriter.evaluation.asking import AskArguments
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError, install
from notewriter.ground.event_loop import run_async
from notewriter.ground.options import option
from notewriter.models.roles import ModelArguments

HOST = "127.0.0.1"

DRAIN_SECONDS = 2
"""Seconds that requests in flight may take to finish when the page is stopped."""

_NAME = re.compile(r"\w[\w.-]*")


@dataclass
class AppArguments:
    """The page's address, its judge's name, and the second method to ask."""

    judge_name: str | None = option(
        None, "name of the person who judges by hand; the answers are kept in LABELS/NAME.jsonl"
    )
    beside: dict[str, Any] | None = option(
        None,
        "a second answer to the same questions, side by side: the options of `notewriter ask` that "
        'differ, e.g. {"model": "trained"} or {"method": "vanilla", "method_options": {"top_k": 5}}',
    )
    watch: list[str] | None = option(
        None,
        "the runs to watch: files or recipes of pipelines, and run folders or folders above them, such "
        "as the cells of a table",
    )
    page_port: Annotated[int, Interval(ge=0, le=65_535)] = option(8002, "port of the page; 0 chooses a free one")


def main(argv: list[str]) -> None:
    """Serve the page until interrupted.

    Raises:
        UserError: the extra `serve` is not installed, the port is in use, or the inputs of the page cannot be used.
    """
    page, by_hand, draw, arguments, models = parse(
        [AppArguments, ByHandArguments, SampleArguments, AskArguments, ModelArguments],
        argv,
        prog="notewriter app",
        description=__doc__,
    )
    try:
        import uvicorn

        from notewriter.app import asking, judging, watching
        from notewriter.app.application import AppSection, make_app
    except ImportError as error:
        raise UserError(f"the page needs {error.name}; {install('serve')}") from error
    judges, asks = bool(by_hand.pairs or by_hand.runs), bool(models.serve or models.base_url or models.models)
    if not (judges or asks or page.watch):
        raise UserError(
            "nothing to show: give --pairs FOLDER or --runs BEFORE AFTER to judge by hand, --serve or --base_url with "
            "--index to ask, or --watch PIPELINE_OR_FOLDER"
        )
    sections: list[AppSection] = []
    with contextlib.ExitStack() as opened:
        answerers = []
        if asks:
            folder = Path(arguments.output_dir)
            sides = [(arguments, models)]
            if page.beside is not None:
                sides.append(asking.changed(arguments, models, page.beside))
                opened.enter_context(asking.served_together(sides, folder))
            for side, own in zip(sides, (folder, folder / "beside"), strict=False):
                answerers.append(opened.enter_context(asking.answerer(*side, own)))
        if judges:
            name = _checked(page.judge_name)
            items = sample(by_hand, draw)
            judged = opened.enter_context(judging.judging(items, name, draw.seed, Path(by_hand.labels)))
            about = f"{len(items)} times two texts, as {name}"
            sections.append(AppSection(judging.PATH, "Judge by hand", about, judged.routes))
        if page.watch:
            watched = watching.Watching(page.watch)
            sections.append(AppSection(watching.PATH, "Watch", ", ".join(page.watch), watched.routes))
        listener = opened.enter_context(_listener(page.page_port))
        port, token = listener.getsockname()[1], secrets.token_urlsafe(32)

        async def serve() -> None:
            async with asking.asking(answerers) as asked:

                class Server(uvicorn.Server):
                    """Ends the streams of answers first, which the library would wait for and then cancel."""

                    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                        asked.stop()
                        await super().shutdown(sockets)

                if answerers:
                    about = " beside ".join(answerer.name for answerer in answerers)
                    sections.insert(0, AppSection(asking.PATH, "Ask", about, asked.routes))
                config = uvicorn.Config(
                    make_app(sections, token, port),
                    log_level="warning",
                    access_log=False,
                    timeout_graceful_shutdown=DRAIN_SECONDS,
                    # No proxy has a place before it.
                    proxy_headers=False,
                    server_header=False,
                )
                sys.stdout.write(f"open http://{HOST}:{port}/?token={token} in a browser on this machine\n")
                sys.stdout.flush()
                await Server(config).serve([listener])

        # uvicorn stops in order at SIGTERM and then raises it again.
        run_async(serve())


def _checked(name: str | None) -> str:
    if name is None:
        raise UserError("judge_name is missing; give the name of the person who judges, for example --judge_name ana")
    if not _NAME.fullmatch(name):
        raise UserError(f"judge_name: {name!r} cannot name a file; use letters, digits, . - and _")
    return name


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UserError(f"{HOST}:{port}: cannot listen there ({error.strerror}); choose another --page_port") from error
