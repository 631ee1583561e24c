"""The card of a dataset: README.md with the Hub's metadata, which names each split's file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import DatasetCardData

from notewriter.artifacts.statistics import (
    CHAINS_STATISTICS_SCHEMA,
    GOLD_STATISTICS_SCHEMA,
    PAIRS_STATISTICS_SCHEMA,
    OverlapCheck,
    read_statistics,
    write_statistics,
)
from notewriter.data.dataset.splits import SPLITS
from notewriter.data.options import PairsArguments
from notewriter.datasets import BENCHMARKS
from notewriter.ground import jsonl
from notewriter.ground.options import names_of
from notewriter.models.checkpoint import is_hub_id
from notewriter.models.roles import ModelArguments
from notewriter.pages.cards import render_card

OVERLAPPING = "overlapping_questions.jsonl"
"""The training questions that overlap with evaluation questions, beside the data."""

REMEDY = "give a folder that pairs, chains or gold finished"

SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}


class CardKind(NamedTuple):
    """The differences between the cards of pairs, of gold evidence and of chains.

    Args:
        schema: of their statistics.
        name: the name of its rows, also in stats.json.
        title: the title of the card.
        tags: the card's tags.
        template: a template beside this file.
    """

    schema: str
    name: str
    title: str
    tags: list[str]
    template: str


PAIRS_CARD = CardKind(
    schema=PAIRS_STATISTICS_SCHEMA,
    name="pairs",
    title="Preference pairs",
    tags=["preference", "dpo"],
    template="pairs_card.md.jinja",
)
GOLD_CARD = CardKind(
    schema=GOLD_STATISTICS_SCHEMA,
    name="conversations",
    title="Gold evidence",
    tags=["sft"],
    template="gold_card.md.jinja",
)
CHAINS_CARD = CardKind(
    schema=CHAINS_STATISTICS_SCHEMA,
    name="chains",
    title="Chains of reasoning and search",
    tags=["reasoning", "sft"],
    template="chains_card.md.jinja",
)


CARDS = {card.schema: card for card in (PAIRS_CARD, GOLD_CARD, CHAINS_CARD)}


def write_card(folder: Path, config: Mapping[str, Any], stats: Mapping[str, Any], kind: CardKind) -> None:
    """Write README.md beside the Parquet files of a folder.

    The card names no folders and no addresses of servers.

    Args:
        folder: the dataset.
        config: the resolved configuration.
        stats: the statistics, as in stats.json.
        kind: pairs, chains or gold evidence.
    """
    source = BENCHMARKS[config["dataset"]]
    splits = [split for split in SPLITS if stats[kind.name].get(split)]
    total = sum(stats[kind.name].values())
    data = DatasetCardData(
        license=source.licence or None,
        pretty_name=f"{kind.title} from {source.title}",
        size_categories=next((size for most, size in SIZES.items() if total < most), "n>1M"),
        tags=["notewriter", *kind.tags, "trl", "retrieval-augmented-generation"],
        configs=[
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": f"{split}.parquet"} for split in splits],
            }
        ],
    )
    text = render_card(
        Path(__file__).with_name(kind.template),
        data,
        kind=kind,
        total=total,
        dataset=source.title if source.licence else f"{Path(config['path']).name} ({config['dataset']})",
        source=source,
        stats=stats,
        stages={
            stage: judge if isinstance(judge, str) else ", then ".join(judge)
            for stage, judge in config.get("stages", {}).items()
        },
        models=model_names(config),
        settings={
            key: value if isinstance(value, str) else json.dumps(value) for key, value in settings(config).items()
        },
    )
    # Written last: a folder with a card is complete.
    jsonl.write_text(folder / "README.md", [text])


def yields(stats: Mapping[str, Any], kind: CardKind) -> dict[str, tuple[int, dict[str, int]]]:
    """Stage -> the number of rows kept, and of those dropped, by reason."""
    stages = stats.get("stages") or {"rearag": {kind.name: sum(stats[kind.name].values()), "dropped": stats["dropped"]}}
    return {stage: (counts[kind.name], counts["dropped"]) for stage, counts in stages.items()}


def add_checks(folder: Path, config: Mapping[str, Any], checks: Mapping[str, OverlapCheck]) -> None:
    """Add checks to the statistics and the card of a dataset."""
    stats = read_statistics(folder, REMEDY)
    stats["overlap"] = stats.get("overlap", {}) | checks
    write_statistics(folder, stats)
    write_card(folder, config, stats, CARDS[stats["schema"]])


def model_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Role -> name of the model: a hub id, the endpoint's name for it, or the last part of a path."""
    roles = {"policy": {"serve": config.get("serve"), "model": config.get("model")}} | dict(config.get("models") or {})
    keys = ("serve", "model", "control")
    names = {role: next(filter(None, map(endpoint.get, keys)), None) for role, endpoint in roles.items()}
    return {role: name if is_hub_id(name) else Path(name).name for role, name in names.items() if name}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that define the recipe, without unset ones.

    Left out are what names folders and servers of this machine, and what the card states elsewhere.
    """
    kinds = (PairsArguments, ModelArguments)
    omitted = names_of(*kinds, card=False) | names_of(*kinds, of="retriever") | names_of(*kinds, of="output")
    omitted |= names_of(*kinds, of="model", effect=False)
    return {key: value for key, value in config.items() if key not in omitted and value not in (None, {}, [])}
