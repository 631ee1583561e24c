"""Pairs are dropped by their margins."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from notewriter.ground.errors import UserError
from notewriter.training import dpo as train_dpo
from notewriter.training.inputs import pairs

Pair = Callable[..., dict[str, Any]]


def scored(make_pair: Pair, scores: list[tuple[float | None, float | None]]) -> list[dict[str, Any]]:
    return [
        make_pair(number) | {"chosen_score": chosen, "rejected_score": rejected}
        for number, (chosen, rejected) in enumerate(scores)
    ]


def test_min_margin_drops_pairs_whose_scores_differ_by_less(
    make_pair: Pair, write_pairs: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    file = write_pairs(scored(make_pair, [(1.0, 0.0), (0.5, 0.25), (None, 0.0), (0.75, 0.5)])) / "train.parquet"
    with caplog.at_level("INFO"):
        kept = pairs.with_margin(pairs.read(file), 0.5, file)
    assert kept["question_id"] == ["q0", "q2"]
    assert "2 of 4 pairs dropped as below min_margin 0.5" in caplog.text
    with pytest.raises(UserError, match=r"no margin reaches min_margin 2; give --min_margin 1 or less"):
        pairs.with_margin(pairs.read(file).select([0, 1]), 2, file)


def test_pairs_without_scores_that_are_mixed_in_stay(
    four_steps: Callable[..., list[str]], make_pair: Pair, write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    unscored = write_pairs().rename(tmp_path / "unscored")
    now = write_pairs(scored(make_pair, [(1.0, 0.0), (0.5, 0.25), (0.75, 0.0), (1.0, 0.0)] * 4))
    mixed = json.dumps({str(unscored): 0.5})
    train_dpo.main([*four_steps(pairs=now, max_steps=1, save_steps=1, min_margin=0.5), "--mix", mixed])
    record = json.loads((tmp_path / "run/training.json").read_text())
    assert sum(record["rows"]["train"].values()) == 12 + 6


def test_margins_need_scores(four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"train\.parquet: min_margin needs scores, and these pairs have none; leave"):
        train_dpo.main(four_steps(pairs=write_pairs(), min_margin=0.1))
