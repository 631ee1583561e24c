"""The weights that a run starts from, how they are loaded, and the type in which the trained ones are stored."""

import contextlib
import functools
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from huggingface_hub import snapshot_download, try_to_load_from_cache
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, PreTrainedModel, TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from trl import DPOConfig, KTOConfig, ModelConfig, SFTConfig
from trl.trainer.utils import create_model_from_path

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import PROCESSOR, Checkpoint, is_hub_id, load, loading
from notewriter.training.model import generation

logger = logging.getLogger(__name__)

WIDE = {"F32": torch.float32, "F64": torch.float64}
"""The types of more than two bytes, as safetensors names them."""

TYPES = WIDE | {"BF16": torch.bfloat16, "F16": torch.float16}
"""The types in which whole models are stored, as safetensors names them."""


def check_base(training: TrainingArguments, model: ModelConfig) -> str:
    """The name or folder of the base model or of the LoRA adapter to start from, which the run would not overwrite.

    Raises:
        UserError: as `named_base`, or `output_dir` is its folder.
    """
    if training.process_index != 0:
        logging.disable(logging.INFO)
    adapter = Checkpoint(model.model_name_or_path or "", model.model_revision)
    if adapter.is_adapter:
        adapter.base.check()
        base = str(adapter.folder)
    else:
        base = named_base(model)
    if Path(training.output_dir or "").resolve() == Path(base).resolve():
        raise UserError(f"{training.output_dir}: is the base model's folder; give another --output_dir")
    return base


def named_base(model: ModelConfig) -> str:
    """The name or folder of the base model.

    Raises:
        UserError: no model is named, it is incomplete, or transformers would refuse to save what is made of it.
    """
    if model.model_name_or_path is None:
        raise UserError("--model_name_or_path is missing; give a model's folder or its name on the Hugging Face Hub")
    base = Checkpoint(model.model_name_or_path).check()
    generation.make_savable(generation.settings_of(base, model.model_revision), base)
    return base


@dataclass(frozen=True)
class Stored:
    """The stored format of a base model, and of the model that is trained from it.

    Attributes:
        model: the base.
        dtype: the type of its weights; None if its configuration names none.
    """

    model: Checkpoint
    dtype: torch.dtype | None

    @functools.cached_property
    def files(self) -> Path:
        """The folder of its files: of a model on the hub, in the local cache, once it was loaded."""
        if not is_hub_id(self.model.path):
            return Path(self.model.path)
        config = try_to_load_from_cache(self.model.path, "config.json", revision=self.model.revision)
        return Path(config).parent if isinstance(config, str) else Path(self.model.path)

    @functools.cached_property
    def wider(self) -> dict[str, torch.dtype]:
        """The tensors that are stored in more bytes than the others, such as the biases of a router, in float32."""
        if self.dtype is None:
            return {}
        wide = {name: each for name, each in WIDE.items() if each.itemsize > self.dtype.itemsize}
        tensors = saved_tensors(self.files, "model*.safetensors")
        found = {name: file.get_slice(name).get_dtype() for name, file in tensors}
        return {name: wide[each] for name, each in found.items() if each in wide}


def stored(name: str, revision: str) -> Stored:
    """The stored format of a model, or of an adapter's base.

    Raises:
        UserError: its configuration cannot be loaded, or has another type.
    """
    model = Checkpoint(name, revision).base
    config = load(AutoConfig, model.path, revision=model.revision)
    dtype: torch.dtype | None = config.dtype or config.get_text_config().dtype or _commonest_type(Path(model.path))
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise UserError(
            f"{model.path}: config.json: dtype is {dtype}, not a type of weights such as bfloat16; correct it"
        )
    return Stored(model, dtype)


def _commonest_type(folder: Path) -> torch.dtype | None:
    """The type of most weights in a folder's files; None of files elsewhere, or of another kind of type."""
    with loading(folder):
        found = Counter(file.get_slice(name).get_dtype() for name, file in saved_tensors(folder, "model*.safetensors"))
    return TYPES.get(found.most_common(1)[0][0]) if found else None


def loading_options(training: DPOConfig | KTOConfig | SFTConfig, model: ModelConfig) -> dict[str, Any]:
    """The options that the base model is loaded with: ModelConfig's, overridden by `model_init_kwargs`.

    On a GPU the whole model is loaded there, as far as TRL lets a process load onto one. TRL's own `device_map` "auto"
    would leave what does not fit on the CPU and train hundreds of times slower, without a word.
    """
    return {
        **({"device_map": {"": str(training.device)}} if training.device.type == "cuda" else {}),
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **cast(dict[str, Any], training.model_init_kwargs or {}),
        "trust_remote_code": False,
    }


def check_whole(name: str, revision: str, training: TrainingArguments) -> None:
    """Check that a model's files have all of its weights, by their names and shapes alone.

    Weights that are stored quantized have other names and are left to their loader.

    Raises:
        UserError: the model cannot be loaded, or lacks weights.
    """
    if getattr(load(AutoConfig, name, revision=revision), "quantization_config", None) is None:
        with unsharded(training):
            load_whole(name, revision=revision, device_map="meta", trust_remote_code=False)


def load_whole(name: str, **options: Any) -> PreTrainedModel:
    """A model whose files have all of its weights; transformers draws missing ones at random.

    Raises:
        UserError: the model cannot be loaded, lacks weights, or could not be saved again.
    """
    with loading(name):
        # As for training: AutoModelForCausalLM would take only the text model of some architectures.
        loaded: Any = create_model_from_path(name, **options, output_loading_info=True)
    model, info = loaded
    if unread := sorted(info["unexpected_keys"]):
        logger.warning(
            "%s: %d of its weights, such as %s, are not loaded: its configuration has no place for them",
            name,
            len(unread),
            unread[0],
        )
    if missing := sorted(info["missing_keys"]):
        raise UserError(
            f"{name}: its files lack {len(missing)} weights, such as {missing[0]}; copy or save the model again"
        )
    if model.can_generate():
        generation.make_savable(model.generation_config, name)
    return cast(PreTrainedModel, model)


@contextlib.contextmanager
def unsharded(training: TrainingArguments) -> Iterator[None]:
    """Load models whole, as a single process has to, where ZeRO-3 would spread them over all processes."""
    unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if training.deepspeed_plugin:
            training.deepspeed_plugin.set_deepspeed_weakref()


def saved_tensors(folder: Path, pattern: str = "*model*.safetensors") -> Iterator[tuple[str, Any]]:
    """The names of the tensors in a folder's files, each with its file, open for reading, of a model or an adapter."""
    for path in sorted(folder.glob(pattern)):
        with safe_open(path, framework="pt") as file:
            for name in map(str, file.keys()):
                yield name, file


def broken_tensor(folder: Path) -> str | None:
    """The name of a tensor in a saved model or adapter that has values which are not finite; None if there is none."""
    for name, file in saved_tensors(folder):
        tensor = file.get_tensor(name)
        if tensor.is_floating_point() and tensor.itemsize > 1 and not tensor.isfinite().all():
            return name
    return None


def copy_processor(base: Stored, folder: Path) -> None:
    """Copy the files of a base model's image processor into the folder of a model made from it.

    Training and merging have its tokenizer alone, and vLLM does not start without the rest.
    """
    if is_hub_id(base.model.path):
        # Loading the weights does not download these.
        with loading(base.model.path):
            snapshot_download(base.model.path, revision=base.model.revision, allow_patterns=[PROCESSOR])
    for file in base.files.glob(PROCESSOR):
        shutil.copy(file, folder)


def cast_weights(folder: Path, base: Stored) -> None:
    """Store a saved model's weights in the types of its base model's; one without a type leaves them unchanged.

    Training keeps float32 weights, which a server would load at twice the size, or as float16, which overflows in
    models that were trained in bfloat16.
    """
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    name = str(base.dtype).removeprefix("torch.")
    if base.dtype is None or settings["dtype"] == name:
        return
    size = 0
    for file in folder.glob("model*.safetensors"):
        cast = {
            key: value.to(base.wider.get(key, base.dtype)) if value.is_floating_point() else value
            for key, value in load_file(file).items()
        }
        size += sum(value.nbytes for value in cast.values())
        # The tensors are views of the file that they were read from.
        partial = file.with_name(file.name + ".partial")
        save_file(cast, partial, metadata={"format": "pt"})
        os.replace(partial, file)
    for file in folder.glob("model*.index.json"):
        index = json.loads(file.read_text(encoding="utf-8"))
        index["metadata"] = {**index.get("metadata", {}), "total_size": size}
        jsonl.write_text(file, [json.dumps(index, indent=2) + "\n"])
    for each in (settings, settings.get("text_config")):
        if each and "dtype" in each:
            each["dtype"] = name
    jsonl.write_text(folder / "config.json", [json.dumps(settings, indent=2) + "\n"])
