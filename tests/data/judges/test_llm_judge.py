"""The judge `llm`: a judge model names the best and the worst of all candidates."""

from typing import get_args

import pytest
from judge_cases import QUESTION, naming

from notewriter.data.judges import llm
from notewriter.data.judges.llm import BEST_AND_WORST
from notewriter.rollouts.method import Kind
from notewriter.rollouts.prompts import Prompts


async def test_llm_names_the_same_texts_in_any_order_of_presentation(make_case):
    for seed in range(20):
        case, _ = make_case(["a", "b", "c"], reply=naming("c", "a"), seed=seed)
        verdict = await llm(case)
        assert (verdict.chosen, verdict.rejected) == (2, 0)
        assert len(verdict.replies) == 2 and all(reply.startswith("Surely") for reply in verdict.replies)
        assert verdict.agreements == [True]


async def test_llm_shows_the_candidates_a_second_time_the_other_way_round(make_case):
    case, asked = make_case(list("abcd"), reply=naming("c", "a"))
    verdict = await llm(case)
    there, back = (variables["candidates"] for _, variables in asked)
    assert there == back[::-1]
    assert [[case.candidates[index] for index in order] for order in verdict.orders] == [there, back]


async def test_llm_in_one_order_asks_once_as_the_paper_does(make_case):
    case, asked = make_case(list("abcd"), reply=naming("c", "a"), judge_orders=1)
    verdict = await llm(case)
    assert (verdict.chosen, verdict.rejected, len(asked), verdict.agreements) == (2, 0, 1, [])


async def test_llm_that_likes_a_place_in_the_list_makes_no_pair(make_case):
    case, _ = make_case(list("abcd"), reply=lambda variables: '{"best_id": 1, "worst_id": 4}')
    verdict = await llm(case)
    assert (verdict.chosen, verdict.rejected, verdict.agreements) == (None, None, [False])
    assert verdict.reason == "judge named others in the other order"


async def test_llm_keeps_its_favourite_if_the_orders_differ_only_in_the_worst(make_case):
    def reply(variables):
        shown = variables["candidates"]
        worst = next(place for place, text in enumerate(shown, start=1) if text != "c")
        return f'{{"best_id": {shown.index("c") + 1}, "worst_id": {worst}}}'

    case, _ = make_case(list("abc"), reply=reply)
    verdict = await llm(case)
    assert (verdict.chosen, verdict.rejected, verdict.agreements) == (2, None, [False])
    assert verdict.reason == "judge named others in the other order"


async def test_llm_shuffles_by_the_seed_alone(make_case):
    candidates = list("abcdefghi")

    async def order(seed):
        case, asked = make_case(candidates, reply=naming("a", "b"), seed=seed)
        await llm(case)
        return asked[0][1]["candidates"]

    orders = [await order(seed) for seed in range(30)]
    assert orders == [await order(seed) for seed in range(30)]
    assert all(sorted(shown) == candidates for shown in orders)
    assert len({tuple(shown) for shown in orders}) > 25
    # No candidate keeps a place.
    assert len({shown[0] for shown in orders}) > 5


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("The first one is the best.", "judge reply not readable"),
        ('{"best_id": 1}', "judge reply not readable"),
        ('{"best_id": 0, "worst_id": 1}', "judge reply not readable"),
        ('{"best_id": 1, "worst_id": 4}', "judge reply not readable"),
        ('{"best_id": true, "worst_id": 2}', "judge reply not readable"),
        ('{"best_id": 2, "worst_id": 2}', "judge named one candidate twice"),
    ],
)
async def test_llm_without_two_candidates_named_has_a_reason_and_keeps_the_reply(make_case, reply, reason):
    case, _ = make_case(["a", "b", "c"], reply=lambda variables: reply)
    verdict = await llm(case)
    assert (verdict.chosen, verdict.rejected, verdict.reason) == (None, None, reason)
    assert verdict.replies == [reply, reply]


async def test_llm_that_names_one_candidate_twice_disagrees_with_itself_naming_two(make_case):
    def reply(variables):
        first, second = (variables["candidates"].index(text) + 1 for text in "ab")
        return f'{{"best_id": {first}, "worst_id": {first if first < second else second}}}'

    case, _ = make_case(["a", "b"], reply=reply)
    verdict = await llm(case)
    assert (verdict.reason, verdict.agreements) == ("judge named one candidate twice", [False])
    case, _ = make_case(["a", "b"], reply=lambda variables: '{"best_id": 1, "worst_id": 1}', judge_orders=1)
    assert (await llm(case)).agreements == []


async def test_llm_may_call_a_cut_candidate_the_worst_but_not_the_best(make_case):
    case, _ = make_case(["a", "b"], reply=naming("a", "b"), cut=["b"])
    assert (await llm(case)).rejected == 1
    case, _ = make_case(["a", "b"], reply=naming("b", "a"), cut=["b"])
    verdict = await llm(case)
    assert (verdict.chosen, verdict.reason) == (None, "the best candidate was cut at its token limit")


async def test_llm_sees_what_it_compares_and_the_request(make_case):
    case, asked = make_case(["a", "b"], reply=naming("a", "b"), kind="query", variables={"turns": [], "query": "Who?"})
    await llm(case)
    prompt, shown = asked[0]
    assert prompt == BEST_AND_WORST
    assert (shown["kind"], shown["request"], shown["question"]) == ("query", "Write a note.", QUESTION.question)
    # A user's own prompt may name the stage's variables; the turns of a chat are in the request.
    assert shown["query"] == "Who?" and "turns" not in shown


@pytest.mark.parametrize("kind", get_args(Kind))
def test_the_prompt_of_llm_fits_every_kind(kind):
    told = {"kind": kind, "request": "Do it.", "question": "Who?", "candidates": ["One", "Two"]}
    text = Prompts().render("judge/best_and_worst", **told)[0]["content"]
    assert '<candidate id="2">\nTwo\n</candidate>' in text and "A good" in text and "best_id" in text
