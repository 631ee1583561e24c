"""One HTML page for any number of runs: scores, differences, a plot, and every question's trace."""

import itertools
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eval.accounting import COSTS, COUNTED
from eval.compare import check_present, compare, decimals, p_value_text, read_metrics, read_predictions, read_text
from eval.plots import scatter_plot
from eval.statistics import bootstrap_interval
from eval.tables import TABLE, latex, markdown
from notewriter import jsonl
from notewriter.config import parse
from notewriter.errors import UserError
from notewriter.pages import packed, write_page
from notewriter.records import TRACE_SCHEMA

logger = logging.getLogger(__name__)

Record = dict[str, Any]

LABELS = {
    "em": "Exact match",
    "f1": "Token F1",
    "acc": "Accuracy",
    "note_fact_recall": "Supporting facts in the note",
    "note_has_answer": "Gold answer in the note",
    "note_words": "Words in the note",
    "calls": "Model calls",
    "retrievals": "Retrievals",
    "prompt_tokens": "Prompt tokens",
    "cached_tokens": "Prompt tokens from the cache",
    "completion_tokens": "Completion tokens",
    "seconds": "Seconds of model calls",
    "supporting_recall": "Gold passages retrieved",
    "str_em": "Short answers in the answer",
    "str_hit": "All short answers in the answer",
    "loose": "Parts of the answer found",
    "strict": "All parts of the answer found",
    "judged_accuracy": "Accuracy, by the judge",
    "chain_efficiency": "Efficiency of the chain (0 to 5)",
    "chain_redundancy": "Redundancy of the chain (0 to 5; 5: none)",
    "chain_coherence": "Coherence of the chain (0 to 5)",
    "knowledge_density": "Knowledge density",
}
"""What a metric or cost is called on the page; others go by their own name."""

LENGTHS = {"note_words", *COSTS}
"""Counts, of which neither more nor less is better in itself."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#5b5b5b")
"""One a run, in turn; Okabe and Ito's palette, which colour-blind readers can tell apart."""

HEADLINE = ("f1", "acc", "str_em", "loose")
"""The score that is held against costs and taken apart by kinds of questions: the first of these, else any share."""

EXPENSES: dict[str, Callable[[Record], float]] = {
    "Tokens a question, prompt and completion": lambda costs: float(
        costs["prompt_tokens"] + costs["completion_tokens"]
    ),
    "Model calls a question": lambda costs: float(costs["calls"]),
    "Retrievals a question": lambda costs: float(costs["retrievals"]),
}
"""What the score is held against: a plot's axis -> its value from the mean costs a question in metrics.json."""

KINDS = {"type": "Type", "hops": "Hops"}
"""Metadata of questions by which the score is taken apart; a value like `a | b` is of both kinds."""

MOST_KINDS = 20
"""Rows at the most for each of `KINDS`: those with the most questions."""

PUBLISHED = Path(__file__).with_name("published.yaml")
"""The papers' main tables: `paper`, `table`, `dataset`, `method`, `model` and `values` (metric -> percent)."""

CHUNK = 20
"""Traces that are compressed together; the page unpacks them when one of them is opened."""

ROOM_FOR_TABLES = 300_000
"""Characters of the page that are neither list nor trace."""

COSTS_SCHEMA = "notewriter/costs/1"

NOTES_ROLE = "notes"
"""The role of the model that writes notes: what it replies is a state of the note."""


@dataclass
class Arguments:
    """What to put into the report, and where."""

    runs: list[str] = field(
        metadata={
            "help": "run folders that `evaluate` wrote; the first is the baseline that the others are held against"
        }
    )
    output: str = field(
        default="report.html", metadata={"help": "the HTML file to write; it needs no other file and no network"}
    )
    markdown: str | None = field(
        default=None, metadata={"help": "also write the tables of scores and of differences into this Markdown file"}
    )
    latex: str | None = field(
        default=None, metadata={"help": "also write them into this file as LaTeX (it needs the package booktabs)"}
    )
    max_megabytes: int = field(
        default=30,
        metadata={
            "help": "where the page would be larger, prompts are left out, those of each run's last traces first"
        },
    )


@dataclass(frozen=True, slots=True)
class Traces:
    """A run's traces as compressed blocks of `CHUNK`, in the file's order.

    `places` is a trace's number in the file by question id. `prompts` are the first blocks of what the models were
    sent, as many as there was room for.
    """

    places: dict[str, int]
    errors: dict[str, str]
    steps: list[str]
    prompts: list[str]


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder in memory: predictions by question id, and what the page shows of the traces."""

    label: str
    colour: str
    metrics: Record
    config: str
    costs: Record | None
    predictions: dict[str, Record]
    traces: Traces


def main(argv: list[str]) -> None:
    """The `report` command."""
    (arguments,) = parse(
        Arguments,
        argv,
        prog="notewriter report",
        description="Write one HTML page about any number of runs: scores, differences from the first, every trace.",
    )
    output = Path(arguments.output)
    tables = write_report([Path(run) for run in arguments.runs], output, arguments.max_megabytes)
    for path, rendered in ((arguments.markdown, markdown), (arguments.latex, latex)):
        if path:
            _write_text(Path(path), rendered(tables))
    logger.info("%s: %.1f MB; open it in a browser", output, output.stat().st_size / 1e6)


def _write_text(path: Path, text: str) -> None:
    try:
        jsonl.write_text(path, [text])
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); choose another file") from error


def write_report(runs: list[Path], output: Path, max_megabytes: int = 30) -> list[TABLE]:
    """Write one self-contained HTML page about run folders; the first is the baseline.

    The list of questions and the traces are embedded as compressed blocks, of which the page unpacks what is
    opened, so that memory and the page grow with the compressed size alone. Prompts are left out, those of each
    run's last traces first, where they would make the page larger than `max_megabytes`.

    Model text is escaped in the tables and embedded as JSON for the trace viewer, whose script puts it
    on the page as text only. The page's own policy forbids it any network request.

    Returns:
        The tables of scores and of differences.

    Raises:
        UserError: no run, a run named twice, files in a run that are missing or malformed, or an
            output that cannot be written.
    """
    if not runs:
        raise UserError("--runs names no folder; give at least one that `notewriter evaluate` wrote")
    limit = max_megabytes * 1_000_000
    loaded = [
        _read_run(run, label, index, limit // len(runs))
        for index, (run, label) in enumerate(zip(runs, _labels(runs), strict=True))
    ]
    questions = _questions(loaded)
    index = packed(_index(loaded, questions))
    room = limit - ROOM_FOR_TABLES - len(index) - sum(len(block) for run in loaded for block in run.traces.steps)
    blocks = {"index": index}
    for number, run in enumerate(loaded):
        blocks |= {f"steps-{number}-{block}": text for block, text in enumerate(run.traces.steps)}
        sizes = itertools.accumulate(map(len, run.traces.prompts))
        fitting = sum(size <= room // len(loaded) for size in sizes)
        blocks |= {f"prompts-{number}-{block}": text for block, text in enumerate(run.traces.prompts[:fitting])}
        if fitting < len(run.traces.steps):
            logger.warning(
                "%s: the page holds the prompts of the first %d of %d traces; a larger --max_megabytes holds more",
                run.label,
                fitting * CHUNK,
                len(run.traces.places),
            )
    scores, costs = _score_rows(loaded), _cost_rows(loaded)
    differences = [_differences(runs[0], run, other) for run, other in zip(runs[1:], loaded[1:], strict=True)]
    write_page(
        output,
        Path(__file__).with_name("report.html.jinja"),
        blocks,
        runs=loaded,
        labels=LABELS,
        scores=scores,
        costs=costs,
        differences=differences,
        plot=_plot(loaded),
        headline=_headline(loaded),
        scatter_plots=_scatter_plots(loaded),
        kinds=_kinds(loaded),
        counted=COUNTED,
        chunk=CHUNK,
        published=_published(loaded),
    )
    return _tables(loaded, scores + costs, differences)


def _tables(runs: list[Run], rows: list[Record], differences: list[Record]) -> list[TABLE]:
    """What the page shows of scores and differences, as text."""

    def cell(value: Record | None) -> str:
        if value is None:
            return ""
        return f"{value['text']} [{value['interval']}]" if "interval" in value else str(value["text"])

    def name(row: Record) -> str:
        return LABELS.get(row["metric"], row["metric"])

    scores: TABLE = (
        "Scores with 95% bootstrap intervals, and mean costs a question",
        ["", *(run.label for run in runs)],
        [[name(row), *map(cell, row["cells"])] for row in rows],
    )
    return [scores] + [
        (
            f"{difference['run'].label} minus {runs[0].label}, paired by question; "
            + (difference["reason"] or "an asterisk marks an interval that excludes zero"),
            ["", "Difference", "95% interval", "p (Holm)", "Questions"],
            [
                [
                    name(row),
                    row["text"] + (" *" if row["excludes_zero"] else ""),
                    row["interval"],
                    row["p_value"],
                    str(row["questions"]),
                ]
                for row in difference["rows"]
            ],
        )
        for difference in differences
    ]


def _labels(runs: list[Path]) -> list[str]:
    """A name a run: its own, or its folder where two runs have the same name."""
    names = [read_metrics(run)["name"] for run in runs]
    labels = [name if names.count(name) == 1 else str(run) for name, run in zip(names, runs, strict=True)]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{label}: is named twice in --runs; name each run once")
    return labels


def _read_run(run: Path, label: str, index: int, limit: int) -> Run:
    return Run(
        label=label,
        colour=COLOURS[index % len(COLOURS)],
        metrics=read_metrics(run),
        config=read_text(run / "config.yaml"),
        costs=_read_costs(run / "costs.json"),
        predictions=read_predictions(run),
        traces=_pack_traces(run / "traces.jsonl", limit),
    )


def _read_costs(path: Path) -> Record | None:
    """Sums by stage from costs.json with their total, None where a run has none."""
    if not path.exists():
        return None
    try:
        record = json.loads(read_text(path))
        if record["schema"] != COSTS_SCHEMA:
            raise ValueError(f"the schema {record['schema']!r}")
        stages = {stage: {key: float(costs[key]) for key in COUNTED} for stage, costs in record["stages"].items()}
        return {
            "stages": stages,
            "total": {key: sum(costs[key] for costs in stages.values()) for key in COUNTED},
            "counts": {str(event): int(number) for event, number in record["counts"].items()},
            "compression": record["compression"] and float(record["compression"]),
            "money": float(record["money"]) if "money" in record else None,
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: is not what an evaluation writes (at {error}); run the evaluation again") from error


def _pack_traces(path: Path, limit: int) -> Traces:
    """Compress a file of traces, one block in memory at a time; of prompts no more than `limit` characters."""
    check_present(path)
    packing = Traces({}, {}, [], [])
    traces = _read_traces(path)
    size = 0
    while chunk := list(itertools.islice(traces, CHUNK)):
        for identifier, error, _ in chunk:
            packing.places[identifier] = len(packing.places)
            packing.errors[identifier] = error
        packing.steps.append(packed([[_shown(step) for step in _with_sources(steps)] for _, _, steps in chunk]))
        if size <= limit:
            packing.prompts.append(packed(_prompts([steps for _, _, steps in chunk])))
            size += len(packing.prompts[-1])
    return packing


def _read_traces(path: Path) -> Iterator[tuple[str, str, list[Record]]]:
    """`(question id, error, steps)` of each trace, the steps cut to what the page shows."""
    seen = set()
    for number, record in jsonl.read(path):
        place = f"{path}:{number}"
        if record.get("schema") != TRACE_SCHEMA:
            raise UserError(
                f"{place}: has the schema {record.get('schema')!r}, not {TRACE_SCHEMA!r}; "
                "run the evaluation again with this version"
            )
        try:
            trace = record["question_id"], record["error"], [STEPS[step["kind"]](step) for step in record["steps"]]
        except (KeyError, TypeError) as error:
            raise UserError(f"{place}: is no whole trace (at {error}); run the evaluation again") from error
        if trace[0] in seen:
            raise UserError(f"{place}: question {trace[0]!r} is there twice; remove one of the lines")
        seen.add(trace[0])
        yield trace


def _with_sources(steps: list[Record]) -> Iterator[Record]:
    """Each step; a note with `previous`, the number of the note that it was written from.

    That is the latest that stands in its prompt (a method may have thrown newer ones away), else the latest.
    """
    notes: list[str] = []
    for step in steps:
        if not step.get("is_note"):
            yield step
            continue
        sent = "\n".join(message["content"] for message in step["messages"])
        standing = [number for number, note in enumerate(notes) if note and note in sent]
        yield step | {"previous": standing[-1] if standing else len(notes) - 1}
        notes.append(step["text"].strip())


def _shown(step: Record) -> Record:
    return {key: value for key, value in step.items() if key != "messages"}


def _prompts(traces: list[list[Record]]) -> Record:
    """What the models were sent, trace by trace and call by call, as numbers of lines that are there only once.

    One trace sends its passages and notes several times and all traces the same instructions, farther apart than
    a compressor looks back.
    """
    lines: dict[str, int] = {}
    prompts = [
        [
            [
                [message["role"], [lines.setdefault(line, len(lines)) for line in message["content"].split("\n")]]
                for message in step["messages"]
            ]
            for step in steps
            if step["kind"] == "generate"
        ]
        for steps in traces
    ]
    return {"lines": list(lines), "traces": prompts}


def _retrieve_step(step: Record) -> Record:
    return {
        "kind": "retrieve",
        "query": step["query"],
        "seconds": step["seconds"],
        "titles": [passage["title"] for passage in step["passages"]],
    }


def _generate_step(step: Record) -> Record:
    completion = step["completion"]
    return {
        "kind": "generate",
        "stage": step["stage"],
        "role": step["role"],
        "is_note": step["role"] == NOTES_ROLE,
        "messages": [{"role": message["role"], "content": message["content"]} for message in step["messages"]],
        "text": completion["text"],
        "cut": completion["finish_reason"] == "length",
        "prompt_tokens": completion["prompt_tokens"],
        "completion_tokens": completion["completion_tokens"],
        "seconds": completion["seconds"],
    }


STEPS = {"retrieve": _retrieve_step, "generate": _generate_step}


def _questions(runs: list[Run]) -> list[tuple[str, Record]]:
    """`(id, prediction)` of every question of any run, in the first run's order.

    An id that stands for another question in another run is another question.
    """
    found: dict[tuple[str, str], Record] = {}
    for run in runs:
        for identifier, record in run.predictions.items():
            found.setdefault((identifier, record["question"]), record)
    return [(identifier, record) for (identifier, _), record in found.items()]


def _index(runs: list[Run], questions: list[tuple[str, Record]]) -> Record:
    """What the trace viewer needs of every question before one is opened."""
    shares = _shares(runs)
    return {
        "runs": [{"label": run.label, "colour": run.colour} for run in runs],
        "metrics": [{"name": metric, "label": LABELS.get(metric, metric)} for metric in shares],
        "questions": [
            {
                "id": identifier,
                "question": record["question"],
                "answers": record["answers"],
                "runs": [_outcome(run, identifier) if _has(run, identifier, record) else None for run in runs],
            }
            for identifier, record in questions
        ],
    }


def _has(run: Run, identifier: str, record: Record) -> bool:
    """Whether a run answered this very question, not another one under the same id."""
    return identifier in run.predictions and run.predictions[identifier]["question"] == record["question"]


def _outcome(run: Run, identifier: str) -> Record:
    record = run.predictions[identifier]
    return {
        **{key: record[key] for key in ("prediction", "scores", "note")},
        "error": record["error"] or run.traces.errors.get(identifier, ""),
        "trace": run.traces.places.get(identifier),
    }


def _metrics(runs: list[Run]) -> list[str]:
    return list(dict.fromkeys(metric for run in runs for metric in run.metrics["metrics"]))


def _shares(runs: list[Run]) -> list[str]:
    return [metric for metric in _metrics(runs) if metric not in LENGTHS and _is_share(runs, metric)]


def _headline(runs: list[Run]) -> str | None:
    """The first score of `HEADLINE` that a run has, else the first share."""
    shares = _shares(runs)
    return next((metric for metric in (*HEADLINE, *shares) if metric in shares), None)


def _is_share(runs: list[Run], metric: str) -> bool:
    """Whether a metric's values lie in [0, 1] for every question of every run."""
    values = [record["scores"].get(metric, 0) for run in runs for record in run.predictions.values()]
    return all(0 <= value <= 1 for value in values)


def _score_rows(runs: list[Run]) -> list[Record]:
    """A row a metric, a cell a run: the mean as in metrics.json with its interval, None where a run has none."""
    rows = []
    for metric in _metrics(runs):
        intervals = [run.metrics["metrics"].get(metric) for run in runs]
        places = decimals(*(interval["mean"] for interval in intervals if interval))
        cells = [
            interval
            and {
                "value": interval["mean"],
                "text": f"{interval['mean']:,.{places}f}",
                "interval": f"{interval['low']:,.{places}f} to {interval['high']:,.{places}f}",
            }
            for interval in intervals
        ]
        rows.append({"metric": metric, "cells": cells})
    return rows


def _cost_rows(runs: list[Run]) -> list[Record]:
    rows = []
    for cost in COSTS:
        means = [run.metrics["per_question"][cost] for run in runs]
        places = decimals(*means)
        rows.append({"metric": cost, "cells": [{"value": mean, "text": f"{mean:,.{places}f}"} for mean in means]})
    return rows


def _differences(baseline: Path, path: Path, run: Run) -> Record:
    """A run's paired differences from the baseline, or why there are none."""
    try:
        comparison = compare([baseline], [path])
    except UserError as error:
        return {"run": run, "reason": str(error), "rows": []}
    rows = []
    for metric, values in comparison.items():
        difference = values["difference"]
        places = decimals(values["before"], values["after"])
        rows.append(
            {
                "metric": metric,
                "value": difference.mean,
                "text": f"{difference.mean:+,.{places}f}",
                "interval": f"{difference.low:+,.{places}f} to {difference.high:+,.{places}f}",
                "excludes_zero": difference.excludes_zero,
                "kind": "count" if metric in LENGTHS else "gain" if difference.mean > 0 else "loss",
                "p_value": p_value_text(metric, values["p_value"]),
                "questions": values["questions"],
            }
        )
    return {"run": run, "reason": "", "rows": rows}


def _scatter_plots(runs: list[Run]) -> list[Record]:
    """The headline score against each of `EXPENSES`, a dot a run."""
    headline = _headline(runs)
    if headline is None:
        return []
    scored = [(run, run.metrics["metrics"][headline]) for run in runs if headline in run.metrics["metrics"]]
    return [
        scatter_plot(
            axis,
            [{"run": run, "x": value(run.metrics["per_question"]), "interval": interval} for run, interval in scored],
        )
        for axis, value in EXPENSES.items()
    ]


def _kinds(runs: list[Run]) -> list[Record]:
    """The headline score by kinds of questions: a row a kind, a cell a run with its interval (None: no question)."""
    headline = _headline(runs)
    rows = []
    for key, title in KINDS.items():
        values: list[dict[str, list[float]]] = []
        for run in runs:
            by_kind: dict[str, list[float]] = {}
            for record in run.predictions.values():
                for kind in _kinds_of(record, key) if headline in record["scores"] else ():
                    by_kind.setdefault(kind, []).append(record["scores"][headline])
            values.append(by_kind)
        most: Counter[str] = Counter()
        for by_kind in values:
            most |= Counter({kind: len(scores) for kind, scores in by_kind.items()})
        rows += [
            {
                "key": key,
                "kind": f"{title}: {kind}",
                "questions": most[kind],
                "cells": [_kind_cell(by_kind[kind]) if kind in by_kind else None for by_kind in values],
            }
            for kind in sorted(kind for kind, _ in most.most_common(MOST_KINDS))
        ]
    return rows


def _kinds_of(record: Record, key: str) -> list[str]:
    value = record.get("metadata", {}).get(key)
    if not isinstance(value, str | int):
        return []
    return list(dict.fromkeys(kind for kind in map(str.strip, str(value).split("|")) if kind))


def _kind_cell(scores: list[float]) -> Record:
    interval = bootstrap_interval(scores)
    return {
        "value": interval.mean,
        "text": f"{interval.mean:.3f}",
        "interval": f"{interval.low:.3f} to {interval.high:.3f}",
    }


def _published(runs: list[Run]) -> list[Record]:
    """The runs' own scores and the papers', in percent, for each dataset of theirs that a paper has."""
    published = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    tables = []
    for dataset in dict.fromkeys(run.metrics["dataset"] for run in runs):
        theirs = [row for row in published if row["dataset"] == dataset]
        metrics = list(dict.fromkeys(metric for row in theirs for metric in row["values"]))
        ours = [
            {
                "run": run,
                "method": run.metrics["method"],
                "model": run.metrics["model"],
                "values": {
                    metric: run.metrics["metrics"][metric]["mean"] * 100
                    for metric in metrics
                    if metric in run.metrics["metrics"]
                },
            }
            for run in runs
            if run.metrics["dataset"] == dataset
        ]
        if theirs:
            tables.append({"dataset": dataset, "metrics": metrics, "ours": ours, "theirs": theirs})
    return tables


def _plot(runs: list[Run]) -> Record | None:
    """Where everything in the plot stands, in SVG units: a group a metric, a dot with its interval a run.

    Only metrics that are shares go in, on one axis from zero; None where there are none.
    """
    metrics = _shares(runs)
    if not metrics:
        return None
    left, right, width, row_height, gap = 200, 60, 680, 18, 18
    ends = [
        run.metrics["metrics"][metric]["high"] for run in runs for metric in metrics if metric in run.metrics["metrics"]
    ]
    # The axis ends at the next tenth above the highest interval, so that small scores can be told apart.
    tenths = min(10, max(1, math.ceil(max(ends) * 10)))

    scale = (width - left - right) * 10 / tenths

    groups: list[Record] = []
    top = 8
    for metric in metrics:
        rows: list[Record] = []
        for run in runs:
            if interval := run.metrics["metrics"].get(metric):
                rows.append(
                    {
                        "y": top + row_height * len(rows) + row_height / 2,
                        "run": run,
                        "text": f"{interval['mean']:.3f}",
                        **{key: round(left + interval[key] * scale, 2) for key in ("mean", "low", "high")},
                    }
                )
        groups.append({"metric": metric, "rows": rows, "y": top + row_height * len(rows) / 2})
        top += row_height * len(rows) + gap
    return {
        "width": width,
        "height": top + 20,
        "left": left,
        "right": width - right,
        "bottom": top - gap / 2,
        "groups": groups,
        "ticks": [{"x": round(left + tick / 10 * scale, 2), "label": f"{tick / 10:.1f}"} for tick in range(tenths + 1)],
    }
