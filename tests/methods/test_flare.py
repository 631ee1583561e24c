"""FLARE: confident sentences are kept, the others become queries and are written again.

In the scripts a word is a token, and the number after a tilde is its probability.
"""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Question, Sampling
from notewriter.methods import prepare
from notewriter.methods.flare import flare
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout
from notewriter.testing import ScriptedRollout


def run(rollout: ScriptedRollout, **options) -> str:
    return asyncio.run(flare("Who?", rollout, **options))


def test_the_first_sentence_is_written_from_the_passages_of_the_question():
    rollout = ScriptedRollout("flare", ["So the answer is: Mira."])
    assert run(rollout, top_k=2) == "Mira"
    assert rollout.searches == [("Who?", 2)]
    assert rollout.variables("step")[0]["passages"] == ["Who?.0", "Who?.1"]


def test_a_sentence_without_an_improbable_token_stays_and_nothing_is_retrieved():
    rollout = ScriptedRollout("flare", ["Osk has a bridge.", "Mira~0.8 built it.", "So the answer is: Mira~0.9"])
    assert run(rollout) == "Mira"
    assert len(rollout.searches) == 1
    # Drafts are written without passages.
    assert [told["passages"] for told in rollout.variables("step")[1:]] == [[], []]
    assert rollout.variables("step")[2]["sentences"] == ["Osk has a bridge.", "Mira built it."]
    assert rollout.trace.counts == {"steps": 3, "sure_steps": 2}


def test_an_unsure_sentence_is_searched_with_but_for_what_is_made_up_and_is_written_again():
    rollout = ScriptedRollout(
        "flare",
        ["Osk has a bridge.", "It was built by~0.79 Osk~0.3 himself.", "Mira built it.", "So the answer is: Mira."],
    )
    assert run(rollout, top_k=1) == "Mira"
    assert rollout.searches == [("Who?", 1), ("It was built by himself.", 1)]
    again, last = rollout.variables("step")[2:]
    assert again["passages"] == ["It was built by himself..0"] and again["sentences"] == ["Osk has a bridge."]
    assert last["sentences"] == ["Osk has a bridge.", "Mira built it."]
    assert rollout.trace.counts == {"steps": 3, "sure_steps": 1}


def test_an_empty_draft_ends_the_loop_and_counts_as_no_draft_that_was_kept():
    rollout = ScriptedRollout("flare", ["Osk has a bridge.", "", "Mira"])
    assert run(rollout) == "Mira"
    assert rollout.trace.counts == {"steps": 2, "unfinished": 1}


def test_without_a_first_search_the_first_sentence_is_a_draft_too():
    """FlashRAG's FLARE, which ReSP's Table 2 has."""
    rollout = ScriptedRollout("flare", ["So the answer is: Mira~0.9"])
    assert run(rollout, first_search=False) == "Mira" and rollout.searches == []
    rollout = ScriptedRollout("flare", ["It was Osk~0.1", "So the answer is: Mira."])
    assert run(rollout, first_search=False, top_k=1) == "Mira" and rollout.searches == [("It was", 1)]


def test_a_draft_is_bounded_and_what_is_written_again_ends_with_its_line():
    asked = []

    class Writer:
        async def complete(self, messages, sampling, **_):
            asked.append((sampling.max_tokens, sampling.stop, sampling.logprobs))
            return Completion("Mira built it", "stop", 1, 1, 0, 0.0, [("Mira built it", -1.0)])

        def search(self, query, top_k):
            return []

    writer = Writer()
    resources = Resources({"policy": writer}, Prompts(), writer, Sampling(max_tokens=1280))
    asyncio.run(flare("Who?", Rollout(Question("q", "Who?", ("Mira",)), "flare", resources), max_step=2))
    step = (1280, ("\n",), False)
    assert asked == [step, (64, (), True), step, (1280, (), False)]


def test_only_the_first_sentence_ahead_counts():
    rollout = ScriptedRollout("flare", ["One.", "Mira built it. Osk~0.1 paid.", "So the answer is: Mira."])
    run(rollout)
    assert len(rollout.searches) == 1
    assert rollout.variables("step")[2]["sentences"] == ["One.", "Mira built it."]


def test_the_mark_of_a_list_is_no_sentence():
    rollout = ScriptedRollout(
        "flare", ["1. One.", "2. Mira~0.9 built it.~0.1", "Mira built it.", "So the answer is: Mira."]
    )
    run(rollout, top_k=1)
    assert rollout.variables("step")[-1]["sentences"] == ["One.", "Mira built it."]


def test_where_every_token_is_kept_out_the_whole_sentence_is_the_query():
    rollout = ScriptedRollout("flare", ["One.", "Mira~0.1 Osk~0.2", "So the answer is: Mira."])
    run(rollout, top_k=1)
    assert rollout.searches[1] == ("Mira Osk", 1)


@pytest.mark.parametrize(
    ("theta", "beta", "queries"), [(0.0, 0.0, []), (0.2, 0.4, []), (1.0, 0.0, ["Mira Osk"]), (0.5, 0.4, ["Mira"])]
)
def test_the_thresholds_are_options(theta, beta, queries):
    rollout = ScriptedRollout(
        "flare", ["One.", "Mira~0.9 Osk~0.3", *(["Two."] if queries else []), "So the answer is: Mira"]
    )
    assert run(rollout, theta=theta, beta=beta, max_step=3) == "Mira"
    assert [query for query, _ in rollout.searches[1:]] == queries


def test_with_notes_they_take_the_passages_place_where_there_are_any():
    replies = [
        "YES#Osk has a bridge.",
        "Osk has a bridge.",
        "Osk~0.1 built it.",
        "YES#Mira did.",
        "So the answer is: Mira",
    ]
    rollout = ScriptedRollout("flare", replies)
    assert run(rollout, top_k=1, notes=True) == "Mira"
    assert [told["query"] for told in rollout.variables("note")] == ["Who?", "built it."]
    assert rollout.variables("note")[1]["note"] == "title Who?.0 - Osk has a bridge."
    texts = [[passage.text for passage in told["passages"]] for stage, _, told in rollout.calls if stage == "step"]
    assert texts == [["Osk has a bridge."], [], ["Mira did."]]
    assert rollout.trace.note.endswith("- Mira did.")


@pytest.mark.parametrize("replies", [["One.", "Two.", "Mira"], ["One.", "", "Mira"]])
def test_without_an_answer_among_the_sentences_one_is_written_from_all_of_them(replies):
    rollout = ScriptedRollout("flare", replies)
    assert run(rollout, max_step=2, answer_style="long") == "Mira"
    assert rollout.roles == {"step": "policy", "answer": "answer"}
    assert rollout.variables("answer")[0]["sentences"][0] == "One."
    assert rollout.trace.counts["unfinished"] == 1


def test_with_notes_an_answer_from_unfinished_sentences_sees_all_of_them():
    replies = ["YES#Osk has a bridge.", "One.", "Two~0.1", "YES#Mira built it.", "Two.", "Mira"]
    rollout = ScriptedRollout("flare", replies)
    assert run(rollout, top_k=1, max_step=2, notes=True) == "Mira"
    texts = [passage.text for passage in rollout.calls[-1][2]["passages"]]
    assert texts == ["Osk has a bridge.", "Mira built it."]


def test_an_answer_is_as_sure_as_all_of_its_list():
    unsure, again = "So the answer is: 1. Mira~0.9 2. Osk~0.1", "So the answer is: 1. Mira 2. Tolen"
    rollout = ScriptedRollout("flare", ["One.", unsure, again])
    assert run(rollout, answer_style="list") == "1. Mira 2. Tolen"
    assert rollout.trace.counts == {"steps": 2}


def test_a_draft_that_was_cut_within_the_answer_is_written_again():
    replies = ["One.", "So the answer is: Mira,", "So the answer is: Mira, Osk and Tolen."]
    rollout = ScriptedRollout("flare", replies)
    assert run(rollout, look_ahead=5, answer_style="list") == "Mira, Osk and Tolen"
    assert len(rollout.searches) == 2
    rollout = ScriptedRollout("flare", replies[:2])
    assert run(rollout, look_ahead=6, answer_style="list") == "Mira,"
    assert len(rollout.searches) == 1


def test_a_long_answer_is_written_from_all_sentences_once_one_states_it():
    stated = "So the answer is: Osk was built in 1871. A second bridge was built in 1902."
    rollout = ScriptedRollout("flare", ["Osk is a bridge.", stated, "Osk was built in 1871. There are two bridges."])
    assert run(rollout, answer_style="long") == "Osk was built in 1871. There are two bridges."
    assert rollout.variables("answer")[0]["sentences"] == ["Osk is a bridge.", stated]
    assert rollout.trace.counts == {"steps": 2, "sure_steps": 1}


@pytest.mark.parametrize("options", [{"theta": 1.5}, {"theta": -0.1}, {"beta": 2}, {"theta": float("nan")}])
def test_a_threshold_that_is_no_probability_is_refused(options):
    with pytest.raises(UserError, match=f"option {next(iter(options))}"):
        prepare("flare", options)


@settings(max_examples=40)
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_whatever_the_model_says_the_limits_hold(data, max_step, top_k, notes):
    replies = SCRIPTED_TEXTS.map(lambda text: text.replace("~", "")) | st.sampled_from(
        ["It~0.1 is. So.", "So the answer is: Mira~0.5", "Sure.", "YES#Mira."]
    )
    rollout = ScriptedRollout("flare", lambda stage, told: data.draw(replies))
    run(rollout, max_step=max_step, top_k=top_k, notes=notes)
    assert 1 <= len(rollout.searches) <= rollout.trace.counts["steps"] <= max_step
    assert len(rollout.variables("step")) <= 2 * max_step
    assert len(rollout.variables("note")) <= top_k * len(rollout.searches)
    assert rollout.stages.count("answer") == (rollout.stages[-1] == "answer")
