"""Rows of training data, pairs or conversations: their files, their names in errors, their tokens in the cache."""

import hashlib
import inspect
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import datasets
from datasets import Dataset, Features, List, Value, concatenate_datasets
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

from notewriter.artifacts import run_record
from notewriter.artifacts.parquet import is_parquet, opened, read_arrow, read_rows
from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.models import chat_template
from notewriter.training.inputs import forms, rendering, repositories, tables, written
from notewriter.training.inputs.forms import Row

logger = logging.getLogger(__name__)

MESSAGES = Value("string")
"""The type of a column of messages, which may have any keys: JSON, whose numbers `datasets` would round."""

GIVEN = dict.fromkeys(("tools", "variables"), MESSAGES)
"""The columns of a chat template's arguments beside the messages, of the same type."""

RENDERED = ("messages", "prompt", "chosen", "rejected", *GIVEN)
"""The columns that are kept as JSON."""

SAID = dict.fromkeys(("unread", "remarks"), List(Value("string")))
"""The columns of remarks, which are logged once per file: names of unread columns, and how others were read."""

ENDINGS = {
    ".parquet": "Parquet",
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "JSON"),
    ".csv": ",",
    ".tsv": "\t",
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "Arrow"),
}
"""The ending of a file -> its form; of a table the character between cells."""

IGNORED = -100
"""The label of a token that is not trained."""


def cache() -> Path:
    """The folder where `datasets` keeps the files that it has read, and their tokens."""
    return Path(datasets.config.HF_DATASETS_CACHE)


def find_splits(path: str | Path, option: str, *, dev: bool = False) -> dict[str, Path]:
    """The file of each split: a folder's `train` and `dev` (optional), as .parquet or .jsonl, or one file as `train`.

    Other folders and names on the Hub are read as dataset repositories (`repositories`). `option` is the option to
    change in an error's remedy; with `dev` the run evaluates and needs that split.

    Raises:
        UserError: no such folder, file or repository, a split is missing, or is in several files beside `train`.
    """
    path, name = Path(path), str(path)
    files = {"train": path} if path.is_file() else _of_folder(path, option)
    if "train" not in files:
        if any((path / name).is_file() for name in (run_record.NAME, run_record.ESTIMATE)):
            raise UserError(
                f"{path}: has no train.parquet: the command that writes it has not ended, or was a dry run; run it, "
                f"or give {option} the folder that the data was written to"
            )
        if repositories.parse(name) is None:
            raise UserError(
                f"{path}: no such file or folder; give {option} a Parquet or JSON Lines file, a folder with "
                "train.parquet, or the name of a dataset on the Hugging Face Hub"
            )
        files = repositories.split_files(name, dev)
    if dev and "dev" not in files:
        what = "one file has no rows" if path.is_file() else "has no dev.parquet or dev.jsonl"
        raise UserError(
            f"{path}: {what} to evaluate on; give {option} a folder with train and dev, or give --eval_strategy no"
        )
    return files


def _of_folder(folder: Path, option: str) -> dict[str, Path]:
    """The files `train` and `dev` of a folder that are Parquet or JSON Lines, each the only one of its split.

    Raises:
        UserError: there is a further file of a split, such as train_2.jsonl, or the folder's card names other files.
    """
    files: dict[str, Path] = {}
    for split in ("train", "dev"):
        there = [file for file in sorted(folder.glob(f"{split}*")) if _is_of(file, split)]
        whole = next((file for file in there if file.name in (f"{split}.parquet", f"{split}.jsonl")), None)
        if whole and len(there) > 1:
            names = ", ".join(file.name for file in there)
            raise UserError(
                f"{folder}: has several files of {split}: {names}; join them, move the others elsewhere, or give "
                f"{option} {folder}:train, which reads the folder as `datasets` does"
            )
        if whole and split == "train" and repositories.leaves_out(folder, whole.name):
            raise UserError(
                f"{folder}: its card names other files than {whole.name}; correct the card, or give {option} "
                f"{folder}:train, which reads the folder as `datasets` does, or {whole}"
            )
        if whole:
            files[split] = whole
    return files


def _is_of(file: Path, split: str) -> bool:
    """Whether a file or folder is named as rows of a split; `train_x.json` is not, since it may be settings."""
    if file.is_dir():
        return file.name == split
    rest = _uncompressed(file).stem.removeprefix(split)
    continued = re.match(r"[-._ 0-9]", rest) is not None and _ending(file) != ".json"
    return _ending(file) in ENDINGS and (not rest or continued)


def mixed_files(ratios: Mapping[str, float]) -> dict[str, Path]:
    """The file of rows behind each path or name of `--mix`.

    Raises:
        UserError: no such file, folder or repository.
    """
    return {path: find_splits(path, "mix")["train"] for path in ratios}


def columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns.

    Raises:
        UserError: not a Parquet file, or one without rows.
    """
    with opened(path) as file:
        if file.metadata.num_rows == 0:
            raise UserError(f"{path}: has no rows; stats.json beside it has the reasons")
        return list(file.schema_arrow.names)


def read(path: Path) -> Iterator[Row]:
    """The rows of a file by its ending (`ENDINGS`), with their names in errors as `row`.

    `row` is `line 5`, `item 5` of a list, or `row 4` of Parquet and Arrow, counted from 0 as their tools do; the
    question follows if there is one. The rows have the columns of `forms.USED`; other columns with a value are named in
    `unread`.

    Raises:
        UserError: the file has another form, cannot be read, or has no rows.
    """
    name = None
    for name, row in _rows_of(path):
        question = row.get("question_id")
        told = f"question {question}" if question else "counted from 0" if name.startswith("row") else ""
        yield row | {"row": f"{name} ({told})" if told else name}
    if name is None:
        raise UserError(f"{path}: has no rows; write one per line")


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _ending(path: Path) -> str:
    return _uncompressed(path).suffix.lower()


def _rows_of(path: Path) -> Iterator[tuple[str, Row]]:
    form = ENDINGS.get(_ending(path)) or ("Parquet" if is_parquet(path) else None)
    if form is None:
        raise UserError(
            f"{path}: training reads files that end in {', '.join(ENDINGS)} (texts also in .gz); convert this one, or "
            "rename it if it has one of these forms"
        )
    if form == "Parquet":
        return _of_parquet(path)
    if form == "Arrow":
        rows = enumerate(read_arrow(path))
        return _of_records((f"row {number}", {name: _present(row[name]) for name in row}) for number, row in rows)
    return _of_records(jsonl.records(path) if form == "JSON" else tables.records(path, form))


def _of_records(records: Iterable[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
    for place, record in records:
        unread = [name for name, value in record.items() if name not in forms.USED and forms.filled(value)]
        yield place, {name: record[name] for name in forms.USED if name in record} | {"unread": unread}


def _of_parquet(path: Path) -> Iterator[tuple[str, Row]]:
    names = columns(path)
    used = [name for name in names if name in forms.USED]
    unread = [name for name in names if name not in forms.USED]
    for number, row in enumerate(read_rows(path, columns=used or names[:1])):
        yield f"row {number}", {name: _present(row[name]) for name in used} | {"unread": unread}


def _present(value: Any) -> Any:
    """A value without the keys that Parquet adds to an object where another row's has them.

    A message keeps a null content, which stands beside tool calls.
    """
    if isinstance(value, dict):
        message = value.get("role") is not None
        return {
            key: _present(each) for key, each in value.items() if each is not None or (message and key == "content")
        }
    return [_present(each) for each in value] if isinstance(value, list) else value


def cached(path: Path, made: Callable[[], Iterator[Row]], features: Features, *options: object) -> Dataset:
    """The rows that `made` makes of a file, in the cache: the first process that needs them reads the file, row by row.

    The columns of `RENDERED` are stored as JSON and parsed again on reading. The key of the rows covers the file's
    content, its name (which tells stage and form), the options and the code.

    Raises:
        UserError: as `made`.
    """
    code = [
        inspect.getsource(module) for module in (sys.modules[made.__module__], sys.modules[__name__], forms, tables)
    ]
    key = Hasher.hash([file_digest(path), path.name, options, code])
    try:
        dataset: Dataset = Dataset.from_generator(lambda: map(_kept, made()), features=features, fingerprint=key)
    except DatasetGenerationError as error:
        raise error.__cause__ or error from None
    dataset.set_transform(_values)
    return dataset


def _kept(row: Row) -> Row:
    """A row with its columns of `RENDERED` as JSON."""
    return row | {name: _json(row[name]) for name in RENDERED if row.get(name) is not None}


def _values(kept: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of rows that `_kept` made, with values in place of JSON."""
    there = [name for name in RENDERED if name in kept]
    return kept | {name: [None if text is None else json.loads(text) for text in kept[name]] for name in there}


def _json(value: Any) -> str:
    """A value as JSON.

    Raises:
        UserError: JSON cannot represent the value; names its type.
    """

    def refuse(each: Any) -> None:
        raise UserError(f"holds a {type(each).__name__}; write it as text")

    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=refuse)
    except TypeError as error:
        raise UserError("holds an object whose keys are not texts; write them as texts") from error
    except ValueError as error:
        raise UserError("holds NaN or Infinity, which is no number in JSON; write it as text") from error


def mix(dataset: Dataset, others: Mapping[str, Dataset], ratios: Mapping[str, float], seed: int) -> Dataset:
    """Add rows of other datasets, `ratios` of them per row of `dataset`, drawn without replacement.

    Raises:
        UserError: a ratio is not above 0, or asks for more rows than there are.
    """
    parts = [dataset]
    for path, ratio in ratios.items():
        if not ratio > 0:
            raise UserError(
                f"mix: {path}: {ratio} is not a ratio above 0; give the number of its rows per row of the data"
            )
        wanted, there = round(ratio * len(dataset)), len(others[path])
        if wanted > there:
            raise UserError(
                f"mix: {path}: has {there} rows, and a ratio of {ratio} asks for {wanted}; "
                f"give at most {int(there / len(dataset) * 1000) / 1000}"
            )
        parts.append(others[path].shuffle(seed=seed).select(range(wanted)))
    return concatenate_datasets(parts)


def in_form(path: Path, row: Row, form: Callable[..., Row], *options: object) -> Row:
    """A row in its form (`forms`), with its stage, its question and its name.

    Raises:
        UserError: the row has not this form, or holds what JSON cannot; names file and row.
    """
    try:
        made = form(row, *options)
        made["stage"] = str(made["stage"] or _uncompressed(path).stem)
        _json(made).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise UserError(
            f"{path}: {row['row']}: has half of a character, the unpaired surrogate \\u{ord(half):04x}; fix or remove "
            "the row"
        ) from error
    except UserError as error:
        raise UserError(f"{path}: {row['row']}: {error}; fix or remove the row") from error
    return made | {"question_id": str(row.get("question_id") or ""), "row": row["row"]}


def say(file: str, dataset: Dataset) -> None:
    """Log once which columns of a file are not read, and which are read otherwise than their names suggest."""
    if unread := _all(dataset["unread"]):
        what = f"{len(unread)} columns are" if len(unread) > 1 else "1 column is"
        more = f" and {len(unread) - forms.SHOWN} more" if len(unread) > forms.SHOWN else ""
        logger.info("%s: %s not read: %s%s", file, what, ", ".join(unread[: forms.SHOWN]), more)
    for remark in _all(dataset["remarks"]):
        logger.info("%s: %s", file, remark)


def _all(lists: Iterable[Sequence[str]]) -> list[str]:
    return sorted({each for values in lists for each in values})


def cache_key(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, stops: frozenset[int], module: ModuleType) -> str:
    """The key of a tokenised dataset in the cache: its rows, the tokenizer with its chat template, and the code.

    The default of `Dataset.map`, a hash of the function that it runs, misses the functions that this one calls, and
    so would reuse the tokens of an older version of `module`.
    """
    code = [inspect.getsource(each) for each in (module, rendering, chat_template, written)]
    return str(Hasher.hash([dataset._fingerprint, tokenizer, sorted(stops), code]))


def within_length(dataset: Dataset, max_length: int | None, path: Path, drop: bool) -> tuple[Dataset, int]:
    """The rows of at most `max_length` tokens, and the number of longer ones.

    The trainer would silently cut the end of a longer row, which is its completion.

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
        longest = "; ".join(
            f"{row['row']}: stage {row['stage']}, {row['length']} tokens" for row in dataset.select(too_long[:5])
        )
        more = f"; and {len(too_long) - 5} more" if len(too_long) > 5 else ""
        raise UserError(
            f"{path}: {len(too_long)} of {len(dataset)} rows are longer than max_length {max_length} and their "
            f"completions would be cut: {longest}{more}. Give --max_length {max(lengths)} or more, "
            "or --drop_long_rows true to train without them"
        )
    kept = dataset.select([row for row, length in enumerate(lengths) if length <= max_length])
    if len(kept) == 0:
        raise UserError(f"{path}: every row is longer than max_length {max_length}; give --max_length {max(lengths)}")
    return kept, len(too_long)


def count_by_stage(dataset: Dataset) -> dict[str, int]:
    """The number of rows of each stage."""
    return dict(sorted(Counter(dataset["stage"]).items()))


def sha256(paths: Iterable[Path]) -> str:
    """One hash over the contents of files, in hexadecimal."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(bytes.fromhex(file_digest(path)))
    return digest.hexdigest()
