"""fingerprints.json: the contents behind a configuration's paths, such as a model's weights, when a run began."""

import json
from collections.abc import Mapping
from pathlib import Path

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

FINGERPRINTS = "fingerprints.json"
"""The file beside a run's configuration."""


def read_fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprints that a run began with; empty where there are none yet.

    Raises:
        UserError: the file is damaged.
    """
    path = folder / FINGERPRINTS
    if not path.exists():
        return {}
    fingerprints: dict[str, str] = jsonl.read_object(
        path, dict[str, str], f"remove {folder} or choose another output_dir"
    )
    return fingerprints


def write_fingerprints(folder: Path, contents: Mapping[str, str]) -> None:
    """Store the fingerprints of a run."""
    jsonl.write_text(folder / FINGERPRINTS, [json.dumps(contents, indent=2) + "\n"])


def check_fingerprints(folder: Path, now: Mapping[str, str]) -> None:
    """Compare fingerprints with those of the run in `folder`.

    Raises:
        UserError: the contents behind a setting have changed, or the file is damaged.
    """
    before = read_fingerprints(folder)
    for setting, content in now.items():
        if before.get(setting, content) != content:
            raise UserError(
                f"{folder}: contains a run with other contents of {setting}, which have changed since it began; "
                "choose another output_dir, or remove this one"
            )
