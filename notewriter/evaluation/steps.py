"""A trace as thoughts, actions and observations, for judges, who read every method alike."""

import re
from collections.abc import Sequence

from notewriter.artifacts.traces import Generation, Retrieval, Step, Trace, Written
from notewriter.evaluation.evidence import turns_of
from notewriter.methods import stages
from notewriter.models.thoughts import without_thinking
from notewriter.rollouts.extraction import named_in
from notewriter.rollouts.parsing import parse_note

OBSERVATION_WORDS = 1000
"""Words of the longest observation that the judge of chains sees; longer ones are cut, and marked."""

_NOTES = ("note", "updated note", "document note")
_NUMBER = re.compile(r"^\[\d+\] ", re.MULTILINE)
_IS_OBSERVATION = re.compile(r"observation\b", re.IGNORECASE)


def chain_of(trace: Trace) -> list[str]:
    """A trace as thoughts, actions and observations, for every method alike (NotesWriting, section 6, figure 7).

    Methods that act in a chat: its turns, which are thought, action and observation already. For all others, a search
    is an action, and what the method goes on with is its observation: the notes that were taken of it, or else the
    passages in the next prompt. Whatever else was written is a thought, or the answer.
    """
    chats = [
        place for place, step in enumerate(trace.steps) if not isinstance(step, Retrieval) and turns_of(step.messages)
    ]
    steps = trace.steps
    parts: list[str] = []
    if chats and not isinstance(last := steps[chats[-1]], Retrieval):
        for message in turns_of(last.messages):
            text = message["content"].strip()
            is_named = message["role"] == "assistant" or _IS_OBSERVATION.match(text)
            parts.append(_shortened(text if is_named else f"Observation: {text}"))
        parts.append(_text_of(last))
        steps = steps[chats[-1] + 1 :]
    for place, step in enumerate(steps):
        if isinstance(step, Retrieval):
            parts += [
                f"Action: search: {step.query}",
                f"Observation: {_shortened(_observed(step, steps[place + 1 :]))}",
            ]
        elif _kind_of(step) == "answer":
            parts.append(f"Answer: {_text_of(step)}")
        elif _kind_of(step) not in _NOTES:
            parts.append(f"Thought ({_name_of(step)}): {_text_of(step)}")
    return parts


def _observed(search: Retrieval, after: Sequence[Step]) -> str:
    """The outcome of a search for the method: notes on its passages, or its passages in the next prompt."""
    if not search.passages:
        return "nothing was found"
    notes: list[str] = []
    for step in after:
        if isinstance(step, Retrieval):
            break
        if (kind := _kind_of(step)) not in _NOTES:
            if not notes:
                return _passages_in(step, search) or "; ".join(passage["title"] for passage in search.passages)
            break
        text = _text_of(step)
        # An extractive note is marks of sentences in its prompt.
        note = parse_note(text) or "" if kind == "document note" else named_in(text, step.messages[-1]["content"])
        notes.append(note)
    return "\n".join(filter(None, notes)) or "nothing relevant"


def _passages_in(step: Generation | Written, search: Retrieval) -> str:
    """The passages of a search in a prompt that lists them as `[1] title: text`; empty if it does not."""
    prompt = step.messages[-1]["content"]
    titles = tuple(f"{passage['title']}:" for passage in search.passages)
    parts = _NUMBER.split(prompt)[1:]
    if parts:
        # The rest of the prompt follows the last passage after a blank line.
        parts[-1] = parts[-1].partition("\n\n")[0]
    return "\n".join(part.strip() for part in parts if part.startswith(titles))


def _shortened(text: str) -> str:
    words = text.split(" ")
    left_out = len(words) - OBSERVATION_WORDS
    return text if left_out <= 0 else f"{' '.join(words[:OBSERVATION_WORDS])} [... {left_out} more words]"


def _kind_of(step: Generation | Written) -> str:
    stage = stages().get(step.stage)
    return stage.kind if stage else "step"


def _name_of(step: Generation | Written) -> str:
    return step.stage.rpartition("/")[2].replace("_", " ")


def _text_of(step: Generation | Written) -> str:
    return (step.text if isinstance(step, Written) else without_thinking(step.completion.text)).strip()


def outline_of(trace: Trace) -> list[str]:
    """The identity of a trace in a folder of judgements: searches with the titles found, and the texts written."""
    return [_in_words(step) for step in trace.steps]


def _in_words(step: Step) -> str:
    if isinstance(step, Retrieval):
        titles = "; ".join(passage["title"] for passage in step.passages) or "nothing"
        return f"search: {step.query}\nfound: {titles}"
    return f"{_name_of(step)}: {step.text.strip()}"
