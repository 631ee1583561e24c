"""Several judges in order: each further one is asked only about ties."""

import random
from itertools import product

from judge_cases import BEFORE, BOTH, naming

from notewriter.data.judges import JUDGES, llm, outcome
from notewriter.data.judges.case import Verdict, judge
from notewriter.data.judges.tie_breaking import decide


async def test_a_further_judge_is_asked_only_about_ties(make_case):
    judges = [outcome, llm]
    case, asked = make_case(list("ab"), answers={"a": "Fulda", "b": "Tolen"})
    verdict = await decide(judges, case)
    assert (verdict.chosen, verdict.rejected, verdict.judge, asked) == (1, 0, "outcome", [])

    answers = dict.fromkeys("abc", "Tolen") | dict.fromkeys("de", "Fulda") | {"f": "in Tolen, I think"}

    def reply(variables):
        shown = variables["candidates"]
        best, worst = ("c", "a") if "c" in shown else ("e", "d")
        return naming(best, worst)(variables)

    case, asked = make_case(list("fedcba"), answers=answers, reply=reply)
    verdict = await decide(judges, case)
    assert (case.candidates[verdict.chosen], case.candidates[verdict.rejected]) == ("c", "d")
    assert verdict.judge == "outcome, llm"
    assert {frozenset(variables["candidates"]) for _, variables in asked} == {frozenset("abc"), frozenset("de")}
    # Replies and orders use the indices of the whole case.
    assert [sorted(order) for order in verdict.orders] == [[3, 4, 5], [3, 4, 5], [1, 2], [1, 2]]
    assert verdict.scores[verdict.chosen] == 1 and verdict.agreements == [True, True]


async def test_if_all_are_alike_the_next_judge_decides(make_case):
    judges = [outcome, llm]
    for answer in ("Tolen", "Fulda"):
        case, _ = make_case(list("abc"), answers=dict.fromkeys("abc", answer), reply=naming("c", "a"))
        verdict = await decide(judges, case)
        assert (verdict.chosen, verdict.rejected, verdict.reason) == (2, 0, "")
        case, _ = make_case(list("abc"), answers=dict.fromkeys("abc", answer), reply=lambda variables: "Hm.")
        verdict = await decide(judges, case)
        assert (verdict.rejected, verdict.reason) == (None, "judge reply not readable")
        assert verdict.unreadable == 2


async def test_a_tie_of_llm_is_broken_by_the_next_judge(make_case):
    answers = {"a": "Fulda", "b": "Tolen", "c": "Fulda"}
    undecided = lambda variables: '{"best_id": 2, "worst_id": 2}'  # noqa: E731
    case, _ = make_case(list("abc"), answers=answers, reply=undecided)
    verdict = await decide([llm, outcome], case)
    assert (verdict.chosen, verdict.judge) == (1, "llm, outcome")
    assert verdict.rejected in (0, 2)


async def test_if_all_are_alike_a_worst_without_a_best_makes_no_pair(make_case):
    # Of three, a judge that likes places names the one in the middle in either order.
    case, _ = make_case(
        list("abc"), answers=dict.fromkeys("abc", "Tolen"), reply=lambda _: '{"best_id": 1, "worst_id": 2}'
    )
    verdict = await decide([outcome, llm], case)
    assert verdict.chosen is not None, "the method continues with one"
    assert (verdict.rejected, verdict.reason) == (None, "judge named others in the other order")


async def test_a_tie_that_the_next_judge_does_not_break_is_broken_at_random(make_case):
    answers = {"a": "Tolen", "b": "Tolen", "c": "Fulda"}
    chosen = set()
    for seed in range(20):
        case, _ = make_case(list("abc"), answers=answers, reply=lambda variables: "Hm.", seed=seed)
        verdict = await decide([outcome, llm], case)
        assert verdict.rejected == 2 and verdict.reason == ""
        chosen.add(verdict.chosen)
    assert chosen == {0, 1}


async def test_a_worst_that_only_the_last_of_three_judges_names_breaks_a_tie(make_case):
    """Outcome leaves b to e tied; the reference finds them alike; the model agrees with itself on the worst alone."""

    @judge()
    async def alike(case):
        return Verdict(0, alike=True, reason="candidates too much alike")

    @judge()
    async def names_the_worst_alone(case):
        return Verdict(None, case.candidates.index("d"), reason="judge named others in the other order")

    answers = {"a": "Tolen"} | dict.fromkeys("bcde", "Fulda")
    for judges in (
        [outcome, names_the_worst_alone],
        [outcome, alike, names_the_worst_alone],
    ):
        for seed in range(5):
            case, _ = make_case(list("abcde"), answers=answers, seed=seed)
            verdict = await decide(judges, case)
            assert [case.candidates[side] for side in (verdict.chosen, verdict.rejected)] == ["a", "d"]
            assert verdict.reason == ""
        # Where nobody names a better one, a worst one makes no pair.
        case, _ = make_case(list("abcde"), answers=dict.fromkeys("abcde", "Tolen"))
        verdict = await decide(judges, case)
        assert verdict.chosen is not None, "the method continues with one"
        assert (verdict.rejected, verdict.reason) == (None, "judge named others in the other order")


async def test_every_pair_of_any_two_judges_is_two_candidates_of_which_the_better_was_not_cut(make_case):
    names = ["outcome", "llm", "metric", "reference"]
    for first, second, seed in product(names, names, range(6)):
        chance = random.Random(seed)
        candidates = ["Tolen", "the Tolen", BOTH, BEFORE, "Fulda", "No idea."]
        answers = {text: chance.choice(["Tolen", "Fulda", None]) for text in candidates}
        reply = lambda _: f'{{"best_id": {chance.randint(1, 6)}, "worst_id": {chance.randint(0, 6)}}}'  # noqa: B023, E731
        case, _ = make_case(candidates, answers=answers, reply=reply, cut=chance.sample(candidates, 2), seed=seed)
        verdict = await decide([JUDGES[first], JUDGES[second]], case)
        if verdict.chosen is None or verdict.rejected is None:
            assert verdict.reason
        else:
            assert verdict.chosen != verdict.rejected and not case.cut[verdict.chosen] and not verdict.reason
