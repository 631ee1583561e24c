"""Finished runs beside notes without a model (`evaluation.controls`), and beside constant answers."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import CEILING, CONTENDERS, OTHER, Scores, constant_scores, control_scores
from notewriter.evaluation.notes import ANSWER, FACTS, WORDS
from notewriter.ground.errors import UserError
from notewriter.results.compare import ByQuestion, Comparison, compared, corrected
from notewriter.results.measures import measured
from notewriter.results.runs import Run


class Beside(NamedTuple):
    """Runs beside controls and constant answers, or the reason why their notes are not."""

    notes: dict[str, Comparison]
    answers: dict[str, Comparison]
    reason: str = ""


def beside(runs: Sequence[Run]) -> Beside:
    """Runs, which are one configuration under several seeds, beside controls and constants."""
    answers: dict[str, Comparison] = {}
    try:
        answers = against_constants(runs)
        return Beside(against_controls(runs), answers)
    except UserError as error:
        return Beside({}, answers, str(error))


def against_controls(runs: Sequence[Run]) -> dict[str, Comparison]:
    """Control -> the scores of its notes ("before") beside those of the runs' notes ("after"), p-values corrected.

    Several runs are one configuration under several seeds. Empty without runs and for runs without notes.

    Raises:
        UserError: as `control_scores`.
    """
    return _against(runs, [control_scores(run.folder) for run in runs], (FACTS, ANSWER, WORDS))


def against_constants(runs: Sequence[Run]) -> dict[str, Comparison]:
    """As `against_controls`: constant answer -> its scores beside those of the runs' answers (`constant_scores`)."""
    return _against(runs, [_constants(run) for run in runs], measured(runs))


def _constants(run: Run) -> Scores:
    try:
        return constant_scores(run.predictions.values(), run.family)
    except UserError as error:
        raise UserError(f"{run.folder / 'metrics.json'}: {error}") from error


def _against(runs: Sequence[Run], others: Sequence[Scores], metrics: Sequence[str]) -> dict[str, Comparison]:
    """Name of another writer, or answer -> its scores beside those of the runs; none where any run has no others."""
    if not others or not all(others):
        return {}
    after = [{id: each.scores for id, each in run.predictions.items()} for run in runs]
    shared = [name for name in others[0] if all(name in each for each in others)]
    return corrected_scores({name: compared([each[name] for each in others], after, metrics) for name in shared})


def corrected_scores(against: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Comparisons with controls, their p-values corrected for all scores that have a better direction."""
    scores = [{n: each for n, each in of.items() if metric_named(n).better is not None} for of in against.values()]
    return {name: {**against[name], **of} for name, of in zip(against, corrected(scores), strict=True)}


def highest(means: Mapping[str, float]) -> str:
    """The control with the highest mean, the first of equal ones; empty without any."""
    return max(means, key=means.__getitem__, default="")


def best_contender(against: Mapping[str, Comparison]) -> str:
    """The contender whose notes hold most of the facts, of `against_controls`; empty without one."""
    return highest({name: of[FACTS].before for name, of in against.items() if name in CONTENDERS and FACTS in of})


def highest_control(scores: Mapping[str, ByQuestion], metric: str) -> str:
    """The contender with the highest mean of a metric; empty where none has it."""
    values = {name: [each[metric] for each in of.values() if metric in each] for name, of in scores.items()}
    return highest({name: fmean(each) for name, each in values.items() if each and name not in (OTHER, CEILING)})
