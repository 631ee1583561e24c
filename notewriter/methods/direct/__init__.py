"""Direct answering: no retrieval."""

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

ANSWER = Stage("direct/answer", "answer", "answer")


async def direct(question: str, rollout: Rollout, *, answer_style: str = "short") -> str:
    """Answer from the model's own knowledge (the baseline "Direct" in the papers' tables)."""
    return await rollout.generate(ANSWER, question=question, answer_style=answer_style)


METHOD = Method(direct, (ANSWER,))
