"""ReSP: the contents of both memories, and when it stops."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.resp import resp
from notewriter.testing import ScriptedRollout


def run(rollout: ScriptedRollout, question: str = "Who?", **options) -> str:
    return asyncio.run(resp(question, rollout, **options))


def planner(verdicts: dict[int, str], local: str = "Yes, Osk."):
    """Evidence 1, evidence 2, ...; plans Next 1?, Next 2?, ...; judges each round as given, else No."""
    rounds = {"global_evidence": 0, "plan": 0}

    def reply(stage, told):
        if stage in rounds:
            rounds[stage] += 1
        return {
            "global_evidence": f"Evidence {rounds['global_evidence']}.",
            "local_pathway": local,
            "judge": verdicts.get(rounds["global_evidence"], "No"),
            "plan": f"Next {rounds['plan']}?",
            "answer": "Mira",
        }[stage]

    return reply


def test_the_first_round_answers_no_sub_question_and_a_yes_ends_it():
    rollout = ScriptedRollout("resp", planner({1: "Yes"}))
    assert run(rollout) == "Mira"
    assert rollout.stages == ["global_evidence", "judge", "answer"]
    assert rollout.searches == [("Who?", 5)]
    assert rollout.variables("answer") == [{"question": "Who?", "note": "Evidence 1.", "answer_style": "short"}]
    assert (rollout.trace.note, rollout.trace.counts) == ("Evidence 1.", {})


def test_the_last_word_of_a_judge_who_weighs_both_counts():
    weighed = "If the builder were named I would say yes, but only the year is given. No."
    rollout = ScriptedRollout("resp", planner(dict.fromkeys((1, 2, 3), weighed)))
    run(rollout)
    assert (len(rollout.searches), rollout.trace.counts) == (3, {"unfinished": 1})


def test_every_further_round_searches_for_the_plan_and_fills_both_memories():
    rollout = ScriptedRollout("resp", planner({3: "Yes"}))
    run(rollout, top_k=2)
    assert rollout.searches == [("Who?", 2), ("Next 1?", 2), ("Next 2?", 2)]
    assert rollout.stages == [
        *("global_evidence", "judge", "plan"),
        *("local_pathway", "global_evidence", "judge", "plan"),
        *("local_pathway", "global_evidence", "judge", "answer"),
    ]
    # The evidence is for the question, the pathway for the sub-question, both from the passages of the sub-question.
    assert rollout.variables("local_pathway")[0] == {"question": "Next 1?", "passages": ["Next 1?.0", "Next 1?.1"]}
    assert rollout.variables("global_evidence")[1] == {"question": "Who?", "passages": ["Next 1?.0", "Next 1?.1"]}
    memory = "Evidence 1.\nEvidence 2.\nNext 1? Osk."
    assert rollout.variables("judge")[1] == rollout.variables("plan")[1] == {"question": "Who?", "note": memory}
    assert rollout.trace.note == "Evidence 1.\nEvidence 2.\nEvidence 3.\nNext 1? Osk.\nNext 2? Osk."


def test_every_module_has_its_role():
    rollout = ScriptedRollout("resp", planner({2: "Yes"}))
    run(rollout)
    assert rollout.roles == {
        "global_evidence": "notes",
        "local_pathway": "notes",
        "judge": "judge",
        "plan": "query",
        "answer": "answer",
    }


@pytest.mark.parametrize("max_step", [1, 3, 5])
def test_after_the_last_round_it_answers_without_another_plan(max_step):
    rollout = ScriptedRollout("resp", planner({}))
    run(rollout, max_step=max_step)
    assert len(rollout.searches) == len(rollout.variables("judge")) == max_step
    assert len(rollout.variables("plan")) == max_step - 1
    assert rollout.trace.counts == {"unfinished": 1}


@pytest.mark.parametrize(
    ("verdict", "ends"),
    [("Yes", True), ("**Yes.**", True), ("yes, it does", True), ("No", False), ("", False), ("Perhaps", False)],
)
def test_a_judgement_that_is_no_yes_goes_on(verdict, ends):
    rollout = ScriptedRollout("resp", planner({1: verdict, 2: "Yes"}))
    run(rollout)
    assert len(rollout.searches) == (1 if ends else 2)
    assert rollout.trace.counts == ({"unreadable_verdicts": 1} if verdict in ("", "Perhaps") else {})


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        ("Yes, in Osk.", "in Osk."),
        ("Yes\nIn Osk.", "In Osk."),
        ("**Yes** In Osk.", "In Osk."),
        ("Yes", "Yes."),
        ("No", "Not found."),
        ("No, nothing is said.", "Not found."),
        ("", "Not found."),
        # The Yes is missing.
        ("In Osk.", "In Osk."),
        ("Norway.", "Norway."),
        (
            "In Osk. No other town is named, and No. 5 stands there.",
            "In Osk. No other town is named, and No. 5 stands there.",
        ),
        # The answer is a No.
        ("Yes. No.", "No."),
        # It thinks aloud, or thinks better of it.
        ("If the town were named I would say yes, but only the year is given. No.", "Not found."),
        ("Yes or No? The town is not named.\nNo", "Not found."),
        ("No. But the third passage names her birthplace. Yes, Osk.", "Osk."),
        ("She was born in Osk.\n**Yes**", "She was born in Osk.\n**Yes**"),
    ],
)
def test_the_pathway_keeps_the_response_or_that_there_is_none(reply, kept):
    rollout = ScriptedRollout("resp", planner({2: "Yes"}, local=reply))
    run(rollout)
    assert rollout.trace.note.endswith(f"Next 1? {kept}")


def test_a_repeated_plan_goes_on_as_algorithm_1_says():
    """Line by line: it is retrieved, answered (unless it is Q itself), summarized and judged; both memories grow."""
    rollout = ScriptedRollout(
        "resp",
        [
            "One.",
            "No",
            "Next?",
            "Yes, Osk.",
            "Two.",
            "No",
            "next",
            "No",
            "Three.",
            "No",
            "Who?",
            "Four.",
            "Yes",
            "Mira",
        ],
    )
    assert run(rollout, max_step=5) == "Mira"
    assert [query for query, _ in rollout.searches] == ["Who?", "Next?", "next", "Who?"]
    assert rollout.stages == [
        *("global_evidence", "judge", "plan"),
        *("local_pathway", "global_evidence", "judge", "plan") * 2,
        *("global_evidence", "judge", "answer"),
    ]
    assert rollout.trace.note == "One.\nTwo.\nThree.\nFour.\nNext? Osk.\nnext Not found."
    assert rollout.trace.counts == {"repeated_queries": 2}


def test_the_summaries_of_a_repeated_question_are_drawn_anew():
    """Their prompts are the same as before, which the cache would answer with the same reply."""
    rollout = ScriptedRollout("resp", planner({}, local="No"))
    drawn, generate = [], rollout.generate

    async def spy(stage, **options):
        drawn.append((stage.name.removeprefix("resp/"), options.get("sample", 0)))
        return "Who?" if stage.name == "resp/plan" else await generate(stage, **options)

    rollout.generate = spy
    run(rollout, max_step=3)
    assert [draw for stage, draw in drawn if stage == "global_evidence"] == [0, 1, 2]
    assert {draw for stage, draw in drawn if stage in ("judge", "plan", "answer")} == {0}


@settings(max_examples=60)
@given(st.data(), st.integers(1, 5), st.integers(1, 4))
def test_whatever_the_models_say_rounds_are_bounded(data, max_step, top_k):
    words = SCRIPTED_TEXTS | st.sampled_from(["Yes", "No", "Who is she?", "Where is she?", "Who?"])
    rollout = ScriptedRollout("resp", lambda stage, told: data.draw(words))
    run(rollout, max_step=max_step, top_k=top_k)
    queries = [query for query, _ in rollout.searches]
    assert 1 <= len(queries) <= max_step
    assert rollout.stages.count("answer") == 1 and rollout.stages[-1] == "answer"
    assert rollout.variables("answer")[0]["note"] == rollout.trace.note
    assert len(rollout.stages) <= 4 * max_step + 1


def test_the_case_of_twisted_fortune():
    """The paper's case of over-planning (section 6.5, Table 5), told in other words.

    The first retrieval finds the film and its cast, the evidence says so, the judge says Yes: one round, no plan.
    """
    question = "Which of Eddie Murphy's brothers had a part in Twisted Fortune, which Victor Varnado directed?"
    evidence = "Twisted Fortune, directed by Victor Varnado, is a black comedy with Charlie Murphy, Eddie's brother."

    def reply(stage, told):
        if stage == "global_evidence":
            assert [passage.id for passage in told["passages"]] == ["Twisted Fortune", "Charlie Murphy"]
            return evidence
        if stage == "judge":
            return "Yes" if "Charlie Murphy" in told["note"] else "No"
        assert stage == "answer" and told["note"] == evidence
        return "Charlie Murphy"

    rollout = ScriptedRollout("resp", reply, lambda query, top_k: ["Twisted Fortune", "Charlie Murphy"])
    assert run(rollout, question) == "Charlie Murphy"
    assert rollout.stages == ["global_evidence", "judge", "answer"]
    assert len(rollout.searches) == 1


def test_the_case_of_rachele_amy_beinart():
    """The paper's case of repetitive planning (section 6.5, Table 5): nothing on her, so the next plan is another."""
    question = "Whom did Rachele Amy Beinart play in the film about rebels who are sent on a mission?"
    plans = ["Who is Rachele Amy Beinart?", "Which film is about rebels who are sent on a mission?"]

    def reply(stage, told):
        if stage == "global_evidence":
            return "Nothing about her."
        if stage == "local_pathway":
            return "No" if told["question"] == plans[0] else "Yes, a film of the Star Wars series."
        if stage == "plan":
            return plans[plans[0] in told["note"]]
        return "No" if stage == "judge" else "unknown"

    rollout = ScriptedRollout("resp", reply)
    run(rollout, question)
    assert [query for query, _ in rollout.searches] == [question, *plans]
    assert rollout.trace.note.endswith(f"{plans[0]} Not found.\n{plans[1]} a film of the Star Wars series.")
