"""What a retrieval evaluation found: means with intervals, latencies, loads, and differences from the first chain."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation.retrieval.measures import measures
from notewriter.evaluation.retrieval.searching import Load, Searched, read_loads, read_searches
from notewriter.evaluation.statistics import bootstrap_interval, holm, paired_interval, paired_p_value
from notewriter.ground.records import Question

SCHEMA = "notewriter/retrieval-eval/1"

PERCENTILES = (50, 95, 99)


class PartSeconds(TypedDict):
    """A part of a chain: mean milliseconds per search, and mean number of passages returned."""

    part: str
    milliseconds: float
    found: float


class ChainResult(TypedDict):
    """A chain: measures with 95% bootstrap intervals over the questions, latency percentiles in milliseconds, load."""

    measures: dict[str, Interval]
    milliseconds: dict[str, float]
    parts: list[PartSeconds]
    load: Load


class Difference(TypedDict):
    """A measure of a chain minus the first chain's, paired by question, with the p-value corrected by Holm."""

    difference: Interval
    p_value: float


class Results(TypedDict):
    """The contents of retrieval.json."""

    schema: str
    dataset: str
    questions: int
    chains: dict[str, ChainResult]
    differences: dict[str, dict[str, Difference]]


def results_of(
    folder: Path, dataset: str, chains: Sequence[str], questions: Sequence[Question], depths: Sequence[int]
) -> Results:
    """The results of the searches in a run folder.

    Raises:
        UserError: a journal is damaged.
    """
    searches = read_searches(folder / "searches.jsonl")
    loads = read_loads(folder / "loads.jsonl")
    scores: dict[str, dict[str, list[float]]] = {}
    results: dict[str, ChainResult] = {}
    for name in chains:
        found = [searches[name, question.id] for question in questions]
        rows = [
            measures(each["passages"], question.supporting_ids, depths)
            for each, question in zip(found, questions, strict=True)
        ]
        scores[name] = {measure: [row[measure] for row in rows] for measure in rows[0]}
        seconds = [each["seconds"] for each in found]
        results[name] = ChainResult(
            measures={measure: bootstrap_interval(values) for measure, values in scores[name].items()},
            milliseconds={
                **{f"p{share}": round(1000 * float(np.percentile(seconds, share)), 3) for share in PERCENTILES},
                "mean": round(1000 * float(np.mean(seconds)), 3),
            },
            parts=_parts(found),
            load=loads[name],
        )
    return Results(
        schema=SCHEMA,
        dataset=dataset,
        questions=len(questions),
        chains=results,
        differences=_differences(scores),
    )


def to_json(results: Results) -> dict[str, Any]:
    """The results as JSON-ready dictionaries."""
    return {
        **results,
        "chains": {
            name: {**chain, "measures": {key: asdict(value) for key, value in chain["measures"].items()}}
            for name, chain in results["chains"].items()
        },
        "differences": {
            name: {key: {**row, "difference": asdict(row["difference"])} for key, row in rows.items()}
            for name, rows in results["differences"].items()
        },
    }


def _differences(scores: Mapping[str, Mapping[str, list[float]]]) -> dict[str, dict[str, Difference]]:
    """Each later chain against the first; p-values are corrected for all differences together."""
    first, *others = scores
    rows: list[tuple[str, str, Interval, float]] = []
    for name in others:
        for measure, after in scores[name].items():
            before = scores[first][measure]
            rows.append((name, measure, paired_interval(before, after), paired_p_value(before, after)))
    corrected = holm([p_value for *_, p_value in rows])
    differences: dict[str, dict[str, Difference]] = {name: {} for name in others}
    for (name, measure, interval, _), p_value in zip(rows, corrected, strict=True):
        differences[name][measure] = Difference(difference=interval, p_value=p_value)
    return differences


def _parts(searches: Sequence[Searched]) -> list[PartSeconds]:
    names = [part["part"] for part in searches[0]["parts"]]
    return [
        PartSeconds(
            part=name,
            milliseconds=round(1000 * float(np.mean([each["parts"][place]["seconds"] for each in searches])), 3),
            found=round(float(np.mean([each["parts"][place]["found"] for each in searches])), 1),
        )
        for place, name in enumerate(names)
    ]
