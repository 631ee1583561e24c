"""The memory of the client that builds pairs, which must not grow with the number of questions.

    python benchmarks/client_memory.py

Worlds of `--sizes` questions are generated, and DeepNote's notes sampled with nine samplers each, by the command
`notewriter pairs` in its own process. The replies come from the deterministic endpoint of the tests in another
process, so no model is needed. The last line is a JSON object with each client's peak of resident memory in MB,
including the index that it maps from disk, as `peak_mb_<questions>`.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import yaml

ENDPOINT = Path(__file__).parents[1] / "tests" / "fake_endpoint.py"
COMMAND = [sys.executable, "-c", "from notewriter.cli import main; main()"]
PAIRS = {
    "dataset": "jsonl",
    "stages": {"deepnote/init_note": "reference"},
    "method_options": {"deepnote": {"max_step": 1, "max_failure": 1}},
    "temperatures": [0.1, 0.5, 0.9],
    "top_ps": [0.1, 0.5, 0.9],
    "model": "fake",
}


def main() -> None:
    """Measure each number of questions and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000], help="numbers of questions")
    parser.add_argument("--concurrency", type=int, default=64, help="questions, and their requests, in flight at once")
    arguments = parser.parse_args()
    result: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for size in arguments.sizes:
            result |= measure(Path(name) / str(size), size, arguments.concurrency)
    sys.stdout.write(json.dumps(result) + "\n")


def measure(folder: Path, size: int, concurrency: int) -> dict[str, float]:
    """The client's peak in MB and its seconds, over a world of `size` questions made in `folder`."""
    run("world", "--output_dir", str(folder), "--train", str(size), "--test", "1")
    run("index", "--path", str(folder / "train" / "corpus.jsonl"), "--index", str(folder / "index"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = PAIRS | {
        "path": str(folder / "train" / "questions.jsonl"),
        "index": str(folder / "index"),
        "output_dir": str(folder / "pairs"),
        "cache": str(folder / "cache.sqlite"),
        "concurrency": concurrency,
        "base_url": f"http://127.0.0.1:{port}/v1",
    }
    config = folder / "pairs.yaml"
    config.write_text(yaml.safe_dump(options))
    with subprocess.Popen([sys.executable, str(ENDPOINT), "--port", str(port)]) as endpoint:
        try:
            wait_for(f"{options['base_url']}/models", endpoint)
            start = time.perf_counter()
            client = subprocess.Popen([*COMMAND, "pairs", "--config", str(config)])
            # The peak of this one process; getrusage would tell the largest of all that have ended.
            _, status, usage = os.wait4(client.pid, 0)
            client.returncode = os.waitstatus_to_exitcode(status)
            seconds = time.perf_counter() - start
        finally:
            endpoint.kill()
    if client.returncode:
        raise SystemExit(f"notewriter pairs ended with {client.returncode}")
    # Linux counts in KiB, macOS in bytes.
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {f"peak_mb_{size}": round(peak / 1e6, 1), f"seconds_{size}": round(seconds, 1)}


def run(*command: str) -> None:
    """A `notewriter` command."""
    subprocess.run([*COMMAND, *command], check=True)


def wait_for(url: str, endpoint: subprocess.Popen[bytes]) -> None:
    """Return when something answers at the address."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while endpoint.poll() is None:
        try:
            with opener.open(url, timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{ENDPOINT} ended with {endpoint.returncode}")


if __name__ == "__main__":
    main()
