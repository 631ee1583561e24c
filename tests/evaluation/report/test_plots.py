import pytest

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation.report.plots import BOTTOM, LEFT, LINE, RIGHT, TOP, Point, scatter_plot


def point(x, mean):
    return Point("run", x, Interval(mean, low=mean / 2, high=mean))


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (3, ["0", "1", "2", "3"]),
        (5, ["0", "1", "2", "3", "4", "5"]),
        (7.3, ["0", "2", "4", "6", "8"]),
        (12345, ["0", "5,000", "10,000", "15,000"]),
    ],
)
def test_an_axis_ends_at_the_next_round_step(highest, labels):
    plot = scatter_plot("Calls", [point(highest, 0.5)])
    assert [tick["label"] for tick in plot["x_ticks"]] == labels


def test_dots_lie_inside_the_axes_and_their_intervals_around_them():
    plot = scatter_plot("Calls", [point(0, 0.0), point(2, 0.04), point(10, 0.05)])
    first, middle, last = plot["dots"]
    assert (first.x, first.mean) == (LEFT, BOTTOM)
    assert (last.x, last.mean, last.low) == (RIGHT, TOP, (BOTTOM + TOP) / 2)
    assert middle.mean == middle.high < middle.low
    assert [dot.anchor for dot in plot["dots"]] == ["start", "start", "end"]


def test_names_of_dots_at_one_height_stand_below_each_other():
    plot = scatter_plot("Calls", [point(1, 0.5), point(1.1, 0.5), point(1.2, 0.1), point(10, 0.5)])
    heights = [dot.text_y for dot in plot["dots"]]
    assert heights == [TOP, TOP + LINE, plot["dots"][2].mean, TOP]
