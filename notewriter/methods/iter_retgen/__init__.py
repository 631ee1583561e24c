"""Iter-RetGen: what was generated is the next query, and what is found then makes the next generation better."""

from notewriter.method import Method, Stage
from notewriter.rollouts.parsing import parse_answer
from notewriter.rollouts.rollout import Rollout

REASON = Stage("iter_retgen/reason", "answer")


async def iter_retgen(
    question: str, rollout: Rollout, *, top_k: int = 5, iterations: int = 2, answer_style: str = "short"
) -> str:
    """Retrieve and reason to an answer, again and again, each time from scratch (Shao et al. 2023, section 3).

    Every iteration retrieves with the last response and the question, and writes a new chain of thought that ends in
    an answer from those passages alone. The answer of the last one counts.

    Args:
        question: the question to answer.
        rollout: where it runs.
        top_k: passages a retrieval (the paper: 5).
        iterations: T, rounds of retrieval and generation (the paper studies 1 to 7; most of the gain is
            there at 2).
        answer_style: `short`, `long` or `yes_no`.
    """
    response = ""
    for _ in range(iterations):
        passages = await rollout.retrieve(f"{response} {question}".strip(), top_k)
        response = await rollout.generate(REASON, question=question, passages=passages, answer_style=answer_style)
    return parse_answer(response) or response


METHOD = Method(iter_retgen, (REASON,))
