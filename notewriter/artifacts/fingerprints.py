"""What a configuration names and does not hold: the weights behind a path, an index, a folder of prompts."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notewriter import jsonl
from notewriter.errors import UserError
from notewriter.models.checkpoints import fingerprint
from notewriter.retrieval import read_manifest
from notewriter.retrieval.remote import health_of

FINGERPRINTS = "fingerprints.json"
"""Beside a run's configuration: what tells the contents behind its paths from all others."""

BASE = "model_name_or_path"
"""The setting that names the model which training starts from."""

PLACES = {"encoder", "query_device"}
"""What an index's manifest says of where it is searched, which changes nothing that it finds."""


def fingerprints(config: Mapping[str, Any]) -> dict[str, str]:
    """What tells the contents behind a run's settings from all others, by setting and path.

    These are the weights of each model that is served, those that training starts from, the manifest of each index,
    each reranker, what a retrieval server says of itself, and the prompts in `prompts_dir`. What is not there, or is a
    hub id that this machine has not loaded yet, has none.
    """
    endpoints = [config, *(config.get("models") or {}).values()]
    models = [endpoint.get("serve") for endpoint in endpoints if isinstance(endpoint, Mapping)]
    index = config.get("index") or []
    found: dict[str, str | None] = {}
    for path in filter(None, models):
        found[f"serve: {path}"] = _of_model(str(path))
    if base := config.get(BASE):
        found[f"{BASE}: {base}"] = _of_model(str(base), config.get("model_revision") or "main")
    for path in [index] if isinstance(index, str) else index:
        found[f"index: {path}"] = _of_index(path)
    chains = [config.get("retriever") or [], *(config.get("chains") or {}).values()]
    for number, part in enumerate(itertools.chain(*chains)):
        if path := part.get("index"):
            found[f"index: {path}"] = _of_index(path)
        if path := part.get("rerank"):
            found[f"rerank: {path}"] = _of_model(path)
        if "url" in part and (health := health_of(part["url"])):
            # Not by its address, which may differ when a run resumes.
            found[f"retriever: server {number}"] = health.get("fingerprint")
    if config.get("prompts_dir"):
        found[f"prompts_dir: {config['prompts_dir']}"] = _of_prompts(Path(config["prompts_dir"]))
    return {setting: content for setting, content in found.items() if content}


def read_fingerprints(folder: Path) -> dict[str, str]:
    """What told the contents behind a run's settings from all others; empty of a folder that was made without.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / FINGERPRINTS
    known: dict[str, str] = {}
    if path.exists():
        known = jsonl.read_object(path, dict[str, str], f"remove {folder} or choose another output_dir")
    return known


def check_fingerprints(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprints to keep: those of before, and those that are known now; a folder made without them has none.

    Raises:
        UserError: what stands behind a setting of the run in `folder` has changed, or the file is damaged.
    """
    before, now = read_fingerprints(folder), fingerprints(config)
    for setting, content in now.items():
        if before.get(setting, content) != content:
            raise UserError(
                f"{folder}: holds a run with other contents of {setting}, which have changed since; "
                "choose another output_dir, or remove this one"
            )
    return {**before, **now}


def _of_model(path: str, revision: str = "main") -> str | None:
    known = fingerprint(path, revision)
    # Of what it cannot look into it says the name, which the configuration says too.
    return None if known == path else known


def _of_index(path: str) -> str | None:
    manifest = read_manifest(path)
    if manifest is None:
        return None
    kept = {key: value for key, value in manifest.items() if key not in PLACES}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _of_prompts(folder: Path) -> str | None:
    files = sorted(folder.rglob("*.jinja"))
    lines = (f"{file.relative_to(folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest() if folder.is_dir() else None
