"""Whether shared prompts are right and fast on a GPU, and whether its memory is what the estimate says: one command.

    python benchmarks/gpu.py --output runs/gpu.jsonl
    python benchmarks/gpu.py --output runs/gpu.jsonl --wheels wheels --minutes 10
    python benchmarks/gpu.py --table runs/gpu.jsonl

Needs one NVIDIA GPU, PyTorch and transformers; no network and no weights, since the models are random ones of real
shapes. Other packages come as wheels from --wheels and are installed into a folder of their own under
~/.cache/notewriter. What is measured, and how, is in benchmarks/gpu_measurements/. docs/gpu.md tells how to prepare the
folder of wheels and what each column means.

Every result is a JSON line, written as soon as it is there. The most telling measurements come first, so that a run
that is cut at any minute leaves what it had; the same command takes up what is missing. Running out of memory is a
result. A measurement that fails, hangs or takes the process down with it is recorded, and the next one begins.
"""

import argparse
import os
import re
import shlex
import sys
import time
from pathlib import Path

from gpu_measurements.plan import Measurement, plan
from gpu_measurements.results import Results, read
from gpu_measurements.supervisor import Worker, supervise
from gpu_measurements.tables import tables
from gpu_measurements.wheels import install

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Measure, or make tables of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/gpu.jsonl"), help="results, a JSON line each")
    parser.add_argument("--minutes", type=float, default=10, help="the time for all of it")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels of what the machine lacks")
    parser.add_argument("--model", help="a model folder (SmolLM2-135M-Instruct), for a real run")
    parser.add_argument("--pairs", help="a folder of pairs (the quickstart's), for a real run")
    parser.add_argument("--steps", type=int, default=10, help="of a real run")
    parser.add_argument("--only", default="", metavar="REGEX", help="the measurements whose names match")
    parser.add_argument("--list", action="store_true", help="name the measurements in their order and stop")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print a results file as Markdown and stop")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: with --toy, to try the command")
    parser.add_argument("--toy", action="store_true", help="tiny widths and lengths")
    arguments = parser.parse_args()

    if arguments.table:
        sys.stdout.write(tables(*read(arguments.table)))
        return
    wanted = [each for each in plan() if re.search(arguments.only, each.name)]
    if not (arguments.model and arguments.pairs):
        wanted = [each for each in wanted if each.function != "real_run"]
    if arguments.list:
        sys.stdout.writelines(f"{each.name}\n" for each in wanted)
        return

    deadline = time.monotonic() + 60 * arguments.minutes
    output = arguments.output.resolve()
    results = Results(output)
    path = [str(ROOT), str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])]
    if arguments.wheels:
        path.insert(0, str(install(arguments.wheels, Path("~/.cache/notewriter").expanduser())))
    environment = {
        # TRL refuses to run where one process sees several GPUs.
        "CUDA_VISIBLE_DEVICES": "0",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    request = {
        "device": arguments.device,
        "machine": {
            "toy": arguments.toy,
            "model": arguments.model and str(Path(arguments.model).resolve()),
            "pairs": arguments.pairs and str(Path(arguments.pairs).resolve()),
            "steps": arguments.steps,
        },
        "command": shlex.join(["python", *sys.argv]),
    }
    with open(f"{output}.log", "a", encoding="utf-8") as log:

        def start(left: list[Measurement]) -> Worker:
            named = [(each.name, each.function, each.options) for each in left]
            command = [sys.executable, "-P", "-m", "gpu_measurements.worker"]
            return Worker(command, request | {"measurements": named}, environment, log)

        supervise(wanted, results, start, deadline)
    sys.stdout.write("\n" + tables(*read(output)))
    missing = sum(not results.finished(each.name) for each in wanted)
    if missing:
        sys.stdout.write(f"\n{missing} of {len(wanted)} measurements are missing; the same command takes them up.\n")


if __name__ == "__main__":
    main()
