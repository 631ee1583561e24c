"""Two looks: a note, one further search for what it lacks, a second note, the answer."""

from notewriter import Method, Rollout, Stage

NOTE = Stage("two_looks/note", "notes", "note")
QUERY = Stage("two_looks/query", "query", "query")
ANSWER = Stage("two_looks/answer", "answer", "answer")


async def two_looks(question: str, rollout: Rollout, *, top_k: int = 5, answer_style: str = "short") -> str:
    """Search twice, the second time for what the first note lacks.

    Args:
        question: the question to answer.
        rollout: the rollout to run in.
        top_k: passages per search.
        answer_style: `short`, `list`, `long` or `yes_no`.
    """
    passages = await rollout.retrieve(question, top_k)
    note = await rollout.generate(NOTE, question=question, passages=passages)
    query = await rollout.generate(QUERY, question=question, note=note)
    passages += await rollout.retrieve(query, top_k)
    note = await rollout.generate(NOTE, question=question, passages=passages)
    rollout.keep_note(note)
    return await rollout.generate(ANSWER, question=question, note=note, answer_style=answer_style)


METHOD = Method(two_looks, (NOTE, QUERY, ANSWER))
