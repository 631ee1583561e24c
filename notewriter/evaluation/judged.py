"""What was judged of a run, merged into its predictions and metrics."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from notewriter.artifacts.judgements import FOLDER, Judgement, read_judgements
from notewriter.artifacts.predictions import Prediction
from notewriter.evaluation.judgements import JUDGEMENTS
from notewriter.ground.errors import UserError

RunJudgements = Mapping[str, Mapping[str, Judgement]]
"""Name of the judgement -> question id -> judgement."""


def read_run_judgements(run: Path) -> RunJudgements:
    """The judgements in a run's folder; empty where none was made.

    Raises:
        UserError: a line is not what `notewriter judge` writes.
    """
    paths = {name: run / FOLDER / f"{name}.jsonl" for name in JUDGEMENTS}
    return {name: read_judgements(path) for name, path in paths.items() if path.exists()}


def with_judgements(prediction: Prediction, judgements: RunJudgements, run: Path) -> Prediction:
    """A prediction with the scores of its judgements in place of those that a judge gave before.

    Raises:
        UserError: the judged answer was a different one.
    """
    judged = {score for kind in JUDGEMENTS.values() for score in kind.scores}
    scores = {name: value for name, value in prediction.scores.items() if name not in judged}
    for by_question in judgements.values():
        if judgement := by_question.get(prediction.question_id):
            if judgement.prediction != prediction.prediction:
                raise UserError(
                    f"{run / FOLDER}: question {prediction.question_id!r} had a different answer when it was judged; "
                    f"remove {run / FOLDER} and run `notewriter judge` again"
                )
            scores |= judgement.scores
    return replace(prediction, scores=scores)


def summary_of(judgements: RunJudgements) -> dict[str, dict[str, object]] | None:
    """The `judged` section of metrics.json: judgement -> what came of it; None where nothing was judged.

    For each: the judge's `model`, how many questions have scores (`scored`), how many have none by reason
    (`left_out`), and sums of the counts and of the judge's tokens.
    """
    summaries: dict[str, dict[str, object]] = {}
    for name, by_question in judgements.items():
        counts: Counter[str] = Counter()
        for judgement in by_question.values():
            counts.update(judgement.counts)
            counts["prompt_tokens"] += judgement.prompt_tokens
            counts["completion_tokens"] += judgement.completion_tokens
        summaries[name] = {
            "model": ", ".join(sorted({judgement.model for judgement in by_question.values()})),
            "scored": sum(not judgement.reason for judgement in by_question.values()),
            "left_out": left_out(by_question),
            **dict(sorted(counts.items())),
        }
    return summaries or None


def left_out(judgements: Mapping[str, Judgement]) -> dict[str, int]:
    """Reason -> how many questions have no scores because of it."""
    return dict(sorted(Counter(each.reason for each in judgements.values() if each.reason).items()))
