"""NotesWriting: notes on the retrieved documents replace the documents, in any method that retrieves."""

from dataclasses import replace

from notewriter.ground.records import Passage
from notewriter.models.client import RequestRefused
from notewriter.models.completions import NoAnswer
from notewriter.rollouts.method import Stage
from notewriter.rollouts.parsing import parse_note
from notewriter.rollouts.rollout import Rollout

MAX_HALVINGS = 6
"""How often a page that the note-taker's endpoint refuses is cut in two: down to 1/64 of it."""


SPLIT_PAGES, SKIPPED_PARTS = "split_pages", "skipped_page_parts"
"""Events: a page that was read in parts, and a part that no call could read."""


async def take_notes(
    rollout: Rollout, stage: Stage, query: str, passages: list[Passage], notes: list[Passage]
) -> list[Passage]:
    """Write a note on each passage that contains something new for the query (NotesWriting, section 3.1).

    The note-taker gets one passage at a time, the query and the notes of earlier searches. It does not get those of
    this search, which may therefore repeat each other (Tables 10 and 12). It replies with `YES#<notes>` or `NO#...`
    (off topic, already noted, or no answer). Any other reply gives no note and counts as `unreadable_notes`. A page
    that the endpoint refuses, which is one beyond the note-taker's context, is read in parts and counts as
    `split_pages`; a part that is refused still is skipped and counts as `skipped_page_parts`.

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
    known = _together(notes)
    for passage in passages:
        written = await _read(rollout, stage, query, passage, known)
        if len(written) > 1:
            rollout.count(SPLIT_PAGES)
        if text := "\n".join(filter(None, written)):
            notes.append(replace(passage, text=text))
    rollout.keep_note(_together(notes))
    return notes[before:]


async def _read(
    rollout: Rollout, stage: Stage, query: str, passage: Passage, known: str, halvings: int = MAX_HALVINGS
) -> list[str]:
    """The note on a page, or on each of the parts in which it had to be read; empty if there is none."""
    try:
        note = parse_note(await rollout.generate(stage, query=query, passages=[passage], note=known))
    except RequestRefused as refusal:
        if isinstance(refusal.__cause__, NoAnswer):
            # A filter or a tool call, not the length.
            raise
        middle = _middle(passage.text)
        if not halvings or not middle:
            rollout.count(SKIPPED_PARTS)
            return [""]
        written = []
        for text in (passage.text[:middle], passage.text[middle:]):
            part = replace(passage, text=text.strip())
            written += await _read(rollout, stage, query, part, known, halvings - 1)
        return written
    if note is None:
        rollout.count("unreadable_notes")
    return [note or ""]


def _middle(text: str) -> int:
    """The place to cut a text in two: the line break or else the space nearest to its middle; 0 if it has neither."""
    middle = len(text) // 2
    for mark in ("\n", " "):
        places = [text.rfind(mark, 1, middle), text.find(mark, middle, len(text) - 1)]
        nearest = min((place for place in places if place > 0), key=lambda place: abs(place - middle), default=0)
        # A break near an end would leave a part as long as the whole.
        if len(text) // 4 <= nearest <= 3 * len(text) // 4 and nearest:
            return nearest
    return 0


def as_observation(notes: list[Passage]) -> str:
    """The observation that shows a method notes instead of documents (Appendix, Tables 10-20)."""
    if not notes:
        return "No relevant information, try a different search term."
    return "\n".join(f"(Result {number}) {note.title} - {note.text}" for number, note in enumerate(notes, start=1))


def _together(notes: list[Passage]) -> str:
    return "\n".join(f"{note.title} - {note.text}" for note in notes)
