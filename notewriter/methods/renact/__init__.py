"""ReNAct: ReAct whose observations are notes on the documents, not the documents (NotesWriting)."""

from notewriter.method import Method, Stage
from notewriter.methods.acting import REHEARSAL, reason_and_act
from notewriter.methods.notes_writing import as_observation, take_notes
from notewriter.records import Passage
from notewriter.rollouts.rollout import Rollout

STEP = Stage("renact/step", rehearsal=REHEARSAL)
NOTE = Stage("renact/note", "notes", "document note")
ANSWER = Stage("renact/answer", "answer", "answer")


async def renact(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 15, answer_style: str = "short"
) -> str:
    """Reason and act, and observe notes on what was found, not the documents (NotesWriting's ReNAct, section 3.2).

    `search[entity; question]` retrieves for both and has notes taken for the question; `finish[answer]` ends.
    (The paper searches Wikipedia's titles for the entity; an index of passages finds more with the question.)

    Args:
        question: the question to answer.
        rollout: where it runs; `policy` reasons, `notes` writes the notes, `answer` answers where the steps ran out.
        top_k: documents a search (section 4.3: 5).
        max_step: steps at the most, T. The paper does not tell its T; its longest chains took 10.4 searches on average
            (Table 2).
        answer_style: `short`, `long` or `yes_no`.
    """
    notes: list[Passage] = []
    rollout.keep_note("")

    async def search(argument: str) -> str:
        entity, _, query = (part.strip() for part in argument.partition(";"))
        passages = await rollout.retrieve(f"{entity} {query}".strip(), top_k)
        return as_observation(await take_notes(rollout, NOTE, query or entity, passages, notes))

    return await reason_and_act(question, rollout, (STEP, ANSWER), {"search": search}, max_step, answer_style)


METHOD = Method(renact, (STEP, NOTE, ANSWER))
