"""`notewriter evaluate`: run a method over a benchmark with a served model or any endpoint, and score it."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from eval import checkpoints
from eval.accounting import run_costs
from eval.checkpoints import CheckpointArguments
from eval.judgements import read_run_judgements, summary_of, with_judgements
from eval.metrics import FAMILIES, check_family, check_questions
from eval.scoring import prediction_of, summarise, trace_of
from eval.trackers import trackers_of
from notewriter import __version__
from notewriter.artifacts.costs import write_costs
from notewriter.artifacts.metrics import Metrics, write_metrics
from notewriter.artifacts.predictions import read_predictions, write_predictions
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
from notewriter.artifacts.traces import Trace, TraceRecord
from notewriter.benchmarks import BENCHMARKS
from notewriter.benchmarks.questions import QuestionArguments, load_selected
from notewriter.config import choose, parse
from notewriter.method import Method
from notewriter.methods import METHODS, check_index, prepare
from notewriter.models.checkpoints import is_adapter
from notewriter.models.prices import CostArguments, Prices, check_costs
from notewriter.models.roles import ModelArguments, Running, start_groups
from notewriter.records import Question
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.rehearsal import DryRunArguments, estimate, estimated
from notewriter.rollouts.resources import check_inputs
from notewriter.rollouts.runner import run_questions


@dataclass(kw_only=True)
class EvaluateArguments(QuestionArguments):
    """What is evaluated, on which questions, and how answers are scored."""

    method: str = field(default="deepnote", metadata={"help": f"one of: {', '.join(METHODS)}"})
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's options, e.g. {top_k: 5, max_step: 3}"}
    )
    family: str | None = field(
        default=None,
        metadata={
            "help": f"the metric family that scores answers; default: the dataset's own. One of: {', '.join(FAMILIES)}"
        },
    )
    name: str | None = field(default=None, metadata={"help": "the run's name in tables; default: the folder's name"})


def main(argv: list[str]) -> None:
    """Evaluate; questions that were finished before are not asked again."""
    arguments, models, resume, dry, costs, each = parse(
        [EvaluateArguments, ModelArguments, ResumeArguments, DryRunArguments, CostArguments, CheckpointArguments],
        argv,
        prog="notewriter evaluate",
        description=__doc__,
    )
    if each.checkpoints is None:
        _evaluate(arguments, models, resume, dry, costs)
    else:
        _evaluate_checkpoints(each, arguments, models, resume, dry, costs)


def _evaluate_checkpoints(
    each: CheckpointArguments,
    arguments: EvaluateArguments,
    models: ModelArguments,
    resume: ResumeArguments,
    dry: DryRunArguments,
    costs: CostArguments,
) -> None:
    """Evaluate the checkpoints of a training run one after another, and compare them.

    Every checkpoint has a run folder of its own, so those that were finished before are not served again. The others
    share a server if they are adapters.
    """
    run = Path(each.checkpoints or "")
    found = checkpoints.find(run, models)
    trackers = trackers_of(run, each.report_to)
    output = Path(arguments.output_dir)
    metrics: dict[int, Metrics] = {}
    with contextlib.ExitStack() as stack:
        running: Running = {}
        finished_before = [path for path in found.values() if (output / path.name / "metrics.json").is_file()]
        adapters = [str(path) for path in found.values() if path not in finished_before and is_adapter(str(path))]
        if len(adapters) > 1 and not dry.dry_run:
            # One at a time is asked, so that only one needs memory of a GPU.
            options = {"max_loras": 1, "max_cpu_loras": len(adapters)} | models.serve_options
            together = replace(models, serve_options=options)
            running = start_groups(stack, adapters, together, lambda group: output / "vllm-checkpoints.log")
        for step, path in found.items():
            own = replace(arguments, output_dir=str(output / path.name), name=f"{arguments.name or output.name}-{step}")
            one = _evaluate(own, replace(models, serve=str(path)), resume, dry, costs, running)
            if one is None:
                # All checkpoints cost the same.
                return
            metrics[step] = one
    best = checkpoints.compare(found, metrics, each.best_by, output, trackers)
    interval = f"{best.score.mean:.3f} [{best.score.low:.3f}, {best.score.high:.3f}]"
    sys.stdout.write(f"best by {best.metric}: {best.checkpoint}, {interval}; curves in {output / checkpoints.CURVES}\n")


def _evaluate(
    arguments: EvaluateArguments,
    models: ModelArguments,
    resume: ResumeArguments,
    dry: DryRunArguments,
    costs: CostArguments,
    running: Running | None = None,
) -> Metrics | None:
    """Evaluate one model; returns its metrics, or None after a dry run."""
    benchmark = choose("dataset", arguments.dataset, BENCHMARKS)
    arguments.family = arguments.family or benchmark.family
    check_family(arguments.family)
    method = prepare(arguments.method, arguments.method_options)
    if "answer_style" in method.options:
        arguments.method_options = {"answer_style": benchmark.answer_style} | arguments.method_options
    parts = parts_of(arguments.index, arguments.retriever)
    check_index(method, parts)
    check_costs(costs)
    check_inputs(models, parts)
    questions = load_selected(arguments)
    check_questions(arguments.family, questions)
    work = partial(trace_of, method=method, options=arguments.method_options)
    if dry.dry_run:
        estimate(dry, models, parts, questions, work, Path(arguments.output_dir), costs.prices)
        return None
    config = asdict(arguments) | asdict(models) | {"prices": costs.prices}
    with open_run(arguments.output_dir, config, questions, defaults(arguments, models, costs)) as folder:
        journal = folder / "traces.jsonl"
        check_journal(journal, TraceRecord)
        if resume.retry_errors:
            drop_errors(journal)
        if remaining(journal, questions):
            run_questions(
                models,
                parts,
                questions,
                work,
                journal,
                description="evaluating",
                count=lambda trace: {"errors": int(bool(trace["error"]))},
                costs=costs,
                running=running,
            )
        metrics = _finish(folder, arguments, models, questions, method, config, costs.prices)
        tell_errors(journal, questions)
    sys.stdout.write(_summary(metrics, folder))
    return metrics


def _finish(
    folder: Path,
    arguments: EvaluateArguments,
    models: ModelArguments,
    questions: list[Question],
    method: Method,
    config: dict[str, Any],
    prices: Prices,
) -> Metrics:
    """Write predictions.jsonl, costs.json and metrics.json from the traces, in the order of the questions.

    Scores that `notewriter judge` left in the folder are kept.
    """
    by_id = {question.id: question for question in questions}
    family = arguments.family or BENCHMARKS[arguments.dataset].family
    judgements = read_run_judgements(folder)
    scored = (prediction_of(by_id[trace.question_id], trace, family) for trace in _traces(folder, questions, method))
    path = folder / "predictions.jsonl"
    write_predictions(path, (with_judgements(prediction, judgements, folder) for prediction in scored))
    predictions = read_predictions(path).values()
    metrics = Metrics(
        name=arguments.name or folder.name,
        dataset=arguments.dataset,
        method=arguments.method,
        model=_model_name(models),
        family=family,
        **summarise(predictions),
        estimate=estimated(folder).get("estimate"),
        config_hash=config_hash(config),
        version=__version__,
        judged=summary_of(judgements),
    )
    costs = run_costs(_traces(folder, questions, method), predictions, prices)
    write_costs(folder / "costs.json", costs)
    write_metrics(folder / "metrics.json", metrics)
    return metrics


def _traces(folder: Path, questions: list[Question], method: Method) -> Iterator[Trace]:
    """The run's traces in the order of the questions, one at a time in memory."""
    for record in finished(folder / "traces.jsonl", questions):
        trace = Trace.from_checked(record)
        if trace.retrieves is None:
            # Earlier versions did not record it.
            trace.retrieves = method.retrieves
        yield trace


def _model_name(models: ModelArguments) -> str:
    """The name of the policy's model; of a served one, its folder's."""
    policy = models.models.get("policy", {})
    path = models.serve or policy.get("serve")
    return Path(path).name if path else str(models.model or policy.get("model", ""))


def _summary(metrics: Metrics, folder: Path) -> str:
    lines = [f"{metrics.name}: {metrics.questions} questions, {metrics.errors} errors, in {folder}"]
    for metric, interval in metrics.metrics.items():
        lines.append(f"  {metric:20} {interval.mean:8.3f}  [{interval.low:.3f}, {interval.high:.3f}]")
    if fewer := metrics.fewer_searches:
        lines.append(f"  {fewer['fewer']} of {fewer['right']} right answers took fewer searches than gold documents")
    return "\n".join(lines) + "\n"
