"""training.json is written in the order of its keys, read back, and complete only as far as its version wrote it."""

import json
import math
from pathlib import Path

import pytest

from notewriter.artifacts.training_record import TrainingRecord, read_training_record, write_training_record
from notewriter.ground.errors import UserError

RECORD = TrainingRecord(
    method="dpo",
    base_model="models/a",
    base_model_fingerprint=None,
    parameters="full",
    pairs="pairs",
    pairs_sha256="d" * 64,
    rows={"train": {"note": 2}},
    metrics={"loss": 0.5},
    steps=4,
    versions={"trl": "1.16.0"},
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_training_record(tmp_path, RECORD)
    written = json.loads((tmp_path / "training.json").read_text())
    assert list(written) == [
        *("schema", "method", "base_model", "base_model_fingerprint", "parameters", "pairs", "pairs_sha256", "rows"),
        *("dropped_long_rows", "hyperparameters", "metrics", "steps", "versions"),
    ]
    assert read_training_record(tmp_path) == RECORD


def test_a_folder_without_a_record_has_none(tmp_path: Path) -> None:
    assert read_training_record(tmp_path) is None
    (tmp_path / "training.json").mkdir()
    assert read_training_record(tmp_path) is None


def test_an_older_record_lacks_what_its_version_did_not_write(tmp_path: Path) -> None:
    text = '{"schema": "notewriter/training/1", "method": "sft", "metrics": {"loss": NaN}, "extra": 1}'
    (tmp_path / "training.json").write_text(text)
    record = read_training_record(tmp_path)
    assert record is not None and (record.method, record.base_model, record.steps) == ("sft", None, None)
    assert math.isnan(record.metrics["loss"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", r"training\.json: is not JSON"),
        ("[]", r"training\.json must be .*, not \[\]; restore the file or remove it"),
        ('{"schema": "notewriter/trace/1"}', "has the schema 'notewriter/trace/1', not 'notewriter/training/1'"),
        ('{"schema": "notewriter/training/1", "steps": "4"}', r"training\.json: steps must be int | None, not '4'"),
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(UserError, match=problem):
        read_training_record(tmp_path)
