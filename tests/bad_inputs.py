"""A workspace where every command has run once, to break one thing in it and run a command again.

`make(folder, endpoint)` fills the folder; `COMMANDS` are command lines that succeed in it, by command.
"""

import contextlib
import copy
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from benchmark_files import HOTPOT, MUSIQUE, write_lines, write_list

from notewriter import cli
from notewriter.ground import config

QUESTIONS = [
    {"id": "q1", "question": "Who built the bridge?", "answers": ["Mira"], "supporting_ids": ["p1"], "metadata": {}},
    {"id": "q2", "question": "Which river flows past Tolen town?", "answers": ["Osk"], "supporting_facts": ["Osk"]},
]
PASSAGES = [
    {"id": "p1", "title": "Bridge", "text": "Mira built the bridge."},
    {"id": "p2", "title": "River", "text": "The river Osk flows past Tolen town."},
]
PAIRS = {"stages": {"vanilla/answer": "metric"}, "temperatures": [0.1, 0.9], "top_ps": [0.9], "top_k_range": [1, 2]}

COMMANDS = {
    "world": ["world", "--output_dir", "world", "--train", "2", "--test", "1"],
    "corpus": ["corpus", "--source", "folder", "--path", "documents", "--output_dir", "corpus"],
    "index": ["index", "--path", "corpus.jsonl", "--index", "index"],
    "evaluate": ["evaluate", "--config", "evaluate.yaml"],
    "evaluate --chains": [
        *("evaluate", "--dataset", "jsonl", "--path", "questions.jsonl", "--output_dir", "retrieval"),
        *("--chains", '{"bm25": [{"index": "index"}]}'),
    ],
    "judge": ["judge", "--config", "judge.yaml"],
    "pairs": ["pairs", "--config", "pairs.yaml"],
    "chains": ["chains", "--config", "chains.yaml"],
    "inspect": ["inspect", "--pairs", "pairs", "--output", "pairs.html"],
    "compare": ["compare", "--before", "run", "--after", "run"],
    "report": ["report", "--runs", "run", "--output", "report.html"],
    "ask": ["ask", "Who built the bridge?", "--config", "ask.yaml"],
}


def make(folder: Path, endpoint: Any) -> None:
    """Fill the folder with inputs and with what every command makes of them."""
    write_lines(folder / "questions.jsonl", *QUESTIONS)
    write_lines(folder / "corpus.jsonl", *PASSAGES)
    write_lines(folder / "musique.jsonl", MUSIQUE)
    write_list(folder / "hotpot.json", HOTPOT)
    (folder / "documents").mkdir()
    (folder / "documents/osk.md").write_text("# Osk\n\nThe Osk is a river.\n")
    (folder / "prompts/vanilla").mkdir(parents=True)
    (folder / "prompts/vanilla/answer.jinja").write_text("{{ question }} {{ passages|length }}")
    model = {"base_url": endpoint.base_url, "model": endpoint.model, "cache": "cache.sqlite"}
    asked = {"dataset": "jsonl", "path": "questions.jsonl", "index": "index", **model}
    settings = {
        "evaluate": {**asked, "method": "vanilla", "output_dir": "run", "prompts_dir": "prompts"},
        "judge": {**model, "runs": ["run"]},
        "pairs": {**asked, **PAIRS, "output_dir": "pairs", "dev_share": 0.0},
        "chains": {**asked, "output_dir": "chains", "max_step": 2, "retries": 0, "dev_share": 0.0},
        "ask": {**model, "index": "index", "method": "vanilla"},
    }
    for name, options in settings.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(options, sort_keys=False))
    for name, argv in COMMANDS.items():
        result = attempt(folder, argv)
        assert result == (0, []), (name, result)


def attempt(folder: Path, argv: list[str]) -> tuple[int, list[str]]:
    """Run a command in a folder; its exit code, and the lines on standard error that are no progress.

    Whatever is no exit is raised: it would be a traceback.
    """
    written, here = io.StringIO(), Path.cwd()
    os.chdir(folder)
    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.object(sys, "argv", ["notewriter", *argv]),
            contextlib.redirect_stderr(written),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            try:
                cli.main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
    finally:
        logging.disable(logging.NOTSET)
        os.chdir(here)
    lines = re.split(r"[\r\n]", written.getvalue())
    return code, [line for line in lines if line.strip() and not re.search(r"\[\d\d:\d\d", line)]


def is_one_line(result: tuple[int, list[str]]) -> bool:
    """Whether a command ended as one that was told something wrong: exit code 2 and one line that says what."""
    code, lines = result
    return code == 2 and len(lines) == 1 and lines[0].startswith("error: ")


def is_clean(result: tuple[int, list[str]]) -> bool:
    """Whether a command was done, or ended in one line."""
    return result[0] == 0 or is_one_line(result)


JUNK: tuple[Any, ...] = (KeyError, None, 3, {"a": [1]})
"""What a key of a record is replaced by; `KeyError` says that it is taken out."""


DEPTH = 5
"""As deep as what a trace's messages hold."""


def mutations(record: Any) -> Iterator[tuple[str, Any]]:
    """A record with one key at a time, `DEPTH` deep, replaced by each of `JUNK`; of lists the first item alone."""
    for path in _paths(record):
        for junk in JUNK:
            changed = copy.deepcopy(record)
            inside = changed
            for key in path[:-1]:
                inside = inside[key]
            if junk is KeyError:
                del inside[path[-1]]
            else:
                inside[path[-1]] = junk
            yield f"{'/'.join(map(str, path))}: {junk!r}", changed


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if len(path) == DEPTH:
        return
    keys = value if isinstance(value, dict) else range(min(1, len(value))) if isinstance(value, list) else ()
    for key in keys:
        yield from _paths(value[key], (*path, key))


class _Asked(Exception):
    """The dataclasses that a command has its options from."""


def arguments_of(command: str) -> list[type]:
    """The dataclasses of a command's options."""

    def asked(types: Any, *_: Any, **__: Any) -> None:
        raise _Asked(types)

    with mock.patch.object(config, "parser_of", asked):
        try:
            importlib.import_module(cli.COMMANDS[command.split()[0]][0]).main([])
        except _Asked as found:
            types: list[type] = found.args[0]
            return types
    raise AssertionError(f"{command} parses no options")
