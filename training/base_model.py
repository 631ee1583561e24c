"""The model that a run starts from: found, loaded with its tokenizer, and its type of weights kept in what is saved."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase, TrainingArguments
from trl import ModelConfig

from notewriter import jsonl
from notewriter.errors import UserError
from notewriter.models import checkpoints


def check_base(training: TrainingArguments, model: ModelConfig) -> str:
    """The name or folder of the model to train, which is there and is not what the run would write over.

    Raises:
        UserError: no model is named, it is not a whole model, or `output_dir` is its folder.
    """
    if training.process_index != 0:
        logging.disable(logging.INFO)
    if model.model_name_or_path is None:
        raise UserError("--model_name_or_path is missing; give a model's folder or its name on the Hugging Face Hub")
    base = checkpoints.check_model(model.model_name_or_path)
    if Path(training.output_dir).resolve() == Path(base).resolve():
        raise UserError(f"{training.output_dir}: is the base model; give another --output_dir")
    return base


def load_base(name: str, revision: str) -> tuple[PreTrainedTokenizerBase, torch.dtype | None]:
    """The tokenizer of a model, which has to have a chat template, and the type that its weights are stored in.

    Raises:
        UserError: the model cannot be loaded, or has no chat template.
    """
    dtype = checkpoints.load(AutoConfig, name, revision=revision).dtype
    tokenizer = checkpoints.load(AutoTokenizer, name, revision=revision)
    if tokenizer.chat_template is None:
        raise UserError(
            f"{name}: its tokenizer has no chat template; use an instruction-tuned model, or add chat_template.jinja"
        )
    return tokenizer, dtype


def stop_tokens(name: str, revision: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens at which a server stops: the tokenizer's end of sequence, and those of `generation_config.json`."""
    try:
        configured = GenerationConfig.from_pretrained(name, revision=revision).eos_token_id
    except OSError:
        configured = None
    stops = configured if isinstance(configured, list) else [configured]
    return frozenset(stop for stop in (tokenizer.eos_token_id, *stops) if stop is not None)


def model_options(training: Any, model: ModelConfig) -> dict[str, Any]:
    """What the base model is loaded with: `model_init_kwargs`, and before them what ModelConfig says."""
    return {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": model.dtype,
        **(training.model_init_kwargs or {}),
        "trust_remote_code": False,
    }


def cast_weights(folder: Path, dtype: torch.dtype | None) -> None:
    """Store a saved model's weights in `dtype`, that of its base model; None leaves them as they are.

    Training keeps float32 weights, which a server would load at twice the size, or as float16, which overflows in
    models that were trained in bfloat16.
    """
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if dtype is None or settings["dtype"] == str(dtype).removeprefix("torch."):
        return
    for file in folder.glob("model*.safetensors"):
        weights = load_file(file)
        cast = {key: value.to(dtype) if value.is_floating_point() else value for key, value in weights.items()}
        # The tensors are views of the file that they were read from.
        partial = file.with_name(file.name + ".partial")
        save_file(cast, partial, metadata={"format": "pt"})
        os.replace(partial, file)
    settings["dtype"] = str(dtype).removeprefix("torch.")
    jsonl.write_text(folder / "config.json", [json.dumps(settings, indent=2) + "\n"])
