"""training.json, the record of a finished training run: its model, data, settings and metrics."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from notewriter.artifacts.reading import read_record, write_json
from notewriter.ground import jsonl

TRAINING_RECORD = "training.json"
TRAINING_SCHEMA = "notewriter/training/1"
REMEDY = "restore the file or remove it"


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """A finished training run. Records of older versions lack some of the keys, which then have their defaults."""

    method: str | None = None
    """`dpo`, `kto` or `sft`."""
    base_model: str | None = None
    base_model_fingerprint: str | None = None
    """SHA-256 of the base's files, or its commit on the hub (`Checkpoint.fingerprint`)."""
    parameters: str | None = None
    """`full` or `lora`."""
    pairs: str | None = None
    pairs_sha256: str | None = None
    data: str | None = None
    data_sha256: str | None = None
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    """Rows by split and stage."""
    dropped_long_rows: dict[str, int] = field(default_factory=dict)
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The last logged value of each metric."""
    mix: dict[str, float] = field(default_factory=dict)
    """File -> rows of it per row of data."""
    steps: int | None = None
    recomputed_layers: int | None = None
    """The number of layers recomputed at the end, if the run chose it (`gradient_checkpointing: auto`)."""
    versions: dict[str, str] = field(default_factory=dict)


# What only some methods have.
_OPTIONAL = {"recomputed_layers", "pairs", "pairs_sha256", "data", "data_sha256", "mix"}


def read_training_record(folder: Path) -> TrainingRecord | None:
    """The record in a checkpoint's folder; None where the folder has none.

    Raises:
        UserError: the record cannot be read, or is not one; names the file and the key.
    """
    path = folder / TRAINING_RECORD
    if not path.is_file():
        return None
    record: dict[str, Any] = jsonl.read_object(path, dict, REMEDY)
    metrics = record.get("metrics", {})
    # They may be NaN, as after a run that diverged.
    if isinstance(metrics, dict):
        record["metrics"] = {name: 0.0 if isinstance(value, float) else value for name, value in metrics.items()}
    checked = read_record(record, TrainingRecord, TRAINING_SCHEMA, str(path), REMEDY)
    return replace(checked, metrics=metrics)


def write_training_record(folder: Path, record: TrainingRecord) -> None:
    """Write the record, which marks the run in `folder` as finished.

    Raises:
        UserError: it cannot be written.
    """
    values = {key: value for key, value in asdict(record).items() if value or value == 0 or key not in _OPTIONAL}
    write_json(folder / TRAINING_RECORD, {"schema": TRAINING_SCHEMA, **values})
