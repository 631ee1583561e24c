"""`notewriter evaluate`: run a method over a benchmark with a served model or any endpoint, and score it."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from eval.accounting import (
    COSTS,
    COSTS_SCHEMA,
    account,
    check_prices,
    fewer_searches,
    gold_documents,
    supporting_recall,
    totals,
)
from eval.judgements import read_judgements, summary_of, with_judgements
from eval.metrics import FAMILIES, check_family, score
from eval.notes import note_quality
from eval.statistics import bootstrap_interval
from notewriter import __version__, jsonl
from notewriter.artifacts.run_folder import (
    ResumeArguments,
    check_journal,
    config_hash,
    defaults,
    drop_errors,
    finished,
    open_run,
    remaining,
    tell_errors,
)
from notewriter.artifacts.traces import TraceRecord
from notewriter.benchmarks import BENCHMARKS
from notewriter.benchmarks.questions import QuestionArguments, load_selected
from notewriter.config import choose, parse
from notewriter.method import Method
from notewriter.methods import METHODS, check_index, prepare
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments
from notewriter.records import Question
from notewriter.rollouts.loop import run_questions
from notewriter.rollouts.rehearsal import DryRunArguments, estimate, estimated
from notewriter.rollouts.resources import Resources, check_inputs
from notewriter.rollouts.rollout import Rollout


@dataclass(kw_only=True)
class Arguments(QuestionArguments):
    """What is evaluated, on what, and how it is scored."""

    method: str = field(default="deepnote", metadata={"help": f"one of: {', '.join(METHODS)}"})
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's options, e.g. {top_k: 5, max_step: 3}"}
    )
    family: str | None = field(
        default=None,
        metadata={"help": f"whose rules score an answer; default: the dataset's own. One of: {', '.join(FAMILIES)}"},
    )
    prices: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "role -> [price of a million prompt tokens, of a million completion tokens], for costs.json"},
    )
    name: str | None = field(default=None, metadata={"help": "the run's name in tables; default: the folder's"})


def main(argv: list[str]) -> None:
    """Evaluate; questions that are finished already are not asked again."""
    arguments, models, resume, dry = parse(
        [Arguments, ModelArguments, ResumeArguments, DryRunArguments],
        argv,
        prog="notewriter evaluate",
        description=__doc__,
    )
    benchmark = choose("dataset", arguments.dataset, BENCHMARKS)
    arguments.family = arguments.family or benchmark.family
    check_family(arguments.family)
    method = prepare(arguments.method, arguments.method_options)
    if "answer_style" in method.options:
        arguments.method_options = {"answer_style": benchmark.answer_style} | arguments.method_options
    check_index(method, arguments.index)
    check_prices(arguments.prices)
    check_inputs(models, arguments.index)
    questions = load_selected(arguments)
    for question in questions:
        # What the family needs of a question is missed before answers are paid for.
        score(arguments.family or benchmark.family, "", question)
    work = partial(trace_of, method=method, options=arguments.method_options)
    if dry.dry_run:
        estimate(dry, models, arguments.index, questions, work, Path(arguments.output_dir), arguments.prices)
        return
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, questions, defaults(arguments, models)) as folder:
        journal = folder / "traces.jsonl"
        check_journal(journal, TraceRecord)
        if resume.retry_errors:
            drop_errors(journal)
        if remaining(journal, questions):
            run_questions(
                models,
                arguments.index,
                questions,
                work,
                journal,
                description="evaluating",
                count=lambda trace: {"errors": int(bool(trace["error"]))},
            )
        metrics = _finish(arguments, models, folder, questions, config)
        tell_errors(journal, questions)
    sys.stdout.write(_summary(metrics, folder))


async def trace_of(question: Question, resources: Resources, method: Method, options: dict[str, Any]) -> dict[str, Any]:
    """Run a method on one question; returns the trace as a dictionary.

    A request that the endpoint refuses (a prompt beyond the model's context) leaves the question
    without an answer and the reason in the trace; it counts as wrong and among the errors.
    """
    rollout = Rollout(question, method.name, resources)
    try:
        rollout.trace.answer = await method.run(question.question, rollout, **options)
    except RequestRefused as refusal:
        rollout.trace.error = str(refusal)
    return rollout.trace.to_dict()


def prediction_of(question: Question, trace: dict[str, Any], family: str) -> dict[str, Any]:
    """A trace's line in predictions.jsonl: the answer, its scores, the note's scores and the cost.

    Where the trace ended in an error every score is 0, also that of the note that had been written so far.
    """
    scores = score(family, trace["answer"], question)
    if trace["note"] is not None:
        scores |= note_quality(trace["note"], question)
    scores |= supporting_recall(trace, question)
    if trace["error"]:
        scores = dict.fromkeys(scores, 0.0)
    return {
        "schema": "notewriter/prediction/1",
        "question_id": question.id,
        "question": question.question,
        "answers": list(question.answers),
        "prediction": trace["answer"],
        "note": trace["note"] or "",
        "error": trace["error"],
        "scores": scores,
        **account(trace, question),
        "gold_documents": gold_documents(question),
        "counts": trace["counts"],
        "metadata": question.metadata,
    }


def summarise(predictions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Counts, means with 95% bootstrap intervals for each metric, mean costs and `fewer_searches`, over predictions."""
    predictions = list(predictions)
    columns: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {cost: [] for cost in COSTS}
    errors = 0
    for prediction in predictions:
        errors += bool(prediction["error"])
        for metric, value in prediction["scores"].items():
            columns.setdefault(metric, []).append(value)
        for cost, values in costs.items():
            values.append(prediction[cost])
    count = len(costs["calls"])
    return {
        "questions": count,
        "errors": errors,
        "metrics": {metric: asdict(bootstrap_interval(values)) for metric, values in columns.items()},
        "per_question": {cost: sum(values) / count for cost, values in costs.items()},
        **fewer_searches(predictions),
    }


def _finish(
    arguments: Arguments, models: ModelArguments, folder: Path, questions: list[Question], config: dict[str, Any]
) -> dict[str, Any]:
    """Write predictions.jsonl, costs.json and metrics.json from the traces, in the order of the questions.

    What `notewriter judge` left in the folder joins the scores.
    """
    by_id = {question.id: question for question in questions}
    family = arguments.family or BENCHMARKS[arguments.dataset].family
    path = folder / "predictions.jsonl"
    traces = finished(folder / "traces.jsonl", questions)
    predictions = (prediction_of(by_id[trace["question_id"]], trace, family) for trace in traces)
    judgements = read_judgements(folder)
    jsonl.write(path, (with_judgements(prediction, judgements, folder) for prediction in predictions))
    metrics = {
        "schema": "notewriter/metrics/1",
        "name": arguments.name or folder.name,
        "dataset": arguments.dataset,
        "method": arguments.method,
        "model": Path(models.serve).name if models.serve else models.model,
        "family": family,
        **summarise(prediction for _, prediction in jsonl.read(path)),
        **estimated(folder),
        "config_hash": config_hash(config),
        "version": __version__,
        **summary_of(judgements),
    }
    costs = totals(
        finished(folder / "traces.jsonl", questions), (record for _, record in jsonl.read(path)), arguments.prices
    )
    costs = {"schema": COSTS_SCHEMA} | costs
    jsonl.write_text(folder / "costs.json", [json.dumps(costs, indent=2, ensure_ascii=False) + "\n"])
    jsonl.write_text(folder / "metrics.json", [json.dumps(metrics, indent=2, ensure_ascii=False) + "\n"])
    return metrics


def _summary(metrics: dict[str, Any], folder: Path) -> str:
    lines = [f"{metrics['name']}: {metrics['questions']} questions, {metrics['errors']} errors, in {folder}"]
    for metric, interval in metrics["metrics"].items():
        lines.append(f"  {metric:20} {interval['mean']:8.3f}  [{interval['low']:.3f}, {interval['high']:.3f}]")
    if told := metrics.get("fewer_searches"):
        lines.append(f"  {told['fewer']} of {told['right']} right answers took fewer searches than gold documents")
    return "\n".join(lines) + "\n"
