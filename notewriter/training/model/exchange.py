"""Settings of saved models for other programs: transformers 4 reads the same model as transformers 5.

transformers 5 writes the base of rotary embeddings where 4 does not look; 4 then silently computes with 10,000. It also
names a tokenizer class that 4 does not know. And training leaves `use_cache` false.
"""

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from notewriter.ground import jsonl
from notewriter.models.checkpoint import ADAPTER, load
from notewriter.training.model.weights import Stored, copy_processor

GENERIC = "PreTrainedTokenizerFast"
"""The class that transformers 4 and 5 both read a tokenizer.json with, where 5 writes `TokenizersBackend`."""


def settle(folder: Path, base: Stored) -> None:
    """Complete the settings of a saved model or adapter, and a model's files, for other programs."""
    if (folder / "tokenizer_config.json").is_file():
        tokenizer = _read(folder / "tokenizer_config.json")
        if tokenizer.get("tokenizer_class") == "TokenizersBackend":
            _write(folder / "tokenizer_config.json", tokenizer | {"tokenizer_class": GENERIC})
    if (folder / ADAPTER).is_file():
        _write(folder / ADAPTER, {key: _in_order(value) for key, value in _read(folder / ADAPTER).items()})
    if not (folder / "config.json").is_file():
        return
    copy_processor(base, folder)
    settings = _read(folder / "config.json")
    original = _read(base.files / "config.json") if (base.files / "config.json").is_file() else {}
    for now, before in ((settings, original), (settings.get("text_config"), original.get("text_config") or {})):
        if now and now.get("use_cache") is False:
            now["use_cache"] = before.get("use_cache", True)
    _write(folder / "config.json", settings)
    meant = load(AutoConfig, folder).to_dict()
    older = json.loads(json.dumps(settings))
    for part in (older, older.get("text_config")):
        if part and isinstance(part.get("rope_parameters"), dict):
            part |= older_rope(part["rope_parameters"])
    _write(folder / "config.json", older)
    # Where transformers 5 would read the older form differently, only its own form is written.
    if load(AutoConfig, folder).to_dict() != meant:
        _write(folder / "config.json", settings)


def older_rope(parameters: dict[str, Any]) -> dict[str, Any]:
    """The settings of rotary embeddings as transformers 4 reads them, given those of transformers 5."""
    whole = parameters.get("full_attention", parameters)
    local = parameters.get("sliding_attention")
    if not (isinstance(whole, dict) and "rope_theta" in whole):
        return {}
    scaling = {key: value for key, value in whole.items() if key not in {"rope_theta", "partial_rotary_factor"}}
    kind = scaling.get("rope_type", "default")
    if kind == "longrope":
        # transformers 4 refuses further keys; the original length stands beside `rope_scaling`.
        scaling = {"type": kind, **{key: scaling[key] for key in ("short_factor", "long_factor")}}
    older = {"rope_theta": whole["rope_theta"], "rope_scaling": None if kind == "default" else scaling}
    if whole.get("partial_rotary_factor", 1.0) != 1.0:
        older["partial_rotary_factor"] = whole["partial_rotary_factor"]
    if isinstance(local, dict) and local.get("rope_theta") != whole["rope_theta"]:
        older["rope_local_base_freq"] = local["rope_theta"]
    return older


def _in_order(value: Any) -> Any:
    """A sorted list of names: PEFT writes that of a set, and equal adapters would be unlike files."""
    return sorted(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


def _read(file: Path) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return settings


def _write(file: Path, settings: dict[str, Any]) -> None:
    jsonl.write_text(file, [json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n"])
