"""Functions of a checkpoint's path, for callers that do not hold a `Checkpoint`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from notewriter.models.checkpoint import (
    ADAPTER,
    FINGERPRINTED,
    SETTINGS,
    STATE,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    checkpoints_of,
    contents_of,
    is_hub_id,
    load,
    loading,
)

__all__ = ["ADAPTER", "FINGERPRINTED", "SETTINGS", "STATE", "TOKENIZER", "WEIGHTS"]
__all__ += ["checkpoints_of", "contents_of", "is_hub_id", "load", "loading"]


def check_model(name_or_path: str | Path) -> str:
    """See `Checkpoint.check`."""
    return Checkpoint(str(name_or_path)).check()


def is_adapter(name_or_path: str | Path) -> bool:
    """See `Checkpoint.is_adapter`."""
    return Checkpoint(str(name_or_path)).is_adapter


def adapter_base(path: str | Path) -> tuple[str, str]:
    """The name or folder, and the revision, of the base model of an adapter."""
    base = Checkpoint(str(path)).base
    return base.path, base.revision


def adapter_settings(path: str | Path) -> dict[str, Any]:
    """See `Checkpoint.adapter_settings`."""
    return Checkpoint(str(path)).adapter_settings()


def fingerprint(name_or_path: str | Path, revision: str = "main", files: Iterable[str] = FINGERPRINTED) -> str:
    """See `Checkpoint.fingerprint`."""
    return Checkpoint(str(name_or_path), revision).fingerprint(files)
