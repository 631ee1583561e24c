"""In-context: as much of the corpus as fits in the prompt."""

from notewriter.ground.records import Passage
from notewriter.ground.text import words_in
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

ANSWER = Stage("in_context/answer", "answer", "answer")


async def in_context(
    question: str, rollout: Rollout, *, max_words: int = 40_000, top_k: int = 1000, answer_style: str = "short"
) -> str:
    """Answer from the whole corpus in one prompt (the baseline "In-context" of ReaRAG's Table 1).

    A corpus rarely fits in a model's context. The passages are therefore added to the prompt as the retriever returns
    them until the next one would exceed `max_words`: ranked for the question, or in the order of the corpus from the
    retriever's part `documents`, as in the paper. A corpus of at most `max_words` words and `top_k` passages is
    included completely, except that BM25 never returns passages that share no word with the question.

    Args:
        max_words: maximum words of titles and texts in the prompt. 40,000 English words are about 53,000 tokens;
            ReaRAG's corpora have 48,000 to 58,000 per question. Set it according to the model's context: a server
            rejects longer prompts, and the question has no answer.
        top_k: maximum number of passages.
    """
    passages = _within(max_words, await rollout.retrieve(question, top_k))
    return await rollout.generate(ANSWER, question=question, passages=passages, answer_style=answer_style)


def _within(max_words: int, passages: list[Passage]) -> list[Passage]:
    """The first passages whose total length stays within the budget."""
    kept, words = [], 0
    for passage in passages:
        words += len(words_in(passage.title)) + len(words_in(passage.text))
        if words > max_words:
            break
        kept.append(passage)
    return kept


METHOD = Method(in_context, (ANSWER,))
