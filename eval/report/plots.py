"""Where the parts of the report's plots stand, in SVG units."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from eval.report.runs import Run
from eval.report.scores import headline, shares

Record = dict[str, Any]

WIDTH, HEIGHT = 412, 296
LEFT, RIGHT, TOP, BOTTOM = 44, 388, 26, 248
LINE = 14

EXPENSES: dict[str, Callable[[Record], float]] = {
    "Tokens a question, prompt and completion": lambda costs: float(
        costs["prompt_tokens"] + costs["completion_tokens"]
    ),
    "Model calls a question": lambda costs: float(costs["calls"]),
    "Retrievals a question": lambda costs: float(costs["retrievals"]),
}
"""What the score is held against: a plot's axis -> its value from the mean costs a question in metrics.json."""


def interval_plot(runs: Sequence[Run]) -> Record | None:
    """A group a metric, a dot with its interval a run.

    Only metrics that are shares go in, on one axis from zero; None where there are none.
    """
    metrics = shares(runs)
    if not metrics:
        return None
    left, right, width, row_height, gap = 200, 60, 680, 18, 18
    ends = [
        run.metrics["metrics"][metric]["high"] for run in runs for metric in metrics if metric in run.metrics["metrics"]
    ]
    # The axis ends at the next tenth above the highest interval, so that small scores can be told apart.
    tenths = min(10, max(1, math.ceil(max(ends) * 10)))

    scale = (width - left - right) * 10 / tenths

    groups: list[Record] = []
    top = 8
    for metric in metrics:
        rows: list[Record] = []
        for run in runs:
            if interval := run.metrics["metrics"].get(metric):
                rows.append(
                    {
                        "y": top + row_height * len(rows) + row_height / 2,
                        "run": run,
                        "text": f"{interval['mean']:.3f}",
                        **{key: round(left + interval[key] * scale, 2) for key in ("mean", "low", "high")},
                    }
                )
        groups.append({"metric": metric, "rows": rows, "y": top + row_height * len(rows) / 2})
        top += row_height * len(rows) + gap
    return {
        "width": width,
        "height": top + 36,
        "left": left,
        "right": width - right,
        "bottom": top - gap / 2,
        "groups": groups,
        "ticks": [{"x": round(left + tick / 10 * scale, 2), "label": f"{tick / 10:.1f}"} for tick in range(tenths + 1)],
    }


def scatter_plots(runs: Sequence[Run]) -> list[Record]:
    """The headline score against each of `EXPENSES`, a dot a run; none where there is no such score."""
    metric = headline(runs)
    scored = [(run, run.metrics["metrics"][metric]) for run in runs if metric in run.metrics["metrics"]]
    return [
        scatter_plot(
            axis,
            [{"run": run, "x": value(run.metrics["per_question"]), "interval": interval} for run, interval in scored],
        )
        for axis, value in EXPENSES.items()
        if scored
    ]


def scatter_plot(axis: str, points: list[Record]) -> Record:
    """A score in [0, 1] against a cost: a dot with its interval for each point.

    A point has `run` (who it is), `x` (the cost, not negative) and `interval` (`mean`, `low` and `high`). Both axes
    start at zero and end at a round number above the highest value, so that small scores can be told apart.
    """
    x_step, x_end = _round_axis([point["x"] for point in points])
    y_step, y_end = _round_axis([point["interval"]["high"] for point in points])

    def across(value: float) -> float:
        return round(LEFT + value / x_end * (RIGHT - LEFT), 2)

    def up(value: float) -> float:
        return round(BOTTOM - value / y_end * (BOTTOM - TOP), 2)

    middle = (LEFT + RIGHT) / 2
    dots = []
    for point in points:
        x = across(point["x"])
        # The name stands towards the middle, where there is room for it.
        side = {"text_x": x + 10, "anchor": "start"} if x <= middle else {"text_x": x - 10, "anchor": "end"}
        interval = {key: up(point["interval"][key]) for key in ("mean", "low", "high")}
        text = f"{point['interval']['mean']:.3f} at {point['x']:,.1f}"
        dots.append({"run": point["run"], "x": x, "text": text, **interval, **side})
    _keep_apart(dots)
    return {
        "axis": axis,
        **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
        "x_ticks": [{"x": across(value), "label": f"{value:,.10g}"} for value in _ticks(x_step, x_end)],
        "y_ticks": [{"y": up(value), "label": f"{value:.10g}"} for value in _ticks(y_step, y_end)],
        "dots": dots,
    }


def _keep_apart(dots: list[Record]) -> None:
    """Give each dot's name a height, `text_y`: the dot's own, or lower where names on its side would overlap."""
    for anchor in ("start", "end"):
        lowest = 0.0
        for dot in sorted((dot for dot in dots if dot["anchor"] == anchor), key=lambda dot: dot["mean"]):
            lowest = dot["text_y"] = max(dot["mean"], lowest + LINE)


def _round_axis(values: list[float]) -> tuple[float, float]:
    """`(step, end)` of an axis from zero past the highest value, in at most five steps of 1, 2 or 5 times a power."""
    highest = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= highest * (1 - 1e-9))
    return step, step * math.ceil(highest / step - 1e-9)


def _ticks(step: float, end: float) -> list[float]:
    return [step * number for number in range(round(end / step) + 1)]
