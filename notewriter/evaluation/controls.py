"""What notes without a model (`rollouts.controls`) would have scored in a finished run.

`note_fact_recall` rises with the length of a note whoever wrote it, so a control is cut at as many words as the note
that it stands beside.
"""

from collections.abc import Sequence
from pathlib import Path

from notewriter.artifacts.predictions import read_predictions
from notewriter.artifacts.run_folder import read_config
from notewriter.artifacts.run_record import read_inputs
from notewriter.artifacts.traces import Trace, read_traces
from notewriter.datasets import load_questions
from notewriter.evaluation.notes import note_quality
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval.index_folder import index_fingerprint
from notewriter.retrieval.passages import Passages
from notewriter.rollouts.controls import CONTROLS

SHOWN = ("overlap", "lead")
"""The controls that runs are compared with."""


def control_scores(run: Path) -> dict[str, dict[str, dict[str, float]]]:
    """What notes without a model would have scored in a finished run: control -> question id -> `note_quality`.

    A control reads the passages that the run retrieved for a question and has as many words as the run's note; after
    an error that is none. Questions are read from the run's question file, passages from its indexes. Empty for a run
    without notes.

    Raises:
        UserError: the run's question file or an index is missing or not the one that the run used, or its passages are
            in no index on this machine.
    """
    predictions = read_predictions(run / "predictions.jsonl")
    words = {id: int(each.scores["note_words"]) for id, each in predictions.items() if "note_words" in each.scores}
    if not words:
        return {}
    config = read_config(run)
    path = str(config.get("path"))
    questions = {question.id: question for question in load_questions(str(config.get("dataset")), path)}
    stores = _stores(run)
    scores: dict[str, dict[str, dict[str, float]]] = {name: {} for name in SHOWN}
    for trace in read_traces(run / "traces.jsonl"):
        if (id := trace.question_id) in words:
            question = questions.get(id)
            if question is None or question.question != predictions[id].question:
                raise UserError(f"{path}: question {id!r} is not the one that {run} answered; restore the file")
            passages = _retrieved(trace, stores, run)
            for name in SHOWN:
                scores[name][id] = note_quality(CONTROLS[name].write(question, passages, words[id]), question)
    return scores


def _stores(run: Path) -> list[Passages]:
    """The passages of the indexes that a run searched."""
    config = read_config(run)
    inputs = read_inputs(run)
    stores = []
    for part in config.get("retriever") or [{"index": path} for path in config.get("index") or []]:
        if path := part.get("index") or part.get("documents"):
            fingerprint = index_fingerprint(path)
            if fingerprint is None or inputs.get(f"index: {path}", fingerprint) != fingerprint:
                raise UserError(f"{path}: is missing or not the index that {run} searched; build it again")
            stores.append(Passages(Path(path)))
    return stores


def _retrieved(trace: Trace, stores: Sequence[Passages], run: Path) -> list[Passage]:
    """The passages that any search of a trace found, each once, in the order in which they were found."""
    passages = []
    for id in dict.fromkeys(found["id"] for step in trace.retrievals for found in step.passages):
        places = ((store, store.find(id)) for store in stores)
        passage = next((store[place] for store, place in places if place is not None), None)
        if passage is None:
            raise UserError(f"{run}: passage {id!r} is in none of its indexes on this machine; search a local index")
        passages.append(passage)
    return passages
