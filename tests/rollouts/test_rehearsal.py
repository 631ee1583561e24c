"""Dry runs: real prompts, no model, and the estimate next to the actual figures afterwards."""

import json
import shutil

import pytest
from fake_endpoint import default_reply, fake_endpoint
from tiny_world import tiny_world, write_config

from notewriter.data import build_chains, build_gold, build_pairs
from notewriter.evaluation import evaluate
from notewriter.ground.errors import UserError

QUESTIONS = 6
COMMANDS = {
    "pairs": (
        build_pairs.main,
        {
            "stages": {"deepnote/init_note": "llm", "deepnote/accumulate_knowledge": "decision"},
            "method_options": {"deepnote": {"max_step": 1, "max_failure": 1}},
            "temperatures": [0.1, 0.9],
            "top_ps": [0.9],
            "judge_orders": 1,
        },
    ),
    "evaluate": (evaluate.main, {"method": "deepnote", "method_options": {"max_step": 3, "max_failure": 3}}),
    "chains": (build_chains.main, {"max_step": 4}),
    "gold": (build_gold.main, {"gold_stages": ["deepnote/init_note"]}),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture
def run(world, tmp_path):
    """Run a command with changes to a small configuration; returns its folder."""

    def start(command, **changes):
        main, options = COMMANDS[command]
        options = {
            **world,
            "output_dir": str(tmp_path / "run"),
            "cache": str(tmp_path / "cache.sqlite"),
            "max_tokens": 40,
            "base_url": "http://127.0.0.1:9/v1",
            "model": "fake",
            **options,
        }
        main(write_config(tmp_path / "config.yaml", options | changes))
        return tmp_path / "run"

    return start


def calls(tokens):
    return {stage: sum(usage["calls"] for usage in roles.values()) for stage, roles in tokens.items()}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        # Two candidates per stage, judged once, or each against the note before it. The method's own decision and the
        # answer yield no pair and are not asked for.
        (
            "pairs",
            {
                "deepnote/init_note": 2,
                "judge/best_and_worst": 1,
                "deepnote/refine_query": 1,
                "deepnote/accumulate_knowledge": 2,
                "deepnote/decide": 2,
            },
        ),
        (
            "evaluate",
            {
                "deepnote/init_note": 1,
                "deepnote/refine_query": 3,
                "deepnote/accumulate_knowledge": 3,
                "deepnote/decide": 3,
                "deepnote/answer": 1,
            },
        ),
    ],
)
def test_calls_are_counted_by_stage_up_to_the_limits_of_the_loops_and_nobody_is_asked(run, capsys, command, expected):
    folder = run(command, dry_run=True)
    told = json.loads((folder / "estimate.json").read_text())
    found = calls(told["tokens"])
    assert {stage: found[stage] for stage in expected} == {stage: n * QUESTIONS for stage, n in expected.items()}
    assert told["tokens_in_all"]["completion_tokens"] == 20 * told["tokens_in_all"]["calls"]
    assert told["tokens_in_all"]["prompt_tokens"] > 20 * told["tokens_in_all"]["calls"]
    assert "counted with 1.3 tokens per word" in capsys.readouterr().out
    assert not (folder / "config.yaml").exists()


LIMITED = {"top_k": 2, "max_step": 2}


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("renact", LIMITED, {"step": 2, "note": 4, "answer": 1}),
        ("react", LIMITED, {"step": 2, "answer": 1}),
        ("langchain_react", LIMITED, {"step": 2}),
        # A rewritten question is searched and its passages are graded; the answer to the first one stands.
        (
            "langchain_self_rag",
            {"top_k": 2, "max_step": 6},
            {"grade": 4, "answer": 1, "grade_support": 1, "grade_usefulness": 1, "rewrite": 1},
        ),
        ("recomp", {"top_k": 2}, {"compress": 1, "answer": 1}),
        # Two beams read both passages in the second step.
        ("self_rag", LIMITED, {"decide": 1, "segment": 6}),
        # A draft per passage, and every draft scored under every passage.
        ("replug", {"top_k": 2}, {"answer": 6}),
        # A node to verify and one to complete in every chain.
        ("searchain", LIMITED, {"plan": 2, "read": 4, "answer": 1}),
        ("infogent", LIMITED, {"navigate": 2, "select": 2, "extract": 2, "aggregate": 2, "answer": 1}),
        ("ircot", LIMITED | {"notes": True}, {"step": 2, "note": 4, "answer": 1}),
        # The second sentence is written twice: an unconfident draft, then the sentence.
        ("flare", LIMITED | {"notes": True}, {"step": 3, "note": 4, "answer": 1}),
        ("rearag", LIMITED, {"step": 2, "observe": 2, "conclude": 1}),
        ("resp", LIMITED, {"global_evidence": 2, "local_pathway": 1, "judge": 2, "plan": 1, "answer": 1}),
        ("search_o1", {"top_k": 2, "max_search": 2, "max_turn": 3}, {"reason": 3, "reason_in_documents": 2}),
        # Every passage of the index that shares a word with the question fits in one chunk.
        ("mem_agent", {}, {"update_memory": 1, "answer": 1}),
        ("corag", {"top_k": 2, "max_path_length": 2}, {"sub_query": 2, "sub_answer": 2, "answer": 1}),
        (
            "corag",
            {"top_k": 2, "max_path_length": 2, "decode_strategy": "best_of_n"},
            {"sub_query": 2, "sampled_sub_query": 6, "sub_answer": 8, "penalty": 4, "answer": 1},
        ),
        # Three queries of each of two states in a row, two of them taken; a state that is not whole is rolled out once.
        (
            "corag",
            {
                **{"top_k": 2, "max_path_length": 2, "decode_strategy": "tree_search"},
                **{"expand_size": 2, "rollouts": 1},
            },
            {"sampled_sub_query": 3 + 2 + 3, "sub_answer": 2 + 2 + 2, "penalty": 2 + 2, "answer": 1},
        ),
        ("s3", {"top_k": 2, "max_turn": 2}, {"search": 3, "answer": 1}),
        ("search_r1", {"top_k": 2, "max_turn": 2}, {"reason": 3, "answer": 1}),
        ("sure", {"top_k": 2}, {"candidates": 1, "summarize": 2, "validate": 2, "rank": 2}),
    ],
)
def test_the_loop_of_every_method_goes_on_to_its_limit_and_finds_something(run, method, options, expected):
    told = json.loads(
        (run("evaluate", dry_run=True, method=method, method_options=options) / "estimate.json").read_text()
    )
    found = {stage: count / QUESTIONS for stage, count in calls(told["tokens"]).items()}
    assert {stage: found.get(f"{method}/{stage}") for stage in expected} == expected


def test_pairs_for_a_note_taker_are_counted_with_every_candidate_that_is_rolled_forward(run):
    options = {"stages": {"renact/note": ["outcome", "llm"]}, "method_options": {"renact": {"max_step": 2}}}
    told = json.loads((run("pairs", dry_run=True, top_k_range=[2, 2], **options) / "estimate.json").read_text())
    found = calls(told["tokens"])
    # Two documents a search, two candidates each, before the candidates' own further steps.
    assert found["renact/note"] >= 2 * 2 * 2 * QUESTIONS
    assert found["judge/best_and_worst"] > 0
    assert found["renact/step"] > 2 * QUESTIONS


def test_chains_search_until_their_limit(run):
    told = json.loads((run("chains", dry_run=True) / "estimate.json").read_text())
    assert calls(told["tokens"])["rearag/teach"] == 4 * QUESTIONS


def test_a_run_that_calls_no_model_costs_nothing(run, capsys):
    run("gold", dry_run=True)
    (total,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("total"))
    assert total.split() == ["total", "0", "0", "0"]


def test_a_model_is_counted_where_a_control_plays_the_others(run):
    played = {"notes": {"base_url": "http://127.0.0.1:9/v1", "model": "fake"}, "policy": {"control": "empty"}}
    folder = run("evaluate", dry_run=True, model=None, base_url=None, models=played)
    told = json.loads((folder / "estimate.json").read_text())
    assert {role for roles in told["tokens"].values() for role in roles} == {"notes"}


def test_a_sample_stands_for_all_questions(run):
    whole = json.loads((run("evaluate", dry_run=True) / "estimate.json").read_text())
    some = json.loads((run("evaluate", dry_run=True, dry_run_questions=2) / "estimate.json").read_text())
    assert (whole["sample"], some["sample"]) == (QUESTIONS, 2)
    assert calls(whole["tokens"]) == calls(some["tokens"])


@pytest.mark.parametrize("command", ["pairs", "evaluate"])
def test_hours_and_money_come_of_the_rates(run, capsys, command):
    prices = {"notes": [1000, 0], "judge": [0, 1000000]}
    told = json.loads((run(command, dry_run=True, tokens_per_second=0.1, prices=prices) / "estimate.json").read_text())
    tokens = told["tokens"]
    assert told["hours"] == round(told["tokens_in_all"]["completion_tokens"] / 360, 2)
    judged = sum(roles["judge"]["completion_tokens"] for roles in tokens.values() if "judge" in roles)
    others = [roles["notes"] for roles in tokens.values() if "notes" in roles]
    assert told["money"] == pytest.approx(judged + sum(usage["prompt_tokens"] for usage in others) / 1000, abs=0.01)
    assert "money: " in capsys.readouterr().out


def test_tokens_are_counted_with_the_models_own_tokenizer(run, tiny_model, capsys):
    told = json.loads((run("evaluate", dry_run=True, tokenizer=str(tiny_model)) / "estimate.json").read_text())
    assert told["tokens_counted_with"] == f"the tokenizer of {tiny_model}"


def test_a_raw_prompt_is_counted_without_a_chat_template(run, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "chat_template.jinja").unlink()
    options = {"tokenizer": str(folder), "method": "self_rag", "method_options": {"top_k": 1}}
    told = json.loads((run("evaluate", dry_run=True, **options) / "estimate.json").read_text())
    assert told["tokens_in_all"]["calls"] == 2 * QUESTIONS and told["tokens_in_all"]["prompt_tokens"] > 0


def test_a_chat_template_that_fails_is_named(run, tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% for number in range(10**9) %}{% endfor %}")
    with pytest.raises(UserError, match=r"^tokenizer: .*model: its chat template fails on a prompt \(Range too big"):
        run("evaluate", dry_run=True, tokenizer=str(folder))


@pytest.mark.parametrize(("command", "file"), [("pairs", "stats.json"), ("evaluate", "metrics.json")])
def test_the_actual_figures_stand_beside_the_estimate(run, command, file):
    def reply(request):
        return '{"best_id": 1, "worst_id": 2}' if "response_format" in request else default_reply(request)

    with fake_endpoint(reply) as endpoint:
        estimate = json.loads((run(command, dry_run=True) / "estimate.json").read_text())
        told = json.loads((run(command, base_url=endpoint.base_url) / file).read_text())
    assert told["estimate"] == estimate


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"reply_share": 0.0}, "reply_share: .* give above 0 and at most 1"),
        ({"dry_run_questions": 0}, "dry_run_questions: 0 is too small; give at least 1"),
        ({"prices": {"policy": 3}}, r"prices: policy: 3 is not"),
        ({"prices": {"police": [1, 2]}}, r"prices"),
        ({"tokenizer": "/nowhere"}, r"tokenizer: /nowhere: cannot be loaded"),
    ],
)
def test_what_makes_no_estimate_is_named(run, changes, problem):
    with pytest.raises(UserError, match=problem):
        run("evaluate", dry_run=True, **changes)
