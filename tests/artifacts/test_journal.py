"""Questions that are asked once, in a journal."""

import asyncio
import json
import re
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from notewriter.artifacts.journal import check_journal, drop_errors, finished, remaining, tell_errors
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.rollouts import runner

QUESTIONS = [Question(f"q{number}", "Who?", ("Mira",)) for number in range(6)]


async def answer(question: Question) -> dict[str, str]:
    return {"question_id": question.id}


def ask(journal, work=answer, questions=QUESTIONS, concurrency=2):
    asyncio.run(runner.for_each_question(questions, work, journal, concurrency=concurrency, description="asking"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("concurrency", [1, 2, 100])
def test_every_question_is_asked_once_and_not_again(tmp_path, concurrency):
    journal, asked = tmp_path / "traces.jsonl", []

    async def work(question):
        asked.append(question.id)
        await asyncio.sleep(0)
        return {"question_id": question.id}

    assert remaining(journal, QUESTIONS) == 6
    ask(journal, work, QUESTIONS[:4], concurrency)
    assert remaining(journal, QUESTIONS) == 2
    ask(journal, work, QUESTIONS, concurrency)
    ask(journal, work, QUESTIONS, concurrency)
    assert sorted(asked) == [question.id for question in QUESTIONS]
    assert remaining(journal, QUESTIONS) == 0


def test_as_many_questions_as_allowed_are_in_flight(tmp_path):
    in_flight, most = 0, 0

    async def work(question):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        for _ in range(5):
            await asyncio.sleep(0)
        in_flight -= 1
        return {"question_id": question.id}

    ask(tmp_path / "traces.jsonl", work, concurrency=3)
    assert most == 3


def test_what_finished_before_one_raised_is_kept_and_gone_on_from(tmp_path):
    journal = tmp_path / "traces.jsonl"

    async def work(question):
        if question.id == "q3":
            raise UserError("no reply after 8 attempts")
        return {"question_id": question.id}

    with pytest.raises(UserError, match=r"^no reply after 8 attempts$"):
        ask(journal, work, concurrency=1)
    assert [record["question_id"] for record in lines(journal)] == ["q0", "q1", "q2"]
    ask(journal)
    assert remaining(journal, QUESTIONS) == 0


def test_calls_under_way_are_given_up_when_one_raises(tmp_path):
    given_up = []

    async def work(question):
        if question.id == "q1":
            raise UserError("no")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(question.id)
            raise

    with pytest.raises(UserError):
        ask(tmp_path / "traces.jsonl", work)
    assert given_up == ["q0"]


def test_a_question_whose_line_a_kill_cut_is_asked_again(tmp_path):
    journal = tmp_path / "traces.jsonl"
    journal.write_text('{"question_id": "q0"}\n{"question_id": "q1", "ste')
    assert remaining(journal, QUESTIONS) == 5
    ask(journal)
    assert sorted(record["question_id"] for record in lines(journal)) == [question.id for question in QUESTIONS]


def test_a_question_whose_line_only_lacks_its_newline_is_finished(tmp_path):
    journal = tmp_path / "traces.jsonl"
    journal.write_text('{"question_id": "q1"}\n{"question_id": "q0"}')
    assert remaining(journal, QUESTIONS) == 4
    assert [record["question_id"] for record in finished(journal, QUESTIONS)] == ["q0", "q1"]


def test_an_empty_line_in_a_journal_is_skipped(tmp_path):
    journal = tmp_path / "traces.jsonl"
    journal.write_text('{"question_id": "q1"}\n\n \n{"question_id": "q0"}\n')
    assert remaining(journal, QUESTIONS) == 4
    assert [record["question_id"] for record in finished(journal, QUESTIONS)] == ["q0", "q1"]


def test_the_progress_tells_the_speed_and_what_came_of_the_questions_also_of_those_before(tmp_path, capsys):
    journal = tmp_path / "traces.jsonl"
    client = SimpleNamespace(received=0)

    async def work(question):
        client.received += 7
        await asyncio.sleep(0.01)
        return {"question_id": question.id, "rows": [1, 2], "usage": []}

    for questions in (QUESTIONS[:2], QUESTIONS):
        run = runner.for_each_question(
            questions,
            work,
            journal,
            concurrency=1,
            description="asking",
            clients=[client],
            count=lambda record: {"pairs": len(record["rows"])},
        )
        asyncio.run(run)
    last = capsys.readouterr().err.split("\r")[-1]
    assert "6/6" in last and "pairs=12" in last
    assert 0 < int(re.search(r"tokens/s=(\d+)", last)[1]) <= 700 * 1.05


def test_a_journal_of_other_questions_does_not_keep_these_from_being_asked(tmp_path):
    journal = tmp_path / "traces.jsonl"
    ask(journal, questions=[Question(f"other{number}", "Who?", ("Mira",)) for number in range(8)])
    ask(journal)
    assert [record["question_id"] for record in finished(journal, QUESTIONS)] == [q.id for q in QUESTIONS]


def test_what_is_finished_comes_in_the_order_of_the_questions(tmp_path):
    journal = tmp_path / "traces.jsonl"
    order = [4, 0, 5, 2]
    journal.write_text("".join(f'{{"question_id": "q{number}", "text": "Ł{number}"}}\n' for number in order))
    assert list(finished(journal, QUESTIONS)) == [
        {"question_id": f"q{number}", "text": f"Ł{number}"} for number in sorted(order)
    ]
    assert [record["question_id"] for record in finished(journal, QUESTIONS[4:])] == ["q4", "q5"]


@pytest.mark.parametrize(
    "record",
    [
        lambda error: {"error": error},
        lambda error: {"trace": {"error": error}},
        lambda error: {"traces": [{"error": ""}, {"error": error}]},
        lambda error: {"refusal": error},
    ],
    ids=["evaluate", "chains", "pairs", "judge"],
)
def test_questions_that_ended_in_an_error_are_dropped_and_all_others_stay_as_they_were(tmp_path, record):
    journal = tmp_path / "traces.jsonl"
    drop_errors(journal)
    assert not journal.exists()
    errors = ["", "the prompt is too long", ""]
    records = [{"question_id": f"q{number}", "text": "Ł", **record(error)} for number, error in enumerate(errors)]
    jsonl.write(journal, records)
    with open(journal, "a") as file:
        file.write('{"question_id": "q3", "err')
    drop_errors(journal)
    assert lines(journal) == [records[0], records[2]]
    assert remaining(journal, QUESTIONS) == 4


def test_the_commonest_error_is_told_with_what_to_do(tmp_path, caplog):
    errors = ["no", "too long", "", "too long"]
    jsonl.write(tmp_path / "a.jsonl", ({"question_id": f"q{n}", "error": error} for n, error in enumerate(errors)))
    jsonl.write(tmp_path / "b.jsonl", [{"question_id": "q0", "traces": [{"error": ""}, {"error": ""}]}])
    for name in ("a", "b", "absent"):
        tell_errors(tmp_path / f"{name}.jsonl", QUESTIONS)
    (told,) = [record.message for record in caplog.records]
    assert told.startswith("3 of 6 questions ended in an error, 2 in this one: too long. To repeat them, run")
    assert told.endswith("with --retry_errors")


@dataclass
class Line:
    question_id: str


def test_reading_a_journal_leaves_it_as_it_is_since_another_process_may_be_writing(tmp_path):
    journal = tmp_path / "traces.jsonl"
    text = '{"question_id": "q0"}\n{"question_id": "q1", "ste'
    journal.write_text(text)
    assert remaining(journal, QUESTIONS) == 5
    assert list(finished(journal, QUESTIONS)) == [{"question_id": "q0"}]
    check_journal(journal, Line)
    assert journal.read_text() == text
