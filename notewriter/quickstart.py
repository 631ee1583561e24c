"""`notewriter quickstart`: the whole pipeline on a generated world, on the CPU, evaluated before and after DPO.

Every stage is a command that can also be run by hand; it is the first line of the stage's log. The two stages that
use the base model share one server, whose log also starts with its command. Finished stages do nothing when the
quickstart is run again.
"""

import contextlib
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from notewriter.config import parse
from notewriter.errors import UserError, writing
from notewriter.models.server import Server, free_ports, serve

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"
POLL = 5.0
"""Seconds between checks of the server while a stage uses it."""


@dataclass
class QuickstartArguments:
    """The folders of the quickstart."""

    output_dir: str = field(default="runs/quickstart", metadata={"help": "the folder for all output"})
    model_dir: str = field(
        default="models/SmolLM2-135M-Instruct", metadata={"help": "the model to start from; fetched if missing"}
    )


@dataclass(frozen=True)
class Stage:
    """A title and a command; `served_until` is the result of a stage that needs the base model's server until then."""

    title: str
    command: list[str]
    served_until: Path | None = None


def stages(output: str, model: str, base_url: str) -> list[Stage]:
    """The stages in order; `base_url` is the address of the base model's server."""
    notewriter = [str(Path(sys.executable).with_name("notewriter"))]
    launch = [str(Path(sys.executable).with_name("accelerate")), "launch", "--quiet"]
    evaluate = [*notewriter, "evaluate", "--config", f"{CONFIGS}/eval/quickstart.yaml"]
    trained = f"{output}/checkpoint"
    test = ["--path", f"{output}/world/test/questions.jsonl", "--index", f"{output}/index/test"]
    train = ["--path", f"{output}/world/train/questions.jsonl", "--index", f"{output}/index/train"]
    cache = ["--cache", f"{output}/cache.sqlite"]
    base = ["--base_url", base_url, "--model", Path(model).name]
    before, after = f"{output}/before", f"{output}/after"
    return [
        Stage("fetch SmolLM2-135M-Instruct", [*notewriter, "fetch-model", "--output_dir", model]),
        Stage(
            "generate a world",
            # Two hops, because the quickstart refines the note once.
            [*(*notewriter, "world", "--output_dir", f"{output}/world", "--seed", "11"), *("--hops", "2")],
        ),
        Stage(
            "index the training world", index(notewriter, f"{output}/world/train/corpus.jsonl", f"{output}/index/train")
        ),
        Stage(
            "index the held-out world", index(notewriter, f"{output}/world/test/corpus.jsonl", f"{output}/index/test")
        ),
        Stage(
            "roll out and label pairs",
            [
                *(*notewriter, "pairs", "--config", f"{CONFIGS}/data/quickstart.yaml", *base),
                *(*train, *cache, "--output_dir", f"{output}/pairs"),
            ],
            served_until=Path(output, "pairs", "stats.json"),
        ),
        Stage(
            "evaluate before",
            [*evaluate, *base, *test, *cache, "--output_dir", before],
            served_until=Path(before, "metrics.json"),
        ),
        Stage(
            "train with DPO",
            [
                *(*launch, "--config_file", f"{CONFIGS}/accelerate/cpu.yaml", f"{ROOT}/training/train_dpo.py"),
                *("--config", f"{CONFIGS}/dpo/quickstart_smollm2.yaml", "--model_name_or_path", model),
                *("--pairs", f"{output}/pairs", "--output_dir", trained),
            ],
        ),
        Stage("evaluate after", [*evaluate, "--serve", trained, *test, *cache, "--output_dir", after]),
        Stage(
            "write the report", [*notewriter, "report", "--runs", before, after, "--output", f"{output}/report.html"]
        ),
        Stage("compare", [*notewriter, "compare", "--before", before, "--after", after]),
    ]


def index(notewriter: list[str], corpus: str, folder: str) -> list[str]:
    """The command that indexes a corpus in our own format."""
    return [*notewriter, "index", "--dataset", "jsonl", "--path", corpus, "--index", folder]


def main(argv: list[str]) -> None:
    """Run the stages in order and print the output of the last one, the table."""
    (arguments,) = parse(QuickstartArguments, argv, prog="notewriter quickstart", description=__doc__)
    output, model = Path(arguments.output_dir), arguments.model_dir
    logs = output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    plan = stages(str(output), model, f"http://127.0.0.1:{port}/v1")
    began = time.monotonic()
    server = None
    with contextlib.ExitStack() as serving:
        for number, stage in enumerate(plan, start=1):
            sys.stdout.write(f"[{number:2}/{len(plan)}] {stage.title:28}")
            sys.stdout.flush()
            start = time.monotonic()
            try:
                if not stage.served_until:
                    # The stages that need the server are consecutive; training needs the memory and both cores.
                    serving.close()
                    server = None
                elif not server and not stage.served_until.exists():
                    server = serving.enter_context(_serve(model, port, logs / "base-model-server.log"))
                log = logs / f"{number:02}-{stage.title.replace(' ', '-').lower()}.log"
                last = _run(stage, log, server)
            except UserError:
                sys.stdout.write("\n")
                raise
            sys.stdout.write(f"{time.monotonic() - start:6.0f} s  {_headline(last)}\n")
    sys.stdout.write(f"\n{last}\nreport: {output / 'report.html'}    ({time.monotonic() - began:.0f} s in total)\n")


def _serve(model: str, port: int, log: Path) -> contextlib.AbstractContextManager[Server]:
    """The base model's server, with the same options as for the trained model."""
    recipe = yaml.safe_load((CONFIGS / "eval" / "quickstart.yaml").read_text(encoding="utf-8"))
    return serve(model, recipe["serve_options"] | {"served_model_name": Path(model).name}, log=log, port=port)


def _headline(output: str) -> str:
    """The first line of a stage's output that is neither a library's log nor a table."""
    return next((line for line in output.splitlines() if not line.startswith(("[", "|", "{"))), "")


def _run(stage: Stage, log: Path, server: Server | None) -> str:
    """Run a stage with its output in `log`, keeping its server alive; returns its standard output."""
    with writing(log), open(log, "w", encoding="utf-8") as file:
        file.write(shlex.join(stage.command) + "\n")
        file.flush()
        with subprocess.Popen(
            stage.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, text=True
        ) as process:
            try:
                printed = _wait(process, server)
            except BaseException:
                process.kill()
                raise
        file.write(printed)
    if process.returncode:
        reasons = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("error: ")]
        reason = reasons[-1].removeprefix("error: ") if reasons else f"exited with code {process.returncode}"
        raise UserError(f"{stage.title}: {reason} (log: {log}); run the same command again to resume")
    return printed.strip()


def _wait(process: subprocess.Popen[str], server: Server | None) -> str:
    """The standard output of a process; restarts the server if it dies meanwhile."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=POLL)[0]
        if server:
            server.ensure_alive()
