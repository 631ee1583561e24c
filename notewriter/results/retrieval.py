"""The results of a retrieval evaluation: measures with intervals, latencies, and differences between chains."""

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground import jsonl, typed
from notewriter.ground.records import Question, SearchPart
from notewriter.pages.tables import Table
from notewriter.results.compare import Comparison, compare_scores, corrected, p_value_text

SCHEMA = "notewriter/retrieval-eval/1"

PERCENTILES = (50, 95, 99)


class Searched(TypedDict):
    """A line of searches.jsonl: what a chain found for a question, in how many seconds."""

    chain: str
    question_id: str
    passages: list[str]
    seconds: float
    parts: list[SearchPart]


def read_searches(path: Path) -> dict[tuple[str, str], Searched]:
    """Chain and question id -> the search.

    Raises:
        UserError: a line is not a search.
    """
    remedy = "remove the line and run the same command again"
    lines = (
        typed.read(record, Searched, f"{path}:{number}", remedy) for number, record in jsonl.read(path, journal=True)
    )
    return {(line["chain"], line["question_id"]): line for line in lines}


class PartSeconds(TypedDict):
    """A part of a chain: mean milliseconds per search, and mean number of passages returned."""

    part: str
    milliseconds: float
    found: float


class ChainResult(TypedDict):
    """A chain: measures with 95% bootstrap intervals over the questions, and latency percentiles in milliseconds."""

    measures: dict[str, Interval]
    milliseconds: dict[str, float]
    parts: list[PartSeconds]


@dataclass(frozen=True)
class Results:
    """The chains by name, and the measures of each minus those of the first, paired by question."""

    dataset: str
    questions: int
    chains: dict[str, ChainResult]
    differences: dict[str, Comparison]

    def to_json(self) -> dict[str, Any]:
        """The contents of retrieval.json."""
        chains = {
            name: {**chain, "measures": {key: asdict(interval) for key, interval in chain["measures"].items()}}
            for name, chain in self.chains.items()
        }
        differences = {
            name: {key: {"difference": asdict(row.difference), "p_value": row.p_value} for key, row in rows.items()}
            for name, rows in self.differences.items()
        }
        return {
            "schema": SCHEMA,
            "dataset": self.dataset,
            "questions": self.questions,
            "chains": chains,
            "differences": differences,
        }


def results_of(
    folder: Path, dataset: str, chains: Sequence[str], questions: Sequence[Question], depths: Sequence[int]
) -> Results:
    """The results of the searches in a run folder; p-values are corrected for all differences together.

    Raises:
        UserError: a journal is damaged.
    """
    searches = read_searches(folder / "searches.jsonl")
    scores: dict[str, dict[str, list[float]]] = {}
    results: dict[str, ChainResult] = {}
    for name in chains:
        of_chain = [searches[name, question.id] for question in questions]
        rows = [
            measures(search["passages"], question.supporting_ids, depths)
            for search, question in zip(of_chain, questions, strict=True)
        ]
        scores[name] = {measure: [row[measure] for row in rows] for measure in rows[0]}
        seconds = [search["seconds"] for search in of_chain]
        results[name] = ChainResult(
            measures={measure: bootstrap_interval(values) for measure, values in scores[name].items()},
            milliseconds={
                **{f"p{share}": round(1000 * float(np.percentile(seconds, share)), 3) for share in PERCENTILES},
                "mean": round(1000 * float(np.mean(seconds)), 3),
            },
            parts=_parts(of_chain),
        )
    first, *others = chains
    comparisons = [
        {measure: compare_scores([scores[first][measure]], [after]) for measure, after in scores[name].items()}
        for name in others
    ]
    return Results(dataset, len(questions), results, dict(zip(others, corrected(comparisons), strict=True)))


def _parts(searches: Sequence[Searched]) -> list[PartSeconds]:
    return [
        PartSeconds(
            part=part["part"],
            milliseconds=round(1000 * float(np.mean([each["parts"][place]["seconds"] for each in searches])), 3),
            found=round(float(np.mean([each["parts"][place]["found"] for each in searches])), 1),
        )
        for place, part in enumerate(searches[0]["parts"])
    ]


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of the gold passages among the first `k`."""
    return len(set(ranking[:k]) & set(gold)) / len(set(gold))


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold passage; 0 if there is none (Voorhees, TREC-8 question answering track, 1999)."""
    return next((1 / rank for rank, id in enumerate(ranking, start=1) if id in gold), 0.0)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain at `k`, with the discount 1 / log2(1 + rank).

    Jaervelin and Kekaelaeinen (TOIS 2002) in the form of trec_eval: divided by the gain of a ranking that has the gold
    passages first.
    """
    distinct = dict.fromkeys(ranking[:k])
    gain = sum(1 / math.log2(1 + rank) for rank, id in enumerate(distinct, start=1) if id in gold)
    return gain / sum(1 / math.log2(1 + rank) for rank in range(1, min(len(set(gold)), k) + 1))


def measures(ranking: Sequence[str], gold: Collection[str], depths: Sequence[int]) -> dict[str, float]:
    """All measures of a ranking (binary relevance), which is as deep as the last of the depths."""
    return {
        **{f"recall@{k}": recall(ranking, gold, k) for k in depths},
        f"MRR@{max(depths)}": reciprocal_rank(ranking[: max(depths)], gold),
        **{f"nDCG@{k}": ndcg(ranking, gold, k) for k in depths},
    }


def tables(results: Results) -> list[Table]:
    """Quality, differences from the first chain, latency, and what each part of a chain took."""
    chains = results.chains
    first = next(iter(chains))
    names, latencies = list(chains[first]["measures"]), list(chains[first]["milliseconds"])
    quality = [[name, *(chain["measures"][each].text() for each in names)] for name, chain in chains.items()]
    differences = [
        [
            name,
            measure,
            row.difference.text(sign="+") + (" *" if row.difference.excludes_zero else ""),
            p_value_text(measure, row.p_value, row.at_floor),
        ]
        for name, rows in results.differences.items()
        for measure, row in rows.items()
    ]
    speed = [[name, *(f"{chain['milliseconds'][each]:,.2f}" for each in latencies)] for name, chain in chains.items()]
    parts = [
        [name, part["part"], f"{part['milliseconds']:,.2f}", f"{part['found']:,.1f}"]
        for name, chain in chains.items()
        for part in chain["parts"]
    ]
    all_tables: list[Table] = [
        (
            f"Supporting passages found, {results.dataset}, {results.questions} questions; mean [95% interval]",
            ["chain", *names],
            quality,
        ),
        (
            f"Difference from {first}, paired by question; * marks intervals that exclude zero",
            ["chain", "measure", "difference [95% interval]", "p (Holm)"],
            differences,
        ),
        ("Latency of one query at a time", ["chain", *(f"{each} (ms)" for each in latencies)], speed),
        ("What each part took; mean per query", ["chain", "part", "ms", "passages returned"], parts),
    ]
    return [table for table in all_tables if table[2]]
