"""The geometry of the report's plots, in SVG units."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation.report.headline import headline, shares
from notewriter.evaluation.report.runs import Run

WIDTH, HEIGHT = 412, 296
LEFT, RIGHT, TOP, BOTTOM = 44, 388, 26, 248
LINE = 14

EXPENSES: dict[str, Callable[[dict[str, float]], float]] = {
    "Tokens a question, prompt and completion": lambda costs: costs["prompt_tokens"] + costs["completion_tokens"],
    "Model calls a question": lambda costs: costs["calls"],
    "Retrievals a question": lambda costs: costs["retrievals"],
}
"""What the score is plotted against: the axis -> its value from the mean costs per question in metrics.json."""


class Tick(TypedDict):
    """A tick of a horizontal (`x`) or vertical (`y`) axis."""

    position: float
    label: str


class Bar(TypedDict):
    """A run's mean and its interval in a group of `interval_plot`."""

    y: float
    run: Run
    text: str
    mean: float
    low: float
    high: float


class Group(TypedDict):
    """A metric of `interval_plot`, with a bar for each run that has it."""

    metric: str
    rows: list[Bar]
    y: float


class IntervalPlot(TypedDict):
    """All that the template draws of `interval_plot`."""

    width: int
    height: int
    left: int
    right: int
    bottom: float
    groups: list[Group]
    ticks: list[Tick]


@dataclass(frozen=True)
class Point:
    """A run's score and what it cost per question."""

    run: Run
    cost: float
    score: Interval


@dataclass
class Dot:
    """A point of a scatter plot, its interval and the position of its name."""

    run: Run
    text: str
    x: float
    mean: float
    low: float
    high: float
    text_x: float
    anchor: str
    text_y: float = field(init=False)


class ScatterPlot(TypedDict):
    """All that the template draws of `scatter_plot`."""

    axis: str
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    dots: list[Dot]


def interval_plot(runs: Sequence[Run]) -> IntervalPlot | None:
    """A group for each metric, with a dot and its interval for each run.

    Only shares are shown, on one axis from zero; None where there are none.
    """
    metrics = shares(runs)
    if not metrics:
        return None
    left, right, width, row_height, gap = 200, 60, 680, 18, 18
    ends = [run.metrics.metrics[metric].high for run in runs for metric in metrics if metric in run.metrics.metrics]
    # The axis ends at the next tenth above the highest interval, so that small scores can be told apart.
    tenths = min(10, max(1, math.ceil(max(ends) * 10)))
    scale = (width - left - right) * 10 / tenths

    def across(value: float) -> float:
        return round(left + value * scale, 2)

    groups: list[Group] = []
    top = 8
    for metric in metrics:
        rows: list[Bar] = []
        for run in runs:
            if interval := run.metrics.metrics.get(metric):
                rows.append(
                    Bar(
                        y=top + row_height * len(rows) + row_height / 2,
                        run=run,
                        text=f"{interval.mean:.3f}",
                        mean=across(interval.mean),
                        low=across(interval.low),
                        high=across(interval.high),
                    )
                )
        groups.append(Group(metric=metric, rows=rows, y=top + row_height * len(rows) / 2))
        top += row_height * len(rows) + gap
    return IntervalPlot(
        width=width,
        height=top + 36,
        left=left,
        right=width - right,
        bottom=top - gap / 2,
        groups=groups,
        ticks=[Tick(position=across(tick / 10), label=f"{tick / 10:.1f}") for tick in range(tenths + 1)],
    )


def scatter_plots(runs: Sequence[Run]) -> list[ScatterPlot]:
    """The headline score against each of `EXPENSES`, with a dot for each run; empty without a headline score."""
    metric = headline(runs)
    scored = [(run, run.metrics.metrics[metric]) for run in runs if metric in run.metrics.metrics]
    return [
        scatter_plot(axis, [Point(run, value(run.metrics.per_question), interval) for run, interval in scored])
        for axis, value in EXPENSES.items()
        if scored
    ]


def scatter_plot(axis: str, points: Sequence[Point]) -> ScatterPlot:
    """A score in [0, 1] against a cost that is not negative: a dot with its interval for each point.

    Both axes start at zero and end at a round number above the highest value, so that small scores can be told apart.
    """
    x_step, x_end = round_axis([point.cost for point in points])
    y_step, y_end = round_axis([point.score.high for point in points])

    def across(value: float) -> float:
        return round(LEFT + value / x_end * (RIGHT - LEFT), 2)

    def up(value: float) -> float:
        return round(BOTTOM - value / y_end * (BOTTOM - TOP), 2)

    dots = []
    for point in points:
        x = across(point.cost)
        # Names point towards the middle, where there is room for them.
        right_of_dot = x <= (LEFT + RIGHT) / 2
        dots.append(
            Dot(
                run=point.run,
                text=f"{point.score.mean:.3f} at {point.cost:,.1f}",
                x=x,
                mean=up(point.score.mean),
                low=up(point.score.low),
                high=up(point.score.high),
                text_x=x + 10 if right_of_dot else x - 10,
                anchor="start" if right_of_dot else "end",
            )
        )
    _keep_apart(dots)
    return ScatterPlot(
        axis=axis,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=RIGHT,
        top=TOP,
        bottom=BOTTOM,
        x_ticks=[Tick(position=across(value), label=f"{value:,.10g}") for value in _ticks(x_step, x_end)],
        y_ticks=[Tick(position=up(value), label=f"{value:.10g}") for value in _ticks(y_step, y_end)],
        dots=dots,
    )


def _keep_apart(dots: list[Dot]) -> None:
    """Give each name a height: its dot's, or lower where names on the same side would overlap."""
    for anchor in ("start", "end"):
        lowest = 0.0
        for dot in sorted((dot for dot in dots if dot.anchor == anchor), key=lambda dot: dot.mean):
            lowest = dot.text_y = max(dot.mean, lowest + LINE)


def round_axis(values: list[float]) -> tuple[float, float]:
    """`(step, end)` of an axis from zero past the highest value, in at most five steps of 1, 2 or 5 times 10^n."""
    highest = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= highest * (1 - 1e-9))
    return step, step * math.ceil(highest / step - 1e-9)


def _ticks(step: float, end: float) -> list[float]:
    return [step * number for number in range(round(end / step) + 1)]
