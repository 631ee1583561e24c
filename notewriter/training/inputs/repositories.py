"""Training data in the layout of a dataset repository: by its name on the Hugging Face Hub, or in a folder.

    owner/name
    owner/name@revision:train_prefs,test_prefs
    folder:configuration/train,validation

The Hub's own client fetches the repository into its cache (HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE have their
usual meaning), and `datasets` reads it: Parquet, JSON Lines, JSON or CSV, in as many files as there are, by the
configurations of its card. Each split becomes a Parquet file of the cache, which from there on is read as any other.
"""

import functools
import logging
import os
import re
import uuid
from pathlib import Path
from typing import NamedTuple, cast

import datasets
import huggingface_hub
from accelerate import PartialState
from datasets import Dataset, DatasetBuilder
from huggingface_hub.errors import LocalEntryNotFoundError

from notewriter.fetching.remote import failures
from notewriter.ground.errors import UserError, one_line, writing
from notewriter.models.checkpoint import is_hub_id

logger = logging.getLogger(__name__)

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
    """The Parquet files of a repository's `train` split and, with `dev` or where its name says so, of its `dev` split.

    Every machine of a run fetches and converts it once, its first process before the others.

    Raises:
        UserError: it cannot be fetched or read, or has no such split.
    """
    named = cast(Repository, parse(name))
    with PartialState().main_process_first(), writing(datasets.config.HF_DATASETS_CACHE):
        folder = Path(named.source)
        if not folder.is_dir():
            folder = _folder(named.source, named.revision)
        try:
            builder = datasets.load_dataset_builder(str(folder), named.configuration)
            there = [str(split) for split in builder.config.data_files or ()]
        # Each file format has its own errors.
        except Exception as error:
            raise UserError(
                f"{name}: has no train.parquet, and `datasets` cannot read it ({one_line(error)[:300]}); give a "
                "Parquet or JSON Lines file of it, or the folder that the data was written to"
            ) from error
        wanted = dict(zip(("train", "dev"), (named.splits or "train").split(","), strict=False))
        if dev and "dev" not in wanted:
            wanted["dev"] = next((split for split in DEV if split in there), DEV[0])
        if absent := [split for split in wanted.values() if split not in there]:
            raise UserError(
                f"{name}: has no split {absent[0]}, but {', '.join(there)}; name what to train and to evaluate on as "
                f"{named.source}:SPLIT,SPLIT" + (", or give --eval_strategy no" if dev else "")
            )
        return {split: _as_parquet(builder, here, folder, named.source) for split, here in wanted.items()}


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


def _as_parquet(builder: DatasetBuilder, split: str, folder: Path, source: str) -> Path:
    """A split as one Parquet file beside what `datasets` has in its cache; its name is the stage of its rows."""
    file = Path(builder.cache_dir) / f"{Path(source).name}.{split}.parquet"
    if not file.is_file():
        partial = file.with_name(f"{file.name}.{uuid.uuid4().hex}.partial")
        try:
            builder.download_and_prepare()
            cast(Dataset, builder.as_dataset(split)).to_parquet(str(partial))
            os.replace(partial, file)
        except (datasets.exceptions.DatasetsError, ValueError) as error:
            reason = one_line(error.__cause__ or error)[:300]
            raise UserError(f"{folder}: `datasets` cannot read its files ({reason}); fix or remove the file") from error
        finally:
            partial.unlink(missing_ok=True)
    return file
