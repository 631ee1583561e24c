"""`notewriter lineage RUN`: the way from the corpus to a run's scores, as each run on it recorded it."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.run_record import code_of, listed, read_inputs, read_run_record
from notewriter.artifacts.statistics import COUNTED, own_statistics
from notewriter.artifacts.training_record import read_training_record
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.terminal import escape_controls
from notewriter.retrieval.index_folder import read_manifest
from notewriter.rollouts.identity import SERVER, contents

IGNORED = {"output_dir", "cache", "config", "reference_cache", "eval_files"}
"""Settings that name places to write to, and questions that were left out."""


@dataclass
class LineageArguments:
    """Print the origins of a run: its command, code, machine and inputs, and the same of each input.

    Models, indexes and prompts whose contents have changed since the run began are marked.
    """

    run: str = field(metadata={"help": "a run folder; `--run` may be omitted if it comes first"})


def main(argv: list[str]) -> None:
    """Command `notewriter lineage`."""
    if argv and not argv[0].startswith("-"):
        argv = ["--run", *argv]
    (arguments,) = parse(LineageArguments, argv, prog="notewriter lineage", description=LineageArguments.__doc__)
    sys.stdout.write("\n".join(map(escape_controls, lineage(Path(arguments.run)))) + "\n")


def lineage(folder: Path) -> list[str]:
    """The lines on the origins of the run in a folder.

    Raises:
        UserError: the folder is not a run's, or one of the records on the way is damaged.
    """
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder / CONFIG}: no such file; give the folder of a run, for example runs/NAME")
    return list(_lines(str(folder), "", set()))


def _lines(path: str, indent: str, seen: set[Path]) -> Iterator[str]:
    folder = Path(path)
    yield f"{indent}{path}" + "".join(f": {what}" for what in [described(folder)] if what)
    if folder.resolve() in seen:
        yield f"{indent}  (as above)"
        return
    seen.add(folder.resolve())
    indent += "  "
    if (manifest := read_manifest(folder) if folder.is_dir() else None) and manifest.get("source"):
        yield f"{indent}source: {manifest['source']}"
    if not (folder / CONFIG).is_file():
        return
    config = read_config(folder)
    record = read_run_record(folder)
    for start in record.starts if record else ():
        parts: list[Mapping[str, object]] = [start.hardware, start.packages, start.seeds]
        yield f"{indent}ran with {code_of(start)}; " + "; ".join(listed(each) for each in parts if each)
        if start.command:
            yield f"{indent}command: {shlex.join(start.command)}"
    now = contents(config, recorded=True)
    for name, content in read_inputs(folder).items():
        if now.get(name, content) != content:
            yield f"{indent}CHANGED SINCE: {name} was {content[:12]}, is {now[name][:12]}"
        elif name not in now and name.startswith(SERVER):
            yield f"{indent}{name}: was {content[:12]}; a server that a folder names is not asked"
        elif ": " not in name:
            yield f"{indent}{name}: SHA-256 {content[:12]}"
    for setting, source in sources(config):
        yield f"{indent}{setting}:"
        yield from _lines(source, indent + "  ", seen)


def sources(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The settings that name existing files or folders, and model ids, those of each role's endpoint included."""
    for setting, value in config.items():
        if setting in IGNORED:
            continue
        if setting == "models" and isinstance(value, Mapping):
            for role, endpoint in value.items():
                if isinstance(endpoint, Mapping):
                    yield from ((f"models.{role}.{key}", each) for key, each in sources(endpoint))
            continue
        # The keys of `mix` are folders of data.
        for each in value if isinstance(value, list | Mapping) else [value]:
            is_model = setting in {"serve", "model", "model_name_or_path"} and isinstance(each, str)
            if isinstance(each, str) and each and (is_model or ("/" in each and Path(each).exists())):
                yield setting, each


def described(folder: Path) -> str:
    """The contents of a folder, in a few words; empty if they are unknown."""
    if (training := read_training_record(folder)) is not None:
        rows = sum(training.rows.get("train", {}).values())
        return f"{training.method}, {training.parameters}, {training.steps} steps on {rows} rows"
    if (folder / "metrics.json").is_file():
        metrics = read_metrics(folder / "metrics.json")
        scores = [f"{name} {each.text()}" for name, each in metrics.metrics.items()]
        return f"{metrics.method} on {metrics.questions} questions of {metrics.dataset}; " + ", ".join(scores)
    if record := own_statistics(folder):
        return ", ".join(f"{kind}: {listed(record[kind])}" for kind in COUNTED if kind in record)
    if folder.is_dir() and (manifest := read_manifest(folder)):
        return f"index {manifest.get('kind', '')} of {manifest.get('passages', '?')} passages"
    return ""
