"""CoRAG: chains of sub-queries and sub-answers, and how one of several is chosen."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.ground.errors import UserError
from notewriter.methods import prepare, stage_named
from notewriter.methods.corag import corag
from notewriter.rollouts.prompts import Prompts
from notewriter.testing import ScriptedRollout


def steps(told):
    return [tuple(step) for step in told["steps"]]


def test_the_case_of_the_star_of_dark_hazard():
    """The paper's example (Figure 1b): three sub-queries lead from a film to the school of its star."""
    chain = [
        ("What was the name of the star of Dark Hazard?", "Edward G. Robinson"),
        ("What college did Edward G. Robinson go to?", "No relevant information found"),
        ("Where did Edward G. Robinson study acting?", "American Academy of Dramatic Arts"),
    ]
    rollout = ScriptedRollout("corag", [text for step in chain for text in step] + ["the American Academy"])
    answer = asyncio.run(corag("Where did the star of Dark Hazard study?", rollout, max_path_length=3))
    assert answer == "the American Academy"
    assert rollout.stages == ["sub_query", "sub_answer"] * 3 + ["answer"]
    assert rollout.searches == [
        *((query, 5) for query, _ in chain),
        ("Where did the star of Dark Hazard study?", 20),
    ]
    assert [steps(told) for told in rollout.variables("sub_query")] == [chain[:length] for length in range(3)]
    final = rollout.variables("answer")[0]
    assert steps(final) == chain
    # Passages stand last to first, as in the authors' code.
    assert final["passages"][-1].endswith("study?.0")
    assert rollout.variables("sub_answer")[0]["passages"][-1].endswith("Hazard?.0")
    assert rollout.roles == {"sub_query": "query", "sub_answer": "answer", "answer": "answer"}
    assert rollout.trace.counts == {"unanswered_queries": 1}


def test_sampling_is_that_of_the_authors_code():
    limits = {
        name: (stage_named(f"corag/{name}").temperature, stage_named(f"corag/{name}").max_tokens) for name in STAGES_OF
    }
    assert limits == {
        "sub_query": (0.0, 64),
        "sampled_sub_query": (0.7, 64),
        "sub_answer": (0.0, 128),
        "answer": (0.0, 128),
    }


STAGES_OF = ("sub_query", "sampled_sub_query", "sub_answer", "answer")


def test_a_repeated_query_is_drawn_again_at_the_sampling_temperature():
    replies = ["a", "1", "a", "a", '"b"', "2", "Mira"]
    rollout = ScriptedRollout("corag", replies)
    assert asyncio.run(corag("Who?", rollout, max_path_length=2)) == "Mira"
    assert rollout.stages == [
        *("sub_query", "sub_answer", "sub_query", "sampled_sub_query", "sampled_sub_query", "sub_answer", "answer"),
    ]
    assert steps(rollout.variables("answer")[0]) == [("a", "1"), ("b", "2")]
    assert rollout.trace.counts == {"repeated_queries": 2}


def test_a_chain_that_only_repeats_itself_ends_after_four_calls_a_step():
    rollout = ScriptedRollout("corag", lambda stage, told: "a")
    asyncio.run(corag("Who?", rollout, max_path_length=3))
    assert sum("sub_query" in stage for stage in rollout.stages) == 12
    assert len(rollout.variables("answer")[0]["steps"]) == 1


@pytest.mark.parametrize("reply", ["Intermediate query 2: a town", '"a town"', "a town"])
def test_a_query_loses_its_label_and_its_quotation_marks(reply):
    rollout = ScriptedRollout("corag", [reply, "1", "Mira"])
    asyncio.run(corag("Who?", rollout, max_path_length=1))
    assert rollout.searches[0] == ("a town", 5)


def test_of_n_chains_the_one_is_taken_for_which_finding_nothing_is_the_least_likely():
    """Section 3.3. The first chain is greedy, the others are sampled."""
    penalties = {"Q: a\nA: found a": "-1", "Q: b\nA: found b": "-9", "Q: c\nA: found c": "-2"}
    queries = iter("abc")

    def reply(stage, told):
        if stage == "penalty":
            assert told["query"] == "Who?"
            return penalties[told["passages"][0].text]
        if stage == "sub_answer":
            return f"found {told['query']}"
        return "Mira" if stage == "answer" else next(queries)

    rollout = ScriptedRollout("corag", reply)
    asyncio.run(corag("Who?", rollout, decode_strategy="best_of_n", best_n=3, max_path_length=1))
    assert rollout.stages == [
        *("sub_query", "sub_answer", *["sampled_sub_query", "sub_answer"] * 2),
        *["penalty"] * 3,
        "answer",
    ]
    assert steps(rollout.variables("answer")[0]) == [("b", "found b")]


def test_the_penalty_is_asked_with_the_prompt_of_a_sub_answer():
    """The released scoring: the chain's questions and answers are the documents, the question is the query."""
    rollout = ScriptedRollout("corag", lambda stage, told: "-1" if stage == "penalty" else f"x{len(rollout.calls)}")
    asyncio.run(corag("Who?", rollout, decode_strategy="best_of_n", best_n=2, max_path_length=1))
    told = next(variables for name, _, variables in rollout.calls if name == "penalty")
    prompt = Prompts().render("corag/penalty", **told)
    assert prompt == Prompts().render("corag/sub_answer", **told)
    assert "Q: x1\nA: x2" in prompt[0]["content"] and "Who?" in prompt[0]["content"]


def test_a_tree_keeps_the_state_whose_continuations_have_the_lowest_penalty():
    """Section 3.3 and the authors' code: expand, roll out by up to two steps, average, keep the best."""
    asked = []
    letters = {0: itertools.cycle("abc"), 1: itertools.cycle("abc")}

    def reply(stage, told):
        if stage == "penalty":
            # Chains that begin with b are best; of these, those that go on with b.
            texts = [passage.text for passage in told["passages"]]
            return str(-sum("Q: b" in text for text in texts[:2]))
        if stage == "sampled_sub_query":
            asked.append(len(told["steps"]))
            return next(letters[asked[-1]]) * (asked[-1] + 1)
        return "Mira" if stage == "answer" else "found"

    rollout = ScriptedRollout("corag", reply)
    options = {"decode_strategy": "tree_search", "max_path_length": 2, "expand_size": 2, "rollouts": 2}
    assert asyncio.run(corag("Who?", rollout, **options)) == "Mira"
    # Three draws for two sub-queries; each of these rolled out twice, to the full length of two.
    assert asked[:3] == [0, 0, 0] and asked.count(0) == 3
    final = steps(rollout.variables("answer")[0])
    assert [query for query, _ in final] == ["b", "bb"]
    assert "sub_query" not in rollout.stages


def test_draws_of_one_state_are_told_apart():
    numbers = []

    class Numbered(ScriptedRollout):
        async def generate(self, stage, *, sample=0, **variables):
            if stage.name == "corag/sampled_sub_query":
                numbers.append(sample)
            return await super().generate(stage, **variables)

    rollout = Numbered("corag", lambda stage, told: "-1" if stage == "penalty" else f"x{len(rollout.calls)}")
    asyncio.run(corag("Who?", rollout, decode_strategy="best_of_n", best_n=4, max_path_length=1))
    assert numbers == [0, 1, 2]


def test_an_unknown_strategy_is_named():
    with pytest.raises(UserError, match="decode_strategy must be one of greedy, best_of_n, tree_search, not 'beam'"):
        prepare("corag", {"decode_strategy": "beam"})


@settings(max_examples=15)
@given(st.data(), st.sampled_from(["greedy", "best_of_n", "tree_search"]), st.integers(1, 2))
def test_whatever_the_model_says_chains_are_bounded(data, decode_strategy, max_path_length):
    rollout = ScriptedRollout("corag", lambda stage, told: "-1" if stage == "penalty" else data.draw(SCRIPTED_TEXTS))
    asyncio.run(corag("Who?", rollout, decode_strategy=decode_strategy, max_path_length=max_path_length))
    assert all(len(told["steps"]) <= max_path_length for told in rollout.variables("answer"))
    assert rollout.stages[-1] == "answer"
