"""The text of comparisons: means, differences with their intervals, and p-values."""

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from notewriter.evaluation.catalogue import metric_named
from notewriter.pages.tables import Marked, Table
from notewriter.results.compare import Comparison, Paired, is_sure, p_value_text

EXPLANATION = (
    "An asterisk marks a paired difference whose interval excludes zero and whose p, which costs lack, is at most "
    "0.05. p: McNemar's exact test where scores are 0 or 1, else a permutation test, corrected for the number of "
    "scores that differ (Holm)"
)
"""The remark below or above every table of differences."""


def named(name: str) -> Marked:
    """The label of a score or cost; on a page with its name in files and its meaning as a tooltip."""
    metric = metric_named(name)
    hint = ": ".join(filter(None, (name, metric.meaning)))
    return Marked(metric.label, Markup('<span title="{}">{}</span>').format(hint, metric.label))


def mean_text(name: str, mean: float, deviation: float | None = None) -> str:
    """A mean, with its standard deviation over seeds if there are several."""
    places = metric_named(name).decimals
    return f"{mean:,.{places}f}" + ("" if deviation is None else f" ± {deviation:,.{places}f}")


def sign(name: str, paired: Paired | None) -> Markup:
    """An arrow: green for better, red for worse, plain where neither direction is better; empty where unsure."""
    if paired is None or not is_sure(name, paired):
        return Markup()
    difference, metric = paired.difference, metric_named(name)
    rises = difference.mean > 0
    kind = "count" if metric.better is None else "gain" if rises == (metric.better == "higher") else "loss"
    hint = f"{difference.text(metric.decimals, '+')}, which excludes zero"
    return Markup('<span class="sure {}" title="{}">{}</span> ').format(kind, hint, "▲" if rises else "▼")


def difference_text(name: str, paired: Paired) -> Marked:
    """A difference with its interval, and an asterisk where it is sure (`is_sure`); on a page with its `sign`."""
    text = paired.difference.text(metric_named(name).decimals, "+")
    return Marked(text + (" *" if is_sure(name, paired) else ""), sign(name, paired) + text)


def comparison_table(
    caption: str,
    rows: Iterable[tuple[str, str, Paired]],
    sides: tuple[str, str] = ("before", "after"),
) -> Table:
    """A row for each comparison.

    Args:
        caption: the table's.
        rows: the label of a row, the score or cost, and its values on both sides.
        sides: what both sides are called.
    """
    lines = [
        [
            label,
            *(mean_text(name, *side) for side in zip((each.before, each.after), each.deviations, strict=True)),
            *_tested(name, each),
            str(each.questions),
        ]
        for label, name, each in rows
    ]
    return caption, ["", *sides, "difference [95% interval]", "p (Holm)", "questions"], lines


def beside_table(caption: str, against: Mapping[str, Comparison], label: str) -> Table:
    """A row for each control, and for each score its mean, and the run's minus it with interval and p-value.

    Args:
        caption: the table's.
        against: of `against_controls` or `against_constants`, `corrected_scores`.
        label: the name of the run.
    """
    names = list(dict.fromkeys(name for comparison in against.values() for name in comparison))
    scores = [name for name in names if metric_named(name).better is not None]
    header = [""]
    for name in names:
        header += [name, f"{label} minus it [95% interval]", "p"] if name in scores else [name]

    rows = []
    for control, comparison in against.items():
        row = [control]
        for name in names:
            each = comparison.get(name)
            row.append(mean_text(name, each.before) if each else "")
            if name in scores:
                row += _tested(name, each) if each else ["", ""]
        rows.append(row)
    return caption, header, rows


def _tested(name: str, each: Paired) -> list[str]:
    """A difference and its p-value."""
    return [difference_text(name, each), p_value_text(name, each.p_value, each.at_floor)]
