"""An experiment's data sets made again from its file and its cached replies: are they the same, byte for byte?

    python benchmarks/pairs_again.py configs/experiments/e1.yaml --set data=data

Every finished stage that makes pairs or gold replies is run with its command and another output folder. In place of
its server it gets one that has the model's name and refuses every request, so a reply that is not in the cache is
missed and counted. Models that the command serves by `--models` are started. A line per data set; the last line is a
JSON object.
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

from notewriter.config import given
from notewriter.models.adapters import groups
from notewriter.pipelines.pipeline import Stage, program, read_pipeline, variables_given

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
    for stage in read_pipeline(arguments.file, changes=variables_given(arguments.set)).stages:
        program_name, command = stage.argv()[:2]
        if program_name == "notewriter" and command in COMMANDS and not stage.missing():
            folder = Path(given(stage.argv())["output_dir"])
            made.append(make_again(stage, folder))
            told = "equal" if made[-1].equal else "DIFFERENT"
            sys.stdout.write(f"{told}, {made[-1].requests} requests: {folder}\n")
            sys.stdout.flush()
    equal = sum(each.equal for each in made)
    requests = sum(each.requests for each in made)
    sys.stdout.write(json.dumps({"data_sets": len(made), "equal": equal, "requests": requests}) + "\n")
    sys.exit(equal < len(made))


def make_again(stage: Stage, folder: Path) -> Made:
    """Run the stage's command into another folder, its replies from the cache."""
    argv = stage.argv()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        argv[argv.index("--output_dir") + 1] = scratch
        refused: list[str] = []
        if stage.serve:
            (group,) = groups([stage.serve])
            name = group.names[stage.serve]
            base_url = stack.enter_context(refusing_server(name, refused))
            argv += ["--base_url", base_url, "--model", name, "--served", stage.serve]
        subprocess.run(program(argv), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        names = [file.name for file in folder.glob("*.parquet")]
        same, _, _ = filecmp.cmpfiles(folder, scratch, names, shallow=False)
        return Made(bool(names) and len(same) == len(names), len(refused))


@contextlib.contextmanager
def refusing_server(model: str, refused: list[str]) -> Iterator[str]:
    """The address of a server that lists a model, and refuses every other request and notes its path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, {"object": "list", "data": [{"id": model, "object": "model"}]})

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
