"""The report's tables: scores, costs, differences, kinds of questions, the papers' numbers."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from notewriter.artifacts.predictions import COSTS, Prediction
from notewriter.evaluation.catalogue import METRICS, metric_named
from notewriter.evaluation.comparison import Comparison, Paired, compare_uncorrected, corrected, p_value_text
from notewriter.evaluation.report.headline import headline, measured
from notewriter.evaluation.report.markup import Table
from notewriter.evaluation.report.papers import PublishedRow, published_rows
from notewriter.evaluation.report.runs import Run
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground.errors import UserError

KINDS = {"type": "Type", "hops": "Hops"}
"""Question metadata by which the score is broken down; a value such as `a | b` is of both kinds."""

MOST_KINDS = 20
"""At most so many rows for each of `KINDS`: the kinds with the most questions."""


class Cell(TypedDict):
    """A number as text, with its value and its interval where these are shown."""

    text: str
    value: NotRequired[float]
    interval: NotRequired[str]


class Row(TypedDict):
    """A score or a cost: a cell for each run, None where a run does not have it."""

    metric: str
    cells: list[Cell | None]


class KindRow(TypedDict):
    """A kind of question: a cell for each run, None where a run has no such question."""

    kind: str
    questions: int
    cells: list[Cell | None]


class DifferenceRow(TypedDict):
    """A score's or a cost's difference from the first run; `kind` is `count` where neither direction is better."""

    value: float
    text: str
    interval: str
    excludes_zero: bool
    kind: Literal["gain", "loss", "count"]
    p_value: str
    questions: int


class Difference(TypedDict):
    """A run's differences from the first run, by metric, or the `reason` why there are none."""

    run: Run
    reason: str
    rows: dict[str, DifferenceRow]


class OwnRow(TypedDict):
    """A run beside the papers' rows; values are percentages."""

    run: Run
    method: str
    model: str
    values: dict[str, float]


class PublishedTable(TypedDict):
    """The runs on a dataset and the papers' rows for it."""

    dataset: str
    metrics: list[str]
    ours: list[OwnRow]
    theirs: list[PublishedRow]


def differences(runs: Sequence[Run]) -> list[Difference]:
    """For each run but the first, its paired differences from the first.

    p-values are corrected for the scores of all runs together, since these are read together.
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
    return [
        Difference(
            run=run,
            reason=reason,
            rows={metric: _difference(metric, paired) for metric, paired in comparison.items()},
        )
        for run, reason, comparison in zip(runs[1:], reasons, corrected(comparisons), strict=True)
    ]


def _difference(metric: str, paired: Paired) -> DifferenceRow:
    difference, places = paired.difference, metric_named(metric).decimals
    return DifferenceRow(
        value=difference.mean,
        text=f"{difference.mean:+,.{places}f}",
        interval=f"{difference.low:+,.{places}f} to {difference.high:+,.{places}f}",
        excludes_zero=difference.excludes_zero,
        kind=_direction(metric, difference.mean),
        p_value=p_value_text(metric, paired.p_value, paired.at_floor),
        questions=paired.questions,
    )


def _direction(metric: str, difference: float) -> Literal["gain", "loss", "count"]:
    better = metric_named(metric).better
    return "count" if better is None else "gain" if (difference > 0) == (better == "higher") else "loss"


def scores(runs: Sequence[Run]) -> list[Row]:
    """A row for each metric: means as in metrics.json, with their intervals."""
    rows = []
    for metric in measured(runs):
        places = metric_named(metric).decimals
        intervals = [run.metrics.metrics.get(metric) for run in runs]
        cells = [
            Cell(
                value=interval.mean,
                text=f"{interval.mean:,.{places}f}",
                interval=f"{interval.low:,.{places}f} to {interval.high:,.{places}f}",
            )
            if interval
            else None
            for interval in intervals
        ]
        rows.append(Row(metric=metric, cells=cells))
    return rows


def costs(runs: Sequence[Run]) -> list[Row]:
    """A row for each cost: means per question."""
    rows = []
    for cost in COSTS:
        means = [run.metrics.per_question[cost] for run in runs]
        places = metric_named(cost).decimals
        rows.append(Row(metric=cost, cells=[Cell(value=mean, text=f"{mean:,.{places}f}") for mean in means]))
    return rows


def kinds(runs: Sequence[Run]) -> list[KindRow]:
    """The headline score broken down by kind of question."""
    metric = headline(runs)
    rows: list[KindRow] = []
    for key, title in KINDS.items():
        values: list[dict[str, list[float]]] = []
        for run in runs:
            by_kind: dict[str, list[float]] = {}
            for prediction in run.predictions.values():
                if metric in prediction.scores:
                    for kind in _kinds_of(prediction, key):
                        by_kind.setdefault(kind, []).append(prediction.scores[metric])
            values.append(by_kind)
        most: Counter[str] = Counter()
        for by_kind in values:
            most |= Counter({kind: len(found) for kind, found in by_kind.items()})
        rows += [
            KindRow(
                kind=f"{title}: {kind}",
                questions=most[kind],
                cells=[_kind_cell(by_kind[kind]) if kind in by_kind else None for by_kind in values],
            )
            for kind in sorted(kind for kind, _ in most.most_common(MOST_KINDS))
        ]
    return rows


def _kinds_of(prediction: Prediction, key: str) -> list[str]:
    value = prediction.metadata.get(key)
    if not isinstance(value, str | int):
        return []
    return list(dict.fromkeys(kind for kind in map(str.strip, str(value).split("|")) if kind))


def _kind_cell(values: list[float]) -> Cell:
    interval = bootstrap_interval(values)
    return Cell(text=f"{interval.mean:.3f}", interval=f"{interval.low:.3f} to {interval.high:.3f}")


def published(runs: Sequence[Run]) -> list[PublishedTable]:
    """The runs' scores beside the papers', for each of the runs' datasets that a paper reports.

    Of a paper's rows these are the ones with its own settings, once where several of its tables have them.
    """
    rows: dict[tuple[str, ...], PublishedRow] = {}
    for row in published_rows():
        if not row["setting"] and any(map(_is_score, row["values"])):
            rows.setdefault((row["paper"], row["dataset"], row["method"], row["model"]), row)
    tables = []
    for dataset in dict.fromkeys(run.metrics.dataset for run in runs):
        theirs = [row for row in rows.values() if row["dataset"] == dataset]
        metrics = list(dict.fromkeys(metric for row in theirs for metric in filter(_is_score, row["values"])))
        ours = [_own_row(run, metrics) for run in runs if run.metrics.dataset == dataset]
        if theirs:
            tables.append(PublishedTable(dataset=dataset, metrics=metrics, ours=ours, theirs=theirs))
    return tables


def _is_score(metric: str) -> bool:
    return metric in METRICS and METRICS[metric].share


def _own_row(run: Run, metrics: list[str]) -> OwnRow:
    means = {metric: interval.mean for metric, interval in run.metrics.metrics.items()}
    values = {metric: means[metric] * 100 for metric in metrics if metric in means}
    return OwnRow(run=run, method=run.metrics.method, model=run.metrics.model, values=values)


def text_tables(runs: Sequence[Run], rows: Sequence[Row], compared: Sequence[Difference]) -> list[Table]:
    """Rows of `scores` and `costs` as one table, and one for each of `differences`, for Markdown and LaTeX."""

    def cell(value: Cell | None) -> str:
        if value is None:
            return ""
        return f"{value['text']} [{value['interval']}]" if "interval" in value else value["text"]

    tables: list[Table] = [
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
