"""What was retrieved of the gold evidence."""

import asyncio
from dataclasses import replace

import pytest

from notewriter.artifacts.traces import Retrieval, Trace
from notewriter.evaluation.evidence import gold_documents, supporting_recall
from notewriter.ground.records import Passage, Question
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

QUESTION = Question("q", "Who?", ("A",))


def test_supporting_recall_looks_at_every_retrieval():
    steps = [
        Retrieval("who", 2, [{"id": "a", "title": "A"}, {"id": "b", "title": "B"}], 0.1, 60),
        Retrieval("where", 1, [{"id": "c", "title": "C"}], 0.1, 20),
    ]
    trace = Trace("q", "m", steps)
    question = replace(QUESTION, supporting_ids=("c", "z"))
    assert supporting_recall(trace, question) == {"supporting_recall": 0.5}
    assert supporting_recall(trace, QUESTION) == {}
    assert supporting_recall(Trace("q", "direct", retrieves=False), question) == {}
    # A gold whose text the benchmark's file leaves out is known by its title.
    assert supporting_recall(trace, replace(question, supporting_ids=("B", "Z"))) == {"supporting_recall": 0.5}
    nothing = Trace("q", "m", [Retrieval("xyzzy", 2, [], 0.1)])
    assert supporting_recall(nothing, question) == {"supporting_recall": 0.0}


def test_a_method_that_retrieves_and_came_to_no_search_has_found_nothing():
    question = replace(QUESTION, supporting_ids=("c",))
    refused = Trace("q", "deepnote", error="the prompt is too long", retrieves=True)
    assert supporting_recall(refused, question) == {"supporting_recall": 0.0}


@pytest.mark.parametrize("page", ["Ana (1990 film)", "https://en.wikipedia.org/wiki/Ana_%281990_film%29#Plot"])
def test_pages_that_a_question_needs_are_found_by_their_titles(page):
    question = replace(QUESTION, metadata={"pages": [page, "Bo", page]})
    steps = [Retrieval("who", 2, [{"id": "7", "title": "Ana (1990 film)"}, {"id": "8", "title": "Cy"}], 0.1)]
    assert supporting_recall(Trace("q", "m", steps), question) == {"supporting_recall": 0.5}


def test_facts_are_found_where_they_occur_in_a_passage_however_its_lines_are_broken():
    class Index:
        def search(self, query, top_k):
            return [Passage("7", "Race", "On Monday\nAna  won. Bo lost.")]

    question = replace(QUESTION, supporting_facts=("Monday Ana won.", "Cy was third.", "Bo lost."))
    rollout = Rollout(question, "vanilla", Resources({}, Prompts(), Index()))
    asyncio.run(rollout.retrieve("who won", 1))
    asyncio.run(rollout.retrieve("who lost", 1))
    assert supporting_recall(rollout.trace, question) == {"supporting_recall": 2 / 3}
    # A trace of an earlier version does not say which facts were found.
    record = rollout.trace.to_dict()
    del record["steps"][0]["facts"]
    assert supporting_recall(Trace.from_dict(record), question) == {}


def test_gold_documents_are_passages_or_pages_or_hops():
    assert gold_documents(replace(QUESTION, supporting_ids=("a", "b"), metadata={"hops": 4})) == 2
    assert gold_documents(replace(QUESTION, metadata={"pages": ["a", "b", "c"]})) == 3
    # A page that is listed twice is one document.
    pages = ["https://en.wikipedia.org/wiki/Old_Town", "Old Town"]
    assert gold_documents(replace(QUESTION, metadata={"pages": pages})) == 1
    assert gold_documents(replace(QUESTION, metadata={"hops": 4, "pages": "12"})) == 4
    assert gold_documents(QUESTION) == 0
