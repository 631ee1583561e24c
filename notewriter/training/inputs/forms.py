"""Rows of training data in the forms in which they are published: each column and key is read, named, or refused.

A row becomes messages, as TRL's trainers take them, with the chat template's other arguments. Columns and keys that are
not read are named in `unread`, and refused if leaving them out would change the training.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from notewriter.artifacts.chains import Conversation
from notewriter.artifacts.pairs import SCORES, SIDES, Pair
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.text import texts_in

Message = Mapping[str, Any]
Row = dict[str, Any]

SYSTEM = ("system", "system_prompt", "system_message")
"""Columns with the text of a system message, which goes before all other messages."""

SCORES_OF_OTHERS = (
    ("score_chosen", "score_rejected"),
    ("chosen_rating", "rejected_rating"),
    ("rating_chosen", "rating_rejected"),
    ("chosen-rating", "rejected-rating"),
)
"""Other programs' names of the scores of the two sides."""

WEIGHTS = ("weight", "loss_weight", "loss_scale", "train", "training", "trainable", "loss")
"""Keys of a message that say whether it is trained: 1 and true, or 0 and false."""

WEIGHTS_OF_ROWS = ("weight", "loss_weight", "sample_weight")
"""Columns of a row with the same meaning."""

NUMBERS = frozenset(("label", *SCORES, *(name for names in SCORES_OF_OTHERS for name in names), *WEIGHTS_OF_ROWS))
"""Columns of numbers or truth values, which a table has as texts."""

NOT_TEXT = ("image", "images", "video", "videos", "audio", "audios")
"""Columns of a row, and keys of a message, for content other than text."""

OTHER_NAMES = {
    "functions": "rename it to tools, a list of their descriptions",
    "kto_tag": "rename it to label",
    "function_call": "write it as tool_calls, a list of calls",
    "history": "put its turns into the prompt, as messages",
    "train_detail": "leave it out, or make each part that is trained a message of its own",
    **dict.fromkeys(
        ("mask", "masks", "masked", "loss_mask", "do_train", "should_train"),
        "write it as the weight of each message, 0 where it is not trained",
    ),
}
"""Columns and keys that set the trained tokens or their context in another form -> the remedy."""

BESIDE = ("input", "context", "contexts", "documents", "docs", "passages", "paragraphs", "ctxs")
"""Columns with the context of a prompt: a text, as in Alpaca and Dolly, or texts or objects of passages."""

CALLED = {
    "prompt": ("instruction", "question", "query", "problem", "input", "trajectory", "post", "context"),
    "completion": ("output", "response", "answer", "solution", "generation", "summary"),
    "messages": ("conversation", "dialogue", "dialog", "turns", "chat", "items"),
    "chosen": ("chosen_response", "response_chosen", "preferred_output", "accepted", "preferred", "win"),
    "rejected": ("rejected_response", "response_rejected", "non_preferred_output", "dispreferred", "lose"),
}
"""A column -> other programs' names for it, which errors suggest to rename."""

OURS = ("prompt", *SIDES, "completion", "messages", "label", "stage", "dataset", "question_id", *SCORES)
OF_OTHERS = ("conversations", "tools", "chat_template_kwargs", *(name for names in SCORES_OF_OTHERS for name in names))
USED = (*OURS, *OF_OTHERS, *SYSTEM, *WEIGHTS_OF_ROWS, *NOT_TEXT, *OTHER_NAMES, *BESIDE)
"""The columns that are read; the others of a file stay on disk."""

PROVENANCE = frozenset((*Pair.__annotations__, *Conversation.__annotations__)) - {"prompt", *SIDES, "messages"}
"""The columns of provenance in our own data."""

ROLES = frozenset(
    ("system", "developer", "user", "assistant", "tool", "function", "ipython", "observation", "environment")
)
"""The speakers, in the words of chat templates."""

ROLES_OF_OTHERS = {"human": "user", "prompter": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant"}

UNTRAINED = "train"
"""The key that marks a message as not trained, with the value False; it is removed before rendering."""

SHOWN = 12
"""Columns that an error lists."""


def pair(row: Row, labelled: bool = False) -> Row:
    """A row as a pair: messages of `prompt`, `chosen` and `rejected`, `tools`, `variables`, the two scores, `unread`.

    `chosen` and `rejected` may be whole conversations, whose common beginning is the prompt; prompt and sides may be
    texts; a dialogue with the marks of its speakers is read as its turns. With `labelled` a row may also have `prompt`,
    `completion` and `label`, as for KTO: it is then a pair with one side None.

    Raises:
        UserError: the row is not a pair, or has something that training cannot use; names it and the remedy.
    """
    used = {"prompt", *SIDES}
    sides: dict[str, list[Row] | None]
    if labelled and row.get("chosen") is None and row.get("completion") is not None:
        used |= {"completion", "label"}
        prompt = _required(row, "prompt")
        good, completion = _label(row), _after(row, "completion")
        sides = {"chosen": completion if good else None, "rejected": None if good else completion}
    else:
        if missing := [side for side in SIDES if row.get(side) is None]:
            raise UserError(f"has no {missing[0]}; {_pairs_have(row, *missing, *_without_prompt(row))}")
        prompt, both = _apart(row)
        sides = {**both}
    prompt = _with_system(row, prompt)
    if prompt[-1]["role"] in ("assistant", "system", "developer"):
        raise UserError(f"prompt ends with a message of the {prompt[-1]['role']}, not of the user")
    for name, side in sides.items():
        column = "completion" if "completion" in used else name
        if side is not None and [message["role"] for message in side] != ["assistant"]:
            raise UserError(f"{column} is not one message of the assistant")
        if side is not None and UNTRAINED in side[0]:
            raise UserError(f"{column} is a message that is not to be trained; remove the row, or its weight")
        _check_words(side or (), column)
    _check_beside(row, prompt, "chosen" if row.get("prompt") is None else "prompt")
    scores, names = _scores(row)
    return (
        {"prompt": _rendered(prompt), **{side: each and _rendered(each) for side, each in sides.items()}}
        | _given(row)
        | scores
        | {"unread": _unread(row, used | set(names)), "stage": row.get("stage")}
        | {"remarks": _remarks(names, scores) + _repeating(prompt, [side for side in sides.values() if side])}
    )


def conversation(row: Row) -> Row:
    """A row as a conversation: `messages`, `trained_from`, `untrained`, `label`, `tools`, `variables`, `unread`.

    It has `messages` (or `conversations`), or `prompt` and `completion`, or `prompt` and `chosen` in any form of
    `pair`. `trained_from` is the index of the first message that may be trained, `untrained` has the indices of
    assistant turns that are not; `label` is false for a bad completion in a row of KTO. `columns` names the column of
    the messages before `trained_from`, and that of the others.

    Raises:
        UserError: the row is not a conversation, or has something that training cannot use; names it and the remedy.
    """
    whole = next((name for name in ("messages", "conversations") if row.get(name) is not None), None)
    label = True
    if whole:
        used, first, last = {whole, "label"}, whole, whole
        label = row.get("label") is None or _label(row)
        messages, trained_from = turns(row[whole], whole, "user"), 0
        if isinstance(row[whole], str) and len(messages) == 1:
            raise UserError(f"{whole} is not a list of messages")
    elif row.get("prompt") is not None and row.get("completion") is not None:
        used, first, last = {"prompt", "completion", "label"}, "prompt", "completion"
        prompt = _required(row, "prompt")
        label = row.get("label") is None or _label(row)
        messages, trained_from = prompt + _after(row, "completion"), len(prompt)
    elif row.get("chosen") is not None and (row.get("prompt") is not None or row.get("rejected") is not None):
        used, last = {"prompt", "chosen", "rejected"}, "chosen"
        first = "chosen" if row.get("prompt") is None else "prompt"
        prompt, sides = _apart(row if row.get("rejected") is not None else {**row, "rejected": row["chosen"]})
        messages, trained_from = prompt + sides["chosen"], len(prompt)
    else:
        remedy = _there(row, "messages", *(name for name in ("prompt", "completion") if row.get(name) is None))
        raise UserError(f"has neither messages, nor prompt and completion, nor prompt and chosen; {remedy}")
    before = len(messages)
    messages = _with_system(row, messages)
    trained_from += (len(messages) - before) if trained_from else 0
    if messages[0]["role"] == "assistant":
        raise UserError("begins with a message of the assistant, which has nothing to answer")
    answers = [n for n, each in enumerate(messages) if each["role"] == "assistant" and n >= trained_from]
    untrained = [number for number in answers if UNTRAINED in messages[number]]
    if not answers or answers == untrained:
        what = "message of the assistant" if not answers else "message of the assistant that is to be trained"
        raise UserError(f"{last} has no {what}, so there is nothing to train")
    prompt, ending = messages[:trained_from], messages[trained_from:]
    if prompt and ((prompt[-1]["role"], ending[0]["role"]) == ("user", "user") or _begins(ending, prompt)):
        raise UserError(f"{last} repeats its prompt; give only the messages after it, or all of them as messages")
    _check_words((messages[number] for number in answers if number not in untrained), last)
    _check_beside(row, messages[: trained_from or -1], first)
    return (
        {"messages": _rendered(messages), "trained_from": trained_from, "untrained": untrained, "label": label}
        | {"columns": [first, last]}
        | _given(row)
        | {"unread": _unread(row, used), "remarks": _repeating(prompt, [ending])}
        | {"stage": row.get("stage") or row.get("dataset")}
    )


WORDS = ("tool_calls", "reasoning_content", "reasoning", "thinking", "thoughts")
"""Keys of a message, beside `content`, with a model's own output."""


def _check_words(trained: Iterable[Row], column: str) -> None:
    """Refuse a trained message that has neither a text nor a call."""
    for message in trained:
        if not any(_has_text(message.get(key)) for key in ("content", *WORDS)):
            raise UserError(f"{column} has an empty message of the assistant; only its end would be trained")


def turns(value: Any, column: str, role: str) -> list[Row]:
    """The messages of a column; a text is one of `role`, or the turns of a dialogue whose speakers are marked.

    Raises:
        UserError: it is neither a text nor messages.
    """
    if isinstance(value, str):
        if _WRITTEN_OUT.match(value):
            raise UserError(f"{column} is a text that lists messages; write them as a list of objects")
        return _dialogue(value) or [{"role": role, "content": value}]
    # One message in place of a list of one, as LLaMA-Factory has the sides of a pair.
    messages = [value] if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        raise UserError(f"{column} is not a list of messages, but {_kind(value)}")
    return [_message(each, column) for each in messages]


def _after(row: Row, column: str) -> list[Row]:
    """The messages of a column after the prompt; the space after a dialogue's last mark is no part of a text."""
    prompt, text = row["prompt"], row[column]
    marked = isinstance(prompt, str) and isinstance(text, str) and _dialogue(prompt)
    return turns(text.strip() if marked else text, column, "assistant")


_WRITTEN_OUT = re.compile(
    r"""\s*(\{\s*["'](messages|conversations)["']\s*:|\[\s*\{\s*["'](role|content|from|value)["']\s*:)"""
)

_SPEAKER = re.compile(r"(?:^|\n\n)(Human|Assistant):")
"""The marks of speakers in the dialogues of HH-RLHF and what follows it."""


def _dialogue(text: str) -> list[Row] | None:
    """The turns of a text that begins with `Human:` and has an `Assistant:`; None for other texts.

    An empty last `Assistant:` is left out, since the model's reply begins there.

    Raises:
        UserError: the speakers do not alternate.
    """
    _, *parts = _SPEAKER.split(text.strip())
    if not text.lstrip().startswith("Human:") or "Assistant" not in parts[::2]:
        return None
    said = [(speaker, words.strip()) for speaker, words in zip(parts[::2], parts[1::2], strict=True)]
    if said[-1] == ("Assistant", ""):
        said.pop()
    for number, (speaker, _) in enumerate(said):
        if speaker != ("Human", "Assistant")[number % 2]:
            raise UserError(
                f"has a dialogue whose turn {number + 1} is marked {speaker}:, as the one before; fix or remove it"
            )
    return [{"role": ROLES_OF_OTHERS.get(each.lower(), "assistant"), "content": words} for each, words in said]


def _message(value: Any, column: str) -> Row:
    """One message whose keys are checked; `UNTRAINED` is in it if it is not to be trained."""
    if not isinstance(value, dict):
        raise UserError(f"{column} has {_kind(value)} in place of a message, an object with role and content")
    # What a column of Parquet lacks in one row is null there.
    message = {key: each for key, each in value.items() if each is not None or key == "content"}
    if "role" not in message and "from" in message:
        message = {_CHATML.get(key, key): each for key, each in message.items()}
    role = message.get("role")
    if not isinstance(role, str):
        raise UserError(f"{column} has a message without a role and a content")
    message["role"] = role = ROLES_OF_OTHERS.get(role, role)
    if role not in ROLES:
        raise UserError(f"{column} has a message of the role {_shown(role)}; the roles are {', '.join(sorted(ROLES))}")
    for key in [*NOT_TEXT, *OTHER_NAMES]:
        if message.get(key):
            raise UserError(f"{column} has a message with {key}; {OTHER_NAMES.get(key, _ONLY_TEXT)}")
    message = {key: each for key, each in message.items() if each not in ([], "") or key == "content"}
    if message.get("tool_calls"):
        message["tool_calls"] = _calls(message["tool_calls"], column)
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = content = _text_of(content, column)
    # An answer of null is refused only where it is trained, like any other empty one.
    nothing = content is None and ((role == "assistant" and "content" in message) or any(map(message.get, WORDS)))
    if not isinstance(content, str) and not nothing:
        raise UserError(f"{column} has a message without a role and a content")
    weights = [(key, _weight(message.pop(key), f"{column}: {key}")) for key in WEIGHTS if key in message]
    if role != "assistant" and any(weight for _, weight in weights):
        key = next(key for key, weight in weights if weight)
        raise UserError(
            f"{column}: {key} of a message of the {role}: only messages of the assistant are trained; remove the key"
        )
    if role == "assistant" and not all(weight for _, weight in weights):
        message[UNTRAINED] = False
    return message


_CHATML = {"from": "role", "value": "content"}
_ONLY_TEXT = "only texts are trained; remove it, or the row"


def _weight(value: Any, name: str) -> bool:
    if value in (0, 1):
        return bool(value)
    raise UserError(
        f"{name} is {_shown(value)}: a weight can only be 0 or 1 (or false and true); repeat or remove rows instead"
    )


def _text_of(parts: list[Any], column: str) -> str:
    """The text of a content that is a list with one part, or with none."""
    if not parts:
        return ""
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type", "text") == "text"]
    if len(parts) != 1 or len(texts) != 1 or not isinstance(texts[0], str):
        raise UserError(
            f"{column} has a message whose content is a list of {len(parts)} part(s); write it as one text "
            "(templates join parts in different ways), and leave out parts that are no text"
        )
    if others := [key for key, value in parts[0].items() if key not in ("type", "text") and filled(value)]:
        raise UserError(f"{column} has a message whose content has {others[0]} beside its text; write the text alone")
    return texts[0]


def _calls(value: Any, column: str) -> list[Any]:
    """Calls of tools with their arguments as objects, as servers pass them to the template."""
    calls = _decoded(value, f"{column}: tool_calls")
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise UserError(f"{column}: tool_calls is not a list of calls, each an object with a function")
    made = []
    for call in calls:
        function = call.get("function", call)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise UserError(f"{column}: tool_calls has a call without a function's name; write its name and arguments")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            arguments = _decoded(arguments or "{}", f"{column}: arguments of {_shown(function['name'])}")
            function = function | {"arguments": arguments}
        if not isinstance(arguments, dict | None):
            raise UserError(
                f"{column}: arguments of {_shown(function['name'])} are {_kind(arguments)}; write them as an object"
            )
        made.append(call | {"function": function} if "function" in call else function)
    return made


def _decoded(value: Any, name: str) -> Any:
    """A value; a text is parsed as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{name} is a text that is not JSON ({one_line(error)}); write it as a list or an object"
        ) from error


def _given(row: Row) -> Row:
    """The chat template's further arguments, `tools` and `variables`; refuses columns that change the training."""
    for name in NOT_TEXT:
        if filled(row.get(name)):
            raise UserError(f"has the column {name}; {_ONLY_TEXT}")
    for name, remedy in OTHER_NAMES.items():
        if filled(row.get(name)):
            raise UserError(f"has the column {name}; {remedy}")
    for name in WEIGHTS_OF_ROWS:
        if row.get(name) is not None and not _weight(row[name], name):
            raise UserError(f"{name} is {_shown(row[name])}: the row is not to be trained; remove it")
    tools = _decoded(row.get("tools") or None, "tools")
    if isinstance(tools, list):
        tools = [_decoded(tool, "tools") for tool in tools]
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise UserError(f"tools is {_kind(tools)}, not a list of their descriptions, each an object")
    variables = _decoded(row.get("chat_template_kwargs") or {}, "chat_template_kwargs")
    if not isinstance(variables, dict):
        raise UserError(f"chat_template_kwargs is {_kind(variables)}, not an object of the template's variables")
    return {
        "tools": tools or None,
        "variables": {name: value for name, value in variables.items() if value is not None} or None,
    }


def _required(row: Row, column: str) -> list[Row]:
    """The messages of the prompt."""
    if row.get(column) is None:
        raise UserError(f"has no {column}; {_there(row, column)}")
    if row[column] == "":
        raise UserError(f"has an empty {column}")
    return turns(row[column], column, "user")


def _check_beside(row: Row, messages: Iterable[Row], column: str) -> None:
    """Check that the model sees the context in other columns: the longest text of each of its passages.

    Raises:
        UserError: it does not; names the column.
    """
    said = "\n".join(str(message.get("content")) for message in messages)
    for name in BESIDE:
        passages = row[name] if isinstance(row.get(name), list) else [row.get(name)]
        if any(max(texts_in(passage), key=len, default="").strip() not in said for passage in passages):
            raise UserError(
                f"has the column {name} beside {column}, which the model would not see; put its text into {column}, or "
                "remove it"
            )


def _apart(row: Row) -> tuple[list[Row], dict[str, list[Row]]]:
    """The prompt of a pair and each side's messages after it; the common beginning of whole conversations."""
    sides = {side: turns(row[side], side, "assistant") for side in SIDES}
    chosen, rejected = sides.values()
    if chosen[0]["role"] == "assistant" or rejected[0]["role"] == "assistant":
        if row.get("prompt") is None:
            raise UserError(f"has no prompt; {_pairs_have(row, 'prompt')}")
        return _required(row, "prompt"), {side: _after(row, side) for side in SIDES}
    shorter = min(len(chosen), len(rejected)) - 1
    place = next((number for number in range(shorter) if chosen[number] != rejected[number]), shorter)
    if place == 0:
        raise UserError("has sides without a common beginning to take as the prompt; add a column prompt")
    if row.get("prompt"):
        prompt = row["prompt"]
        there = (
            prompt.strip() in [str(each["content"]).strip() for each in chosen]
            if isinstance(prompt, str) and _dialogue(prompt) is None
            else _begins(chosen, turns(prompt, "prompt", "user"))
        )
        if not there:
            raise UserError(
                "has a prompt that is not in the conversations chosen and rejected; remove the column prompt, or give "
                "as the sides only the messages after it"
            )
    return chosen[:place], {side: messages[place:] for side, messages in sides.items()}


def _begins(messages: list[Row], prompt: list[Row]) -> bool:
    return messages[: len(prompt)] == prompt


def _with_system(row: Row, messages: list[Row]) -> list[Row]:
    """Messages, with the text of a column `system` as the first one."""
    texts = {name: row[name] for name in SYSTEM if filled(row.get(name))}
    if not texts:
        return messages
    name, text = next(iter(texts.items()))
    if not isinstance(text, str) or len(set(map(str, texts.values()))) > 1:
        raise UserError(
            f"{' and '.join(texts)}: the system message must be one text; give it as a text, in one of these columns"
        )
    if messages[0]["role"] not in ("system", "developer"):
        return [{"role": "system", "content": text}, *messages]
    if messages[0]["content"] != text:
        raise UserError(f"has a system message, and another one in the column {name}; remove one of them")
    return messages


def _label(row: Row) -> bool:
    if row.get("label") is None:
        raise UserError(f"has no label; {_there(row, 'label')}")
    if isinstance(row["label"], bool) or row["label"] in (0, 1):
        return bool(row["label"])
    raise UserError(f"label is {_shown(row['label'])}; write true for a good completion and false for a bad one")


def _scores(row: Row) -> tuple[Row, tuple[str, ...]]:
    """The scores of the two sides, and the columns of others that they are from."""
    for names in (SCORES, *SCORES_OF_OTHERS):
        values = [row.get(name) for name in names]
        numbers = [float(each) for each in values if isinstance(each, int | float) and not isinstance(each, bool)]
        numbers = [each for each in numbers if math.isfinite(each)]
        if len(numbers) == len(values):
            return dict(zip(SCORES, numbers, strict=True)), () if names == SCORES else names
    return dict.fromkeys(SCORES), ()


def _remarks(names: Sequence[str], scores: Row) -> list[str]:
    remarks = [f"{' and '.join(names)} are read as the two scores, for min_margin"] if names else []
    one, other = (scores[name] for name in SCORES)
    if one is not None and one < other:
        remarks.append(
            "rejected has the higher score in some rows; they are trained as labelled, and min_margin drops them"
        )
    return remarks


def _repeating(prompt: Sequence[Row], sides: Iterable[Sequence[Row]]) -> list[str]:
    """A remark for a row whose completions all begin with the text of the prompt."""
    asked = str(prompt[-1]["content"]).strip() if prompt else ""
    if not asked or not all(str(side[0].get("content")).lstrip().startswith(asked) for side in sides):
        return []
    return [
        "completions repeat the text of their prompt in some rows, and the repetition is trained; remove it from them"
    ]


def _unread(row: Row, used: set[str]) -> list[str]:
    """The unused columns that are not empty, without the provenance of our own data."""
    ours = {*used, *PROVENANCE, *SYSTEM, *WEIGHTS_OF_ROWS, "tools", "chat_template_kwargs", "row", "unread"}
    return sorted({*row.get("unread", ()), *(name for name in row if filled(row[name]))} - ours)


def filled(value: Any) -> bool:
    """Whether a value is neither missing nor empty."""
    return value is not None and value not in ("", [], {})


def _has_text(value: Any) -> bool:
    """Whether a value is neither missing nor empty, white space aside."""
    return filled(value.strip() if isinstance(value, str) else value)


def _rendered(messages: Iterable[Row]) -> list[Row]:
    """Messages as the chat template gets them."""
    return [{key: value for key, value in message.items() if key != UNTRAINED} for message in messages]


def _pairs_have(row: Row, *missing: str) -> str:
    return f"pairs have prompt, chosen and rejected, or whole conversations as the two sides; {_there(row, *missing)}"


def _without_prompt(row: Row) -> Iterator[str]:
    if row.get("prompt") is None:
        yield "prompt"


def _there(row: Row, *missing: str) -> str:
    """The columns that a row has, and which to rename."""
    names = sorted(
        {*(name for name in row if name not in ("row", "unread") and filled(row[name])), *row.get("unread", ())}
    )
    if not names:
        return "all its columns are empty"
    listed = ", ".join(map(_shown, names[:SHOWN])) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
    renamed = {name: next((each for each in CALLED.get(name, ()) if each in names), None) for name in missing}
    remedies = " and ".join(f"{other} to {name}" for name, other in renamed.items() if other)
    return f"its columns are {listed}" + (f": rename {remedies}" if remedies else "")


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _kind(value: Any) -> str:
    kinds = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        dict: "an object",
        list: "a list",
    }
    if value == []:
        return "an empty list"
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")
