"""DeepNote: adaptive retrieval extends a note, and the answer is written from the note."""

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_status
from notewriter.rollouts.rollout import Rollout

INIT_NOTE = Stage("deepnote/init_note", "notes", "note", calls=1)
REFINE_QUERY = Stage("deepnote/refine_query", "query", "query", calls="max_step")
ACCUMULATE_KNOWLEDGE = Stage("deepnote/accumulate_knowledge", "notes", "updated note", calls="max_step")
DECIDE = Stage("deepnote/decide", "judge", "status", calls="max_step")
ANSWER = Stage("deepnote/answer", "answer", "answer", calls=1)

QUERY_LENGTH = 500
"""Characters of a search: the new questions as one string, then the question, cut there (the authors' code)."""


async def deepnote(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    max_step: int = 3,
    max_failure: int = 2,
    max_passages: int = 0,
    adaptive_retrieval: bool = True,
    answer_style: str = "short",
) -> str:
    """Write a note, extend it while it improves, and answer from it (DeepNote, section 3).

    Counts `unreadable_decisions`.

    Args:
        top_k: passages per retrieval.
        max_step: maximum number of refinements.
        max_failure: refinements that may fail to improve the note before it stops.
        max_passages: stop refining once more distinct passages than this were seen; a search that might exceed it
            yields no passage that was seen before and of the others as many as are left, unless none is (the authors'
            code, with 15). 0, the default: no limit, as in the paper.
        adaptive_retrieval: False answers from the first note (Table 2, without adaptive retrieval).
        answer_style: `short`, `list` (FanOutQA), `long` (ASQA) or `yes_no` (StrategyQA).
    """
    rollout.keep_note("")
    seen: set[str] = set()
    passages = await rollout.retrieve(question, top_k)
    seen.update(passage.id for passage in passages)
    best_note = await rollout.generate(INIT_NOTE, question=question, passages=passages)
    rollout.keep_note(best_note)

    queries: list[str] = []
    failures = 0
    for _ in range(max_step if adaptive_retrieval else 0):
        if max_passages and len(seen) > max_passages:
            break
        query = await rollout.generate(REFINE_QUERY, question=question, note=best_note, queries=queries)
        queries.append(query)
        passages = await rollout.retrieve(f"{query} {question}"[:QUERY_LENGTH], top_k)
        if len(seen) < max_passages < len(seen) + top_k:
            passages = [each for each in passages if each.id not in seen][: max_passages - len(seen)]
        seen.update(passage.id for passage in passages)
        new_note = await rollout.generate(ACCUMULATE_KNOWLEDGE, question=question, note=best_note, passages=passages)
        reply = await rollout.generate(DECIDE, question=question, best_note=best_note, new_note=new_note)
        better = parse_status(reply)
        # An unreadable reply is not True: the current note stays.
        if better is None:
            rollout.count("unreadable_decisions")
        if better:
            best_note = new_note
            rollout.keep_note(best_note)
        else:
            failures += 1
            if failures >= max_failure:
                break

    return await rollout.generate(ANSWER, question=question, note=best_note, answer_style=answer_style)


METHOD = Method(deepnote, (INIT_NOTE, REFINE_QUERY, ACCUMULATE_KNOWLEDGE, DECIDE, ANSWER))
