"""The judge `outcome`: the answer that comes of a candidate."""

import pytest
from judge_cases import RIGHT, WRONG

from notewriter.data.judges import outcome
from notewriter.ground.records import Question


async def test_outcome_ranks_candidates_by_the_answers_that_come_of_them(make_case):
    answers = {"a": "Fulda", "b": "Tolen", "c": "in Tolen, I think"}
    case, _ = make_case(list("abc"), answers=answers)
    verdict = await outcome(case)
    assert (verdict.chosen, verdict.rejected, verdict.scores) == (1, 0, [0, 1, 0.4])
    assert verdict.replies == list(answers.values())


async def test_outcome_passes_over_candidates_that_no_answer_came_of(make_case):
    case, _ = make_case(list("abc"), answers={"a": None, "b": "Tolen", "c": "Fulda"})
    verdict = await outcome(case)
    assert (verdict.chosen, verdict.rejected, verdict.scores) == (1, 2, [None, 1, 0])
    case, _ = make_case(list("ab"), answers={"a": None, "b": None})
    assert (await outcome(case)).reason == "no candidate could be rolled forward"


async def test_outcome_of_a_family_without_f1_is_its_first_metric(make_case):
    question = Question("q1", "Is it?", ("yes",))
    case, _ = make_case(list("ab"), answers={"a": "no", "b": "Yes."}, question=question, family="strategyqa")
    assert (await outcome(case)).scores == [0, 1]


@pytest.mark.parametrize(
    ("better", "worse", "rejected"),
    [
        # One lucky answer of four: 0.25 +- 0.25.
        ([RIGHT, WRONG, WRONG, WRONG], [WRONG] * 4, None),
        # 0.75 +- 0.25 against 0.25 +- 0.25: 1.4 standard errors.
        ([RIGHT, RIGHT, RIGHT, WRONG], [RIGHT, WRONG, WRONG, WRONG], None),
        # 0.75 +- 0.25: three.
        ([RIGHT, RIGHT, RIGHT, WRONG], [WRONG] * 4, 1),
        ([RIGHT] * 4, [WRONG] * 4, 1),
    ],
)
async def test_outcome_of_several_continuations_pairs_only_what_differs_by_more_than_their_noise(
    make_case, better, worse, rejected
):
    case, _ = make_case(["a", "b"], answers={"a": better, "b": worse}, continuations=4)
    verdict = await outcome(case)
    assert (verdict.chosen, verdict.rejected) == (0, rejected)
    assert verdict.scores == [better.count(RIGHT) / 4, worse.count(RIGHT) / 4]
    shares = [each.count(RIGHT) / 4 for each in (better, worse)]
    # The sample variance of n zeros and ones is p(1 - p)n / (n - 1).
    assert verdict.noise == pytest.approx([(share * (1 - share) / 3) ** 0.5 for share in shares])
    assert verdict.replies == better + worse
    assert bool(verdict.reason) == (rejected is None) == verdict.alike


async def test_noise_margin_is_how_many_standard_errors_a_difference_needs(make_case):
    answers = {"a": [RIGHT, WRONG, WRONG, WRONG], "b": [WRONG] * 4}
    for margin, rejected in ((0.9, 1), (1.0, None)):
        case, _ = make_case(["a", "b"], answers=answers, continuations=4, noise_margin=margin)
        assert (await outcome(case)).rejected == rejected


async def test_of_equal_means_the_one_of_less_noise_is_taken(make_case):
    # "in Tolen, too" has an F1 of 1/2.
    answers = {"a": [WRONG, RIGHT], "b": ["in Tolen, too"] * 2, "c": [WRONG] * 2}
    case, _ = make_case(list("abc"), answers=answers, continuations=2)
    verdict = await outcome(case)
    assert (verdict.scores, verdict.noise) == ([0.5, 0.5, 0], [0.5, 0, 0])
    assert (verdict.chosen, verdict.rejected) == (1, 2)


async def test_a_candidate_of_which_a_continuation_is_refused_has_no_score(make_case):
    answers = {"a": [RIGHT, None], "b": [RIGHT, RIGHT], "c": [WRONG, WRONG]}
    case, _ = make_case(list("abc"), answers=answers, continuations=2)
    verdict = await outcome(case)
    assert (verdict.scores, verdict.noise, verdict.chosen, verdict.rejected) == ([None, 1, 0], [None, 0, 0], 1, 2)
