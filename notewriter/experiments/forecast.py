"""The estimate of a pipeline on this machine: minutes, gigabytes and money of each run, before it starts.

The runs marked `in_dry_run` are done: they call no model and take seconds, and their results tell how much the
others will do. Tokens of a run that asks a model are counted by its own dry run. Pairs are made once without a model,
into a folder of their own, from which `notewriter preflight` estimates the training. A probe of some seconds measures
the speed of the machine, beside whatever else it does.
"""

import json
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open

from notewriter.artifacts import run_record, statistics
from notewriter.experiments.run import Pipeline, PipelineRun, program
from notewriter.ground import jsonl
from notewriter.ground.config import given, without_options
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint
from notewriter.rollouts.rehearsal import Expected

FOLDER = "dry_run"
"""The folder in that of the pipeline for pairs without a model."""

STARTS = {"": 2.0, "train": 9.0, "server": 19.0}
"""The start of a command, a training and a server, as a multiple of the time to import torch and transformers.

By a run on two idle cores (docs/own.md), where importing took 2.5 seconds: other machines may differ.
"""

SAVED = 4
"""Sizes of the weights in float32 that training writes: the model, and a state with the optimizer's two moments."""

TEACHER = 1000.0
"""Tokens a second that all requests to an address together are assumed to write."""

PROBE = """
import time, torch, transformers
gpu = torch.cuda.is_available()
kind = dict(device="cuda", dtype=torch.bfloat16) if gpu else {}
width = 4096 if gpu else 576
layers = torch.nn.Sequential(*(
    torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True, **kind) for _ in range(4)
)).eval()
parameters = sum(each.numel() for each in layers.parameters())
for tokens, passes in ((512, 3), (512, 1), (16, 1)):
    x, rates = torch.randn(8 if gpu else 1, tokens, width, **kind), []
    start = time.perf_counter()
    with torch.set_grad_enabled(passes == 3):
        while len(rates) < 4 or (len(rates) < 1000 and time.perf_counter() - start < 1):
            began = time.perf_counter()
            out = layers(x)
            if passes == 3:
                out.sum().backward()
            if gpu:
                torch.cuda.synchronize()
            rates.append(time.perf_counter() - began)
    # The first one warms up.
    print(2 * passes * parameters * x.shape[0] * tokens * (len(rates) - 1) / sum(rates[1:]))
"""


class Speed(NamedTuple):
    """Operations a second of training, of reading prompts and of writing replies to several at once, and the seconds
    that it takes to import torch and transformers."""

    training: float
    reading: float
    writing: float
    start: float


@dataclass
class Cost:
    """The estimate of a run; `said` has further facts, such as its tokens."""

    seconds: float = 0.0
    gigabytes: float = 0.0
    money: float | None = None
    said: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Such as `1.2 minutes, 0.54 GB, 33,739 tokens`."""
        parts = [f"{self.seconds / 60:.1f} minutes"]
        parts += [f"{self.gigabytes:.1f} GB"] if self.gigabytes else []
        parts += [f"${self.money:.2f}"] if self.money is not None else []
        return ", ".join([*parts, *self.said])


def probe() -> Speed:
    """The speed of this machine now, by four layers of a transformer."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", PROBE.splitlines()[1]], check=True)
    start = time.monotonic() - began
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    training, reading, writing = map(float, done.stdout.split())
    return Speed(training, reading, writing, start)


def forecast(pipeline: Pipeline) -> Iterator[str]:
    """The lines of a dry run: each run's title with its estimate, its command, and the sum.

    Raises:
        UserError: a run that is marked `in_dry_run` fails, or the dry run of another one.
    """
    if pipeline.opening:
        yield f"# {pipeline.opening}\n"
    forecaster = _Forecaster(pipeline, probe())
    total = Cost()
    for run in pipeline.runs:
        cost = forecaster.cost(run)
        total.seconds += cost.seconds
        total.gigabytes += cost.gigabytes
        total.money = cost.money if total.money is None else total.money + (cost.money or 0)
        yield f"# {run.title}: {cost.text()}\n{shlex.join(program(run.command_line()))}\n"
    yield f"# in all: {total.text()}; counted from the inputs, at the speed that four layers have here now "
    yield "(downloads and waiting for a teacher are not in the minutes)\n"


@dataclass
class _Forecaster:
    """Estimates the runs in their order, since the results of one are the inputs of another.

    Args:
        pipeline: the runs.
        speed: the machine's.
        parameters: of the model that was named last.
        named: folder of a model that is not there yet -> its name on the Hub.
        served: the model that the run before asked.
    """

    pipeline: Pipeline
    speed: Speed
    parameters: float = 0.0
    named: dict[str, str] = field(default_factory=dict)
    served: str | None = None

    def cost(self, run: PipelineRun) -> Cost:
        """The estimate of a run."""
        argv = run.argv()
        if argv[:1] == ["notewriter"] and run.results() and not run.missing():
            return Cost(said=["finished"])
        before, self.served = self.served, run.serve
        if run.in_dry_run:
            return Cost(seconds=self._done(argv, self.pipeline.log(run)))
        start = self.speed.start
        if argv[1:3] == ["fetch", "model"]:
            return self._fetched(argv)
        if run.serve or "--base_url" in argv:
            cost = self._asked(run)
            cost.seconds += start * (STARTS[""] + (STARTS["server"] if run.serve and run.serve != before else 0))
            return cost
        if argv[:2] == ["notewriter", "train"]:
            return self._trained(argv)
        return Cost(seconds=start * STARTS[""])

    def _done(self, argv: list[str], log: Path) -> float:
        """Do a run; returns its seconds."""
        began = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        jsonl.write_text(log, [shlex.join(program(argv)) + "\n", _printed(argv)])
        return time.monotonic() - began

    def _fetched(self, argv: list[str]) -> Cost:
        folder = given(argv).get("output_dir")
        if not folder or Path(folder).is_dir():
            return Cost(seconds=self.speed.start * STARTS[""], said=["is there"])
        self.named[folder] = argv[3]
        size = re.search(r"to download: ([\d.]+) ([kMGT])?B", _printed([*argv, "--dry_run", "true"]))
        scale = {"k": 1e-6, "M": 1e-3, "G": 1.0, "T": 1e3}
        return Cost(gigabytes=float(size[1]) * scale.get(size[2], 1e-9) if size else 0.0, said=["to download"])

    def _asked(self, run: PipelineRun) -> Cost:
        """The estimate of a run that calls a model: its own dry run, and for pairs those that need no model."""
        argv, model = run.argv(), self._model(run.serve)
        output = Path(given(argv)["output_dir"])
        tokenizer = ["--tokenizer", model] if model else []
        _printed([*argv, "--dry_run", "true", *tokenizer])
        estimate: dict[str, Any] = jsonl.read_object(output / run_record.ESTIMATE, Expected, "remove it")
        tokens = estimate["tokens_in_all"]
        prompt, completion = tokens["prompt_tokens"], tokens["completion_tokens"]
        if argv[1] == "pairs":
            silent = run.mapping("models") | {"policy": {"control": "empty"}}
            alone = without_options(argv, {"--output_dir", "--base_url", "--model", "--models"})
            folder = Path(self.pipeline.output_dir) / FOLDER / output.name
            _printed([*alone, "--models", json.dumps(silent), "--output_dir", str(folder)])
        said = f"{prompt:,.0f} tokens to read and {completion:,.0f} to write"
        if not run.serve:
            return Cost(completion / TEACHER, 0.0, estimate.get("money"), [said])
        work = prompt / self.speed.reading + completion / self.speed.writing
        return Cost(seconds=2 * self._size(model) * work, said=[said])

    def _trained(self, argv: list[str]) -> Cost:
        """The estimate of a training: preflight's, for its pairs or for those made without a model."""
        options = without_options(argv[3:], {"--accelerate", "--output_dir"})
        pairs = given(options).get("pairs") or given(options)["data"]
        alone = Path(self.pipeline.output_dir) / FOLDER / Path(pairs).name
        if not (Path(pairs) / statistics.NAME).is_file():
            options = [str(alone) if word == pairs else word for word in options]
        base = given(options).get("model_name_or_path", "")
        options = [self.named.get(word, word) for word in options]
        printed = _printed(["notewriter", "preflight", *options, "--method", argv[2], "--show", "0"])
        figures = re.search(r"([\d,]+) tokens, ([\d,]+) optimizer steps, ([\d.e+]+) operations", printed)
        memory = re.search(r"memory of a GPU: ([\d.]+) GiB", printed)
        assert figures and memory
        seconds = float(figures[3]) / self.speed.training + STARTS["train"] * self.speed.start
        said = [f"{figures[1]} tokens in {figures[2]} steps", f"{memory[1]} GiB of memory"]
        return Cost(seconds, SAVED * 4 * self._size(self._model(base)) / 1e9, None, said)

    def _model(self, folder: str | None) -> str:
        """A folder that is there or a name on the Hub; empty for one that is not made yet."""
        if not folder:
            return ""
        return folder if Path(folder).is_dir() else self.named.get(folder, "")

    def _size(self, model: str) -> float:
        """The parameters of a model by its files or its name, or of the one before for one that is not made yet."""
        if Path(model).is_dir():
            model = Checkpoint(model).base.path
        weights = list(Path(model).glob("*.safetensors")) if model else []
        name = re.search(r"(\d+(?:\.\d+)?)([MB])\b", model)
        if weights:
            self.parameters = sum(map(_values_in, weights))
        elif name:
            self.parameters = float(name[1]) * (1e6 if name[2] == "M" else 1e9)
        return self.parameters


def _values_in(file: Path) -> int:
    """The number of values in a file of weights, by its header."""
    with safe_open(file, framework="numpy") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in map(str, weights.keys()))


def _printed(argv: list[str]) -> str:
    """The output of a command.

    Raises:
        UserError: it fails; has its reason.
    """
    done = subprocess.run(program(argv), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")] or [done.stderr[-300:]]
        raise UserError(f"{shlex.join(argv[:2])}: {lines[-1].removeprefix('error: ')}")
    return done.stdout
