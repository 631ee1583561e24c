"""Conversations for SFT: from disk to token ids and labels, with the loss on the assistant's turns alone.

The trained tokens are found by rendering the conversation up to each turn, as a server does when the model is about to
write that turn. This works for any chat template, and a template that changes earlier turns is an error.
"""

import logging
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
from datasets import Dataset, Features, List, Value
from transformers import PreTrainedTokenizerBase
from trl import SFTConfig

from notewriter.ground.errors import UserError, one_line
from notewriter.training.inputs import checks, forms, rendering, rows, written
from notewriter.training.inputs.forms import Message, Row
from notewriter.training.inputs.rows import IGNORED
from notewriter.training.options import SFTArguments

FEATURES: dict[str, Any] = {
    "messages": rows.MESSAGES,
    **rows.GIVEN,
    "trained_from": Value("int64"),
    "untrained": List(Value("int64")),
    "columns": List(Value("string")),
    "label": Value("bool"),
    **dict.fromkeys(("stage", "question_id", "row"), Value("string")),
    **rows.SAID,
}

logger = logging.getLogger(__name__)


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
        dataset = labelled_true(read(file, arguments.split_turns), file)
        return tokenize(dataset, tokenizer, stops, file, training.dataset_num_proc)

    return checks.load(files, tokens, tokenizer, stops, training, arguments)


def read(path: Path, split_turns: bool = False) -> Dataset:
    """Conversations of a file (`forms.conversation`), with `stage`, `question_id` and `row`, its name in errors.

    With `split_turns`, each trained turn becomes a row of its own, with what came before it as context.

    Raises:
        UserError: the file cannot be read, or a row is not a conversation; names file and row.
    """

    def made() -> Iterator[Row]:
        for read_row in rows.read(path):
            row = rows.in_form(path, read_row, forms.conversation)
            yield from _turns(row) if split_turns else [row]

    return rows.cached(path, made, Features(**FEATURES), split_turns)  # type: ignore[no-untyped-call]


def labelled_true(dataset: Dataset, path: Path) -> Dataset:
    """The conversations without rows of KTO whose label is false; the log has their number.

    Raises:
        UserError: none is left.
    """
    kept = [number for number, label in enumerate(dataset["label"]) if label]
    if len(kept) == len(dataset):
        return dataset
    if not kept:
        raise UserError(
            f"{path}: every row has label false, so there is nothing to train; give rows with label true, or train "
            "with `notewriter train kto`"
        )
    logger.info("%s: %d of %d rows have label false and are not trained", path, len(dataset) - len(kept), len(dataset))
    good: Dataset = dataset.select(kept)
    return good


def _turns(row: Row) -> Iterator[Row]:
    for number, message in enumerate(row["messages"]):
        if message["role"] == "assistant" and number >= row["trained_from"] and number not in row["untrained"]:
            yield row | {"messages": row["messages"][: number + 1], "trained_from": number, "untrained": []}


def tokenize(
    dataset: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], path: Path, processes: int | None
) -> Dataset:
    """Replace `messages` by `input_ids`, `labels` and `length`, the number of tokens.

    Raises:
        UserError: the chat template refuses a row or is not prefix-stable on it; names file and row.
    """

    own = written.own_tokens(tokenizer, stops)

    def ids(conversation: Row) -> Row:
        messages, start = conversation["messages"], conversation["trained_from"]
        given, untrained = rendering.given(conversation), conversation.get("untrained", ())
        answers = [n for n, each in enumerate(messages) if each["role"] == "assistant" and n >= start]
        trained = [number for number in answers if number not in untrained]
        try:
            columns = conversation["columns"]
            unread = written.check(messages, trained, given, lambda n: columns[n >= start], tokenizer, own)
            labelled = label(messages, start, tokenizer, stops, untrained, given)
        except (jinja2.TemplateError, UserError) as error:
            reason = "" if isinstance(error, UserError) else "the model's chat template refuses it: "
            raise UserError(f"{path}: {conversation['row']}: {reason}{one_line(error)}") from error
        unread = sorted({*conversation.get("unread", ()), *unread})
        return labelled | {"length": len(labelled["input_ids"]), "unread": unread}

    tokenized: Dataset = dataset.map(
        ids,
        num_proc=processes,
        remove_columns=[name for name in dataset.column_names if name in NOT_TOKENS],
        new_fingerprint=rows.cache_key(dataset, tokenizer, stops, sys.modules[__name__]),
        desc=f"Tokenising {path.name}",
    )
    # From here on only tokens are read, so no JSON is parsed with them.
    tokenized.set_format(None)
    return tokenized


NOT_TOKENS = ("messages", "trained_from", "untrained", "columns", "label", *rows.GIVEN)


def label(
    messages: Sequence[Message],
    trained_from: int,
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    untrained: Collection[int] = (),
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, list[int]]:
    """Token ids of a conversation, and labels: of the assistant's turns from `trained_from` on, `IGNORED` elsewhere.

    Turns whose numbers are in `untrained` are not trained either; `given` are the template's tools and variables.
    A turn is trained up to the token that ends it: the first of `stops` in it that no words follow. Where the template
    closes no turn (GLM-4), the marker of the next turn ends it if that is one of `stops`, and an end is appended to the
    last turn (`rendering.end_of_turn`).

    Raises:
        UserError: the template is not prefix-stable: a server renders the conversation's beginning differently.
        jinja2.TemplateError: the template refuses the messages.
    """
    (ids,) = rendering.render([messages], tokenizer, given=[given])
    labels = [IGNORED] * len(ids)
    for number, message in enumerate(messages):
        if message["role"] != "assistant" or number < trained_from or number in untrained:
            continue
        start = _prefix_length(ids, messages[:number], tokenizer, given, True)
        end = _prefix_length(ids, messages[: number + 1], tokenizer, given, False, stops, start)
        places = [place for place in range(start, end) if ids[place] in stops]
        if places:
            end = 1 + next((place for place in places if not _words(ids[place:end], tokenizer, stops)), places[-1])
        elif end < len(ids) and ids[end] in stops:
            end += 1
        elif end == len(ids) and (ending := rendering.end_of_turn(tokenizer, stops)) is not None:
            ids.append(ending)
            labels.append(IGNORED)
            end += 1
        labels[start:end] = ids[start:end]
    return {"input_ids": ids, "labels": labels}


def _words(ids: list[int], tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> str:
    return str(tokenizer.decode([token for token in ids if token not in stops])).strip()


def _prefix_length(
    ids: list[int],
    messages: Sequence[Message],
    tokenizer: PreTrainedTokenizerBase,
    given: Mapping[str, Any],
    generate: bool,
    stops: frozenset[int] = frozenset(),
    start: int = 0,
) -> int:
    """The length of the prefix of `ids` that the first messages of a conversation render to.

    Where a template closes a conversation differently from how it continues (Phi-3 appends one more token), it is the
    common prefix, provided that the last turn, which begins at `start`, ends in it with one of `stops`.
    """
    (prefix,) = rendering.render([messages], tokenizer, generate, [given])
    place = rendering.parting(ids, prefix)
    if place < len(prefix) and stops.isdisjoint(ids[start:place]):
        served, trained = (tokenizer.decode(part[place : place + 8]) for part in (prefix, ids))
        remedy = rendering.opening_remedy(tokenizer) or (
            "give --split_turns true, which trains each turn on the turns before it as a server shows them; or use a "
            "template that leaves the assistant's earlier turns unchanged (one that strips earlier thoughts does not)"
        )
        raise UserError(
            f"the model's chat template is not prefix-stable: after {len(messages)} message(s) a server renders "
            f"{served!r} where the whole conversation has {trained!r}; {remedy}"
        )
    return place
