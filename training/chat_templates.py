"""What a chat template makes of messages: token ids as a server has them, and what ends the assistant's turn."""

from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

Message = Mapping[str, str]


def render(
    conversations: Sequence[Sequence[Message]], tokenizer: PreTrainedTokenizerBase, generate: bool = False
) -> list[list[int]]:
    """The token ids of conversations; with `generate`, up to where the model is to write the assistant's next turn.

    A fast tokenizer uses every core for several conversations, and one for each call with one.

    Raises:
        jinja2.TemplateError: the chat template refuses a conversation.
    """
    rendered = tokenizer.apply_chat_template(
        [list(messages) for messages in conversations],
        add_generation_prompt=generate,
        return_dict=True,
        tokenizer_kwargs={"return_attention_mask": False},
    )
    return list(rendered["input_ids"])


def end_of_turn(tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> int | None:
    """The token to add to a last turn that the chat template leaves open; None where the template closes it.

    GLM-4's template closes no turn: what ends one is the role that the next one begins with. So it is the token that
    a turn of the user would begin with, if it is one of `stops`, at which a server stops; else the tokenizer's end of
    sequence, if that is.

    Raises:
        jinja2.TemplateError: the chat template refuses a short conversation.
    """
    question, answer = {"role": "user", "content": "the"}, {"role": "assistant", "content": "town"}
    (ids,) = render([[question, answer]], tokenizer)
    if not tokenizer.decode(ids).rstrip().endswith("town"):
        return None
    (continued,) = render([[question, answer, question]], tokenizer)
    return next((token for token in (*continued[len(ids) :][:1], tokenizer.eos_token_id) if token in stops), None)


def parting(first: Sequence[int], second: Sequence[int]) -> int:
    """The place of the first token in which two sequences differ."""
    shorter = min(len(first), len(second))
    return next((place for place in range(shorter) if first[place] != second[place]), shorter)
