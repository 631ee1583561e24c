"""Self-RAG as LangGraph's prompted graph: a model grades its passages and its answer, and rewrites the question."""

from typing import Any

from notewriter.ground.records import Passage
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_verdict
from notewriter.rollouts.rollout import Rollout

GRADE = Stage("langchain_self_rag/grade", "judge", rehearsal="yes.")
ANSWER = Stage("langchain_self_rag/answer", "answer", "answer")
GRADE_SUPPORT = Stage("langchain_self_rag/grade_support", "judge", rehearsal="yes.")
GRADE_USEFULNESS = Stage("langchain_self_rag/grade_usefulness", "judge", rehearsal="no.")
REWRITE = Stage("langchain_self_rag/rewrite", "query")


async def langchain_self_rag(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 25, answer_style: str = "short"
) -> str:
    """Self-RAG by prompts, for any chat model (Asai et al. 2024, as DeepNote runs it via LangChain, appendix C.1).

    LangGraph's published graph: retrieve; grade each passage's relevance and keep the relevant ones; answer from them;
    grade whether they support the answer, or else answer again; grade whether the answer resolves the question. Without
    a relevant passage, or with an answer that is not useful, the question is rewritten, takes the place of the former
    one and is searched. A grade that is neither yes nor no counts as no (`unreadable_grades`).

    The graph has no limit of its own. LangGraph ends one in an error after 25 steps (its default of 2024); here the
    last answer then stands, or one is written from the last passages found. Counts `steps` and `unfinished`. DeepNote
    names the framework alone: top-k is that of its other baselines.

    Args:
        rollout: the rollout to run in; `judge` grades, `query` rewrites, `answer` answers.
        top_k: passages per search (DeepNote: 5).
        max_step: maximum number of steps; retrieving, grading the passages, answering and rewriting are one each.
    """

    async def grade(stage: Stage, **variables: Any) -> bool:
        word = parse_verdict(await rollout.generate(stage, **variables), ("yes", "no"))
        if word is None:
            rollout.count("unreadable_grades")
        return word == "yes"

    async def write() -> str:
        return await rollout.generate(
            ANSWER, sample=drafts, question=query, passages=passages, answer_style=answer_style
        )

    query, answer, drafts, step = question, "", 0, "retrieve"
    passages: list[Passage] = []
    for _ in range(max_step):
        rollout.count("steps")
        if step == "retrieve":
            passages = await rollout.retrieve(query, top_k)
            step = "grade"
        elif step == "grade":
            passages = [each for each in passages if await grade(GRADE, question=query, passages=[each])]
            step = "answer" if passages else "rewrite"
        elif step == "answer":
            answer, drafts = await write(), drafts + 1
            if await grade(GRADE_SUPPORT, passages=passages, answer=answer):
                if await grade(GRADE_USEFULNESS, question=query, answer=answer):
                    return answer
                step = "rewrite"
        else:
            query = await rollout.generate(REWRITE, question=query)
            step = "retrieve"
    rollout.count("unfinished")
    return answer or await write()


METHOD = Method(langchain_self_rag, (GRADE, ANSWER, GRADE_SUPPORT, GRADE_USEFULNESS, REWRITE))
