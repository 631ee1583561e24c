"""Training data in the layout of a dataset repository: by its name on the Hugging Face Hub, or in a folder.

    owner/name
    owner/name@revision:train_prefs,test_prefs
    folder:configuration/train,validation

The Hub's own client fetches the repository into its cache; HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE have their
usual meaning. `datasets` reads it by the configurations of its card: Parquet, JSON Lines, JSON or CSV in any number of
files. Each split becomes a file of the cache, of JSON Lines or Parquet, which from there on is read as any other.
"""

import functools
import logging
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict, cast

import datasets
import huggingface_hub
from accelerate import PartialState
from datasets import Dataset, DatasetBuilder
from datasets.data_files import FILES_TO_IGNORE, DataFilesDict, get_data_patterns
from huggingface_hub.errors import LocalEntryNotFoundError
from yaml import YAMLError

from notewriter.datasets.reading import SHARD
from notewriter.fetching.remote import failures
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError, one_line, writing
from notewriter.ground.text import texts_in
from notewriter.ground.typed import shown
from notewriter.ground.yaml_files import load_yaml
from notewriter.models.checkpoint import is_hub_id
from notewriter.training.inputs import tables

logger = logging.getLogger(__name__)

CARDS = ("README.md", datasets.config.REPOYAML_FILENAME)
"""The files of a repository that `datasets` reads for its configurations."""

FORMS = ("parquet", "json", "csv", "arrow")
"""The forms that are read, by the names that `datasets` gives them; JSON Lines are `json`."""

NAMES = {"json": re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$"), "csv": re.compile(r"\.(csv|tsv)(\.gz)?$")}
"""The names of files that are read here, by their form."""

JSON_READING = {"field": None, "encoding": "utf-8", "encoding_errors": None}
"""A card's options for files of JSON, with their defaults; with other values `datasets` reads the files."""

ROWS = re.compile(r"\.(parquet|jsonl|ndjson|csv|tsv|arrow|feather)(\.gz)?$")
"""The names of files that hold rows and nothing else."""

DEV = ("dev", "validation", "test")
"""Names of a split to evaluate on, in this order."""


class _Splits(TypedDict):
    splits: list[str]


class _File(TypedDict):
    filename: str


class _State(TypedDict):
    _data_files: list[_File]


Reader = Callable[[Path], Iterator[tuple[str, dict[str, Any]]]]
"""A function that yields the rows of a file, each with its place."""


class Repository(NamedTuple):
    """A repository as an option names it: its folder or name, a commit, branch or tag, a configuration and splits."""

    source: str
    revision: str | None
    configuration: str | None
    splits: str | None


def parse(name: str) -> Repository | None:
    """The parts of a repository's name; None for what can be neither a folder nor a name on the Hub."""
    found = re.fullmatch(r"([^@:]+)(?:@([^@:]+))?(?::(?:([^/,:]+)/)?([^/:]+))?", name)
    if found is None or not (Path(found[1]).is_dir() or is_hub_id(found[1])):
        return None
    return Repository(*found.groups())


@functools.cache
def pinned(name: str) -> str:
    """The name of a repository with the commit that it has now; of a folder, and of any other path, the name itself.

    Raises:
        UserError: it is on the Hub, and cannot be fetched.
    """
    named = parse(name)
    if Path(name).exists() or named is None or Path(named.source).is_dir():
        return name
    splits = f":{named.configuration + '/' if named.configuration else ''}{named.splits}" if named.splits else ""
    return f"{named.source}@{_folder(named.source, named.revision).name}{splits}"


@functools.cache
def split_files(name: str, dev: bool) -> dict[str, Path]:
    """The files of a repository's `train` split and, with `dev` or if its name asks for it, of its `dev` split.

    Every machine of a run fetches and converts it once, its first process before the others.

    Raises:
        UserError: it cannot be fetched or read, or has no such split.
    """
    named = cast(Repository, parse(name))
    with PartialState().main_process_first(), writing(datasets.config.HF_DATASETS_CACHE):
        folder = Path(named.source)
        if not folder.is_dir():
            folder = _folder(named.source, named.revision)
        configured, saved = [file for file in CARDS if _check_card(folder / file)], _saved(folder)
        # A Distiset of distilabel has one for each last step of its pipeline.
        apart = [str(file.parent) for file in sorted(folder.glob(f"*/{datasets.config.DATASETDICT_JSON_FILENAME}"))]
        if len(apart) > 1 and not configured:
            raise UserError(f"{name}: has several saved datasets; give one of them: {', '.join(apart)}")
        try:
            source = {"path": "arrow", "data_files": saved} if saved else {"path": str(folder)}
            builder = datasets.load_dataset_builder(**source, name=named.configuration)
            there = [str(split) for split in builder.config.data_files or ()]
        # Each file format has its own errors.
        except Exception as error:
            raise UserError(
                f"{name}: has no train.parquet, and `datasets` cannot read it ({one_line(error)[:300]}); give a "
                "Parquet or JSON Lines file of it, or the folder that the data was written to"
            ) from error
        _check_form(builder, folder)
        wanted = dict(zip(("train", "dev"), (named.splits or "train").split(","), strict=False))
        if dev and "dev" not in wanted:
            wanted["dev"] = next((split for split in DEV if split in there), DEV[0])
        if absent := [split for split in wanted.values() if split not in there]:
            raise UserError(
                f"{name}: has no split {absent[0]}, but {', '.join(there)}; name what to train and to evaluate on as "
                f"{named.source}:SPLIT,SPLIT" + (", or give --eval_strategy no" if dev else "")
            )
        files = {split: _files(builder, split) for split in there}
        _check_whole({split: files[split] for split in wanted.values()})
        if not configured and not saved:
            _check_left_out(folder, wanted.values(), files)
        return {split: _as_file(builder, here, folder, named.source) for split, here in wanted.items()}


def _saved(folder: Path) -> dict[str, list[str]]:
    """The files of each split of a folder that `save_to_disk` wrote; empty for any other folder.

    Files that `map` or an earlier `save_to_disk` left beside them are no part of the dataset.

    Raises:
        UserError: its lists of files are damaged.
    """
    remedy = "save the dataset again"
    if (folder / datasets.config.DATASETDICT_JSON_FILENAME).is_file():
        listed = jsonl.read_object(folder / datasets.config.DATASETDICT_JSON_FILENAME, _Splits, remedy)["splits"]
        places = {split: folder / split for split in listed}
    else:
        places = {"train": folder} if (folder / datasets.config.DATASET_STATE_JSON_FILENAME).is_file() else {}
    states = {
        split: jsonl.read_object(place / datasets.config.DATASET_STATE_JSON_FILENAME, _State, remedy)
        for split, place in places.items()
    }
    return {
        split: [str(places[split] / file["filename"]) for file in state["_data_files"]]
        for split, state in states.items()
    }


def _check_card(card: Path) -> bool:
    """Whether the card of a repository has configurations; its YAML is bounded, and the files in it are its own.

    Raises:
        UserError: its YAML cannot be read, or names an address or a file elsewhere.
    """
    for each in (configurations := _configurations(card)):
        named = {key: each.get(key) for key in ("data_files", "data_dir")} if isinstance(each, dict) else {}
        for key, pattern in ((key, name) for key, value in named.items() for name in texts_in(value)):
            path = PurePosixPath(pattern.replace("\\", "/"))
            if (
                "://" in pattern
                or "::" in pattern
                or path.is_absolute()
                or ".." in path.parts
                or path.parts[:1] == ("~",)
            ):
                raise UserError(
                    f"{card}: configs: {key}: {shown(pattern)} lies outside the repository, and a card may only name "
                    "files of its own repository; copy the file into the folder, or give that file as the data"
                )
    return bool(configurations)


def _configurations(card: Path) -> list[Any]:
    if not card.is_file():
        return []
    try:
        text = card.read_text(encoding="utf-8")
        matter = re.match(r"\s*---\r?\n(.*?)\r?\n---", text, re.DOTALL) if card.suffix == ".md" else None
        metadata = load_yaml((matter[1] if matter else "") if card.suffix == ".md" else text)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise UserError(f"{card}: its YAML cannot be read ({one_line(error)[:300]}); correct or remove it") from error
    found = metadata.get("configs") if isinstance(metadata, dict) else None
    return found if isinstance(found, list) else [found] if found else []


def leaves_out(folder: Path, file: str) -> bool:
    """Whether the card of a folder names the files of its dataset, and this one is none of them.

    Raises:
        UserError: its YAML cannot be read.
    """
    configurations = [each for card in CARDS for each in _configurations(folder / card) if isinstance(each, dict)]
    names = [str(PurePosixPath(name)) for each in configurations for name in texts_in(each.get("data_files"))]
    return bool(names) and not any(fnmatch(file, name.removeprefix("**/")) for name in names)


def _check_form(builder: DatasetBuilder, folder: Path) -> None:
    """Check the files that `datasets` would read: the repository's own, in a form that holds rows and nothing else.

    Raises:
        UserError: a link leads elsewhere, or the form is another one; that of WebDataset may hold pickles.
    """
    form = _form(builder)
    if form not in FORMS:
        raise UserError(
            f"{folder}: is a dataset of the form {form}; training reads {', '.join(FORMS)}: convert it to one of them"
        )
    whole = folder.resolve()
    # In the Hub's cache the files of a commit, snapshots/COMMIT/, are links to blobs/ beside it.
    allowed = [whole, whole.parents[1] / "blobs"] if whole.parent.name == "snapshots" else [whole]
    for file in (str(file) for files in (builder.config.data_files or {}).values() for file in files):
        path = Path(file).resolve()
        if "://" in file or not any(path.is_relative_to(each) for each in allowed):
            raise UserError(f"{file}: leads to {path}, outside {folder}; copy the file into the folder")


def _files(builder: DatasetBuilder, split: str) -> list[Path]:
    return [Path(file) for name, files in (builder.config.data_files or {}).items() if name == split for file in files]


def _check_whole(splits: Mapping[str, list[Path]]) -> None:
    """Check that splits have each file once, and all parts of a file that was divided.

    Raises:
        UserError: a file is in two splits or in one twice, by its name or a card, or a part is not there.
    """
    counts = Counter(file for files in splits.values() for file in files)
    if left := next((file for file in counts if re.fullmatch(r"cache-\w+\.arrow", file.name)), None):
        raise UserError(
            f"{left}: is a cache file that `map` of `datasets` left beside the data; remove it, or give the folder "
            f"{left.parent}"
        )
    for file, count in counts.items():
        if count > 1:
            raise UserError(f"{file}: is {count} times in {' and '.join(splits)}; rename it, or correct the card")
    shards: dict[tuple[Path, str, int], set[int]] = {}
    for file in counts:
        if part := SHARD.match(file.name):
            shards.setdefault((file.parent, part[1], int(part[3])), set()).add(int(part[2]))
    for (folder, name, whole), numbers in shards.items():
        if len(numbers) < whole:
            raise UserError(f"{folder}: has {len(numbers)} of the {whole} parts of {name}; copy or download the others")


def _check_left_out(folder: Path, wanted: Collection[str], read: Mapping[str, list[Path]]) -> None:
    """Check that all files of a wanted split have one form, as `datasets` reads only one; log files of no split.

    Raises:
        UserError: a file of a wanted split would be left out.
    """
    base = folder.resolve().as_posix()
    every = DataFilesDict.from_patterns(get_data_patterns(base), base_path=base)
    for split in wanted:
        left = sorted({Path(file) for file in every.get(split, ())} - set(read[split]))
        if names := [str(file.relative_to(base)) for file in left if ROWS.search(file.name)]:
            raise UserError(
                f"{folder}: {split} has files of several forms, and {shown(names[0])} would be left out; write them in "
                "one form, or move those that are not to be read"
            )
    splits = {Path(file) for files in every.values() for file in files}
    places = [file.relative_to(base) for file in Path(base).rglob("*") if file not in splits and file.is_file()]
    if others := sorted(str(place) for place in places if _may_hold_rows(place)):
        logger.info("%s: not read, since `datasets` finds no split for them: %s", folder, ", ".join(others))


def _may_hold_rows(place: Path) -> bool:
    hidden = any(part.startswith((".", "__")) for part in place.parts)
    return not hidden and place.name not in FILES_TO_IGNORE and bool(ROWS.search(place.name) or place.suffix == ".json")


def _form(builder: DatasetBuilder) -> str:
    return type(builder).__module__.rpartition(".")[2]


@functools.cache
def _folder(source: str, revision: str | None) -> Path:
    """The folder of a repository's commit in the Hub's cache, which is named by the commit."""
    name = f"{source}@{revision}" if revision else source
    remedy = (
        "check the name and the network, or fetch it on a machine with network access and copy its cache (HF_HOME) here"
    )
    with failures(f"hf://datasets/{name}/data", remedy):
        try:
            folder = huggingface_hub.snapshot_download(source, repo_type="dataset", revision=revision)
        except LocalEntryNotFoundError as error:
            raise UserError(
                f"{name}: is neither a file or folder here nor in the Hub's cache, and the Hub cannot be reached; "
                f"{remedy}"
            ) from error
    logger.info("%s: commit %s", source, Path(folder).name)
    return Path(folder)


def _as_file(builder: DatasetBuilder, split: str, folder: Path, source: str) -> Path:
    """A split as one file beside what `datasets` has in its cache; its name is the stage of its rows."""
    parts = _files(builder, split)
    records = _reader(builder, parts, folder)
    file = Path(builder.cache_dir) / f"{Path(source).name}.{split}.{'jsonl' if records else 'parquet'}"
    if not file.is_file():
        unfinished = file.with_name(f"{file.name}.{uuid.uuid4().hex}.partial")
        try:
            if records:
                jsonl.write(unfinished, (record for part in parts for _, record in records(part)))
            else:
                builder.download_and_prepare()
                cast(Dataset, builder.as_dataset(split)).to_parquet(str(unfinished))
            os.replace(unfinished, file)
        except (datasets.exceptions.DatasetsError, ValueError) as error:
            reason = one_line(error.__cause__ or error)[:300]
            raise UserError(f"{folder}: `datasets` cannot read its files ({reason}); fix or remove the file") from error
        finally:
            unfinished.unlink(missing_ok=True)
    return file


def _reader(builder: DatasetBuilder, files: list[Path], folder: Path) -> Reader | None:
    """The reader for files whose texts `datasets` would convert; None for files that `datasets` may read.

    In a JSON column with values of several kinds `datasets` parses texts as JSON, and in CSV it parses cells as values:
    '007' becomes a number, 'None' a null.

    Raises:
        UserError: the card has options for CSV that are not read here, or a file of CSV is compressed otherwise.
    """
    form, config = _form(builder), cast(Any, builder.config)
    named = form in NAMES and all(NAMES[form].search(file.name) for file in files)
    if form == "json" and named and all(getattr(config, name, other) == other for name, other in JSON_READING.items()):
        return jsonl.records
    if form != "csv":
        return None
    settings, usual = (each.pd_read_csv_kwargs for each in (config, type(config)(sep=config.sep)))
    if settings != usual or len(str(config.sep)) != 1 or not named:
        raise UserError(
            f"{folder}: tables of a repository must end in .csv, .tsv, .csv.gz or .tsv.gz, and their card may have no "
            "CSV option but sep, one character; convert them to JSON Lines"
        )
    return partial(tables.records, delimiter=config.sep)
