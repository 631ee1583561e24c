"""`notewriter serve CHECKPOINT ...`: serve checkpoints and LoRA adapters to other programs until it is stopped.

    notewriter serve runs/notes-7b runs/query-7b
    notewriter serve retriever --index runs/index       the contract of retrieval servers, with options of its own

A model is called like its folder, and adapters of one base model share a server. While a model is served, the file
<output_dir>/<name>.url has its address, or those of its replicas, as --base_url takes it:

    notewriter evaluate --base_url "$(cat runs/serve/notes-7b.url)" --model notes-7b ...

With --host 0.0.0.0 other machines reach it too; then export OPENAI_API_KEY="$(cat runs/serve/key)" where it is asked.

On Ctrl-C or SIGTERM the address files go away, requests in flight are finished, and the servers stop.
"""

import contextlib
import logging
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground import jsonl
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError, writing
from notewriter.ground.locks import locked
from notewriter.ground.options import option
from notewriter.models.chat_template import check_template
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.nodes import job_nodes
from notewriter.models.serve_options import check_options
from notewriter.models.server import LOOPBACK, READY_TIMEOUT, Server
from notewriter.models.servers import Servers, Wanted

logger = logging.getLogger(__name__)

POLL = 5.0
"""Seconds between checks that the servers are alive."""


@dataclass
class ServeArguments:
    """The options of `notewriter serve`: models and address."""

    checkpoints: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "model folders, LoRA adapters or hub ids; `--checkpoints` may be omitted if they come first"}
    )
    serve_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "vLLM's own options, e.g. {max_model_len: 4096}"}
    )
    host: str = option(
        LOOPBACK,
        "the address to listen at; at 0.0.0.0 other machines reach the server too, with the key in "
        "VLLM_API_KEY or, if that is not set, the one in <output_dir>/key",
    )
    port: Annotated[int, Interval(ge=1, le=65_535)] | None = option(
        None, "port, if there is only one server; default: a free one"
    )
    replicas: Annotated[int, Interval(ge=1, le=256)] = option(1, "servers of each model, each on the next devices")
    ready_timeout: Annotated[float, Interval(gt=0)] = option(
        READY_TIMEOUT, "seconds within which each server must be ready"
    )
    output_dir: str = option("runs/serve", "folder for the addresses and the servers' logs")
    drain_seconds: Annotated[int, Interval(ge=0)] = option(
        60, "seconds that requests in flight may take to finish when the server is stopped"
    )


def main(argv: list[str]) -> None:
    """Serve until a signal comes."""
    words = next((number for number, word in enumerate(argv) if word.startswith("-")), len(argv))
    if words:
        argv = ["--checkpoints", *argv]
    (arguments,) = parse(ServeArguments, argv, prog="notewriter serve", description=__doc__)
    folder = Path(arguments.output_dir)
    with locked(folder, folder / ".lock"), serving(arguments) as names:
        for name, servers in names.items():
            addresses = ",".join(server.base_url for server in servers)
            sys.stdout.write(f"{name}: {addresses}\n")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(POLL)
                for server in {id(each): each for servers in names.values() for each in servers}.values():
                    server.ensure_alive()
        logger.info("stopping when requests in flight are finished, at most %d s", arguments.drain_seconds)


@contextlib.contextmanager
def serving(arguments: ServeArguments) -> Iterator[dict[str, list[Server]]]:
    """The servers of each name, whose addresses are in files while the block runs; other machines need a key.

    Raises:
        UserError: a checkpoint or an option is not valid, two have one name, or a server does not start.
    """
    check_options(arguments.serve_options)
    checkpoints = [Checkpoint(path) for path in dict.fromkeys(arguments.checkpoints)]
    if repeated := [name for name, count in Counter(each.name for each in checkpoints).items() if count > 1]:
        raise UserError(f"checkpoints: two models are called {repeated[0]}; rename a folder")
    folder = Path(arguments.output_dir)
    options = {"shutdown_timeout": arguments.drain_seconds} | arguments.serve_options
    # Before the templates: they would be looked for long where there is no such model.
    wanted = [Wanted(each.path, options, arguments.replicas) for each in checkpoints]
    for each in checkpoints:
        check_template(each.tokenizer, {}, arguments.serve_options.get("chat_template"))
    logs = {each.path: folder / f"vllm-{each.name}.log" for each in checkpoints}
    if (arguments.host != LOOPBACK or job_nodes()) and not os.environ.get("VLLM_API_KEY"):
        os.environ["VLLM_API_KEY"] = _new_key(folder)
    with contextlib.closing(Servers()) as started:
        started.start(wanted, logs, arguments.port, arguments.ready_timeout, arguments.host)
        names = started.by_name
        try:
            for name, servers in names.items():
                jsonl.write_text(_address_file(folder, name), [",".join(each.base_url for each in servers) + "\n"])
            yield names
        finally:
            # Before the servers stop, so that no client starts with one that ends.
            for name in names:
                _address_file(folder, name).unlink(missing_ok=True)


def _address_file(folder: Path, name: str) -> Path:
    return folder / f"{name.strip('/').replace('/', '-')}.url"


def _new_key(folder: Path) -> str:
    """A key that clients have to send, written to a file that only this user can read."""
    key, file = secrets.token_urlsafe(), folder / "key"
    with writing(file):
        folder.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as stream:
            stream.write(f"{key}\n")
    return key
