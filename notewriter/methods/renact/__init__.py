"""ReNAct: ReAct that observes notes on the documents instead of the documents (NotesWriting)."""

from notewriter.ground.records import Passage
from notewriter.methods.acting import REHEARSAL, reason_and_act
from notewriter.methods.notes_writing import as_observation, take_notes
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

STEP = Stage("renact/step", rehearsal=REHEARSAL)
NOTE = Stage("renact/note", "notes", "document note")
ANSWER = Stage("renact/answer", "answer", "answer")


async def renact(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 15, answer_style: str = "short"
) -> str:
    """Reason and act, observing notes instead of documents (NotesWriting's ReNAct, section 3.2).

    `search[entity; question]` retrieves for both and takes notes for the question; `finish[answer]` ends.
    (The paper searches Wikipedia titles for the entity; an index of passages finds more with the question.)

    Args:
        rollout: the rollout to run in; `policy` reasons, `notes` takes notes, `answer` answers if the steps run out.
        top_k: documents per search (section 4.3: 5).
        max_step: T, maximum number of steps. The paper does not state its T; its longest chains took 10.4 searches on
            average (Table 2).
    """
    notes: list[Passage] = []
    rollout.keep_note("")

    async def search(argument: str) -> str:
        entity, _, query = (part.strip() for part in argument.partition(";"))
        passages = await rollout.retrieve(f"{entity} {query}".strip(), top_k)
        new = await take_notes(rollout, NOTE, query or entity, passages, notes)
        return as_observation(new)

    return await reason_and_act(question, rollout, (STEP, ANSWER), {"search": search}, max_step, answer_style)


METHOD = Method(renact, (STEP, NOTE, ANSWER))
