"""The progress bar of a run over many questions."""

import pytest

from notewriter.rollouts import runner


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""
    now = [100.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    return now


def remaining_seconds(bar):
    shown = bar.format_dict
    return (shown["total"] - shown["n"]) / shown["rate"]


def test_the_estimate_forgets_questions_that_finished_at_once_because_their_replies_were_cached(clock):
    with runner._Bar(total=1000, waiting=400, description="asking", window=8, tokens=50) as bar:
        assert bar.format_dict["n"] == 600 and bar.format_dict["rate"] is None
        for _ in range(100):
            bar.finished(50, {}, show_tokens=True)
        for number in range(1, 11):
            clock[0] += 2.0
            bar.finished(50 + 14 * number, {"pairs": number}, show_tokens=True)
        assert bar.format_dict["n"] == 710
        assert remaining_seconds(bar) == pytest.approx(2.0 * 290)
        assert "tokens/s=7, pairs=10" in bar.postfix


def test_questions_of_an_earlier_run_do_not_count_into_the_rate(clock):
    with runner._Bar(total=1000, waiting=100, description="asking", window=512, tokens=0) as bar:
        clock[0] += 30.0
        bar.finished(10, {}, show_tokens=False)
        assert remaining_seconds(bar) == pytest.approx(30.0 * 99)
        assert not bar.postfix
