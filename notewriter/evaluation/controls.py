"""The scores without a model in a finished run: of notes by rule (`rollouts.controls`), and of constant answers.

Longer notes contain more, whoever wrote them, so a control is cut at as many words as the note beside it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.predictions import Prediction, read_predictions
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.run_record import read_inputs
from notewriter.artifacts.traces import Trace, read_traces
from notewriter.datasets import load_questions
from notewriter.evaluation import metrics
from notewriter.evaluation.notes import WORDS, note_scores
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import first_words, normalise, words_in
from notewriter.retrieval.index_folder import index_fingerprint
from notewriter.retrieval.passages import Passages
from notewriter.retrieval.steps.shuffle import shuffled
from notewriter.rollouts.controls import CONTROLS, REGRESSION, facts_among
from notewriter.rollouts.regression import Regression

CONTENDERS = ("lead", "first", "overlap", "random")
"""The controls that a note-writer has to beat. Not `similar`, which takes a sentence encoder."""

OTHER, CEILING = "other", "gold"

SHOWN = (*CONTENDERS, OTHER, CEILING)
"""The controls that stand beside a run: the contenders, a note that knows nothing, and the ceiling."""

SENTENCES = {name: control.sentence for name, control in CONTROLS.items()} | {
    OTHER: "the run's note of another question",
    REGRESSION: "the sentences that a regression fitted on training questions ranks highest",
}
"""Control -> its description."""

Scores = dict[str, dict[str, dict[str, float]]]
"""Control, or constant answer -> question id -> metric -> value."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A question of a finished run: the passages that any of its searches found, each once, and the note it wrote."""

    question: Question
    passages: Iterable[Passage]
    note: str

    @property
    def at_hand(self) -> list[str]:
        """The supporting facts among the passages."""
        return facts_among(self.question, list(self.passages))


class _Found(Iterable[Passage]):
    """A sequence of passages, read from their indexes each time, so that not all of them must fit into memory."""

    def __init__(self, read: Sequence[Callable[[], Passage]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Passage]:
        return (read() for read in self._read)


def readings(run: Path) -> list[Reading]:
    """The questions of a finished run; none for a run without notes.

    After an error a note has no words. Questions are read from the run's question file, passages from its indexes.

    Raises:
        UserError: the run's question file or an index is missing or not the one that the run used, or its passages are
            in no index on this machine.
    """
    predictions = read_predictions(run / "predictions.jsonl")
    words = {id: int(each.scores[WORDS]) for id, each in predictions.items() if WORDS in each.scores}
    if not words:
        return []
    config = read_config(run)
    path = str(config.get("path"))
    try:
        questions = {question.id: question for question in load_questions(str(config.get("dataset")), path)}
    except UserError as error:
        raise UserError(f"{run / CONFIG}: {error}") from error
    stores = _stores(run)
    seeds = [part.get("seed", 0) for part in config.get("retriever") or [] if "shuffle" in part]
    found = []
    for trace in read_traces(run / "traces.jsonl"):
        if (id := trace.question_id) in words:
            question = questions.get(id)
            if question is None or question.question != predictions[id].question:
                raise UserError(f"{path}: question {id!r} is not the one that {run} answered; restore the file")
            note = predictions[id].note if words[id] else ""
            found.append(Reading(question, _retrieved(trace, stores, seeds, run), note))
    return found


def control_notes(
    read: Sequence[Reading],
    names: Sequence[str] = SHOWN,
    words: int | None = None,
    fitted: Regression | None = None,
) -> dict[str, dict[str, str]]:
    """Notes without a model: control -> question id -> note of at most `words`; None: of as many as the run's note.

    `fitted` writes those of `regression`. `other` is the note of the next question, in turn, whose note has as many
    words, or else of the next one.
    """
    writers = {name: control.write for name, control in CONTROLS.items()}
    writers |= {REGRESSION: fitted.write} if fitted else {}
    notes: dict[str, dict[str, str]] = {name: {} for name in names}
    for place, each in enumerate(tqdm(read, desc="controls", unit=" questions", leave=False, delay=2)):
        passages = list(each.passages)
        budget = len(words_in(each.note)) if words is None else words
        for name in names:
            if name == OTHER:
                others = [*read[place + 1 :], *read[:place]]
                note = next((other.note for other in others if len(words_in(other.note)) >= budget), "")
                notes[name][each.question.id] = first_words(note or (others[0].note if others else ""), budget)
            else:
                notes[name][each.question.id] = writers[name](each.question, passages, budget)
    return notes


def control_scores(run: Path) -> Scores:
    """The scores of notes without a model in a finished run, at as many words as its notes (`note_scores`).

    Empty for a run without notes.

    Raises:
        UserError: as `readings`.
    """
    read = readings(run)
    by_id = {each.question.id: each for each in read}
    return {
        control: {id: note_scores(note, by_id[id].question, by_id[id].at_hand) for id, note in notes.items()}
        for control, notes in (control_notes(read) if read else {}).items()
    }


def constant_scores(predictions: Iterable[Prediction], family: str) -> Scores:
    """The scores of "no" and of the commonest gold answer, where at least a third of the questions is yes or no.

    Args:
        predictions: the run's, for its questions.
        family: the metric family that scores answers.
    """
    questions = [
        Question(each.question_id, each.question, tuple(each.answers), metadata=each.metadata) for each in predictions
    ]
    golds = [{normalise(answer) for answer in question.answers} for question in questions]
    if 3 * sum(bool(gold & {"yes", "no"}) for gold in golds) < max(1, len(golds)):
        return {}
    commonest = Counter(answer for gold in golds for answer in sorted(gold)).most_common(1)[0][0]
    return {
        answer: {question.id: metrics.score(family, answer, question) for question in questions}
        for answer in dict.fromkeys(("no", commonest))
    }


def controls_summary(run: Path, family: str) -> dict[str, dict[str, Interval]]:
    """The scores of controls and constant answers in a finished run, with intervals, for metrics.json.

    Raises:
        UserError: as `readings`.
    """
    constants = constant_scores(read_predictions(run / "predictions.jsonl").values(), family)
    scores = control_scores(run) | {f'"{answer}"': each for answer, each in constants.items()}
    return {
        name: {
            metric: bootstrap_interval([each[metric] for each in by_question.values() if metric in each])
            for metric in dict.fromkeys(metric for each in by_question.values() for metric in each)
        }
        for name, by_question in scores.items()
    }


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


def _retrieved(trace: Trace, stores: Sequence[Passages], seeds: Sequence[int], run: Path) -> _Found:
    """The passages found by any search of a trace, each once, the first found first, shuffled as in the run."""
    passages: dict[str, Callable[[], Passage]] = {}
    for step in trace.retrievals:
        for id in [found["id"] for found in step.passages if found["id"] not in passages]:
            places = ((store, store.find(id)) for store in stores)
            store, place = next(((store, place) for store, place in places if place is not None), (None, None))
            if store is None or place is None:
                raise UserError(
                    f"{run}: passage {id!r} is in none of its indexes on this machine; search a local index"
                )
            passages[id] = partial(_read, store, place, step.query, seeds)
    return _Found(list(passages.values()))


def _read(store: Passages, place: int, query: str, seeds: Sequence[int]) -> Passage:
    passage = store[place]
    for seed in seeds:
        passage = shuffled(query, passage, seed)
    return passage
