"""What a question cost: by stage and role, in words, in money."""

import asyncio
from dataclasses import asdict, replace

import pytest

from eval.accounting import account, fewer_searches, gold_documents, supporting_recall, totals
from notewriter.artifacts.traces import Generation, Retrieval, Trace
from notewriter.records import Completion, Passage, Question, Sampling
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

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
    return Trace("q", "m", steps, note="five words of a note", counts={"invalid_actions": 3}).to_dict()


def predicted(trace):
    return [account(trace, QUESTION)]


def test_calls_and_tokens_are_summed_by_stage_and_role(trace):
    assert totals([trace], predicted(trace), {})["stages"]["m/note (notes)"] == {
        "calls": 2,
        "prompt_tokens": 200,
        "cached_tokens": 80,
        "completion_tokens": 15,
        "seconds": 1.0,
    }
    costs = account(trace, QUESTION)
    assert (costs["calls"], costs["retrievals"], costs["completion_tokens"]) == (3, 2, 17)


def test_words_are_counted_where_they_were_found_and_in_the_note_that_was_answered_from(trace):
    costs = account(trace, QUESTION)
    assert (costs["words_retrieved"], costs["words_answered_from"]) == (80, 5)
    assert account(Trace("q", "m").to_dict(), QUESTION)["words_answered_from"] == 0


def test_without_a_note_the_passages_in_the_last_prompt_count_and_the_instructions_do_not(trace):
    prompt = "Answer in a few words.\n\n[1] A\nAna is old.\n\nQuestion: Who?"
    steps = [*trace["steps"][:1], asdict(call("vanilla/answer", "answer", prompt, 2))]
    # "[1] A Ana is old."
    assert account(trace | {"note": None, "steps": steps}, QUESTION)["words_answered_from"] == 5


def test_a_ranking_after_the_answer_does_not_change_what_was_answered_from(trace):
    ranking = asdict(call("sure/rank", "judge", "which of these two summaries is the better one", 1))
    assert account(trace | {"steps": [*trace["steps"], ranking]}, QUESTION)["words_answered_from"] == 5


def test_supporting_recall_looks_at_every_retrieval(trace):
    question = Question("q", "Who?", ("A",), supporting_ids=("c", "z"))
    assert supporting_recall(trace, question) == {"supporting_recall": 0.5}
    assert supporting_recall(trace, QUESTION) == {}
    assert supporting_recall(Trace("q", "direct").to_dict(), question) == {}
    # A gold whose text the benchmark's file leaves out is known by its title.
    assert supporting_recall(trace, replace(question, supporting_ids=("B", "Z"))) == {"supporting_recall": 0.5}
    nothing = Trace("q", "m", [Retrieval("xyzzy", 2, [], 0.1)]).to_dict()
    assert supporting_recall(nothing, question) == {"supporting_recall": 0.0}


def test_a_method_that_retrieves_and_came_to_no_search_has_found_nothing():
    question = Question("q", "Who?", ("A",), supporting_ids=("c",))
    refused = Trace("q", "deepnote", error="the prompt is too long").to_dict()
    assert supporting_recall(refused, question) == {"supporting_recall": 0.0}


@pytest.mark.parametrize("page", ["Ana (1990 film)", "https://en.wikipedia.org/wiki/Ana_%281990_film%29#Plot"])
def test_pages_that_a_question_needs_are_found_by_their_titles(page):
    question = Question("q", "Who?", ("A",), metadata={"pages": [page, "Bo", page]})
    steps = [Retrieval("who", 2, [{"id": "7", "title": "Ana (1990 film)"}, {"id": "8", "title": "Cy"}], 0.1)]
    assert supporting_recall(Trace("q", "m", steps).to_dict(), question) == {"supporting_recall": 0.5}


def test_facts_are_found_where_they_stand_in_a_passage_however_its_lines_are_broken():
    class Index:
        def search(self, query, top_k):
            return [Passage("7", "Race", "On Monday\nAna  won. Bo lost.")]

    question = Question("q", "Who?", ("A",), supporting_facts=("Monday Ana won.", "Cy was third.", "Bo lost."))
    rollout = Rollout(question, "vanilla", Resources({}, Prompts(), Index()))
    asyncio.run(rollout.retrieve("who won", 1))
    asyncio.run(rollout.retrieve("who lost", 1))
    trace = rollout.trace.to_dict()
    assert supporting_recall(trace, question) == {"supporting_recall": 2 / 3}
    # A trace of an earlier version does not tell which facts were found.
    del trace["steps"][0]["facts"]
    assert supporting_recall(trace, question) == {}


def test_totals_hold_money_compression_and_what_methods_counted(trace):
    summed = totals([trace] * 2, predicted(trace) * 2, {"notes": [10.0, 100.0], "judge": [1.0, 1.0]})
    assert summed["stages"]["m/answer (answer)"]["calls"] == 2
    assert summed["counts"] == {"invalid_actions": 6}
    assert summed["compression"] == 80 / 5
    # 400 prompt and 30 completion tokens of the note-taker.
    assert summed["money"] == pytest.approx((400 * 10 + 30 * 100) / 1e6)
    assert "money" not in totals([trace], predicted(trace), {})


def test_without_retrieval_there_is_no_compression():
    trace = Trace("q", "direct", [call("direct/answer", "answer", "answer", 1)]).to_dict()
    assert totals([trace], predicted(trace), {})["compression"] is None


def test_gold_documents_are_passages_or_pages_or_hops():
    assert gold_documents(Question("q", "Who?", ("A",), supporting_ids=("a", "b"), metadata={"hops": 4})) == 2
    assert gold_documents(Question("q", "Who?", ("A",), metadata={"pages": ["a", "b", "c"]})) == 3
    assert gold_documents(Question("q", "Who?", ("A",), metadata={"hops": 4, "pages": "12"})) == 4
    assert gold_documents(Question("q", "Who?", ("A",))) == 0


def test_right_answers_are_counted_that_took_fewer_searches_than_gold_documents():
    def answered(retrievals: int, gold: int, **scores: float) -> dict:
        return {"retrievals": retrievals, "gold_documents": gold, "scores": scores}

    predictions = [
        answered(1, 2, em=1.0),
        answered(2, 2, em=1.0),
        answered(1, 2, em=0.0),
        # The judge knows better than the exact match.
        answered(1, 2, em=0.0, judged_accuracy=1.0),
        answered(1, 2, em=1.0, judged_accuracy=0.0),
        answered(1, 0, em=1.0),
    ]
    assert fewer_searches(predictions) == {"fewer_searches": {"right": 3, "fewer": 2}}
    assert fewer_searches([answered(0, 2, em=1.0)]) == fewer_searches([]) == {}
