"""Scores for the hub's leaderboards: `.eval_results/*.yaml` (https://huggingface.co/docs/hub/eval-results)."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from notewriter.artifacts.metrics import read_metrics
from notewriter.ground.errors import UserError

FOLDER = ".eval_results"


def result_files(metrics: Sequence[Path], benchmarks: Mapping[str, str]) -> dict[str, bytes]:
    """One file per score and method, by its path in the repository.

    `benchmarks` maps `DATASET/METRIC` of a metrics.json to `OWNER/NAME:TASK`, the repository and task of a benchmark
    that is registered on the hub. The value is the mean as in metrics.json; the notes say what a leaderboard cannot:
    the method around the model, the number of questions and the interval.

    Raises:
        UserError: a key names a score that no file has, a benchmark is not of that form, or two runs have the same
            score of the same method.
    """
    runs = [read_metrics(path) for path in metrics]
    found: dict[str, bytes] = {}
    for score, benchmark in benchmarks.items():
        dataset, _, metric = score.rpartition("/")
        match = re.fullmatch(r"([\w.-]+/[\w.-]+):([\w.-]+)", benchmark)
        if match is None:
            raise UserError(f"benchmarks: {benchmark!r} is not a repository with a task; write owner/name:task")
        having = [run for run in runs if run.dataset == dataset and metric in run.metrics]
        if not having:
            raise UserError(f"benchmarks: no file of --metrics has {score!r}; write DATASET/METRIC as in metrics.json")
        for run in having:
            interval = run.metrics[metric]
            entry = EvalResultEntry(
                dataset_id=match[1],
                task_id=match[2],
                value=round(interval.mean, 4),
                notes=f"{metric} ({run.family}) with the method {run.method}, {run.questions} questions, "
                f"95% interval {interval.low:.3f} to {interval.high:.3f}",
            )
            name = re.sub(r"[^\w.-]+", "_", f"{dataset}_{metric}_{run.method}")
            path = f"{FOLDER}/{name}.yaml"
            if path in found:
                raise UserError(f"benchmarks: two files of --metrics have {score!r} of {run.method}; give one")
            text = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True)
            found[path] = text.encode("utf-8")
    return found
