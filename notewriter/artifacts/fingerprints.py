"""Fingerprints of the contents behind a configuration's paths: a model's weights, an index, a folder of prompts."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.models.checkpoints import contents_of, fingerprint
from notewriter.retrieval import index_fingerprint
from notewriter.retrieval.chain import contents, identity

FINGERPRINTS = "fingerprints.json"
"""The file beside a run's configuration."""

BASE = "model_name_or_path"
"""The setting that names the model which training starts from."""


def fingerprints(config: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprints of the contents that a run's settings name, by setting and path.

    These are the weights of each model that is served here or known behind `base_url`, those that training starts from,
    the files that `serve_options` name (such as a chat template), the manifest of each index, each reranker and
    extractor of sentences, the file of each question's passages, what a retrieval server or a search engine reports
    about its index, and the prompts in `prompts_dir`. A missing path, a server that does not answer, or a hub id that
    this machine has not downloaded yet, has none.
    """
    roles = (config.get("models") or {}).values()
    index = config.get("index") or []
    found: dict[str, str | None] = {}
    for path in filter(None, (endpoint.get("serve") for endpoint in roles if isinstance(endpoint, Mapping))):
        found[f"serve: {path}"] = _of_model(str(path))
    if path := config.get("served") or config.get("serve"):
        # Not by its path, which says nothing about another model under the same name. One key for both: a stage that
        # shared a server may resume with one of its own.
        found["served"] = _of_model(str(path))
    for each in (config, *filter(lambda endpoint: isinstance(endpoint, Mapping), roles)):
        options = each.get("serve_options") or {}
        for option, content in contents_of(options).items():
            found[f"serve_options: {option}: {options[option]}"] = content
    if base := config.get(BASE):
        found[of_base(base)] = _of_model(str(base), config.get("model_revision") or "main")
    for path in [index] if isinstance(index, str) else index:
        found[f"index: {path}"] = index_fingerprint(path)
    chains = [config.get("retriever") or [], *(config.get("chains") or {}).values()]
    for number, part in enumerate(itertools.chain(*chains)):
        for key, content in contents(part).items():
            # Not by its address, which may differ when a run resumes.
            path = f"{'index' if key == 'documents' else key}: {part[key]}"
            found[f"retriever: server {number}" if identity(part).get(key) != part[key] else path] = content
    if config.get("prompts_dir"):
        found[f"prompts_dir: {config['prompts_dir']}"] = _of_prompts(Path(config["prompts_dir"]))
    return {setting: content for setting, content in found.items() if content}


def of_base(name_or_path: str) -> str:
    """The key of the fingerprint of the model that training starts from."""
    return f"{BASE}: {name_or_path}"


def read_fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprints that a run began with; empty for a run of a version that stored none.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / FINGERPRINTS
    known: dict[str, str] = {}
    if path.exists():
        known = jsonl.read_object(path, dict[str, str], f"remove {folder} or choose another output_dir")
    return known


def write_fingerprints(folder: Path, contents: Mapping[str, str]) -> None:
    """Store the fingerprints of a run."""
    jsonl.write_text(folder / FINGERPRINTS, [json.dumps(contents, indent=2) + "\n"])


def check_fingerprints(folder: Path, now: Mapping[str, str]) -> None:
    """Compare fingerprints with those of the run in `folder`.

    Raises:
        UserError: the contents behind a setting have changed, or the file is damaged.
    """
    before = read_fingerprints(folder)
    for setting, content in now.items():
        if before.get(setting, content) != content:
            raise UserError(
                f"{folder}: contains a run with other contents of {setting}, which have changed since it began; "
                "choose another output_dir, or remove this one"
            )


def _of_model(path: str, revision: str = "main") -> str | None:
    known = fingerprint(path, revision)
    # For an unknown model this is its name, which the configuration has already.
    return None if known == path else known


def _of_prompts(folder: Path) -> str | None:
    files = sorted(folder.rglob("*.jinja"))
    lines = (f"{file.relative_to(folder)} {file_digest(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest() if folder.is_dir() else None
