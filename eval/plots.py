"""Where the parts of the report's plots stand, in SVG units."""

import math
from typing import Any

WIDTH, HEIGHT = 412, 280
LEFT, RIGHT, TOP, BOTTOM = 44, 388, 10, 232


def scatter_plot(axis: str, points: list[dict[str, Any]]) -> dict[str, Any]:
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
    return {
        "axis": axis,
        **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "top": TOP, "bottom": BOTTOM},
        "x_ticks": [{"x": across(value), "label": f"{value:,.10g}"} for value in _ticks(x_step, x_end)],
        "y_ticks": [{"y": up(value), "label": f"{value:.10g}"} for value in _ticks(y_step, y_end)],
        "dots": dots,
    }


def _round_axis(values: list[float]) -> tuple[float, float]:
    """`(step, end)` of an axis from zero past the highest value, in at most five steps of 1, 2 or 5 times a power."""
    highest = max(values, default=0.0) or 1.0
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= highest * (1 - 1e-9))
    return step, step * math.ceil(highest / step - 1e-9)


def _ticks(step: float, end: float) -> list[float]:
    return [step * number for number in range(round(end / step) + 1)]
