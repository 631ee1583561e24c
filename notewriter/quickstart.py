"""`notewriter quickstart`: the whole pipeline on a generated world, on the CPU: rollouts, pairs, DPO, before and after.

Every stage is a command that can be given by hand; the log of each begins with it. A stage that is
finished already does nothing when the quickstart is run again.
"""

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.config import parse
from notewriter.errors import UserError

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Arguments:
    """Where the quickstart works."""

    output_dir: str = field(default="runs/quickstart", metadata={"help": "everything the quickstart makes goes here"})
    model_dir: str = field(
        default="models/SmolLM2-135M-Instruct", metadata={"help": "the model to start from; fetched if it is not there"}
    )


def stages(output: str, model: str) -> list[tuple[str, list[str]]]:
    """What is done, in order: a title and the command."""
    notewriter = [str(Path(sys.executable).with_name("notewriter"))]
    launch = [str(Path(sys.executable).with_name("accelerate")), "launch", "--quiet"]
    configs = ROOT / "configs"
    evaluate = [*notewriter, "evaluate", "--config", f"{configs}/eval/quickstart.yaml"]
    trained = f"{output}/checkpoint"
    test = ["--path", f"{output}/world/test/questions.jsonl", "--index", f"{output}/index/test"]
    train = ["--path", f"{output}/world/train/questions.jsonl", "--index", f"{output}/index/train"]
    cache = ["--cache", f"{output}/cache.sqlite"]
    runs = [f"{output}/before", f"{output}/after"]
    return [
        ("fetch SmolLM2-135M-Instruct", [*notewriter, "fetch-model", "--output_dir", model]),
        (
            "generate a world",
            # Two hops, since the quickstart refines the note once.
            [*(*notewriter, "world", "--output_dir", f"{output}/world", "--seed", "11"), *("--hops", "2")],
        ),
        ("index the training world", index(notewriter, f"{output}/world/train/corpus.jsonl", f"{output}/index/train")),
        ("index the held-out world", index(notewriter, f"{output}/world/test/corpus.jsonl", f"{output}/index/test")),
        (
            "roll out and label pairs",
            [
                *(*notewriter, "pairs", "--config", f"{configs}/data/quickstart.yaml", "--serve", model),
                *(*train, *cache, "--output_dir", f"{output}/pairs"),
            ],
        ),
        (
            "train with DPO",
            [
                *(*launch, "--config_file", f"{configs}/accelerate/cpu.yaml", f"{ROOT}/training/train_dpo.py"),
                *("--config", f"{configs}/dpo/quickstart_smollm2.yaml", "--model_name_or_path", model),
                *("--pairs", f"{output}/pairs", "--output_dir", trained, "--bf16", _multiplies_bfloat16()),
            ],
        ),
        ("evaluate before", [*evaluate, "--serve", model, *test, *cache, "--output_dir", runs[0]]),
        ("evaluate after", [*evaluate, "--serve", trained, *test, *cache, "--output_dir", runs[1]]),
        ("write the report", [*notewriter, "report", "--runs", *runs, "--output", f"{output}/report.html"]),
        ("compare", [*notewriter, "compare", "--before", runs[0], "--after", runs[1]]),
    ]


def _multiplies_bfloat16() -> str:
    """Whether the CPU has units for bfloat16 matrices (AMX), which halve a step; elsewhere little is gained."""
    import torch

    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return str(capabilities.get("amx_bf16", False)).lower()


def index(notewriter: list[str], corpus: str, folder: str) -> list[str]:
    """The command that indexes a corpus of our own format."""
    return [*notewriter, "index", "--dataset", "jsonl", "--path", corpus, "--index", folder]


def main(argv: list[str]) -> None:
    """Run the stages in order; the last one's output, the table, is shown whole."""
    (arguments,) = parse(Arguments, argv, prog="notewriter quickstart", description=__doc__)
    output = Path(arguments.output_dir)
    logs = output / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    plan = stages(str(output), arguments.model_dir)
    began = time.monotonic()
    for number, (title, command) in enumerate(plan, start=1):
        sys.stdout.write(f"[{number:2}/{len(plan)}] {title:28}")
        sys.stdout.flush()
        start = time.monotonic()
        log = logs / f"{number:02}-{title.replace(' ', '-').lower()}.log"
        last = _run(title, command, log)
        sys.stdout.write(f"{time.monotonic() - start:6.0f} s  {_headline(last)}\n")
    sys.stdout.write(f"\n{last}\nreport: {output / 'report.html'}    ({time.monotonic() - began:.0f} s in all)\n")


def _headline(output: str) -> str:
    """The first line of a stage's result that is neither a library's log nor a table."""
    return next((line for line in output.splitlines() if not line.startswith(("[", "|", "{"))), "")


def _run(title: str, command: list[str], log: Path) -> str:
    """Run one stage into its log; returns what it printed as its result."""
    with open(log, "w", encoding="utf-8") as file:
        file.write(shlex.join(command) + "\n")
        file.flush()
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, text=True)
        file.write(done.stdout)
    if done.returncode:
        sys.stdout.write("\n")
        reasons = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("error: ")]
        reason = reasons[-1].removeprefix("error: ") if reasons else f"ended with code {done.returncode}"
        raise UserError(f"{title}: {reason} (log: {log}); run the same command again to go on")
    return done.stdout.strip()
