"""The recipes of the repository are what the commands accept, and say what they reproduce."""

from pathlib import Path

import pytest

from data_construction import pairs
from eval import evaluate
from notewriter.config import parse
from notewriter.methods import prepare
from notewriter.runs import ModelArguments, check_inputs

CONFIGS = Path(__file__).parents[2] / "configs"
OPTIONS = ["--path", "questions.json", "--index", "index", "--output_dir", "run"]


def recipes(folder: str) -> list:
    return [pytest.param(path, id=path.stem) for path in sorted((CONFIGS / folder).glob("*.yaml"))]


@pytest.mark.parametrize("path", recipes("data"))
def test_recipes_of_pairs_name_stages_judges_and_options_that_there_are(path):
    arguments, models = parse([pairs.Arguments, ModelArguments], ["--config", str(path), *OPTIONS])
    recipe, methods = pairs._prepare(arguments)
    check_inputs(models, None)
    assert set(recipe.judges) == set(arguments.stages)
    assert methods


@pytest.mark.parametrize("path", recipes("eval"))
def test_recipes_of_evaluation_name_methods_and_options_that_there_are(path):
    arguments, models = parse([evaluate.Arguments, ModelArguments], ["--config", str(path), *OPTIONS])
    prepare(arguments.method, arguments.method_options)
    check_inputs(models, None)


def test_dnalign_is_the_papers():
    """DeepNote, section 3.4, appendix D: questions, samplers, judges and numbers of pairs."""
    path = CONFIGS / "data/dnalign_2wiki.yaml"
    arguments, _ = parse([pairs.Arguments, ModelArguments], ["--config", str(path), *OPTIONS])
    recipe, _ = pairs._prepare(arguments)
    assert len(recipe.samplers) == 9
    assert (arguments.limit, arguments.top_k_range) == (15000, [3, 9])
    assert {stage: judge for stage, (judge, _) in recipe.judges.items()} == {
        "deepnote/init_note": "llm",
        "deepnote/refine_query": "llm",
        "deepnote/accumulate_knowledge": "decision",
        "vanilla/answer": "metric",
    }
    assert list(arguments.quotas.values()) == [1900, 1900, 1900, 300]
