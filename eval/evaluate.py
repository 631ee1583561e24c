"""`notewriter evaluate`: run a method over a benchmark with a served model or any endpoint, and score it."""

import sys
from dataclasses import replace
from pathlib import Path

from eval import checkpoints
from eval.checkpoints import CheckpointArguments
from eval.evaluation import EvaluateArguments, checked, evaluate
from notewriter.artifacts.metrics import Metrics
from notewriter.artifacts.run_folder import ResumeArguments
from notewriter.config import parse
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.rehearsal import DryRunArguments, estimate


def main(argv: list[str]) -> None:
    """Evaluate; questions that were finished before are not asked again."""
    arguments, models, resume, dry, each = parse(
        [EvaluateArguments, ModelArguments, ResumeArguments, DryRunArguments, CheckpointArguments],
        argv,
        prog="notewriter evaluate",
        description=__doc__,
    )
    if each.checkpoints is None:
        _evaluate(arguments, models, resume, dry)
    else:
        _evaluate_checkpoints(each, arguments, models, resume, dry)


def _evaluate_checkpoints(
    each: CheckpointArguments,
    arguments: EvaluateArguments,
    models: ModelArguments,
    resume: ResumeArguments,
    dry: DryRunArguments,
) -> None:
    """Evaluate the checkpoints of a training run one after another, and compare them.

    Every checkpoint has a run folder of its own, so those that were finished before are not served again.
    """
    found = checkpoints.find(Path(each.checkpoints or ""), models)
    output = Path(arguments.output_dir)
    metrics: dict[int, Metrics] = {}
    for step, path in found.items():
        own = replace(arguments, output_dir=str(output / path.name), name=f"{arguments.name or output.name}-{step}")
        one = _evaluate(own, replace(models, serve=str(path)), resume, dry)
        if one is None:
            # All checkpoints cost the same.
            return
        metrics[step] = one
    metric, best = checkpoints.compare(found, metrics, each.best_by, output)
    interval = f"{best.score.mean:.3f} [{best.score.low:.3f}, {best.score.high:.3f}]"
    sys.stdout.write(f"best by {metric}: {best.checkpoint}, {interval}; curves in {output / checkpoints.CURVES}\n")


def _evaluate(
    arguments: EvaluateArguments, models: ModelArguments, resume: ResumeArguments, dry: DryRunArguments
) -> Metrics | None:
    """Evaluate one model; returns its metrics, or None after a dry run."""
    evaluation = checked(arguments, models)
    folder = Path(arguments.output_dir)
    if dry.dry_run:
        estimate(dry, models, evaluation.parts, evaluation.questions, evaluation.work, folder, arguments.prices)
        return None
    metrics = evaluate(evaluation, resume)
    sys.stdout.write(_summary(metrics, folder))
    return metrics


def _summary(metrics: Metrics, folder: Path) -> str:
    lines = [f"{metrics.name}: {metrics.questions} questions, {metrics.errors} errors, in {folder}"]
    for metric, interval in metrics.metrics.items():
        lines.append(f"  {metric:20} {interval.mean:8.3f}  [{interval.low:.3f}, {interval.high:.3f}]")
    if fewer := metrics.fewer_searches:
        lines.append(f"  {fewer['fewer']} of {fewer['right']} right answers took fewer searches than gold documents")
    return "\n".join(lines) + "\n"
