"""A pipeline file: the stages of a run, each with its command, what it needs and what it comes after."""

import json
import math
import re
import shlex
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.experiments.pipelines.blocks import PROJECT as PROJECT
from notewriter.experiments.pipelines.blocks import Text, expand, filled
from notewriter.experiments.pipelines.rising import Rising
from notewriter.ground.config import check_mapping, given, read_mapping
from notewriter.ground.errors import UserError
from notewriter.models.server import READY_TIMEOUT

MAX_SHARDS = 1_000
"""The largest index of an array job that Slurm takes unless the site has raised MaxArraySize."""


@dataclass(frozen=True)
class Needs:
    """What a stage needs of a cluster.

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
class Stage:
    """A command with a title.

    Attributes:
        command: the command line; with `launch` the training script and its options.
        result: the file that the command writes last. A stage whose result exists is finished; a stage without one
            is never taken as finished.
        after: titles of the stages that must have succeeded before; default: the preceding stage.
        serve: the model that the command asks. Consecutive stages with the same model share a server on this machine;
            a stage that has it to itself, and every job on a cluster, starts its own (`--serve`).
        launch: the accelerate configuration that a training script is launched with.
        shards: the number of times to run the command, `$shard` being 1, 2, ...; an array job on a cluster.
        needs: what it needs of a cluster.
        while_rising: the rule of its round, of rounds that end early (`Rounds`).
    """

    title: Text
    command: Text
    result: Text | None = None
    after: list[str] | None = None
    serve: Text | None = None
    launch: Text | None = None
    shards: Annotated[int, Interval(ge=1, le=MAX_SHARDS)] = 1
    needs: Needs = field(default_factory=Needs)
    while_rising: Rising | None = None

    @property
    def slug(self) -> str:
        """The title as part of a file name."""
        return re.sub(r"[^\w.]+", "-", self.title.lower()).strip("-")

    def argv(self, shard: int | str = 1) -> list[str]:
        """The command of a shard, without `launch` and `serve`."""
        return shlex.split(self.command.replace("$shard", str(shard)))

    def results(self) -> dict[int, Path]:
        """The result of each shard; empty if the stage has none."""
        if self.result is None:
            return {}
        return {shard: Path(self.result.replace("$shard", str(shard))) for shard in range(1, self.shards + 1)}

    def skipped(self) -> str:
        """Why the stage is not needed any more; empty if it is."""
        return self.while_rising.ended() if self.while_rising else ""

    def missing(self) -> list[int]:
        """The shards without a result; none of a stage that is skipped."""
        if self.skipped():
            return []
        results = self.results()
        return [shard for shard in range(1, self.shards + 1) if shard not in results or not results[shard].exists()]

    def serve_options(self) -> dict[str, Any]:
        """vLLM's options in the configuration file or on the command line of the command."""
        options = given(self.argv()).get("serve_options") or {}
        try:
            return dict(json.loads(options) if isinstance(options, str) else options)
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.title}: --serve_options is not a JSON object ({error}); correct it") from error

    def ready_timeout(self) -> float:
        """The seconds that a server of the command has to be ready."""
        value = given(self.argv()).get("ready_timeout", READY_TIMEOUT)
        try:
            return float(value)
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.title}: --ready_timeout {value}: is not a number; correct it") from error


@dataclass(frozen=True)
class Pipeline:
    """The stages in order, with their variables substituted.

    `output_dir` is the folder of the run, whose name is the run's; `report` is a file to name at the end; `results` is
    what `notewriter results` makes a page of (`notewriter.experiments.results.experiment`).
    """

    output_dir: Text
    stages: list[Stage]
    variables: dict[str, str | int | float] = field(default_factory=dict)
    report: Text | None = None
    results: dict[str, Any] | None = None

    @property
    def logs(self) -> Path:
        """The folder of the stages' logs."""
        return Path(self.output_dir) / "logs"

    def log(self, stage: Stage, shard: int | str = 1) -> Path:
        """The log of a shard of a stage."""
        number = self.stages.index(stage) + 1
        ending = f"-{shard}" if stage.shards > 1 else ""
        return self.logs / f"{number:02}-{stage.slug}{ending}.log"

    def before(self, stage: Stage) -> list[Stage]:
        """The stages that must have succeeded before a stage starts."""
        if stage.after is None:
            number = self.stages.index(stage)
            return self.stages[number - 1 : number]
        return [each for each in self.stages if each.title in stage.after]


def read_pipeline(path: Path, output_dir: str | None = None, changes: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline file; `output_dir` and `changes` replace the file's folder and variables.

    Raises:
        UserError: the file cannot be read, or is not a pipeline; names the stage and the key.
    """
    _, content = read_mapping(path, "check the path of the pipeline")
    if output_dir is not None:
        content["output_dir"] = output_dir
    if isinstance(content.get("stages"), list) and isinstance(content.get("variables", {}), dict):
        content = expand(content, path)
        numbers = {name: str(value) for name, value in (content.get("variables", {}) | (changes or {})).items()}
        for entry in content["stages"]:
            if isinstance(entry, dict) and isinstance(entry.get("needs"), dict):
                entry["needs"] = {key: _number(value, numbers) for key, value in entry["needs"].items()}
    check_mapping(content, Pipeline, str(path))
    variables = dict(content.get("variables", {}))
    for name in changes or {}:
        if name not in variables:
            known = ", ".join(variables) or "none"
            raise UserError(f"--set {name}: {path} has no such variable; it has {known} (and --output_dir)")
    values = {"output_dir": content["output_dir"], "project": str(PROJECT)} | dict(changes or {})
    # These are filled into the words of a command, and so never split one; the file's own variables may stand for
    # several words.
    words = {name: _place_of(name) for name in values}
    given_again = [str(path), "--output_dir", content["output_dir"]]
    given_again += ["--set", *(f"{name}={value}" for name, value in changes.items())] if changes else []
    words["pipeline"] = shlex.join(given_again)
    for name in _in_order(variables, values, f"{path}: variables"):
        value = variables[name]
        place = f"{path}: variables: {name}"
        words.setdefault(name, _replaced(str(value), words, place))
        values.setdefault(name, _replaced(str(value), values, place))
    stages: list[Stage] = []
    for number, entry in enumerate(content["stages"]):
        place = f"{path}: stages[{number}]"
        # `$shard` is left for each shard.
        own = {"shard": "$shard", "shards": str(entry.get("shards", 1))}
        own_words = dict(own)
        if "earlier" in entry:
            own["earlier"] = _replaced(json.dumps(entry["earlier"]), values, f"{place}: earlier")
            own_words["earlier"] = _place_of("earlier")
        entry = {key: value for key, value in entry.items() if key != "earlier"}
        check_mapping(entry, Stage, place)
        check_mapping(entry.get("needs", {}), Needs, f"{place}: needs")
        texts = {
            key: _replaced(value, values | own, f"{place}: {key}")
            for key, value in entry.items()
            if isinstance(value, str) and key != "command"
        }
        command = _replaced(entry["command"], words | own_words, f"{place}: command")
        texts["command"] = _filled_words(command, values | own, f"{place}: command")
        rule = entry.get("while_rising")
        if rule:
            runs = [_replaced(run, values, f"{place}: while_rising") for run in rule["runs"]]
            rule = Rising(rule["metric"], runs)
        stages.append(Stage(**(entry | texts | {"needs": Needs(**entry.get("needs", {})), "while_rising": rule})))
        _check_stage(stages, place)
    if not stages:
        raise UserError(f"{path}: stages is empty; list at least one")
    report = _replaced(content.get("report", ""), values, f"{path}: report") or None
    # `$set` and `$seed` are left for each run.
    results = filled(content["results"], values) if content.get("results") else None
    return Pipeline(content["output_dir"], stages, report=report, results=results)


def _in_order(variables: Mapping[str, Any], known: Mapping[str, str], place: str) -> list[str]:
    """Variables after those that they use, wherever these stand: a file may replace a variable of one it includes."""
    order = TopologicalSorter[str]()
    for name, value in variables.items():
        used = [] if name in known else string.Template(str(value)).get_identifiers()
        order.add(name, *(each for each in used if each in variables))
    try:
        return list(order.static_order())
    except CycleError as error:
        raise UserError(f"{place}: {' uses '.join(error.args[1])}; give one a value without the other") from error


def _number(value: Any, variables: Mapping[str, str]) -> Any:
    """A value of `needs`; the text of a variable is read as if it stood in the file."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(filled(value, variables))
    except ValueError:
        return value


def variables_given(changes: Sequence[str]) -> dict[str, str]:
    """The variables in the values of `--set`.

    Raises:
        UserError: one is not NAME=VALUE.
    """
    if malformed := [change for change in changes if "=" not in change]:
        raise UserError(f"--set {malformed[0]}: is not NAME=VALUE; write --set model_dir=models/x")
    return dict(change.split("=", 1) for change in changes)


def _check_stage(stages: Sequence[Stage], place: str) -> None:
    """Check the last of the stages so far against those before it."""
    stage, titles = stages[-1], [each.title for each in stages[:-1]]
    if stage.title in titles:
        raise UserError(f"{place}: title {stage.title!r} is given twice; rename one of the stages")
    if unknown := [title for title in stage.after or [] if title not in titles]:
        raise UserError(f"{place}: after: {unknown[0]!r} is not the title of an earlier stage; earlier are: {titles}")
    if stage.serve and stage.launch:
        raise UserError(f"{place}: has both serve and launch; training does not ask a server: remove one")
    if stage.shards > 1:
        for key in ("command", "result"):
            if "$shard" not in (getattr(stage, key) or "$shard"):
                raise UserError(f"{place}: {key} is the same for all {stage.shards} shards; use $shard in it")
        if stage.launch:
            raise UserError(f"{place}: has both shards and launch; training takes several nodes: needs: {{nodes: 2}}")


def _place_of(name: str) -> str:
    """What stands for a value in a command line that is still to be split; no file can contain it."""
    return f"\0{name}\0"


def _filled_words(command: str, values: Mapping[str, str], place: str) -> str:
    """A command line with values in their places, each within one word, inside a quotation too."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"{place}: {error}; close the quotation") from error
    for name, value in values.items():
        words = [word.replace(_place_of(name), value) for word in words]
    return shlex.join(words)


def _replaced(text: str, values: Mapping[str, str], place: str) -> str:
    try:
        return string.Template(text).substitute(values)
    except KeyError as error:
        raise UserError(f"{place}: ${error.args[0]} is not a variable; known are: {', '.join(values)}") from error
    except ValueError as error:
        raise UserError(f"{place}: has a $ that names no variable; write $$ for a dollar sign") from error


def program(argv: Sequence[str]) -> list[str]:
    """A command with the program of this virtual environment, if it has one of that name."""
    ours = Path(sys.executable).parent / argv[0]
    return [str(ours) if ours.is_file() else argv[0], *argv[1:]]
