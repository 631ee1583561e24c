"""Local vLLM servers: started on a free port, restarted when they die, stopped at the end."""

import contextlib
import ctypes
import importlib.util
import logging
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from notewriter.ground.errors import UserError, install, writing
from notewriter.ground.lazy import Lazy
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.nodes import DRAIN, Place, start_command
from notewriter.models.serve_options import check_options, command_line_options, runs_on_cpu, with_defaults

if TYPE_CHECKING:
    import httpx2
else:
    httpx2 = Lazy("httpx2")

logger = logging.getLogger(__name__)

MAX_RESTARTS = 3

READY_TIMEOUT = 3600.0
"""Seconds from the start of a server until it has to answer; it may have to download its model."""

TELL = 60.0
"""Seconds between two lines about a server that is not ready yet."""

LOOPBACK, ALL_ADDRESSES = "127.0.0.1", "0.0.0.0"
THIS_MACHINE = Place()
_PR_SET_PDEATHSIG = 1

DEFAULT_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    # By default vLLM's CPU build reserves one core, which is half of a two-core machine (30% of its speed).
    **({"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"} if (os.cpu_count() or 1) <= 4 else {}),
}
"""Environment variables of the server, unless the user sets them."""

REPORTS = {"enable_prompt_tokens_details": True}
"""vLLM's options that change the report on a reply, not the reply: the number of its prompt's cached tokens."""


class Server:
    """A running vLLM server of `model`; `base_url` is its OpenAI-compatible address."""

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        port: int,
        log: Path,
        ready_timeout: float,
        place: Place = THIS_MACHINE,
        host: str = LOOPBACK,
    ) -> None:
        self.model = model
        # Bound to all addresses it is reached by the machine's name.
        name = place.nodes[0] if place.nodes else socket.gethostname() if host == ALL_ADDRESSES else host
        self.base_url = f"http://{name}:{port}/v1"
        here = LOOPBACK if host == ALL_ADDRESSES and not place.nodes else name
        self._health = f"http://{here}:{port}/health"
        self._port = port
        self._log = log
        self._place = place
        self._ready_timeout = ready_timeout
        self._arguments = ["--model", model, "--host", host, "--port", str(port), *command_line_options(options)]
        # Last, so that no abbreviation or options file can override it.
        self._arguments.append("--no-trust-remote-code")
        self._shutdown_timeout = float(options.get("shutdown_timeout") or 0)
        self._restarts = 0
        self._reviving = threading.Lock()
        self._stopped = False
        # PR_SET_PDEATHSIG fires when the starting *thread* ends, so it must not be an event loop's worker.
        self._starter = ThreadPoolExecutor(max_workers=1)
        self._process = self._start()

    def ensure_alive(self) -> None:
        """Restart the server if it has died and was not stopped; called after a failed request.

        Raises:
            UserError: it died more than `MAX_RESTARTS` times, or does not come up again.
        """
        with self._reviving:
            if self._stopped or self._process.poll() is None:
                return
            if self._restarts == MAX_RESTARTS:
                raise UserError(f"the vLLM server died {MAX_RESTARTS + 1} times; {self._log_error()}")
            self._restarts += 1
            logger.warning("the vLLM server died (log: %s); restarting it", self._log)
            _stop(self._process)
            self._process = self._start()
            self.wait_until_ready()

    def wait_until_ready(self, given_up: threading.Event | None = None) -> None:
        """Wait until the server answers, is stopped, or is given up.

        Raises:
            UserError: it died (quotes the error in its log), is not ready in time, or another one answers in its place.
        """
        began = logged = time.monotonic()
        while (now := time.monotonic()) - began < self._ready_timeout:
            if now - logged >= TELL:
                logged = now
                logger.info("%s: starting, after %.0f s (log: %s)", self.model, now - began, self._log)
            if self._stopped or (given_up and given_up.is_set()):
                return
            if self._process.poll() is not None:
                raise UserError(f"the vLLM server for {self.model} did not start; {self._log_error()}")
            # Past any proxy in the environment.
            with contextlib.suppress(httpx2.HTTPError):
                if httpx2.get(self._health, timeout=5, trust_env=False).is_success:
                    self._check_port()
                    return
            time.sleep(0.5)
        raise UserError(
            f"the vLLM server for {self.model} was not ready after {self._ready_timeout:.0f} s; see {self._log}, or "
            "give it longer with --ready_timeout SECONDS"
        )

    def _check_port(self) -> None:
        """Check that what answers here is this server: vLLM's port is free for others until its model is loaded.

        Raises:
            UserError: it is another program of this user; who listens for others is not known.
        """
        import psutil

        groups: set[int] = set()
        # Some systems do not say who listens.
        with contextlib.suppress(psutil.Error, OSError, RuntimeError):
            listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
            groups = {os.getpgid(each.pid) for each in listening if each.laddr.port == self._port and each.pid}
        if not self._place.nodes and groups and self._process.pid not in groups:
            raise UserError(
                f"port {self._port} is in use by another server, which began to listen while this one loaded "
                f"{self.model}; choose another or leave it out"
            )

    def stop(self) -> None:
        """Stop the server and all of its child processes, after the requests in flight if it has a shutdown timeout."""
        patience = 20.0 + self._shutdown_timeout
        self._stopped = True
        # Another thread may be starting it again.
        with self._reviving:
            if self._place.nodes:
                # srun kills its step at a SIGTERM; this one it passes on.
                self._process.send_signal(DRAIN)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(patience)
            _stop(self._process, patience)
            self._starter.shutdown()

    def _start(self) -> subprocess.Popen[bytes]:
        return self._starter.submit(self._launch).result()

    def _launch(self) -> subprocess.Popen[bytes]:
        ours = {name: value for name, value in DEFAULT_ENVIRONMENT.items() if name not in os.environ}
        if not runs_on_cpu():
            ours = {name: value for name, value in ours.items() if not name.startswith("VLLM_CPU_")}
        if self._place.devices is not None and not self._place.nodes:
            ours["CUDA_VISIBLE_DEVICES"] = self._place.devices
        command = start_command(self._place, self._arguments, free_ports(1)[0])
        settings = (f"{name}={value}" for name, value in ours.items())
        with open(self._log, "ab") as log:
            # The command to paste for starting the same server by hand.
            log.write(shlex.join(["env", *settings, *command]).encode() + b"\n")
            log.flush()
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | ours,
                # Its own process group: Ctrl-C reaches only this process, and the whole group is stopped at the end.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def _log_error(self) -> str:
        """The error in the server's log, on one line, with the log's path."""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        # Pydantic explains its error on the following line.
        lines = re.sub(r"(\bvalidation errors? for .*)\n", r"\1", log).splitlines() or [""]
        # The first error is the cause; later ones are its echo in the parent process. Warnings mention errors
        # that did not happen.
        errors = [line for line in lines if re.search(r"\b\w*(Error|Exception): ", line) and " WARNING " not in line]
        cause = re.sub(r"^.*?(\w*(?:Error|Exception): )", r"\1", (errors or lines[-1:])[0])
        return f"{cause[:400]} (log: {self._log})"


@contextlib.contextmanager
def serve(
    model: str,
    options: Mapping[str, Any] | None = None,
    *,
    log: str | Path,
    port: int | None = None,
    place: Place = THIS_MACHINE,
    host: str = LOOPBACK,
    ready_timeout: float = READY_TIMEOUT,
    given_up: threading.Event | None = None,
) -> Iterator[Server]:
    """Serve a checkpoint with vLLM while the block runs; its output goes to the file `log`.

    `options` are vLLM's own (`dtype`, `max_model_len`, `tensor_parallel_size`, ...); for `dtype` see
    `with_defaults`. `port` defaults to a free one, `host` is the address to listen at, `place` where it runs; on
    nodes of a Slurm job it listens at all addresses, with a key (`ensure_key`). The server stops with the block, on
    Ctrl-C and, on Linux, when this process is killed. `given_up` ends the wait for it.

    Raises:
        UserError: the path is not a model, an option is refused, vLLM is not installed, the log cannot be written,
            the port is in use, or the server does not start.
    """
    Checkpoint(model).check()
    check_options(options or {})
    if importlib.util.find_spec("vllm") is None:
        raise UserError(f"vLLM is not installed; {install('gpu')}, on a machine without a GPU '.[cpu]'")
    log = Path(log)
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
    options = {**REPORTS, **with_defaults(options or {})}
    logger.info("serving %s in %s (log: %s)", model, options.get("dtype", "vLLM's default number format"), log)
    if place.nodes:
        host = ALL_ADDRESSES
        ensure_key()
    server = Server(model, options, _claim_port(port), log, ready_timeout, place, host)
    try:
        server.wait_until_ready(given_up)
        yield server
    finally:
        server.stop()


def free_ports(count: int) -> list[int]:
    """`count` different free ports."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def ensure_key() -> None:
    """Set VLLM_API_KEY, which clients of servers on other nodes have to send, to a new key unless it is set."""
    if not os.environ.get("VLLM_API_KEY"):
        os.environ["VLLM_API_KEY"] = secrets.token_urlsafe()


def _claim_port(port: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port} is in use or not allowed; choose another or leave it out") from error
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Have the kernel terminate the server when its starting thread is gone, even if this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes], patience: float = 20.0) -> None:
    """End a process group with SIGTERM, then SIGKILL, including children that outlive their parent."""
    _signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
