"""An experiment's data sets made again from its file and its cached replies: are they the same, byte for byte?

    python benchmarks/pairs_again.py configs/experiments/e1.yaml --set data=data

Every finished run that makes pairs or gold replies is run with its command and another output folder, each shard of
it. In place of its servers, those of `--models` too, it gets one that has their models' names and refuses every
request, so a reply that is not in the cache is missed and counted. A line per data set; the last line is a JSON object.
"""

import argparse
import contextlib
import filecmp
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from notewriter.experiments.files import changes_of
from notewriter.experiments.run import Run, program, read_pipeline
from notewriter.ground.config import given
from notewriter.models.adapters import groups
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.server import with_number_format

COMMANDS = ("pairs", "gold")


class Made(NamedTuple):
    """A data set made again: whether its Parquet files are equal, and how many replies the cache lacked."""

    equal: bool
    requests: int


def main() -> None:
    """Make the data sets of one experiment again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the experiment's pipeline file")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="as given to the pipeline")
    arguments = parser.parse_args()
    made = []
    for run in read_pipeline(arguments.file, changes=changes_of(arguments.set)).runs:
        program_name, command = run.argv()[:2]
        if program_name != "notewriter" or command not in COMMANDS or run.missing():
            continue
        for shard in range(1, run.shards + 1):
            folder = Path(given(run.argv(shard))["output_dir"])
            made.append(make_again(run, shard, folder))
            told = "equal" if made[-1].equal else "DIFFERENT"
            sys.stdout.write(f"{told}, {made[-1].requests} requests: {folder}\n")
            sys.stdout.flush()
    equal = sum(each.equal for each in made)
    requests = sum(each.requests for each in made)
    sys.stdout.write(json.dumps({"data_sets": len(made), "equal": equal, "requests": requests}) + "\n")
    sys.exit(equal < len(made))


def make_again(run: Run, shard: int, folder: Path) -> Made:
    """Run the command of a run's shard into another folder, its replies from the cache."""
    argv = run.argv(shard)
    models = given(argv).get("models") or {}
    models = dict(json.loads(models) if isinstance(models, str) else models)
    served = {role: each["serve"] for role, each in models.items() if "serve" in each}
    # A role's model has a name and an identity of its own: with its address they are what follows from `serve`.
    names = {path: name for group in groups(served.values()) for path, name in group.names.items()}
    policy = groups([run.serve])[0].names[run.serve] if run.serve else None
    refused: list[str] = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        refusing_server([*names.values(), *filter(None, [policy])], refused) as base_url,
    ):
        argv += ["--output_dir", scratch]
        if run.serve and policy:
            argv += ["--base_url", base_url, "--model", policy, "--served", run.serve]
        options = with_number_format(run.serve_options()) if served else {}
        for role, path in served.items():
            others = {key: value for key, value in models[role].items() if key not in ("serve", "replicas")}
            identity = Checkpoint(path).identity({**options, **others.pop("serve_options", {})})
            models[role] = others | {"base_url": base_url, "model": names[path], "identity": identity}
        if served:
            argv += ["--models", json.dumps(models)]
        done = subprocess.run(program(argv), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # A run that is refused everything makes nothing, which is an error too.
        if done.returncode and not refused:
            sys.exit(f"{folder}: its command fails:\n{done.stderr}")
        files = [file.name for file in folder.glob("*.parquet")]
        same, _, _ = filecmp.cmpfiles(folder, scratch, files, shallow=False)
        return Made(bool(files) and len(same) == len(files), len(refused))


@contextlib.contextmanager
def refusing_server(models: list[str], refused: list[str]) -> Iterator[str]:
    """The address of a server that lists models, and refuses every other request and notes its path."""
    listed = {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "vllm"} for model in models]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, listed)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            refused.append(self.path)
            self._reply(400, {"error": {"message": "the reply is not in the cache"}})

        def _reply(self, status: int, body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: what counts is counted."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()
