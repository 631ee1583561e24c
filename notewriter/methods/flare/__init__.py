"""FLARE: draft the next sentence and retrieve if the model is not confident in it."""

import math
from itertools import accumulate
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.ground.records import Passage
from notewriter.methods.notes_writing import take_notes
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import next_sentence, parse_answer
from notewriter.rollouts.rollout import Rollout

STEP = Stage("flare/step")
NOTE = Stage("flare/note", "notes", "document note")
ANSWER = Stage("flare/answer", "answer", "answer")

Probability = Annotated[float, Interval(ge=0, le=1)]


async def flare(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    max_step: int = 8,
    look_ahead: int = 64,
    theta: Probability = 0.8,
    beta: Probability = 0.4,
    first_search: bool = True,
    notes: bool = False,
    answer_style: str = "short",
) -> str:
    """Write sentence by sentence, retrieving for those with an improbable token (FLARE-direct, Jiang et al. 2023).

    The first sentence is written from passages for the question. Every other one is first drafted without passages.
    If all its tokens have at least probability `theta`, it is kept. Otherwise the draft without tokens below `beta`
    is the query (the paper's implicit query, which keeps inventions out of the search), and the sentence is written
    again from the passages found. Only the latest passages are in the prompt. A sentence that states the answer ends
    the loop; if none does, an answer is written from all sentences (counted as `unfinished`). A list is the whole line,
    and is written again if its draft was cut; a long answer is always written from all sentences. The model must return
    log-probabilities, as vLLM does. A thought is no part of a draft, though it counts in `look_ahead`: a draft that was
    cut within one is empty, and ends the loop. Counts `steps` and `sure_steps`, the drafts that were kept.

    Args:
        rollout: the rollout to run in; `policy` writes, `notes` takes notes, `answer` answers if no sentence does.
        top_k: passages per retrieval (the authors' code: 2 for 2WikiMultihopQA, 5 for WikiAsp; NotesWriting: 5).
        max_step: maximum number of sentences. (The paper limits the answer to 256 tokens instead.)
        look_ahead: maximum tokens of a draft (the authors' code: 64).
        theta: a token below this probability triggers retrieval (NotesWriting, section 4.4, and the authors' code
            for 2WikiMultihopQA: 0.8); 0 never retrieves again, 1 nearly always.
        beta: tokens below this probability are left out of the query (the authors' code: 0.4); 0 keeps all.
        first_search: False drafts the first sentence like the others, without a search for the question (FlashRAG).
        notes: replace passages by notes on them (NotesWriting, section 3.3, equation 11).
    """
    evidence: list[Passage] = []
    taken: list[Passage] = []
    sentences: list[str] = []
    answer = ""
    if notes:
        rollout.keep_note("")
    for _ in range(max_step):
        rollout.count("steps")
        variables: dict[str, Any] = {"question": question, "sentences": sentences, "answer_style": answer_style}
        sentence, query = "", question
        if sentences or not first_search:
            draft = await rollout.generate_tokens(STEP, max_tokens=look_ahead, passages=[], **variables)
            sentence = next_sentence("".join(token for token, _ in draft), answer_style)
            tokens = _tokens_of(sentence, draft)
            cut_answer = len(tokens) == look_ahead and parse_answer(sentence)
            query = "" if _sure(tokens, theta) and not cut_answer else (_masked(tokens, beta) or sentence)
        if query:
            evidence = await rollout.retrieve(query, top_k)
            if notes:
                evidence = await take_notes(rollout, NOTE, query, evidence, taken)
            reply = await rollout.generate(STEP, stop=("\n",), passages=evidence, **variables)
            sentence = next_sentence(reply, answer_style)
        elif sentence:
            rollout.count("sure_steps")
        if not sentence:
            break
        sentences.append(sentence)
        if answer := parse_answer(sentence):
            break
    if answer and answer_style != "long":
        return answer
    if not answer:
        rollout.count("unfinished")
    return await rollout.generate(
        ANSWER, question=question, passages=taken if notes else evidence, sentences=sentences, answer_style=answer_style
    )


def _tokens_of(beginning: str, tokens: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The tokens up to the end of a sentence at the beginning of their text, with a list mark before it."""
    texts = [token for token, _ in tokens]
    whole = "".join(texts)
    end = whole.find(beginning) + len(beginning)
    starts = accumulate((len(text) for text in texts), initial=0)
    return [token for token, start in zip(tokens, starts, strict=False) if start < end]


def _sure(tokens: list[tuple[str, float]], theta: float) -> bool:
    return all(math.exp(logprob) >= theta for _, logprob in tokens)


def _masked(tokens: list[tuple[str, float]], beta: float) -> str:
    return " ".join("".join(token for token, logprob in tokens if math.exp(logprob) >= beta).split())


METHOD = Method(flare, (STEP, NOTE, ANSWER))
