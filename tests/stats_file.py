"""The stats.json that `notewriter pairs`, `chains` and `gold` write beside their rows."""

import json
from pathlib import Path
from typing import Any

from notewriter.artifacts.statistics import (
    CHAINS_STATISTICS_SCHEMA,
    GOLD_STATISTICS_SCHEMA,
    NAME,
    PAIRS_STATISTICS_SCHEMA,
)

COMMON: dict[str, Any] = {
    "questions": 9,
    "hygiene": {"questions_dropped": {}, "evaluation_files": {}},
    "tokens": {},
    "tokens_in_all": {},
    "config_hash": "0",
    "version": "0",
}

OF: dict[str, dict[str, Any]] = {
    "pairs": {
        "schema": PAIRS_STATISTICS_SCHEMA,
        "questions_rolled_out": 9,
        "stages": {"deepnote/init_note": {"pairs": 4, "dropped": {}}},
        "yield": {"deepnote/init_note": 1.0},
        "judges": {},
        "agreement": {},
        "unreadable_judge_replies": {},
    },
    "chains": {
        "schema": CHAINS_STATISTICS_SCHEMA,
        "dropped": {},
        "steps_of_the_kept": {},
        "mean_f1_of_the_kept": None,
        "events": {},
    },
    "conversations": {"schema": GOLD_STATISTICS_SCHEMA, "stages": {}},
}


def write_stats(folder: Path, kind: str = "pairs", **changes: Any) -> Path:
    """Write the statistics of a dataset of this kind, with `changes`; returns the file."""
    record = COMMON | OF[kind] | {kind: {"train": 3, "dev": 1}} | changes
    (folder / NAME).write_text(json.dumps(record))
    return folder / NAME
