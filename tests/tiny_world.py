"""A fictional world of a few questions with its index, made by the commands that a user runs."""

from pathlib import Path
from typing import Any

import yaml

from data_construction import world
from notewriter.retrieval import index


def tiny_world(folder: Path, questions: int = 6) -> dict[str, str]:
    """Make a world in `folder`; returns the options that lead to it: dataset, path and index."""
    world.main(["--output_dir", str(folder), "--train", str(questions), "--test", "1"])
    train = folder / "train"
    index.main(["--path", str(train / "corpus.jsonl"), "--index", str(train / "index")])
    return {"dataset": "jsonl", "path": str(train / "questions.jsonl"), "index": str(train / "index")}


def write_config(path: Path, options: dict[str, Any]) -> list[str]:
    """Write options into a YAML file; returns the arguments that have a command read it."""
    path.write_text(yaml.safe_dump(options, sort_keys=False))
    return ["--config", str(path)]
