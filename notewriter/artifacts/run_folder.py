"""Run folders: one configuration, questions that are worked on once, and going on after a kill."""

import contextlib
import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from notewriter import jsonl
from notewriter.artifacts.fingerprints import FINGERPRINTS, check_fingerprints
from notewriter.errors import UserError
from notewriter.locks import locked
from notewriter.records import Question
from notewriter.typecheck import misfit

logger = logging.getLogger(__name__)

WITHOUT_EFFECT = {
    *("concurrency", "replicas", "port", "cache", "output_dir"),
    *("base_url", "api_key_env", "timeout", "attempts", "patience"),
}
"""Settings that cannot change a result: they may differ when a run goes on.

A model at an endpoint is known by its name: its server may be another one than before, as after a cluster's queue.
Of a model that is served here the weights count, see `fingerprints`.
"""

WITHOUT_EFFECT_IN_PARTS = {"url", "device", "batch_size"} | WITHOUT_EFFECT
"""Settings in a part of a retriever that cannot change a result.

Like a model's, a server's address may differ when a run resumes; what it serves is compared by `fingerprints`.
"""

QUESTIONS = "questions.sha256"
"""Beside a run's configuration: the digest of its questions."""


@dataclass
class ResumeArguments:
    """How a run goes on that was begun before."""

    retry_errors: bool = field(
        default=False,
        metadata={
            "help": "ask again the questions that ended in an error, such as a prompt that the endpoint refused; all "
            "others stay as they are, and calls that were answered come from the cache"
        },
    )


def config_hash(config: dict[str, Any]) -> str:
    """A short hash of the settings that can change a result."""
    return hashlib.sha256(json.dumps(_with_effect(config), sort_keys=True).encode()).hexdigest()[:16]


def _with_effect(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that can change a result, those of each role's endpoint among them."""
    kept = {key: value for key, value in config.items() if key not in WITHOUT_EFFECT}
    # Runs of versions without chains of retrievers have no such key, and the same hash.
    if parts := kept.pop("retriever", None):
        kept["retriever"] = [
            {key: value for key, value in part.items() if key not in WITHOUT_EFFECT_IN_PARTS} for part in parts
        ]
    models = kept.get("models")
    if isinstance(models, dict):
        kept["models"] = {
            role: {key: value for key, value in endpoint.items() if key not in WITHOUT_EFFECT}
            for role, endpoint in models.items()
            if isinstance(endpoint, dict)
        }
    return kept


@contextlib.contextmanager
def open_run(output_dir: str | Path, config: dict[str, Any], questions: Sequence[Question] = ()) -> Iterator[Path]:
    """A run folder with its resolved `config.yaml`: a new one, or one of the same settings and questions to go on with.

    It is locked while the block runs, so that no two processes write into it.

    Raises:
        UserError: the folder cannot be made, another process works in it, or it holds a run with other settings
            (names the first that differs), over questions that were others when it began, or with a model, index
            or prompts whose contents have changed since.
    """
    folder = Path(output_dir)
    with locked(folder):
        _check_config(folder, config)
        contents = check_fingerprints(folder, config)
        digest = questions_digest(questions)
        path = folder / QUESTIONS
        if path.exists() and read_questions_digest(folder) != digest:
            raise UserError(
                f"{folder}: holds a run over other questions, the file has changed since; "
                "choose another output_dir, or remove this one"
            )
        jsonl.write_text(folder / "config.yaml", [yaml.safe_dump(config, sort_keys=False, allow_unicode=True)])
        jsonl.write_text(path, [digest + "\n"])
        jsonl.write_text(folder / FINGERPRINTS, [json.dumps(contents, indent=2) + "\n"])
        yield folder


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of the questions' content in their order; it tells that a question file was changed in place."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(asdict(question), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def read_questions_digest(folder: Path) -> str:
    """The digest of the questions that a run began with.

    Raises:
        UserError: the file cannot be read, or is no digest.
    """
    path = folder / QUESTIONS
    try:
        digest = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove {folder} or choose another output_dir") from error
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise UserError(f"{path}: holds no digest; remove {folder} or choose another output_dir")
    return digest


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run.

    Raises:
        UserError: the folder holds none, or something else.
    """
    path = folder / "config.yaml"
    try:
        config: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: is not YAML; remove {folder} or choose another output_dir") from error
    if misfit(config, dict[str, Any]):
        raise UserError(f"{path}: is no run's configuration; remove {folder} or choose another output_dir")
    return config


def difference(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting with an effect in which two configurations differ, with its two values.

    A setting that only one of them has, as of a run of an earlier version, makes no difference where it is switched
    off or empty.
    """
    one, other = _with_effect(one), _with_effect(other)
    for key in {**one, **other}:
        before, now = one.get(key), other.get(key)
        if before != now and (before or now or (key in one and key in other)):
            return key, before, now
    return None


def _check_config(folder: Path, config: dict[str, Any]) -> None:
    if not (folder / "config.yaml").exists():
        return
    if found := difference(read_config(folder), config):
        key, before, now = found
        raise UserError(
            f"{folder}: holds a run with {key}: {before!r}, not {now!r}; choose another output_dir, or remove this one"
        )


def check_journal(journal: Path, kind: type) -> None:
    """Find what a journal holds and its command did not write, before anything is built on it.

    `kind` is a dataclass of what a line holds.

    Raises:
        UserError: a line is something else; names file, line and key.
    """
    if not journal.exists():
        return
    with jsonl.Journal(journal):  # removes a last line that a kill has cut
        pass
    for number, record in jsonl.read(journal):
        if problem := misfit(record, kind, f"{journal}:{number}"):
            raise UserError(f"{problem}; remove the line, and its question is asked again")


def remaining(journal: Path, questions: Sequence[Question]) -> int:
    """How many of the questions a journal does not hold yet."""
    if not journal.exists():
        return len(questions)
    done = {record["question_id"] for _, record in jsonl.read(journal, journal=True)}
    return sum(question.id not in done for question in questions)


def finished(journal: Path, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """The journal's records of these questions, in the questions' order, one at a time in memory.

    The order of the file is the order in which questions happened to finish; results must not depend on it.
    """
    if not journal.exists():
        return
    places = {}
    with open(journal, "rb") as file:
        start = 0
        for line in file:
            # A last line without its end was cut by a kill or a full disk.
            if line.endswith(b"\n"):
                places[json.loads(line)["question_id"]] = start
            start += len(line)
        for question in questions:
            if question.id in places:
                file.seek(places[question.id])
                yield json.loads(file.readline())


def drop_errors(journal: Path) -> None:
    """Remove the questions that ended in an error from a journal, so that these are asked again; all others stay.

    A record is a trace, holds its `trace` or its `traces`, or is a judgement with its `refusal`.
    """
    if not journal.exists():
        return
    records = (record for _, record in jsonl.read(journal, journal=True))
    jsonl.write(journal, (record for record in records if not _error_of(record)))


def tell_errors(journal: Path, questions: Sequence[Question]) -> None:
    """Warn where questions ended in an error, with the commonest one and what to do about them."""
    errors = Counter(error for record in finished(journal, questions) if (error := _error_of(record)))
    for error, count in errors.most_common(1):
        logger.warning(
            "%d of %d questions ended in an error, %d in this one: %s. They stay so until the same command is run "
            "with --retry_errors",
            *(errors.total(), len(questions), count, error),
        )


def _error_of(record: dict[str, Any]) -> str:
    """The first error in a record's traces, or why its request was refused; empty where there is none."""
    if "refusal" in record:
        return str(record["refusal"])
    traces = record["traces"] if "traces" in record else [record.get("trace", record)]
    return next((str(trace["error"]) for trace in traces if trace["error"]), "")
