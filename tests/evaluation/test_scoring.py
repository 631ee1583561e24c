"""The way of a question: what its prediction says of its cost, and what the summary says of all."""

from dataclasses import replace

import pytest

from notewriter.artifacts.costs import Costs
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.traces import Generation, Retrieval, Trace
from notewriter.evaluation.accounting import run_costs
from notewriter.evaluation.catalogue import OF_RUNS
from notewriter.evaluation.scoring import fewer_searches, prediction_of, score_answers
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Question, Sampling

QUESTION = Question("q", "Who?", ("A",))


def call(stage: str, role: str, prompt: str, tokens: int) -> Generation:
    messages = [{"role": "user", "content": prompt}]
    return Generation(stage, role, messages, Sampling(), Completion("text", "stop", 100, tokens, 40, 0.5))


@pytest.fixture
def trace():
    steps = [
        Retrieval("who", 2, [{"id": "a", "title": "A"}, {"id": "b", "title": "B"}], 0.1, 60),
        call("m/note", "notes", "take notes of it", 7),
        Retrieval("where", 1, [{"id": "c", "title": "C"}], 0.1, 20),
        call("m/note", "notes", "take notes of that", 8),
        call("m/answer", "answer", "answer from these eight words of notes", 2),
    ]
    return Trace("q", "m", steps, note="five words of a note", counts={"invalid_actions": 3})


def predicted(trace: Trace) -> Prediction:
    return prediction_of(QUESTION, trace, "hotpotqa")


def test_calls_and_tokens_are_summed_by_stage_and_role(trace):
    sums = run_costs([trace], [predicted(trace)], {}).stages["m/note (notes)"]
    assert (sums.calls, sums.prompt_tokens, sums.cached_tokens, sums.completion_tokens) == (2, 200, 80, 15)
    assert sums.seconds == 1.0
    prediction = predicted(trace)
    assert (prediction.calls, prediction.retrievals, prediction.completion_tokens) == (3, 2, 17)


def test_calls_at_the_same_time_take_their_time_once_and_what_lies_between_them_is_left_out(trace):
    """Two notes of half a second, one begun 0.2 s after the other, and an answer ten seconds later."""

    def costs(*ends: float) -> Costs:
        calls = iter(ends)
        steps = [
            replace(step, completion=replace(step.completion, ended=next(calls)))
            if isinstance(step, Generation)
            else step
            for step in trace.steps
        ]
        return run_costs([replace(trace, steps=steps)], [predicted(trace)], {})

    known = costs(100.5, 100.7, 110.7)
    assert known.stages["m/note (notes)"].wall_seconds == pytest.approx(0.7)
    assert known.wall_seconds == known.total.wall_seconds == pytest.approx(1.2)
    # The reply of a cache in which ends were not recorded.
    unknown = costs(100.5, 0.0, 110.7)
    assert unknown.stages["m/note (notes)"].wall_seconds is unknown.wall_seconds is None
    assert unknown.stages["m/answer (answer)"].wall_seconds == pytest.approx(0.5)


def test_words_are_counted_where_they_were_found_and_in_the_note_that_was_answered_from(trace):
    assert (predicted(trace).words_retrieved, predicted(trace).words_answered_from) == (80, 5)
    assert predicted(Trace("q", "m")).words_answered_from == 0


def test_without_a_note_the_passages_in_the_last_prompt_count_and_the_instructions_do_not(trace):
    prompt = "Answer in a few words.\n\n[1] A\nAna is old.\n\nQuestion: Who?"
    trace.steps = [*trace.steps[:1], call("vanilla/answer", "answer", prompt, 2)]
    trace.note = None
    # "[1] A Ana is old."
    assert predicted(trace).words_answered_from == 5


def test_a_ranking_after_the_answer_does_not_change_what_was_answered_from(trace):
    trace.steps.append(call("sure/rank", "judge", "which of these two summaries is the better one", 1))
    assert predicted(trace).words_answered_from == 5


def test_costs_contain_money_compression_and_what_methods_counted(trace):
    costs = run_costs([trace] * 2, [predicted(trace)] * 2, {"notes": [10.0, 100.0], "judge": [1.0, 1.0]})
    assert costs.stages["m/answer (answer)"].calls == 2
    assert costs.counts == {"invalid_actions": 6}
    assert costs.compression == 80 / 5
    # 400 prompt and 30 completion tokens of the note-taker.
    assert costs.money == pytest.approx((400 * 10 + 30 * 100) / 1e6)
    assert "money" not in run_costs([trace], [predicted(trace)], {}).to_dict()


def test_without_retrieval_there_is_no_compression():
    trace = Trace("q", "direct", [call("direct/answer", "answer", "answer", 1)])
    assert run_costs([trace], [predicted(trace)], {}).compression is None


def test_right_answers_are_counted_that_took_fewer_searches_than_gold_documents():
    def answered(retrievals: int, gold: int, **scores: float) -> Prediction:
        return replace(predicted(Trace("q", "m")), retrievals=retrievals, gold_documents=gold, scores=scores)

    predictions = [
        answered(1, 2, em=1.0),
        answered(2, 2, em=1.0),
        answered(1, 2, em=0.0),
        # The judge knows better than the exact match.
        answered(1, 2, em=0.0, judged_accuracy=1.0),
        answered(1, 2, em=1.0, judged_accuracy=0.0),
        answered(1, 0, em=1.0),
    ]
    assert fewer_searches(predictions) == {"right": 3, "fewer": 2}
    assert fewer_searches([answered(0, 2, em=1.0)]) is None
    assert fewer_searches([]) is None


def test_answers_of_any_origin_are_scored_by_a_benchmark(tmp_path):
    questions = [Question("a", "Who?", ("Ann Lee",)), Question("b", "Where?", ("Rome",)), Question("c", "?", ("x",))]
    metrics = score_answers({"a": "Ann Lee", "b": "in Rome"}, questions, "hotpotqa")
    assert (metrics.questions, metrics.family) == (3, "hotpotqa")
    assert metrics.metrics["em"].mean == pytest.approx(1 / 3)
    assert metrics.metrics["f1"].mean == pytest.approx((1 + 2 / 3) / 3)
    with pytest.raises(UserError, match="unknown metric family 'rouge'"):
        score_answers({}, questions, "rouge")
    with pytest.raises(UserError, match="there are none"):
        score_answers({}, [], "hotpotqa")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"q": "A", "5ab": "Rome", "5aa": "Oslo"}, "answers: 2 of 3 belong to none of the questions, such as '5aa'"),
        ({7: "A"}, "answers.*must be str, not 7"),
        ({"q": None}, "answers.*must be str, not None"),
    ],
)
def test_answers_to_other_questions_and_answers_that_are_no_text_are_refused(answers, said):
    """Their scores would be those of empty answers."""
    with pytest.raises(UserError, match=said):
        score_answers(answers, [QUESTION], "hotpotqa")


def test_an_error_is_not_the_best_value_of_a_score_of_which_less_is_better(tmp_path):
    (tmp_path / "lengths.py").write_text(
        "from notewriter.evaluation.metrics.metric import Family, Metric\n"
        "def score(prediction, question): return {'letters': len(prediction)}\n"
        "FAMILY = Family(score, (Metric('letters', 'Letters', '', better='lower', share=False),))\n"
    )
    plugins.load(place := f"{tmp_path / 'lengths.py'}:FAMILY")
    question = Question("a", "Who?", ("Ann",))
    assert prediction_of(question, Trace("a", "m", answer="Ann Lee"), place).scores == {"letters": 7}
    assert prediction_of(question, Trace("a", "m", error="too long"), place).scores == {}


def test_nor_is_it_of_such_a_score_of_notes(monkeypatch):
    monkeypatch.setitem(OF_RUNS, "note_words", replace(OF_RUNS["note_words"], better="lower"))
    trace = Trace("q", "m", note="Ann Lee", error="too long")
    assert predicted(trace).scores == {"em": 0, "f1": 0}
