"""Charts as SVG text: intervals by group, lines and dots on axes.

A chart is a file of its own or a part of a page, in light or dark as its reader prefers, and needs no script. Labels
are escaped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from markupsafe import Markup, escape

from notewriter.artifacts.metrics import Interval

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#5b5b5b",
    "#0b6b3a", "#b3261e",
)  # fmt: skip
"""Colours of series in turn; the first seven are Okabe and Ito's palette, which colour-blind readers can tell apart."""

WIDTH = 680
"""The width of a chart in SVG units."""

MAX_VALUE = 1e300
"""The end of an axis; points further out are cut."""

ROW, LINE, CHARACTER = 18, 14, 7
"""Height of a row and of a line of text, and the width of a character, about."""

ABOVE, BELOW, BEFORE, BEHIND = 30, 44, 60, 20
"""Room around the axes of a panel for its title, labels and ticks."""

_STYLE = """
.chart { background: #fff; font: 12.5px system-ui, sans-serif; }
.chart text { fill: #1c2126; stroke: none; } .chart .soft { fill: #5d6770; } .chart .title { font-weight: 600; }
.chart .grid { stroke: #dfe3e7; } .chart .zero { stroke: #5d6770; }
.chart .ring { fill: none; stroke: #1c2126; stroke-width: 2; }
%s
.chart line.interval { stroke-width: 3; stroke-opacity: .45; stroke-linecap: round; }
.chart polyline.curve { fill: none; stroke-width: 2; } .chart rect.bar { stroke: none; }
@media (prefers-color-scheme: dark) {
.chart { background: #14181b; } .chart text { fill: #e3e7ea; } .chart .soft { fill: #a0abb4; }
.chart .grid { stroke: #333b42; } .chart .zero { stroke: #a0abb4; }
.chart .ring { stroke: #e3e7ea; }
%s
}
"""


class Dot(NamedTuple):
    """A mean and its interval.

    Args:
        label: its name.
        interval: its mean with the interval.
        series: decides the colour.
        x: its place on the horizontal axis of a `Panel`.
        text: what is shown in a `Panel` when the pointer rests on it.
        ringed: whether a ring marks it.
    """

    label: str
    interval: Interval
    series: int = 0
    x: float = 0.0
    text: str = ""
    ringed: bool = False


@dataclass(frozen=True)
class Panel:
    """Lines and dots on two axes.

    Args:
        title: above the vertical axis.
        lines: name -> points `(x, y)`; each line has a colour of its own.
        dots: drawn over the lines.
        axis: the name of the horizontal axis.
        from_zero: whether the vertical axis includes zero.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    dots: Sequence[Dot] = ()
    axis: str = ""
    from_zero: bool = True


class Axis(NamedTuple):
    """An axis from `low` to `high`, both multiples of `step`, drawn from position `start` to `end`."""

    low: float
    high: float
    step: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The position of a value."""
        value = min(max(value, -MAX_VALUE), MAX_VALUE)
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Position and label of each tick."""
        values = [self.low + self.step * number for number in range(round((self.high - self.low) / self.step) + 1)]
        return [(self.at(value), f"{value:,.10g}") for value in values]


def axis(values: Iterable[float], start: float, end: float, from_zero: bool = True) -> Axis:
    """An axis that holds all values and ends at round numbers, in about five steps of 1, 2 or 5 times 10^n."""
    values = [*values, 0.0] if from_zero else [*values] or [0.0]
    # Differences of larger numbers are beyond a float's range, and those of nearly equal ones have no round steps.
    low, high = max(min(values), -MAX_VALUE), min(max(values), MAX_VALUE)
    if high - low <= max(abs(low), abs(high)) * 1e-12 + 1 / MAX_VALUE:
        high = low + (abs(low) or 1.0)
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= (high - low) * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(first * step, last * step, step, start, end)


def intervals(label: str, groups: Mapping[str, Sequence[Dot]], title: str, sign: str = "") -> str:
    """Groups of means with their intervals, a row each, on one axis with zero.

    Args:
        label: what the chart shows, for readers who do not see it.
        groups: heading -> means.
        title: the axis's.
        sign: `+` shows that of positive means too, as of differences.
    """
    dots = [dot for group in groups.values() for dot in group]
    left = 20 + CHARACTER * min(40, max((len(dot.label) for dot in dots), default=0))
    across = axis(_ends(dots), left, WIDTH - 80)
    content, top = [], 0
    for name, group in groups.items():
        content.append(_text(name, 8, top + 18, "start", "title"))
        top += 26
        for dot in group:
            y, mean = top + ROW / 2, dot.interval
            content += [
                _text(dot.label, left - 14, y, "end"),
                _tag(
                    "g",
                    _tag("title", f"{dot.label}: {mean.mean:{sign}.3f} [{mean.low:{sign}.3f}, {mean.high:{sign}.3f}]"),
                    _line("interval", dot.series, across.at(mean.low), across.at(mean.high), y, y),
                    _circle(dot.series, across.at(mean.mean), y, 5),
                ),
                _text(f"{mean.mean:{sign}.3f}", WIDTH - 64, y, "start", "soft"),
            ]
            top += ROW
    zero = across.at(0)
    grid = [*_vertical(across, 4, top + 8), _tag("line", class_="zero", x1=zero, x2=zero, y1=4, y2=top + 8)]
    caption = _text(title, (across.start + across.end) / 2, top + 44, "middle")
    return _svg(label, WIDTH, top + 56, *grid, *content, caption)


def panels(label: str, panels: Sequence[Panel], columns: int = 1) -> str:
    """Panels of lines and dots, row by row."""
    width, height = WIDTH / columns, 210.0 if columns == 1 else 260.0
    content = [
        _tag("g", *_panel(panel, width, height), transform=f"translate({number % columns * width:g} {top:g})")
        for number, panel in enumerate(panels)
        for top in [number // columns * height]
    ]
    return _svg(label, WIDTH, math.ceil(len(panels) / columns) * height, *content)


def _panel(panel: Panel, width: float, height: float) -> list[Markup]:
    points = [point for line in panel.lines.values() for point in line]
    ends = [y for _, y in points] + _ends(panel.dots)
    across = axis([x for x, _ in points] + [dot.x for dot in panel.dots], BEFORE, width - BEHIND)
    up = axis(ends, height - BELOW, ABOVE, panel.from_zero)
    content = [_text(panel.title, 8, ABOVE - 16, "start", "title"), *_vertical(across, up.end, up.start)]
    for y, label in up.ticks:
        content.append(_tag("line", class_="grid", x1=across.start, x2=across.end, y1=y, y2=y))
        content.append(_text(label, across.start - 8, y, "end", "soft"))
    lines = {name: line for name, line in panel.lines.items() if line}
    rooms = [max(90, 24 + CHARACTER * len(name)) for name in panel.lines]
    for number, (name, line) in enumerate(panel.lines.items()):
        places = " ".join(f"{_number(across.at(x))},{_number(up.at(y))}" for x, y in line)
        content += [_tag("polyline", class_=f"curve c{number}", points=places)] if line else []
        # A single point would be no line.
        content += [_circle(number, across.at(x), up.at(y), 2) for x, y in line if len(line) < 30]
        if len(lines) > 1 and line:
            x = width - BEHIND - sum(rooms[number:])
            content.append(_tag("rect", class_=f"bar {_colour(number)}", x=x, y=ABOVE - 21, width=11, height=11))
            content.append(_text(name, x + 16, ABOVE - 16))
    heights = _label_heights([(across.at(dot.x) <= width / 2, up.at(dot.interval.mean)) for dot in panel.dots])
    for dot, label_y in zip(panel.dots, heights, strict=True):
        x, side = across.at(dot.x), 1 if across.at(dot.x) <= width / 2 else -1
        content.append(
            _tag(
                "g",
                _tag("title", dot.text or dot.label),
                _line("interval", dot.series, x, x, up.at(dot.interval.low), up.at(dot.interval.high)),
                _circle(dot.series, x, up.at(dot.interval.mean), 4),
                *([_tag("circle", class_="ring", cx=x, cy=up.at(dot.interval.mean), r=8)] if dot.ringed else []),
                # Names point towards the middle, where there is room for them.
                _text(dot.label, x + 10 * side, label_y, "start" if side > 0 else "end"),
            )
        )
    return [*content, _text(panel.axis, (across.start + across.end) / 2, height - 8, "middle")]


def _ends(dots: Iterable[Dot]) -> list[float]:
    """The ends of the dots' intervals."""
    return [end for dot in dots for end in (dot.interval.low, dot.interval.high)]


def _label_heights(dots: Sequence[tuple[bool, float]]) -> list[float]:
    """Heights of the dots' names, given side and height of each dot: the dot's, or lower where names would overlap."""
    heights = [height for _, height in dots]
    for side in (True, False):
        lowest = -math.inf
        for number in sorted((n for n, dot in enumerate(dots) if dot[0] == side), key=heights.__getitem__):
            lowest = heights[number] = max(heights[number], lowest + LINE)
    return heights


def _svg(label: str, width: float, height: float, *content: Markup) -> str:
    return _tag(
        "svg",
        _tag("title", label),
        _tag("style", Markup(_STYLE % (_colours(), _colours(lighter=0.4)))),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        class_="chart",
        role="img",
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        width=width,
        height=height,
    )


def _colours(lighter: float = 0.0) -> str:
    """The rules of the series' colours, mixed with so much white."""
    rules = []
    for number, colour in enumerate(COLOURS):
        parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
        mixed = "#" + "".join(f"{round(part + (255 - part) * lighter):02x}" for part in parts)
        rules.append(f".chart .c{number} {{ fill: {mixed}; stroke: {mixed}; }}")
    return " ".join(rules)


def _vertical(across: Axis, top: float, bottom: float) -> list[Markup]:
    """The grid lines of a horizontal axis and their labels."""
    content = []
    for x, label in across.ticks:
        content.append(_tag("line", class_="grid", x1=x, x2=x, y1=top, y2=bottom))
        content.append(_text(label, x, bottom + 14, "middle", "soft"))
    return content


def _text(text: str, x: float, y: float, anchor: str = "start", style: str = "label") -> Markup:
    return _tag("text", text, class_=style, x=x, y=y, dy="0.35em", text_anchor=anchor)


def _line(style: str, series: int, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return _tag("line", class_=f"{style} {_colour(series)}", x1=x1, x2=x2, y1=y1, y2=y2)


def _circle(series: int, x: float, y: float, radius: float) -> Markup:
    return _tag("circle", class_=_colour(series), cx=x, cy=y, r=radius)


def _colour(series: int) -> str:
    return f"c{series % len(COLOURS)}"


def _tag(name: str, /, *content: str, **attributes: str | float) -> Markup:
    """An element; plain strings in it are escaped. `class_` is `class`, and `_` in names is `-`."""
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _number(value))
        for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>\n").format(name, written, Markup("").join(map(escape, content)))


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):.10g}"
