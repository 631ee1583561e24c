"""The report's tables and charts: scores, differences, costs, kinds of questions."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from notewriter.artifacts.costs import COUNTED
from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import COSTS, Prediction
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import CEILING, OTHER
from notewriter.evaluation.notes import WORDS
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground.errors import UserError
from notewriter.pages.charts import Dot, Panel, intervals, panels
from notewriter.pages.tables import Cell, Table
from notewriter.results.compare import Comparison, Paired, compare_uncorrected, corrected, p_value_text
from notewriter.results.measures import headline, measured, shares
from notewriter.results.runs import Run
from notewriter.results.without_a_model import against_constants, against_controls, beside_table

KINDS = {"type": "Type", "hops": "Hops"}
"""Question metadata by which the score is broken down; a value such as `a | b` is of both kinds."""

MOST_KINDS = 20
"""At most so many rows for each of `KINDS`: the kinds with the most questions."""

EXPENSES: dict[str, Callable[[dict[str, float]], float]] = {
    "Tokens a question, prompt and completion": lambda costs: costs["prompt_tokens"] + costs["completion_tokens"],
    "Model calls a question": lambda costs: costs["calls"],
    "Retrievals a question": lambda costs: costs["retrievals"],
}
"""What the score is plotted against: the axis -> its value from the mean costs per question in metrics.json."""

NO_SIGN = Markup()
SMALL = Markup('<span class="interval">{}</span>')


class Difference(NamedTuple):
    """A run's differences from the first run by metric, or the `reason` why there are none."""

    run: Run
    reason: str
    comparison: Comparison


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
    return [Difference(*each) for each in zip(runs[1:], reasons, corrected(comparisons), strict=True)]


def difference_table(difference: Difference, runs: Sequence[Run]) -> Table:
    """A row for each score and cost."""
    note = difference.reason or (
        "an asterisk marks an interval that excludes zero; p is corrected for the number of scores"
        + (" of all runs here" if len(runs) > 2 else "")
    )
    rows = []
    for metric, paired in difference.comparison.items():
        change, places = paired.difference, metric_named(metric).decimals
        text = f"{change.mean:+,.{places}f}"
        rows.append(
            [
                _name(metric),
                Cell(f"{text} *", _sign(metric, paired) + text) if change.excludes_zero else text,
                _range(change, places, "+"),
                p_value_text(metric, paired.p_value, paired.at_floor),
                str(paired.questions),
            ]
        )
    caption = f"{difference.run.label} minus {runs[0].label}, paired by question; {note}"
    return caption, ["", "Difference", "95% interval", "p (Holm)", "Questions"], rows


def _range(interval: Interval, places: int, sign: str = "") -> str:
    return f"{interval.low:{sign},.{places}f} to {interval.high:{sign},.{places}f}"


def _sign(metric: str, paired: Paired) -> Markup:
    """An arrow: green for better, red for worse, plain where neither direction is better; empty if zero is possible."""
    difference, better = paired.difference, metric_named(metric).better
    if not difference.excludes_zero:
        return NO_SIGN
    rises = difference.mean > 0
    kind = "count" if better is None else "gain" if rises == (better == "higher") else "loss"
    hint = f"against the first run: {difference.text(metric_named(metric).decimals, '+')}, which excludes zero"
    return Markup('<span class="sure {}" title="{}">{}</span> ').format(kind, hint, "▲" if rises else "▼")


def _name(metric: str) -> Cell:
    declared = metric_named(metric)
    hint = ": ".join(filter(None, (metric, declared.meaning)))
    return Cell(declared.label, Markup('<span title="{}">{}</span>').format(hint, declared.label))


def scores(runs: Sequence[Run], compared: Sequence[Difference]) -> Table:
    """A row for each score, with its intervals, and for each cost; on a page with signs of the differences."""
    signs = {
        (each.run.label, metric): _sign(metric, paired)
        for each in compared
        for metric, paired in each.comparison.items()
    }
    rows: list[list[str]] = []
    for metric in measured(runs):
        row: list[str] = [_name(metric)]
        for run in runs:
            interval = run.metrics.metrics.get(metric)
            row.append(_score(interval, metric, signs.get((run.label, metric), NO_SIGN)))
        rows.append(row)
        if any(bands := [_band(run, metric) for run in runs]):
            rows.append(["without a model", *bands])
    for cost in COSTS:
        texts = [f"{run.metrics.per_question[cost]:,.{metric_named(cost).decimals}f}" for run in runs]
        cells = [
            Cell(text, signs.get((run.label, cost), NO_SIGN) + text) for run, text in zip(runs, texts, strict=True)
        ]
        rows.append([_name(cost), *cells])
    caption = "Scores with 95% bootstrap intervals, and mean costs a question"
    return caption, ["", *(run.name for run in runs)], rows


def _band(run: Run, metric: str) -> str:
    """What notes without a model had of a metric, lowest to highest, and the ceiling; empty where they were not scored.

    Constant answers are as good a band for the scores of answers.
    """
    controls = run.metrics.controls or {}
    means = {name: scores[metric].mean for name, scores in controls.items() if metric in scores}
    ceiling, _ = means.pop(CEILING, None), means.pop(OTHER, None)
    if not means or metric == WORDS:
        return ""
    ends = " to ".join(dict.fromkeys(f"{end:.3f}" for end in (min(means.values()), max(means.values()))))
    return ends if ceiling is None else f"{ends}; {CEILING} {ceiling:.3f}"


def without_a_model(runs: Sequence[Run]) -> list[Table]:
    """A table for each run that was evaluated with `--controls`: its notes and answers beside those of no model."""
    tables: list[Table] = []
    for run in runs:
        if run.metrics.controls:
            try:
                controls, constants = against_controls([run.folder]), against_constants([run.folder])
            except UserError as error:
                tables.append((f"{run.label}: not shown; {error}", [""], []))
                continue
            for caption, against in (("notes", controls), ("constant answers", constants)):
                if against:
                    tables.append(beside_table(f"{run.label} beside {caption} without a model", against, run.label))
    return tables


def _score(interval: Interval | None, metric: str = "", sign: Markup = NO_SIGN) -> Cell:
    """A mean with its interval; empty where there is none."""
    if interval is None:
        return Cell("", Markup('<span class="soft">not measured</span>'))
    places = metric_named(metric).decimals
    mean, ends = f"{interval.mean:,.{places}f}", _range(interval, places)
    return Cell(f"{mean} [{ends}]", sign + mean + SMALL.format(ends))


def kinds(runs: Sequence[Run]) -> Table:
    """The headline score broken down by kind of question; no row without kinds."""
    metric = headline(runs)
    rows: list[list[str]] = []
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
            most |= Counter({kind: len(scores) for kind, scores in by_kind.items()})
        for kind in sorted(kind for kind, _ in most.most_common(MOST_KINDS)):
            cells = [_score(bootstrap_interval(each[kind]) if kind in each else None) for each in values]
            rows.append([f"{title}: {kind}", str(most[kind]), *cells])
    caption = f"{metric_named(metric).label} by kind of question" if metric else ""
    return caption, ["", "Questions", *(run.name for run in runs)], rows


def _kinds_of(prediction: Prediction, key: str) -> list[str]:
    value = prediction.metadata.get(key)
    if not isinstance(value, str | int):
        return []
    return list(dict.fromkeys(kind for kind in map(str.strip, str(value).split("|")) if kind))


def stage_costs(runs: Sequence[Run]) -> Table:
    """What each run and each of its stages cost in all, and what judging it did."""
    rows: list[list[str]] = []
    for run in runs:
        for costs, label in ((run.costs, run.label), (run.judging, f"{run.label}: judging")):
            if costs:
                bold = Markup('<span class="dot" style="--run: {}"></span><b>{}</b>').format(run.colour, label)
                rows.append(
                    [
                        Cell(label, bold),
                        *(f"{getattr(costs.total, key):,.0f}" for key in COUNTED),
                        f"{costs.compression:,.2f}" if costs.compression else "",
                        f"{costs.money:,.4f}" if costs.money is not None else "",
                        "; ".join(f"{event.replace('_', ' ')}: {count:,}" for event, count in costs.counts.items()),
                    ]
                )
                for stage, sums in costs.stages.items():
                    rows.append([stage, *(f"{getattr(sums, key):,.0f}" for key in COUNTED), "", "", ""])
    header = ["Run, stage (role)", *map(_name, COUNTED), "Compression", "Money", "Counted"]
    return "Costs by stage", header, rows


def interval_chart(runs: Sequence[Run]) -> Markup:
    """A group for each metric that is a share, with a dot and its interval for each run; empty without any."""
    groups = {
        metric_named(metric).label: [
            _dot(run, interval) for run in runs if (interval := run.metrics.metrics.get(metric))
        ]
        for metric in shares(runs)
    }
    label = "Mean of each score by run, with its 95% interval; the numbers are in the table of scores"
    return Markup(intervals(label, groups, "Mean over the questions, with its 95% interval") if groups else "")


def expense_chart(runs: Sequence[Run]) -> Markup:
    """The headline score against each of `EXPENSES`, with a dot for each run; empty without a headline score."""
    metric = headline(runs)
    if metric is None:
        return Markup()
    shown = []
    for axis, expense in EXPENSES.items():
        dots = []
        for run in runs:
            if interval := run.metrics.metrics.get(metric):
                cost = expense(run.metrics.per_question)
                text = f"{run.label}: {interval.mean:.3f} at {cost:,.1f}"
                dots.append(_dot(run, interval)._replace(x=cost, text=text))
        shown.append(Panel(metric_named(metric).label, dots=dots, axis=axis))
    label = f"{metric_named(metric).label} of each run with its 95% interval, against: {', '.join(EXPENSES)}"
    return Markup(panels(label, shown, columns=2))


def _dot(run: Run, interval: Interval) -> Dot:
    return Dot(run.label, interval.mean, interval.low, interval.high, series=run.number)
