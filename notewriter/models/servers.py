"""The servers of a run: running ones are found by their contents, the others are started.

Servers are known by their checkpoint's weights and name, vLLM's options, and their number (`Wanted.key`). Those of a
lone run stop with it. Within `keep` they stay up for the next run that asks for the same ones, in this process:

    with keep(logs):
        for evaluation in evaluations:
            evaluate(evaluation)  # its `serve: PATH` starts a server only if none of this checkpoint is up

or in another one, whose `--serve PATH` finds them by an environment variable:

    with keep(logs) as kept:
        kept.start([Wanted(path, options)])
        process = subprocess.Popen(["notewriter", "evaluate", "--serve", path], env=os.environ | kept.environment())
        while process.poll() is None:
            kept.ensure_alive()
            time.sleep(5)
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from notewriter.ground.errors import UserError
from notewriter.models.adapters import groups, with_group
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.nodes import Place, Replicated, own_devices, places
from notewriter.models.serve_options import runs_on_cpu, with_defaults
from notewriter.models.served import options_of
from notewriter.models.server import LOOPBACK, READY_TIMEOUT, Server, ensure_key, free_ports, serve

VARIABLE = "NOTEWRITER_SERVERS"
"""The environment variable that names a parent's servers: a JSON object.

`running`: `Wanted.key` -> name and addresses; `models`: vLLM's options and the number of servers of each model, from
which follows which devices are taken.
"""

GPU_SHARE = 0.92
"""The part of a GPU's memory that vLLM takes by default, which several servers on it have to divide."""


@dataclass(frozen=True)
class Wanted:
    """A checkpoint to be served: its folder or hub id, vLLM's options, and the number of servers.

    The options get those that follow from the checkpoint (`served.options_of`).
    """

    path: str
    options: Mapping[str, Any]
    replicas: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", options_of(self.path, self.options))

    @property
    def key(self) -> str:
        """The key of its servers; the same for a copy of its folder under the same name."""
        model = Checkpoint(self.path)
        return f"{self.replicas} x {model.name} {model.identity(with_defaults(self.options))}"


@dataclass(frozen=True)
class ServerOfParent:
    """A server that another process started, keeps alive, and stops."""

    base_url: str

    def ensure_alive(self) -> None:
        """Do nothing: the process that started it restarts it."""


class Running(NamedTuple):
    """A checkpoint that is served: its name in requests, and its servers."""

    name: str
    servers: Sequence[Server | ServerOfParent]

    @property
    def base_url(self) -> str:
        """The servers' addresses, separated by commas."""
        return ",".join(server.base_url for server in self.servers)


class Servers:
    """Servers of checkpoints, each with devices of its own where there are enough."""

    def __init__(self, before: Sequence[Replicated] = ()) -> None:
        """`before` are the models that have servers, and devices, already."""
        self.models = list(before)
        self.running: dict[str, Running] = {}
        """By `Wanted.key`."""
        self.by_name: dict[str, list[Server]] = {}
        """The servers by each name of a model; if several have the base of adapters, the first."""
        self._stack = contextlib.ExitStack()

    def start(
        self,
        wanted: Sequence[Wanted],
        logs: Mapping[str, Path],
        port: int | None = None,
        ready_timeout: float = READY_TIMEOUT,
        host: str = LOOPBACK,
        beside: Mapping[str, Any] | None = None,
    ) -> None:
        """Start servers, one for all checkpoints that can share it: adapters of one model with the same options.

        Args:
            wanted: the checkpoints.
            logs: by a checkpoint's path the log of its server.
            port: the port of the server if there is only one; default: a free one.
            ready_timeout: the seconds within which each server must be ready.
            host: the address to listen at.
            beside: more options of vLLM, which do not change replies; those of a checkpoint come before them.

        Raises:
            UserError: there are too few devices, or a server does not start.
        """
        alike: dict[str, list[Wanted]] = {}
        for each in wanted:
            alike.setdefault(repr((each.options, each.replicas)), []).append(each)
        plan = [
            (group, {**(beside or {}), **members[0].options}, members[0].replicas)
            for members in alike.values()
            for group in groups([member.path for member in members])
        ]
        together = [*self.models, *((options, replicas) for _, options, replicas in plan)]
        if port and (in_all := sum(replicas for _, replicas in together)) > 1:
            raise UserError(f"port: {in_all} servers cannot share a port; omit it to use free ones")
        apart = own_devices(together)
        if len(together) > 1 and not apart and not runs_on_cpu():
            beside = {"gpu_memory_utilization": int(100 * GPU_SHARE / len(together)) / 100, **(beside or {})}
            plan = [(group, {**beside, **own}, replicas) for group, own, replicas in plan]
        by_path: dict[str, Running] = {}
        for group, own, replicas in plan:
            options = with_group(own, group)
            start = partial(serve, group.model, options, host=host, ready_timeout=ready_timeout)
            where = places(self.models, options, replicas) if apart else None
            servers = self._start(start, logs[next(iter(group.names))], port, where)
            self.models.append((options, replicas))
            by_path |= {path: Running(name, servers) for path, name in group.names.items()}
            self.by_name |= dict.fromkeys(group.names.values(), servers)
            self.by_name.setdefault(options["served_model_name"], servers)
        self.running |= {each.key: by_path[each.path] for each in wanted}

    def _start(
        self,
        start: Callable[..., contextlib.AbstractContextManager[Server]],
        log: Path,
        port: int | None,
        where: Sequence[Place] | None,
    ) -> list[Server]:
        """Start the servers of a model, concurrently, since each takes minutes.

        Without places it is a single one, which chooses its devices itself. When one fails, the others are given up.
        """
        if where is None:
            return [self._stack.enter_context(start(log=log, port=port))]
        if where[0].nodes:
            # Before the threads, each of which would make one.
            ensure_key()
            _bypass_proxies({place.nodes[0] for place in where})
        ports = [port] if port else free_ports(len(where))

        given_up = threading.Event()

        def start_at(number: int) -> Server:
            own_log = log.with_stem(f"{log.stem}-{number}")
            server = start(log=own_log, port=ports[number], place=where[number], given_up=given_up)
            return self._stack.enter_context(server)

        with ThreadPoolExecutor(len(where)) as pool:
            starting = [pool.submit(start_at, number) for number in range(len(where))]
            try:
                for each in as_completed(starting):
                    each.result()
            except BaseException:
                given_up.set()
                raise
        return [each.result() for each in starting]

    def close(self) -> None:
        """Stop all of them."""
        self.running.clear()
        self.by_name.clear()
        self._stack.close()


class Kept:
    """Servers that outlive the runs that ask for them, made by `keep`."""

    def __init__(self, logs: Path | None = None) -> None:
        self._logs = logs
        self._lasting = Servers([(each["options"], each["replicas"]) for each in _of_parent()["models"]])
        self._latest = Servers()
        self._failures: dict[frozenset[str], str] = {}

    def start(
        self,
        wanted: Sequence[Wanted],
        log: Path,
        port: int | None = None,
        ready_timeout: float = READY_TIMEOUT,
        beside: Mapping[str, Any] | None = None,
    ) -> None:
        """Start servers that stay until the end of the block; those that are up already are not started again.

        The arguments are those of `Servers.start`, with one log for all, or several that are numbered.

        Raises:
            UserError: there are too few devices, or a server does not start.
        """
        missing = [each for each in wanted if each.key not in self._up()]
        several = len(missing) > 1
        logs = {
            each.path: log.with_stem(f"{log.stem}-{number}") if several else log for number, each in enumerate(missing)
        }
        self._lasting.start(missing, logs, port, ready_timeout, beside=beside)

    def ask(
        self, wanted: Sequence[Wanted], logs: Mapping[str, Path], port: int | None, ready_timeout: float
    ) -> dict[str, Running]:
        """The servers of a run, by path; if one is missing, those of the run before stop first, for their memory.

        Raises:
            UserError: a server does not start, now or when it was asked for before: it is not tried again.
        """
        asked = frozenset(each.key for each in wanted)
        if asked in self._failures:
            raise UserError(self._failures[asked])
        if not asked <= self._up().keys():
            self.release()
            missing = [each for each in wanted if each.key not in self._up()]
            if self._logs:
                logs = {path: self._logs / log.name for path, log in logs.items()}
            self._latest = Servers(self._lasting.models)
            try:
                self._latest.start(missing, logs, port, ready_timeout)
            except UserError as error:
                self._failures[asked] = str(error)
                self.release()
                raise
        # Their keys may be others now: vLLM has downloaded a base of the hub, whose commit is known since.
        return {each.path: self._up()[each.key] for each in wanted}

    def release(self) -> None:
        """Stop the servers that the latest run started."""
        self._latest.close()

    def ensure_alive(self) -> None:
        """Restart servers of this process that have died.

        Raises:
            UserError: one of them does not come up again.
        """
        for server in {id(server): server for running in self._up().values() for server in running.servers}.values():
            server.ensure_alive()

    def environment(self) -> dict[str, str]:
        """The environment variable by which a child process finds the servers that are up."""
        up = {key: {"name": each.name, "base_url": each.base_url} for key, each in self._up().items()}
        models = [{"options": dict(options), "replicas": replicas} for options, replicas in self._lasting.models]
        return {VARIABLE: json.dumps({"running": up, "models": models})}

    def stop(self) -> None:
        """Stop all servers."""
        self._latest.close()
        self._lasting.close()

    def _up(self) -> dict[str, Running]:
        return {**_running_of_parent(), **self._lasting.running, **self._latest.running}


_kept: ContextVar[Kept | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def keep(logs: Path | None = None) -> Iterator[Kept]:
    """Keep servers for the next run while the block lasts, or until a run asks for others.

    Their logs are in the folder `logs`, or else in that of the run that asked first. A block within another adds
    nothing to it.
    """
    if outer := _kept.get():
        yield outer
        return
    kept = Kept(logs)
    token = _kept.set(kept)
    try:
        yield kept
    finally:
        _kept.reset(token)
        kept.stop()


@contextlib.contextmanager
def use(
    wanted: Sequence[Wanted],
    logs: Mapping[str, Path],
    port: int | None = None,
    ready_timeout: float = READY_TIMEOUT,
) -> Iterator[dict[str, Running]]:
    """The servers of checkpoints for a run, by path: found, or started and, outside of `keep`, stopped at the end.

    Within `keep` they are also stopped after a run that fails, since one of them may be the reason.

    Args:
        wanted: the checkpoints.
        logs: by a checkpoint's path the log of its server.
        port: the port of the server if there is only one; default: a free one.
        ready_timeout: the seconds within which each server must be ready.

    Raises:
        UserError: there are too few devices, or a server does not start.
    """
    kept = _kept.get()
    run = kept or Kept()
    finished = False
    try:
        yield run.ask(wanted, logs, port, ready_timeout)
        finished = True
    finally:
        if not (kept and finished):
            run.release()


def _of_parent() -> dict[str, Any]:
    """The servers of the process that started this one."""
    announced: dict[str, Any] = json.loads(os.environ.get(VARIABLE) or "{}")
    return {"running": {}, "models": []} | announced


def _running_of_parent() -> dict[str, Running]:
    """The servers of the process that started this one, by `Wanted.key`."""
    return {
        key: Running(each["name"], [ServerOfParent(address) for address in each["base_url"].split(",")])
        for key, each in _of_parent()["running"].items()
    }


def _bypass_proxies(hosts: Iterable[str]) -> None:
    """Bypass proxies in the environment, common on clusters, for these hosts: a proxy would get the key."""
    exempt = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = ",".join(dict.fromkeys([*filter(None, exempt.split(",")), *sorted(hosts)]))
