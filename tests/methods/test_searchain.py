"""SearChain: chains are planned as a whole; retrieval verifies and completes their nodes, one objection a round."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_texts import SCRIPTED_TEXTS

from notewriter.methods.searchain import _Node, _parse, searchain
from notewriter.testing import ScriptedRollout

FINAL = "[Final Content]: Mira built it [1]. So the answer is: Mira"


def run(chains: list[str], read: dict[str, str], **options) -> tuple[str, ScriptedRollout]:
    """Play the chains in order; the reader's replies by query."""
    plans = iter(chains)

    def reply(stage, told):
        return {"plan": lambda: next(plans), "read": lambda: read[told["query"]], "answer": lambda: "Osk"}[stage]()

    rollout = ScriptedRollout("searchain", reply, lambda query, top_k: [f"{query}.{n}" for n in range(top_k)])
    return asyncio.run(searchain("Who?", rollout, **options)), rollout


def feedback(rollout: ScriptedRollout) -> list[str]:
    return [turn["content"] for turn in rollout.variables("plan")[-1]["turns"] if turn["role"] == "user"]


def test_a_chain_without_objections_is_searched_node_by_node_and_its_final_content_is_the_answer():
    chain = f"[Query 1]: built?\n[Answer 1]: By Mira.\n[Query 2]: when?\n[Answer 2]: in 1871\n{FINAL}"
    answer, rollout = run([chain], {"built?": "Sure: Mira", "when?": "Unsure: 1900"}, top_k=2)
    assert answer == "Mira" and rollout.searches == [("built?", 2), ("when?", 2)]
    assert rollout.stages == ["plan", "read", "read"] and rollout.roles == {"plan": "policy", "read": "judge"}
    assert rollout.trace.counts == {"steps": 1}
    assert rollout.trace.note == "built? Mira [title built?.0, title built?.1]"


def test_a_sure_reader_corrects_an_answer_and_the_rest_of_the_chain_is_not_searched():
    chain = "[Query 1]: built?\n[Answer 1]: Osk\n[Query 2]: when?\n[Answer 2]: 1871\n[Final Content]: Osk"
    answer, rollout = run([chain, FINAL], {"built?": "Sure: Mira"})
    assert answer == "Mira" and rollout.searches == [("built?", 1)]
    (told,) = feedback(rollout)
    assert told.startswith("built?\nBy the reference below, the answer is: Mira\nReference: title built?.0: built?.0")
    assert rollout.variables("plan")[1]["turns"][0] == {"role": "assistant", "content": chain}
    assert rollout.trace.counts == {"steps": 2, "corrected": 1}


@pytest.mark.parametrize("verdict", ["Sure: Mira", "Unsure: Mira", "Mira"])
@pytest.mark.parametrize("chain", ["[Unsolved Query]: built?", "[Query 1]: built?\n[Unsolved Query]: built?"])
def test_an_unsolved_query_is_completed_however_sure_the_reader_is(chain, verdict):
    answer, rollout = run([chain, FINAL], {"built?": verdict})
    assert answer == "Mira" and len(rollout.searches) == 1 and "the answer is: Mira" in feedback(rollout)[0]
    assert rollout.trace.counts["completed"] == 1
    assert rollout.trace.counts.get("unreadable_verdicts", 0) == (verdict == "Mira")


def test_a_reader_that_says_sure_only_by_way_of_politeness_corrects_nothing():
    chain = f"[Query 1]: built?\n[Answer 1]: Osk\n{FINAL}"
    _, rollout = run([chain], {"built?": "Sure! Here is the answer: Mira"})
    assert rollout.trace.counts == {"steps": 1, "unreadable_verdicts": 1}
    _, rollout = run([chain, FINAL], {"built?": "Sure, Mira"})
    assert "the answer is: Mira" in feedback(rollout)[0]


def test_nodes_that_were_seen_are_not_searched_again_unless_unsolved():
    chains = [
        "[Query 1]: Built the bridge?\n[Answer 1]: Osk",
        "[Query 1]: built bridge\n[Answer 1]: Osk, still\n[Unsolved Query]: built the bridge?",
        FINAL,
    ]
    reads = {"Built the bridge?": "Sure: Mira", "built the bridge?": "Sure: Mira"}
    answer, rollout = run(chains, reads)
    assert answer == "Mira" and [query for query, _ in rollout.searches] == list(reads)
    assert rollout.trace.counts == {"steps": 3, "corrected": 1, "completed": 1}


@pytest.mark.parametrize(("said", "corrected"), [("the Lady Mira of Osk", 0), ("LADY MIRA!", 0), ("Mira", 1)])
def test_an_answer_is_confirmed_if_it_contains_the_readers(said, corrected):
    chain = f"[Query 1]: built?\n[Answer 1]: {said}\n{FINAL}"
    _, rollout = run([chain, FINAL], {"built?": "Sure: The Lady Mira"})
    assert rollout.trace.counts.get("corrected", 0) == corrected


def test_the_rounds_are_limited_and_the_last_final_content_counts():
    chains = [f"[Unsolved Query]: {number}?\n{FINAL}" for number in range(9)]
    answer, rollout = run(chains, {f"{number}?": "Unsure: it" for number in range(9)})
    assert answer == "Mira" and rollout.stages.count("plan") == 5
    assert rollout.trace.counts == {"steps": 5, "completed": 5, "unfinished": 1}


def test_without_a_final_content_an_answer_is_written_from_the_chain():
    answer, rollout = run(["[Unsolved Query]: built?", "I give up."], {"built?": "Sure: Mira"}, answer_style="long")
    assert answer == "Osk" and rollout.trace.counts["without_final_content"] == 1
    (told,) = rollout.variables("answer")
    assert len(told["chain"]) == 3 and told["chain"][-1] == "I give up." and told["answer_style"] == "long"


def test_a_long_answer_is_the_whole_final_content():
    answer, _ = run([FINAL], {}, answer_style="long")
    assert answer == "Mira built it [1]. So the answer is: Mira"


@pytest.mark.parametrize(
    ("reply", "nodes", "final"),
    [
        ("[Query 1]: a?\n[Answer 1]: b\nc\n[Query 2]: d?", [("a?", "b\nc"), ("d?", "")], ""),
        ("**[query]** a?\n[Answer] b\n[Answer] c", [("a?", "b")], ""),
        ("**[Query 1]:** a?\n**[Answer 1]:** b\n\n**[Final Content]:** f", [("a?", "b")], "f"),
        ("[Query 1]\uff1aa?\n[Answer 1]\uff1ab", [("a?", "b")], ""),
        ("[Answer 1]: b\n[Query]:\n[Final Content]: f", [], "f"),
        ("none", [], ""),
    ],
)
def test_what_is_read_in_a_chain(reply, nodes, final):
    assert _parse(reply) == ([_Node(*node) for node in nodes], final)


def test_the_case_of_the_greyhound_buses():
    """The example that the paper's prompt teaches: two corrections of the path, then a chain that stands."""
    performer, born, leave = (
        "Who performs Spirit If...?",
        "Where was Kevin Drew born?",
        "Where do buses leave in Toronto?",
    )
    chains = [
        f"[Query 1]: {performer}\n[Answer 1]: Broken Social Scene\n[Query 2]: Where was the band founded?\n"
        "[Answer 2]: Montreal\n[Final Content]: Montreal [2]. So the answer is: Montreal station",
        f"[Query 1]: {performer}\n[Answer 1]: Kevin Drew\n[Unsolved Query]: {born}",
        f"[Query 2]: {born}\n[Answer 2]: Toronto\n[Query 3]: {leave}\n[Answer 3]: Toronto Coach Terminal\n"
        "[Final Content]: Kevin Drew [1] was born in Toronto [2]. So the answer is: Toronto Coach Terminal",
    ]
    read = {performer: "Sure: Kevin Drew", born: "Unsure: Toronto", leave: "Sure: Toronto Coach Terminal"}
    answer, rollout = run(chains, read)
    assert answer == "Toronto Coach Terminal"
    assert [query for query, _ in rollout.searches] == [performer, born, leave]
    assert rollout.trace.counts == {"steps": 3, "corrected": 1, "completed": 1}
    assert [line.split(" [")[0] for line in rollout.trace.note.splitlines()] == [
        f"{performer} Kevin Drew",
        f"{born} Toronto",
        f"{leave} Toronto Coach Terminal",
    ]


@settings(max_examples=60)
@given(st.data(), st.integers(1, 4))
def test_whatever_the_model_says_the_rounds_are_bounded(data, max_step):
    marks = ["[Query 1]: ", "[Answer 1]: ", "[Unsolved Query]: ", "[Final Content]: ", "Sure: ", "who?", "\n"]
    replies = SCRIPTED_TEXTS | st.lists(st.sampled_from(marks)).map("".join)
    rollout = ScriptedRollout("searchain", lambda stage, told: data.draw(replies))
    answer = asyncio.run(searchain("Who?", rollout, max_step=max_step))
    assert isinstance(answer, str)
    assert 1 <= len(rollout.variables("plan")) == rollout.trace.counts["steps"] <= max_step
    assert len(rollout.searches) == len(rollout.variables("read"))
