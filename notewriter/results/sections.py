"""The sections of the report: the runs, scores, differences, notes without a model, costs, kinds of questions."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from notewriter.artifacts.costs import StageCosts
from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import COSTS, Prediction
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import CEILING, OTHER, SENTENCES, SHOWN
from notewriter.evaluation.notes import WORDS
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground.errors import UserError
from notewriter.pages.charts import Dot, Panel, intervals, panels
from notewriter.pages.tables import Marked, Table
from notewriter.results.compare import Comparison, compare_uncorrected, corrected
from notewriter.results.measures import headline, measured, shares
from notewriter.results.page import Part, Plot, Section
from notewriter.results.runs import Run
from notewriter.results.tables import EXPLANATION, beside_table, comparison_table, mean_text, named, sign
from notewriter.results.verdict import verdict
from notewriter.results.without_a_model import Beside, beside

KINDS = {"type": "Type", "hops": "Hops"}
"""Question metadata by which the score is broken down; a value such as `a | b` is of both kinds."""

MOST_KINDS = 20
"""At most so many rows for each of `KINDS`: the kinds with the most questions."""

EXPENSES: dict[str, Callable[[dict[str, float]], float]] = {
    "Tokens a question, prompt and completion": lambda costs: costs["prompt_tokens"] + costs["completion_tokens"],
    "Model calls a question": lambda costs: costs["calls"],
    "Retrievals a question": lambda costs: costs["retrievals"],
}
"""The axes that the score is plotted against -> their values from the mean costs per question in metrics.json."""

SMALL = Markup('<span class="interval">{}</span>')


class AgainstFirst(NamedTuple):
    """A run's differences from the first run by metric, or the `reason` why there are none."""

    run: Run
    reason: str
    comparison: Comparison


def sections_of(runs: Sequence[Run]) -> tuple[list[str], list[Section]]:
    """A sentence on the result of each run, and the sections about them; the first is the baseline."""
    compared = differences(runs)
    # A run that was evaluated without `--controls` stands alone.
    others = [beside([run]) if run.metrics.controls else Beside({}, {}) for run in runs]
    metric = metric_named(headline(runs) or "")
    kinds_table, costs_table = kinds(runs), stage_costs(runs)
    sections = [
        Section("runs", "Runs", [_overview(runs)], as_text=False, texts=7),
        Section("scores", "Scores", [scores(runs, compared), *interval_chart(runs)], beside=True),
        Section("differences", f"Differences from {runs[0].label}", _differences(compared, runs), beside=True),
        Section("without", "Without a model", without_a_model(runs, others)),
        Section("expenses", f"{metric.label} against cost and steps", expense_chart(runs), as_text=False),
        Section("kinds", "Kinds of questions", [kinds_table] if kinds_table[2] else [], as_text=False),
        Section("costs", "Costs by stage", [COSTS_TEXT, costs_table] if costs_table[2] else [], as_text=False),
    ]
    return verdicts(runs, compared, others), sections


def _overview(runs: Sequence[Run]) -> Table:
    """A row for each run: its model, method and questions, with its whole configuration."""
    header = [
        "Run", "Dataset", "Method", "Model", "Scored by the rules of",
        "Cut replies", "Configuration", "Questions", "Errors",
    ]  # fmt: skip
    configuration = Markup(
        '<details><summary class="mono">{}</summary><pre class="mono">{}</pre>'
        '<span class="soft">notewriter {}</span></details>'
    )
    rows: list[list[str]] = []
    for run in runs:
        of, errors = run.metrics, str(run.metrics.errors)
        rows.append(
            [
                run.name, of.dataset, of.method, of.model, of.family, run.cut,
                Marked(of.config_hash[:12], configuration.format(of.config_hash[:12], run.config, of.version)),
                str(of.questions),
                Marked(errors, Markup('<span class="sure loss">{}</span>').format(errors)) if of.errors else errors,
            ]
        )  # fmt: skip
    return "", header, rows


def differences(runs: Sequence[Run]) -> list[AgainstFirst]:
    """For each run but the first, its paired differences from the first.

    p-values are corrected for the scores of all runs together, since these are read together.
    """
    found: list[AgainstFirst] = []
    for run in runs[1:]:
        try:
            found.append(AgainstFirst(run, "", compare_uncorrected(runs[:1], [run])))
        except UserError as error:
            found.append(AgainstFirst(run, str(error), {}))
    together = corrected([each.comparison for each in found])
    return [each._replace(comparison=comparison) for each, comparison in zip(found, together, strict=True)]


def _differences(compared: Sequence[AgainstFirst], runs: Sequence[Run]) -> list[Part]:
    parts: list[Part] = [difference_table(each, runs) for each in compared]
    text = f"Paired by question. {EXPLANATION}" + (", of all runs on this page together." if len(runs) > 2 else ".")
    return [text, *parts] if parts else []


def difference_table(difference: AgainstFirst, runs: Sequence[Run]) -> Table:
    """A row for each score and cost."""
    rows = ((named(name), name, paired) for name, paired in difference.comparison.items())
    caption = f"{difference.run.label} minus {runs[0].label}"
    if difference.reason:
        caption += f". No comparison: {difference.reason}"
    return comparison_table(caption, rows, (runs[0].label, difference.run.label))


def scores(runs: Sequence[Run], compared: Sequence[AgainstFirst]) -> Table:
    """A row for each score, with its intervals, and for each cost; on a page with signs of the differences."""
    paired: list[Comparison] = [{}, *(each.comparison for each in compared)]
    rows: list[list[str]] = []
    for name in measured(runs):
        signs = [sign(name, each.get(name)) for each in paired]
        found = (run.metrics.metrics.get(name) for run in runs)
        rows.append([named(name), *(_score(each, name, mark) for each, mark in zip(found, signs, strict=True))])
        if any(bands := [_band(run, name) for run in runs]):
            rows.append(["without a model", *bands])
    for name in COSTS:
        signs = [sign(name, each.get(name)) for each in paired]
        texts = [mean_text(name, run.metrics.per_question[name]) for run in runs]
        rows.append([named(name), *(Marked(text, mark + text) for text, mark in zip(texts, signs, strict=True))])
    caption = "Scores with 95% bootstrap intervals, and mean costs a question"
    return caption, ["", *(run.name for run in runs)], rows


def _score(interval: Interval | None, metric: str = "", sign: str = "") -> Marked:
    """A mean with its interval; empty where there is none."""
    if interval is None:
        return Marked("", Markup('<span class="soft">not measured</span>'))
    places = metric_named(metric).decimals
    mean, ends = f"{interval.mean:,.{places}f}", f"{interval.low:,.{places}f} to {interval.high:,.{places}f}"
    return Marked(f"{mean} [{ends}]", Markup(sign) + mean + SMALL.format(ends))


def _band(run: Run, metric: str) -> str:
    """The range of notes without a model in a metric, and the ceiling; empty where they were not scored.

    Constant answers are as good a band for the scores of answers.
    """
    controls = run.metrics.controls or {}
    means = {name: scores[metric].mean for name, scores in controls.items() if metric in scores}
    ceiling, _ = means.pop(CEILING, None), means.pop(OTHER, None)
    if not means or metric == WORDS:
        return ""
    ends = " to ".join(dict.fromkeys(f"{end:.3f}" for end in (min(means.values()), max(means.values()))))
    return ends if ceiling is None else f"{ends}; {CEILING} {ceiling:.3f}"


def verdicts(runs: Sequence[Run], compared: Sequence[AgainstFirst], beside: Sequence[Beside]) -> list[str]:
    """For each run but the first, whether it is better than the first and than notes without a model."""
    sentences = [
        verdict(runs[0], each.run, each.comparison, own.notes) for each, own in zip(compared, beside[1:], strict=True)
    ]
    labels = [f"{each.run.label}: " if len(compared) > 1 else "" for each in compared]
    return [f"{label}{each}" for label, each in zip(labels, sentences, strict=True) if each]


def without_a_model(runs: Sequence[Run], beside: Sequence[Beside]) -> list[Part]:
    """A table for each run that was evaluated with `--controls`: its notes and answers beside those of no model."""
    tables: list[Part] = []
    for run, own in zip(runs, beside, strict=True):
        if own.reason:
            tables.append((f"{run.label}: not shown; {own.reason}", [""], []))
        for what, each in (("notes", own.notes), ("constant answers", own.answers)):
            if each:
                tables.append(beside_table(f"{run.label} beside {what} without a model", each, run.label))
    rules = "; ".join(f"{name}: {SENTENCES[name]}" for name in SHOWN)
    text = (
        "Sentences of the passages that the run found, cut at as many words as its note of the question; more words "
        "hold more facts whoever wrote them. Of each control the means, and the run's minus them, paired by question; "
        f"p is corrected in each table (Holm). {rules}."
    )
    return [text, *tables] if tables else []


def kinds(runs: Sequence[Run]) -> Table:
    """The headline score broken down by kind of question; no row without kinds."""
    metric = headline(runs) or ""
    rows: list[list[str]] = []
    for key, title in KINDS.items():
        values: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in runs])
        for number, run in enumerate(runs):
            for each in run.predictions.values():
                for kind in _kinds_of(each, key) if metric in each.scores else ():
                    values[kind][number].append(each.scores[metric])
        most = Counter({kind: max(map(len, of_runs)) for kind, of_runs in values.items()}).most_common(MOST_KINDS)
        for kind, count in sorted(most):
            cells = [_score(bootstrap_interval(each) if each else None) for each in values[kind]]
            rows.append([f"{title}: {kind}", str(count), *cells])
    caption = f"{metric_named(metric).label} by kind of question" if metric else ""
    return caption, ["", "Questions", *(run.name for run in runs)], rows


def _kinds_of(prediction: Prediction, key: str) -> list[str]:
    value = prediction.metadata.get(key)
    if not isinstance(value, str | int):
        return []
    return list(dict.fromkeys(kind for kind in map(str.strip, str(value).split("|")) if kind))


COSTS_TEXT = (
    "Sums over all questions. Seconds are those in which at least one of the calls was under way. Compression: words "
    "retrieved per word of the text that the answer was written from. The cost of judging a run is listed separately."
)
COUNTED = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")
"""The costs that are summed for each stage and role."""


def stage_costs(runs: Sequence[Run]) -> Table:
    """The costs of each run, of each of its stages, and of judging it."""
    rows: list[list[str]] = []
    for run in runs:
        for costs, label in ((run.costs, run.label), (run.judging, f"{run.label}: judging")):
            if costs:
                bold = Markup('<span class="dot" style="--run: {}"></span><b>{}</b>').format(run.colour, label)
                rows.append(
                    [
                        Marked(label, bold),
                        *_counted(costs.total),
                        f"{costs.compression:,.2f}" if costs.compression else "",
                        f"{costs.money:,.4f}" if costs.money is not None else "",
                        "; ".join(f"{event.replace('_', ' ')}: {count:,}" for event, count in costs.counts.items()),
                    ]
                )
                for stage, sums in costs.stages.items():
                    rows.append([stage, *_counted(sums), "", "", ""])
    header = ["Run, stage (role)", *map(named, COUNTED), "Seconds", "Compression", "Money", "Counted"]
    return "", header, rows


def _counted(sums: StageCosts) -> list[str]:
    seconds = "" if sums.wall_seconds is None else f"{sums.wall_seconds:,.0f}"
    return [*(f"{getattr(sums, key):,}" for key in COUNTED), seconds]


def interval_chart(runs: Sequence[Run]) -> list[Part]:
    """A group for each metric that is a share, with a dot and its interval for each run; none without any."""
    groups = {
        metric_named(metric).label: [
            Dot(run.label, run.metrics.metrics[metric], run.number) for run in runs if metric in run.metrics.metrics
        ]
        for metric in shares(runs)
    }
    if not groups:
        return []
    label = "Mean of each score by run, with its 95% interval; the numbers are in the table of scores"
    return [Plot("scores", intervals(label, groups, "Mean over the questions, with its 95% interval"))]


def expense_chart(runs: Sequence[Run]) -> list[Part]:
    """The headline score against each of `EXPENSES`, with a dot for each run; none without a headline score."""
    metric = headline(runs)
    if metric is None:
        return []
    shown = []
    for axis, expense in EXPENSES.items():
        dots = []
        for run in runs:
            if interval := run.metrics.metrics.get(metric):
                cost = expense(run.metrics.per_question)
                text = f"{run.label}: {interval.mean:.3f} at {cost:,.1f}"
                dots.append(Dot(run.label, interval, run.number, cost, text))
        shown.append(Panel(metric_named(metric).label, dots=dots, axis=axis))
    label = f"{metric_named(metric).label} of each run with its 95% interval, against: {', '.join(EXPENSES)}"
    return [Plot("expenses", panels(label, shown, columns=2))]
