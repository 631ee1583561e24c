"""A model's settings as they are published: as transformers 4 reads them too, and without this machine's own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notewriter.ground import jsonl
from notewriter.models import checkpoints
from notewriter.training.publishing.card import adapter_configuration

Settings = dict[str, Any]

LOCAL = {"is_local", "local_files_only"}
"""What transformers 5 writes about how a tokenizer was loaded here."""


def tokenizer_settings(settings: Settings) -> Settings:
    """Those of a tokenizer under the names that transformers 4 knows; 5 reads both."""
    settings = {key: value for key, value in settings.items() if key not in LOCAL}
    if settings.get("tokenizer_class") == "TokenizersBackend":
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(settings.get("extra_special_tokens"), list):
        settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
    return settings


def model_settings(settings: Settings) -> Settings:
    """Those of a model with its rotary embedding also where transformers 4 looks, which else takes theta 10,000."""
    rope = settings.get("rope_parameters")
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        return settings
    older: Settings = {"rope_theta": rope["rope_theta"]}
    if rope.get("rope_type", "default") != "default":
        older["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"}
    return older | settings


def _rewritten(name: str, rewrite: Callable[[Settings], Settings]) -> Callable[[Path], bytes]:
    def content(folder: Path) -> bytes:
        settings = jsonl.read_object(folder / name, Settings, "restore the file")
        published = rewrite(settings)
        # Byte by byte as on disk where nothing has to change.
        return (folder / name).read_bytes() if published == settings else json.dumps(published, indent=2).encode()

    return content


REWRITTEN: dict[str, Callable[[Path], bytes]] = {
    checkpoints.ADAPTER: adapter_configuration,
    "tokenizer_config.json": _rewritten("tokenizer_config.json", tokenizer_settings),
    "config.json": _rewritten("config.json", model_settings),
}
"""Files of a checkpoint's folder that are not published as they are: name -> what is published."""
