"""MemAgent: a memory that is rewritten chunk by chunk over a long text."""

import asyncio

import pytest

from notewriter.ground.records import Passage
from notewriter.methods.mem_agent import as_text, chunks, mem_agent
from notewriter.testing import ScriptedRollout


def sections(rollout):
    return [variables["passages"][0].text for name, _, variables in rollout.calls if name == "update_memory"]


def test_each_call_gets_the_memory_and_the_next_chunk_and_the_last_one_the_memory_alone():
    """m_k follows from question, m_(k-1) and c_k; what a memory omits is gone."""
    rollout = ScriptedRollout(
        "mem_agent",
        ["Osk lies on the Bore.", "The mayor of Osk is Mira.", "The mayor of Osk is Mira, still.", "Mira"],
        lambda query, top_k: ["a b c", "d e f"],
    )
    # Two documents of seven words ("Document 1:", title of four, three words); 13 tokens are 10 words.
    assert asyncio.run(mem_agent("Who?", rollout, chunk_tokens=9)) == "Mira"
    assert rollout.searches == [("Who?", 10_000)]
    assert sections(rollout) == [
        "Document 1:\ntitle a b c\na",
        "b c\n\nDocument 2:\ntitle d e",
        "f\nd e f",
    ]
    memories = [told["note"] for told in rollout.variables("update_memory")]
    assert memories == ["", "Osk lies on the Bore.", "The mayor of Osk is Mira."]
    assert rollout.variables("answer") == [
        {"question": "Who?", "note": "The mayor of Osk is Mira, still.", "answer_style": "short"}
    ]
    assert rollout.trace.note == "The mayor of Osk is Mira, still."
    assert rollout.roles == {"update_memory": "notes", "answer": "answer"}
    assert rollout.trace.counts == {"chunks": 3}


def test_the_case_of_two_directors():
    """The paper's case study in its course: a candidate is kept, a useless chunk changes nothing, the proof follows.

    The question asks for the city where the director of a film is based. The first chunk has a producer only, which
    is kept as potentially useful; the second has nothing on it; the third has director and city.
    """
    course = ["Big Stone Gap has to do with New York.", "", "Adriana Trigiani directed it; she lives in New York City."]

    def reply(stage, told):
        if stage == "answer":
            return "New York City" if "Trigiani" in told["note"] else "unknown"
        number = int(told["passages"][0].id.split()[1])
        return " ".join(filter(None, [told["note"], course[number - 1]]))

    rollout = ScriptedRollout("mem_agent", reply, lambda query, top_k: ["x " * 10] * 3)
    assert asyncio.run(mem_agent("In which city is its director based?", rollout, chunk_tokens=30)) == "New York City"
    memories = [told["note"] for told in rollout.variables("update_memory")]
    assert memories[1] == memories[2] == course[0]


def test_chunks_have_exactly_as_many_tokens_as_asked_for_and_lose_nothing(tokenizer):
    text = as_text([Passage("1", "the river", "crosses a town"), Passage("2", "town", "whose mayor opened one museum")])
    parts = list(chunks(text, 4, str(tokenizer)))
    assert " ".join(parts).split() == text.split()
    # A word is a token.
    assert [len(part.split()) for part in parts] == [4] * (len(text.split()) // 4) + [len(text.split()) % 4]
    assert [len(part.split()) for part in chunks("a " * 25, 13)] == [10, 10, 5]
    assert list(chunks("", 5)) == list(chunks(" \n", 5, str(tokenizer))) == []


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Mira", "Mira"),
        (r"The mayor is known: \boxed{Mira of Osk}.", "Mira of Osk"),
        (r"\boxed{Osk} or rather \boxed{\text{Mira}}", r"\text{Mira}"),
        ("It says so. Therefore, the answer is Mira", "Mira"),
        ("Therefore, the answer is Osk. No: therefore, the answer is: Mira", "Mira"),
        ("", ""),
    ],
)
def test_the_answers_of_the_released_checkpoints_are_understood(reply, answer):
    rollout = ScriptedRollout("mem_agent", lambda stage, told: reply, lambda query, top_k: [])
    assert asyncio.run(mem_agent("Who?", rollout)) == answer
    assert rollout.stages == ["answer"]


def test_a_memory_has_at_most_1024_tokens():
    from notewriter.methods import stage_named

    assert stage_named("mem_agent/update_memory").max_tokens == 1024
