"""A fictional world of a few questions with its index, made by the commands that a user runs; and runs over it."""

import json
from pathlib import Path
from typing import Any

import yaml

from notewriter.data.world import world
from notewriter.retrieval import index


def tiny_world(folder: Path, questions: int = 6) -> dict[str, str]:
    """Make a world in `folder`; returns the options that lead to it: dataset, path and index."""
    world.main(["--output_dir", str(folder), "--train", str(questions), "--test", "1"])
    train = folder / "train"
    index.main(["--path", str(train / "corpus.jsonl"), "--index", str(train / "index")])
    return {"dataset": "jsonl", "path": str(train / "questions.jsonl"), "index": str(train / "index")}


DEEPNOTE_PAIRS: dict[str, Any] = {
    "stages": {
        "deepnote/init_note": "reference",
        "deepnote/refine_query": "retrieval",
        "deepnote/accumulate_knowledge": "decision",
        "deepnote/answer": "metric",
    },
    "gold_stages": ["deepnote/init_note", "deepnote/answer"],
    "method_options": {"deepnote": {"max_step": 2, "max_failure": 2}},
    "temperatures": [0.1, 0.9],
    "top_ps": [0.5, 0.9],
    "dev_share": 0.3,
}
"""Settings of `pairs` that train what DeepNote trains, with four candidates a prompt."""


def run_config(folder: Path, name: str, world: dict[str, str], endpoint: Any, settings: dict[str, Any]) -> list[str]:
    """The arguments of a command that works in `folder/name`, with a cache of its own; the settings win."""
    options = {
        **world,
        "output_dir": str(folder / name),
        "cache": str(folder / f"{name}.sqlite"),
        "base_url": endpoint.base_url,
        "model": endpoint.model,
        **settings,
    }
    return write_config(folder / f"{name}.yaml", options)


def write_config(path: Path, options: dict[str, Any]) -> list[str]:
    """Write options into a YAML file; returns the arguments that have a command read it."""
    path.write_text(yaml.safe_dump(options, sort_keys=False))
    return ["--config", str(path)]


def stats(folder: Path) -> dict[str, Any]:
    """What was made of a run and what was not; where nothing was, no pipeline takes its folder for finished."""
    finished, of_nothing = folder / "stats.json", folder / "stats_of_nothing.json"
    assert finished.exists() != of_nothing.exists()
    told: dict[str, Any] = json.loads((finished if finished.exists() else of_nothing).read_text())
    return told
