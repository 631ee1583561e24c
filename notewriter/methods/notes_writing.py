"""NotesWriting: notes on the retrieved documents replace the documents, in any method that retrieves."""

from dataclasses import replace

from notewriter.method import Stage
from notewriter.records import Passage
from notewriter.rollouts.parsing import parse_note
from notewriter.rollouts.rollout import Rollout


async def take_notes(
    rollout: Rollout, stage: Stage, query: str, passages: list[Passage], notes: list[Passage]
) -> list[Passage]:
    """Write a note on each passage that contains something new for the query (NotesWriting, section 3.1).

    The note-taker gets one passage at a time, the query and the notes so far, and replies with `YES#<notes>` or
    `NO#...` (off topic, already noted, or no answer). Passages are read in sequence, so that a note can omit what
    an earlier one of the same retrieval contains. Any other reply gives no note and counts as `unreadable_notes`.

    Args:
        rollout: the rollout to run in; all notes together become its note.
        stage: the method's note-taking stage.
        query: the query for which the passages were retrieved.
        passages: the retrieved passages.
        notes: the question's notes so far, as passages whose text is the note; the new ones are appended.

    Returns:
        The new notes: the passages that have one, with the note as their text.
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
    """The observation that shows a method notes instead of documents (Appendix, Tables 10-20)."""
    if not notes:
        return "No relevant information, try a different search term."
    return "\n".join(f"(Result {number}) {note.title} - {note.text}" for number, note in enumerate(notes, start=1))


def _together(notes: list[Passage]) -> str:
    return "\n".join(f"{note.title} - {note.text}" for note in notes)
