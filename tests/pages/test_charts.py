from xml.etree import ElementTree

import pytest

from notewriter.artifacts.metrics import Interval
from notewriter.pages.charts import COLOURS, LINE, Dot, Panel, axis, intervals, panels

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text") if text.text]


def circles(svg):
    return [
        (float(circle.get("cx")), float(circle.get("cy")))
        for circle in ElementTree.fromstring(svg).iter(f"{SVG}circle")
    ]


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ([3], ["0", "1", "2", "3"]),
        ([5], ["0", "1", "2", "3", "4", "5"]),
        ([7.3], ["0", "2", "4", "6", "8"]),
        ([12345], ["0", "5,000", "10,000", "15,000"]),
        ([-0.1, 0.3], ["-0.1", "0", "0.1", "0.2", "0.3"]),
    ],
)
def test_an_axis_ends_at_the_next_round_step(values, labels):
    assert [label for _, label in axis(values, 0, 100).ticks] == labels


def test_an_axis_that_need_not_include_zero_shows_the_values_alone():
    assert next(label for _, label in axis([0.72, 0.78], 0, 100, from_zero=False).ticks) == "0.72"


def test_intervals_are_rows_of_groups_on_one_axis():
    svg = intervals(
        "two runs", {"Token F1": [Dot("a", Interval(0.25, 0.2, 0.3)), Dot("<b>", Interval(0.5, 0.4, 0.5), 1)]}, "mean"
    )
    assert {"Token F1", "a", "<b>", "0.250", "0.500", "mean"} <= set(texts(svg))
    (left, first), (right, second) = circles(svg)
    assert left < right and first < second
    assert "<b>" not in svg and "c0" in svg and "c1" in svg


def test_differences_have_signs_and_lie_on_both_sides_of_zero():
    svg = intervals(
        "what",
        {"near": [Dot("worse", Interval(-0.2, -0.35, -0.05)), Dot("better", Interval(0.1, 0.02, 0.18))]},
        "",
        sign="+",
    )
    assert {"-0.4", "0", "0.2", "-0.200", "+0.100"} <= {*texts(svg)}
    (worse, _), (better, _) = circles(svg)
    zero = next(line for line in ElementTree.fromstring(svg).iter(f"{SVG}line") if line.get("class") == "zero")
    assert worse < float(zero.get("x1")) < better


def test_dots_lie_inside_the_axes_and_their_names_towards_the_middle():
    dots = [
        Dot("a", Interval(0.0, 0, 0), x=0),
        Dot("b", Interval(0.04, 0.02, 0.04), x=2),
        Dot("c", Interval(0.05, 0.02, 0.05), x=10),
    ]
    svg = panels("cost", [Panel("F1", dots=dots, axis="Calls")])
    root = ElementTree.fromstring(svg)
    grid = [line for line in root.iter(f"{SVG}line") if line.get("class") == "grid"]
    assert circles(svg)[0][0] == min(float(line.get("x1")) for line in grid)
    assert circles(svg)[2][0] == max(float(line.get("x1")) for line in grid)
    names = {text.text: text.get("text-anchor") for text in root.iter(f"{SVG}text") if text.text in ("a", "b", "c")}
    assert names == {"a": "start", "b": "start", "c": "end"}


def test_names_of_dots_at_one_height_stand_below_each_other():
    dots = [Dot(name, Interval(0.5, 0.5, 0.5), x=x) for name, x in (("a", 1), ("b", 1.1), ("c", 10))]
    root = ElementTree.fromstring(panels("cost", [Panel("F1", dots=dots)]))
    a, b, c = (float(text.get("y")) for text in root.iter(f"{SVG}text") if text.text in ("a", "b", "c"))
    assert (b - a, c) == (LINE, a)


def test_lines_have_colours_and_names_of_their_own_and_a_ring_marks_a_dot():
    lines = {"training": [(0, 1.0), (10, 0.5)], "evaluation": [(10, 0.7), (20, 0.6)], "nothing": []}
    best = Dot("", Interval(0.5, 0.4, 0.6), x=10, text="step 10", ringed=True)
    svg = panels("curves", [Panel("Loss", lines, [best], "step")])
    curves = [line.get("class") for line in ElementTree.fromstring(svg).iter(f"{SVG}polyline")]
    assert curves == ["curve c0", "curve c1"]
    assert {"training", "evaluation"} <= set(texts(svg)) and "nothing" not in texts(svg)
    assert svg.count('class="ring"') == 1 and "step 10" in svg


@pytest.mark.parametrize("colour", COLOURS)
def test_a_chart_has_every_colour_in_light_and_lighter_in_the_dark(colour):
    svg = panels("one", [])
    assert svg.index(colour) < svg.index("prefers-color-scheme: dark")
