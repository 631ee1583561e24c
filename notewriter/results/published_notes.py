"""The notes of an experiment, published in a file beside its page, and some of them side by side on it.

Run folders go. What a page shows of notes can be computed again from the notes, their questions and their passages.
"""

import functools
import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from notewriter.artifacts.notes import Note, Notes, read_notes
from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation.controls import Reading
from notewriter.evaluation.notes import names_subjects, note_scores
from notewriter.ground.digests import drawn
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import without_surrogates
from notewriter.pages.tables import MARKDOWN, Table
from notewriter.results.experiment import Experiment, Place
from notewriter.results.measures import by_question, measure
from notewriter.results.runs import Run, Runs
from notewriter.retrieval.passages import Passages
from notewriter.rollouts.controls import facts_among

logger = logging.getLogger(__name__)

NONE = Notes([], [], {})
"""No notes yet."""

QUESTIONS = 10
"""How many questions' notes stand side by side."""

RunPlace = tuple[str, str, int | None]
"""The row, the set and the seed of a run."""


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

    @functools.cache
    def passage(id: str) -> Passage:
        if (place := store.find(id)) is None:
            raise UserError(f"{path}: has no passage {id!r}; give the index that the notes' runs searched")
        return store[place]

    scores = []
    for row, known in zip(notes.rows, notes.scores, strict=True):
        passages = [*map(passage, row["passages"])]
        question = Question(row["question_id"], row["question"], tuple(row["answers"]), (), tuple(row["facts"]))
        at_hand = facts_among(question, passages)
        told = note_scores(row["note"], question, at_hand) | names_subjects(row["note"], passages)
        scores.append({name: value for name, value in told.items() if name in metrics} | dict(known))
    return notes._replace(scores=scores)


def notes_of(experiment: Experiment, published: Notes = NONE) -> Notes:
    """The notes of an experiment with the scores that its page shows: those already published, and those of folders."""
    rows: list[tuple[Note, Mapping[str, float]]] = [*zip(published.rows, published.scores, strict=True)]
    for (row, of), runs in experiment.runs.items():
        for seed, run in runs.items():
            if run.published is None:
                read = _readings(run)
                scores = {metric: by_question(metric, run) for metric in experiment.metrics}
                rows += [
                    (
                        _note_of(run, each, (row, of, seed), read.get(id)),
                        {metric: values[id] for metric, values in scores.items() if id in values},
                    )
                    for id, each in run.predictions.items()
                ]
    # Those of one question together, in the order of rows and seeds, also of runs that join published ones.
    order = {place: number for number, place in enumerate(experiment.planned)}
    rows.sort(key=lambda each: (each[0]["set"], each[0]["question_id"], order.get(_place(each[0]), len(order))))
    return Notes([note for note, _ in rows], [scores for _, scores in rows], published.sections)


def check_kept(path: Path, experiment: Experiment, notes: Notes) -> None:
    """Check that all runs of the experiment with notes published at a path are still there, with their passages.

    Raises:
        UserError: one is; names it.
    """
    if not path.is_file():
        return
    kept = {_place(note) for note in notes.rows}
    with_passages = {_place(note) for note in notes.rows if note["passages"]}
    for note in read_notes(path).rows:
        place = _place(note)
        if place in experiment.planned and place not in (with_passages if note["passages"] else kept):
            gone = "whose questions or passages are gone" if place in kept else "whose run is gone"
            raise UserError(
                f"{path}: has the notes of {place[0]} on {place[1]}, seed {place[2]}, {gone}; "
                f"keep them with --from_notes {path}, or remove the file"
            )


def _place(note: Note) -> RunPlace:
    return note["cell"], note["set"], note["seed"]


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
        without_surrogates(each.question_id): (_text_of(each), without_surrogates(each.prediction))
        for each in run.predictions.values()
    }


def _text_of(each: Prediction) -> str:
    # After an error a note has no words.
    return "" if each.error else without_surrogates(each.note)


def _readings(run: Run) -> Mapping[str, Reading]:
    """By question id; none where questions or passages are no longer at hand, as the page then mentions."""
    try:
        return {each.question.id: each for each in run.readings}
    except UserError as error:
        logger.warning("%s: its notes are published without their passages: %s", run.folder, error)
        return {}


def _note_of(run: Run, each: Prediction, place: RunPlace, read: Reading | None) -> Note:
    row, of, seed = place
    return {
        "set": of,
        "question_id": without_surrogates(each.question_id),
        "question": without_surrogates(each.question),
        "answers": [without_surrogates(answer) for answer in each.answers],
        "facts": [without_surrogates(fact) for fact in read.question.supporting_facts] if read else [],
        "cell": row,
        "seed": seed,
        "passages": [without_surrogates(passage.id) for passage in read.passages] if read else [],
        "note": _text_of(each),
        "prediction": without_surrogates(each.prediction),
        "family": run.family,
    }


def runs_of(notes: Notes) -> dict[Place, Runs]:
    """The runs of each place, as published."""
    predictions: dict[tuple[RunPlace, str], dict[str, Prediction]] = defaultdict(dict)
    for note, scores in zip(notes.rows, notes.scores, strict=True):
        predictions[_place(note), note["family"]][note["question_id"]] = Prediction(
            question_id=note["question_id"],
            question=note["question"],
            answers=note["answers"],
            prediction=note["prediction"],
            note=note["note"],
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
    runs: dict[Place, dict[int | None, Run]] = defaultdict(dict)
    for ((row, of, seed), family), of_run in predictions.items():
        runs[row, of][seed] = Run(Path(f"{row}, {of}, seed {seed}"), published=of_run, scored_by=family)
    return dict(runs)


def side_by_side(experiment: Experiment, notes: Notes) -> list[str]:
    """The section with the notes of some cells on the questions whose ids have the smallest hashes; empty without any.

    The questions are of the first set that was not chosen on. Of a cell with seeds the first seed's note stands there.
    """
    metric = experiment.metrics[0]
    written = {row["set"] for row in notes.rows if row["cell"] in experiment.notes}
    of = next((of for of in experiment.tested if of in written), "")
    rows: dict[str, dict[str, tuple[Note, float | None]]] = {}
    for row, scores in zip(notes.rows, notes.scores, strict=True):
        if row["set"] == of and row["cell"] in experiment.notes:
            rows.setdefault(row["question_id"], {}).setdefault(row["cell"], (row, scores.get(metric)))
    parts = []
    for id in drawn(rows, QUESTIONS):
        row, _ = next(iter(rows[id].values()))
        lines = [f"**{_escaped(row['question'])}** {_escaped(row['answers'][0] if row['answers'] else '')}", ""]
        for cell in experiment.notes:
            if cell in rows[id]:
                row, value = rows[id][cell]
                shown = "" if value is None else f" ({value:.{measure(metric).decimals}f})"
                lines.append(f"- {_escaped(cell)}{shown}: {_escaped(row['note'])}")
        parts.append("\n".join(lines))
    if not parts:
        return []
    return [
        f"On the {len(parts)} questions of {experiment.sets[of]} whose ids have the smallest SHA-256: "
        f"the question, its gold answer, and the cells' notes, each with its score ({metric}), "
        "of the first seed if there are several.",
        *parts,
    ]


def questions_asked(experiment: Experiment, notes: Notes) -> Table:
    """How many questions each set has, and a hash of their ids."""
    rows = []
    for of, title in experiment.sets.items():
        ids = sorted({row["question_id"] for row in notes.rows if row["set"] == of})
        if ids:
            rows.append([title, str(len(ids)), hashlib.sha256("".join(f"{id}\n" for id in ids).encode()).hexdigest()])
    return "SHA-256 of the ids in their order as text, each followed by a line break", ["set", "questions", "ids"], rows


def _escaped(text: str) -> str:
    return " ".join(text.split()).translate(MARKDOWN)
