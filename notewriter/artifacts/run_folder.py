"""The run folder: one resolved configuration, what it is compared on when a run resumes, and its lock."""

import contextlib
import functools
import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from notewriter.artifacts.fingerprints import check_fingerprints, fingerprints, read_fingerprints, write_fingerprints
from notewriter.artifacts.run_record import add_start, start_of
from notewriter.ground import jsonl
from notewriter.ground.config import load_yaml
from notewriter.ground.errors import UserError
from notewriter.ground.locks import locked
from notewriter.ground.records import Question
from notewriter.ground.typecheck import misfit
from notewriter.models.server import with_number_format
from notewriter.retrieval.chain import identity

logger = logging.getLogger(__name__)

CONFIG = "config.yaml"

WITHOUT_EFFECT = frozenset(
    {
        *("concurrency", "replicas", "port", "ready_timeout", "cache", "output_dir"),
        *("base_url", "served", "api_key_env", "timeout", "attempts", "patience", "batch"),
    }
)
"""Settings that cannot change a result: they may differ when a run resumes.

A model behind an endpoint is identified by its name, so its server may be another one than before, as after a wait in
a cluster's queue. A model served here is identified by its weights, see `fingerprints`.
"""

NAMED = 3
"""Differing settings that an error names; further ones are counted."""

REMEDY = "choose another output_dir, or remove this one"


@dataclass(frozen=True)
class RunFolder:
    """A run folder, and what has to be the same for the run in it to resume.

    `inputs` are the digests of the files that the run reads, by name; each is stored as `NAME.sha256`. `defaults` are
    the default values of the configuration's options (`differences`).
    """

    path: Path
    config: dict[str, Any]
    inputs: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    without_effect: Collection[str] = WITHOUT_EFFECT

    @functools.cached_property
    def fingerprints(self) -> dict[str, str]:
        """The contents behind the configuration's paths; reads every weight file, once."""
        return fingerprints(self.config)

    def check(self) -> None:
        """Compare with the run that the folder contains, if there is one.

        Raises:
            UserError: that run has other settings (names them with both values), read other files, or used a model,
                index or prompts whose contents have changed since.
        """
        if (self.path / CONFIG).exists():
            stored = read_config(self.path)
            if found := differences(stored, self.config, self.without_effect, self.defaults):
                named = [f"{key}: {before!r}, not {now!r}" for key, (before, now) in list(found.items())[:NAMED]]
                more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
                raise UserError(f"{self.path}: contains a run with {' and '.join([*named, *more])}; {REMEDY}")
        for name, digest in self.inputs.items():
            if (self.path / f"{name}.sha256").exists() and read_digest(self.path, name) != digest:
                raise UserError(
                    f"{self.path}: contains a run over other {name}, the file has changed since it began; {REMEDY}"
                )
        check_fingerprints(self.path, self.fingerprints)

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
            for name, digest in self.inputs.items():
                jsonl.write_text(self.path / f"{name}.sha256", [digest + "\n"])
            write_fingerprints(self.path, read_fingerprints(self.path) | self.fingerprints)
            add_start(self.path, start_of(self.config, {**self.inputs, **self.fingerprints}))
            yield self.path


@contextlib.contextmanager
def open_run(
    output_dir: str | Path,
    config: dict[str, Any],
    questions: Sequence[Question] = (),
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[Path]:
    """The folder of a run over questions, new or resumed (`RunFolder.open`).

    Raises:
        UserError: the folder cannot be created, is in use, or contains a run with other settings or questions.
    """
    inputs = {"questions": questions_digest(questions)}
    with RunFolder(Path(output_dir), config, inputs, defaults or {}).open() as folder:
        yield folder


def defaults(*arguments: Any) -> dict[str, Any]:
    """The default values of the options of dataclasses, or of instances of them."""
    values: dict[str, Any] = {}
    for part in arguments:
        for each in fields(part):
            if each.default is not MISSING:
                values[each.name] = each.default
            elif each.default_factory is not MISSING:
                values[each.name] = each.default_factory()
    return values


def config_hash(config: dict[str, Any]) -> str:
    """A short hash of the settings that can change a result."""
    return hashlib.sha256(json.dumps(_with_effect(config), sort_keys=True).encode()).hexdigest()[:16]


def _with_effect(config: dict[str, Any], without_effect: Collection[str] = WITHOUT_EFFECT) -> dict[str, Any]:
    """The settings that can change a result, including those of each role's endpoint."""
    kept = {key: value for key, value in config.items() if key not in without_effect}
    # Runs of versions without chains of retrievers have no such key, and the same hash.
    if parts := kept.pop("retriever", None):
        kept["retriever"] = [identity(part) for part in parts]
    if chains := kept.get("chains"):
        kept["chains"] = {name: [identity(part) for part in parts] for name, parts in chains.items()}
    # Nor have those of versions without question sets, or without names of parameters.
    for newer in ("question_set", "parameters"):
        if not kept.get(newer):
            kept.pop(newer, None)
    models = kept.get("models")
    if isinstance(models, dict):
        kept["models"] = {
            role: {key: value for key, value in endpoint.items() if key not in without_effect}
            for role, endpoint in models.items()
            if isinstance(endpoint, dict)
        }
    return kept


def differences(
    stored: dict[str, Any],
    config: dict[str, Any],
    without_effect: Collection[str] = WITHOUT_EFFECT,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, tuple[Any, Any]]:
    """The settings with an effect in which a run's stored configuration and another one differ, with both values.

    A setting that only one of the two has makes no difference where it is off or empty. Neither does one that only
    `config` has and leaves at its default (`defaults`): it is newer than the run, whatever its default is.
    """
    if bool(stored.get("served")) != bool(config.get("served")):
        stored, config = _by_name(stored), _by_name(config)
    before, now = _with_effect(stored, without_effect), _with_effect(config, without_effect)
    newer = {key for key, default in (defaults or {}).items() if key not in before and now.get(key) == default}
    return {
        key: (before.get(key), now.get(key))
        for key in {**before, **now}
        if before.get(key) != now.get(key)
        and (before.get(key) or now.get(key) or (key in before and key in now))
        and key not in newer
    }


def _by_name(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration as at a server that stages of a pipeline share: its checkpoint has the name there, and its
    options are those of the server; its weights are compared by `fingerprints`.
    """
    options = with_number_format(config.get("serve_options") or {})
    named = {"serve": None, "model": Path(config["serve"]).name} if config.get("serve") else {}
    return config | named | {"serve_options": options}


def difference(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first of `differences`, with its two values."""
    return next(((key, *values) for key, values in differences(one, other).items()), None)


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run.

    Raises:
        UserError: the folder has none, or it is not valid.
    """
    path = folder / CONFIG
    try:
        config: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML; remove {folder} or choose another output_dir") from error
    if misfit(config, dict[str, Any]):
        raise UserError(f"{path}: is not a run's configuration; remove {folder} or choose another output_dir")
    return config


def read_digest(folder: Path, name: str) -> str:
    """The digest of a file that a run reads, as stored when the run began; `name` as in `RunFolder.inputs`.

    Raises:
        UserError: the file cannot be read, or is not a digest.
    """
    path = folder / f"{name}.sha256"
    try:
        digest = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove {folder} or choose another output_dir") from error
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UserError(f"{path}: is not a digest; remove {folder} or choose another output_dir")
    return digest


def read_questions_digest(folder: Path) -> str:
    """The digest of the questions that a run began with.

    Raises:
        UserError: as `read_digest`.
    """
    return read_digest(folder, "questions")


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of the questions' content in their order, which detects a question file that was edited in place."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(asdict(question), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()
