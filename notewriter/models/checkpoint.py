"""A checkpoint: the folder of a model, the folder of a LoRA adapter, or a hub id; and how it is loaded safely."""

import contextlib
import functools
import hashlib
import json
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from annotated_types import Interval, MinLen
from safetensors import SafetensorError, safe_open

from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, one_line

ADAPTER = "adapter_config.json"
"""PEFT's configuration, in the folder of an adapter."""

PROCESSOR = "*processor_config.json"
"""The settings of image processors and the like; a server of such architectures reads them even for texts alone."""

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZER = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt")
SETTINGS = (
    "config.json",
    "generation_config.json",
    ADAPTER,
    "*token*.json",
    "special_tokens_map.json",
    "chat_template*",
    "additional_chat_templates/*",
    "merges.txt",
    PROCESSOR,
)
ENCODER = (
    "modules.json",
    "*sentence_*.json",
    "router_config.json",
    "wordembedding_config.json",
    "[0-9]_*/*",
    "*_[0-9]*_*/*",
)
"""Files that sentence-transformers adds: every module but the first has its own numbered folder, and a router's modules
are named for a side too (`document_0_Transformer`)."""
FINGERPRINTED = (*WEIGHTS, "adapter_model.bin", *TOKENIZER, *SETTINGS, *ENCODER)
"""Every file that can change a model's replies; model cards and training records cannot."""
PATHS = ("chat_template", "config", "generation_config", "hf_config_path", "reasoning_parser_plugin", "tokenizer")
"""vLLM's options whose values may be files or folders that can change a model's replies."""
LOCAL_FOLDERS = ("models", "runs", "checkpoints")
"""Conventional model folders: `models/x` is a local path, never the hub id of an owner called `models`."""

HUB_TIMEOUT = 5.0
"""Seconds to wait for the hub when it is asked whether a name is an adapter's."""

STATE = "trainer_state.json"
"""The file that a trainer writes last into a checkpoint; its `log_history` has all values logged so far."""


WEIGHTS_ONLY = "weights_only"
"""The file, empty, in a checkpoint that was reduced to its weights: it can be evaluated, and no run resumes from it."""


class AdapterSettings(TypedDict):
    """The used part of an adapter's configuration."""

    peft_type: str
    base_model_name_or_path: Annotated[str, MinLen(1)]
    r: NotRequired[Annotated[int, Interval(ge=1)]]
    revision: NotRequired[str | None]
    rank_pattern: NotRequired[dict[str, int] | None]


@dataclass(frozen=True, init=False)
class Checkpoint:
    """A model or LoRA adapter to load, train or serve: a folder, or a hub id (`owner/name`) with a revision."""

    path: str
    revision: str

    def __init__(self, path: str | Path, revision: str = "main") -> None:
        object.__setattr__(self, "path", str(path))
        object.__setattr__(self, "revision", revision)

    @property
    def name(self) -> str:
        """The name of its folder, or of the model on the Hub; by default its name in requests."""
        return Path(self.path).name

    @property
    def folder(self) -> Path:
        """The folder of its files; an adapter on the Hub is downloaded into the Hub's cache.

        A whole model on the hub is left to the libraries that load it; its folder does not exist.
        """
        return _adapter_on_hub(self.path, self.revision) or Path(self.path)

    @property
    def is_adapter(self) -> bool:
        """Whether it is a LoRA adapter, which PEFT has saved without its base model, in a folder or on the hub.

        Some trainers put the base's `config.json` beside it.
        """
        return self._has(ADAPTER) and not (self._has("config.json") and _weights(self.folder))

    @property
    def base(self) -> "Checkpoint":
        """The full model: itself, or the one that an adapter changes.

        Raises:
            UserError: the adapter's configuration is damaged.
        """
        if not self.is_adapter:
            return self
        settings = self.adapter_settings()
        return Checkpoint(settings["base_model_name_or_path"], settings.get("revision") or "main")

    @property
    def tokenizer(self) -> str:
        """The place of its tokenizer and chat template; an adapter saved without takes those of its base."""
        return str(self.folder) if any(map(self._has, TOKENIZER)) else self.base.path

    def adapter_settings(self) -> AdapterSettings:
        """PEFT's configuration of an adapter.

        Raises:
            UserError: it is damaged, or of another kind of adapter than LoRA.
        """
        file = self.folder / ADAPTER
        settings: AdapterSettings = jsonl.read_object(file, AdapterSettings, "copy or save the adapter again")
        if settings["peft_type"] != "LORA":
            raise UserError(f"{file}: peft_type is {settings['peft_type']}; only LoRA adapters are supported")
        return settings

    def check(self) -> str:
        """Check that it is a full model; returns its path.

        A local folder must contain `config.json`, weights (every shard listed in the index) and a tokenizer, and no
        weights that libraries read in different ways. A hub id where no such folder exists is not checked.

        Raises:
            UserError: the folder is not a complete model (names what is missing), or the path is neither a folder nor
                a hub id.
        """
        path = self.folder
        if not path.exists():
            if is_hub_id(self.path):
                return self.path
            raise UserError(
                f"{path}: is neither a model folder nor a hub id (owner/name); check the path or get a small model "
                "with `notewriter fetch model HuggingFaceTB/SmolLM2-135M-Instruct --output_dir FOLDER`"
            )
        if not path.is_dir():
            raise UserError(f"{path}: is a file, not a model folder; give the folder that contains config.json")
        if self.is_adapter:
            raise UserError(
                f"{self.path}: is a LoRA adapter, not a full model; merge it into its base model first "
                f"(notewriter merge --checkpoint {self.path} --output_dir MERGED)"
            )
        if not self._has("config.json"):
            raise UserError(f"{path}: is not a model folder (no config.json); {_nearby(path)}")
        if missing := _missing_weights(path):
            raise UserError(
                f"{path}: has no {missing}; copy or save the model again, or wait until training has finished"
            )
        if ambiguity := _ambiguity(path):
            raise UserError(f"{path}: {ambiguity}")
        if not any(map(self._has, TOKENIZER)):
            raise UserError(f"{path}: has no tokenizer (tokenizer.json); copy the base model's tokenizer files into it")
        return self.path

    def fingerprint(self, files: Iterable[str] = FINGERPRINTED) -> str:
        """The identity of its contents: for a folder, the SHA-256 (hex) of every file that can change its replies.

        It covers the names and contents of the files in the folder that match `files`, including an encoder's modules,
        so copies of a model have the same fingerprint. An adapter's covers its base model. For a hub id it is the id,
        followed by `@` and the commit of the revision if the hub's local cache has it. Reads every byte, about a
        second per gigabyte, once per process for each version of a file.
        """
        path = self.folder
        if not path.is_dir():
            return _hub_fingerprint(self.path, self.revision)
        matching = _files(path, files)
        with ThreadPoolExecutor() as pool:
            digests = list(pool.map(_digest_once, matching))
        lines = [f"{file.relative_to(path)} {digest}\n" for file, digest in zip(matching, digests, strict=True)]
        if self.is_adapter and files is FINGERPRINTED:
            lines.append(f"base {self.base.fingerprint()}\n")
        return hashlib.sha256("".join(lines).encode("utf-8")).hexdigest()

    def identity(self, options: Mapping[str, Any]) -> str:
        """The identity of its replies under these options of vLLM.

        Files that the options name, such as a chat template, are identified by their contents.
        """
        return f"{self.fingerprint()} {json.dumps({**options, **contents_of(options)}, sort_keys=True)}"

    def _has(self, file: str) -> bool:
        return (self.folder / file).is_file()


@contextlib.contextmanager
def without_hub() -> Iterator[None]:
    """A context without requests to the hub, for models that a folder names: only this machine's files are used."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def is_hub_id(name: str) -> bool:
    """Whether a name can only be a model id on the hub, `owner/name`, not a local folder."""
    owner = name.split("/")[0]
    return bool(re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name)) and owner not in LOCAL_FOLDERS and not Path(owner).is_dir()


def checkpoints_of(run: Path) -> dict[int, Path]:
    """The complete checkpoints of a training run, by step."""
    steps = {path.parent: path.parent.name.removeprefix("checkpoint-") for path in run.glob(f"checkpoint-*/{STATE}")}
    return dict(sorted((int(step), folder) for folder, step in steps.items() if step.isdecimal()))


def zero_processes(checkpoint: Path) -> int | None:
    """The number of processes among which ZeRO divided a checkpoint's optimizer state; None if it did not."""
    return len({*checkpoint.glob("global_step*/*_optim_states.pt")}) or None


def load(kind: Any, name: str | Path, **options: Any) -> Any:
    """`kind.from_pretrained(name, **options)` of transformers, never running code shipped with the model.

    Raises:
        UserError: the model cannot be loaded, or only by running its code.
    """
    with loading(name):
        # Without the explicit False transformers asks on the terminal and runs the code if the user agrees.
        return kind.from_pretrained(name, trust_remote_code=False, **options)


@contextlib.contextmanager
def loading(name: str | Path, kind: str = "model") -> Iterator[None]:
    """Turn the errors libraries raise for a model that cannot be loaded into a one-line `UserError`."""
    try:
        yield
    except UserError:
        raise
    # Each library has its own for files that are cut or hold something else: SafetensorError, TypeError, EOFError, ...
    except Exception as error:
        reason = one_line(error) or type(error).__name__
        if isinstance(error, pickle.UnpicklingError):
            # PyTorch's advice is to run it.
            reason = "a pickle of more than weights, whose code is never run"
        as_what = f"cannot be loaded as {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        if "trust_remote_code" in reason:
            raise UserError(
                f"{name}: {as_what} without running code shipped with it, which is never done; use an "
                "architecture that the libraries support, or a copy converted to one"
            ) from error
        remedy = "check its files, or copy or save it again"
        if not Path(name).is_dir():
            remedy = "check the name, and for a model on the Hugging Face Hub the network and your access to it"
        raise UserError(f"{name}: {as_what} ({reason}); {remedy}") from error


def contents_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The digests (SHA-256, hex) of the files and folders that options of vLLM name, by option."""
    digests = {}
    for option, path in options.items():
        if option.replace("-", "_") not in PATHS or not isinstance(path, str):
            continue
        # Not Path's methods, which fail for a template that is given as text.
        if os.path.isfile(path):
            digests[option] = file_digest(path)
        elif os.path.isdir(path):
            digests[option] = Checkpoint(path).fingerprint()
    return digests


def _missing_weights(path: Path) -> str:
    """A description of the missing weights; empty if they are complete."""
    for index in sorted(path.glob("*.index.json")):
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
            absent = sorted(name for name in shards if not (path / name).is_file())
        except (ValueError, AttributeError, TypeError):  # a partial download, or something else
            return f"readable {index.name}"
        if absent:
            return f"{absent[0]} ({len(absent)} of the {len(shards)} weight files in {index.name} are missing)"
    return "" if _weights(path) else "weights (*.safetensors)"


def _weights(path: Path) -> list[Path]:
    """The files of a model's own weights, without those of an adapter."""
    return [file for file in _files(path, WEIGHTS) if not file.name.startswith("adapter_model")]


def _ambiguity(path: Path) -> str:
    """The files that libraries would read in different ways, with the remedy; empty without any."""
    if (path / SINGLE).is_file() and (path / f"{SINGLE}.index.json").is_file():
        index = json.loads((path / f"{SINGLE}.index.json").read_text(encoding="utf-8"))
        if SINGLE not in index.get("weight_map", {}).values():
            return (
                f"has {SINGLE} beside {SINGLE}.index.json, which names other files: transformers would read {SINGLE} "
                "and vLLM the other files; remove those that do not belong to the model"
            )
    try:
        settings = json.loads((path / "config.json").read_text(encoding="utf-8"))
        is_tied = settings.get("tie_word_embeddings") is True and _heads_differ(path)
    # The loading of the model reports the fault of such files.
    except (OSError, ValueError, AttributeError, SafetensorError):
        return ""
    if is_tied:
        return (
            "config.json has tie_word_embeddings true, and the weights have an lm_head other than the embeddings: "
            "transformers would use it and vLLM would not; write false if it belongs to the model, or remove "
            "lm_head.weight from its files"
        )
    return ""


SINGLE = "model.safetensors"


def _heads_differ(path: Path) -> bool:
    """Whether a model's weights have an output matrix of their own, of other values than its input embeddings."""
    places: dict[str, Path] = {}
    for file in path.glob("model*.safetensors"):
        with safe_open(file, framework="numpy") as weights:
            places |= dict.fromkeys(map(str, weights.keys()), file)
    heads, embeddings = (
        [name for name in places if name.endswith(ending)] for ending in ("lm_head.weight", "embed_tokens.weight")
    )
    if len(heads) != 1 or len(embeddings) != 1:
        return False
    import torch

    def tensor(name: str) -> torch.Tensor:
        with safe_open(places[name], framework="pt") as weights:
            read: torch.Tensor = weights.get_tensor(name)
            return read

    head, embedding = tensor(heads[0]), tensor(embeddings[0])
    return head.shape != embedding.shape or not torch.equal(head, embedding.to(head.dtype))


def _nearby(path: Path) -> str:
    """The remedy for a folder that is not a model: the newest model inside it, if any."""
    inside = sorted(path.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    return f"did you mean {inside[-1].parent}?" if inside else "give the folder where a training run saved its model"


def _files(path: Path, patterns: Iterable[str]) -> list[Path]:
    return sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})


def _digest_once(path: Path) -> str:
    """`digest`, computed once per process for each version of a file."""
    state = path.stat()
    version = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    return _digest_of_version(path.resolve(), *version)


@functools.lru_cache(maxsize=4096)
def _digest_of_version(path: Path, *version: int) -> str:
    return file_digest(path)


@functools.lru_cache(maxsize=256)
def _adapter_on_hub(name: str, revision: str) -> Path | None:
    """The folder of an adapter on the hub in its local cache; None for all else, and where the hub cannot be asked."""
    if Path(name).exists() or not is_hub_id(name):
        return None
    from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        return None
    try:
        there = HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    # Each version of the library has other errors for a hub that is not reached, or refuses.
    except Exception:
        cached = try_to_load_from_cache(name, ADAPTER, revision=revision)
        return Path(cached).parent if isinstance(cached, str) else None
    files = {each.rfilename for each in there.siblings or ()}
    if ADAPTER not in files or "config.json" in files:
        return None
    with loading(name, "LoRA adapter"):
        return Path(snapshot_download(name, revision=revision, allow_patterns=[*FINGERPRINTED]))


def _hub_fingerprint(name: str, revision: str) -> str:
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(name, "config.json", revision=revision) if is_hub_id(name) else None
    # The cache stores the files of a commit under snapshots/<commit>/.
    return f"{name}@{Path(cached).parent.name}" if isinstance(cached, str) else name
