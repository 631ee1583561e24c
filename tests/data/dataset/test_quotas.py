import asyncio

import pytest

from notewriter.data.dataset.quotas import Quotas, within_quotas
from notewriter.data.recipe import PreparedMethod, Recipe
from notewriter.ground.records import Question
from notewriter.methods import METHODS

QUESTIONS = [Question(f"q{number}", "Where?", ("Tolen",)) for number in range(8)]
STAGES = ["note", "answer"]


def record(question, *stages):
    return {
        "question_id": question.id,
        "rows": [row(stage) | {"question_id": question.id} for stage in stages],
        "drops": [],
    }


def row(stage, length=100):
    text = [{"content": "a" * length}]
    return {"stage": stage, "prompt": text, "chosen": text}


async def known(quotas, question):
    """The open stages, or None where they are not certain yet."""
    task = asyncio.ensure_future(quotas.open_stages(question))
    for _ in range(3):
        await asyncio.sleep(0)
    return task.result() if task.done() else task.cancel() and None


async def test_without_quotas_nobody_waits_and_every_stage_stays_open():
    quotas = Quotas(STAGES, {}, QUESTIONS, 2)
    for question in QUESTIONS:
        assert await known(quotas, question) == STAGES
        quotas.add(record(question, "note", "note"))
    assert quotas.to_do() == 0


async def test_a_block_waits_for_all_up_to_the_one_before_the_last_in_whatever_order_they_finish():
    quotas = Quotas(STAGES, {"note": 2}, QUESTIONS, 2)
    assert [await known(quotas, question) for question in QUESTIONS] == [STAGES] * 4 + [None] * 4
    for place in (3, 2, 1):
        quotas.add(record(QUESTIONS[place], "note"))
    assert await known(quotas, QUESTIONS[4]) is None
    quotas.add(record(QUESTIONS[0], "answer"))
    # Of the first four questions only the first two count for the third block, and all for the fourth.
    assert [await known(quotas, question) for question in QUESTIONS[4:]] == [STAGES] * 2 + [["answer"]] * 2


async def test_when_every_stage_has_its_quota_there_is_nothing_left_to_do():
    quotas = Quotas(STAGES, {"note": 1, "answer": 1}, QUESTIONS, 2)
    assert quotas.to_do() == 8
    for question in QUESTIONS[:2]:
        quotas.add(record(question, *STAGES))
    # The second block was begun before the first was whole, so it belongs to the run.
    assert quotas.to_do() == 2
    assert await known(quotas, QUESTIONS[4]) == []
    for question in QUESTIONS[2:4]:
        quotas.add(record(question, *STAGES))
    assert quotas.to_do() == 0


async def test_nobody_waits_for_questions_that_are_not_rolled_out():
    quotas = Quotas(STAGES, {"note": 1, "answer": 1}, QUESTIONS, 1)
    for question in QUESTIONS[:2]:
        quotas.add(record(question, *STAGES))
    assert [await known(quotas, question) for question in QUESTIONS[2:]] == [[]] * 6


async def test_a_stage_without_a_quota_keeps_the_work_going():
    quotas = Quotas(STAGES, {"note": 1}, QUESTIONS, 1)
    for question in QUESTIONS:
        await quotas.open_stages(question)
        quotas.add(record(question, *STAGES))
    assert quotas.to_do() == 0
    assert await known(quotas, QUESTIONS[-1]) == ["answer"]


@pytest.mark.parametrize("finished", [0, 3, 8])
def test_what_is_left_to_do_goes_down_with_what_is_finished(finished):
    quotas = Quotas(STAGES, {"note": 100}, QUESTIONS, 3)
    for question in QUESTIONS[:finished]:
        quotas.add(record(question, "note"))
    assert quotas.to_do() == 8 - finished


async def test_pairs_of_dev_questions_fill_no_quota():
    """DNAlign has 6,000 training pairs, net of the dev split."""
    quotas = Quotas(STAGES, {"note": 1, "answer": 1}, QUESTIONS, 1, dev={"q0", "q1"})
    for question in QUESTIONS[:2]:
        quotas.add(record(question, *STAGES))
    assert await known(quotas, QUESTIONS[3]) == STAGES
    quotas.add(record(QUESTIONS[2], *STAGES))
    quotas.add(record(QUESTIONS[3]))
    assert await known(quotas, QUESTIONS[4]) == []


async def test_pairs_of_unusual_lengths_fill_no_quota():
    """They are dropped once all pairs are there; the first 20 tell which lengths are usual."""
    quotas = Quotas(["note"], {"note": 20}, QUESTIONS, 1)
    quotas.add(record(QUESTIONS[0], *["note"] * 10))
    quotas.add(record(QUESTIONS[1]) | {"rows": [row("note")] * 9 + [row("note", 10_000)]})
    assert quotas.to_do() == 6
    assert [await known(quotas, question) for question in QUESTIONS[2:4]] == [["note"]] * 2
    quotas.add(record(QUESTIONS[2], "note"))
    assert await known(quotas, QUESTIONS[4]) == []
    quotas.add(record(QUESTIONS[3]))
    assert quotas.to_do() == 0


async def test_a_run_that_ended_stays_ended_whatever_the_last_lengths_make_unusual():
    quotas = Quotas(["note"], {"note": 10}, QUESTIONS, 1, dev={"q1"})
    quotas.add(record(QUESTIONS[0]) | {"rows": [row("note")] * 9 + [row("note", 10_000)]})
    assert await known(quotas, QUESTIONS[2]) == []
    quotas.add(record(QUESTIONS[1], *["note"] * 10))
    assert await known(quotas, QUESTIONS[3]) == []
    assert quotas.to_do() == 0


def test_dev_has_its_share_of_pairs_in_addition():
    records = [record(question, "note") for question in QUESTIONS]
    kept = list(within_quotas({"note": 3}, records, dev={"q1", "q5"}, dev_share=0.25))
    assert [each["question_id"] for each in kept if each["rows"]] == ["q0", "q1", "q2", "q3"]


def recipe_of(stages, options, **changes):
    methods = {"deepnote": PreparedMethod(METHODS["deepnote"], options)}
    methods["vanilla"] = PreparedMethod(METHODS["vanilla"], {})
    return Recipe(stages=stages, methods=methods, **changes)


@pytest.mark.parametrize(
    ("options", "open_stages", "sampled"),
    [
        # y+ of the note is in the query's prompt, and both are behind the updated note (DeepNote, section 3.4).
        ({"max_step": 1}, ["deepnote/refine_query"], "init_note refine_query"),
        ({"max_step": 1}, ["deepnote/accumulate_knowledge"], "init_note refine_query accumulate_knowledge"),
        ({"max_step": 1}, ["deepnote/init_note"], "init_note"),
        ({"max_step": 1}, ["vanilla/answer"], "answer"),
        # In a loop the query continues from the last round's note.
        ({"max_step": 2}, ["deepnote/refine_query"], "init_note refine_query accumulate_knowledge"),
        ({"max_step": 2}, ["deepnote/answer"], "init_note refine_query accumulate_knowledge answer"),
    ],
)
def test_what_an_open_stage_continues_from_is_still_sampled(options, open_stages, sampled):
    stages = [f"deepnote/{name}" for name in ("init_note", "refine_query", "accumulate_knowledge", "answer")]
    stages.append("vanilla/answer")
    names = [stage.split("/")[1] for stage in recipe_of(stages, options).sampled(open_stages)]
    assert names == sampled.split()
    assert recipe_of(stages, options, sample_full_stages=False).sampled(open_stages) == open_stages


def test_pairs_beyond_a_quota_are_drops_and_those_of_the_first_questions_stay():
    records = [record(QUESTIONS[0], "note", "answer"), record(QUESTIONS[1], "note", "note"), record(QUESTIONS[2])]
    kept = list(within_quotas({"note": 2}, records))
    assert [[row["stage"] for row in each["rows"]] for each in kept] == [["note", "answer"], ["note"], []]
    assert [each["drops"] for each in kept] == [[], [{"stage": "note", "reason": "beyond the quota"}], []]
    assert records[1]["drops"] == []
