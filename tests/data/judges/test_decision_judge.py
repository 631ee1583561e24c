"""The judge `decision`: the adaptive-decision prompt compares every candidate with the note before it."""

from judge_cases import BEFORE, deciding

from notewriter.data.judges import decision
from notewriter.methods.deepnote import DECIDE


async def test_decision_pairs_a_random_true_with_a_random_false(make_case):
    candidates = ["t1", "f1", "t2", "f2"]
    reply = deciding(true={"t1", "t2"}, false={"f1", "f2"})
    seen = set()
    for seed in range(40):
        case, asked = make_case(candidates, reply=reply, seed=seed)
        verdict = await decision(case)
        seen.add((candidates[verdict.chosen], candidates[verdict.rejected]))
        assert verdict.scores == [1, 0, 1, 0] and len(verdict.replies) == 4
    assert seen == {("t1", "f1"), ("t1", "f2"), ("t2", "f1"), ("t2", "f2")}
    prompts = {(prompt, variables["best_note"]) for prompt, variables in asked}
    assert prompts == {(DECIDE, BEFORE)}
    assert [variables["new_note"] for _, variables in asked] == candidates


async def test_decision_without_a_true_or_without_a_false_has_no_pair(make_case):
    case, _ = make_case(["a", "b"], reply=deciding(false={"a", "b"}))
    verdict = await decision(case)
    assert (verdict.chosen, verdict.rejected, verdict.reason) == (None, None, "no candidate better")
    case, _ = make_case(["a", "b"], reply=deciding(true={"a", "b"}), cut=["a"])
    verdict = await decision(case)
    # There is nothing to learn from, but the method continues with a better note.
    assert (verdict.chosen, verdict.rejected, verdict.reason) == (1, None, "no candidate worse")


async def test_decision_passes_over_candidates_it_cannot_read_about(make_case):
    reply = deciding(true={"a"}, false={"c"})
    case, _ = make_case(["a", "b", "c"], reply=reply)
    verdict = await decision(case)
    assert (verdict.chosen, verdict.rejected, verdict.scores) == (0, 2, [1, None, 0])
    # There is a pair all the same, so the reason does not tell.
    assert (verdict.reason, verdict.unreadable) == ("", 1)
    case, _ = make_case(["b", "c"], reply=reply)
    verdict = await decision(case)
    assert (verdict.chosen, verdict.reason, verdict.unreadable) == (None, "judge reply not readable", 1)


async def test_decision_never_chooses_a_cut_note(make_case):
    for seed in range(10):
        case, _ = make_case(["a", "b", "c"], reply=deciding(true={"a", "b"}, false={"c"}), cut=["a"], seed=seed)
        assert (await decision(case)).chosen == 1
    case, _ = make_case(["a", "c"], reply=deciding(true={"a"}, false={"c"}), cut=["a"])
    assert (await decision(case)).reason == "no candidate better"
