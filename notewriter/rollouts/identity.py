"""The identity of a run: its settings that can change a result, and the contents behind its paths."""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.artifacts.run_folder import RunFolder, questions_digest
from notewriter.ground import options, plugins, recipes
from notewriter.ground.digests import file_digest
from notewriter.ground.records import Question
from notewriter.models import identity as models
from notewriter.models.checkpoint import without_hub
from notewriter.models.roles import ModelOfRole
from notewriter.retrieval import chain, encoders
from notewriter.retrieval.index_folder import index_fingerprint

SERVER = "retriever: server "
"""The prefix of the name of the contents behind a retriever's address, which may change when the run resumes."""


def identity(config: Mapping[str, Any], *kinds: Any) -> dict[str, Any]:
    """The settings that can change a result, those of each role and of each part of a retriever included.

    `kinds` are the dataclasses whose options they are.
    """
    kept = options.with_effect(config, *kinds)
    if isinstance(roles := kept.get("models"), Mapping):
        kept["models"] = {
            role: options.with_effect(endpoint, ModelOfRole)
            for role, endpoint in roles.items()
            if isinstance(endpoint, Mapping)
        }
    if parts := kept.pop("retriever", None):
        kept["retriever"] = [chain.identity(part) for part in parts]
    if chains := kept.get("chains"):
        kept["chains"] = {name: [chain.identity(part) for part in parts] for name, parts in chains.items()}
    return kept


def config_hash(config: Mapping[str, Any], *kinds: Any) -> str:
    """A short hash of the settings that can change a result."""
    return hashlib.sha256(json.dumps(identity(config, *kinds), sort_keys=True).encode()).hexdigest()[:16]


def differences(stored: dict[str, Any], config: dict[str, Any], *kinds: Any) -> dict[str, tuple[Any, Any]]:
    """The settings with an effect in which two configurations differ, with both values (`options.differences`)."""
    return options.differences(identity(stored, *kinds), identity(config, *kinds), options.defaults(*kinds))


def contents(config: Mapping[str, Any], recorded: bool = False) -> dict[str, str]:
    """The fingerprints of the contents that a run's settings name, by setting and path.

    - the models (`models.identity.contents`), and a control's encoder, weights and the run whose lengths it takes;
    - each index by its manifest, or by the report of the server that searches it;
    - each reranker and extractor of sentences, the file of each question's passages, the prompts in `prompts_dir`;
    - the file of each method, judge and metric family of somebody else's that decides what is kept, with the other
      modules of its folder if that is a package, and the prompts beside the method's. (An evaluation scores kept
      answers anew.)

    A missing path, or a server that does not answer, has none.

    Args:
        config: the settings.
        recorded: whether only a folder names them: then nothing is asked of a server or of the hub.

    Raises:
        UserError: a file that identifies contents is damaged.
    """
    with without_hub() if recorded else contextlib.nullcontext():
        return _contents(config, recorded)


def _contents(config: Mapping[str, Any], recorded: bool) -> dict[str, str]:
    fingerprints: dict[str, str | None] = {**models.contents(config)}
    index = config.get("index") or []
    for path in [index] if isinstance(index, str) else index:
        fingerprints[f"index: {path}"] = index_fingerprint(path)
    chains = [config.get("retriever") or [], *(config.get("chains") or {}).values()]
    for number, part in enumerate(itertools.chain(*chains)):
        settings = chain.identity(part)
        if recorded and not chain.is_local(part):
            continue
        for key, content in chain.contents(part).items():
            path = f"{'index' if key == 'documents' else key}: {part[key]}"
            fingerprints[path if settings.get(key) == part[key] else f"{SERVER}{number}"] = content
    for role in (config.get("models") or {}).values():
        if isinstance(role, Mapping) and isinstance(run := role.get("words"), str):
            fingerprints[f"words: {run}"] = _of_file(Path(run, "traces.jsonl"))
        if isinstance(role, Mapping) and (weights := role.get("weights")):
            fingerprints[f"weights: {weights}"] = _of_file(Path(weights))
        if isinstance(role, Mapping) and (encoder := role.get("encoder")):
            fingerprints[f"encoder: {encoder}"] = encoders.identity(encoder)
    if folder := config.get("prompts_dir"):
        fingerprints[f"prompts_dir: {folder}"] = _of_files(recipes.folder(folder), "**/*.jinja")
    for kind, group, name in _plugins_of(config):
        if (file := plugins.file_of(group, name)) and file.is_file():
            fingerprints[f"{kind}: {name}"] = file_digest(file)
            if (file.parent / "__init__.py").is_file():
                fingerprints[f"modules beside {kind}: {name}"] = _of_files(file.parent, "*.py")
            if kind == "method":
                fingerprints[f"prompts: {name}"] = _of_files(file.parent, "*.jinja")
    return {setting: content for setting, content in fingerprints.items() if content}


def _plugins_of(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Kind, group and name of the methods, judges and metric families that decide what a run keeps."""
    stages = config.get("stages") or {}
    methods = [stage.partition("/")[0] for stage in (*stages, *(config.get("gold_stages") or ()))]
    for name in dict.fromkeys([*options.names_in(config.get("method")), *methods]):
        yield "method", "methods", name
    for name in options.names_in(stages):
        yield "judge", "judges", name
    # A judge may score answers.
    for name in options.names_in(config.get("family") if stages else None):
        yield "metric family", "metrics", name


def _of_file(path: Path) -> str | None:
    return file_digest(path) if path.is_file() else None


def _of_files(folder: Path, pattern: str) -> str | None:
    files = sorted(folder.glob(pattern))
    lines = (f"{file.relative_to(folder)} {file_digest(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest() if folder.is_dir() else None


@contextlib.contextmanager
def open_run(
    output_dir: str | Path,
    config: dict[str, Any],
    questions: Sequence[Question] = (),
    kinds: Sequence[Any] = (),
    command: Sequence[str] = (),
) -> Iterator[Path]:
    """The folder of a run over questions, new or resumed (`RunFolder.open`).

    Args:
        output_dir: the folder.
        config: the run's settings.
        questions: those that it is over; their digest is stored.
        kinds: the dataclasses whose options the settings are.
        command: the command line that started it; empty from Python.

    Raises:
        UserError: the folder cannot be created, is in use, or contains a run with other settings or questions.
    """
    run = RunFolder(
        Path(output_dir),
        config,
        {"questions": questions_digest(questions)},
        differences=lambda stored, now: differences(stored, now, *kinds),
        contents=partial(contents, config),
        command=command,
    )
    with run.open() as folder:
        yield folder
