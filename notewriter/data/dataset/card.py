"""The card of a dataset: README.md with the Hub's metadata, which names each split's file, and two plots."""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import DatasetCardData

from notewriter.artifacts.parquet import read_rows
from notewriter.data.dataset.splits import SPLITS
from notewriter.datasets import BENCHMARKS
from notewriter.ground import jsonl
from notewriter.models.checkpoint import is_hub_id
from notewriter.pages import render
from notewriter.pages.cards import render_card

SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}

OMITTED = {
    *("dataset", "path", "ids", "index", "output_dir", "cache", "prompts_dir", "eval_files", "stages"),
    *("serve", "serve_options", "served", "port", "base_url", "model", "models", "concurrency"),
    *("retriever", "question_set"),
}
"""Settings that name folders and servers of this machine, or that the card states elsewhere."""

COLOURS = ("#0b6b3a", "#d55e00", "#0072b2", "#cc79a7", "#8a6d00", "#56b4e9", "#5b5b5b", "#009e73", "#b3261e")
"""What was kept, then one per reason."""

BINS = 24

Yields = dict[str, dict[str, int]]
"""Stage -> number of rows kept (by the name of the kind) and dropped (by reason)."""


class CardKind(NamedTuple):
    """What differs between the cards of pairs, of gold evidence and of chains.

    Args:
        name: what rows are called, also in stats.json.
        title: the title of the card.
        tags: the card's tags.
        template: a template beside this file.
        yields: the numbers of the first plot, from the statistics.
        columns: the columns that `lengths` needs.
        lengths: the stage of a row and the lengths of its parts; None for an unknown length.
        unit: of the lengths.
    """

    name: str
    title: str
    tags: list[str]
    template: str
    yields: Callable[[Mapping[str, Any]], Yields]
    columns: list[str]
    lengths: Callable[[dict[str, Any]], tuple[str, dict[str, int | None]]]
    unit: str


def _stage_yields(kept: str, stats: Mapping[str, Any]) -> Yields:
    return {stage: {kept: counts[kept], **counts["dropped"]} for stage, counts in stats["stages"].items()}


def _pair_lengths(row: dict[str, Any]) -> tuple[str, dict[str, int | None]]:
    """Tokens as counted by the teacher's server; None for what the gold evidence wrote."""
    return row["stage"], {part: row[f"{part}_tokens"] for part in ("prompt", "chosen", "rejected")}


def _chain_yields(stats: Mapping[str, Any]) -> Yields:
    return {"rearag": {"chains": sum(stats["chains"].values()), **stats["dropped"]}}


def _chain_lengths(row: dict[str, Any]) -> tuple[str, dict[str, int | None]]:
    words = Counter[str]()
    for message in row["messages"]:
        words[message["role"]] += len(message["content"].split())
    return "rearag", {"steps": row["steps"], "words to learn": words["assistant"], "words in all": words.total()}


def _gold_lengths(row: dict[str, Any]) -> tuple[str, dict[str, int | None]]:
    *prompt, reply = (len(message["content"].split()) for message in row["messages"])
    return row["stage"], {"prompt": sum(prompt), "words to learn": reply}


PAIRS = CardKind(
    name="pairs",
    title="Preference pairs",
    tags=["preference", "dpo"],
    template="pairs_card.md.jinja",
    yields=partial(_stage_yields, "pairs"),
    columns=["stage", "prompt_tokens", "chosen_tokens", "rejected_tokens"],
    lengths=_pair_lengths,
    unit="tokens",
)
GOLD = CardKind(
    name="conversations",
    title="Gold evidence",
    tags=["sft"],
    template="gold_card.md.jinja",
    yields=partial(_stage_yields, "conversations"),
    columns=["messages", "stage"],
    lengths=_gold_lengths,
    unit="words",
)
CHAINS = CardKind(
    name="chains",
    title="Chains of reasoning and search",
    tags=["reasoning", "sft"],
    template="chains_card.md.jinja",
    yields=_chain_yields,
    columns=["messages", "steps"],
    lengths=_chain_lengths,
    unit="steps and words",
)


def write_card(folder: Path, config: Mapping[str, Any], stats: Mapping[str, Any], kind: CardKind) -> None:
    """Write README.md and its two plots, `yield.svg` and `lengths.svg`, beside the Parquet files of a folder.

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
    yields = render(
        Path(__file__).with_name("yield.svg.jinja"),
        title=f"{kind.name} and what was dropped",
        **bars(kind.yields(stats)),
    )
    jsonl.write_text(folder / "yield.svg", [yields])
    title = f"{kind.unit} of {kind.name}"
    jsonl.write_text(
        folder / "lengths.svg",
        [render(Path(__file__).with_name("lengths.svg.jinja"), title=title, **histograms(lengths))],
    )
    # Written last: a folder with a card is complete.
    jsonl.write_text(folder / "README.md", [text])


def read_lengths(folder: Path, kind: CardKind) -> dict[str, dict[str, list[int]]]:
    """The lengths of all rows by stage and part; nothing else of a row stays in memory."""
    lengths: dict[str, dict[str, list[int]]] = {}
    for path in (folder / f"{split}.parquet" for split in SPLITS):
        if path.is_file():
            for row in read_rows(path, columns=kind.columns):
                stage, parts = kind.lengths(row)
                of_stage = lengths.setdefault(stage, {part: [] for part in parts})
                for part, length in parts.items():
                    if length is not None:
                        of_stage[part].append(length)
    return lengths


def model_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Role -> name of the model: a hub id, the endpoint's name for it, or the last part of a path."""
    roles = {"policy": {"serve": config.get("serve"), "model": config.get("model")}} | dict(config.get("models") or {})
    names = {role: endpoint.get("serve") or endpoint.get("model") for role, endpoint in roles.items()}
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


def bars(yields: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """One bar per stage, in SVG units: what was kept, then what was dropped, by reason."""
    left, width, height = 250, 400, 22
    names = dict.fromkeys(name for parts in yields.values() for name in parts)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    most = max((sum(parts.values()) for parts in yields.values()), default=0) or 1
    rows = []
    for number, (stage, parts) in enumerate(yields.items()):
        x = float(left)
        segments = []
        for name, count in parts.items():
            segments.append({"name": name, "count": count, "x": round(x, 1), "width": round(width * count / most, 1)})
            x += width * count / most
        y = 10 + number * (height + 10)
        rows.append(
            {"stage": stage, "y": y, "segments": segments, "end": round(x, 1), "kept": next(iter(parts.values()))}
        )
    top = 10 + len(rows) * (height + 10) + 14
    legend = [{"name": name, "y": top + 18 * number} for number, name in enumerate(colours)]
    return {
        "rows": rows,
        "colours": colours,
        "legend": legend,
        "left": left,
        "height": height,
        "bottom": top + 18 * len(legend),
    }


def histograms(lengths: Mapping[str, Mapping[str, list[int]]]) -> dict[str, Any]:
    """One histogram per part (such as prompt, chosen, rejected) over all stages, in SVG units."""
    width, height, gap = 200, 110, 36
    panels = []
    for number, part in enumerate(dict.fromkeys(part for parts in lengths.values() for part in parts)):
        values = [value for parts in lengths.values() for value in parts[part]]
        most = max(values, default=0)
        counts = [0] * BINS
        for value in values:
            counts[min(BINS - 1, value * BINS // (most + 1))] += 1
        tallest = max(counts) or 1
        x = 10 + number * (width + gap)
        columns = [
            {
                "x": round(x + place * width / BINS, 1),
                "y": round(30 + height * (1 - count / tallest), 1),
                "height": round(height * count / tallest, 1),
                "count": count,
            }
            for place, count in enumerate(counts)
        ]
        panels.append({"part": part, "x": x, "end": x + width, "most": most, "rows": len(values), "columns": columns})
    return {"panels": panels, "width": round(width / BINS - 1, 1), "base": 30 + height, "colour": COLOURS[2]}
