"""Preference pairs from disk, checked row by row before any training time is spent on them."""

import hashlib
import inspect
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
import jinja2
import pyarrow
import pyarrow.parquet
from datasets import Dataset
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

from notewriter.artifacts.pairs import REQUIRED, SIDES
from notewriter.errors import UserError
from notewriter.models import chat_template
from training import chat_templates

# What training reads; every other column of the file stays on disk.
COLUMNS = list(REQUIRED)


def cache() -> Path:
    """Where `datasets` keeps what it has read, and the tokens made of it."""
    return Path(datasets.config.HF_DATASETS_CACHE)


def find(path: str | Path, option: str = "--pairs") -> dict[str, Path]:
    """The Parquet file of each split: a folder's `train.parquet` and `dev.parquet` (optional), or one file as `train`.

    `option` is what an error tells the user to change.

    Raises:
        UserError: there is no such folder or file, or the folder has no `train.parquet`.
    """
    path = Path(path)
    if path.is_file():
        return {"train": path}
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder; give {option} a Parquet file or a folder with train.parquet")
    files = {split: path / f"{split}.parquet" for split in ("train", "dev")}
    if not files["train"].is_file():
        raise UserError(f"{path}: holds no train.parquet; give {option} the folder that the data was written to")
    return {split: file for split, file in files.items() if file.is_file()}


def read(path: Path) -> Dataset:
    """One Parquet file of pairs in TRL's conversational preference format, columns `COLUMNS`.

    `prompt` is a list of messages that ends with the user's; `chosen` and `rejected` are one assistant message each.

    Raises:
        UserError: not a Parquet file, a column is missing, no rows, or a row that is no pair; names file and row.
    """
    names = columns(path)
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise UserError(f"{path}: lacks the column(s) {', '.join(missing)}; pairs have {', '.join(COLUMNS)}")
    dataset = Dataset.from_parquet(str(path), columns=COLUMNS)
    for row, pair in enumerate(dataset):
        fault = _fault(pair)
        if fault:
            raise UserError(f"{path}: {place(pair | {'row': row})}: {fault}; mend or remove the row")
    return dataset


def place(row: Mapping[str, Any]) -> str:
    """How an error names a row of a file: its number, from 0, and its question where it has one."""
    question = row.get("question_id")
    return f"row {row['row']}" + (f" (question {question})" if question else "")


def columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns.

    Raises:
        UserError: not a Parquet file, or one without rows.
    """
    try:
        metadata = pyarrow.parquet.read_metadata(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path}: is not a readable Parquet file ({one_line(error)}); write it again") from error
    if metadata.num_rows == 0:
        raise UserError(f"{path}: holds no rows; see stats.json beside it for why each one was dropped")
    return list(metadata.schema.to_arrow_schema().names)


def messages_fault(column: str, messages: Any) -> str | None:
    """What keeps a value from being a list of messages with a role and a content each, if anything does."""
    if not isinstance(messages, list) or not messages:
        return f"{column} is not a list of messages"
    for message in messages:
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            return f"{column} has a message without a role and a content"
    return None


def _fault(pair: Mapping[str, Any]) -> str | None:
    """What keeps a row from being a pair, if anything does."""
    for column in ("prompt", "chosen", "rejected"):
        if fault := messages_fault(column, pair[column]):
            return fault
    if pair["prompt"][-1]["role"] != "user":
        return f"prompt ends with a message of the {pair['prompt'][-1]['role']}, not of the user"
    for column in SIDES:
        if [message["role"] for message in pair[column]] != ["assistant"]:
            return f"{column} is not one message of the assistant"
    return None


def measure(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    stops: frozenset[int],
    path: Path,
    processes: int | None = None,
) -> Dataset:
    """Add a pair's tokens under the model's chat template, as they will be trained.

    `row`, its place in the file; `prompt_ids` with the opening of the assistant's turn, `chosen_ids` and
    `rejected_ids` after it, with what ends the turn where the template leaves it open (`chat_templates.end_of_turn`;
    `stops` are the tokens at which a server stops); `length`, tokens of prompt and longer completion; and
    `diverging`, empty where the prompt begins both sides, else what differs.

    Raises:
        UserError: the template refuses a row (some know no system role); names file and row.
    """

    def tokens(pairs: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        prompts = pairs["prompt"]
        try:
            ending = chat_templates.end_of_turn(tokenizer, stops)
            prompt_ids = chat_templates.render(prompts, tokenizer, generate=True)
            whole_ids = {
                side: chat_templates.render(
                    [prompt + completion for prompt, completion in zip(prompts, pairs[side], strict=True)], tokenizer
                )
                for side in SIDES
            }
        except jinja2.TemplateError as error:
            if len(rows) > 1:
                # One by one, the row that is refused names itself.
                for number, row in enumerate(rows):
                    tokens({name: values[number : number + 1] for name, values in pairs.items()}, [row])
            reason = one_line(error)
            raise UserError(f"{path}: row {rows[0]}: the model's chat template refuses it ({reason})") from error
        columns: dict[str, list[Any]] = {"row": rows, "prompt_ids": prompt_ids, "diverging": [""] * len(rows)}
        for side, whole in whole_ids.items():
            both = list(zip(prompt_ids, whole, strict=True))
            completions = [ids[len(prompt) :] for prompt, ids in both]
            columns[f"{side}_ids"] = [
                [*ids, ending] if ending is not None and stops.isdisjoint(ids) else ids for ids in completions
            ]
            columns["diverging"] = [
                earlier or _difference(prompt, ids, side, tokenizer)
                for earlier, (prompt, ids) in zip(columns["diverging"], both, strict=True)
            ]
        columns["length"] = [
            len(prompt) + max(len(chosen), len(rejected))
            for prompt, chosen, rejected in zip(prompt_ids, columns["chosen_ids"], columns["rejected_ids"], strict=True)
        ]
        return columns

    return dataset.map(
        tokens,
        with_indices=True,
        batched=True,
        batch_size=64,
        num_proc=processes,
        new_fingerprint=fingerprint(dataset, tokenizer, stops, sys.modules[__name__]),
        desc=f"Tokenising {path.name}",
    )


def fingerprint(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], module: ModuleType) -> str:
    """The key of a tokenised dataset in the cache: its rows, the tokenizer with its chat template, and the code.

    By itself `map` would hash the function that it is given, which leaves out those that this one calls: of another
    version of the code in `module`, the tokens would be read from the cache.
    """
    code = [inspect.getsource(each) for each in (module, chat_templates, chat_template)]
    return str(Hasher.hash([dataset._fingerprint, tokenizer, sorted(stops), code]))


def _difference(prompt: list[int], ids: list[int], side: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """Where a pair's side does not begin with its prompt, what is there instead; empty where it does."""
    if ids[: len(prompt)] == prompt:
        return ""
    parting = chat_templates.parting(ids, prompt)
    served, trained = (tokenizer.decode(part[parting : parting + 8]) for part in (prompt, ids))
    return f"a server shows {served!r} where the chat template has {trained!r} before {side}"


def fit(dataset: Dataset, max_length: int | None, path: Path, drop: bool) -> tuple[Dataset, int]:
    """Rows that `max_length` tokens hold whole, and the number of those it does not.

    The trainer would cut the end of a longer row, which is its completion, without a word.

    Raises:
        UserError: rows are longer and `drop` is false (names them and the length they need), or none is left.
    """
    if max_length is None:
        return dataset, 0
    lengths = dataset["length"]
    too_long = [row for row, length in enumerate(lengths) if length > max_length]
    if not too_long:
        return dataset, 0
    if not drop:
        named = "; ".join(
            f"{place(row)}: stage {row['stage']}, {row['length']} tokens" for row in dataset.select(too_long[:5])
        )
        more = f"; and {len(too_long) - 5} more" if len(too_long) > 5 else ""
        raise UserError(
            f"{path}: {len(too_long)} of {len(dataset)} rows are longer than max_length {max_length} and their "
            f"completions would be cut: {named}{more}. Give --max_length {max(lengths)} or more, "
            "or --drop_long_rows true to train without them"
        )
    kept = dataset.select([row for row, length in enumerate(lengths) if length <= max_length])
    if len(kept) == 0:
        raise UserError(f"{path}: every row is longer than max_length {max_length}; give --max_length {max(lengths)}")
    return kept, len(too_long)


def stages(dataset: Dataset) -> dict[str, int]:
    """Number of rows of each stage."""
    return dict(sorted(Counter(dataset["stage"]).items()))


def sha256(paths: list[Path]) -> str:
    """One hash over the contents of files, in hexadecimal."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def one_line(error: BaseException) -> str:
    """An error's text without its line breaks."""
    return " ".join(str(error).split())
