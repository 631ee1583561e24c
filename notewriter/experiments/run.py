"""Pipelines: the runs in a file, each a command with its needs, its predecessors and its results."""

import itertools
import json
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Interval, MinLen

from notewriter.artifacts import best_checkpoint, retrieval, statistics
from notewriter.artifacts.training_record import TRAINING_RECORD
from notewriter.experiments import files
from notewriter.experiments.compared import Compared
from notewriter.experiments.files import MAX_RUNS, Given, Text, Value, Variables
from notewriter.experiments.rising import ended
from notewriter.ground import typed
from notewriter.ground.config import at_home, given, spelled, without_options
from notewriter.ground.errors import UserError
from notewriter.ground.recipes import SLURM
from notewriter.ground.yaml_files import check_mapping
from notewriter.models.gpus import visible_gpus
from notewriter.models.serve_options import runs_on_cpu
from notewriter.models.server import READY_TIMEOUT
from notewriter.training.profiles import OF_THE_LAUNCH, profile

T = TypeVar("T")

RESULTS = {
    "fetch": ("--output_dir", "config.json"),
    "world": ("--output_dir", "test/questions.jsonl"),
    "corpus": ("--output_dir", "manifest.json"),
    "fetch pages": ("--output", ""),
    "split": ("--output_dir", "dev.jsonl"),
    "index": ("--index", "manifest.json"),
    "pairs": ("--output_dir", statistics.NAME),
    "gold": ("--output_dir", statistics.NAME),
    "chains": ("--output_dir", statistics.NAME),
    "train": ("--output_dir", TRAINING_RECORD),
    "evaluate": ("--output_dir", "metrics.json"),
    "report": ("--output", ""),
    "table": ("--output", ""),
    "fit-control": ("--output", ""),
    "cloze": ("--output", ""),
    "inspect": ("--output", ""),
    "merge": ("--output_dir", "config.json"),
}
"""Command of notewriter -> the option with its output folder, and the last file that it writes there."""

RESULTS_OF_EVALUATE = {"chains": retrieval.NAME, "checkpoints": best_checkpoint.NAME}
"""Option of evaluate -> the last file that it writes with it, in place of that in `RESULTS`."""


@dataclass(frozen=True)
class Needs:
    """A run's needs on a cluster.

    `gpus` is the total; they are spread over as many nodes as hold them, or over `nodes` if that is more. `cpus` and
    `memory_gb` are per node; unset they follow from the GPUs and the cluster's settings. Unset `hours` are the
    partition's default.
    """

    nodes: Annotated[int, Interval(ge=1)] = 1
    gpus: Annotated[int, Interval(ge=0)] = 0
    cpus: Annotated[int, Interval(ge=1)] | None = None
    memory_gb: Annotated[int, Interval(ge=1)] | None = None
    hours: Annotated[float, Interval(gt=0)] | None = None

    def nodes_of(self, gpus_per_node: int) -> int:
        """The number of nodes on a cluster with `gpus_per_node`."""
        return max(self.nodes, math.ceil(self.gpus / gpus_per_node))


@dataclass(frozen=True)
class PipelineRun:
    """A command with a title.

    Attributes:
        command: the command line.
        result: the file that the command writes last, or all files, by default that of `RESULTS`. A run whose results
            exist is finished; a run without one, as with an empty list, is never taken as finished.
        after: titles of the runs that must have succeeded before; default: the preceding run.
        serve: the model that the command asks, its `--serve`. On this machine consecutive runs with the same model
            share a server.
        needs: its needs on a cluster.
        in_dry_run: whether a dry run does it, to estimate the others from its results: it calls no model and
            takes seconds (`notewriter.experiments.forecast`).
        while_rising: the rule under which it is needed, of rounds that end early (`notewriter.experiments.rising`).
    """

    title: Text
    command: Text
    result: Text | list[Text] | None = None
    after: list[str] | None = None
    serve: Text | None = None
    needs: Needs = field(default_factory=Needs)
    in_dry_run: bool = False
    while_rising: Text | None = None

    @property
    def slug(self) -> str:
        """The title as part of a file name."""
        return re.sub(r"[^\w.]+", "-", self.title.lower()).strip("-")

    def argv(self) -> list[str]:
        """The words of the command, without `serve`; the options of a command of ours are spelled one way."""
        words = shlex.split(self.command)
        argv: list[str] = at_home(spelled(words) if words[:1] == ["notewriter"] else words)
        return argv

    def command_line(self) -> list[str]:
        """The command that stands by itself, with a server of its own if it asks one."""
        return [*self.argv(), *(["--serve", self.serve] if self.serve else [])]

    def results(self) -> list[Path]:
        """The files that it writes last; empty if it has none."""
        result = (_result_of(self.argv()) or []) if self.result is None else self.result
        return [Path(file) for file in ([result] if isinstance(result, str) else result)]

    def skipped(self) -> str:
        """The reason why the run is no longer needed, or empty."""
        return ended(self.while_rising) if self.while_rising else ""

    def missing(self) -> bool:
        """Whether the run is to be done: it has no result, or a missing one, and is not skipped."""
        results = self.results()
        return not self.skipped() and not (results and all(file.exists() for file in results))

    def mapping(self, option: str) -> dict[str, Any]:
        """An option that is a JSON object, as `serve_options`; empty unless it is given."""
        return self._option(option, dict[str, Any], {})

    def replicas(self) -> int:
        """The servers that the command has of its model."""
        return self._option("replicas", int, 1)

    def ready_timeout(self) -> float:
        """The seconds that a server of the command has to be ready."""
        return self._option("ready_timeout", float, READY_TIMEOUT)

    def _option(self, name: str, kind: type[T], default: T) -> T:
        """An option of the command or its configuration file.

        Raises:
            UserError: it is of another type.
        """
        value = given(self.argv()).get(name) or default
        return typed.read(_number(value), kind, f"{self.title}: --{name}", "correct it")


def _result_of(argv: Sequence[str]) -> str | None:
    """The last file that a command of notewriter writes, by its own options and those of its configuration file."""
    program, command, word, *_ = [*argv, "", "", ""]
    option, name = RESULTS.get(f"{command} {word}") or RESULTS.get(command, ("", ""))
    if program != "notewriter" or not option:
        return None
    try:
        settings = given(argv)
    except UserError:
        # An earlier run may have yet to make the configuration file.
        settings = given(without_options(argv, {"--config"}))
    if command == "evaluate":
        name = next((file for each, file in RESULTS_OF_EVALUATE.items() if settings.get(each)), name)
    place: str | None = at_home(settings.get(option.removeprefix("--")))
    return place and f"{place}/{name}".rstrip("/")


@dataclass(frozen=True)
class PipelineFile:
    """The keys of a pipeline file and those that it includes; `runs` are entries with or without `each`.

    `asks` are the variables that a terminal asks for if they have no value -> the question; empty: nothing.
    """

    output_dir: Text
    runs: Annotated[list[dict[str, Any]], MinLen(1)]
    variables: dict[str, Value] = field(default_factory=dict)
    report: Text | None = None
    results: Compared | None = None
    opening: Text | None = None
    asks: dict[str, Text] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """The runs in order, with their variables filled in.

    `output_dir` is the folder of the pipeline, whose name is the pipeline's; `report` is a file to name at the end, and
    `opening` what is said before the first run;
    `results` is what `notewriter table` makes a page of (`notewriter.results.experiment`), filled in with `variables`.
    """

    output_dir: Text
    runs: list[PipelineRun]
    variables: dict[str, Value] = field(default_factory=dict)
    report: Text | None = None
    results: Compared | None = None
    opening: Text | None = None

    @property
    def logs(self) -> Path:
        """The folder of the runs' logs."""
        return Path(self.output_dir) / "logs"

    def log(self, run: PipelineRun) -> Path:
        """The log of a run."""
        return self.logs / f"{self.runs.index(run) + 1:02}-{run.slug}.log"

    def before(self, run: PipelineRun) -> list[PipelineRun]:
        """The runs that must have succeeded before a run starts."""
        if run.after is None:
            number = self.runs.index(run)
            return self.runs[number - 1 : number]
        return [each for each in self.runs if each.title in run.after]


def read_pipeline_file(path: Path, output_dir: str | None = None) -> PipelineFile:
    """The keys of a pipeline file, as written; `output_dir` replaces its folder.

    Raises:
        UserError: the file cannot be read, or is not a pipeline.
    """
    content = files.read_file(path, "check the path of the pipeline")
    if output_dir is not None:
        content["output_dir"] = Given(output_dir)
    return check_mapping(content, PipelineFile, str(path))


def read_pipeline(path: Path, output_dir: str | None = None, changes: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file; `output_dir` and `changes` replace the file's folder and variables.

    Raises:
        UserError: the file cannot be read, or is not a pipeline; names the run and the key.
    """
    file = read_pipeline_file(path, output_dir)
    changes = changes or {}
    # Asking the driver takes a second, and few files depend on the machine.
    machine = {"gpu_gib": 0 if "gpu_gib" in changes else gpu_gib()} if "gpu_gib" in str(file) else {}
    variables = files.changed(machine | file.variables, changes, path)
    if machine:
        variables["gpu_gib"] = typed.read(_number(variables["gpu_gib"]), int, "--set gpu_gib")
    variables = at_home({"output_dir": file.output_dir, **variables})
    folder = files.filled("{{ output_dir }}", variables, f"{path}: output_dir")
    again = [str(path), "--output_dir", folder]
    again += ["--set", *(f"{name}={value}" for name, value in changes.items())] if changes else []
    variables["pipeline"] = f"{{% raw %}}{shlex.join(again)}{{% endraw %}}"
    entries = files.repeated(file.runs, variables, f"{path}: runs")
    runs: list[PipelineRun] = []
    written: dict[Path, str] = {}
    for entry, scope, place in itertools.islice(entries, MAX_RUNS + 1):
        runs.append(run := _run(entry, scope, place))
        _check(run, [each.title for each in runs[:-1]], place)
        # A named result may be of several: two downloads share a file.
        for result in run.results() if run.result is None else ():
            if (other := written.setdefault(result, run.title)) != run.title:
                raise UserError(
                    f"{place}: {run.title!r} writes {result}, which {other!r} writes; give each a folder of its own, "
                    "or `result: []`"
                )
    if len(runs) > MAX_RUNS:
        raise UserError(f"{path}: has more than {MAX_RUNS:,} runs; list fewer values in each, or use several pipelines")
    report, opening = (
        text and files.filled(text, variables, f"{path}: {key}")
        for key, text in (("report", file.report), ("opening", file.opening))
    )
    return Pipeline(folder, runs, variables, report, file.results, opening)


def gpu_gib() -> int:
    """The memory of the first GPU in GiB; 0 without one that the installed packages use."""
    gpus = [] if runs_on_cpu() else visible_gpus()
    return round(gpus[0].memory / 2**30) if gpus else 0


def _run(entry: dict[str, Any], variables: Variables, place: str) -> PipelineRun:
    """A run from its entry in a file."""
    if "shards" in entry:
        script = SLURM / "run.sbatch"
        raise UserError(
            f"{place}: shards: a run is one command; repeat it with `each`, or submit an array job of your own, "
            f"sbatch --array=1-{entry['shards']} {script} COMMAND"
        )
    needs = entry.pop("needs", {})
    check_mapping(entry, PipelineRun, place)
    typed.read(needs, dict[str, Any], f"{place}: needs")
    needs = {key: _number(value) for key, value in files.filled_in(needs, variables, f"{place}: needs").items()}
    check_mapping(needs, Needs, f"{place}: needs")
    command = shlex.join(files.words(entry.pop("command"), variables, f"{place}: command"))
    others = {key: at_home(files.filled_in(value, variables, f"{place}: {key}")) for key, value in entry.items()}
    # A variable may leave a run without a server.
    return PipelineRun(command=command, needs=Needs(**needs), **others | {"serve": others.get("serve") or None})


def _number(value: Any) -> Any:
    """A value of `needs` or an option; a text is read as if it stood in a file."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _check(run: PipelineRun, titles: Sequence[str], place: str) -> None:
    """Check a run against the titles of those before it."""
    if run.title in titles:
        raise UserError(f"{place}: title {run.title!r} is given twice; rename one of the runs")
    if unknown := [title for title in run.after or [] if title not in titles]:
        raise UserError(f"{place}: after: {unknown[0]!r} is not the title of an earlier run; earlier are: {titles}")


def training_of(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """The launch profile of a training command, and the command that the launcher starts; None for other commands.

    Training is `notewriter train METHOD --accelerate NAME ...` or `accelerate launch --config_file FILE SCRIPT ...`.
    The options of machines and processes belong to the job and are left out.

    Raises:
        UserError: `--accelerate` names neither a file nor a profile.
    """
    options = dict(itertools.pairwise(spelled(argv)))
    if list(argv[:2]) == ["notewriter", "train"] and "--accelerate" in options:
        rest = without_options(argv[3:], {f"--{name}" for name in OF_THE_LAUNCH})
        return str(profile(options["--accelerate"])), ["--module", f"notewriter.training.{argv[2]}", *rest]
    if list(argv[:2]) == ["accelerate", "launch"] and "--config_file" in options:
        rest = [word for word in without_options(argv[2:], {"--config_file", "--config-file"}) if word != "--quiet"]
        return options["--config_file"], rest
    return None


def program(argv: Sequence[str]) -> list[str]:
    """A command with the program of this virtual environment, if it has one of that name."""
    ours = Path(sys.executable).parent / argv[0]
    return [str(ours) if ours.is_file() else argv[0], *argv[1:]]


def commands(pipeline: Pipeline) -> str:
    """The command of every run, under its title."""
    return (f"# {pipeline.opening}\n" if pipeline.opening else "") + "".join(
        f"# {run.title}{'' if run.missing() else ' (skipped)' if run.skipped() else ' (finished)'}\n"
        f"{shlex.join(program(run.command_line()))}\n"
        for run in pipeline.runs
    )
