"""LoRA adapters in serving: which checkpoints one server can hold, under which names, and vLLM's options for it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's option `max_lora_rank`."""

PROMPTS = ("tokenizer.json", "tokenizer.model", "chat_template*")
"""The files that decide the tokens that a server makes of messages."""


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
    checkpoints = [Checkpoint(path) for path in dict.fromkeys(paths)]
    bases = {_same(each.base.path) for each in checkpoints if each.is_adapter}
    members: dict[tuple[str, ...], list[Checkpoint]] = {}
    for each in checkpoints:
        key = [_same(each.base.path)]
        if each.is_adapter or key[0] in bases:
            key += [each.base.revision, Checkpoint(each.tokenizer).fingerprint(PROMPTS)]
        members.setdefault(tuple(key), []).append(each)
    return [_group(each) for each in members.values()]


def max_lora_rank(settings: Mapping[str, Any], name: str) -> int:
    """The value of vLLM's option that an adapter needs.

    Raises:
        UserError: its rank is too large for vLLM.
    """
    rank = max(settings.get("r", 1), *(settings.get("rank_pattern") or {}).values(), 1)
    if rank > RANKS[-1]:
        raise UserError(f"{name}: rank {rank} is above vLLM's {RANKS[-1]}; use notewriter merge")
    return next(each for each in RANKS if each >= rank)


def with_group(options: Mapping[str, Any], group: Group) -> dict[str, Any]:
    """A user's vLLM options with those of a group, which the user may not set."""
    fixed = ("served_model_name", "lora_modules")
    return {**group.options, **options, **{key: group.options[key] for key in fixed if key in group.options}}


def _same(name: str) -> str:
    """One spelling of a folder's path."""
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _group(checkpoints: list[Checkpoint]) -> Group:
    adapters = [each for each in checkpoints if each.is_adapter]
    if not adapters:
        # The same folder may be spelled in two ways.
        model = checkpoints[0]
        return Group(model.path, {each.path: model.name for each in checkpoints}, {"served_model_name": model.name})
    base = adapters[0].base
    names = _names(checkpoints, base)
    ranks = []
    for each in adapters:
        if not any(each.folder.glob("adapter_model.*")):
            raise UserError(f"{each.path}: has no adapter_model.safetensors; wait until its training has ended")
        ranks.append(max_lora_rank(each.adapter_settings(), each.path))
    try:
        base.check()
    except UserError as error:
        raise UserError(f"{adapters[0].path}: its base model: {error}") from error
    options: dict[str, Any] = {
        "served_model_name": next((names[each.path] for each in checkpoints if each not in adapters), base.name),
        "enable_lora": True,
        "max_lora_rank": max(ranks),
        "max_loras": len(adapters),
        "lora_modules": [f"{names[each.path]}={each.folder}" for each in adapters],
    }
    # Prompts as in training, which saves the tokenizer and template that it used.
    if (tokenizer := adapters[0].tokenizer) != base.path:
        options["tokenizer"] = tokenizer
    if base.revision != "main":
        options["revision"] = base.revision
    return Group(base.path, names, options)


def _names(checkpoints: list[Checkpoint], base: Checkpoint) -> dict[str, str]:
    """Each checkpoint's name, or its path if another one is called the same."""
    taken = [each.name for each in checkpoints]
    taken += [] if base.path in (each.path for each in checkpoints) else [base.name]
    return {each.path: each.name if taken.count(each.name) == 1 else each.path for each in checkpoints}
