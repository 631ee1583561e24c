"""The recipes of the repository are what the commands accept, and say what they reproduce."""

import re
from pathlib import Path

import pytest
import yaml

from notewriter.data.build_chains import check_index
from notewriter.data.options import ChainsArguments, GoldArguments, PairsArguments
from notewriter.data.recipe import read_gold_recipe, read_recipe
from notewriter.evaluation import evaluate
from notewriter.ground.config import parse
from notewriter.methods import check_stages, prepare
from notewriter.models.roles import ModelArguments
from notewriter.results.paper_values import published_rows
from notewriter.retrieval.chain import parts_of
from notewriter.rollouts.resources import check_inputs

CONFIGS = Path(__file__).parents[2] / "configs"
OPTIONS = ["--path", "questions.json", "--index", "index", "--output_dir", "run"]


def recipes(pattern: str) -> list:
    return [pytest.param(path, id=path.stem) for path in sorted(CONFIGS.glob(pattern))]


@pytest.mark.parametrize(
    "path", [recipe for recipe in recipes("data/*.yaml") if not re.match("rearag|gold", recipe.id)]
)
def test_recipes_of_pairs_name_stages_judges_and_options_that_there_are(path):
    arguments, models = parse([PairsArguments, ModelArguments], ["--config", str(path), *OPTIONS])
    recipe = read_recipe(arguments)
    check_inputs(models, None)
    assert set(recipe.judges) == set(arguments.stages)
    assert recipe.methods


@pytest.mark.parametrize("path", recipes("data/rearag_*.yaml"))
def test_recipes_of_chains_are_what_the_command_takes(path):
    arguments, models = parse([ChainsArguments, ModelArguments], ["--config", str(path), *OPTIONS])
    check_index(arguments)
    check_inputs(models, None)


@pytest.mark.parametrize("path", recipes("data/gold_*.yaml"))
def test_recipes_of_gold_evidence_are_what_the_command_takes(path):
    arguments, models = parse([GoldArguments, ModelArguments], ["--config", str(path), *OPTIONS])
    assert set(read_gold_recipe(arguments).stages) == set(arguments.gold_stages)
    check_inputs(models, None)


@pytest.mark.parametrize("path", recipes("eval/*.yaml"))
def test_recipes_of_evaluation_name_methods_and_options_that_there_are(path):
    arguments, models = parse([evaluate.EvaluateArguments, ModelArguments], ["--config", str(path), *OPTIONS])
    check_stages(prepare(arguments.method, arguments.method_options), models)
    check_inputs(models, None)


@pytest.mark.parametrize(
    "path",
    [
        recipe
        for method in ("dpo", "kto", "sft")
        for recipe in recipes(f"{method}/*.yaml")
        if "quickstart" not in recipe.id
    ],
)
def test_recipes_of_training_name_the_data_that_a_recipe_of_data_writes(path):
    pages = [*CONFIGS.glob("data/*.yaml"), *(CONFIGS.parent / "docs").rglob("*.md")]
    written = {folder for page in pages for folder in re.findall(r"--output_dir (\S+)", page.read_text())}
    recipe = yaml.safe_load(path.read_text())
    assert recipe.get("pairs", recipe.get("data")) in written


@pytest.mark.parametrize("path", [path for kind in ("dpo", "kto", "sft") for path in recipes(f"{kind}/*-[789]b*.yaml")])
def test_recipes_of_7b_to_9b_models_keep_the_weights_of_every_checkpoint_or_the_last_one_of_a_round(path):
    recipe = yaml.safe_load(path.read_text())
    of_a_round = path.stem.split("_")[0] in {"rounds", "warm", "rejection"}
    assert (recipe.get("save_total_limit"), recipe.get("keep_weights")) == ((1, None) if of_a_round else (None, True))


@pytest.mark.parametrize("path", recipes("dpo/*.yaml"))
def test_recipes_of_dpo_share_prompts_and_keep_no_reference_model(path):
    recipe = yaml.safe_load(path.read_text())
    assert recipe["prefix_sharing"]
    if path.stem.startswith("deepnote"):
        assert recipe.get("use_peft") or recipe["precompute_ref_log_probs"]


def test_rearags_models_sample_as_in_the_authors_code():
    """src/infer.py: 15 steps, temperature 1.0, top_p 0.85, 1,024 tokens; src/agents.py: observations, short answers."""
    for path in CONFIGS.glob("eval/rearag_*.yaml"):
        recipe = yaml.safe_load(path.read_text())
        is_released = recipe["method_options"].get("released_format", False)
        assert is_released == ("released" in path.stem)
        step = "rearag/released" if is_released else "rearag/step"
        assert recipe["stage_sampling"] == {
            step: {"temperature": 1.0, "top_p": 0.85},
            "rearag/observe": {"temperature": 0.95, "top_p": 0.9},
            "rearag/shorten": {"temperature": 0.8, "top_p": 0.7, "max_tokens": 64},
        }
        assert (recipe["method_options"]["max_step"], recipe["max_tokens"]) == (15, 1024)
        assert (recipe["method_options"]["top_k"], recipe["method_options"]["retries"]) == (3, 20)


def test_dnalign_to_the_letter_samples_and_judges_as_the_authors_code():
    """DeepNote's src/gen_dpo_data.py (1,024 tokens) and src/utils.py (call_gpt: temperature 1)."""
    strict, ours = (
        yaml.safe_load((CONFIGS / f"data/dnalign_2wiki{name}.yaml").read_text()) for name in ("_strict", "")
    )
    judged = {"temperature": 1.0, "top_p": 0.9, "max_tokens": 64}
    differs = {key: strict[key] for key in strict if strict[key] != ours[key]}
    assert differs == {
        "judge_orders": 1,
        "max_tokens": 1024,
        "stage_sampling": {"judge/best_and_worst": judged, "deepnote/decide": judged},
    }


@pytest.mark.parametrize("path", [*recipes("eval/rearag_*.yaml"), *recipes("data/rearag_musique.yaml")])
def test_rearags_rag_engine_is_dense_and_reranked_within_the_questions_documents(path):
    """ReaRAG, section 4.1 and R(q, doc) of Algorithms 1 and 2; what is named is what the header's commands write."""
    recipe, header = yaml.safe_load(path.read_text()), path.read_text().partition("\ndataset")[0]
    if "released" in path.stem:
        header = (path.parent / "rearag_musique.yaml").read_text()
    index, within, rerank = parts_of(None, recipe["retriever"])
    assert f"--index {index['index']} \\\n#     --encoder" in header
    corpus = within["within"].removesuffix("/per_question.jsonl")
    assert f"--output_dir {corpus}\n" in header and f"--path {corpus}/corpus.jsonl" in header
    assert rerank["rerank"]


@pytest.mark.parametrize("path", [*recipes("eval/rearag_*.yaml"), *recipes("eval/deepnote_*.yaml")])
def test_the_papers_questions_are_those_of_a_question_set_that_there_is(path):
    recipe = yaml.safe_load(path.read_text())
    if named := recipe.get("question_set"):
        assert (CONFIGS.parent / named).is_file() and Path(named).parent.name == recipe["dataset"]
        assert "limit" not in recipe
    else:
        # All of ASQA's; DeepNote's 500 of StrategyQA are not published.
        assert recipe["dataset"] in ("asqa", "strategyqa")


@pytest.mark.parametrize("path", [*recipes("eval/resp_*.yaml"), *recipes("data/resp.yaml")])
def test_llama_3_is_not_asked_for_more_context_than_it_has(path):
    """Its 8,192 positions: vLLM does not start with more."""
    text = path.read_text()
    assert "Meta-Llama-3-8B-Instruct" in text
    assert yaml.safe_load(text)["serve_options"]["max_model_len"] <= 8192


def test_every_column_of_the_papers_main_tables_has_a_recipe():
    methods = {"DeepNote": "deepnote", "ReaRAG": "rearag", "ReSP": "resp", "NotesWriting": "renact"}
    # Search-R1's settings are the same for its seven sets and stand in its paper.yaml.
    rows = [row for row in published_rows() if row["paper"] != "Search-R1"]
    published = {(methods[row["paper"]], row["dataset"]) for row in rows}
    recipes = [yaml.safe_load(path.read_text()) for path in CONFIGS.glob("eval/*.yaml")]
    assert published <= {(recipe["method"], recipe["dataset"]) for recipe in recipes}


@pytest.mark.parametrize(("name", "orders"), [("dnalign_2wiki", 2), ("dnalign_2wiki_strict", 1)])
def test_dnalign_is_the_papers(name, orders):
    """DeepNote, section 3.4, appendix D: questions, samplers, judges and numbers of pairs.

    The paper's judge sees the candidates in one order.
    """
    path = CONFIGS / f"data/{name}.yaml"
    arguments, _ = parse([PairsArguments, ModelArguments], ["--config", str(path), *OPTIONS])
    recipe = read_recipe(arguments)
    assert len(recipe.samplers) == 9
    assert (arguments.limit, arguments.top_k_range) == (15000, [3, 9])
    assert {stage: judge.name for stage, (judge,) in recipe.judges.items()} == {
        "deepnote/init_note": "llm",
        "deepnote/refine_query": "llm",
        "deepnote/accumulate_knowledge": "decision",
        "vanilla/answer": "metric",
    }
    assert list(arguments.quotas.values()) == [1900, 1900, 1900, 300]
    assert (recipe.rules.judge_orders, recipe.sample_full_stages) == (orders, True)
    # A right answer against a wrong one, and nothing in between.
    assert arguments.min_gap == 1.0


def test_chains_are_drawn_as_in_the_authors_code():
    """ReaRAG, section 3.2 and the authors' code: steps, passages and sampling with a reasoning teacher, Algorithm 3."""
    path = CONFIGS / "data/rearag_musique.yaml"
    arguments, models = parse([ChainsArguments, ModelArguments], ["--config", str(path), *OPTIONS])
    assert (arguments.dataset, arguments.max_step, arguments.top_k) == ("musique", 25, 3)
    assert models.stage_sampling == {
        "rearag/teach": {"temperature": 0.99, "top_p": 0.85},
        "rearag/observe": {"temperature": 0.95, "top_p": 0.7, "max_tokens": 1024},
    }
    without = CONFIGS / "data/rearag_without_reasoning.yaml"
    assert not parse([ChainsArguments, ModelArguments], ["--config", str(without), *OPTIONS])[0].reasoning


NOTE_JUDGES = ("reference", "whole_facts", "next_search", "likelihood")


def test_own_notes_are_drawn_in_one_way_whichever_judge_labels_them():
    paths = {judge: CONFIGS / f"data/own_notes_{judge}_smollm2.yaml" for judge in NOTE_JUDGES}
    recipes = {judge: yaml.safe_load(path.read_text()) for judge, path in paths.items()}
    assert {judge: recipe.pop("stages") for judge, recipe in recipes.items()} == {
        judge: {"deepnote/init_note": judge} for judge in NOTE_JUDGES
    }
    assert recipes["likelihood"].pop("models").keys() == {"answer"}
    assert all(recipe == recipes["reference"] for recipe in recipes.values())
