"""`notewriter evaluate`: run a method over a benchmark with a served model or any endpoint, and score it.

From Python, `notewriter.evaluate(...)` does the same.
"""

import sys
from dataclasses import replace
from pathlib import Path

from notewriter.artifacts.journal import ResumeArguments
from notewriter.artifacts.metrics import Metrics
from notewriter.evaluation import checkpoints
from notewriter.evaluation.checkpoints import CheckpointArguments
from notewriter.evaluation.evaluating import OPTIONS, EvaluateArguments, checked, run
from notewriter.evaluation.notes import ANSWER, FACTS
from notewriter.evaluation.searching import RetrieversArguments, evaluate_chains
from notewriter.ground.config import command_line, parse
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.roles import ModelArguments
from notewriter.models.servers import Kept, Wanted, keep
from notewriter.rollouts.rehearsal import DryRunArguments, rehearse, report
from notewriter.rollouts.replies import in_words


def main(argv: list[str]) -> None:
    """Evaluate a model, the checkpoints of a training run one after another, or chains of retrievers."""
    arguments, models, costs, resume, dry, sweep, wanted = parse(
        [*OPTIONS, ResumeArguments, DryRunArguments, CheckpointArguments, RetrieversArguments],
        argv,
        prog="notewriter evaluate",
        description=__doc__,
    )

    command = command_line("notewriter evaluate", argv)
    if wanted.chains:
        if dry.dry_run:
            raise UserError(
                "dry_run and chains are both set; leave out dry_run, since chains call no model and cost nothing"
            )
        found = evaluate_chains(arguments, models, wanted, command)
        for name, chain in found.chains.items():
            shown = [f"{measure} {interval.text()}" for measure, interval in chain.measures.items()]
            sys.stdout.write(f"{name}: {', '.join(shown)}; {chain.milliseconds['p50']:,.2f} ms (median)\n")
        sys.stdout.write(f"the whole: notewriter report --runs {arguments.output_dir}\n")
        return

    def one(arguments: EvaluateArguments, models: ModelArguments) -> Metrics | None:
        """Evaluate one model and print its scores; None after a dry run."""
        evaluation, folder = checked(arguments, models, costs), Path(arguments.output_dir)
        if dry.dry_run:
            parts, questions, work = evaluation.parts, evaluation.questions, evaluation.work
            report(rehearse(dry, models, parts, questions, work, costs.prices), folder)
            return None
        metrics = run(evaluation, resume, command=command)
        sys.stdout.write(_summary(metrics, folder))
        return metrics

    if sweep.checkpoints is None:
        one(arguments, models)
        return
    paths = checkpoints.find(Path(sweep.checkpoints), models)
    output = Path(arguments.output_dir)
    metrics: dict[int, Metrics] = {}
    with keep() as servers:
        if not dry.dry_run:
            _serve_adapters(list(paths.values()), models, output, servers)
        for step, path in paths.items():
            own = replace(arguments, output_dir=str(output / path.name), name=f"{arguments.name or output.name}-{step}")
            result = one(own, replace(models, serve=str(path)))
            if result is None:
                # All checkpoints cost the same.
                return
            metrics[step] = result
    best = checkpoints.compare(paths, metrics, sweep.best_by, output)
    curves = f"curves: notewriter report --runs {output}"
    sys.stdout.write(f"best by {best.metric}: {best.checkpoint}, {best.score.text()}; {curves}\n")


def _serve_adapters(paths: list[Path], models: ModelArguments, output: Path, servers: Kept) -> None:
    """Start one server for the adapters that are not evaluated yet, if there are several."""
    waiting = [str(path) for path in paths if not (output / path.name / "metrics.json").is_file()]
    adapters = [path for path in waiting if Checkpoint(path).is_adapter]
    if len(adapters) > 1:
        wanted = [Wanted(path, models.serve_options, models.replicas) for path in adapters]
        # One at a time is asked, so that only one needs memory of a GPU.
        beside = {"max_loras": 1, "max_cpu_loras": len(adapters)}
        servers.start(wanted, output / "vllm-checkpoints.log", models.port, models.ready_timeout, beside)


def _summary(metrics: Metrics, folder: Path) -> str:
    lines = [f"{metrics.name}: {metrics.questions} questions, {metrics.errors} errors, in {folder}"]
    for metric, interval in metrics.metrics.items():
        lines.append(f"  {metric:20} {interval.mean:8.3f}  [{interval.low:.3f}, {interval.high:.3f}]")
    if fewer := metrics.fewer_searches:
        lines.append(f"  {fewer['fewer']} of {fewer['right']} right answers took fewer searches than gold documents")
    if cut := in_words(metrics.cut or {}):
        lines.append(f"  replies that were cut: {cut}")
    for name, scores in (metrics.controls or {}).items():
        # Notes show the two scores at equal words, constant answers all of theirs.
        shown = [f"{metric} {scores[metric].mean:.3f}" for metric in scores if metric in (FACTS, ANSWER)] or [
            f"{metric} {interval.mean:.3f}" for metric, interval in scores.items()
        ]
        lines.append(f"  without a model: {name:9} {', '.join(shown)}")
    return "\n".join(lines) + "\n"
