import random
from itertools import pairwise, product
from typing import get_args

import pytest

from data_construction.judges import (
    JUDGES,
    decision,
    gain,
    llm,
    metric,
    outcome,
    reference,
    retrieval,
    status,
)
from data_construction.judges.case import Case, Verdict, by_score
from data_construction.judges.llm import BEST_AND_WORST
from data_construction.judges.tie_breaking import decide
from notewriter.method import Kind
from notewriter.methods.deepnote import DECIDE
from notewriter.records import Passage, Question
from notewriter.rollouts.prompts import Prompts

QUESTION = Question(
    "q1",
    "Where was the mother of Osk born?",
    ("Tolen",),
    supporting_ids=("p1", "p2"),
    supporting_facts=("Osk's mother is Mira.", "Mira was born in Tolen."),
)
BEFORE = "Osk's mother is Mira."
BOTH = "Osk's mother is Mira. Mira was born in Tolen."


@pytest.fixture
def make_case():
    """A case with these candidates; the judge's model replies what `reply(candidate texts)` says."""

    def make(candidates, *, reply=None, found=(), answers=(), cut=(), negative=(), seed="0 q1", kind="note", **changes):
        asked = []

        async def ask(prompt, json_schema=None, sample=0, **variables):
            asked.append((prompt, variables))
            return reply(variables | {"sample": sample} if sample else variables)

        async def search(query, top_k):
            return [Passage(id, id, id) for id in dict(found).get(query, ())][:top_k]

        async def finish(candidate, number=0):
            answer = dict(answers)[candidate]
            return answer[number] if isinstance(answer, list) else answer

        async def next_query(candidate):
            return f"{candidate} {QUESTION.question}"

        case = Case(
            question=changes.pop("question", QUESTION),
            kind=kind,
            request="Write a note.",
            variables=changes.pop("variables", {"passages": [], "note": BEFORE}),
            options={"top_k": 2},
            candidates=candidates,
            choosable=[candidate not in cut for candidate in candidates],
            last_resort=[2 * (candidate in cut) + (candidate in negative) for candidate in candidates],
            ask=ask,
            search=search,
            finish=finish,
            next_query=next_query,
            family=changes.pop("family", "hotpotqa"),
            random=random.Random(seed),
            orders=changes.pop("orders", 2),
            min_gap=changes.pop("min_gap", 0.0),
            **changes,
        )
        return case, asked

    return make


def test_every_judge_knows_the_stages_whose_candidates_it_understands():
    specific = [entry.kinds for entry in JUDGES.values() if entry.kinds != get_args(Kind)]
    assert {kind for kinds in specific for kind in kinds} == set(get_args(Kind)) - {"step"}


# llm: a judge model names the best and the worst of all candidates


def naming(best, worst):
    """A judge model that has its mind made up about texts, wherever they stand."""

    def reply(variables):
        ids = {text: place for place, text in enumerate(variables["candidates"], start=1)}
        return f'Surely {{"best_id": {ids[best]}, "worst_id": "{ids[worst]}"}}.'

    return reply


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
    case, asked = make_case(list("abcd"), reply=naming("c", "a"), orders=1)
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


# decision: the adaptive-decision prompt compares every candidate with the note before it


def deciding(true=(), false=()):
    def reply(variables):
        new = variables["new_note"]
        return '{"status": "True"}' if new in true else '{"status": "False"}' if new in false else "Hard to say."

    return reply


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


# outcome: the answer that comes of a candidate


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


RIGHT, WRONG = "Tolen", "Fulda"


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


# hardest: of the worse candidates, the one that gives itself away least

LONG = "c" * 20


@pytest.mark.parametrize(
    ("candidates", "cut", "negative", "rejected"),
    [
        # The lowest score, where lengths are similar (the chosen one has ten characters).
        ({"right text": 1, "worse text": 0.2, "worst text": 0.1}, (), (), "worst text"),
        # A cut one is worse still and is passed over.
        ({"right text": 1, "worse text": 0.2, "worst text": 0.0}, ("worst text",), (), "worse text"),
        # So is one more than twice as long, or less than half.
        ({"right text": 1, "worse text": 0.2, LONG + "c": 0.0, "no": 0.0}, (), (), "worse text"),
        ({"right text": 1, "worse text": 0.2, LONG: 0.0}, (), (), LONG),
        # A negative stands in only if no whole completion is worse, and a cut one only after it.
        ({"right text": 1, "no": 0.5, "gold text": 0.0}, (), ("gold text",), "no"),
        ({"right text": 1, "also right": 1, "gold text": 0.5}, (), ("gold text",), "gold text"),
        ({"right text": 1, "worst text": 0.0, "gold text": 0.5}, ("worst text",), ("gold text",), "gold text"),
        ({"right text": 1, "worst text": 0.0}, ("worst text",), (), "worst text"),
        # Of equal scores, the closest length.
        ({"right text": 1, "worse, and longer": 0.0, "worse texts": 0.0}, (), (), "worse texts"),
        # Of those that are worse by min_gap.
        ({"right text": 1, "worse text": 0.95, "no": 0.0}, (), (), "no"),
    ],
)
async def test_the_hardest_candidate_is_rejected(make_case, candidates, cut, negative, rejected):
    case, _ = make_case(list(candidates), cut=cut, negative=negative, rejected="hardest", min_gap=0.1)
    verdict = by_score(case, list(candidates.values()))
    assert list(candidates)[verdict.rejected] == rejected
    assert candidates[list(candidates)[verdict.chosen]] == 1


async def test_the_decision_rejects_the_hardest_too(make_case):
    candidates = ["true text", "false", "false text", "false, but long beyond all"]
    reply = deciding(true={"true text"}, false=set(candidates[1:]))
    for seed in range(8):
        case, _ = make_case(candidates, reply=reply, cut=["false"], seed=seed, rejected="hardest")
        assert candidates[(await decision(case)).rejected] == "false text"


# gain: what a frozen answerer makes of a note beyond plain passages


def answering(texts, *, plain=WRONG):
    """An answerer: from a note, what `texts` says of it, for each sample in turn; from passages, `plain`."""

    def reply(variables):
        (first, *_) = variables["passages"]
        answers = texts.get(first.text, plain)
        return answers[variables.get("sample", 0)] if isinstance(answers, list) else answers

    return reply


async def test_gain_is_the_answerers_score_with_the_note_less_its_score_with_plain_passages(make_case):
    # "in Tolen, too" has an F1 of 1/2.
    reply = answering({"a": RIGHT, "b": WRONG, "c": "in Tolen, too"}, plain="in Tolen, too")
    case, asked = make_case(list("abc"), reply=reply, found={QUESTION.question: ["p1", "p2", "p3"]})
    verdict = await gain(case)
    assert (verdict.chosen, verdict.rejected, verdict.scores) == (0, 1, [0.5, -0.5, 0])
    assert verdict.replies == ["in Tolen, too", RIGHT, WRONG, "in Tolen, too"]
    assert {(stage.name, stage.role) for stage, _ in asked} == {("vanilla/answer", "answer")}
    assert [[passage.text for passage in variables["passages"]] for _, variables in asked] == [
        ["p1", "p2"],
        *(["a"], ["b"], ["c"]),
    ]


async def test_gain_scores_what_an_answerer_says_and_not_what_it_thinks(make_case):
    thought = f"<think>Is it {WRONG}, or {RIGHT}?</think>\n\n"
    reply = answering({"a": thought + RIGHT, "b": thought + WRONG}, plain=thought + WRONG)
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]})
    verdict = await gain(case)
    assert verdict.scores == [1, 0]
    assert verdict.replies[1] == thought + RIGHT


async def test_a_note_that_does_not_beat_the_passages_is_not_chosen(make_case):
    reply = answering({"a": RIGHT, "b": WRONG}, plain=RIGHT)
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]})
    assert (await gain(case)).rejected is None


async def test_gain_of_several_answers_is_their_mean_and_its_noise_that_of_the_notes_answers(make_case):
    reply = answering({"a": [RIGHT, RIGHT, RIGHT, WRONG], "b": WRONG}, plain=[RIGHT, WRONG, WRONG, WRONG])
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]}, continuations=4)
    verdict = await gain(case)
    assert (verdict.scores, verdict.noise, verdict.rejected) == ([0.5, -0.25], [0.25, 0], 1)


# decide: judges in order


async def test_a_further_judge_is_asked_only_about_ties(make_case):
    judges = [("outcome", outcome), ("llm", llm)]
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
    judges = [("outcome", outcome), ("llm", llm)]
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
    verdict = await decide([("llm", llm), ("outcome", outcome)], case)
    assert (verdict.chosen, verdict.judge) == (1, "llm, outcome")
    assert verdict.rejected in (0, 2)


async def test_if_all_are_alike_a_worst_without_a_best_makes_no_pair(make_case):
    # Of three, a judge that likes places names the one in the middle in either order.
    case, _ = make_case(
        list("abc"), answers=dict.fromkeys("abc", "Tolen"), reply=lambda _: '{"best_id": 1, "worst_id": 2}'
    )
    verdict = await decide([("outcome", outcome), ("llm", llm)], case)
    assert verdict.chosen is not None, "the method continues with one"
    assert (verdict.rejected, verdict.reason) == (None, "judge named others in the other order")


async def test_a_tie_that_the_next_judge_does_not_break_is_broken_at_random(make_case):
    answers = {"a": "Tolen", "b": "Tolen", "c": "Fulda"}
    chosen = set()
    for seed in range(20):
        case, _ = make_case(list("abc"), answers=answers, reply=lambda variables: "Hm.", seed=seed)
        verdict = await decide([("outcome", outcome), ("llm", llm)], case)
        assert verdict.rejected == 2 and verdict.reason == ""
        chosen.add(verdict.chosen)
    assert chosen == {0, 1}


async def test_a_worst_that_only_the_last_of_three_judges_names_breaks_a_tie(make_case):
    """Outcome leaves b to e tied; the reference finds them alike; the model agrees with itself on the worst alone."""

    async def alike(case):
        return Verdict(0, alike=True, reason="candidates too much alike")

    async def names_the_worst_alone(case):
        return Verdict(None, case.candidates.index("d"), reason="judge named others in the other order")

    answers = {"a": "Tolen"} | dict.fromkeys("bcde", "Fulda")
    for judges in (
        [("outcome", outcome), ("last", names_the_worst_alone)],
        [("outcome", outcome), ("alike", alike), ("last", names_the_worst_alone)],
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
        verdict = await decide([(name, JUDGES[name].judge) for name in (first, second)], case)
        if verdict.chosen is None or verdict.rejected is None:
            assert verdict.reason
        else:
            assert verdict.chosen != verdict.rejected and case.choosable[verdict.chosen] and not verdict.reason


# metric, reference, retrieval, status: no model


async def test_metric_ranks_answers_by_f1_under_the_rules_of_the_family(make_case):
    case, _ = make_case(["in Tolen, I think", "Tolen", "Fulda"])
    verdict = await metric(case)
    assert (verdict.chosen, verdict.rejected) == (1, 2)
    assert verdict.scores == [0.4, 1, 0]
    # HotpotQA counts the first gold alone, MuSiQue its aliases too.
    question = Question("q1", "Where?", ("Tolen", "Fulda"))
    scores = {}
    for family in ("hotpotqa", "musique"):
        case, _ = make_case(["Fulda", "Osk"], question=question, family=family)
        scores[family] = (await metric(case)).scores
    assert scores == {"hotpotqa": [0, 0], "musique": [1, 0]}


async def test_metric_without_a_right_answer_has_no_pair(make_case):
    case, _ = make_case(["Fulda", "Mira"])
    verdict = await metric(case)
    assert (verdict.rejected, verdict.reason) == (None, "no candidate better than nothing")


async def test_reference_prefers_the_evidence_whole_and_alone(make_case):
    padded = BOTH + " " + "Nothing else is known about the river or the bridge or the keeper." * 2
    case, _ = make_case([BEFORE, BOTH, padded, "No idea."])
    verdict = await reference(case)
    assert (verdict.chosen, verdict.rejected) == (1, 3)
    half, whole, long, nothing = verdict.scores
    assert whole == 1 and nothing == 0
    assert whole > long > half > nothing


async def test_reference_compares_a_note_takers_reply_with_what_is_new_in_its_document(make_case):
    replies = [
        "NO#No relevant information.",
        "YES#Mira was born in Tolen.",
        "YES#Mira sings.",
        "Mira was born in Tolen.",
    ]
    told = {"query": "Where was she born?", "note": f"Osk - {BEFORE}"}
    mira, river = Passage("p2", "Mira", "Mira was born in Tolen. She sings."), Passage("p3", "Bore", "The Bore flows.")
    for passage, scores in ((mira, [0, 1, 0.2857, 0]), (river, [1, 0, 0, 0])):
        case, _ = make_case(replies, kind="document note", variables=told | {"passages": [passage]})
        verdict = await reference(case)
        assert verdict.scores == scores and verdict.chosen == scores.index(1)
    # Without known facts nobody can tell what is relevant; another judge may.
    unknown = Question("q", "Where?", ("Tolen",))
    case, _ = make_case(replies, kind="document note", variables=told | {"passages": [mira]}, question=unknown)
    assert (await reference(case)).alike


async def test_retrieval_ranks_queries_by_the_reciprocal_ranks_of_the_supporting_passages(make_case):
    found = {
        f"first {QUESTION.question}": ["p1", "x", "p2"],
        f"second {QUESTION.question}": ["x", "p1"],
        f"third {QUESTION.question}": ["x", "y"],
    }
    case, _ = make_case(["third", "first", "second"], found=found, kind="query")
    verdict = await retrieval(case)
    assert verdict.scores == [0, round((1 + 1 / 3) / 2, 4), 0.25]
    assert (verdict.chosen, verdict.rejected) == (1, 0)


async def test_retrieval_without_known_supporting_passages_has_no_pair(make_case):
    case, _ = make_case(["first", "second"], question=Question("q2", "Where?", ("Tolen",)))
    assert (await retrieval(case)).reason == "no candidate better than nothing"


@pytest.mark.parametrize(("new_note", "right"), [(BOTH, 0), ("No idea.", 1), (BEFORE, 1)])
async def test_status_checks_the_decision_against_the_gold_evidence(make_case, new_note, right):
    candidates = ['{"status": "True"}', '{"status": "False"}', "Hard to say."]
    variables = {"best_note": BEFORE, "new_note": new_note}
    for seed in range(10):
        case, _ = make_case(candidates, variables=variables, seed=seed)
        verdict = await status(case)
        # What cannot be read is wrong, whichever is right.
        assert verdict.chosen == right and verdict.rejected in {0, 1, 2} - {right}
        assert verdict.scores == [float(place == right) for place in range(3)]


# What they share


async def test_a_tie_at_either_end_is_broken_at_random_and_the_same_way_for_a_seed(make_case):
    async def pair(seed):
        case, _ = make_case(["Tolen", "the Tolen", "Fulda", "Mira"], seed=seed)
        verdict = await metric(case)
        return verdict.chosen, verdict.rejected

    pairs = [await pair(seed) for seed in range(40)]
    assert set(pairs) == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert pairs == [await pair(seed) for seed in range(40)]


async def test_candidates_that_are_worth_the_same_are_no_pair(make_case):
    case, _ = make_case(["Tolen", "the Tolen"])
    verdict = await metric(case)
    assert verdict.chosen in (0, 1)
    assert (verdict.rejected, verdict.reason) == (None, "candidates too much alike")


async def test_min_gap_is_the_smallest_difference_that_makes_a_pair(make_case):
    # F1 of 1 and 0.4, a gap of 0.6.
    candidates = ["Tolen", "in Tolen, I think"]
    for min_gap, reason in ((0.6, ""), (0.61, "candidates too much alike")):
        case, _ = make_case(candidates, min_gap=min_gap)
        verdict = await metric(case)
        assert (verdict.chosen, verdict.reason) == (0, reason)


async def test_a_cut_candidate_is_never_the_better_one_but_may_be_the_worse(make_case):
    case, _ = make_case(["Tolen", "in Tolen, I think", "Fulda"], cut=["Tolen", "Fulda"])
    verdict = await metric(case)
    assert (verdict.chosen, verdict.rejected) == (1, 2)
    case, _ = make_case(["Tolen", "Fulda"], cut=["Tolen", "Fulda"])
    verdict = await metric(case)
    assert (verdict.chosen, verdict.reason) == (None, "every candidate was cut at its token limit")
    # The best one that was not cut is worth less than the worst that was.
    case, _ = make_case(["Tolen", "in Tolen, I think"], cut=["Tolen"])
    verdict = await metric(case)
    assert (verdict.rejected, verdict.reason) == (None, "candidates too much alike")


@pytest.mark.parametrize("judge", [metric, reference, retrieval])
async def test_verdicts_do_not_depend_on_the_order_of_the_candidates(make_case, judge):
    candidates = ["Tolen", "Fulda", BOTH, BEFORE]
    found = {
        f"{text} {QUESTION.question}": ids
        for text, ids in zip(candidates, (["p1", "p2"], [], ["p1"], ["p2"]), strict=True)
    }
    named = []
    for _ in range(4):
        candidates = candidates[1:] + candidates[:1]
        case, _ = make_case(candidates, found=found)
        verdict = await judge(case)
        named.append(candidates[verdict.chosen])
    assert all(before == after for before, after in pairwise(named))
