"""The run folder: one resolved configuration, the settings that are compared when a run resumes, and its lock."""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import yaml

from notewriter.artifacts.run_record import add_start, check_inputs, start_of
from notewriter.ground import jsonl, typed
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.locks import locked
from notewriter.ground.records import Question
from notewriter.ground.typed import misfit
from notewriter.ground.yaml_files import load_yaml

CONFIG = "config.yaml"

NAMED = 3
"""Differing settings that an error names; further ones are counted."""

REMEDY = "choose another output_dir, or remove this one"


@dataclass(frozen=True)
class RunFolder:
    """A run folder, and the settings that have to be the same for its run to resume.

    Args:
        path: the folder.
        config: the run's settings.
        inputs: the digests of what the run is over, by name, such as questions.
        differences: the settings in which a stored configuration differs from this one so that results may differ,
            with both values.
        contents: the fingerprints of the contents behind the configuration's paths, by setting and path.
        command: the command line that started the run; empty from Python.
    """

    path: Path
    config: dict[str, Any]
    inputs: Mapping[str, str]
    differences: Callable[[dict[str, Any], dict[str, Any]], dict[str, tuple[Any, Any]]]
    contents: Callable[[], dict[str, str]]
    command: Sequence[str] = ()

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """The result of `contents`; reads every weight file, once."""
        return self.contents()

    def check(self) -> None:
        """Compare with the run that the folder contains, if there is one.

        Raises:
            UserError: that run has other settings (names them with both values), read other files, or used a model,
                index or prompts whose contents have changed since.
        """
        if (self.path / CONFIG).exists():
            stored = read_config(self.path)
            words = [
                f"{key}: {old!r}, not {new!r}" for key, (old, new) in self.differences(stored, self.config).items()
            ]
            if words:
                more = [f"{len(words) - NAMED} more"] if len(words) > NAMED else []
                raise UserError(f"{self.path}: contains a run with {' and '.join([*words[:NAMED], *more])}; {REMEDY}")
        check_inputs(self.path, {**self.inputs, **self.fingerprints})

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Create the folder or resume the run in it, locked until the block ends.

        Raises:
            UserError: the folder cannot be created or written, another process works in it, or `check` fails.
        """
        with locked(self.path):
            self.check()
            text = yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True)
            jsonl.write_text(self.path / CONFIG, [text])
            add_start(self.path, start_of(self.config, {**self.inputs, **self.fingerprints}, self.command))
            yield self.path


class _Settings(TypedDict, total=False):
    """The part of a run's configuration that other commands read."""

    dataset: str
    path: str
    index: list[str] | None
    retriever: list[dict[str, Any]] | None
    chains: dict[str, list[dict[str, Any]] | dict[str, Any]] | None
    ids: str | None
    question_set: str | None
    where: dict[str, Any] | None
    limit: int | None
    seed: int | None
    stages: dict[str, str | list[str]]
    prompts_dir: str | None
    words: dict[str, Any]
    extractive_stages: list[str]
    pairs: str | None
    data: str | None
    mix: dict[str, Any] | None
    model_name_or_path: str | None
    serve: str | None
    serve_options: dict[str, Any]
    model: str | None
    models: dict[str, dict[str, Any]]
    method_options: dict[str, Any]


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run.

    Raises:
        UserError: the folder has none, or it is not valid.
    """
    path, remedy = folder / CONFIG, f"remove {folder} or choose another output_dir"
    try:
        with jsonl.open_text(path) as file:
            config: dict[str, Any] = load_yaml(file.read())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML ({one_line(error)}); {remedy}") from error
    if misfit(config, dict[str, Any]):
        raise UserError(f"{path}: is not a run's configuration; {remedy}")
    typed.read(config, _Settings, str(path), remedy)
    return config


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of the questions' contents in their order, which detects an edited question file."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(asdict(question), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
