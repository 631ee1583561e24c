"""Traces as the page embeds them: compressed blocks, of which the page unpacks those that a reader opens."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.report.coding import Vocabulary, gaps
from eval.report.runs import Run
from notewriter import jsonl
from notewriter.artifacts.traces import TRACE_SCHEMA, TraceRecord
from notewriter.errors import UserError
from notewriter.pages import packed
from notewriter.typecheck import misfit

Record = dict[str, Any]

CHUNK = 50
"""Questions of a run that are compressed together."""

PIECE = re.compile(r"\[\d+\] |[^\n]*\n|[^\n]+")
"""A line of a prompt; the number before a passage, which is another one elsewhere, is a piece of its own."""

NOTES_ROLE = "notes"
"""The role of the model that writes notes: what it replies is a state of the note."""


@dataclass(frozen=True, slots=True)
class Traces:
    """What all runs did on all questions, as blocks of `CHUNK` questions of a run, the runs in turn.

    `places` and `errors` are by run and question id; a place is `CHUNK` times the number of the block, plus the
    place in it. Texts are coded in `vocabulary`. A piece of a prompt stands in the first block that needs it and has
    a number in the order of the blocks; `first_pieces` are the numbers at which they start. `without_prompts` are all
    blocks, `with_prompts` the first of them, as many as were asked for.
    """

    places: list[dict[str, int]]
    errors: list[dict[str, str]]
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    first_pieces: list[int] = field(default_factory=list)
    with_prompts: list[str] = field(default_factory=list)
    without_prompts: list[str] = field(default_factory=list)

    def fitting(self, room: int) -> tuple[list[str], int]:
        """The blocks, in at most `room` characters where that is possible, and how many of them hold their prompts."""
        prompts = (len(whole) - len(bare) for whole, bare in zip(self.with_prompts, self.without_prompts, strict=False))
        sizes = itertools.accumulate(prompts, initial=sum(map(len, self.without_prompts)))
        whole = max(0, sum(size <= room for size in sizes) - 1)
        return self.with_prompts[:whole] + self.without_prompts[whole:], whole


def pack(runs: Sequence[Run], limit: int) -> Traces:
    """Compress the traces of run folders, one block in memory at a time; of prompts about `limit` characters.

    Raises:
        UserError: a trace that is malformed or there twice; names file and line.
    """
    traces = Traces([{} for _ in runs], [{} for _ in runs])
    numbers: dict[str, int] = {}
    size = 0
    for run, chunk in _in_turn([_chunks(_outcomes(run)) for run in runs]):
        for place, (identifier, outcome) in enumerate(chunk, start=len(traces.without_prompts) * CHUNK):
            traces.places[run][identifier] = place
            traces.errors[run][identifier] = outcome["error"]
        traces.first_pieces.append(len(numbers))
        block = [_coded(outcome, traces.vocabulary) for _, outcome in chunk]
        traces.without_prompts.append(packed(block))
        if size <= limit:
            prompts = [_prompts(outcome, numbers, traces.vocabulary) for _, outcome in chunk]
            traces.with_prompts.append(packed([each | more for each, more in zip(block, prompts, strict=True)]))
            size += len(traces.with_prompts[-1])
    return traces


def _in_turn(streams: Sequence[Iterable[Any]]) -> Iterator[tuple[int, Any]]:
    """`(number of the stream, item)`: the first item of each stream, the second of each, ..."""
    for items in itertools.zip_longest(*streams):
        yield from ((number, item) for number, item in enumerate(items) if item is not None)


def _chunks(items: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(items, CHUNK)):
        yield chunk


def _outcomes(run: Run) -> Iterator[tuple[str, Record]]:
    """`(question id, outcome)` of each prediction of a run, in the order of its traces; last those that have none."""
    seen = set()
    for identifier, error, steps in _read_traces(run.folder / "traces.jsonl"):
        seen.add(identifier)
        if identifier in run.predictions:
            yield identifier, _outcome(run.predictions[identifier], error, list(_with_sources(steps)))
    for identifier, prediction in run.predictions.items():
        if identifier not in seen:
            yield identifier, _outcome(prediction, "", None)


def _outcome(prediction: Record, error: str, steps: list[Record] | None) -> Record:
    return {
        "prediction": prediction["prediction"],
        "note": prediction["note"],
        "error": prediction["error"] or error,
        "steps": steps,
    }


def _read_traces(path: Path) -> Iterator[tuple[str, str, list[Record]]]:
    """`(question id, error, steps)` of each trace, the steps cut to what the page shows."""
    seen = set()
    for number, record in jsonl.read(path):
        place = f"{path}:{number}"
        if record.get("schema") != TRACE_SCHEMA:
            raise UserError(
                f"{place}: has the schema {record.get('schema')!r}, not {TRACE_SCHEMA!r}; "
                "run the evaluation again with this version"
            )
        if problem := misfit(record, TraceRecord, place):
            raise UserError(f"{problem}; run the evaluation again")
        try:
            trace = record["question_id"], record["error"], [STEPS[step["kind"]](step) for step in record["steps"]]
        except (KeyError, TypeError) as error:
            raise UserError(f"{place}: is no whole trace (at {error}); run the evaluation again") from error
        if trace[0] in seen:
            raise UserError(f"{place}: question {trace[0]!r} is there twice; remove one of the lines")
        seen.add(trace[0])
        yield trace


def _retrieve_step(step: Record) -> Record:
    return {
        "kind": "retrieve",
        "query": step["query"],
        "seconds": round(step["seconds"], 2),
        "titles": [passage["title"] for passage in step["passages"]],
    }


def _generate_step(step: Record) -> Record:
    completion = step["completion"]
    return {
        "kind": "generate",
        "stage": step["stage"],
        "is_note": step["role"] == NOTES_ROLE,
        "messages": [(message["role"], message["content"]) for message in step["messages"]],
        "text": completion["text"],
        "cut": completion["finish_reason"] == "length",
        "prompt_tokens": completion["prompt_tokens"],
        "completion_tokens": completion["completion_tokens"],
        "seconds": round(completion["seconds"], 1),
    }


STEPS = {"retrieve": _retrieve_step, "generate": _generate_step}


def _with_sources(steps: list[Record]) -> Iterator[Record]:
    """Each step; a note with `previous`, the number of the note that it was written from.

    That is the latest that stands in its prompt (a method may have thrown newer ones away), else the latest.
    """
    notes: list[str] = []
    for step in steps:
        if not step.get("is_note"):
            yield step
            continue
        sent = "\n".join(content for _, content in step["messages"])
        standing = [number for number, note in enumerate(notes) if note and note in sent]
        yield step | {"previous": standing[-1] if standing else len(notes) - 1}
        notes.append(step["text"].strip())


def _coded(outcome: Record, vocabulary: Vocabulary) -> Record:
    """An outcome without its prompts, its texts coded."""
    code = vocabulary.code
    steps = outcome["steps"] and [
        step | {"query": code(step["query"]), "titles": [code(title) for title in step["titles"]]}
        if step["kind"] == "retrieve"
        else {key: code(step[key]) if key == "text" else step[key] for key in step if key != "messages"}
        for step in outcome["steps"]
    ]
    return {**{key: code(outcome[key]) for key in ("prediction", "note", "error")}, "steps": steps}


def _prompts(outcome: Record, numbers: dict[str, int], vocabulary: Vocabulary) -> Record:
    """An outcome's prompts, call by call, as numbers of pieces, and as `pieces` those that had no number before.

    One trace sends its passages and notes several times, and all traces the same instructions, farther apart than
    a compressor looks back.
    """
    known = len(numbers)
    prompts = [
        [
            [role, gaps([numbers.setdefault(piece, len(numbers)) for piece in PIECE.findall(content)])]
            for role, content in step["messages"]
        ]
        for step in outcome["steps"] or ()
        if step["kind"] == "generate"
    ]
    fresh = list(itertools.islice(reversed(numbers), len(numbers) - known))[::-1]
    return {"pieces": [vocabulary.code(piece) for piece in fresh], "prompts": prompts}
