"""A fictional world of a few questions with its index, made by the commands that a user runs."""

from pathlib import Path

from data_construction import world
from notewriter.retrieval import index


def tiny_world(folder: Path, questions: int = 6) -> dict[str, str]:
    """Make a world in `folder`; returns the options that lead to it: dataset, path and index."""
    world.main(["--output_dir", str(folder), "--train", str(questions), "--test", "1"])
    train = folder / "train"
    index.main(["--path", str(train / "corpus.jsonl"), "--index", str(train / "index")])
    return {"dataset": "jsonl", "path": str(train / "questions.jsonl"), "index": str(train / "index")}


def command_line(options: dict[str, object]) -> list[str]:
    """Options as a command takes them: `{"limit": 3}` as `--limit 3`; a list becomes several values."""
    return [
        part
        for key, value in options.items()
        for part in (f"--{key}", *map(str, value if isinstance(value, list) else [value]))
    ]
