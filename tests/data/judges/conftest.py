"""A case for a judge to decide."""

import random

import pytest
from judge_cases import BEFORE, QUESTION

from notewriter.data.judges.case import Case, Rules
from notewriter.ground.records import Passage
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources


@pytest.fixture
def make_case():
    """A case with these candidates; the judge's model replies what `reply(candidate texts)` says."""

    def make(candidates, *, reply=None, found=(), answers=(), cut=(), seed="0 q1", kind="note", **changes):
        asked = []

        async def ask(prompt, json_schema=None, sample=0, **variables):
            asked.append((prompt, variables))
            return reply(variables | {"sample": sample} if sample else variables)

        async def search(query, top_k):
            return [Passage(id, id, id) for id in dict(found).get(query, ())][:top_k]

        async def finish(candidate, number=0):
            answer = dict(answers)[candidate]
            return answer[number] if isinstance(answer, list) else answer

        async def next_query(candidate):
            return f"{candidate} {QUESTION.question}"

        case = Case(
            question=changes.pop("question", QUESTION),
            kind=kind,
            stage="deepnote/init_note",
            request="Write a note.",
            variables=changes.pop("variables", {"passages": [], "note": BEFORE}),
            options={"top_k": 2},
            seen=changes.pop("seen", {}),
            candidates=candidates,
            cut=[candidate in cut for candidate in candidates],
            ask=ask,
            reader=changes.pop("reader", Resources({}, Prompts())),
            search=search,
            finish=finish,
            next_query=next_query,
            random=random.Random(seed),
            rules=Rules(**changes),
        )
        return case, asked

    return make
