"""The identity of models in a run's records: the contents of their files, where these are known."""

from collections.abc import Mapping
from typing import Any

from notewriter.models.checkpoint import Checkpoint, contents_of

BASE = "model_name_or_path"
"""The setting that names the model which training starts from."""


def contents(config: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprints of the models that a run's settings name, by setting and path.

    These are the weights of each model that is served here, those that training starts from,
    and the files that `serve_options` name, such as a chat template. A missing path, or a hub id that this machine has
    not downloaded yet, has none.
    """
    roles = [role for role in (config.get("models") or {}).values() if isinstance(role, Mapping)]
    fingerprints: dict[str, str | None] = {}
    for path in filter(None, (role.get("serve") for role in roles)):
        fingerprints[f"serve: {path}"] = _of_model(str(path))
    if path := config.get("serve"):
        # Not by its path, which says nothing about another model under the same name.
        fingerprints["served"] = _of_model(str(path))
    for settings in (config, *roles):
        options = settings.get("serve_options") or {}
        for option, content in contents_of(options).items():
            fingerprints[f"serve_options: {option}: {options[option]}"] = content
    if base := config.get(BASE):
        fingerprints[of_base(base)] = _of_model(str(base), config.get("model_revision") or "main")
    return {setting: content for setting, content in fingerprints.items() if content}


def of_base(name_or_path: str) -> str:
    """The key of the fingerprint of the model that training starts from."""
    return f"{BASE}: {name_or_path}"


def _of_model(path: str, revision: str = "main") -> str | None:
    model = Checkpoint(path, revision)
    content = model.fingerprint()
    # For an unknown model this is its name, which the configuration has already.
    if content == path:
        return None
    # An adapter's will be another one once its base is downloaded.
    if model.folder.is_dir() and model.is_adapter and model.base.fingerprint() == model.base.path:
        return None
    return content
