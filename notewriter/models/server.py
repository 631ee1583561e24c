"""A vLLM server of one's own: started on a free port, waited for, restarted when it dies, stopped at the end."""

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from notewriter.errors import UserError, writing
from notewriter.models.checkpoints import check_model
from notewriter.models.processor import number_format

logger = logging.getLogger(__name__)

MAX_RESTARTS = 3
_PR_SET_PDEATHSIG = 1

DEFAULT_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    # On the CPU vLLM keeps one core free of computing, which is half of a machine with two (30 % of its speed).
    **({"VLLM_CPU_NUM_OF_RESERVED_CPU": "0"} if (os.cpu_count() or 1) <= 4 else {}),
}
"""What a server's environment holds where the user's own says nothing else."""


class Server:
    """A running vLLM server; `base_url` is its OpenAI-compatible address, `model` the name it serves."""

    def __init__(
        self,
        model: str,
        options: Mapping[str, Any],
        port: int,
        log: Path,
        ready_timeout: float,
        devices: str | None = None,
    ) -> None:
        self.model = model
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self._health = f"http://127.0.0.1:{port}/health"
        self._log = log
        self._devices = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
        self._ready_timeout = ready_timeout
        self._command = [
            # The module, not the `vllm` command: the CPU package's command does not find its own metadata.
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", model, "--host", "127.0.0.1", "--port", str(port)),
            *command_line_options(options),
            # Last, so that no abbreviation and no file of options goes before it.
            "--no-trust-remote-code",
        ]
        self._restarts = 0
        self._reviving = threading.Lock()
        # Linux ends the server with the thread that has started it, so that must not be one of an event loop,
        # whose threads end with the loop.
        self._starter = ThreadPoolExecutor(max_workers=1)
        self._process = self._start()

    def ensure_alive(self) -> None:
        """Start the server again if it has died; called from whoever saw a request fail.

        Raises:
            UserError: it died more often than `MAX_RESTARTS` times, or does not come up again.
        """
        with self._reviving:
            if self._process.poll() is None:
                return
            if self._restarts == MAX_RESTARTS:
                raise UserError(f"the vLLM server died {MAX_RESTARTS + 1} times; {self._last_words()}")
            self._restarts += 1
            logger.warning("the vLLM server died (log: %s); starting it again", self._log)
            _stop(self._process)
            self._process = self._start()
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Return when the server answers.

        Raises:
            UserError: it died, with the error from its log, or is not ready in time.
        """
        deadline = time.monotonic() + self._ready_timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise UserError(f"the vLLM server for {self.model} did not start; {self._last_words()}")
            with contextlib.suppress(urllib.error.URLError, OSError), _open_directly(self._health):
                return
            time.sleep(0.5)
        raise UserError(
            f"the vLLM server for {self.model} was not ready after {self._ready_timeout:.0f} s; see {self._log}"
        )

    def stop(self) -> None:
        """Stop the server and all its children."""
        _stop(self._process)
        self._starter.shutdown()

    def _start(self) -> subprocess.Popen[bytes]:
        return self._starter.submit(self._launch).result()

    def _launch(self) -> subprocess.Popen[bytes]:
        ours = {name: value for name, value in DEFAULT_ENVIRONMENT.items() if name not in os.environ} | self._devices
        settings = (f"{name}={value}" for name, value in ours.items())
        with open(self._log, "ab") as log:
            # So that a server can be started by hand as we start it.
            log.write(shlex.join(["env", *settings, *self._command]).encode() + b"\n")
            log.flush()
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | ours,
                # A group of its own: Ctrl-C reaches us alone, and the whole group is stopped at the end.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def _last_words(self) -> str:
        """The error in the server's log, on one line, with the log's path."""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        # Pydantic says what is wrong in the line after its error.
        lines = re.sub(r"(\bvalidation errors? for .*)\n", r"\1", log).splitlines() or [""]
        # The first error is the cause; what comes after it is its echo in the parent process. Warnings name errors
        # that may come.
        errors = [line for line in lines if re.search(r"\b\w*(Error|Exception): ", line) and " WARNING " not in line]
        cause = re.sub(r"^.*?(\w*(?:Error|Exception): )", r"\1", (errors or lines[-1:])[0])
        return f"{cause[:400]} (log: {self._log})"


REFUSED_OPTIONS = {
    "trust_remote_code": "code that comes with a model is never run; leave it out",
    "api_key": "it would be written to config.yaml; put the key into the environment variable VLLM_API_KEY",
}
"""vLLM's options that no server of ours gets, and why."""


def check_options(options: Mapping[str, Any]) -> None:
    """Find options that would run a model's code or write a secret down.

    Raises:
        UserError: there is one; the message does not repeat its value.
    """
    for key, value in options.items():
        reason = REFUSED_OPTIONS.get(str(key).strip("-").replace("-", "_"))
        if reason and value:
            raise UserError(f"serve_options: {key}: {reason}")


def command_line_options(options: Mapping[str, Any]) -> list[str]:
    """`{"max_model_len": 4096, "enforce_eager": True}` as `--max-model-len 4096 --enforce-eager`.

    False leaves an option out; a list becomes several values.
    """
    arguments = []
    for key, value in options.items():
        if value is False or value is None:
            continue
        arguments.append("--" + key.replace("_", "-"))
        if value is not True:
            arguments += [str(part) for part in (value if isinstance(value, list) else [value])]
    return arguments


def with_number_format(options: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's options with the `dtype` that the processor is fast in, where it is the one to compute and none is given.

    vLLM's own default there is bfloat16 on every processor. On a GPU its default stays.
    """
    return {**({"dtype": number_format()} if _computes_on_the_processor() else {}), **options}


def _computes_on_the_processor() -> bool:
    """Whether the installed vLLM is one for CPUs, by the signs that `vllm.platforms` goes by."""
    if sys.platform == "darwin" or os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
        return True
    versions = {each: _version(each) for each in ("vllm", "vllm-cpu")}
    return "cpu" in versions["vllm"] if versions["vllm"] else bool(versions["vllm-cpu"])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@contextlib.contextmanager
def serve(
    model: str,
    options: Mapping[str, Any] | None = None,
    *,
    log: str | Path,
    port: int | None = None,
    devices: str | None = None,
    ready_timeout: float = 900.0,
) -> Iterator[Server]:
    """Serve a checkpoint with vLLM while the block runs; its output goes to the file `log`.

    `options` are vLLM's own (`dtype`, `max_model_len`, `tensor_parallel_size`, ...); for `dtype` see
    `with_number_format`. Without `port` a free one is taken. `devices` are those it may use, as
    CUDA_VISIBLE_DEVICES has them. The server ends with the block, on Ctrl-C, and, on Linux, also when this
    process is killed.

    Raises:
        UserError: the path is no model, an option is refused, vLLM is not installed, the log cannot be written, the
            port is in use, or the server does not start.
    """
    check_model(model)
    check_options(options or {})
    if importlib.util.find_spec("vllm") is None:
        raise UserError("vLLM is not installed; install notewriter[gpu], or notewriter[cpu] where there is no GPU")
    log = Path(log)
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
    options = with_number_format(options or {})
    logger.info("serving %s in %s (log: %s)", model, options.get("dtype", "the number format that vLLM chooses"), log)
    server = Server(model, options, _claim_port(port), log, ready_timeout, devices)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def free_ports(count: int) -> list[int]:
    """So many different ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def visible_devices(first: int, count: int) -> str:
    """`count` devices from the `first` on among those that this process sees, as CUDA_VISIBLE_DEVICES has them.

    Raises:
        UserError: CUDA_VISIBLE_DEVICES has too few.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = seen.split(",") if seen else [str(number) for number in range(first + count)]
    if first + count > len(names):
        raise UserError(f"replicas: {first + count} devices are needed and CUDA_VISIBLE_DEVICES has {len(names)}")
    return ",".join(names[first : first + count])


def _claim_port(port: int | None) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except (OSError, OverflowError) as error:
            raise UserError(f"port {port} is in use or not allowed; choose another, or none for a free one") from error
        return int(probe.getsockname()[1])


def _open_directly(url: str) -> Any:
    """Open a local address past any proxy in the environment."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5)


def _die_with_parent() -> None:
    """Ask the kernel to end the server when the thread that started it is gone, even by SIGKILL of its process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes], patience: float = 20.0) -> None:
    """End a process group: politely, then for good. Children that outlive their parent are ended too."""
    _signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
