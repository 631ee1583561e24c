"""The commands of experiments and pipelines are accepted by their programs, and their results name what they run."""

import shlex
from pathlib import Path

import pytest
from trl import ModelConfig

from notewriter.artifacts.journal import ResumeArguments
from notewriter.data.options import GoldArguments, PairsArguments
from notewriter.data.recipe import read_gold_recipe, read_recipe
from notewriter.evaluation.evaluate import EvaluateArguments
from notewriter.experiments.pipelines.pipeline import PROJECT, read_pipeline
from notewriter.experiments.results.experiment import read_experiment
from notewriter.ground.config import parse
from notewriter.methods import prepare
from notewriter.models.roles import ModelArguments
from notewriter.training.options import DPOArguments, DPOConfiguration, SFTArguments, SFTConfiguration

EXPERIMENTS = sorted((PROJECT / "configs/experiments").glob("e[0-9].yaml"))
ROUNDS = PROJECT / "configs/pipelines/rounds.yaml"
PIPELINES = [*EXPERIMENTS, ROUNDS, ROUNDS.with_name("rounds_qwen2.5-7b.yaml")]


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_commands_are_what_their_programs_take(path: Path) -> None:
    for stage in read_pipeline(path).stages:
        program, name, *argv = stage.argv()
        if Path(program).name in ("train_dpo.py", "train_sft.py"):
            kinds = (DPOArguments, DPOConfiguration) if "dpo" in program else (SFTArguments, SFTConfiguration)
            parse([*kinds, ModelConfig], [name, *argv])
        elif name == "pairs":
            arguments, _, _ = parse([PairsArguments, ModelArguments, ResumeArguments], argv)
            read_recipe(arguments)
        elif name == "gold":
            gold, _, _ = parse([GoldArguments, ModelArguments, ResumeArguments], argv)
            read_gold_recipe(gold)
        elif name == "evaluate":
            arguments, _, _ = parse([EvaluateArguments, ModelArguments, ResumeArguments], argv)
            prepare(arguments.method, arguments.method_options)


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_results_compare_runs_that_the_stages_write(path: Path) -> None:
    experiment, pipeline = read_experiment(path, None, {})
    written = {str(result) for stage in pipeline.stages for result in stage.results().values()}
    # Experiments compare with E1's models too.
    first = read_pipeline(EXPERIMENTS[0])
    written |= {
        str(result)
        for stage in first.stages
        for result in stage.results().values()
        if str(result).startswith(first.output_dir)
    }
    for cell in experiment.cells:
        for name in experiment.sets:
            for run in experiment.planned(cell, name).values():
                assert f"{run}/metrics.json" in written


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_what_experiments_share_is_made_by_one_command(path: Path) -> None:
    made = {stage.result: (stage.argv(), stage.serve) for stage in read_pipeline(EXPERIMENTS[0]).stages}
    for stage in read_pipeline(path).stages:
        assert made.get(stage.result, (stage.argv(), stage.serve)) == (stage.argv(), stage.serve)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiments_share_what_they_have_in_common_and_never_train_on_evaluation_questions(path: Path) -> None:
    stages = read_pipeline(path).stages
    own = f"runs/experiments/{path.stem}"
    for stage in stages:
        for result in stage.results().values():
            assert str(result).startswith((own, "runs/experiments/common/", "models/"))
        if stage.argv()[:2] == ["notewriter", "pairs"]:
            command = shlex.join(stage.argv())
            assert all(f"questions/{name}/dev.jsonl" in command for name in ("2wikimultihopqa", "hotpotqa", "musique"))


def test_rounds_take_other_questions_and_leave_out_those_that_overlap_with_dev() -> None:
    changes = {"dataset": "jsonl", "train": "data/2wiki/train.jsonl", "dev": "data/2wiki/dev.jsonl"}
    on_dev, pairs, *_ = read_pipeline(ROUNDS, None, changes).stages
    evaluated, _ = parse([EvaluateArguments, ModelArguments], on_dev.argv()[2:])
    sampled, _ = parse([PairsArguments, ModelArguments], pairs.argv()[2:])
    assert (evaluated.dataset, evaluated.path) == ("jsonl", "data/2wiki/dev.jsonl")
    assert (sampled.dataset, sampled.path) == ("jsonl", "data/2wiki/train.jsonl")
    assert sampled.eval_files == {"data/2wiki/dev.jsonl": "jsonl"}
