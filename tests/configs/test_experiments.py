"""The commands of experiments and pipelines are accepted by their programs, and their results name what they run."""

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from trl import ModelConfig

from notewriter.artifacts.journal import ResumeArguments
from notewriter.data.options import GoldArguments, PairsArguments
from notewriter.data.recipe import read_gold_recipe, read_recipe
from notewriter.evaluation.evaluating import EvaluateArguments
from notewriter.experiments.run import Pipeline, read_pipeline
from notewriter.ground.config import parse
from notewriter.ground.recipes import RECIPES
from notewriter.methods import check_stages, prepare
from notewriter.models.roles import ModelArguments
from notewriter.results.experiment import read_experiment
from notewriter.training.options import DPOArguments, DPOConfiguration, SFTArguments, SFTConfiguration

EXPERIMENTS = sorted((RECIPES / "experiments").glob("e[0-9].yaml"))
ROUNDS = RECIPES / "pipelines/rounds.yaml"
WORTH = RECIPES / "experiments/worth.yaml"
MORE = RECIPES / "experiments/worth_more.yaml"
TESTS = ("2wikimultihopqa/dev.json", "hotpotqa/dev.json", "musique/train.jsonl")
OF_ROUNDS = [ROUNDS.with_name(f"{name}.yaml") for name in ("rounds", "rounds_qwen2.5-7b", "rejection_sampling")]
PIPELINES = [*EXPERIMENTS, WORTH, MORE, *OF_ROUNDS]


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_commands_are_what_their_programs_take(path: Path) -> None:
    for run in read_pipeline(path).runs:
        _, name, *argv = run.argv()
        if name == "train":
            method, _, profile, *argv = argv
            assert (RECIPES / f"accelerate/{profile}.yaml").is_file()
            kinds = (DPOArguments, DPOConfiguration) if method == "dpo" else (SFTArguments, SFTConfiguration)
            parse([*kinds, ModelConfig], argv)
        elif name == "pairs":
            arguments, _, _ = parse([PairsArguments, ModelArguments, ResumeArguments], argv)
            read_recipe(arguments)
        elif name == "gold":
            gold, _, _ = parse([GoldArguments, ModelArguments, ResumeArguments], argv)
            read_gold_recipe(gold)
        elif name == "evaluate":
            arguments, models, _ = parse([EvaluateArguments, ModelArguments, ResumeArguments], argv)
            check_stages(prepare(arguments.method, arguments.method_options), models)


def results_of(pipeline: Pipeline) -> list[str]:
    return [str(file) for run in pipeline.runs for file in run.results()]


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_results_compare_what_the_runs_write(path: Path) -> None:
    experiment, pipeline = read_experiment(path, None, {})
    written = set(results_of(pipeline))
    # Experiments compare with E1's models too.
    first = read_pipeline(EXPERIMENTS[0])
    written |= {result for result in results_of(first) if result.startswith(first.output_dir)}
    for cell in experiment.cells:
        for name in experiment.sets:
            for run in experiment.grid[cell, name].folders.values():
                assert f"{run}/metrics.json" in written


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_what_experiments_share_is_made_by_one_command(path: Path) -> None:
    made = {run.title: (run.argv(), run.serve) for run in read_pipeline(EXPERIMENTS[0]).runs}
    for run in read_pipeline(path).runs:
        assert made.get(run.title, (run.argv(), run.serve)) == (run.argv(), run.serve)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_experiments_share_what_they_have_in_common_and_never_train_on_evaluation_questions(path: Path) -> None:
    pipeline = read_pipeline(path)
    own = f"runs/experiments/{path.stem}"
    assert all(result.startswith((own, "runs/experiments/common/", "models/")) for result in results_of(pipeline))
    for run in pipeline.runs:
        if run.argv()[:2] == ["notewriter", "pairs"]:
            command = shlex.join(run.argv())
            assert all(f"questions/{name}/dev.jsonl" in command for name in ("2wikimultihopqa", "hotpotqa", "musique"))


def test_rounds_take_other_questions_and_leave_out_those_that_overlap_with_dev() -> None:
    changes = {"dataset": "jsonl", "train": "data/2wiki/train.jsonl", "dev": "data/2wiki/dev.jsonl"}
    on_dev, pairs, *_ = read_pipeline(ROUNDS, None, changes).runs
    evaluated, _ = parse([EvaluateArguments, ModelArguments], on_dev.argv()[2:])
    sampled, _ = parse([PairsArguments, ModelArguments], pairs.argv()[2:])
    assert (evaluated.dataset, evaluated.path) == ("jsonl", "data/2wiki/dev.jsonl")
    assert (sampled.dataset, sampled.path) == ("jsonl", "data/2wiki/train.jsonl")
    assert sampled.eval_files == {"data/2wiki/dev.jsonl": "jsonl"}


def test_what_a_note_is_worth_is_tested_on_questions_that_no_arm_trains_on() -> None:
    for run in read_pipeline(WORTH).runs:
        argv = run.argv()
        if argv[1] in ("gold", "evaluate") and run.title.endswith("cloze questions"):
            assert re.fullmatch(r"runs/experiments/worth/cloze/questions(-2)?\.jsonl", argv[argv.index("--path") + 1])
            assert "--question_set" not in argv
        elif argv[1] in ("gold", "pairs"):
            benchmark = argv[argv.index("--dataset") + 1]
            assert argv[argv.index("--question_set") + 1] == f"experiments/worth_sets/{benchmark}_train", run.title
            assert benchmark in ("2wikimultihopqa", "hotpotqa")
            left_out = json.loads(argv[argv.index("--eval_files") + 1])
            assert left_out.keys() == {f"data/{name}" for name in TESTS}
        elif argv[1] == "evaluate":
            folder = Path(argv[argv.index("--output_dir") + 1])
            fitted = {"training_passages": "train", "choosing_passages": "choose"}.get(folder.parent.name)
            part = fitted or ("choose" if folder.name == "choice" else "test")
            assert argv[argv.index("--question_set") + 1].endswith(f"_{part}"), run.title
        elif argv[1] == "fit-control":
            runs = itertools.takewhile(lambda word: not word.startswith("--"), argv[argv.index("--runs") + 1 :])
            assert all(re.search(r"/training_passages/\w+$|/cloze/passages(-2)?$", run) for run in runs)


def test_with_more_questions_no_arm_trains_on_one_of_the_test_and_controls_are_fitted_on_the_same() -> None:
    sets = {"gold": set(), "pairs": set(), "passages": set()}
    for run in read_pipeline(MORE).runs:
        argv = run.argv()
        chosen = argv[argv.index("--question_set") + 1] if "--question_set" in argv else ""
        folder = Path(argv[argv.index("--output_dir") + 1]) if "--output_dir" in argv else Path()
        if argv[1] in ("gold", "pairs") and chosen:
            sets[argv[1]].add(chosen)
            assert json.loads(argv[argv.index("--eval_files") + 1]).keys() == {f"data/{name}" for name in TESTS}
        elif argv[1] == "evaluate" and folder.name.startswith("training_"):
            sets["passages"].add(chosen)
        elif argv[1] == "evaluate" and chosen:
            chooses = folder.name.startswith(("choice", "choosing_"))
            assert ("_choose" if chooses else "_test") in chosen, run.title
            assert (
                "/index/larger"
                if folder.name in ("choice", "2wikimultihopqa", "hotpotqa", "musique")
                else "/index/training"
            ) in str(argv)
    trained = {f"experiments/worth_sets/{name}" for name in ("2wikimultihopqa_train", "hotpotqa_more_train.txt")}
    assert sets["pairs"] == trained
    assert sets["gold"] == sets["passages"] == trained | {"experiments/worth_sets/hotpotqa_train"}


def test_every_arm_of_what_a_note_is_worth_has_as_many_steps() -> None:
    steps: dict[str, int] = {}
    for run in read_pipeline(WORTH).runs:
        argv = run.argv()
        if "--max_steps" in argv:
            arm = run.title.split(", ")[1]
            steps[arm] = steps.get(arm, 0) + int(argv[argv.index("--max_steps") + 1])
    assert len(steps) == 6 and len(set(steps.values())) == 1
