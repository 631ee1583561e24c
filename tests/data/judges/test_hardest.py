"""`rejected: hardest`: of the worse candidates, the one that gives itself away least."""

import pytest
from judge_cases import deciding, naming

from notewriter.data.judges import decision, llm
from notewriter.data.judges.case import LENGTH_GAP, by_score
from notewriter.data.judges.tie_breaking import decide

LONG = "c" * 20


@pytest.mark.parametrize(
    ("candidates", "cut", "rejected"),
    [
        # The lowest score, where lengths are similar (the chosen one has ten characters).
        ({"right text": 1, "worse text": 0.2, "worst text": 0.1}, (), "worst text"),
        # A cut one is worse still and is passed over.
        ({"right text": 1, "worse text": 0.2, "worst text": 0.0}, ("worst text",), "worse text"),
        # So is one more than twice as long, or less than half.
        ({"right text": 1, "worse text": 0.2, LONG + "c": 0.0, "no": 0.0}, (), "worse text"),
        ({"right text": 1, "worse text": 0.2, LONG: 0.0}, (), LONG),
        # One without a letter or digit comes after all whole ones, a cut one only if there is no other.
        ({"right text": 1, "no": 0.5, "?": 0.0}, (), "no"),
        ({"right text": 1, "worst text": 0.0}, ("worst text",), "worst text"),
        # Of equal scores, the closest length.
        ({"right text": 1, "worse, and longer": 0.0, "worse texts": 0.0}, (), "worse texts"),
        # Of those that are worse by min_gap.
        ({"right text": 1, "worse text": 0.95, "no": 0.0}, (), "no"),
    ],
)
async def test_the_hardest_candidate_is_rejected(make_case, candidates, cut, rejected):
    case, _ = make_case(list(candidates), cut=cut, rejected="hardest", min_gap=0.1)
    verdict = by_score(case, list(candidates.values()))
    assert list(candidates)[verdict.rejected] == rejected
    assert candidates[list(candidates)[verdict.chosen]] == 1


@pytest.mark.parametrize("rejected", ["worst", "hardest"])
async def test_sides_of_a_pair_differ_in_length_by_no_more_than_the_gap(make_case, rejected):
    candidates = {
        "a right note of ten words that says what is": 1,
        "as long, and it says nothing of what there is": 0.5,
        "no": 0.0,
    }
    case, _ = make_case(list(candidates), rejected=rejected, max_length_gap=0.15)
    verdict = by_score(case, list(candidates.values()))
    assert (verdict.chosen, verdict.rejected) == (0, 1)
    case, _ = make_case(["a right note", "no"], rejected=rejected, max_length_gap=0.15)
    verdict = by_score(case, [1, 0])
    # The method goes on with the chosen one.
    assert (verdict.chosen, verdict.rejected, verdict.reason) == (0, None, LENGTH_GAP)


async def test_of_equally_good_candidates_one_with_a_worse_one_of_its_length_is_chosen(make_case):
    candidates = {"a right note": 1, "a right note of eight words or more": 1, "right": 1, "a wrong note": 0}
    for seed in range(20):
        case, _ = make_case(list(candidates), max_length_gap=0.15, seed=str(seed))
        verdict = by_score(case, list(candidates.values()))
        assert (verdict.chosen, verdict.rejected) == (0, 3)


async def test_candidates_of_which_none_may_be_chosen_tell_why(make_case):
    case, _ = make_case(["cut", "too"], cut=["cut", "too"])
    assert by_score(case, [0.5, 1.0]).reason == "every candidate was cut at its token limit"


async def test_a_further_judge_does_not_replace_the_hardest(make_case):
    candidates = ["true text", "false", "false text", "false, but long beyond all"]
    says = deciding(true={"true text"}, false=set(candidates[1:]))

    def reply(variables):
        return says(variables) if "new_note" in variables else naming("false text", "false")(variables)

    case, _ = make_case(candidates, reply=reply, cut=["false"], rejected="hardest")
    verdict = await decide([decision, llm], case)
    assert [candidates[side] for side in (verdict.chosen, verdict.rejected)] == ["true text", "false text"]
    assert verdict.judge == "decision"


async def test_no_further_judge_is_asked_which_is_worst_where_every_one_is_rejected(make_case):
    candidates = ["true text", "false", "false text"]
    case, _ = make_case(candidates, reply=deciding(true={"true text"}, false=set(candidates[1:])), rejected="every")
    verdict = await decide([decision, llm], case)
    assert ([candidates[side] for side in verdict.worse], verdict.judge) == (candidates[1:], "decision")


async def test_the_decision_rejects_the_hardest_too(make_case):
    candidates = ["true text", "false", "false text", "false, but long beyond all"]
    reply = deciding(true={"true text"}, false=set(candidates[1:]))
    for seed in range(8):
        case, _ = make_case(candidates, reply=reply, cut=["false"], seed=seed, rejected="hardest")
        assert candidates[(await decision(case)).rejected] == "false text"
