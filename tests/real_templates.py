"""Chat templates as models ship them, over a small tokenizer that has each family's special tokens.

They are those that TRL ships, and those of `chat_templates/` whose licences allow a copy.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import trl
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from notewriter.training.inputs import rendering

COPIES = Path(__file__).with_name("chat_templates")
SHIPPED = Path(trl.__file__).with_name("chat_templates")

CORPUS = [
    "Whose museum is it?\n\nThe river's. <think>\n\n</think>\n\n When? Years ago, \n said the mayor.\n",
    "You write notes.\n\n Today Date: 26 Jul 2024\n\nKnowledge Cutoff Date: June 2025\n\n",
] * 4

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3, Qwen and most since divide a text before its bytes are paired: line breaks stay together."""


@dataclass(frozen=True)
class Family:
    """A model's template, the special tokens of its tokenizer, and the tokens at which a server stops.

    `stops` are those of the model's generation_config.json; the first is the tokenizer's end of sequence. `settings`
    are variables of the template, `edit` what a user has written in place of a part of it.
    """

    template: str
    special: str
    stops: str
    bos: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    edit: tuple[str, str] = ("", "")
    metaspace: bool = False


CHATML = "<|endoftext|> <|im_start|> <|im_end|>"
SMOLLM3 = ("smollm3", f"{CHATML} <think> </think>", "<|im_end|>")
QWEN = (f"{CHATML} <think> </think>", "<|im_end|> <|endoftext|>")
R1 = (
    "deepseek_r1_distill",
    "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜> <think> </think>",
    "<｜end▁of▁sentence｜>",
    "<｜begin▁of▁sentence｜>",
)
LLAMA = (
    "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eom_id|> <|eot_id|>",
    "<|eot_id|> <|end_of_text|> <|eom_id|>",
    "<|begin_of_text|>",
)
MISTRAL = (
    "mistral_small_3_1",
    "<unk> <s> </s> [INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT]",
    "</s>",
    "<s>",
)
GLM = (
    "<|endoftext|> [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|> <think> </think> /nothink",
    "<|endoftext|> <|user|> <|observation|>",
)
GEMMA = ("<pad> <eos> <bos> <start_of_turn> <end_of_turn>", "<eos> <end_of_turn>", "<bos>")
GEMMA4 = ("<pad> <eos> <bos> <|turn> <turn|> <|channel> <channel|> <|think|>", "<eos> <turn|>", "<bos>")
PHI3 = ("<s> <|endoftext|> <|system|> <|user|> <|assistant|> <|end|>", "<|endoftext|> <|assistant|> <|end|>", "<s>")
GPT_OSS = (
    "gptoss",
    "<|startoftext|> <|endoftext|> <|start|> <|end|> <|message|> <|channel|> <|return|> <|call|>",
    "<|return|> <|endoftext|> <|call|>",
    "<|startoftext|>",
)
OFF = {"enable_thinking": False}
DATE = {"date_string": "26 Jul 2024"}

FAMILIES = {
    "SmolLM2": Family("smollm2", CHATML, "<|im_end|>"),
    "SmolLM3": Family(*SMOLLM3),
    "SmolLM3 on a day": Family(*SMOLLM3, edit=('strftime_now("%d %B %Y")', '"26 July 2024"')),
    "SmolLM3 on a day without thinking": Family(
        *SMOLLM3, edit=('strftime_now("%d %B %Y")', '"26 July 2024"'), settings=OFF
    ),
    "Qwen2.5": Family("qwen2_5", *QWEN),
    "Qwen3": Family("qwen3", *QWEN),
    "Qwen3 without thinking": Family("qwen3", *QWEN, settings=OFF),
    "Qwen3-Instruct-2507": Family("qwen3_instruct_2507", *QWEN),
    "Qwen3.5": Family("qwen3_5_think", *QWEN),
    "Qwen3.5 without thinking": Family("qwen3_5_think", *QWEN, settings=OFF),
    "Qwen3.5-2B": Family("qwen3_5_nothink", *QWEN),
    "Qwen3.8": Family("qwen3_8", *QWEN),
    "Qwen3.8 without thinking": Family("qwen3_8", *QWEN, settings=OFF),
    "DeepSeek-R1-Distill": Family(*R1),
    "DeepSeek-R1-Distill without its opening": Family(*R1, edit=("<｜Assistant｜><think>\\n", "<｜Assistant｜>")),
    "Llama-3": Family("llama3", *LLAMA),
    "Llama-3.1": Family("llama3_1", *LLAMA),
    "Llama-3.2": Family("llama3_2", *LLAMA),
    "Llama-3.2 on a day": Family("llama3_2", *LLAMA, settings=DATE),
    "Mistral-Small-3.1": Family(*MISTRAL),
    "GLM-Z1": Family("glm_z1", *GLM),
    "GLM-Z1 without its opening": Family("glm_z1", *GLM, edit=("<|assistant|>\n<think>", "<|assistant|>")),
    "GLM-4.5": Family("glm4moe", *GLM),
    "GLM-4.5 without thinking": Family("glm4moe", *GLM, settings=OFF),
    "Gemma": Family("gemma", *GEMMA, metaspace=True),
    "Gemma-3": Family("gemma3", *GEMMA, metaspace=True),
    "Gemma-4": Family("gemma4_v5", *GEMMA4, metaspace=True),
    "Phi-3": Family("phi3", *PHI3, metaspace=True),
    "Phi-3.5": Family("phi3_5", *PHI3, metaspace=True),
    "Phi-4": Family("phi4", f"{CHATML} <|im_sep|>", "<|im_end|>"),
    "gpt-oss": Family(*GPT_OSS),
    "gpt-oss on a day": Family(*GPT_OSS, edit=('strftime_now("%Y-%m-%d")', '"2024-07-26"')),
}


def template_of(family: str) -> str:
    """The text of a family's template."""
    name = f"{FAMILIES[family].template}.jinja"
    folder = COPIES if (COPIES / name).is_file() else SHIPPED
    text = (folder / name).read_text(encoding="utf-8")
    before, after = FAMILIES[family].edit
    assert before in text
    return text.replace(before, after) if before else text


@cache
def _trained(special: str, metaspace: bool) -> str:
    """A byte-pair encoder with special tokens; of words with a mark for the space before them, or of bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=metaspace))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        alphabet = [chr(code) for code in range(32, 127)] + ["\n"]
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special.split()])
    return tokenizer.to_str()


def tokenizer_of(family: str) -> tuple[PreTrainedTokenizerBase, frozenset[int]]:
    """A tokenizer with a family's template as it is trained, and the ids of its stops."""
    known = FAMILIES[family]
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_trained(known.special, known.metaspace)),
        eos_token=known.stops.split()[0],
        bos_token=known.bos,
        name_or_path=known.template,
    )
    wrapped.chat_template = template_of(family)
    rendering.set_variables(wrapped, known.settings)
    return wrapped, frozenset(wrapped.convert_tokens_to_ids(known.stops.split()))
