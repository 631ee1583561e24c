"""IRCoT: each sentence of a chain of thought is the query for the passages of the next one."""

from notewriter.ground.records import Passage
from notewriter.methods.notes_writing import take_notes
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import next_sentence, parse_answer
from notewriter.rollouts.rollout import Rollout

STEP = Stage("ircot/step")
NOTE = Stage("ircot/note", "notes", "document note")
ANSWER = Stage("ircot/answer", "answer", "answer")


async def ircot(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 5,
    max_step: int = 8,
    max_passages: int = 0,
    notes: bool = False,
    answer_style: str = "short",
) -> str:
    """Interleave retrieval with the sentences of a chain of thought (Trivedi et al. 2023).

    Passages accumulate over the steps. A reply ends at a line break (as in the authors' code) and its first sentence
    is kept; one that states the answer ends the chain. If none does, an answer is written from the chain (the paper's
    reader; counted as `unfinished`). A list is the whole reply, and a long answer is always written from the chain.

    Args:
        rollout: the rollout to run in; `policy` reasons, `notes` takes notes, `answer` answers if the steps run out.
        top_k: passages per retrieval (the paper: 2 to 8, by dataset; NotesWriting and ReSP: 5).
        max_step: maximum number of sentences (the paper: 8).
        max_passages: maximum distinct passages per question; does not limit notes. 0, the default: no limit, as where
            later papers run it (NotesWriting, ReSP); its own experiments: 15.
        notes: replace passages by notes on them, and the accumulated passages by the notes of the current step
            (NotesWriting, section 3.3, equation 10).
    """
    evidence: list[Passage] = []
    taken: list[Passage] = []
    sentences: list[str] = []
    query, answer = question, ""
    if notes:
        rollout.keep_note("")
    for _ in range(max_step):
        passages = await rollout.retrieve(query, top_k)
        if notes:
            evidence = await take_notes(rollout, NOTE, query, passages, taken)
        else:
            known = {passage.id for passage in evidence}
            new = [passage for passage in passages if passage.id not in known]
            evidence = [*evidence, *new][: max_passages or None]
        reply = await rollout.generate(
            STEP, stop=("\n",), question=question, passages=evidence, sentences=sentences, answer_style=answer_style
        )
        sentence = next_sentence(reply, answer_style)
        if not sentence:
            break
        sentences.append(sentence)
        if answer := parse_answer(sentence):
            break
        query = sentence
    if answer and answer_style != "long":
        return answer
    if not answer:
        rollout.count("unfinished")
    return await rollout.generate(
        ANSWER, question=question, passages=taken if notes else evidence, sentences=sentences, answer_style=answer_style
    )


METHOD = Method(ircot, (STEP, NOTE, ANSWER))
