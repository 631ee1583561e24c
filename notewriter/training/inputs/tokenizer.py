"""The base model's tokenizer, with its chat template, and the tokens that end a turn."""

from collections.abc import Mapping
from typing import Any

from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.models import checkpoints
from notewriter.training.inputs import chat_templates


def load_tokenizer(name: str, revision: str, variables: Mapping[str, Any]) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; `variables` become defaults of its chat template.

    Raises:
        UserError: it cannot be loaded, has no chat template, or its template lacks a variable.
    """
    tokenizer: PreTrainedTokenizerBase = checkpoints.load(AutoTokenizer, name, revision=revision)
    if tokenizer.chat_template is None:
        raise UserError(
            f"{name}: its tokenizer has no chat template; use an instruction-tuned model, or add chat_template.jinja"
        )
    chat_templates.set_variables(tokenizer, variables)
    return tokenizer


def stop_tokens(name: str, revision: str, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The tokens at which a server stops: the tokenizer's end of sequence, and those of `generation_config.json`."""
    if checkpoints.is_adapter(name):
        name, revision = checkpoints.adapter_base(name)
    try:
        configured = GenerationConfig.from_pretrained(name, revision=revision).eos_token_id
    except OSError:
        configured = None
    stops = configured if isinstance(configured, list) else [configured]
    return frozenset(stop for stop in (tokenizer.eos_token_id, *stops) if stop is not None)
