"""What would go wrong in training without a word, found before the first step; lengths and a preview to look at."""

import asyncio
import operator
import statistics
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import openai
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from notewriter.errors import UserError
from notewriter.models.connection import UnreadableReply, connect, reason
from training.chat_templates import opening_remedy, parting
from training.conversations import IGNORED
from training.pairs import place

SHOWN = 5
"""So many faults are named in an error, and the rest counted."""

BLOCKS = " ▁▂▃▄▅▆▇█"
TRAINED, MASKED, RESET = "\x1b[30;42m", "\x1b[2m", "\x1b[0m"
TRAINED_MARKS = ("⟦", "⟧")
"""Around what is trained where the output is no terminal and has no colours."""

Conversation = tuple[str, Sequence[Mapping[str, str]], bool, Sequence[int]]
"""What to call it in an error, the messages, whether the model is to write next, and the token ids of training."""

Sample = Mapping[str, Any]
"""`input_ids` and `labels`, with `stage`, `question_id`, `row`, and `side` where a pair has two."""


def pair_samples(pair: Mapping[str, Any]) -> list[Sample]:
    """The two sides of a tokenised pair as they are trained: what follows the prompt is, the prompt is not."""
    prompt = pair["prompt_ids"]
    return [
        {
            "input_ids": prompt + pair[f"{side}_ids"],
            "labels": [IGNORED] * len(prompt) + pair[f"{side}_ids"],
            "stage": pair["stage"],
            "question_id": pair["question_id"],
            "side": side,
        }
        for side in ("chosen", "rejected")
    ]


def check_pairs(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], file: str) -> None:
    """Check pairs with the columns that `pairs.measure` adds.

    Raises:
        UserError: as `check`, and a pair whose sides are the same, or whose prompt does not begin both of them.
    """
    faults: list[tuple[Sample, str]] = []
    for pair in dataset:
        if pair["diverging"]:
            remedy = opening_remedy(tokenizer) or (
                "take white space off the answer's beginning, or use a chat template that leaves a prompt as it is"
            )
            faults.append((pair, f"its prompt does not begin both sides: {pair['diverging']}; {remedy}"))
        elif pair["chosen_ids"] == pair["rejected_ids"]:
            faults.append((pair, "chosen and rejected are the same tokens; remove the row"))
        else:
            for sample in pair_samples(pair):
                if fault := sample_fault(sample, tokenizer, stops):
                    faults.append((pair, f"{sample['side']}: {fault}"))
    _raise(faults, len(dataset), file)


def check(samples: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], file: str) -> None:
    """Check conversations with the columns `input_ids` and `labels`.

    Raises:
        UserError: a row in which nothing is trained, the token that ends a turn is not trained or stands in the
            middle, the beginning of the sequence is doubled, or padding is a trained token; names `file`, row,
            question and remedy.
    """
    found = ((sample, sample_fault(sample, tokenizer, stops)) for sample in samples)
    _raise([(sample, fault) for sample, fault in found if fault], len(samples), file)


def _raise(faults: Sequence[tuple[Sample, str]], rows: int, file: str) -> None:
    if not faults:
        return
    named = "; ".join(f"{place(sample)}: {fault}" for sample, fault in faults[:SHOWN])
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    raise UserError(f"{file}: {len(faults)} fault(s) in {rows} rows: {named}{more}")


def sample_fault(sample: Sample, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> str | None:
    """What would be trained wrongly in a row, and the remedy; None where nothing is."""
    ids, labels = sample["input_ids"], sample["labels"]
    runs = trained_runs(labels)
    if not runs:
        return "no token of it is trained (an all-zero mask); remove the row"
    if tokenizer.bos_token_id is not None and ids[:2] == [tokenizer.bos_token_id] * 2:
        return (
            f"it begins with two {tokenizer.bos_token}; take it out of the messages, or out of the chat template where "
            "it stands twice"
        )
    for start, end in runs:
        run = labels[start:end]
        if tokenizer.pad_token_id in run:
            return (
                f"padding, {tokenizer.pad_token}, is a token that is trained; name another token as pad_token in "
                "the model's tokenizer_config.json"
            )
        stopping = [number for number, token in enumerate(run) if token in stops]
        if not stopping or tokenizer.decode(run[stopping[-1] + 1 :]).strip():
            ends = tokenizer.decode(run[-3:])
            known = ", ".join(tokenizer.convert_ids_to_tokens(sorted(stops))) or "none"
            return (
                f"what is trained ends in {ends!r} without a token that ends a turn ({known}), so the model would "
                "never learn to stop; use a chat template that closes the assistant's turn, or name its token in "
                "eos_token_id of the model's generation_config.json"
            )
        if tokenizer.decode([token for token in run[stopping[0] :] if token not in stops]).strip():
            return (
                f"{tokenizer.decode(run[stopping[0]])} ends a turn in the middle of what is trained, where a server "
                "would stop; take it out of the assistant's words, or remove the row"
            )
    return None


def trained_runs(labels: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the past-the-end place of each stretch of trained tokens."""
    runs = []
    start = 0
    for trained, group in groupby(labels, lambda label: label != IGNORED):
        end = start + len(list(group))
        if trained:
            runs.append((start, end))
        start = end
    return runs


def choose_padding(tokenizer: PreTrainedTokenizerBase, trained: Iterable[int]) -> None:
    """Give a tokenizer without padding, or with one that is trained, another of its special tokens for it.

    Left to itself the trainer pads with the end of sequence. Of tokens that are neither trained nor in the chat
    template, one with `pad` in its name is taken first; where there is none, padding stays as it is.
    """
    trained = set(trained)
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id not in trained:
        return
    free = [
        token.content
        for number, token in sorted(tokenizer.added_tokens_decoder.items())
        if token.special and number not in trained and token.content not in (tokenizer.chat_template or "")
    ]
    if free:
        tokenizer.pad_token = next((token for token in free if "pad" in token.lower()), free[0])


def prepare(datasets: Mapping[str, Dataset], tokenizer: PreTrainedTokenizerBase, stops: frozenset[int]) -> None:
    """Choose padding and check the tokenised pairs or conversations of every file.

    Raises:
        UserError: as `check` and `check_pairs`.
    """
    paired = all("chosen_ids" in dataset.column_names for dataset in datasets.values())
    columns = ("chosen_ids", "rejected_ids") if paired else ("labels",)
    trained = {token for dataset in datasets.values() for name in columns for row in dataset[name] for token in row}
    choose_padding(tokenizer, trained - {IGNORED})
    for file, dataset in datasets.items():
        (check_pairs if paired else check)(dataset, tokenizer, stops, file)


def overview(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, colour: bool, rows: int = 1) -> str:
    """Lengths by stage, and a preview of the first rows of each stage."""
    lengths: dict[str, list[int]] = {}
    shown: list[Sample] = []
    for row, (stage, length) in enumerate(zip(dataset["stage"], dataset["length"], strict=True)):
        lengths.setdefault(stage, []).append(length)
        if len(lengths[stage]) <= rows:
            sample = dataset[row]
            shown += pair_samples(sample) if "chosen_ids" in sample else [sample]
    return lengths_by_stage(lengths) + "".join(preview(sample, tokenizer, colour) for sample in shown)


def lengths_by_stage(lengths: Mapping[str, Sequence[int]], bars: int = 24) -> str:
    """A line a stage: rows, the spread of their lengths in tokens, and a histogram from 0 to the longest of all."""
    longest = max(max(values) for values in lengths.values())
    width = max(len("stage"), *(len(plain(stage)) for stage in lengths))
    lines = [f"{'stage':{width}}  {'rows':>7} {'min':>6} {'median':>6} {'95%':>6} {'max':>6}  0 to {longest} tokens"]
    for stage, values in sorted(lengths.items()):
        ordered = sorted(values)
        counts = [0] * bars
        for value in ordered:
            counts[min(value * bars // (longest + 1), bars - 1)] += 1
        # A bar that is not empty shows as at least the lowest block.
        histogram = "".join(BLOCKS[-(-count * (len(BLOCKS) - 1) // max(counts))] for count in counts)
        lines.append(
            f"{plain(stage):{width}}  {len(ordered):>7} {ordered[0]:>6} {statistics.median_low(ordered):>6} "
            f"{ordered[int(0.95 * (len(ordered) - 1))]:>6} {ordered[-1]:>6}  {histogram}"
        )
    return "\n".join(lines) + "\n"


def preview(sample: Sample, tokenizer: PreTrainedTokenizerBase, colour: bool, context: int = 60) -> str:
    """A row as text, with what is trained marked; of longer masked stretches only the two ends are shown.

    With `colour`, trained text has a green ground and the rest is dim. Control characters of the text are written out,
    so that it can do nothing to a terminal.
    """
    ids, labels = sample["input_ids"], sample["labels"]
    trained = sum(label != IGNORED for label in labels)
    side = f", {sample['side']}" if "side" in sample else ""
    title = f"{sample['stage']}, question {sample['question_id']}{side}"
    parts = [f"--- {plain(title)}: {trained} of {len(ids)} tokens are trained\n"]
    shown = 0
    for start, end in [*trained_runs(labels), (len(ids), len(ids))]:
        masked = ids[shown:start]
        if len(masked) > 2 * context:
            left_out = len(masked) - 2 * context
            text = f"{_text(masked[:context], tokenizer)} [... {left_out} tokens ...] "
            text += _text(masked[-context:], tokenizer)
        else:
            text = _text(masked, tokenizer)
        parts.append(f"{MASKED}{text}{RESET}" if colour and text else text)
        if end > start:
            opening, closing = (TRAINED, RESET) if colour else TRAINED_MARKS
            parts.append(f"{opening}{_text(ids[start:end], tokenizer)}{closing}")
        shown = end
    return "".join(parts) + "\n"


def _text(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    return plain(tokenizer.decode(ids), keep="\n")


def plain(text: str, keep: str = "") -> str:
    """A text in which no character has an effect: control and format characters are written as escapes."""
    return "".join(
        character
        if character in keep or unicodedata.category(character)[0] != "C"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def check_server(
    base_url: str,
    model: str,
    conversations: Sequence[Conversation],
    settings: Mapping[str, Any] | None = None,
    timeout: float = 60,
) -> None:
    """Ask a vLLM server's `/tokenize` for conversations, and compare its token ids with training's.

    `settings` are variables of the chat template (`chat_template_kwargs`).

    Raises:
        UserError: the server is not reached, has no `/tokenize`, or has other token ids; shows where they part.
    """
    url = base_url.rstrip("/").removesuffix("/v1") + "/tokenize"
    served_ids = asyncio.run(_tokenized(url, model, conversations, settings or {}, timeout))
    for (name, _, _, ids), served in zip(conversations, served_ids, strict=True):
        if served != list(ids):
            at = parting(served, ids)
            raise UserError(
                f"{name}: the server at {base_url} has other tokens than training: from token {at} on "
                f"{served[at : at + 8]} against {list(ids[at : at + 8])}; serve the model with the tokenizer and the "
                "chat template of the folder that is trained"
            )


async def _tokenized(
    url: str, model: str, conversations: Sequence[Conversation], settings: Mapping[str, Any], timeout: float
) -> list[list[int]]:
    """What a server's `/tokenize` makes of each conversation."""
    root, _, path = url.rpartition("/")
    tokens = []
    async with connect(root, timeout) as server:
        for name, messages, generate, _ in conversations:
            body = {"model": model, "messages": list(messages), "add_generation_prompt": generate}
            body |= {"chat_template_kwargs": settings} if settings else {}
            try:
                reply: Any = await server.post(path, body=body, cast_to=object)
                tokens.append([operator.index(token) for token in reply["tokens"]])
            except openai.APIStatusError as error:
                raise UserError(
                    f"{url}: refused {name} ({error.status_code}: {reason(error)}); check --base_url and --model"
                ) from error
            except (openai.APIError, UnreadableReply, KeyError, TypeError) as error:
                raise UserError(
                    f"{url}: gave no token ids ({reason(error)}); give the --base_url of a vLLM server"
                ) from error
    return tokens
