"""The time left is known from the calls, long before the first of hundreds of questions is done."""

import asyncio
import json
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config, tiny_world

from notewriter.evaluation import evaluate
from notewriter.ground.records import Question
from notewriter.rollouts import forecast, runner
from notewriter.rollouts.forecast import seconds_left


def test_the_calls_that_are_missing_take_as_long_as_those_before():
    # Ten calls each by the rehearsal: two in flight miss five and eight, one has not begun.
    assert seconds_left([], [5, 2], 1, 0.5, 10) == (5 + 8 + 10) / 0.5
    # Questions that are done count, the rehearsal as much as five of them: (5 * 10 + 5 * 4) / 10 = 7.
    assert seconds_left([4] * 5, [2], 1, 1, 10) == 5 + 7
    assert seconds_left([4] * 5, [], 3, 2, None) == 6


def test_a_question_that_has_made_more_calls_than_expected_is_not_done_for_that():
    assert seconds_left([10], [25], 0, 1, None) == 1


@pytest.mark.parametrize(("finished", "rate", "expected"), [([], 1, None), ([3], 0, None), ([], 0, 3)])
def test_nothing_is_said_before_anything_is_known(finished, rate, expected):
    assert seconds_left(finished, [1], 1, rate, expected) is None


async def test_the_bar_says_a_time_while_all_questions_are_in_flight(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(forecast.Bar, "refresh", lambda bar, *_, **__: shown.append(bar.format_dict["left"]))
    monkeypatch.setattr(runner, "INTERVAL_IN_LOG", 0.05)
    client = SimpleNamespace(received=0, answered=0, replies=Counter())

    async def work(question):
        for _ in range(20):
            await asyncio.sleep(0.01)
            client.answered += 1
            client.replies[question.id] += 1
        return {"question_id": question.id}

    questions = [Question(str(number), "?", ("a",)) for number in range(8)]
    await runner.for_each_question(
        questions, work, tmp_path / "j.jsonl", concurrency=8, description="x", clients=[client], expected=20.0
    )
    # All end at the same time, so that none is done when these are shown.
    assert len(shown) > 2 and "?" not in shown[1:]
    assert all(re.fullmatch(r"00:0\d", each) for each in shown[1:])


def test_a_run_expects_the_calls_of_its_rehearsal_or_of_the_dry_run_in_its_folder(tmp_path, monkeypatch):
    expected = []

    async def noted(*arguments, **options):
        expected.append(options["expected"])
        await original(*arguments, **options)

    original = runner.for_each_question
    monkeypatch.setattr(runner, "for_each_question", noted)
    world = tiny_world(tmp_path / "world", 3)
    options = {"method_options": {"max_step": 2, "max_failure": 2}}
    with fake_endpoint() as endpoint:
        arguments = run_config(tmp_path, "run", world, endpoint, options)
        evaluate.main(arguments)
        # init_note; refine_query, accumulate_knowledge and decide, twice; answer.
        assert expected == [8]
        evaluate.main([*run_config(tmp_path, "dry", world, endpoint, options), "--dry_run", "true"])
        estimate = json.loads((tmp_path / "dry/estimate.json").read_text())
        estimate["tokens_in_all"]["calls"] = 30
        (tmp_path / "dry/estimate.json").write_text(json.dumps(estimate))
        evaluate.main(run_config(tmp_path, "dry", world, endpoint, options))
        assert expected == [8, 30 / estimate["questions"]]


def test_services_of_others_are_not_asked_for_a_rehearsal(tmp_path):
    async def work(question, resources):
        raise AssertionError("asked")

    def expects(*parts):
        return asyncio.run(forecast.expected_calls(work, [], None, parts, tmp_path))

    assert expects({"web": "http://localhost"}) is None
    assert expects({"index": "i"}, {"llm_rerank": {}}) is None
