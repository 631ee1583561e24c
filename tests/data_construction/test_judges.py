import random
from itertools import pairwise

import pytest

from data_construction.judges import JUDGED_STAGES, JUDGES, Case, decision, llm, metric, reference, retrieval, status
from notewriter.records import Passage, Question

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

    def make(candidates, *, reply=None, found=(), cut=(), seed="0 q1", stage="deepnote/init_note", **changes):
        asked = []

        async def ask(prompt, **variables):
            asked.append((prompt, variables))
            return reply(variables)

        async def search(query, top_k):
            return [Passage(id, id, id) for id in dict(found).get(query, ())][:top_k]

        case = Case(
            question=changes.pop("question", QUESTION),
            stage=stage,
            variables=changes.pop("variables", {"passages": [], "note": BEFORE}),
            candidates=candidates,
            choosable=[candidate not in cut for candidate in candidates],
            ask=ask,
            search=search,
            family=changes.pop("family", "hotpotqa"),
            random=random.Random(seed),
            min_gap=changes.pop("min_gap", 0.0),
        )
        assert not changes
        return case, asked

    return make


def test_every_judge_knows_the_stages_whose_candidates_it_understands():
    assert JUDGED_STAGES.keys() == JUDGES.keys()


# llm: a judge model names the best and the worst of all candidates


def naming(best, worst):
    """A judge model that has its mind made up about texts, wherever they stand."""

    def reply(variables):
        ids = {text: place for place, text in enumerate(variables["candidates"], start=1)}
        return f'Surely {{"best_id": {ids[best]}, "worst_id": "{ids[worst]}"}}.'

    return reply


async def test_llm_names_the_same_texts_in_whatever_order_they_are_shown(make_case):
    for seed in range(20):
        case, _ = make_case(["a", "b", "c"], reply=naming("c", "a"), seed=seed)
        verdict = await llm(case)
        assert (verdict.chosen, verdict.rejected) == (2, 0)
        assert len(verdict.replies) == 1 and verdict.replies[0].startswith("Surely")


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
    assert verdict.replies == [reply]


async def test_llm_may_call_a_cut_candidate_the_worst_but_not_the_best(make_case):
    case, _ = make_case(["a", "b"], reply=naming("a", "b"), cut=["b"])
    assert (await llm(case)).rejected == 1
    case, _ = make_case(["a", "b"], reply=naming("b", "a"), cut=["b"])
    verdict = await llm(case)
    assert (verdict.chosen, verdict.reason) == (None, "the best candidate was cut at its token limit")


async def test_llm_is_told_whether_it_compares_notes_or_queries(make_case):
    for variables, kind in (({"passages": []}, "note"), ({"note": BEFORE, "queries": []}, "query")):
        case, asked = make_case(["a", "b"], reply=naming("a", "b"), variables=variables)
        await llm(case)
        prompt, shown = asked[0]
        assert prompt == "judge/best_and_worst"
        assert (shown["kind"], shown["question"]) == (kind, QUESTION.question)
        assert shown["note"] == variables.get("note", "")


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
    assert prompts == {("deepnote/decide", BEFORE)}
    assert [variables["new_note"] for _, variables in asked] == candidates


async def test_decision_without_a_true_or_without_a_false_has_no_pair(make_case):
    case, _ = make_case(["a", "b"], reply=deciding(false={"a", "b"}))
    verdict = await decision(case)
    assert (verdict.chosen, verdict.rejected, verdict.reason) == (None, None, "no candidate better")
    case, _ = make_case(["a", "b"], reply=deciding(true={"a", "b"}), cut=["a"])
    verdict = await decision(case)
    # There is nothing to learn from, but the method goes on with a better note.
    assert (verdict.chosen, verdict.rejected, verdict.reason) == (1, None, "no candidate worse")


async def test_decision_passes_over_candidates_it_cannot_read_about(make_case):
    reply = deciding(true={"a"}, false={"c"})
    case, _ = make_case(["a", "b", "c"], reply=reply)
    verdict = await decision(case)
    assert (verdict.chosen, verdict.rejected, verdict.scores) == (0, 2, [1, None, 0])
    case, _ = make_case(["b", "c"], reply=reply)
    verdict = await decision(case)
    assert (verdict.chosen, verdict.reason) == (None, "judge reply not readable")


async def test_decision_never_chooses_a_cut_note(make_case):
    for seed in range(10):
        case, _ = make_case(["a", "b", "c"], reply=deciding(true={"a", "b"}, false={"c"}), cut=["a"], seed=seed)
        assert (await decision(case)).chosen == 1
    case, _ = make_case(["a", "c"], reply=deciding(true={"a"}, false={"c"}), cut=["a"])
    assert (await decision(case)).reason == "no candidate better"


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


async def test_retrieval_ranks_queries_by_the_reciprocal_ranks_of_the_supporting_passages(make_case):
    found = {
        f"first {QUESTION.question}": ["p1", "x", "p2"],
        f"second {QUESTION.question}": ["x", "p1"],
        f"third {QUESTION.question}": ["x", "y"],
    }
    case, _ = make_case(["third", "first", "second"], found=found, stage="deepnote/refine_query")
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
