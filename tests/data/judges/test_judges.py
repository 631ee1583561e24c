"""Judges without a model (`metric`, `reference`, `whole_facts`, `retrieval`, `status`), and what all have in common."""

from itertools import pairwise
from typing import get_args

import pytest
from judge_cases import BEFORE, BOTH, QUESTION

from notewriter.data.judges import JUDGES, chance, metric, next_search, reference, retrieval, status, whole_facts
from notewriter.data.judges.case import NOTHING, by_score
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.rollouts.method import Kind


def test_every_judge_knows_the_stages_whose_candidates_it_understands():
    specific = [entry.kinds for entry in JUDGES.values() if entry.kinds != get_args(Kind)]
    assert {kind for kinds in specific for kind in kinds} == set(get_args(Kind)) - {"step"}


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


async def test_metric_takes_a_share_of_which_more_is_better(make_case, tmp_path):
    (tmp_path / "lengths.py").write_text(
        "from notewriter.evaluation.metrics.metric import Family, Metric\n"
        "def score(prediction, question):\n"
        "  return {'letters': len(prediction), 'right': float(prediction in question.answers)}\n"
        "LETTERS = Metric('letters', 'Letters', '', share=False)\n"
        "FAMILY = Family(score, (LETTERS, Metric('right', 'Right', '')))\n"
        "NO_SHARE = Family(lambda *of: {'letters': 3}, (LETTERS,))\n"
    )
    for name in ("FAMILY", "NO_SHARE"):
        plugins.load(f"{tmp_path / 'lengths.py'}:{name}")
    case, _ = make_case(["Tolen", "a long way round"], family=f"{tmp_path / 'lengths.py'}:FAMILY")
    assert (await metric(case)).scores == [1, 0]
    case, _ = make_case(["Tolen", "Fulda"], family=f"{tmp_path / 'lengths.py'}:NO_SHARE")
    with pytest.raises(UserError, match="has no share of which more is better"):
        await metric(case)


async def test_metric_without_a_right_answer_has_no_pair(make_case):
    case, _ = make_case(["Fulda", "Mira"])
    verdict = await metric(case)
    assert (verdict.rejected, verdict.reason) == (None, NOTHING)


RETRIEVED = {"passages": [Passage("p1", "Osk", BOTH)]}


PADDED = BOTH + " " + "Nothing else is known about the river or the bridge or the keeper." * 2


async def test_reference_prefers_the_evidence_whole_and_of_whole_notes_alone(make_case):
    case, _ = make_case([BEFORE, BOTH, PADDED, "No idea."], variables=RETRIEVED, note_words=None)
    verdict = await reference(case)
    assert (verdict.chosen, verdict.rejected) == (1, 3)
    half, whole, long, nothing = verdict.scores
    assert whole == 1 and nothing == 0
    assert whole > long > half > nothing


async def test_reference_pays_for_no_sentence_left_out_of_a_budget(make_case):
    case, _ = make_case([BEFORE, BOTH, PADDED], variables=RETRIEVED, note_words=40)
    half, whole, padded = (await reference(case)).scores
    assert half < whole == padded == 1


async def test_reference_pays_for_no_word_beyond_the_budget_and_for_nothing_that_was_not_retrieved(make_case):
    filler = "The river flows. " * 20
    case, _ = make_case([filler + BOTH, BOTH, f"{BOTH} {filler}"], variables=RETRIEVED, note_words=9)
    late, alone, padded = (await reference(case)).scores
    assert late < alone == padded == 1
    case, _ = make_case([BOTH, BEFORE], variables={"passages": [Passage("p1", "Osk", BEFORE)]})
    assert (await reference(case)).chosen == 1
    case, _ = make_case([BOTH, BEFORE], variables={"passages": [Passage("p3", "Bore", "The Bore flows.")]})
    verdict = await reference(case)
    assert verdict.alike and verdict.reason == "no gold evidence lies among the passages"


async def test_whole_facts_pays_for_no_fragment_no_answer_and_nothing_beyond_the_budget(make_case):
    facts = ("Mira was born in Osk.", "Osk lies on the Tolen.")
    question = Question("q1", "Where was Mira born?", ("Osk",), supporting_facts=(*facts, "Never found."))
    passages = {"passages": [Passage("p1", "Osk", " ".join(facts))]}
    cut = "Mira was born in"
    candidates = [cut, " ".join(facts), "mira WAS born in Osk", f"{'word ' * 36}{facts[1]}", "Osk"]
    case, _ = make_case(candidates, question=question, variables=passages)
    verdict = await whole_facts(case)
    assert verdict.scores == [0, 1, 0.5, 0, 0]
    # Of words, the cut sentence and the bare answer have something.
    assert min((await reference(case)).scores) > 0
    assert verdict.chosen == 1
    case, _ = make_case([cut, facts[0]], question=question, variables={"passages": [Passage("p2", "Sea", "Far.")]})
    verdict = await whole_facts(case)
    assert verdict.alike and verdict.reason == "no facts lie among the passages"


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


async def test_next_search_ranks_notes_by_what_is_missing_and_found_with_them(make_case):
    asked = QUESTION.question
    found = {f"Mira {asked}": ["p1", "x", "p2"], f"Osk {asked}": ["p1", "p2"], f"Bore {asked}": ["x", "y"]}
    case, _ = make_case(["Mira and", "Bore and", "Osk and"], found=found, seen={"p1": ""}, note_words=1)
    verdict = await next_search(case)
    # What was seen takes no rank.
    assert verdict.scores == [0.5, 0, 1]
    assert (verdict.chosen, verdict.rejected) == (2, 1)
    case, _ = make_case(["Mira", "Bore"], found=found, seen={"p1": "", "p2": ""})
    verdict = await next_search(case)
    assert verdict.alike and verdict.reason == "no supporting passage is missing"


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
    assert (await retrieval(case)).reason == NOTHING


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


async def test_a_gap_is_not_smaller_for_its_binary_digits(make_case):
    """1 - 0.8 is 0.19999999999999996."""
    case, _ = make_case(["Tolen", "Fulda"], min_gap=0.2)
    assert by_score(case, [1.0, 0.8]).rejected == 1


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
        case, _ = make_case(candidates, found=found, variables=RETRIEVED)
        verdict = await judge(case)
        named.append(candidates[verdict.chosen])
    assert all(before == after for before, after in pairwise(named))


async def test_chance_prefers_any_candidate_and_the_same_one_for_a_prompt_and_seed(make_case):
    verdicts = []
    for seed in map(str, range(30)):
        for _ in range(2):
            case, asked = make_case([BEFORE, BOTH, "No idea."], seed=seed)
            verdicts.append(await chance(case))
            assert not asked
    assert verdicts[::2] == verdicts[1::2]
    assert {verdict.chosen for verdict in verdicts} == {0, 1, 2} == {verdict.rejected for verdict in verdicts}
