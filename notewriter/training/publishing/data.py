"""Pairs or chains as a dataset repository: the folder that `pairs` or `chains` wrote, searched for secrets."""

from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import DatasetCard, DatasetCardData
from yaml import YAMLError

from notewriter.artifacts.statistics import NAME, PAIRS_STATISTICS_SCHEMA, PairsStatistics, read_statistics
from notewriter.ground.errors import UserError, one_line
from notewriter.training.publishing import leaks

FILES = ("README.md", NAME)
"""The files of a dataset beside the Parquet files of its card; a run's configuration, journals and caches stay."""

REMEDY = "give the folder that `notewriter pairs` or `notewriter chains` wrote"


class Data(NamedTuple):
    """A checked dataset: its files by their paths in the repository, its licence, and the statistics of pairs."""

    files: dict[str, Path]
    license: str | None
    statistics: PairsStatistics | None
    """None for chains, whose statistics have no stages."""


def read_data(folder: Path) -> Data:
    """The files of a folder of pairs or chains, after all of them were searched for secrets.

    Raises:
        UserError: the folder is not a finished dataset, its card names files that are not there, a file cannot be
            read, or something looks like a secret; names file and row.
    """
    card = folder / "README.md"
    if not card.is_file():
        raise UserError(f"{folder}: has no README.md, so it is no finished dataset; {REMEDY}")
    statistics = read_statistics(folder, REMEDY)
    metadata = read_metadata(card)
    splits = split_files(metadata)
    for name in (*splits.values(), *FILES):
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{folder / name}: lies outside the folder, and only its own files are published; {REMEDY}")
    if missing := [name for name in splits.values() if not (folder / name).is_file()]:
        raise UserError(f"{card}: names {missing[0]}, which is not in the folder; {REMEDY}")
    files = {each.name: each for pattern in FILES for each in sorted(folder.glob(pattern)) if each.is_file()}
    files |= {name: folder / name for name in splits.values()}
    for each in files.values():
        leaks.check_file(each)
    licence = ", ".join(metadata.license) if isinstance(metadata.license, list) else metadata.license
    return Data(files, licence, statistics if statistics["schema"] == PAIRS_STATISTICS_SCHEMA else None)


def read_metadata(card: Path) -> DatasetCardData:
    """The metadata of a dataset card, as the hub's own client reads them.

    Raises:
        UserError: they are not valid.
    """
    try:
        data = DatasetCard(card.read_text(encoding="utf-8")).data
    except (OSError, ValueError, TypeError, YAMLError) as error:
        raise UserError(f"{card}: its metadata cannot be read ({one_line(error)[:300]}); {REMEDY}") from error
    assert isinstance(data, DatasetCardData)
    return data


def split_files(metadata: DatasetCardData) -> dict[str, str]:
    """Split -> Parquet file, as the card declares them to the hub's viewer.

    Raises:
        UserError: the card declares none.
    """
    configs: Any = metadata.get("configs") or []
    splits = {file["split"]: file["path"] for config in configs for file in config.get("data_files", [])}
    if not splits:
        raise UserError(f"README.md: declares no data_files, without which the viewer finds no splits; {REMEDY}")
    return splits
