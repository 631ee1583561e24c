"""Model folders: what makes one complete, how one is loaded, and what tells two of them apart."""

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from notewriter.errors import UserError

logger = logging.getLogger(__name__)


WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZER = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt")
SETTINGS = (
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "*token*.json",
    "special_tokens_map.json",
    "chat_template*",
    "merges.txt",
)
ENCODER = ("modules.json", "*sentence_*.json", "[0-9]_*/*")
"""What sentence-transformers adds to a model's folder; every module but the first has a numbered folder of its own."""
REPLIES = (*WEIGHTS, *TOKENIZER, *SETTINGS, *ENCODER)
"""Everything that decides what a model replies; notes beside it (a model card, the record of its training) do not."""
LOCAL_FOLDERS = ("models", "runs", "checkpoints")
"""Where models lie by custom: `models/x` is a folder that is missing and never the hub id of an owner `models`."""


def check_model(name_or_path: str | Path) -> str:
    """The name or path of a model that can be loaded, as a string.

    A local folder must hold `config.json`, weights (every shard that its index names) and a
    tokenizer. A hub id, `owner/name` where no such folder is, is passed through unchecked.

    Raises:
        UserError: a folder that is not a whole model, or a name that is neither; names what is missing.
    """
    path = Path(name_or_path)
    if not path.exists():
        if is_hub_id(str(name_or_path)):
            return str(name_or_path)
        raise UserError(
            f"{name_or_path}: is neither a model folder nor a hub id (owner/name); check the path, "
            "or get a small model with `notewriter fetch-model`"
        )
    if not path.is_dir():
        raise UserError(f"{path}: is a file, not a model folder; give the folder that holds config.json")
    if not (path / "config.json").is_file():
        if (path / "adapter_config.json").is_file():
            raise UserError(
                f"{path}: holds a LoRA adapter, not a whole model; merge it into its base model first "
                f"(notewriter merge --checkpoint {path} --output_dir MERGED)"
            )
        raise UserError(f"{path}: is not a model folder (no config.json); {_nearby(path)}")
    if missing := _missing_weights(path):
        raise UserError(f"{path}: has no {missing}; copy or save the model again, or wait until its training has ended")
    if not any((path / name).is_file() for name in TOKENIZER):
        raise UserError(f"{path}: has no tokenizer (tokenizer.json); copy the base model's tokenizer files into it")
    return str(path)


def load(kind: Any, name: str | Path, **options: Any) -> Any:
    """`kind.from_pretrained(name, **options)` of transformers, with which no code that comes with a model is run.

    Raises:
        UserError: the model cannot be loaded, or only by running its code.
    """
    with loading(name):
        # Where nothing is said, transformers asks on the terminal, and runs the code where somebody says yes.
        return kind.from_pretrained(name, trust_remote_code=False, **options)


@contextlib.contextmanager
def loading(name: str | Path, kind: str = "model") -> Iterator[None]:
    """What the libraries raise where a model cannot be loaded, as a `UserError` of one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        as_what = f"cannot be loaded as {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        if "trust_remote_code" in reason:
            raise UserError(
                f"{name}: {as_what} without running code that comes with it, which is never done; use one of an "
                "architecture that the libraries have, or a copy converted to it"
            ) from error
        raise UserError(
            f"{name}: {as_what} ({reason}); check the name, and for one on the Hugging Face Hub the network and the "
            "access to it"
        ) from error


def is_hub_id(name: str) -> bool:
    """Whether a name can only be a model's id on the hub, `owner/name`, and not a folder of this machine."""
    owner = name.split("/")[0]
    return bool(re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name)) and owner not in LOCAL_FOLDERS and not Path(owner).is_dir()


def _missing_weights(path: Path) -> str:
    """What is missing of the weights, in words; empty where nothing is."""
    for index in sorted(path.glob("*.index.json")):
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        except (ValueError, AttributeError):  # a download that was cut, or another file in its place
            return f"{index.name} that can be read"
        if absent := sorted(name for name in shards if not (path / name).is_file()):
            return f"{absent[0]} ({len(absent)} of the {len(shards)} weight files in {index.name} are missing)"
    return "" if _files(path, WEIGHTS) else "weights (*.safetensors)"


def _nearby(path: Path) -> str:
    """The remedy for a folder without a model: the newest one inside it, if there is one."""
    inside = sorted(path.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    return f"did you mean {inside[-1].parent}?" if inside else "give the folder that a training run saved its model in"


def _files(path: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})


def fingerprint(name_or_path: str | Path, revision: str = "main", files: Iterable[str] = REPLIES) -> str:
    """What tells a model from every other: of a folder the SHA-256 (hex) over what decides its replies.

    That is the names and contents of the files directly in the folder that match `files`, and of an encoder's
    modules. Two copies of one model have one fingerprint wherever they lie. Of a hub id it is the id, with `@` and
    the commit of `revision` where the hub's local cache knows it. Reads every byte: about a second a gigabyte.
    """
    path = Path(name_or_path)
    if not path.is_dir():
        return _hub_fingerprint(str(name_or_path), revision)
    found = _files(path, files)
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(digest, found))
    lines = (f"{file.relative_to(path)} {digest}\n" for file, digest in zip(found, digests, strict=True))
    return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hub_fingerprint(name: str, revision: str) -> str:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json", revision=revision) if is_hub_id(name) else None
    # The cache keeps a file of a commit under snapshots/<commit>/.
    return f"{name}@{Path(cached).parent.name}" if isinstance(cached, str) else name
