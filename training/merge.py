"""Merge a LoRA adapter into its base model: a whole model folder, to serve, train further or publish."""

import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import torch
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from notewriter import config
from notewriter.errors import UserError
from notewriter.folders import new_folder
from notewriter.models import checkpoints
from training import base_model

logger = logging.getLogger(__name__)


@dataclass
class Arguments:
    """Merge a LoRA adapter into the base model that it was trained on.

    The sum is computed in float32 and stored in the type of the base model's weights. The tokenizer and chat template
    are those that the adapter was trained with.
    """

    checkpoint: str = field(metadata={"help": "the adapter's folder, as a training run with use_peft saves it"})
    output_dir: str = field(metadata={"help": "the folder to make; it appears when it is complete"})


def main(argv: list[str]) -> None:
    """Command `notewriter merge`."""
    (arguments,) = config.parse(Arguments, argv, prog="notewriter merge", description=Arguments.__doc__)
    merge(Path(arguments.checkpoint), Path(arguments.output_dir))


def merge(adapter: Path, output: Path) -> None:
    """Write the merged model into `output`.

    Raises:
        UserError: `adapter` is no adapter or its base is not to be had, or `output` holds something.
    """
    if not (adapter / "adapter_config.json").is_file():
        what = "a whole model, which needs no merging" if (adapter / "config.json").is_file() else "no LoRA adapter"
        raise UserError(f"{adapter}: holds {what}; give the folder that a training run with use_peft saved")
    if not any(adapter.glob("adapter_model.*")):
        raise UserError(f"{adapter}: has no adapter_model.safetensors; wait until its training has ended")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output}: holds something already; remove it or give another --output_dir")
    settings = PeftConfig.from_pretrained(str(adapter))
    name, revision = settings.base_model_name_or_path, settings.revision or "main"
    base = checkpoints.check_model(name)
    _, dtype = base_model.load_base(base, revision)
    logger.info("%s: merging into %s", adapter, base)
    model = checkpoints.load(AutoModelForCausalLM, base, revision=revision, dtype=torch.float32)
    merged = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    has_tokenizer = any((adapter / file).is_file() for file in checkpoints.TOKENIZER)
    tokenizer = checkpoints.load(AutoTokenizer, str(adapter) if has_tokenizer else base)

    with new_folder(output) as folder:
        (merged if dtype is None else merged.to(dtype)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if (adapter / "training.json").is_file():
            # For the model card: the merged model is what that run trained.
            shutil.copy(adapter / "training.json", folder)
    logger.info("%s: the merged model is here", output)
