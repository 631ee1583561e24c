"""The verdict of a comparison in one sentence, from the intervals and p-values of its tables."""

import math
from collections.abc import Mapping

from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.evaluation.catalogue import HEADLINE, metric_named
from notewriter.evaluation.controls import SENTENCES
from notewriter.evaluation.notes import FACTS, WORDS
from notewriter.results.compare import Comparison, Paired, is_sure
from notewriter.results.origins import origins_of, statistics_of
from notewriter.results.runs import Run
from notewriter.results.without_a_model import best_contender

LEARNT = 400
"""Questions to learn from up to which a model of 135M was seen to gain from more (docs/results/worth.md)."""


def verdict(before: Run, after: Run, comparison: Comparison, against: Mapping[str, Comparison]) -> str:
    """Whether the run after is better than the one before, and than notes without a model.

    Notes are judged by the supporting facts in them, runs without notes by their first score. A difference counts where
    its table has an asterisk.

    Args:
        before: the run that is compared with, or the first of several seeds.
        after: the other one.
        comparison: of both, with corrected p-values.
        against: control -> its notes beside those of the run after, with corrected p-values; may be empty.

    Returns:
        A sentence and, unless training helped, the numbers of questions that were too few: to tell a difference whose
        interval includes zero, and to learn from. Empty without a score in common.
    """
    measure = next((name for name in (FACTS, *HEADLINE) if name in comparison), None)
    if measure is None:
        return ""
    gain, best = comparison[measure], best_contender(against) if measure == FACTS else ""
    models = before.metrics.model, after.metrics.model
    # A run without a model, a control's, has an empty name.
    trained = before.metrics.method == after.metrics.method and all(models) and models[0] != models[1]
    name = after.label or after.metrics.name
    than_before = _more(measure, gain, "before" if trained else before.label or before.metrics.name)
    if (words := comparison.get(WORDS)) and measure == FACTS and is_sure(WORDS, words):
        than_before += f" ({words.difference.mean:+,.0f} words)"
    if best and is_sure(FACTS, against[best][FACTS]) and against[best][FACTS].difference.mean < 0:
        fewer = against[best][FACTS].difference.text(sign="+")
        what = "this model" if trained else name
        said = f"Do not use {what}: its notes hold fewer facts than {SENTENCES[best]} ({best}: {fewer}); {than_before}."
        return said + _too_few(after, trained)
    if not is_sure(measure, gain):
        opening = f"Nothing shows that {'training helped' if trained else f'{name} is better'}"
    elif gain.difference.mean > 0:
        opening = "Training helped" if trained else f"{name} is better"
    else:
        opening = "Training hurt" if trained else f"{name} is worse"
    if not best:
        return f"{opening}: {than_before}.{_too_few(after, trained, (measure, gain))}"
    beyond = against[best][FACTS]
    chance = "" if is_sure(FACTS, beyond) else ", which may be chance"
    said = f"{opening}: {than_before}, and {_more('', beyond, f'the best note without a model ({best})')}{chance}."
    return said + _too_few(after, trained, (measure, gain), (FACTS, beyond))


def _too_few(after: Run, trained: bool, *differences: tuple[str, Paired]) -> str:
    """How many more questions are needed: to tell the differences from chance, and to learn from.

    Over n times as many questions an interval is narrower by about the square root of n. The number told is that at
    which the nearest difference that is not sure yet would exclude zero, if it stays as it is.
    """
    unsure = [each for _, each in differences if each.difference.mean and not each.difference.excludes_zero]
    if differences and all(is_sure(name, each) and each.difference.mean > 0 for name, each in differences):
        return ""
    said = ""
    if unsure:
        nearest = min(unsure, key=_questions_to_tell)
        said = (
            f" {nearest.questions:,} questions are few to judge by: if it stays at {nearest.difference.mean:+.3f}, a "
            f"difference is told from chance with about {_questions_to_tell(nearest):,}."
        )
    if trained and (asked := _learnt_from(after)) and asked < LEARNT:
        said += (
            f" It learnt from {asked:,} questions, which are few: with {LEARNT - asked:,} more there would be the "
            f"{LEARNT} up to which notes were seen to gain (docs/worth.md)."
        )
    return said


def _questions_to_tell(paired: Paired) -> int:
    """The questions over which an interval around this difference would end at zero."""
    difference = paired.difference
    reach = difference.mean - difference.low if difference.mean > 0 else difference.high - difference.mean
    return math.ceil(paired.questions * (reach / difference.mean) ** 2)


def _learnt_from(run: Run) -> int:
    """The questions of the data that a run's model was trained on; 0 where no record tells.

    Gold evidence and pairs of the same questions count once.
    """
    if not (run.folder / CONFIG).is_file():
        return 0
    asked: dict[str, int] = {}
    for folder, record in statistics_of(origins_of(run.folder).data):
        config = read_config(folder) if (folder / CONFIG).is_file() else {}
        questions = f"{config.get('path', folder)} {config.get('question_set')}"
        asked[questions] = max(asked.get(questions, 0), record["questions"])
    return sum(asked.values())


def _more(name: str, paired: Paired, than: str) -> str:
    """Such as `notes hold 0.120 more of the facts than before [+0.060, +0.180]`."""
    if paired.is_unchanged and name == FACTS:
        return f"notes hold as much of the facts as {than}"
    mean, _, interval = paired.difference.text(sign="+").partition(" ")
    amount = f"{mean[1:]} {'less' if mean.startswith('-') else 'more'}"
    what = {FACTS: f"notes hold {amount} of the facts", "": amount}
    return f"{what.get(name) or f'{metric_named(name).label} is {amount}'} than {than} {interval}"
