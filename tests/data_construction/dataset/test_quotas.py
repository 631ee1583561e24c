import asyncio

import pytest

from data_construction.dataset.quotas import Quotas, within_quotas
from notewriter.records import Question

QUESTIONS = [Question(f"q{number}", "Where?", ("Tolen",)) for number in range(8)]
STAGES = ["note", "answer"]


def record(question, *stages):
    return {"question_id": question.id, "rows": [{"stage": stage} for stage in stages], "drops": []}


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


def test_pairs_beyond_a_quota_are_drops_and_those_of_the_first_questions_stay():
    records = [record(QUESTIONS[0], "note", "answer"), record(QUESTIONS[1], "note", "note"), record(QUESTIONS[2])]
    kept = list(within_quotas({"note": 2}, records))
    assert [[row["stage"] for row in each["rows"]] for each in kept] == [["note", "answer"], ["note"], []]
    assert [each["drops"] for each in kept] == [[], [{"stage": "note", "reason": "beyond the quota"}], []]
    assert records[1]["drops"] == []
