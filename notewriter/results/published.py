"""Published values: those of the papers' tables, and our own experiments' notes, a file beside each page.

Run folders go. What a page shows of notes can be computed again from the notes, their questions and their passages.
"""

import functools
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypedDict

import yaml

from notewriter.artifacts.notes import Note, Notes, read_notes
from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation.controls import Reading, readings
from notewriter.evaluation.notes import names_subjects, note_scores
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import without_surrogates
from notewriter.results.compare import Runs
from notewriter.results.experiment import Experiment
from notewriter.results.measures import by_question
from notewriter.results.runs import Run
from notewriter.retrieval.passages import Passages
from notewriter.rollouts.controls import facts_among

logger = logging.getLogger(__name__)

FOLDER = Path(__file__).with_name("papers")

PAPERS = {
    "deepnote": "DeepNote",
    "rearag": "ReaRAG",
    "resp": "ReSP",
    "noteswriting": "NotesWriting",
    "search_r1": "Search-R1",
}
"""The name of a file here, and of a folder in configs/papers/ -> the paper."""


class PublishedRow(TypedDict):
    """What a paper reports of a method on a dataset.

    `place` is the table or section, `setting` what differs from the paper's own settings (empty: nothing). `values`
    are in the units of the paper: percent for scores, counts for searches and tokens, dollars, seconds, minutes.
    """

    paper: str
    place: str
    dataset: str
    method: str
    model: str
    setting: str
    values: dict[str, float]


@functools.cache
def published_rows() -> tuple[PublishedRow, ...]:
    """Every row of every paper, in the papers' order.

    A file lists tables. The `values` of a row are a list in the order of the table's `columns` (dataset -> metrics);
    where the paper has a line for each dataset, a list by dataset in the order of the table's `metrics`.
    """
    rows: list[PublishedRow] = []
    for name, paper in PAPERS.items():
        for table in yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")):
            for row in table["rows"]:
                left = iter(row["values"])
                columns = table.get("columns") or dict.fromkeys(row["values"], table["metrics"])
                for dataset, metrics in columns.items():
                    listed = row["values"][dataset] if "metrics" in table else [next(left) for _ in metrics]
                    values = {metric: value for metric, value in zip(metrics, listed, strict=True) if value is not None}
                    rows.append(
                        PublishedRow(
                            paper=paper,
                            place=table["place"],
                            dataset=dataset,
                            method=row["method"],
                            model=row["model"],
                            setting=row.get("setting", ""),
                            values=values,
                        )
                    )
    return tuple(rows)


NONE = Notes([], [], {})
"""No notes yet."""


def with_passages(notes: Notes, path: Path, metrics: Collection[str]) -> Notes:
    """Published notes with the scores of their text that they lack, told from the passages of an index.

    Scores that they have stay as they are. Passages are as the index has them, also of runs that shuffled sentences.

    Args:
        notes: the notes.
        path: the index that their runs searched.
        metrics: the scores that are wanted.

    Raises:
        UserError: a passage is not in the index.
    """
    store = Passages(path)
    found: dict[str, Passage] = {}
    scores = []
    for row, known in zip(notes.rows, notes.scores, strict=True):
        for id in row["passages"]:
            if id not in found:
                if (place := store.find(id)) is None:
                    raise UserError(f"{path}: has no passage {id!r}; give the index that the notes' runs searched")
                found[id] = store[place]
        passages = [found[id] for id in row["passages"]]
        question = Question(row["question_id"], row["question"], tuple(row["answers"]), (), tuple(row["facts"]))
        at_hand = facts_among(question, passages)
        told = note_scores(row["note"], question, at_hand) | names_subjects(row["note"], passages)
        scores.append({name: value for name, value in told.items() if name in metrics} | dict(known))
    return notes._replace(scores=scores)


def notes_of(experiment: Experiment, published: Notes = NONE) -> Notes:
    """The notes of an experiment with the scores that its page shows: those already published, and those of folders."""
    rows: list[tuple[Note, Mapping[str, float]]] = [*zip(published.rows, published.scores, strict=True)]
    for (cell, of), runs in experiment.runs.items():
        for seed, run in runs.items():
            if run.published is not None:
                continue
            read = _readings(run)
            scores = {metric: by_question(metric, run) for metric in experiment.metrics}
            for id, each in run.predictions.items():
                row = _row(of, cell, seed, run, each, read.get(id))
                rows.append((row, {metric: values[id] for metric, values in scores.items() if id in values}))
    # Those of one question together, in the order of cells and seeds, also of runs that join published ones.
    planned = [(*place, seed) for place in experiment.runs for seed in experiment.planned(*place)]
    order = {place: number for number, place in enumerate(planned)}

    def place_of(row: Note) -> tuple[str, str, int]:
        return row["set"], row["question_id"], order.get(_place(row), len(planned))

    rows.sort(key=lambda each: place_of(each[0]))
    return Notes([row for row, _ in rows], [scores for _, scores in rows], published.sections)


def check_kept(path: Path, experiment: Experiment, notes: Notes) -> None:
    """Check that no run of the experiment is lost of those whose notes were published at a path, nor their passages.

    Raises:
        UserError: one is; names it.
    """
    if not path.is_file():
        return
    wanted = {(*place, seed) for place in experiment.runs for seed in experiment.planned(*place)}
    kept = {_place(row) for row in notes.rows}
    with_passages = {_place(row) for row in notes.rows if row["passages"]}
    for row in read_notes(path).rows:
        place = _place(row)
        if place not in wanted or place in (with_passages if row["passages"] else kept):
            continue
        gone = "whose questions or passages are gone" if place in kept else "whose run is gone"
        raise UserError(
            f"{path}: has the notes of {place[0]} on {place[1]}, seed {place[2]}, {gone}; "
            f"keep them with --from_notes {path}, or remove the file"
        )


def _place(row: Note) -> tuple[str, str, int | None]:
    return row["cell"], row["set"], row["seed"]


def are_in(folders: Experiment, experiment: Experiment) -> bool:
    """Whether an experiment's run folders have all of its runs, with the notes and answers that are published."""
    return all(
        seed in folders.runs[place] and _texts(run) == _texts(folders.runs[place][seed])
        for place, runs in experiment.runs.items()
        for seed, run in runs.items()
    )


def _texts(run: Run) -> dict[str, tuple[str, str]]:
    """Question id -> note and answer, as they are published."""
    return {
        without_surrogates(each.question_id): (_note(each), without_surrogates(each.prediction))
        for each in run.predictions.values()
    }


def _note(of: Prediction) -> str:
    # After an error a note has no words.
    return "" if of.error else without_surrogates(of.note)


def _readings(run: Run) -> Mapping[str, Reading]:
    """By question id; none where questions or passages are no longer at hand, as the page says then."""
    try:
        return {each.question.id: each for each in readings(run.folder)}
    except UserError as error:
        logger.warning("%s: its notes are published without their passages: %s", run.folder, error)
        return {}


def _row(of: str, cell: str, seed: int | None, run: Run, each: Prediction, read: Reading | None) -> Note:
    return {
        "set": of,
        "question_id": without_surrogates(each.question_id),
        "question": without_surrogates(each.question),
        "answers": [without_surrogates(answer) for answer in each.answers],
        "facts": [without_surrogates(fact) for fact in read.question.supporting_facts] if read else [],
        "cell": cell,
        "seed": seed,
        "passages": [without_surrogates(passage.id) for passage in read.passages] if read else [],
        "note": _note(each),
        "prediction": without_surrogates(each.prediction),
        "family": run.family,
    }


def runs_of(notes: Notes) -> dict[tuple[str, str], Runs]:
    """(Cell, set) -> seed -> the run, as published."""
    predictions: dict[tuple[str, str, int | None, str], dict[str, Prediction]] = defaultdict(dict)
    for row, scores in zip(notes.rows, notes.scores, strict=True):
        run = predictions[row["cell"], row["set"], row["seed"], row["family"]]
        run[row["question_id"]] = Prediction(
            question_id=row["question_id"],
            question=row["question"],
            answers=row["answers"],
            prediction=row["prediction"],
            note=row["note"],
            error="",
            scores=dict(scores),
            calls=0,
            retrievals=0,
            prompt_tokens=0,
            completion_tokens=0,
            words_retrieved=0,
            words_answered_from=0,
            counts={},
        )
    runs: dict[tuple[str, str], dict[int | None, Run]] = defaultdict(dict)
    for (cell, of, seed, family), rows in predictions.items():
        runs[cell, of][seed] = Run(Path(f"{cell}, {of}, seed {seed}"), published=rows, scored_by=family)
    return dict(runs)
