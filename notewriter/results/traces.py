"""The page's questions and traces, in compressed blocks, unpacked when a reader opens them."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.traces import Retrieval, Step, Written, read_traces
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.notes import FACTS
from notewriter.ground.records import Message
from notewriter.pages import packed
from notewriter.results.measures import headline, shares
from notewriter.results.runs import Run

CHUNK = 50
"""Questions of a run that are compressed together."""

PIECE = re.compile(r"\[\d+\] |[^\n]*\n|[^\n]+")
"""A line of a prompt. The number before a passage, which differs between prompts, is a piece of its own."""

NOTES_ROLE = "notes"
"""The role of the model that writes notes: its completions are states of the note."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of all runs on all questions, in blocks of `CHUNK` questions of one run, the runs in turn.

    Args:
        places: for each run, question id -> `CHUNK` times the number of the block, plus the index in it.
        errors: for each run, question id -> error.
        with_prompts: the first blocks, up to the limit that was asked for.
        without_prompts: all blocks, without prompts.
    """

    places: list[dict[str, int]]
    errors: list[dict[str, str]]
    with_prompts: list[str] = field(default_factory=list)
    without_prompts: list[str] = field(default_factory=list)

    def fitting(self, room: int) -> tuple[list[str], int]:
        """The blocks, in at most `room` characters if possible, and how many of them include their prompts."""
        prompts = (len(whole) - len(bare) for whole, bare in zip(self.with_prompts, self.without_prompts, strict=False))
        sizes = itertools.accumulate(prompts, initial=sum(map(len, self.without_prompts)))
        whole = max(0, sum(size <= room for size in sizes) - 1)
        return self.with_prompts[:whole] + self.without_prompts[whole:], whole


Outcome = tuple[Prediction, list[Step] | None]
"""A run's prediction of a question, and the steps to it; None where there is no trace."""


def pack(runs: Sequence[Run], limit: int) -> Traces:
    """Compress the traces of run folders, one block in memory at a time; of prompts about `limit` characters.

    Raises:
        UserError: a trace that is malformed or a duplicate; names file and line.
    """
    traces = Traces([{} for _ in runs], [{} for _ in runs])
    size = 0
    for run, chunk in _in_turn([_chunks(_outcomes(run)) for run in runs]):
        for place, (prediction, _) in enumerate(chunk, start=len(traces.without_prompts) * CHUNK):
            traces.places[run][prediction.question_id] = place
            traces.errors[run][prediction.question_id] = prediction.error
        block = [_shown(*outcome) for outcome in chunk]
        traces.without_prompts.append(packed(block))
        if size <= limit:
            numbers: dict[str, int] = {}
            with_prompts = [shown | _prompts(steps, numbers) for shown, (_, steps) in zip(block, chunk, strict=True)]
            traces.with_prompts.append(packed(with_prompts))
            size += len(traces.with_prompts[-1])
    return traces


def _in_turn(streams: Sequence[Iterable[Item]]) -> Iterator[tuple[int, Item]]:
    """`(number of the stream, item)`: the first item of each stream, the second of each, ..."""
    for items in itertools.zip_longest(*streams):
        yield from ((number, item) for number, item in enumerate(items) if item is not None)


def _chunks(items: Iterator[Item]) -> Iterator[list[Item]]:
    while chunk := list(itertools.islice(items, CHUNK)):
        yield chunk


def _outcomes(run: Run) -> Iterator[Outcome]:
    """A run's outcomes in the order of its traces; predictions without a trace come last."""
    left = dict(run.predictions)
    for trace in read_traces(run.folder / "traces.jsonl"):
        if prediction := left.pop(trace.question_id, None):
            yield replace(prediction, error=prediction.error or trace.error), trace.steps
    yield from ((prediction, None) for prediction in left.values())


def _shown(of: Prediction, steps: list[Step] | None) -> dict[str, object]:
    """An outcome without its prompts."""
    shown = None if steps is None else list(_steps(steps))
    return {"prediction": of.prediction, "note": of.note, "error": of.error, "steps": shown}


def _steps(steps: Sequence[Step]) -> Iterator[dict[str, object]]:
    """Steps without their prompts; `previous` is the number of the note that a note was written from."""
    notes: list[str] = []
    for step in steps:
        if isinstance(step, Retrieval):
            yield {
                "kind": "retrieve",
                "query": step.query,
                "seconds": round(step.seconds, 2),
                "titles": [passage["title"] for passage in step.passages],
            }
            continue
        completion = None if isinstance(step, Written) else step.completion
        shown: dict[str, object] = {
            "kind": "generate",
            "stage": step.stage,
            "is_note": step.role == NOTES_ROLE,
            "text": step.text,
            "cut": completion is not None and completion.finish_reason == "length",
            "prompt_tokens": completion.prompt_tokens if completion else 0,
            "completion_tokens": completion.completion_tokens if completion else 0,
            "seconds": round(completion.seconds, 1) if completion else 0,
        }
        if step.role == NOTES_ROLE:
            shown["previous"] = note_before(step.messages, notes)
            notes.append(step.text.strip())
        yield shown


def note_before(messages: Sequence[Message], notes: Sequence[str]) -> int:
    """The number of the note that a note was written from by its prompt; -1 where there is none.

    That is the latest note that appears in the prompt (a method may have discarded newer ones), else the latest.
    """
    sent = "\n".join(message["content"] for message in messages)
    used = [number for number, note in enumerate(notes) if note and note in sent]
    return used[-1] if used else len(notes) - 1


def _prompts(steps: list[Step] | None, numbers: dict[str, int]) -> dict[str, object]:
    """The prompts of steps as numbers of pieces, and in `pieces` those that their block did not have before.

    A trace sends its passages and notes several times, and all traces the same instructions, farther apart than a
    compressor looks back.
    """
    before = len(numbers)
    prompts = [
        [
            (message["role"], [numbers.setdefault(piece, len(numbers)) for piece in PIECE.findall(message["content"])])
            for message in step.messages
        ]
        for step in steps or ()
        if not isinstance(step, Retrieval)
    ]
    return {"pieces": list(numbers)[before:], "prompts": prompts}


def questions_of(runs: Sequence[Run]) -> list[Prediction]:
    """Every question that any run answered, as the first of these runs has it, in the first run's order.

    An id that stands for different questions in two runs is two questions.
    """
    questions: dict[tuple[str, str], Prediction] = {}
    for run in runs:
        for prediction in run.predictions.values():
            questions.setdefault((prediction.question_id, prediction.question), prediction)
    return list(questions.values())


def index(runs: Sequence[Run], questions: Sequence[Prediction], traces: Traces) -> dict[str, object]:
    """The trace viewer's data on all questions before one is opened."""
    return {
        "runs": [{"label": run.label, "colour": run.colour} for run in runs],
        "metrics": [{"name": metric, "label": metric_named(metric).label} for metric in shares(runs)],
        "chunk": CHUNK,
        "first": _most_telling(runs, questions),
        "questions": [
            {
                "id": question.question_id,
                "question": question.question,
                "answers": question.answers,
                "runs": [_result(run, number, question, traces) for number, run in enumerate(runs)],
            }
            for question in questions
        ],
    }


def _most_telling(runs: Sequence[Run], questions: Sequence[Prediction]) -> int:
    """The question that is open at first: the one on which the last run differs most from the first.

    Of a run alone it is the one that it did best on.
    """
    name = next((each for each in (FACTS, headline(runs)) if each and each in shares(runs)), None)

    def told(run: Run, question: Prediction) -> float:
        prediction = _same_question(run, question)
        return prediction.scores.get(name, 0.0) if prediction and name else 0.0

    def difference(number: int) -> float:
        before = told(runs[0], questions[number]) if len(runs) > 1 else 0.0
        return abs(told(runs[-1], questions[number]) - before)

    return max(range(len(questions)), key=difference, default=-1)


def _result(run: Run, number: int, question: Prediction, traces: Traces) -> dict[str, object] | None:
    """A run's result on a question; None where it did not answer it."""
    prediction = _same_question(run, question)
    if prediction is None:
        return None
    return {
        "scores": prediction.scores,
        "failed": bool(traces.errors[number][question.question_id]),
        "trace": traces.places[number][question.question_id],
    }


def _same_question(run: Run, question: Prediction) -> Prediction | None:
    """A run's prediction for a question; None where it has none, or another question under the same id."""
    prediction = run.predictions.get(question.question_id)
    return prediction if prediction and prediction.question == question.question else None


def words(runs: Sequence[Run], questions: Sequence[Prediction]) -> dict[str, list[int]]:
    """The search index: each lower-case word of a prediction or a note -> the numbers of the questions that have it.

    It is smaller than the texts, since a word is stored once, and several runs' texts on a question are much alike.
    """
    places: dict[str, list[int]] = {}
    for number, question in enumerate(questions):
        predictions = [prediction for run in runs if (prediction := _same_question(run, question))]
        texts = [text for prediction in predictions for text in (prediction.prediction, prediction.note)]
        for word in sorted({word for text in texts for word in text.lower().split()}):
            places.setdefault(word, []).append(number)
    return dict(sorted(places.items()))
