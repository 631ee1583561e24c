"""What a comparison says in one sentence, from the intervals and p-values of its tables."""

from collections.abc import Mapping

from notewriter.evaluation.catalogue import HEADLINE, metric_named
from notewriter.evaluation.controls import CONTENDERS, SENTENCES
from notewriter.evaluation.notes import FACTS, WORDS
from notewriter.results.compare import Comparison, Paired, is_sure
from notewriter.results.runs import Run


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
        A sentence; empty without a score in common.
    """
    measure = next((name for name in (FACTS, *HEADLINE) if name in comparison), None)
    if measure is None:
        return ""
    gain, best = comparison[measure], best_contender(against) if measure == FACTS else None
    trained = before.metrics.method == after.metrics.method and before.metrics.model != after.metrics.model
    name = after.label or after.metrics.name
    than_before = _more(measure, gain, "before" if trained else before.label or before.metrics.name)
    if (words := comparison.get(WORDS)) and measure == FACTS and is_sure(WORDS, words):
        than_before += f" ({words.difference.mean:+,.0f} words)"
    if best and is_sure(FACTS, against[best][FACTS]) and against[best][FACTS].difference.mean < 0:
        fewer = against[best][FACTS].difference.text(sign="+")
        what = "this model" if trained else name
        return f"Do not use {what}: its notes hold fewer facts than {SENTENCES[best]} ({best}: {fewer}); {than_before}."
    if not is_sure(measure, gain):
        opening = f"Nothing shows that {'training helped' if trained else f'{name} is better'}"
    elif gain.difference.mean > 0:
        opening = "Training helped" if trained else f"{name} is better"
    else:
        opening = "Training hurt" if trained else f"{name} is worse"
    if not best:
        return f"{opening}: {than_before}."
    beyond = against[best][FACTS]
    chance = "" if is_sure(FACTS, beyond) else ", which may be chance"
    return f"{opening}: {than_before}, and {_more('', beyond, f'the best note without a model ({best})')}{chance}."


def best_contender(against: Mapping[str, Comparison]) -> str | None:
    """The control whose notes hold most of the facts; None without one."""
    facts = {name: against[name][FACTS].before for name in CONTENDERS if FACTS in against.get(name, {})}
    return max(facts, key=facts.__getitem__, default=None)


def _more(name: str, paired: Paired, than: str) -> str:
    """Such as `notes hold 0.120 more of the facts than before [+0.060, +0.180]`."""
    if paired.is_unchanged and name == FACTS:
        return f"notes hold as much of the facts as {than}"
    mean, _, interval = paired.difference.text(sign="+").partition(" ")
    amount = f"{mean[1:]} {'less' if mean.startswith('-') else 'more'}"
    what = {FACTS: f"notes hold {amount} of the facts", "": amount}
    return f"{what.get(name) or f'{metric_named(name).label} is {amount}'} than {than} {interval}"
