"""LoRA adapters in serving: which checkpoints one server can hold, under which names, and vLLM's options for it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewriter.ground.errors import UserError
from notewriter.models.checkpoints import (
    TOKENIZER,
    adapter_base,
    adapter_settings,
    check_model,
    fingerprint,
    is_adapter,
)

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's option `max_lora_rank`."""

PROMPTS = ("tokenizer.json", "tokenizer.model", "chat_template*")
"""The files that decide which tokens a server makes of messages."""


@dataclass(frozen=True)
class Group:
    """Checkpoints that one server holds: a model, adapters of it, or both.

    Attributes:
        model: the folder or hub id that the server is started with.
        names: the name in requests of each checkpoint, by path.
        options: vLLM's options that follow.
    """

    model: str
    names: dict[str, str]
    options: dict[str, Any]


def groups(paths: Iterable[str]) -> list[Group]:
    """Group checkpoints by the server that can hold them, in the order in which each is first named.

    Adapters share a server if they have the same base model, tokenizer and chat template; vLLM has one of each. The
    base model itself joins them if its tokenizer and template are theirs.

    Raises:
        UserError: an adapter is incomplete, or its rank is too large for vLLM.
    """
    members: dict[tuple[str, ...], list[str]] = {}
    paths = list(dict.fromkeys(paths))
    bases = {_same(adapter_base(path)[0]) for path in paths if is_adapter(path)}
    for path in paths:
        key: tuple[str, ...]
        if is_adapter(path):
            base, revision = adapter_base(path)
            key = (_same(base), revision, fingerprint(tokenizer_folder(path), files=PROMPTS))
        elif _same(path) in bases:
            key = (_same(path), "main", fingerprint(path, files=PROMPTS))
        else:
            key = (_same(path),)
        members.setdefault(key, []).append(path)
    return [_group(paths) for paths in members.values()]


def with_group(options: Mapping[str, Any], group: Group) -> dict[str, Any]:
    """A user's vLLM options with those of a group, whose names nobody else may give."""
    fixed = ("served_model_name", "lora_modules")
    return {**group.options, **options, **{key: group.options[key] for key in fixed if key in group.options}}


def tokenizer_folder(path: str) -> str:
    """Where the tokenizer and chat template of a checkpoint are: of an adapter saved without, those of its base."""
    if not is_adapter(path) or any((Path(path) / name).is_file() for name in TOKENIZER):
        return path
    return adapter_base(path)[0]


def _same(name: str) -> str:
    """One spelling of a folder's path."""
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _group(paths: list[str]) -> Group:
    adapters = [path for path in paths if is_adapter(path)]
    if not adapters:
        # The same folder may be spelled in two ways.
        name = Path(paths[0]).name
        return Group(paths[0], dict.fromkeys(paths, name), {"served_model_name": name})
    base, revision = adapter_base(adapters[0])
    names = _names(paths, base)
    ranks = []
    for path in adapters:
        if not any(Path(path).glob("adapter_model.*")):
            raise UserError(f"{path}: has no adapter_model.safetensors; wait until its training has ended")
        settings = adapter_settings(path)
        ranks.append(max(settings["r"], *(settings.get("rank_pattern") or {}).values(), 1))
    if max(ranks) > RANKS[-1]:
        raise UserError(f"{adapters[0]}: rank {max(ranks)} is above vLLM's {RANKS[-1]}; use notewriter merge")
    try:
        check_model(base)
    except UserError as error:
        raise UserError(f"{adapters[0]}: its base model: {error}") from error
    options: dict[str, Any] = {
        "served_model_name": next((names[path] for path in paths if path not in adapters), Path(base).name),
        "enable_lora": True,
        "max_lora_rank": next(rank for rank in RANKS if rank >= max(ranks)),
        "max_loras": len(adapters),
        "lora_modules": [f"{names[path]}={path}" for path in adapters],
    }
    # Prompts as in training, which saves the tokenizer and template that it used.
    if (tokenizer := tokenizer_folder(adapters[0])) != base:
        options["tokenizer"] = tokenizer
    if revision != "main":
        options["revision"] = revision
    return Group(base, names, options)


def _names(paths: list[str], base: str) -> dict[str, str]:
    """Each checkpoint's folder name, or its path if another one is called the same."""
    short = {path: Path(path).name for path in paths}
    taken = [*short.values(), *([] if base in paths else [Path(base).name])]
    return {path: name if taken.count(name) == 1 else path for path, name in short.items()}
