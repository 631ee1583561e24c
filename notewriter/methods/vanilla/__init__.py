"""Vanilla RAG: retrieve once, answer from the passages."""

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

ANSWER = Stage("vanilla/answer", "answer", "answer")


async def vanilla(question: str, rollout: Rollout, *, top_k: int = 5, answer_style: str = "short") -> str:
    """Answer from the `top_k` best passages for the question (DeepNote's Vanilla RAG, section 4.2)."""
    passages = await rollout.retrieve(question, top_k)
    return await rollout.generate(ANSWER, question=question, passages=passages, answer_style=answer_style)


METHOD = Method(vanilla, (ANSWER,))
