"""Conversations for SFT: from disk to token ids and labels, with the loss on the assistant's turns alone.

The trained tokens are found by rendering the conversation up to each turn, as a server does when the model is about to
write that turn. This works for any chat template, and a template that changes earlier turns is an error.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from datasets import Dataset, Features, Value
from transformers import PreTrainedTokenizerBase
from trl import SFTConfig

from notewriter.ground.errors import UserError, one_line
from notewriter.training.inputs import chat_templates, checks, pairs, rows
from notewriter.training.inputs.chat_templates import Message
from notewriter.training.inputs.rows import IGNORED
from notewriter.training.options import SFTArguments

FEATURES: dict[str, Any] = {
    "messages": rows.MESSAGES,
    **dict.fromkeys(("trained_from", "row"), Value("int64")),
    **dict.fromkeys(("stage", "question_id"), Value("string")),
}


def load(
    files: Mapping[str, Path],
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    training: SFTConfig,
    arguments: SFTArguments,
) -> tuple[dict[str, Dataset], dict[str, int]]:
    """Token ids and labels of each split, mixed and checked, and how many rows were dropped as too long.

    Raises:
        UserError: a row is not a conversation, is too long, or would be trained wrongly.
    """

    def tokens(file: Path, trained: bool) -> Dataset:
        return tokenize(read(file, arguments.split_turns), tokenizer, stops, file, training.dataset_num_proc)

    return checks.load(files, tokens, tokenizer, stops, training, arguments)


def read(path: Path, split_turns: bool = False) -> Dataset:
    """Conversations of a Parquet or JSON Lines file: `messages`, `trained_from`, `stage`, `question_id`, `row`.

    A row has either `messages` (chains; every turn of the assistant is trained), or `prompt` and `completion`, or
    `prompt` and `chosen` (pairs of any format that `pairs.stream` takes); of the last two only what follows the prompt
    is trained. A text in place of messages is one message of the user or the assistant. `trained_from` is the index of
    the first message that may be trained, `row` the place in the file. With `split_turns`, each trained turn becomes a
    row of its own, with what came before it as context.

    Raises:
        UserError: the file cannot be read, or a row is not a conversation; names file and row.
    """

    def made() -> Iterator[dict[str, Any]]:
        for row in _rows(path):
            yield from _turns(row) if split_turns else [row]

    features = Features(**FEATURES)  # type: ignore[no-untyped-call]
    return rows.cached(path, made, features, split_turns, inspect.getsource(pairs))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for read_row in rows.read(path, _COLUMNS):
        row = pairs.with_prompt(read_row)
        if fault := _fault(row):
            raise UserError(f"{path}: {rows.place(row)}: {fault}; fix or remove the row")
        yield _conversation(row, path.stem) | {"row": row["row"]}


_COLUMNS = {"messages", "prompt", "completion", "chosen", "rejected", "stage", "dataset", "question_id"}


def _fault(row: Mapping[str, Any]) -> str | None:
    """Why a row is not a conversation to train on; None if it is one."""
    ending = next((name for name in ("completion", "chosen") if row.get(name) is not None), None)
    if row.get("messages") is None and (row.get("prompt") is None or ending is None):
        return "has neither messages, nor prompt and completion, nor prompt and chosen"
    names = ["messages"] if row.get("messages") is not None else ["prompt", str(ending)]
    for name in names:
        if isinstance(row[name], str) and name != "messages":
            continue
        if fault := rows.messages_fault(name, row[name]):
            return fault
    conversation = _conversation(row, "")
    roles = [message["role"] for message in conversation["messages"]]
    if roles[0] == "assistant":
        return "begins with a message of the assistant, which has nothing to answer"
    if "assistant" not in roles[conversation["trained_from"] :]:
        return f"{names[-1]} has no message of the assistant, so there is nothing to train"
    return None


def _conversation(row: Mapping[str, Any], stage: str) -> dict[str, Any]:
    if row.get("messages") is not None:
        messages, trained_from = rows.messages(row["messages"], "user"), 0
    else:
        prompt = rows.messages(row["prompt"], "user")
        ending = row["completion"] if row.get("completion") is not None else row["chosen"]
        messages, trained_from = prompt + rows.messages(ending, "assistant"), len(prompt)
    return {
        "messages": messages,
        "trained_from": trained_from,
        "stage": str(row.get("stage") or row.get("dataset") or stage),
        "question_id": str(row.get("question_id") or ""),
    }


def _turns(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(row["messages"]):
        if message["role"] == "assistant" and number >= row["trained_from"]:
            yield row | {"messages": row["messages"][: number + 1], "trained_from": number}


def tokenize(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], path: Path, processes: int | None
) -> Dataset:
    """Replace `messages` by `input_ids`, `labels` and `length`, their number.

    Raises:
        UserError: the chat template refuses a row or is not prefix-stable on it; names file and row.
    """

    def ids(conversation: dict[str, Any]) -> dict[str, Any]:
        try:
            labelled = label(conversation["messages"], conversation["trained_from"], tokenizer, stops)
        except (jinja2.TemplateError, UserError) as error:
            reason = "" if isinstance(error, UserError) else "the model's chat template refuses it: "
            raise UserError(f"{path}: {rows.place(conversation)}: {reason}{one_line(error)}") from error
        return labelled | {"length": len(labelled["input_ids"])}

    tokenized: Dataset = dataset.map(
        ids,
        num_proc=processes,
        remove_columns=["messages", "trained_from"],
        new_fingerprint=rows.cache_key(dataset, tokenizer, stops, sys.modules[__name__]),
        desc=f"Tokenising {path.name}",
    )
    return tokenized


def label(
    messages: list[Message], trained_from: int, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]
) -> dict[str, list[int]]:
    """Token ids of a conversation, and labels: of the assistant's turns from `trained_from` on, `IGNORED` elsewhere.

    A turn is trained up to the token that ends it: the first of `stops` in it that no words follow. Where
    the template has none there (GLM-4), it is the marker of the next turn if that is one of `stops`; the last turn
    gets one appended (`chat_templates.end_of_turn`).

    Raises:
        UserError: the template is not prefix-stable: a server renders the conversation's beginning differently.
        jinja2.TemplateError: the template refuses the messages.
    """
    (ids,) = chat_templates.render([messages], tokenizer)
    labels = [IGNORED] * len(ids)
    for number, message in enumerate(messages):
        if message["role"] != "assistant" or number < trained_from:
            continue
        start = _shown(ids, messages[:number], tokenizer, True)
        end = _shown(ids, messages[: number + 1], tokenizer, False, stops, start)
        places = [place for place in range(start, end) if ids[place] in stops]
        if places:
            end = 1 + next((place for place in places if not _words(ids[place:end], tokenizer, stops)), places[-1])
        elif end < len(ids) and ids[end] in stops:
            end += 1
        elif end == len(ids) and (ending := chat_templates.end_of_turn(tokenizer, stops)) is not None:
            ids.append(ending)
            labels.append(IGNORED)
            end += 1
        labels[start:end] = ids[start:end]
    return {"input_ids": ids, "labels": labels}


def _words(ids: list[int], tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> str:
    return str(tokenizer.decode([token for token in ids if token not in stops])).strip()


def _shown(
    ids: list[int],
    messages: list[Message],
    tokenizer: PreTrainedTokenizerBase,
    generate: bool,
    stops: frozenset[int] = frozenset(),
    start: int = 0,
) -> int:
    """How many of `ids` the beginning of a conversation accounts for.

    That is everything it renders to. Where a template closes a conversation differently from how it continues (Phi-3
    appends one more token), it is the common prefix, if one of `stops` has ended the last turn, from `start`, before.
    """
    (prefix,) = chat_templates.render([messages], tokenizer, generate)
    place = chat_templates.parting(ids, prefix)
    if place < len(prefix) and stops.isdisjoint(ids[start:place]):
        served, trained = (tokenizer.decode(part[place : place + 8]) for part in (prefix, ids))
        remedy = chat_templates.opening_remedy(tokenizer) or (
            "give --split_turns true, which trains each turn on what came before it as a server shows it, or use a "
            "template that leaves the assistant's words as they are (templates that strip earlier thoughts do not)"
        )
        raise UserError(
            f"the model's chat template is not prefix-stable: after {len(messages)} message(s) a server shows "
            f"{served!r} where the whole conversation has {trained!r}; {remedy}"
        )
    return place
