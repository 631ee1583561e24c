"""Direct answering: the question alone, no retrieval."""

from notewriter.rollout import Rollout


async def direct(question: str, rollout: Rollout, *, answer_style: str = "short") -> str:
    """Answer from the model's own knowledge (the baseline "Direct" of the papers' tables)."""
    return await rollout.generate("direct/answer", role="answer", question=question, answer_style=answer_style)
