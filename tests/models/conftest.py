"""Clients, and a stand-in for vLLM, as a process of its own."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from notewriter.models import server as serving
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint

# What vLLM is to us: a module that serves at --host and --port. It tells its process id and its arguments.
STAND_IN = """
import argparse, json, os, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
arguments, _ = parser.parse_known_args()
told = {"pid": os.getpid(), "argv": sys.argv[1:], "kv_cache": os.environ.get("VLLM_CPU_KVCACHE_SPACE")}
behaviour = os.environ.get("STAND_IN", "serve")
if behaviour == "die":
    print("INFO loading")
    print("(EngineCore pid=7) torch.OutOfMemoryError: KV cache needs 9 GiB, 2 GiB are free")
    raise RuntimeError("Engine core initialization failed. See root cause above.")
if behaviour == "die over a model's code":
    print("(APIServer pid=7) WARNING 11-22 [utils.py:255] Found ulimit of 20000. This can cause fd limit errors like "
          "`OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n")
    print("pydantic_core.ValidationError: 1 validation error for ModelConfig")
    print("  Value error, The repository contains custom code which must be executed")
    sys.exit(1)
if behaviour == "die without a word":
    sys.exit(3)
if behaviour == "hang":
    time.sleep(60)
if behaviour == "with a stubborn child":
    ignore = "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print(flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-S", "-c", ignore], stdout=subprocess.PIPE)
    child.stdout.readline()
    told["child"] = child.pid
with open(os.environ["STAND_IN_LOG"], "a") as log:
    log.write(json.dumps(told) + "\\n")
from fake_endpoint import make_server
make_server(port=arguments.port)[0].serve_forever()
"""
TESTS = Path(__file__).parents[1]


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return str(folder)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict]]:
    """Install the stand-in for vLLM; returns what the started processes reported."""
    package = tmp_path / "site" / "vllm"
    (package / "entrypoints" / "openai").mkdir(parents=True)
    for folder in (package, package / "entrypoints", package / "entrypoints" / "openai"):
        (folder / "__init__.py").touch()
    (package / "entrypoints" / "openai" / "api_server.py").write_text(STAND_IN)
    log = tmp_path / "told.jsonl"
    sleep = time.sleep
    monkeypatch.setattr(serving, "runs_on_cpu", lambda: True)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{TESTS}")
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr(serving.time, "sleep", lambda seconds: sleep(min(seconds, 0.02)))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Client]]:
    """Make clients that are closed at the end."""
    clients = []

    def make(base_url: str, cache: ResponseCache | None = None, revive=None, **settings) -> Client:
        clients.append(Client(Endpoint(base_url, settings.pop("model", "fake"), **settings), cache, revive or ()))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each sleep, none of which is slept."""
    recorded = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        if seconds:
            recorded.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", record)  # tenacity's
    monkeypatch.setattr(anyio, "sleep", record)  # the openai library's
    return recorded
