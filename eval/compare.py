"""Compare two runs on the questions they share, and read what a run leaves behind."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from annotated_types import MinLen

from eval.accounting import COSTS
from eval.scores import metric_named
from eval.statistics import Interval, holm, mcnemar, paired_interval, permutation_test, standard_deviation
from notewriter import jsonl
from notewriter.config import parse
from notewriter.errors import UserError

PREDICTION_SCHEMA = "notewriter/prediction/1"
METRICS_SCHEMA = "notewriter/metrics/1"

PREDICTION_KEYS: dict[str, type] = {
    "question_id": str,
    "question": str,
    "answers": list,
    "prediction": str,
    "note": str,
    "error": str,
    **dict.fromkeys(("scores", "counts"), dict),
    **dict.fromkeys((*COSTS, "words_retrieved", "words_answered_from"), int),
}
METRICS_KEYS: dict[str, type] = {
    **dict.fromkeys(("name", "dataset", "method", "model", "family", "config_hash", "version"), str),
    **dict.fromkeys(("questions", "errors"), int),
    **dict.fromkeys(("metrics", "per_question"), dict),
}

Comparison = dict[str, dict[str, Any]]
"""Metric -> `before` and `after` (means), `deviations` (over seeds, or None), `difference` (an Interval),
`p_value` and `questions` (how many were paired)."""


@dataclass
class Arguments:
    """What to compare."""

    before: Annotated[list[str], MinLen(1)] = field(
        metadata={
            "help": "the run to compare with, for example before training: a folder that `evaluate` wrote. "
            "Several are one configuration under several seeds: their scores are averaged question by question"
        }
    )
    after: Annotated[list[str], MinLen(1)] = field(
        metadata={"help": "the other run or runs; differences are after minus before"}
    )


def main(argv: list[str]) -> None:
    """The `compare` command."""
    (arguments,) = parse(
        Arguments,
        argv,
        prog="notewriter compare",
        description="Compare runs question by question: means, and the difference with its 95% interval and p-value.",
    )
    comparison = compare(list(map(Path, arguments.before)), list(map(Path, arguments.after)))
    sys.stdout.write(format_table(comparison) + "\n")


def compare(before: list[Path], after: list[Path]) -> Comparison:
    """Compare run folders on the questions they share, by the scores and costs that all of them have.

    Several folders on one side are one configuration under several seeds. Differences are `after - before`,
    paired by question, with 95% bootstrap intervals and p-values that are corrected for the number of scores.

    Raises:
        UserError: see `compare_uncorrected`.
    """
    comparison = compare_uncorrected(before, after)
    correct([comparison])
    return comparison


def correct(comparisons: Sequence[Comparison]) -> None:
    """Correct the p-values of comparisons that are read together for the number of scores in all of them (`holm`)."""
    rows = [row for comparison in comparisons for metric, row in comparison.items() if metric not in COSTS]
    for row, p_value in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
        row["p_value"] = p_value


def compare_uncorrected(before: list[Path], after: list[Path]) -> Comparison:
    """What `compare` returns, with p-values as they come of `mcnemar` (every score is 0 or 1) or `permutation_test`.

    Raises:
        UserError: files that are missing or malformed, runs scored by different families, runs without
            a common question, or an id that stands for another question in the other run.
    """
    first, *rest = [*before, *after]
    family = read_metrics(first)["family"]
    read = [read_predictions(run) for run in (first, *rest)]
    shared = [identifier for identifier in read[0] if all(identifier in others for others in read)]
    for run, predictions in zip(rest, read[1:], strict=True):
        if (other := read_metrics(run)["family"]) != family:
            raise UserError(
                f"{first} was scored by {family!r} and {run} by {other!r}, whose rules differ; "
                "evaluate both with one metric family"
            )
        for identifier in read[0].keys() & predictions.keys():
            if read[0][identifier]["question"] != predictions[identifier]["question"]:
                raise UserError(
                    f"{first} and {run}: question {identifier!r} has another text in each; "
                    "evaluate both on one question file"
                )
    if not shared:
        folders = " and ".join(map(str, (first, *rest)))
        raise UserError(f"{folders} have no question in common; evaluate all on one dataset and split")
    comparison: Comparison = {}
    for metric in dict.fromkeys(metric for identifier in shared for metric in read[0][identifier]["scores"]):
        scored = [each for each in shared if all(metric in run[each]["scores"] for run in read)]
        if scored:
            values = [[run[each]["scores"][metric] for each in scored] for run in read]
            comparison[metric] = _paired(values[: len(before)], values[len(before) :])
    for cost in COSTS:
        values = [[run[identifier][cost] for identifier in shared] for run in read]
        comparison[cost] = _paired(values[: len(before)], values[len(before) :])
    return comparison


def _paired(before: list[list[float]], after: list[list[float]]) -> dict[str, Any]:
    """One score of each seed's questions, shape (seeds, questions), on either side."""
    left, right = _averages(before), _averages(after)
    test = mcnemar if {*left, *right} <= {0, 1} else permutation_test
    return {
        "before": sum(left) / len(left),
        "after": sum(right) / len(right),
        "deviations": tuple(
            standard_deviation([sum(seed) / len(seed) for seed in seeds]) if len(seeds) > 1 else None
            for seeds in (before, after)
        ),
        "difference": paired_interval(left, right),
        "p_value": test(left, right),
        "questions": len(left),
    }


def _averages(seeds: list[list[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*seeds, strict=True)]


def p_value_text(metric: str, p_value: float) -> str:
    """A p-value as tables show it; costs have none, since the correction is for scores."""
    if metric in COSTS:
        return ""
    return f"{p_value:.3f}" if p_value >= 0.001 else "<0.001"


def format_table(comparison: Comparison) -> str:
    """A comparison as an aligned Markdown table; `*` marks a difference whose interval excludes zero."""
    rows = [["metric", "before", "after", "difference [95% interval]", "p", "questions"]]
    for metric, values in comparison.items():
        difference: Interval = values["difference"]
        places = metric_named(metric).decimals
        interval = f"{difference.mean:+,.{places}f} [{difference.low:+,.{places}f}, {difference.high:+,.{places}f}]"
        rows.append(
            [
                metric,
                *(
                    f"{values[side]:,.{places}f}" + ("" if deviation is None else f" ± {deviation:,.{places}f}")
                    for side, deviation in zip(("before", "after"), values["deviations"], strict=True)
                ),
                interval + (" *" if difference.excludes_zero else "  "),
                p_value_text(metric, values["p_value"]),
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
        [
            *(lines[0], rule, *lines[1:], ""),
            "An asterisk marks a paired difference whose interval excludes zero. p: McNemar's exact test where scores "
            "are 0 or 1, else a permutation test, corrected for the number of scores (Holm).",
            *(["± is the standard deviation over seeds."] if _several_seeds(comparison) else []),
        ]
    )


def _several_seeds(comparison: Comparison) -> bool:
    return any(deviation is not None for row in comparison.values() for deviation in row["deviations"])


def read_metrics(run: Path) -> dict[str, Any]:
    """The `metrics.json` of a run folder.

    Raises:
        UserError: the folder or the file is not there or not what an evaluation writes.
    """
    path = run / "metrics.json"
    try:
        metrics = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(f"{path}{line}: is not JSON ({error}); run the evaluation again") from error
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
