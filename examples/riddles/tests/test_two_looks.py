import asyncio

from riddles.two_looks import METHOD, two_looks

from notewriter.testing import ScriptedRollout


def test_the_second_note_is_made_of_the_passages_of_both_searches():
    rollout = ScriptedRollout("two_looks", ["no teeth", "comb teeth", "a comb has teeth", "A comb"])
    assert asyncio.run(two_looks("What has teeth and cannot bite?", rollout, top_k=1)) == "A comb"
    assert rollout.stages == ["note", "query", "note", "answer"]
    assert rollout.searches == [("What has teeth and cannot bite?", 1), ("comb teeth", 1)]
    assert rollout.variables("note")[1]["passages"] == ["What has teeth and cannot bite?.0", "comb teeth.0"]
    assert rollout.variables("answer")[0]["note"] == rollout.trace.note == "a comb has teeth"


def test_each_stage_has_a_role():
    assert {stage.name: stage.role for stage in METHOD.stages} == {
        "two_looks/note": "notes",
        "two_looks/query": "query",
        "two_looks/answer": "answer",
    }
