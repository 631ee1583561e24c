"""`notewriter evaluate`: run a method over a benchmark with a served model or any endpoint, and score it."""

import sys
from dataclasses import replace
from pathlib import Path

from notewriter.artifacts.journal import ResumeArguments
from notewriter.artifacts.metrics import Metrics
from notewriter.evaluation import checkpoints
from notewriter.evaluation.checkpoints import CheckpointArguments
from notewriter.evaluation.evaluation import EvaluateArguments, checked, evaluate
from notewriter.evaluation.trackers import trackers_of
from notewriter.ground.config import command_line, parse
from notewriter.models.checkpoints import is_adapter
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments
from notewriter.models.servers import Wanted, keep
from notewriter.rollouts.rehearsal import DryRunArguments, estimate


def main(argv: list[str]) -> None:
    """Evaluate; questions that were finished before are not asked again."""
    arguments, models, resume, dry, costs, each = parse(
        [EvaluateArguments, ModelArguments, ResumeArguments, DryRunArguments, CostArguments, CheckpointArguments],
        argv,
        prog="notewriter evaluate",
        description=__doc__,
    )
    command = command_line("notewriter evaluate", argv)
    if each.checkpoints is None:
        _evaluate(arguments, models, resume, dry, costs, command)
    else:
        _evaluate_checkpoints(each, arguments, models, resume, dry, costs, command)


def _evaluate_checkpoints(
    each: CheckpointArguments,
    arguments: EvaluateArguments,
    models: ModelArguments,
    resume: ResumeArguments,
    dry: DryRunArguments,
    costs: CostArguments,
    command: list[str],
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
    with keep() as kept:
        finished_before = [path for path in found.values() if (output / path.name / "metrics.json").is_file()]
        adapters = [str(path) for path in found.values() if path not in finished_before and is_adapter(str(path))]
        if len(adapters) > 1 and not dry.dry_run:
            # One at a time is asked, so that only one needs memory of a GPU.
            wanted = [Wanted(path, models.serve_options, models.replicas) for path in adapters]
            beside = {"max_loras": 1, "max_cpu_loras": len(adapters)}
            kept.start(wanted, output / "vllm-checkpoints.log", models.port, models.ready_timeout, beside)
        for step, path in found.items():
            own = replace(arguments, output_dir=str(output / path.name), name=f"{arguments.name or output.name}-{step}")
            one = _evaluate(own, replace(models, serve=str(path)), resume, dry, costs, command)
            if one is None:
                # All checkpoints cost the same.
                return
            metrics[step] = one
    best = checkpoints.compare(found, metrics, each.best_by, output, trackers)
    curves = output / checkpoints.CURVES
    sys.stdout.write(f"best by {best.metric}: {best.checkpoint}, {best.score.text()}; curves in {curves}\n")


def _evaluate(
    arguments: EvaluateArguments,
    models: ModelArguments,
    resume: ResumeArguments,
    dry: DryRunArguments,
    costs: CostArguments,
    command: list[str],
) -> Metrics | None:
    """Evaluate one model; returns its metrics, or None after a dry run."""
    evaluation = checked(arguments, models, costs)
    folder = Path(arguments.output_dir)
    if dry.dry_run:
        estimate(dry, models, evaluation.parts, evaluation.questions, evaluation.work, folder, costs.prices)
        return None
    metrics = evaluate(evaluation, resume, command=command)
    sys.stdout.write(_summary(metrics, folder))
    return metrics


def _summary(metrics: Metrics, folder: Path) -> str:
    lines = [f"{metrics.name}: {metrics.questions} questions, {metrics.errors} errors, in {folder}"]
    for metric, interval in metrics.metrics.items():
        lines.append(f"  {metric:20} {interval.mean:8.3f}  [{interval.low:.3f}, {interval.high:.3f}]")
    if fewer := metrics.fewer_searches:
        lines.append(f"  {fewer['fewer']} of {fewer['right']} right answers took fewer searches than gold documents")
    return "\n".join(lines) + "\n"
