"""What stands in the report's tables: scores, costs, differences, kinds of questions, the papers' numbers."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from eval.accounting import COSTS
from eval.compare import Comparison, compare_uncorrected, correct, p_value_text
from eval.report.markup import TABLE
from eval.report.runs import Run
from eval.report.scores import headline, measured
from eval.scores import metric_named
from eval.statistics import bootstrap_interval
from notewriter.errors import UserError

Record = dict[str, Any]

KINDS = {"type": "Type", "hops": "Hops"}
"""Metadata of questions by which the score is taken apart; a value like `a | b` is of both kinds."""

MOST_KINDS = 20
"""Rows at the most for each of `KINDS`: those with the most questions."""

PUBLISHED = Path(__file__).with_name("published.yaml")
"""The papers' main tables: `paper`, `table`, `dataset`, `method`, `model` and `values` (metric -> percent)."""


def differences(runs: Sequence[Run]) -> list[Record]:
    """For each run but the first its paired differences from the first by metric, or the reason why there are none.

    p-values are corrected for the scores of all runs together, since they are read together.
    """
    comparisons: list[Comparison] = []
    reasons = []
    for run in runs[1:]:
        try:
            comparisons.append(compare_uncorrected([runs[0].folder], [run.folder]))
            reasons.append("")
        except UserError as error:
            comparisons.append({})
            reasons.append(str(error))
    correct(comparisons)
    return [
        {"run": run, "reason": reason, "rows": _differences(comparison)}
        for run, reason, comparison in zip(runs[1:], reasons, comparisons, strict=True)
    ]


def _differences(comparison: Comparison) -> dict[str, Record]:
    rows = {}
    for metric, values in comparison.items():
        difference = values["difference"]
        places = metric_named(metric).decimals
        rows[metric] = {
            "value": difference.mean,
            "text": f"{difference.mean:+,.{places}f}",
            "interval": f"{difference.low:+,.{places}f} to {difference.high:+,.{places}f}",
            "excludes_zero": difference.excludes_zero,
            "kind": _direction(metric, difference.mean),
            "p_value": p_value_text(metric, values["p_value"]),
            "questions": values["questions"],
        }
    return rows


def _direction(metric: str, difference: float) -> str:
    """What a difference is to a reader: a `gain` or a `loss`, or a `count` of which neither is better."""
    better = metric_named(metric).better
    return "count" if better is None else "gain" if (difference > 0) == (better == "higher") else "loss"


def scores(runs: Sequence[Run]) -> list[Record]:
    """A row a metric, a cell a run: the mean as in metrics.json with its interval, None where a run has none."""
    rows = []
    for metric in measured(runs):
        intervals = [run.metrics["metrics"].get(metric) for run in runs]
        places = metric_named(metric).decimals
        cells = [
            interval
            and {
                "value": interval["mean"],
                "text": f"{interval['mean']:,.{places}f}",
                "interval": f"{interval['low']:,.{places}f} to {interval['high']:,.{places}f}",
            }
            for interval in intervals
        ]
        rows.append({"metric": metric, "cells": cells})
    return rows


def costs(runs: Sequence[Run]) -> list[Record]:
    """A row a cost, a cell a run: the mean a question."""
    rows = []
    for cost in COSTS:
        means = [run.metrics["per_question"][cost] for run in runs]
        places = metric_named(cost).decimals
        rows.append({"metric": cost, "cells": [{"value": mean, "text": f"{mean:,.{places}f}"} for mean in means]})
    return rows


def kinds(runs: Sequence[Run]) -> list[Record]:
    """The headline score by kinds of questions: a row a kind, a cell a run with its interval (None: no question)."""
    metric = headline(runs)
    rows = []
    for key, title in KINDS.items():
        values: list[dict[str, list[float]]] = []
        for run in runs:
            by_kind: dict[str, list[float]] = {}
            for record in run.predictions.values():
                for kind in _kinds_of(record, key) if metric in record["scores"] else ():
                    by_kind.setdefault(kind, []).append(record["scores"][metric])
            values.append(by_kind)
        most: Counter[str] = Counter()
        for by_kind in values:
            most |= Counter({kind: len(found) for kind, found in by_kind.items()})
        rows += [
            {
                "kind": f"{title}: {kind}",
                "questions": most[kind],
                "cells": [_kind_cell(by_kind[kind]) if kind in by_kind else None for by_kind in values],
            }
            for kind in sorted(kind for kind, _ in most.most_common(MOST_KINDS))
        ]
    return rows


def _kinds_of(record: Record, key: str) -> list[str]:
    value = record.get("metadata", {}).get(key)
    if not isinstance(value, str | int):
        return []
    return list(dict.fromkeys(kind for kind in map(str.strip, str(value).split("|")) if kind))


def _kind_cell(values: list[float]) -> Record:
    interval = bootstrap_interval(values)
    return {"text": f"{interval.mean:.3f}", "interval": f"{interval.low:.3f} to {interval.high:.3f}"}


def published(runs: Sequence[Run]) -> list[Record]:
    """The runs' own scores and the papers', in percent, for each dataset of theirs that a paper has."""
    rows = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    tables = []
    for dataset in dict.fromkeys(run.metrics["dataset"] for run in runs):
        theirs = [row for row in rows if row["dataset"] == dataset]
        metrics = list(dict.fromkeys(metric for row in theirs for metric in row["values"]))
        ours = [
            {
                "run": run,
                "method": run.metrics["method"],
                "model": run.metrics["model"],
                "values": {
                    metric: run.metrics["metrics"][metric]["mean"] * 100
                    for metric in metrics
                    if metric in run.metrics["metrics"]
                },
            }
            for run in runs
            if run.metrics["dataset"] == dataset
        ]
        if theirs:
            tables.append({"dataset": dataset, "metrics": metrics, "ours": ours, "theirs": theirs})
    return tables


def text_tables(runs: Sequence[Run], rows: Sequence[Record], compared: Sequence[Record]) -> list[TABLE]:
    """Rows of `scores` and `costs` as one table, and one each of `differences`, for Markdown and LaTeX."""

    def cell(value: Record | None) -> str:
        if value is None:
            return ""
        return f"{value['text']} [{value['interval']}]" if "interval" in value else str(value["text"])

    tables: list[TABLE] = [
        (
            "Scores with 95% bootstrap intervals, and mean costs a question",
            ["", *(run.label for run in runs)],
            [[metric_named(row["metric"]).label, *map(cell, row["cells"])] for row in rows],
        )
    ]
    for difference in compared:
        note = difference["reason"] or (
            "an asterisk marks an interval that excludes zero; p is corrected for the number of scores"
            + (" of all runs here" if len(compared) > 1 else "")
        )
        tables.append(
            (
                f"{difference['run'].label} minus {runs[0].label}, paired by question; {note}",
                ["", "Difference", "95% interval", "p (Holm)", "Questions"],
                [
                    [
                        metric_named(metric).label,
                        row["text"] + (" *" if row["excludes_zero"] else ""),
                        row["interval"],
                        row["p_value"],
                        str(row["questions"]),
                    ]
                    for metric, row in difference["rows"].items()
                ],
            )
        )
    return tables
