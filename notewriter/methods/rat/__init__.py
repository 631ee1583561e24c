"""RAT: draft a chain of thought, then revise it step by step with retrieved passages."""

import re

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

DRAFT = Stage("rat/draft")
QUERY = Stage("rat/query", "query", "query")
REVISE = Stage("rat/revise")
ANSWER = Stage("rat/answer", "answer", "answer")


async def rat(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 3, answer_style: str = "short"
) -> str:
    """Draft a chain of thought without retrieval and revise it step by step (Wang et al. 2024, Algorithm 1).

    Step i of the draft is appended to the thoughts revised so far, a query is written for them, and the passages found
    are used to revise all of them. The paper's tasks end with the revised thoughts; here one more completion extracts
    the answer.

    Args:
        top_k: passages per step (DeepNote's comparison, Table 1: 5).
        max_step: maximum number of draft steps; further ones are merged into the last (the authors' code asks for
            fewer than four).
    """
    rollout.keep_note("")
    draft = await rollout.generate(DRAFT, question=question)
    thoughts = ""
    for step in _steps(draft, max_step):
        thoughts = f"{thoughts}\n\n{step}".strip()
        query = await rollout.generate(QUERY, question=question, thoughts=thoughts)
        passages = await rollout.retrieve(query, top_k)
        revised = await rollout.generate(REVISE, question=question, passages=passages, thoughts=thoughts)
        # An empty revision leaves the thoughts unchanged.
        thoughts = revised or thoughts
    rollout.keep_note(thoughts)
    return await rollout.generate(ANSWER, question=question, thoughts=thoughts, answer_style=answer_style)


def _steps(draft: str, most: int) -> list[str]:
    """The draft's paragraphs, or its lines if it is a single paragraph; at most `most`, the last one with the rest."""
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", draft) if part.strip()]
    steps = paragraphs if len(paragraphs) > 1 else [line.strip() for line in draft.splitlines() if line.strip()]
    return [*steps[: most - 1], "\n\n".join(steps[most - 1 :])] if len(steps) > most else steps


METHOD = Method(rat, (DRAFT, QUERY, REVISE, ANSWER))
