"""Iter-RetGen: each generation is the query for the retrieval that improves the next one."""

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_answer
from notewriter.rollouts.rollout import Rollout

REASON = Stage("iter_retgen/reason", "answer")
ANSWER = Stage("iter_retgen/answer", "answer", "answer")


async def iter_retgen(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    iterations: int = 2,
    reasoning: bool = True,
    answer_style: str = "short",
) -> str:
    """Alternate retrieval and reasoning, each time from scratch (Shao et al. 2023, section 3).

    Every iteration retrieves with the last response and the question and writes a new chain of thought, ending in an
    answer, from those passages alone. The last iteration's answer is returned.

    Args:
        top_k: passages per retrieval (the paper: 5).
        iterations: T, rounds of retrieval and generation (the paper studies 1 to 7; 2 give most of the gain).
        reasoning: False answers directly in every iteration, without a chain of thought (FlashRAG, in 3 iterations).
    """
    stage = REASON if reasoning else ANSWER
    response = ""
    for _ in range(iterations):
        passages = await rollout.retrieve(f"{response} {question}".strip(), top_k)
        response = await rollout.generate(stage, question=question, passages=passages, answer_style=answer_style)
    return parse_answer(response) or response


METHOD = Method(iter_retgen, (REASON, ANSWER))
