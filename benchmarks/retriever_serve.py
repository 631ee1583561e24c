"""Queries a second of `notewriter serve retriever` under concurrent clients, against the same index in process.

    python benchmarks/retriever_serve.py

Builds a BM25 index of 10,000 passages of a generated world and searches it with its questions, in rounds that
alternate:

- in process: `--clients` tasks search the index as rollouts do;
- `url`: as many tasks of one process share `retriever: {url: ...}`, as rollouts do, so that waiting queries travel
  together;
- separate: `--processes` processes with as many clients in all, each of which has a connection and sends one query a
  request.

The clients run on the same machine, so their work counts against the server. Prints medians over the
rounds. The last line is a JSON object.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from notewriter.data.world.generation import generate
from notewriter.retrieval import bm25
from notewriter.retrieval.chain import Chain

TOP_K = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=10_000, help="passages in the index")
    parser.add_argument("--clients", type=int, default=64, help="concurrent clients")
    parser.add_argument("--processes", type=int, default=2, help="processes of separate clients")
    parser.add_argument("--queries", type=int, default=6000, help="queries per measurement")
    parser.add_argument("--rounds", type=int, default=5, help="rounds")
    arguments = parser.parse_args()

    world = generate(0, {"test": arguments.passages // 5})["test"]
    passages, questions = world.passages[: arguments.passages], world.questions
    queries = list(islice(cycle(question.question for question in questions), arguments.queries))
    with tempfile.TemporaryDirectory() as folder:
        index = f"{folder}/index"
        count = bm25.build(passages, index)
        rates: dict[str, list[float]] = {"in process": [], "url": [], "separate": []}
        with served(index) as url:
            for _ in range(arguments.rounds):
                rates["in process"].append(asyncio.run(chain_rate([{"index": index}], queries, arguments.clients)))
                rates["url"].append(asyncio.run(chain_rate([{"url": url}], queries, arguments.clients)))
                rates["separate"].append(separate_rate(url, queries, arguments.clients, arguments.processes))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        share = medians[name] / medians["in process"]
        sys.stdout.write(
            f"{name:10} {medians[name]:8,.0f} queries/s ({min(values):,.0f} to {max(values):,.0f}), "
            f"{share:.2f} of in process\n"
        )
    result = {
        "passages": count,
        "clients": arguments.clients,
        "queries_per_second": {name: round(value, 1) for name, value in medians.items()},
        "fraction_url": round(medians["url"] / medians["in process"], 3),
        "fraction_separate": round(medians["separate"] / medians["in process"], 3),
    }
    sys.stdout.write(json.dumps(result) + "\n")


async def chain_rate(parts: Sequence[dict[str, Any]], queries: Sequence[str], clients: int) -> float:
    """Queries per second of tasks that share a chain."""
    chain = Chain(parts)
    await chain.check()
    await chain.search(queries[0], TOP_K)
    waiting = iter(queries)

    async def client() -> None:
        for query in waiting:
            await chain.search(query, TOP_K)

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    rate = len(queries) / (time.perf_counter() - start)
    await chain.close()
    return rate


def separate_rate(url: str, queries: Sequence[str], clients: int, processes: int) -> float:
    """Queries per second of clients with connections of their own."""
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        shares = [(url, queries[number::processes], clients // processes) for number in range(processes)]
        start = time.perf_counter()
        pool.starmap(run_clients, shares, chunksize=1)
        return len(queries) / (time.perf_counter() - start)


def run_clients(url: str, queries: Sequence[str], clients: int) -> None:
    """Send every query as a request of its own."""
    asyncio.run(_run_clients(url, queries, clients))


async def _run_clients(url: str, queries: Sequence[str], clients: int) -> None:
    waiting = iter(queries)
    host, port = url.removeprefix("http://").split(":")

    async def client() -> None:
        # A bare connection: what an HTTP library costs is not the server's.
        reader, writer = await asyncio.open_connection(host, int(port))
        for query in waiting:
            body = json.dumps({"queries": [query], "topk": TOP_K, "return_scores": True}).encode()
            head = f"POST /retrieve HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            headers = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert headers.startswith(b"http/1.1 200"), headers
            length = int(headers.split(b"content-length:")[1].split(b"\r\n")[0])
            assert len(json.loads(await reader.readexactly(length))["result"]) == 1
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


@contextlib.contextmanager
def served(index: str) -> Iterator[str]:
    """The address of a server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "notewriter.cli", "serve", "retriever", "--index", index, "--port", str(port)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        if "serving at" not in line:
            raise SystemExit(f"the server did not start: {line}")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
