"""A pipeline that does a finished run again, from the commands that it and its inputs were made with."""

import contextlib
import itertools
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewriter.artifacts import judgements, run_record
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.run_record import Start, read_run_record
from notewriter.artifacts.training_record import TRAINING_RECORD
from notewriter.ground.config import given, without_options
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError

RESULTS = {
    "notewriter index": "manifest.json",
    "notewriter pairs": "stats.json",
    "notewriter chains": "stats.json",
    "notewriter gold": "stats.json",
    "notewriter merge-shards": "stats.json",
    "notewriter evaluate": "metrics.json",
    "training/train_dpo.py": TRAINING_RECORD,
    "training/train_sft.py": TRAINING_RECORD,
}
"""Command -> the file that it writes last. Stages of other commands are run again each time."""

PLACES = ("output_dir", "index")
"""The options that say where a command works."""


@dataclass
class _Stage:
    """The name of a stage's new folder, and its title; empty while its sources are looked for."""

    name: str
    title: str = ""


def rerun(folder: Path, launch: str | None = None) -> dict[str, Any]:
    """The content of a pipeline file that does the run in a folder again, and before it what made its inputs.

    Inputs that no recorded command made, such as the corpus, are used where they are. `launch` is the accelerate
    configuration of trainings; by default that of one process.

    Raises:
        UserError: the run did not record its command, a configuration file has changed since, or a training ran in
            several processes and `launch` is not given.
    """
    stages: dict[Path, _Stage] = {}
    entries: list[dict[str, Any]] = []
    if _add(folder, launch, stages, entries) is None:
        raise UserError(f"{folder}: its command was not recorded; only runs of this version and later can be repeated")
    if (folder / judgements.FOLDER).is_dir():
        _add(folder / judgements.FOLDER, launch, stages, entries)
    return {"output_dir": "", "stages": entries}


def _add(path: Path, launch: str | None, stages: dict[Path, _Stage], entries: list[dict[str, Any]]) -> str | None:
    """Append the stage that made a path, after its sources; returns its title, or None if no recorded command did."""
    start = folder = None
    for place in (path, *path.parents):
        record = read_run_record(place) if (place / run_record.NAME).is_file() else None
        if record and (start := next((each for each in reversed(record.starts) if each.command), None)):
            folder = place
            break
    if start is None or folder is None:
        return None
    name, argv = _split(start.command)
    # The checkpoint that a pipeline served.
    served = str(given(argv).get("served") or "")
    if served:
        argv = without_options(argv, {"--base_url", "--model", "--served"})
    options = given(argv)
    option = next((each for each in PLACES if _contains(options.get(each), folder)), None)
    if option:
        # Evaluations of several checkpoints have folders in the one that the command names.
        folder = Path(options[option])
    if options.get("add") or options.get("delete"):
        raise UserError(f"{folder}: was changed by --add or --delete; repeat the commands in its {run_record.NAME}")
    key = folder.resolve()
    if key in stages:
        return stages[key].title
    stage = stages[key] = _Stage(_free(folder.name, stages.values()))
    _check_config(folder, start)

    words = itertools.chain.from_iterable(map(_words, (served, *options.values(), *argv)))
    settings = {"", str(options.get("config")), str(options.get("cache"))}
    sources = [Path(word) for word in dict.fromkeys(words) if word not in settings and os.path.exists(word)]
    after = [
        title
        for source in sources
        if not source.resolve().is_relative_to(key) and (title := _add(source, launch, stages, entries))
    ]
    stage.title = f"{name.removeprefix('notewriter ')} {stage.name}"
    entry: dict[str, Any] = {"title": stage.title, "after": list(dict.fromkeys(after))}
    command = [*name.split(), *_rewritten(argv, options, stages)]
    if option is None and folder.name != judgements.FOLDER:
        # It worked in its default folder.
        command += ["--output_dir", f"$output_dir/{stage.name}"]
    if name.startswith("training/"):
        command[0] = f"$project/{name}"
        entry["launch"] = launch or _launch(folder, start)
    elif (folder / CONFIG).is_file() and "cache" in read_config(folder):
        command += ["--cache", "$output_dir/cache.sqlite"]
    if served:
        entry["serve"] = _moved(served, stages)
    entry["command"] = " ".join(map(_quoted, command))
    if name in RESULTS:
        entry["result"] = f"$output_dir/{stage.name}/{RESULTS[name]}"
    entries.append(entry)
    return stage.title


def _contains(place: object, folder: Path) -> bool:
    return isinstance(place, str) and folder.resolve().is_relative_to(Path(place).resolve())


def _split(command: Sequence[str]) -> tuple[str, list[str]]:
    """The name of a command, of which those of notewriter have two words, and its arguments."""
    words = 2 if command[0] == "notewriter" else 1
    return " ".join(command[:words]), list(command[words:])


def _free(name: str, stages: Iterable[_Stage]) -> str:
    taken = {each.name for each in stages}
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(each for each in names if each not in taken)


def _check_config(folder: Path, start: Start) -> None:
    for setting, digest in start.inputs.items():
        if setting.startswith("config: "):
            file = Path(setting.removeprefix("config: "))
            if not file.is_file() or file_digest(file) != digest:
                raise UserError(f"{file}: is no longer what {folder} was made with; restore the file")


def _launch(folder: Path, start: Start) -> str:
    if (processes := start.hardware.get("processes", 1)) != 1:
        raise UserError(f"{folder}: was trained by {processes} processes; add --launch FILE, as for accelerate launch")
    return f"$project/configs/accelerate/{'single' if 'gpus' in start.hardware else 'cpu'}.yaml"


def _words(value: Any) -> Iterator[str]:
    """The strings in a value, keys included, also in one that is JSON on the command line."""
    if isinstance(value, str) and value[:1] in "{[":
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from itertools.chain.from_iterable(map(_words, (*value, *value.values())))
    elif isinstance(value, list):
        yield from itertools.chain.from_iterable(map(_words, value))


def _rewritten(argv: Sequence[str], options: Mapping[str, Any], stages: Mapping[Path, _Stage]) -> list[str]:
    """Arguments in which the folders of stages are the new ones, also those that a configuration file names."""
    command = [_moved(word, stages) for word in argv]
    for key, value in options.items():
        if f"--{key}" not in argv and (moved := _moved(value, stages)) != value:
            values = moved if isinstance(moved, list) else [moved]
            command += [f"--{key}", *(each if isinstance(each, str) else json.dumps(each) for each in values)]
    return command


def _moved(value: Any, stages: Mapping[Path, _Stage]) -> Any:
    if isinstance(value, str) and value[:1] in "{[":
        with contextlib.suppress(ValueError):
            return json.dumps(_moved(json.loads(value), stages))
    if isinstance(value, Mapping):
        return {_moved(key, stages): _moved(each, stages) for key, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, stages) for each in value]
    if not isinstance(value, str) or not value:
        return value
    path = Path(value).resolve()
    for folder, stage in sorted(stages.items(), key=lambda item: -len(item[0].parts)):
        if path.is_relative_to(folder):
            return str(Path("$output_dir") / stage.name / path.relative_to(folder))
    return value


def _quoted(word: str) -> str:
    """A word of a pipeline's command, in which a dollar sign begins a variable."""
    for variable in ("$output_dir/", "$project/"):
        if word.startswith(variable):
            return variable + shlex.quote(word.removeprefix(variable).replace("$", "$$"))
    return shlex.quote(word.replace("$", "$$").replace("$$output_dir/", "$output_dir/"))
