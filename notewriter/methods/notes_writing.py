"""NotesWriting: a note on each retrieved document takes the document's place, in any method that retrieves."""

from dataclasses import replace

from notewriter.method import Stage
from notewriter.records import Passage
from notewriter.rollouts.parsing import parse_note
from notewriter.rollouts.rollout import Rollout


async def take_notes(
    rollout: Rollout, stage: Stage, query: str, passages: list[Passage], notes: list[Passage]
) -> list[Passage]:
    """Have a note written on each passage that holds something new for the query (NotesWriting, section 3.1).

    The note-taker gets one passage at a time, the query and the notes so far, and replies with
    `YES#<notes>` or `NO#...`: beside the query, noted already, no answer. Passages are read one after the other, so
    that a note can leave out what another of the same retrieval gave. A reply that is neither gives no note and
    counts as `unreadable_notes`.

    Args:
        rollout: where it runs; the notes together become its note.
        stage: the method's note-taking stage.
        query: what the passages were retrieved for.
        passages: what was retrieved.
        notes: the notes of the question so far, as passages with the note for text; the new ones are added.

    Returns:
        The new notes: the passages that have one, with the note in place of the text.
    """
    before = len(notes)
    for passage in passages:
        reply = await rollout.generate(stage, query=query, passages=[passage], note=_together(notes))
        note = parse_note(reply)
        if note is None:
            rollout.count("unreadable_notes")
        elif note:
            notes.append(replace(passage, text=note))
    rollout.keep_note(_together(notes))
    return notes[before:]


def as_observation(notes: list[Passage]) -> str:
    """What the method gets to see of a retrieval instead of documents (Appendix, Tables 10-20)."""
    if not notes:
        return "No relevant information, try a different search term."
    return "\n".join(f"(Result {number}) {note.title} - {note.text}" for number, note in enumerate(notes, start=1))


def _together(notes: list[Passage]) -> str:
    return "\n".join(f"{note.title} - {note.text}" for note in notes)
