"""Finished runs beside notes that no model wrote, and beside constant answers."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.predictions import read_predictions
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.controls import CEILING, OTHER, Scores, constant_scores, control_scores
from notewriter.evaluation.notes import ANSWER, FACTS, WORDS
from notewriter.ground.errors import UserError
from notewriter.pages.tables import Table
from notewriter.results.compare import Comparison, compare_scores, corrected, p_value_text


def against_controls(runs: list[Path]) -> dict[str, Comparison]:
    """Control -> the scores of its notes ("before") beside those of the runs' notes ("after"), p-values uncorrected.

    Several runs are one configuration under several seeds. Empty without runs and for runs without notes.

    Raises:
        UserError: as `control_scores`.
    """
    return _against(runs, [control_scores(run) for run in runs], (FACTS, ANSWER, WORDS))


def against_constants(runs: list[Path]) -> dict[str, Comparison]:
    """As `against_controls`: constant answer -> its scores beside those of the runs' answers (`constant_scores`)."""
    scores = [_constants(run) for run in runs]
    return _against(runs, scores, [*dict.fromkeys(_metrics_of(scores))])


def _constants(run: Path) -> Scores:
    predictions, metrics = read_predictions(run / "predictions.jsonl"), run / "metrics.json"
    try:
        return constant_scores(predictions.values(), read_metrics(metrics).family)
    except UserError as error:
        raise UserError(f"{metrics}: {error}") from error


def _metrics_of(sides: Sequence[Scores]) -> Iterator[str]:
    """The names of the metrics of any question."""
    return (
        metric for side in sides for by_question in side.values() for each in by_question.values() for metric in each
    )


def _against(runs: Sequence[Path], others: Sequence[Scores], metrics: Sequence[str]) -> dict[str, Comparison]:
    if not others or not all(others):
        return {}
    after = [
        {id: prediction.scores for id, prediction in read_predictions(run / "predictions.jsonl").items()}
        for run in runs
    ]
    comparisons: dict[str, Comparison] = {}
    for name in [name for name in others[0] if all(name in each for each in others)]:
        before = [each[name] for each in others]
        comparisons[name] = {}
        for metric in metrics:
            shared = [id for id in before[0] if all(metric in scores.get(id, {}) for scores in (*before, *after))]
            if shared:
                comparisons[name][metric] = compare_scores(
                    *([[scores[id][metric] for id in shared] for scores in side] for side in (before, after))
                )
    return comparisons


def beside_table(caption: str, against: Mapping[str, Comparison], label: str) -> Table:
    """A row for each control, and for each score its mean, and the run's minus it with interval and p-value.

    Args:
        caption: the table's.
        against: of `against_controls` or `against_constants`; p-values are corrected here, for those that are shown.
        label: what the run is called.
    """
    tested = [
        {name: paired for name, paired in comparison.items() if metric_named(name).better is not None}
        for comparison in against.values()
    ]
    against = {
        control: {**comparison, **scores}
        for (control, comparison), scores in zip(against.items(), corrected(tested), strict=True)
    }
    names = list(dict.fromkeys(metric for comparison in against.values() for metric in comparison))
    header = [""]
    for name in names:
        header += [name] if metric_named(name).better is None else [name, f"{label} minus it [95% interval]", "p"]
    rows = []
    for control, comparison in against.items():
        row = [control]
        for name in names:
            places, paired = metric_named(name).decimals, comparison.get(name)
            if metric_named(name).better is None:
                row.append(f"{paired.before:.{places}f}" if paired else "")
            elif paired:
                mark = " *" if paired.difference.excludes_zero else "  "
                p_value = p_value_text(name, paired.p_value, paired.at_floor)
                row += [f"{paired.before:.{places}f}", paired.difference.text(places, "+") + mark, p_value]
            else:
                row += ["", "", ""]
        rows.append(row)
    return caption, header, rows


def best_control(scores: Mapping[str, Mapping[str, Mapping[str, float]]], metric: str) -> str | None:
    """The contender with the highest mean of a metric, the first of equal ones; None where none has it."""
    means = {
        name: sum(values) / len(values)
        for name, by_question in scores.items()
        if name not in (OTHER, CEILING)
        and (values := [each[metric] for each in by_question.values() if metric in each])
    }
    return max(means, key=means.__getitem__, default=None)
