"""In-context: the corpus itself in the prompt, as far as it fits."""

from notewriter.method import Method, Stage
from notewriter.records import Passage
from notewriter.rollouts.rollout import Rollout

ANSWER = Stage("in_context/answer", "answer", "answer")


async def in_context(
    question: str, rollout: Rollout, *, max_words: int = 40_000, top_k: int = 1000, answer_style: str = "short"
) -> str:
    """Answer from the whole corpus, in one prompt (the baseline "In-context" of ReaRAG's Table 1).

    A corpus seldom fits into a model's context. So the passages are ranked for the question, best first, and put
    into the prompt until the next one would exceed `max_words`. Where the corpus has no more than `max_words` words
    and `top_k` passages, it is in the prompt as a whole; but an index that looks for words (BM25) passes over the
    passages that share none with the question.

    Args:
        question: the question to answer.
        rollout: where it runs.
        max_words: words of titles and texts in the prompt at the most. 40,000 English words are some 53,000
            tokens: ReaRAG's corpora have 48,000 to 58,000 a question. Set it to what the model's
            context holds; a prompt beyond that is refused by its server, and the question has no answer.
        top_k: passages that are ranked; the prompt cannot hold more.
        answer_style: `short`, `long` or `yes_no`.
    """
    passages = _within(max_words, await rollout.retrieve(question, top_k))
    return await rollout.generate(ANSWER, question=question, passages=passages, answer_style=answer_style)


def _within(max_words: int, passages: list[Passage]) -> list[Passage]:
    """The first passages, up to the one that would exceed the budget."""
    kept, words = [], 0
    for passage in passages:
        words += len(passage.title.split()) + len(passage.text.split())
        if words > max_words:
            break
        kept.append(passage)
    return kept


METHOD = Method(in_context, (ANSWER,))
