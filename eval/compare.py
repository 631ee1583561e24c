"""Compare two runs on the questions they share, and read what a run leaves behind."""

import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from eval.statistics import Interval, paired_interval
from notewriter import jsonl
from notewriter.config import parse
from notewriter.errors import UserError

PREDICTION_SCHEMA = "notewriter/prediction/1"
METRICS_SCHEMA = "notewriter/metrics/1"

COSTS = ("calls", "retrievals", "prompt_tokens", "completion_tokens")
"""What a question cost, beside its scores: counts of calls, retrievals and tokens."""

PREDICTION_KEYS: dict[str, type] = {
    "question_id": str,
    "question": str,
    "answers": list,
    "prediction": str,
    "note": str,
    "error": str,
    "scores": dict,
    **dict.fromkeys(COSTS, int),
}
METRICS_KEYS: dict[str, type] = {
    **dict.fromkeys(("name", "dataset", "method", "model", "family", "config_hash", "version"), str),
    **dict.fromkeys(("questions", "errors"), int),
    **dict.fromkeys(("metrics", "per_question"), dict),
}

Comparison = dict[str, dict[str, Any]]
"""Metric -> `before` and `after` (means), `difference` (an Interval), `questions` (how many were paired)."""


@dataclass
class Arguments:
    """What to compare."""

    before: str = field(
        metadata={"help": "the run to compare with, for example before training: a folder that `evaluate` wrote"}
    )
    after: str = field(metadata={"help": "the other run; differences are after minus before"})


def main(argv: list[str]) -> None:
    """The `compare` command."""
    (arguments,) = parse(
        Arguments,
        argv,
        prog="notewriter compare",
        description="Compare two runs question by question: means, and the difference with its 95% interval.",
    )
    sys.stdout.write(format_table(compare(Path(arguments.before), Path(arguments.after))) + "\n")


def compare(before: Path, after: Path) -> Comparison:
    """Compare two run folders on the questions they share, by the scores and costs that both have.

    Differences are `after - before`, paired by question, with 95% bootstrap intervals.

    Raises:
        UserError: files that are missing or malformed, runs scored by different families, runs without
            a common question, or an id that stands for another question in the other run.
    """
    families = read_metrics(before)["family"], read_metrics(after)["family"]
    if families[0] != families[1]:
        raise UserError(
            f"{before} was scored by {families[0]!r} and {after} by {families[1]!r}, whose rules differ; "
            "evaluate both with one metric family"
        )
    predictions, others = read_predictions(before), read_predictions(after)
    shared = [identifier for identifier in predictions if identifier in others]
    if not shared:
        raise UserError(f"{before} and {after} have no question in common; evaluate both on one dataset and split")
    for identifier in shared:
        if predictions[identifier]["question"] != others[identifier]["question"]:
            raise UserError(
                f"{before} and {after}: question {identifier!r} has another text in each; "
                "evaluate both on one question file"
            )
    metrics = dict.fromkeys(metric for identifier in shared for metric in predictions[identifier]["scores"])
    comparison: Comparison = {}
    for metric in metrics:
        scores = [(predictions[identifier]["scores"], others[identifier]["scores"]) for identifier in shared]
        if pairs := [(left[metric], right[metric]) for left, right in scores if metric in left and metric in right]:
            comparison[metric] = _paired(pairs)
    for cost in COSTS:
        comparison[cost] = _paired([(predictions[identifier][cost], others[identifier][cost]) for identifier in shared])
    return comparison


def _paired(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    left, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {
        "before": sum(left) / len(left),
        "after": sum(right) / len(right),
        "difference": paired_interval(left, right),
        "questions": len(pairs),
    }


def decimals(*values: float) -> int:
    """How many decimals numbers that stand in one row need: 3 for shares, 1 where any is above one."""
    return 3 if all(abs(value) <= 1 for value in values) else 1


def format_table(comparison: Comparison) -> str:
    """A comparison as an aligned Markdown table; `*` marks a difference whose interval excludes zero."""
    rows = [["metric", "before", "after", "difference [95% interval]", "questions"]]
    for metric, values in comparison.items():
        difference: Interval = values["difference"]
        places = decimals(values["before"], values["after"])
        interval = f"{difference.mean:+,.{places}f} [{difference.low:+,.{places}f}, {difference.high:+,.{places}f}]"
        rows.append(
            [
                metric,
                f"{values['before']:,.{places}f}",
                f"{values['after']:,.{places}f}",
                interval + (" *" if difference.excludes_zero else "  "),
                str(values["questions"]),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    # The first column is words and stands left, numbers stand right.
    lines = [
        "| "
        + " | ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 1) + (":" if column else "-") for column, width in enumerate(widths)) + "|"
    return "\n".join(
        [lines[0], rule, *lines[1:], "", "An asterisk marks a paired difference whose interval excludes zero."]
    )


def read_metrics(run: Path) -> dict[str, Any]:
    """The `metrics.json` of a run folder.

    Raises:
        UserError: the folder or the file is not there or not what an evaluation writes.
    """
    path = run / "metrics.json"
    try:
        metrics = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: is not JSON ({error.msg}); run the evaluation again") from error
    _check(metrics, METRICS_SCHEMA, METRICS_KEYS, str(path))
    for metric, interval in metrics["metrics"].items():
        if not isinstance(interval, dict) or not all(_is_number(interval.get(key)) for key in ("mean", "low", "high")):
            raise UserError(f"{path}: metric {metric!r} needs the numbers mean, low and high; run the evaluation again")
    for cost in COSTS:
        if not _is_number(metrics["per_question"].get(cost)):
            raise UserError(f"{path}: per_question needs the number {cost!r}; run the evaluation again")
    return cast(dict[str, Any], metrics)


def read_predictions(run: Path) -> dict[str, dict[str, Any]]:
    """The `predictions.jsonl` of a run folder: question id -> record, in the file's order.

    Raises:
        UserError: the folder or the file is not there, or a line is not what an evaluation writes.
    """
    path = run / "predictions.jsonl"
    check_present(path)
    predictions: dict[str, dict[str, Any]] = {}
    for number, record in jsonl.read(path):
        place = f"{path}:{number}"
        _check(record, PREDICTION_SCHEMA, PREDICTION_KEYS, place)
        for metric, value in record["scores"].items():
            if not _is_number(value):
                raise UserError(f"{place}: score {metric!r} is no finite number; run the evaluation again")
        if record["question_id"] in predictions:
            raise UserError(f"{place}: question {record['question_id']!r} is there twice; remove one of the lines")
        predictions[record["question_id"]] = record
    if not predictions:
        raise UserError(f"{path}: holds no prediction; run the evaluation again")
    return predictions


def read_text(path: Path) -> str:
    """The text of a file in a run folder.

    Raises:
        UserError: the folder or the file is not there or cannot be read.
    """
    check_present(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); check its permissions and encoding") from error


def check_present(path: Path) -> None:
    """Refuse a run folder, or a file in it, that is not there.

    Raises:
        UserError: names what is missing.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: is no folder; give the folder of a run, for example runs/NAME")
    if not path.is_file():
        raise UserError(
            f"{path}: is not there; finish the run with `notewriter evaluate`, which goes on where it stopped"
        )


def _check(record: Any, schema: str, keys: dict[str, type], place: str) -> None:
    found = record.get("schema") if isinstance(record, dict) else None
    if found != schema:
        raise UserError(
            f"{place}: has the schema {found!r}, not {schema!r}; run the evaluation again with this version"
        )
    for key, kind in keys.items():
        if not isinstance(record.get(key), kind):
            raise UserError(f"{place}: needs {key!r} as {kind.__name__}; run the evaluation again")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
