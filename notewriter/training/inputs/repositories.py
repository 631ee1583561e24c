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
from pathlib import Path, PurePosixPath
from typing import NamedTuple, cast

import datasets
import huggingface_hub
from accelerate import PartialState
from datasets import Dataset, DatasetBuilder
from huggingface_hub.errors import LocalEntryNotFoundError
from yaml import YAMLError

from notewriter.fetching.remote import failures
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError, one_line, writing
from notewriter.ground.text import texts_in
from notewriter.ground.typed import shown
from notewriter.ground.yaml_files import load_yaml
from notewriter.models.checkpoint import is_hub_id

logger = logging.getLogger(__name__)

CARDS = ("README.md", datasets.config.REPOYAML_FILENAME)
"""The files of a repository that `datasets` reads for its configurations."""

FORMS = ("parquet", "json", "csv", "arrow")
"""The forms that are read, by the names that `datasets` gives them; JSON Lines are `json`."""

JSON_NAME = re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$")
"""The names of files of JSON that are read here."""

JSON_READING = {"field": None, "encoding": "utf-8", "encoding_errors": None}
"""A card's options for files of JSON, with their defaults; with other values `datasets` reads the files."""

DEV = ("dev", "validation", "test")
"""Names of a split to evaluate on, in this order."""


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
        for file in CARDS:
            _check_card(folder / file)
        try:
            builder = datasets.load_dataset_builder(str(folder), named.configuration)
            there = [str(split) for split in builder.config.data_files or ()]
        # Each file format has its own errors.
        except Exception as error:
            raise UserError(
                f"{name}: has no train.parquet, and `datasets` cannot read it ({one_line(error)[:300]}); give a "
                "Parquet or JSON Lines file of it, or the folder that the data was written to"
            ) from error
        _check_files(builder, folder)
        wanted = dict(zip(("train", "dev"), (named.splits or "train").split(","), strict=False))
        if dev and "dev" not in wanted:
            wanted["dev"] = next((split for split in DEV if split in there), DEV[0])
        if absent := [split for split in wanted.values() if split not in there]:
            raise UserError(
                f"{name}: has no split {absent[0]}, but {', '.join(there)}; name what to train and to evaluate on as "
                f"{named.source}:SPLIT,SPLIT" + (", or give --eval_strategy no" if dev else "")
            )
        return {split: _as_file(builder, here, folder, named.source) for split, here in wanted.items()}


def _check_card(card: Path) -> None:
    """Check the card of a repository: its YAML is bounded, and the files that it names are the repository's own.

    Raises:
        UserError: its YAML cannot be read, or names an address or a file elsewhere.
    """
    if not card.is_file():
        return
    try:
        text = card.read_text(encoding="utf-8")
        matter = re.match(r"\s*---\r?\n(.*?)\r?\n---", text, re.DOTALL) if card.suffix == ".md" else None
        metadata = load_yaml((matter[1] if matter else "") if card.suffix == ".md" else text)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise UserError(f"{card}: its YAML cannot be read ({one_line(error)[:300]}); correct or remove it") from error
    configurations = metadata.get("configs") if isinstance(metadata, dict) else None
    for each in configurations if isinstance(configurations, list) else [configurations]:
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
                    f"{card}: configs: {key}: {shown(pattern)} lies outside the repository, whose card may only name "
                    "files of its own; copy the file into the folder, or give it itself"
                )


def _check_files(builder: DatasetBuilder, folder: Path) -> None:
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


def _form(builder: DatasetBuilder) -> str:
    return type(builder).__module__.rpartition(".")[2]


@functools.cache
def _folder(source: str, revision: str | None) -> Path:
    """The folder of a repository's commit in the Hub's cache, which is named by the commit."""
    name = f"{source}@{revision}" if revision else source
    remedy = "check the name and the network, or fetch it where there is one and copy the cache (HF_HOME) here"
    with failures(f"hf://datasets/{name}/data", remedy):
        try:
            folder = huggingface_hub.snapshot_download(source, repo_type="dataset", revision=revision)
        except LocalEntryNotFoundError as error:
            raise UserError(
                f"{name}: is no file or folder here nor in the cache of the Hub, which cannot be reached; {remedy}"
            ) from error
    logger.info("%s: commit %s", source, Path(folder).name)
    return Path(folder)


def _as_file(builder: DatasetBuilder, split: str, folder: Path, source: str) -> Path:
    """A split as one file beside what `datasets` has in its cache; its name is the stage of its rows."""
    parts = [Path(file) for name, files in (builder.config.data_files or {}).items() if name == split for file in files]
    lines = _is_plain_json(builder, parts)
    file = Path(builder.cache_dir) / f"{Path(source).name}.{split}.{'jsonl' if lines else 'parquet'}"
    if not file.is_file():
        partial = file.with_name(f"{file.name}.{uuid.uuid4().hex}.partial")
        try:
            if lines:
                jsonl.write(partial, (record for part in parts for _, record in jsonl.records(part)))
            else:
                builder.download_and_prepare()
                cast(Dataset, builder.as_dataset(split)).to_parquet(str(partial))
            os.replace(partial, file)
        except (datasets.exceptions.DatasetsError, ValueError) as error:
            reason = one_line(error.__cause__ or error)[:300]
            raise UserError(f"{folder}: `datasets` cannot read its files ({reason}); fix or remove the file") from error
        finally:
            partial.unlink(missing_ok=True)
    return file


def _is_plain_json(builder: DatasetBuilder, files: list[Path]) -> bool:
    """Whether the files are JSON as it is read here, where a text stays a text.

    `datasets` reads the texts of a column with values of several kinds as JSON: '12' becomes a number.
    """
    other = [getattr(builder.config, name, default) != default for name, default in JSON_READING.items()]
    return _form(builder) == "json" and not any(other) and all(JSON_NAME.search(file.name) for file in files)
