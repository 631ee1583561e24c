"""LoRA adapters, merged into their base: by `notewriter merge`, and where a run starts from one.

The reference of DPO is the model that the run starts from: the base with the adapter.
"""

import contextlib
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from transformers import AutoTokenizer, PreTrainedModel, TrainingArguments
from trl import ModelConfig, get_peft_config

from notewriter.artifacts.training_record import TRAINING_RECORD, read_training_record
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.folders import new_folder
from notewriter.models.checkpoint import Checkpoint, is_hub_id, load, loading
from notewriter.models.tokenizer import check_class, check_served
from notewriter.training.model import exchange, weights

logger = logging.getLogger(__name__)

MERGED = "base"
"""The folder in a run folder for the merged model that the run starts from, the base of its new adapter."""

MERGED_FROM = "merged_from"
"""The file in `MERGED` with the fingerprint of the merged adapter; written last."""


def whole_base(base: str, output: str, training: TrainingArguments) -> str:
    """The base model to train: for a LoRA adapter, its base with the adapter merged into it, in a folder of the run.

    An earlier start of the run may have merged it already.

    Raises:
        UserError: as `merge`.
    """
    if not Checkpoint(base).is_adapter:
        return base
    folder = Path(output) / MERGED
    if folder.is_dir() and not _is_merged(Path(base), folder):
        shutil.rmtree(folder)
    with weights.unsharded(training):
        merge(Path(base), folder)
    return str(folder)


def _is_merged(adapter: Path, folder: Path) -> bool:
    """Whether a folder is the result of `merge` for the adapter as it is now.

    Raises:
        UserError: it is, and lacks a file since, or has the tokenizer of another class (older versions merged it).
    """
    merged_from = folder / MERGED_FROM
    if not merged_from.is_file() or merged_from.read_text(encoding="utf-8") != Checkpoint(adapter).fingerprint():
        return False
    try:
        Checkpoint(folder).check()
        check_served(str(folder))
    except UserError as error:
        raise UserError(f"{error}; or remove {folder}, and the adapter is merged again") from error
    return True


def settings_of(model: ModelConfig) -> Any:
    """PEFT's settings of the adapter to train; None where all weights are trained.

    TRL makes a text of a list of one name, which PEFT takes for a pattern of whole names. It stays a name here. And TRL
    leaves out the base's revision on the Hub, so that the adapter would be loaded with the newest base.
    """
    settings: Any = get_peft_config(model)
    if settings is not None and is_hub_id(model.model_name_or_path or ""):
        settings.revision = model.model_revision
    if settings is not None and isinstance(names := settings.target_modules, str) and names.isidentifier():
        settings.target_modules = {names}
    return settings


def leave_casts_out(model: torch.nn.Module, accelerator: Accelerator) -> None:
    """Make an adapter take its layer's input as it is where autocast casts it anyway, to half precision.

    PEFT casts it to the adapter's float32 first. Loss and gradients are the same in every bit. Left as they are: kinds
    of LoRA with a forward of their own (DoRA), and dropout, whose random numbers may depend on the type.
    """
    if accelerator.mixed_precision == "no" or accelerator.state.deepspeed_plugin is not None:
        return
    for layer in model.modules():
        if isinstance(layer, LoraLayer) and not layer.lora_variant:
            dropout = any(isinstance(each, torch.nn.Dropout) for each in layer.lora_dropout.values())
            layer.cast_input_dtype_enabled = dropout


def merge(adapter: Path, output: Path) -> None:
    """Merge an adapter into its base and write the model into `output`, unless it is there already.

    Raises:
        UserError: `adapter` is not an adapter, its files or those of its base are damaged, the base is missing or has
            changed since, or `output` is not empty.
    """
    if not (adapter / "adapter_config.json").is_file():
        what = "a whole model, which needs no merging" if (adapter / "config.json").is_file() else "no LoRA adapter"
        raise UserError(f"{adapter}: contains {what}; give the folder that a training run with use_peft saved")
    if not any(adapter.glob("adapter_model.*")):
        raise UserError(f"{adapter}: has no adapter_model.safetensors; wait until its training has ended")
    if _is_merged(adapter, output):
        logger.info("%s: is merged already; the merged model is here: %s", adapter, output)
        return
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: is not empty; remove it or give another --output_dir")
    base = Checkpoint(adapter).base
    base.check()
    check_base(adapter, base)
    tokenizer = load(AutoTokenizer, Checkpoint(adapter).tokenizer)
    check_class(tokenizer, Checkpoint(adapter).tokenizer)
    stored = weights.stored(base.path, base.revision)
    logger.info("%s: merging into %s", adapter, base.path)
    as_float32 = {"dtype": torch.float32, "device_map": None, "trust_remote_code": False}
    model = dequantized(weights.load_whole(base.path, revision=base.revision, **as_float32), base.path)
    with loading(adapter, "LoRA adapter"):
        merged = merged_into(with_adapter(model, adapter))

    with new_folder(output) as folder:
        # Else in float32, where some tensors are stored in more bytes than the others.
        if stored.dtype and not stored.wider:
            torch.nn.Module.to(merged, stored.dtype)
        merged.save_pretrained(folder)
        weights.cast_weights(folder, stored)
        tokenizer.save_pretrained(folder)
        exchange.settle(folder, stored)
        jsonl.write_text(folder / MERGED_FROM, [Checkpoint(adapter).fingerprint()])
        if (adapter / TRAINING_RECORD).is_file():
            # For the model card: the merged model is what that run trained.
            shutil.copy(adapter / TRAINING_RECORD, folder)
    logger.info("%s: the merged model is here", output)


def dequantized(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """A model with float32 weights in place of quantized ones, into which no adapter can be merged.

    Raises:
        UserError: its kind of quantization cannot be undone.
    """
    if getattr(model, "hf_quantizer", None) is None:
        return model
    logger.info("%s: is stored quantized; its weights are expanded before merging", name)
    with loading(name, "model with expanded weights"):
        expanded: Any = torch.nn.Module.float(model.dequantize())
    # How it was loaded, which transformers would undo in saving.
    expanded._weight_conversions = None
    return cast(PreTrainedModel, expanded)


@contextlib.contextmanager
def adapting() -> Iterator[None]:
    """Give the remedy where PEFT cannot make an adapter: its parameters of experts have no dropout.

    Raises:
        UserError: experts are among the layers to adapt, and `lora_dropout` is not 0.
    """
    try:
        yield
    except ValueError as error:
        if "lora_dropout" not in str(error):
            raise
        raise UserError(
            "lora_dropout: PEFT has no dropout for the experts among lora_target_modules (TRL's default is 0.05); give "
            "--lora_dropout 0"
        ) from error


def merged_into(model: PeftModel) -> PreTrainedModel:
    """The base of a model with an adapter, with the adapter merged into it.

    Where input and output embeddings are tied, PEFT would add the adapter's change of either to both, and the merged
    model would differ from the model with the adapter. So they are untied, unless both changes are equal.
    """
    shared: set[int] = set()
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if id(parameter) in shared and parameter is not None:
                setattr(module, name, torch.nn.Parameter(parameter.detach().clone(), requires_grad=False))
            shared.add(id(parameter))
    configuration = cast(PreTrainedModel, model.get_base_model()).config
    settings = [
        each for each in (configuration, configuration.get_text_config()) if hasattr(each, "tie_word_embeddings")
    ]
    tied = [each.tie_word_embeddings for each in settings]
    merged = cast(PreTrainedModel, model.merge_and_unload())
    words, head = merged.get_input_embeddings(), merged.get_output_embeddings()
    if any(tied) and head is not None:
        alike = torch.equal(cast(torch.Tensor, words.weight), cast(torch.Tensor, head.weight))
        if alike:
            head.weight = words.weight
        for each, before in zip(settings, tied, strict=True):
            each.tie_word_embeddings = before and alike
    return merged


def with_adapter(model: PreTrainedModel, adapter: Path) -> PeftModel:
    """A model with an adapter.

    Raises:
        UserError: the adapter cannot be loaded, or belongs to another architecture or to a model of another depth.
    """
    remedy = "name the base model that it was trained on in adapter_config.json"
    with loading(adapter, "LoRA adapter"), warnings.catch_warnings():
        # PEFT leaves layers that it has no weights for as they are.
        warnings.filterwarnings("error", "Found missing adapter keys")
        try:
            adapted = PeftModel.from_pretrained(model, str(adapter))
        except UserWarning as warning:
            raise UserError(
                f"{adapter}: has no weights for some layers of {type(model).__name__}; {remedy}"
            ) from warning
        # Only loading once more tells which weights found no place.
        unplaced = adapted.load_adapter(str(adapter), adapted.active_adapter).unexpected_keys
    if unplaced:
        layer = unplaced[0].removeprefix("base_model.model.")
        raise UserError(
            f"{adapter}: {len(unplaced)} of its weights, such as {layer}, have no place in {type(model).__name__}; "
            f"{remedy}"
        )
    return adapted


def check_base(adapter: Path, base: Checkpoint) -> None:
    """Compare the base model with the one that the adapter's training recorded.

    Raises:
        UserError: their weights, configurations or tokenizers differ, or the record is damaged.
    """
    record = read_training_record(adapter)
    if record is None or record.base_model_fingerprint is None:
        return
    now, recorded = base.fingerprint(), record.base_model_fingerprint
    # The hub's id and commit say nothing about a folder's hash; an id that is not downloaded yet has no commit.
    if now == base.path or ("@" in now) != ("@" in recorded):
        return
    if now != recorded:
        raise UserError(
            f"{adapter}: was trained on another base model than {base.path} is now (base_model_fingerprint in "
            f"{TRAINING_RECORD} differs); restore that model, or name it in adapter_config.json with "
            "base_model_name_or_path and revision"
        )
