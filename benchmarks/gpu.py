"""Whether shared prompts are right and fast on a GPU, and whether its memory is what the estimate says: one command.

    python benchmarks/gpu.py --output runs/gpu.jsonl
    python benchmarks/gpu.py --output runs/gpu.jsonl --wheels wheels --minutes 10
    python benchmarks/gpu.py --table runs/gpu.jsonl

Needs one NVIDIA GPU, PyTorch and transformers; no network and no weights, since the models are random ones of real
shapes (benchmarks/gpu_shapes.py). Other packages come as wheels from --wheels and are installed into a folder of their
own under ~/.cache/notewriter. docs/gpu.md tells how to prepare that folder and what each column means.

Every result is a JSON line, written as soon as it is there. The most telling measurements come first, so that a run
that is cut at any minute leaves what it had; the same command takes up what is missing. Running out of memory is a
result. A measurement that fails, hangs or takes the process down with it is recorded, and the next one begins.
"""

import argparse
import contextlib
import hashlib
import json
import os
import queue
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

Record = dict[str, Any]

ROOT = Path(__file__).parents[1]

START = 240
"""Seconds in which the process that measures has to have imported its libraries."""


@dataclass(frozen=True)
class Measurement:
    """A measurement: its name in the results, the function of benchmarks/gpu_measure.py, and that one's options."""

    name: str
    function: str
    options: Record
    limit: int = 120
    """Seconds after which it counts as hung."""


MODELS = ("Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-8B", "Mistral-7B-v0.1", "Gemma-3-4B", "SmolLM2-135M")
SPECIAL = ("Gemma-2-9B", "gpt-oss-20b", "Qwen3-30B-A3B")
"""Soft caps, attention sinks, experts."""

HEADS = (
    ("Llama-3.1-8B", 128, 32, 8),
    ("Qwen2.5-7B", 128, 28, 4),
    ("Gemma-3-4B", 256, 8, 4),
    ("SmolLM2-135M", 64, 9, 3),
)
"""Head sizes and heads of queries and of keys, as models have them."""

SEVEN_BILLION, SMALL = ("Qwen2.5-7B", "LoRA"), ("Qwen2.5-1.5B", "full")


def plan() -> list[Measurement]:
    """All measurements, the most telling first."""
    return list({each.name: each for each in _plan()}.values())


def _plan() -> Iterator[Measurement]:
    for dtype in ("bfloat16", "float32"):
        yield Measurement(f"ceiling/{dtype}", "ceiling", {"dtype": dtype})
    yield Measurement("bandwidth", "bandwidth", {})
    for model, size, heads, key_heads in HEADS:
        for window in (None, 256):
            name = f"kernel/{model}/{f'window {window}' if window else 'no window'}"
            options: Record = {"head_size": size, "heads": heads, "key_heads": key_heads, "window": window}
            yield Measurement(name, "kernel", options)
    for model in ("Llama-3.1-8B", "Qwen2.5-7B"):
        yield from right(model, "ragged", "bf16", "autocast", "fp32", "checkpointing")
        yield Measurement(f"dependence/{model}", "dependence", {"name": model})
        yield from right(model, "ragged", "LoRA")
    for setting in (SEVEN_BILLION, SMALL):
        yield from fast(*setting, 2000, 100, 1)
    yield from fast(*SEVEN_BILLION, 2000, 100, 4)
    yield from fast(*SEVEN_BILLION, 2000, 100, 1, function="profile")
    for model in MODELS[2:]:
        yield from right(model, "ragged", "bf16", "autocast", "fp32")
    for where, dtype in (("gpu", "fp32"), ("cpu", "fp32"), ("gpu", "bf16")):
        options = {"where": where, "dtype": dtype}
        yield Measurement(f"real run/{where} {dtype}", "real_run", options, limit=240)
    for model in SPECIAL:
        yield from right(model, "ragged", "bf16", "autocast", "fp32")
    for model in MODELS:
        yield from right(model, "long", "bf16")
        yield from right(model, "short", "bf16", "fp32")
    yield from fast(*SMALL, 2000, 100, 4)
    for prompt in (8000, 500):
        for setting in (SEVEN_BILLION, SMALL):
            yield from fast(*setting, prompt, 100, 1)
    yield from fast(*SEVEN_BILLION, 2000, 400, 1)
    yield from fast(*SEVEN_BILLION, 2000, 100, 4, ragged=True)
    yield from fast(*SEVEN_BILLION, 2000, 100, 1, checkpointing=False)
    yield from fast(*SMALL, 2000, 100, 4, function="profile")
    for model in ("Llama-3.1-8B", "Qwen2.5-7B"):
        yield from right(model, "ragged", "reentrant checkpointing", "compile")
        yield from right(model, "short", "checkpointing", "LoRA")
        yield from right(model, "long", "autocast", "checkpointing", "LoRA")
    for prompt in (500, 8000, 2000):
        for completion in (100, 400):
            for batch in (4, 8, 1, 2):
                for setting in (SEVEN_BILLION, SMALL):
                    yield from fast(*setting, prompt, completion, batch)
    for model in SPECIAL:
        yield from right(model, "short", "bf16", "fp32", "checkpointing", "LoRA", "compile")


def right(model: str, batch: str, *variants: str) -> Iterator[Measurement]:
    """How far shared and stacked scoring are from exact scores, in some variants of computing."""
    for variant in variants:
        options = {"name": model, "batch_name": batch, "variant_name": variant}
        # FlexAttention is compiled for each length.
        limit = 240 if variant == "compile" or model in SPECIAL else 120
        yield Measurement(f"right/{model}/{batch}/{variant}", "exactness", options, limit)


def fast(
    shape: str,
    mode: str,
    prompt: int,
    completion: int,
    batch: int,
    function: str = "fast",
    checkpointing: bool = True,
    ragged: bool = False,
) -> Iterator[Measurement]:
    """Training steps of TRL's DPOTrainer as it comes, then with shared prompts."""
    options = {"shape": shape, "mode": mode, "prompt": prompt, "completion": completion, "batch": batch}
    name = f"{function}/{shape}/{mode}/{prompt}+{completion}/batch {batch}"
    if not checkpointing:
        options, name = options | {"checkpointing": False}, f"{name}/without checkpointing"
    if ragged:
        options, name = options | {"ragged": True}, f"{name}/ragged"
    for way in ("TRL", "shared"):
        yield Measurement(f"{name}/{way}", function, options | {"way": way}, 180)


def read(file: Path) -> tuple[list[Record], dict[str, Record]]:
    """The headers of a results file and its records by name, the last of each; a partial line is left out."""
    headers, records = [], {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "header" in record:
            headers.append(record["header"])
        else:
            records[record["name"]] = record
    return headers, records


class Results:
    """A results file that is open for more."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.headers, self.records = read(file)
        self.stream = open(file, "a", encoding="utf-8")  # noqa: SIM115
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            self.stream.write("\n")

    def finished(self, name: str) -> bool:
        """Whether a measurement has a result; being out of memory is one, a failure is not."""
        return self.records.get(name, {}).get("outcome") in {"measured", "out of memory"}

    def add_header(self, header: Record) -> None:
        """Add the machine, once; a file belongs to one machine and one set of versions.

        Raises:
            SystemExit: the file's results are another machine's.
        """
        for known in self.headers[:1]:
            for part in ("device", "versions"):
                if known[part] != header[part]:
                    sys.exit(f"{self.stream.name}: measured with {known[part]}, not {header[part]}; name another file")
        if not self.headers:
            self.headers.append(header)
            self._write({"header": header})

    def add(self, record: Record) -> None:
        """Add a measurement's record."""
        self.records[record["name"]] = record
        self._write(record)

    def _write(self, record: Record) -> None:
        self.stream.write(json.dumps(record) + "\n")
        self.stream.flush()
        os.fsync(self.stream.fileno())


class Worker:
    """A process that takes measurements, and what it says, line by line."""

    def __init__(self, command: list[str], request: Record, environment: dict[str, str], log: IO[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def say(self, seconds: float) -> Record | None:
        """What it says next; None where it has ended.

        Raises:
            TimeoutError: it says nothing for so long.
        """
        try:
            line = self.lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def end(self) -> int:
        """End it and what it started; returns its status."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
        return self.process.wait()


def supervise(
    wanted: list[Measurement], results: Results, start: Callable[[list[Measurement]], Worker], deadline: float
) -> None:
    """Take measurements until none are left or the time is up (`time.monotonic()`), in as many processes as need be."""
    left = [each for each in wanted if not results.finished(each.name)]
    while left and time.monotonic() < deadline:
        worker, current, until, asked = start(left), None, time.monotonic() + START, len(left)
        try:
            while (said := worker.say(min(until, deadline) - time.monotonic())) is not None:
                if "header" in said:
                    results.add_header(said["header"])
                elif "begins" in said:
                    current = next(each for each in left if each.name == said["begins"])
                    until = time.monotonic() + current.limit
                else:
                    results.add(said)
                    tell(said)
                    left = [each for each in left if each.name != said["name"]]
                    current, until = None, time.monotonic() + START
            reason = f"the process ended with status {worker.end()}"
        except TimeoutError:
            reason = f"no result within {current.limit if current else START} s"
        finally:
            worker.end()
        if time.monotonic() >= deadline:
            return
        if current is not None:
            record = {"name": current.name, "options": current.options, "outcome": "failed", "reason": reason}
            results.add(record)
            tell(record)
            left = [each for each in left if each is not current]
        elif left and len(left) == asked:
            sys.exit(f"nothing could be measured: {reason}; {results.stream.name}.log tells why")


def tell(record: Record) -> None:
    """Say what came out of a measurement, in a line."""
    reason = f": {record['reason'].splitlines()[0][:160]}" if "reason" in record else ""
    verdict = (", right" if record["right"] else ", WRONG") if "right" in record else ""
    seconds = f", {record['seconds']:.3f} s a step" if isinstance(record.get("seconds"), float) else ""
    sys.stdout.write(f"{record['name']}: {record['outcome']}{reason}{verdict}{seconds}\n")
    sys.stdout.flush()


def install(wheels: Path, cache: Path) -> Path:
    """The folder of their own that wheels are installed into; an interrupted installation is repeated.

    Raises:
        SystemExit: there are no wheels.
    """
    files = sorted(wheels.glob("*.whl"))
    if not files:
        sys.exit(f"{wheels}: has no wheels; see docs/gpu.md")
    listing = "\n".join([sys.version, *(file.name for file in files)])
    target = cache / f"wheels-{hashlib.sha256(listing.encode()).hexdigest()[:12]}"
    done = target / ".complete"
    if not done.exists():
        # Without dependencies: what the machine has is used, and PyTorch above all is not looked for.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        command += ["--upgrade", "--find-links", str(wheels), "--target", str(target), *map(str, files)]
        subprocess.run(command, check=True)
        done.touch()
    return target


def tables(headers: list[Record], records: dict[str, Record]) -> str:
    """A results file as Markdown."""
    parts = [describe(header) for header in headers]
    by_function: dict[str, list[Record]] = {}
    for record in records.values():
        if record["outcome"] == "measured":
            by_function.setdefault(record["name"].split("/")[0], []).append(record)
    ceiling = next((each["tflops"] for each in by_function.get("ceiling", []) if "bfloat16" in each["name"]), None)
    parts.append(rates(by_function))
    parts.append(exactness(by_function))
    parts.append(speed(records, ceiling))
    parts.append(memory(by_function))
    parts.append(profiles(by_function))
    parts.append(real_runs(by_function))
    parts.append(unfinished(records))
    return "\n".join(part for part in parts if part)


def table(title: str, columns: list[str], rows: list[list[str]], text: str = "") -> str:
    """A section with a Markdown table; nothing where there are no rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
    return "\n".join([f"## {title}", "", *([text, ""] if text else []), *lines, ""])


def describe(header: Record) -> str:
    """The machine, the versions and the command."""
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    memory = (
        f", {header['memory_gib']} GiB, driver {header.get('driver')}, CUDA {header['cuda']}"
        if "cuda" in header
        else ""
    )
    return f"{header['device']}{memory}; {versions}.\n\n```sh\n{header['command']}\n```\n"


def rates(measured: dict[str, list[Record]]) -> str:
    """The ceilings of arithmetic and of memory."""
    rows = [[each["name"].split("/")[1], f"{each['tflops']:.3g} TFLOP/s"] for each in measured.get("ceiling", [])]
    rows += [["copy", f"{each['gb_per_second']:.3g} GB/s"] for each in measured.get("bandwidth", [])]
    return table("Measured ceilings", ["", "rate"], rows)


def exactness(measured: dict[str, list[Record]]) -> str:
    """Shared and stacked scoring against exact scores, and the kernel by itself."""
    rows = []
    for each in measured.get("right", []):
        _, model, batch, variant = each["name"].split("/")
        numbers = [
            f"{each[way][error]:.1e}" for error in ("log_prob", "loss", "gradient") for way in ("stacked", "shared")
        ]
        rows.append([model, batch, variant, each["attention"], *numbers, "yes" if each["right"] else "**no**"])
    columns = ["model", "batch", "computed in", "attention", "log-prob: stacked", "shared", "loss: stacked", "shared"]
    text = table("Exactness", [*columns, "gradient: stacked", "shared", "right"], rows)
    rows = [[each["name"].split("/")[1], f"{each['log_prob']:.2f}"] for each in measured.get("dependence", [])]
    text += "\n" * bool(rows) + table(
        "Change of a log-prob when the prompt's far half is another", ["model", "nats"], rows
    )
    rows = [
        [*each["name"].split("/")[1:], *(f"{each[name]:.1e}" for name in ("output", "query", "key", "value"))]
        for each in measured.get("kernel", [])
    ]
    columns = ["heads of", "window", "output", "gradient: query", "key", "value"]
    return text + "\n" * bool(rows) + table("FlashAttention's kernel, relative error", columns, rows)


def speed(records: dict[str, Record], ceiling: float | None) -> str:
    """Seconds of a step of TRL's trainer and with shared prompts, and what follows from them."""
    rows = []
    for name, shared in records.items():
        if not (name.startswith("fast/") and name.endswith("/shared")):
            continue
        trl = records.get(name.removesuffix("shared") + "TRL", {"outcome": "not measured"})
        pair = [trl, shared]
        seconds = [f"{each['seconds']:.3f}" if "seconds" in each else each["outcome"] for each in pair]
        both = all("seconds" in each for each in pair)
        speedup = f"{trl['seconds'] / shared['seconds']:.2f}" if both else ""
        known = next((each for each in pair if "unique_tokens" in each), None)
        limit = f"{known['tokens'] / known['unique_tokens']:.2f}" if known else ""
        rate = [
            f"{each[key]:,.0f}" if key in each else ""
            for key in ("tokens_per_second", "unique_tokens_per_second")
            for each in pair
        ]
        mfu = [
            f"{each['operations'] / each['seconds'] / ceiling / 1e12:.1%}" if ceiling and "seconds" in each else ""
            for each in pair
        ]
        peak = [f"{each['peak_bytes'] / 2**30:.1f}" if each.get("peak_bytes") else "" for each in pair]
        setting = " ".join(name.split("/")[1:-1])
        rows.append(
            [
                setting,
                trl.get("attention", ""),
                shared.get("attention", ""),
                *seconds,
                speedup,
                limit,
                *rate,
                *mfu,
                *peak,
            ]
        )
    columns = ["setting", "TRL's attention", "shared attention", "s a step: TRL", "shared", "speed-up", "limit"]
    columns += [
        "tokens/s: TRL",
        "shared",
        "unique tokens/s: TRL",
        "shared",
        "MFU: TRL",
        "shared",
        "peak GiB: TRL",
        "shared",
    ]
    return table("Speed and memory", columns, rows)


def memory(measured: dict[str, list[Record]]) -> str:
    """The estimate's memory beside the measured one."""
    rows = []
    for each in measured.get("fast", []):
        if each.get("peak_bytes"):
            total, peak = each["predicted"]["total"], each["peak_bytes"]
            moments = each["predicted"]["moments"]
            largest = max(moments, key=lambda moment: moments[moment])
            numbers = [f"{total / 2**30:.1f}", f"{peak / 2**30:.1f}", f"{total / peak - 1:+.0%}"]
            rows.append([" ".join(each["name"].split("/")[1:]), *numbers, largest])
    return table("Estimated memory", ["setting", "estimated GiB", "measured GiB", "error", "largest moment"], rows)


def profiles(measured: dict[str, list[Record]]) -> str:
    """Where the device's time goes."""
    found = measured.get("profile", [])
    kinds = list(found[0]["seconds"]) if found else []
    rows = [
        [
            " ".join(each["name"].split("/")[1:]),
            *(f"{each['seconds'][kind] / max(sum(each['seconds'].values()), 1e-12):.1%}" for kind in kinds),
            f"{each['busy']:.0%}",
            f"{each['launches']:,}",
        ]
        for each in found
    ]
    return table("Where the time goes", ["setting", *kinds, "device busy", "kernels in two steps"], rows)


def real_runs(measured: dict[str, list[Record]]) -> str:
    """The losses of real runs, step by step."""
    found = [each for each in measured.get("real run", []) if each.get("losses")]
    steps = max((len(each["losses"]) for each in found), default=0)
    rows = [
        [str(step + 1), *(f"{each['losses'][step]:.4f}" if step < len(each["losses"]) else "" for each in found)]
        for step in range(steps)
    ]
    return table("A real run's losses", ["step", *(each["name"].split("/")[1] for each in found)], rows)


def unfinished(records: dict[str, Record]) -> str:
    """What has no figures, and why."""
    rows = [
        [each["name"], each["outcome"], each.get("reason", "").splitlines()[0][:200].replace("|", "/")]
        for each in records.values()
        if each["outcome"] != "measured"
    ]
    return table("Without figures", ["measurement", "outcome", "reason"], rows)


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
    # TRL refuses to run where one process sees several GPUs.
    environment = (
        {"CUDA_VISIBLE_DEVICES": "0"}
        | os.environ
        | {
            "PYTHONPATH": os.pathsep.join(path),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
    )
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
            command = [sys.executable, str(ROOT / "benchmarks/gpu_measure.py")]
            return Worker(command, request | {"measurements": named}, environment, log)

        supervise(wanted, results, start, deadline)
    sys.stdout.write("\n" + tables(*read(output)))
    missing = sum(not results.finished(each.name) for each in wanted)
    if missing:
        sys.stdout.write(f"\n{missing} of {len(wanted)} measurements are missing; the same command takes them up.\n")


if __name__ == "__main__":
    main()
