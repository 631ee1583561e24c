"""What a question cost: by stage and role, in words, in money."""

import pytest

from eval.accounting import account, fewer_searches, gold_documents, supporting_recall, totals
from notewriter.records import Completion, Generation, Question, Retrieval, Sampling, Trace


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
    return Trace("q", "m", steps, counts={"invalid_actions": 3}).to_dict()


def test_calls_and_tokens_are_summed_by_stage_and_role(trace):
    assert totals([trace], {})["stages"]["m/note (notes)"] == {
        "calls": 2,
        "prompt_tokens": 200,
        "cached_tokens": 80,
        "completion_tokens": 15,
        "seconds": 1.0,
    }
    costs = account(trace)
    assert (costs["calls"], costs["retrievals"], costs["completion_tokens"]) == (3, 2, 17)


def test_words_are_counted_where_they_were_found_and_in_the_prompt_of_the_answer(trace):
    costs = account(trace)
    assert (costs["words_retrieved"], costs["words_answered_from"]) == (80, 7)
    assert account(Trace("q", "m").to_dict())["words_answered_from"] == 0


def test_supporting_recall_looks_at_every_retrieval(trace):
    question = Question("q", "Who?", ("A",), supporting_ids=("c", "z"))
    assert supporting_recall(trace, question) == {"supporting_recall": 0.5}
    assert supporting_recall(trace, Question("q", "Who?", ("A",))) == {}
    assert supporting_recall(Trace("q", "m").to_dict(), question) == {}
    nothing = Trace("q", "m", [Retrieval("xyzzy", 2, [], 0.1)]).to_dict()
    assert supporting_recall(nothing, question) == {"supporting_recall": 0.0}


def test_totals_hold_money_compression_and_what_methods_counted(trace):
    summed = totals([trace] * 2, {"notes": [10.0, 100.0], "judge": [1.0, 1.0]})
    assert summed["stages"]["m/answer (answer)"]["calls"] == 2
    assert summed["counts"] == {"invalid_actions": 6}
    assert summed["compression"] == round(80 / 7, 3)
    # 400 prompt and 30 completion tokens of the note-taker.
    assert summed["money"] == pytest.approx((400 * 10 + 30 * 100) / 1e6)
    assert "money" not in totals([trace], {})


def test_without_retrieval_there_is_no_compression():
    trace = Trace("q", "direct", [call("direct/answer", "answer", "answer", 1)]).to_dict()
    assert totals([trace], {})["compression"] is None


def test_gold_documents_are_passages_or_pages_or_hops():
    assert gold_documents(Question("q", "Who?", ("A",), supporting_ids=("a", "b"), metadata={"hops": 4})) == 2
    assert gold_documents(Question("q", "Who?", ("A",), metadata={"pages": ["a", "b", "c"]})) == 3
    assert gold_documents(Question("q", "Who?", ("A",), metadata={"hops": 4, "pages": "12"})) == 4
    assert gold_documents(Question("q", "Who?", ("A",))) == 0


def test_right_answers_are_counted_that_took_fewer_searches_than_gold_documents():
    def predicted(retrievals: int, gold: int, **scores: float) -> dict:
        return {"retrievals": retrievals, "gold_documents": gold, "scores": scores}

    predictions = [
        predicted(1, 2, em=1.0),
        predicted(2, 2, em=1.0),
        predicted(1, 2, em=0.0),
        # The judge knows better than the exact match.
        predicted(1, 2, em=0.0, judged_accuracy=1.0),
        predicted(1, 2, em=1.0, judged_accuracy=0.0),
        predicted(1, 0, em=1.0),
    ]
    assert fewer_searches(predictions) == {"fewer_searches": {"right": 3, "fewer": 2}}
    assert fewer_searches([predicted(0, 2, em=1.0)]) == fewer_searches([]) == {}
