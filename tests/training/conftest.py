"""What the tests of DPO and of SFT share."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests compare weights and losses to the last digits, on every processor."""
    monkeypatch.setattr("notewriter.training.options.number_format", lambda: "float32")


@pytest.fixture
def four_steps(tiny_model: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """The command line of a run of four steps on data that is still to be named, with changes by name."""

    def build(**changes: object) -> list[str]:
        values = {
            "model_name_or_path": tiny_model,
            "output_dir": tmp_path / "run",
            "max_length": 64,
            "max_steps": 4,
            "total_batch_size": 4,
            "per_device_train_batch_size": 4,
            "gradient_checkpointing": False,
            "logging_steps": 1,
            "save_steps": 2,
            "disable_tqdm": True,
        } | changes
        return [
            part
            for key, value in values.items()
            for part in (f"--{key}", *map(str, value if isinstance(value, list) else [value]))
        ]

    return build
