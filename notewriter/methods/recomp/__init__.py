"""RECOMP: compress the retrieved passages into a summary, which may be empty, and answer from it alone."""

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import is_nothing
from notewriter.rollouts.rollout import Rollout

COMPRESS = Stage("recomp/compress", "notes", "note", calls=1)
ANSWER = Stage("recomp/answer", "answer", "answer", calls=1)


async def recomp(question: str, rollout: Rollout, *, top_k: int = 5, answer_style: str = "short") -> str:
    """Summarize the passages for the question and prepend the summary to it (Xu et al. 2023, section 3.2).

    The abstractive compressor. An empty summary prepends nothing, so that the answer comes from the model's own
    knowledge (the paper's selective augmentation); counted as `empty_summaries`. The paper trains T5-large for it,
    which chat servers do not serve: here any model in the role `notes` compresses, trained or not. Since chat models
    rarely reply with nothing at all, the word "nothing" stands for it.

    The extractive compressor (section 3.1) needs no method of its own: it is the part `extract` of a retriever, in
    front of `vanilla` (`notewriter.retrieval.steps.extract`).

    Args:
        rollout: the rollout to run in; `notes` compresses, `answer` answers.
        top_k: passages to compress (the paper, question answering: 5).
    """
    rollout.keep_note("")
    passages = await rollout.retrieve(question, top_k)
    reply = await rollout.generate(COMPRESS, question=question, passages=passages)
    summary = "" if is_nothing(reply) else reply
    if not summary:
        rollout.count("empty_summaries")
    rollout.keep_note(summary)
    return await rollout.generate(ANSWER, question=question, note=summary, answer_style=answer_style)


METHOD = Method(recomp, (COMPRESS, ANSWER))
