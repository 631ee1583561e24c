"""Chain-of-Note: a reading note on every passage, then the answer."""

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

TAKE_NOTES = Stage("chain_of_note/take_notes", "notes", "note")
ANSWER = Stage("chain_of_note/answer", "answer", "answer")


async def chain_of_note(question: str, rollout: Rollout, *, top_k: int = 5, answer_style: str = "short") -> str:
    """Read the passages in sequence, note how relevant each one is, and answer (Yu et al. 2023, section 3).

    A note says whether its passage answers the question, helps to infer the answer, or is irrelevant (the paper's
    three types). All notes are one completion, so that each is conditioned on the earlier ones, as in the paper's
    factorisation p(notes | question, passages) p(answer | question, passages, notes). The answer is a separate
    completion, so that another model can write it.

    Args:
        top_k: passages to read (the paper's experiments: 5).
    """
    rollout.keep_note("")
    passages = await rollout.retrieve(question, top_k)
    notes = await rollout.generate(TAKE_NOTES, question=question, passages=passages)
    rollout.keep_note(notes)
    return await rollout.generate(ANSWER, question=question, passages=passages, notes=notes, answer_style=answer_style)


METHOD = Method(chain_of_note, (TAKE_NOTES, ANSWER))
