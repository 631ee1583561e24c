"""Chat templates in the manner of each family of models, over a tokenizer in which a word is a token."""

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

# What opens a turn, what ends it, what stands around it.
TEMPLATES = {
    "chatml": "{% for m in messages %}<im_start> {{ m.role }} {{ m.content }} <im_end> {% endfor %}"
    "{% if add_generation_prompt %}<im_start> assistant {% endif %}",
    "llama3": "<bos> {% for m in messages %}<header> {{ m.role }} {{ m.content | trim }} <eot> {% endfor %}"
    "{% if add_generation_prompt %}<header> assistant {% endif %}",
    "mistral": "<bos> {% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }} </s> "
    "{% else %}[INST] {{ m.content }} [/INST] {% endif %}{% endfor %}",
    "glm4": "[gMASK] {% for m in messages %}<|{{ m.role }}|> {{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}",
}
STOPS = {"chatml": ["<im_end>"], "llama3": ["<eot>"], "mistral": ["</s>"], "glm4": ["<|user|>", "<|endoftext|>"]}


def tokenizer_of(template: str, stops: list[str]) -> tuple[PreTrainedTokenizerBase, frozenset[int]]:
    """A tokenizer in which a word is a token, and the ids of `stops`; the last of them is its end of sequence."""
    words = "the town whose museum a river clocks ago mayor system user assistant <bos> <pad> <think> thought </think>"
    words += " <im_start> <im_end> <header> <eot> [INST] [/INST] </s> [gMASK] <|system|> <|user|> <|assistant|>"
    words += " <|endoftext|>"
    vocabulary = {word: number for number, word in enumerate(words.split())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=stops[-1], pad_token="<pad>")
    wrapped.chat_template = template
    return wrapped, frozenset(vocabulary[stop] for stop in stops)
