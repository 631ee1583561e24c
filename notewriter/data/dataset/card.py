"""The card of a dataset: README.md with the Hub's metadata, which names each split's file."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from huggingface_hub import DatasetCardData

from notewriter.artifacts.pairs import Messages
from notewriter.artifacts.parquet import read_checked
from notewriter.artifacts.statistics import (
    CHAINS_STATISTICS_SCHEMA,
    GOLD_STATISTICS_SCHEMA,
    PAIRS_STATISTICS_SCHEMA,
    OverlapCheck,
    read_statistics,
    write_statistics,
)
from notewriter.data.dataset.splits import SPLITS, split_files
from notewriter.datasets import BENCHMARKS
from notewriter.ground import jsonl
from notewriter.models.checkpoint import is_hub_id
from notewriter.pages.cards import render_card

OVERLAPPING = "overlapping_questions.jsonl"
"""The training questions that overlap with evaluation questions, beside the data."""

REMEDY = "give a folder that pairs, chains or gold finished"

SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}

OMITTED = {
    *("dataset", "path", "ids", "index", "output_dir", "cache", "prompts_dir", "eval_files", "stages"),
    *("serve", "serve_options", "port", "base_url", "model", "models", "concurrency"),
    *("retriever", "question_set"),
}
"""Settings that name folders and servers of this machine, or that the card states elsewhere.
"""


class CardKind(NamedTuple):
    """What differs between the cards of pairs, of gold evidence and of chains.

    Args:
        schema: of their statistics.
        name: what rows are called, also in stats.json.
        title: the title of the card.
        tags: the card's tags.
        template: a template beside this file.
        row: what `lengths` needs of a row.
        lengths: the stage of a row and the lengths of its parts; None for an unknown length.
        unit: of the lengths.
    """

    schema: str
    name: str
    title: str
    tags: list[str]
    template: str
    row: Any
    lengths: Callable[[dict[str, Any]], tuple[str, dict[str, int | None]]]
    unit: str


class _PairRow(TypedDict):
    stage: str
    prompt_tokens: int | None
    chosen_tokens: int | None
    rejected_tokens: int | None


class _GoldRow(TypedDict):
    stage: str
    messages: Messages


class _ChainRow(TypedDict):
    messages: Messages
    steps: int | None


def _pair_lengths(row: dict[str, Any]) -> tuple[str, dict[str, int | None]]:
    """Tokens as counted by the teacher's server; None for what the gold evidence wrote."""
    return row["stage"], {part: row[f"{part}_tokens"] for part in ("prompt", "chosen", "rejected")}


def _chain_lengths(row: dict[str, Any]) -> tuple[str, dict[str, int | None]]:
    words = Counter[str]()
    for message in row["messages"]:
        words[message["role"]] += len(message["content"].split())
    return "rearag", {"steps": row["steps"], "words to learn": words["assistant"], "words in all": words.total()}


def _gold_lengths(row: dict[str, Any]) -> tuple[str, dict[str, int | None]]:
    *prompt, reply = (len(message["content"].split()) for message in row["messages"])
    return row["stage"], {"prompt": sum(prompt), "words to learn": reply}


PAIRS_CARD = CardKind(
    schema=PAIRS_STATISTICS_SCHEMA,
    name="pairs",
    title="Preference pairs",
    tags=["preference", "dpo"],
    template="pairs_card.md.jinja",
    row=_PairRow,
    lengths=_pair_lengths,
    unit="tokens",
)
GOLD_CARD = CardKind(
    schema=GOLD_STATISTICS_SCHEMA,
    name="conversations",
    title="Gold evidence",
    tags=["sft"],
    template="gold_card.md.jinja",
    row=_GoldRow,
    lengths=_gold_lengths,
    unit="words",
)
CHAINS_CARD = CardKind(
    schema=CHAINS_STATISTICS_SCHEMA,
    name="chains",
    title="Chains of reasoning and search",
    tags=["reasoning", "sft"],
    template="chains_card.md.jinja",
    row=_ChainRow,
    lengths=_chain_lengths,
    unit="steps and words",
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
    lengths = read_lengths(folder, kind)
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
        lengths={stage: {part: summary(values) for part, values in parts.items()} for stage, parts in lengths.items()},
    )
    # Written last: a folder with a card is complete.
    jsonl.write_text(folder / "README.md", [text])


def yields(stats: Mapping[str, Any], kind: CardKind) -> dict[str, tuple[int, dict[str, int]]]:
    """Stage -> the number of rows kept, and of those dropped, by reason."""
    stages = stats.get("stages") or {"rearag": {kind.name: sum(stats[kind.name].values()), "dropped": stats["dropped"]}}
    return {stage: (counts[kind.name], counts["dropped"]) for stage, counts in stages.items()}


def read_lengths(folder: Path, kind: CardKind) -> dict[str, dict[str, list[int]]]:
    """The lengths of all rows by stage and part; nothing else of a row stays in memory."""
    lengths: dict[str, dict[str, list[int]]] = {}
    for path in split_files(folder):
        for row in read_checked(path, kind.row, columns=[*kind.row.__annotations__]):
            stage, parts = kind.lengths(row)
            of_stage = lengths.setdefault(stage, {part: [] for part in parts})
            for part, length in parts.items():
                if length is not None:
                    of_stage[part].append(length)
    return lengths


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
    """The settings that define the recipe, without unset ones."""
    return {key: value for key, value in config.items() if key not in OMITTED and value not in (None, {}, [])}


def summary(values: list[int]) -> dict[str, int] | None:
    """Median, 95th percentile and maximum; None without values."""
    if not values:
        return None
    spread = statistics.quantiles(values, n=20, method="inclusive") if len(values) > 1 else values * 19
    return {"median": round(statistics.median(values)), "p95": round(spread[-1]), "most": max(values)}
