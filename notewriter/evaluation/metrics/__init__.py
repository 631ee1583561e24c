"""Metric families, each following the rules of the benchmark it is named after; one file per family."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.metrics import (
    asqa,
    deepnote,
    drop,
    fanoutqa,
    hotpotqa,
    multihoprag,
    musique,
    nq,
    own,
    popqa,
    ruler,
    strategyqa,
    triviaqa,
    two_wiki_multihop_qa,
)
from notewriter.evaluation.metrics.metric import Family, Metric
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import Misreturn, Plugins, faults_of
from notewriter.ground.records import Question

FAMILIES: Plugins[Family] = Plugins(
    "metrics",
    Family,
    {
        "own": own.FAMILY,
        "hotpotqa": hotpotqa.FAMILY,
        "2wikimultihopqa": two_wiki_multihop_qa.FAMILY,
        "musique": musique.FAMILY,
        "deepnote": deepnote.FAMILY,
        "drop": drop.FAMILY,
        "nq": nq.FAMILY,
        "triviaqa": triviaqa.FAMILY,
        "popqa": popqa.FAMILY,
        "ruler": ruler.FAMILY,
        "strategyqa": strategyqa.FAMILY,
        "multihoprag": multihoprag.FAMILY,
        "asqa": asqa.FAMILY,
        "fanoutqa": fanoutqa.FAMILY,
    },
)


def check_questions(family: str, questions: Iterable[Question]) -> None:
    """Check that questions have the references of a family, before answers are paid for.

    Raises:
        UserError: no such family, or a question that lacks it.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    for question in questions:
        with _naming(family, question, chosen.golds):
            if not (question.answers and chosen.golds(question)):
                raise UserError(
                    f"question {question.id}: has no gold answer for metric family {family}; {_remedy(family)}"
                )


def score(family: str, prediction: str, question: Question) -> dict[str, float]:
    """Score a prediction with a family; returns a number for each of its metrics, in [0, 1] for those that are shares.

    Raises:
        UserError: no such family, a question without its references, or a fault of a family of somebody
            else's.
        ValueError: the question has no gold answer.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    if not question.answers:
        raise ValueError(f"question {question.id}: a prediction cannot be scored without a gold answer")
    with _naming(family, question, chosen.score):
        return _checked(chosen.score(prediction, question), chosen.metrics)


def _checked(scores: Any, metrics: Sequence[Metric]) -> dict[str, float]:
    """The scores that a family returned: one finite number for each of its metrics.

    Raises:
        Misreturn: they are anything else.
    """
    names = [metric.name for metric in metrics]
    if inspect.iscoroutine(scores):
        scores.close()
        raise Misreturn("returned a coroutine; a family's function is no `async def`")
    if not isinstance(scores, dict):
        raise Misreturn(f"returned {scores!r}, not a dict of a number for each of: {', '.join(names)}")
    if undeclared := scores.keys() - set(names):
        raise Misreturn(f"returned {min(undeclared, key=str)!r}, which is none of its metrics: {', '.join(names)}")
    for metric in metrics:
        if metric.name not in scores:
            raise Misreturn(f"returned no {metric.name!r}; every question needs a number for it")
        value = scores[metric.name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise Misreturn(f"returned {value!r} for {metric.name!r}, which is no finite int or float")
        if metric.share and not 0 <= round(value, 9) <= 1:
            raise Misreturn(
                f"returned {value!r} for {metric.name!r}, which is a share of 0 to 1 unless its Metric has share=False"
            )
    return scores


@contextlib.contextmanager
def _naming(family: str, question: Question, function: Callable[..., Any]) -> Iterator[None]:
    """Turn the errors of a question that a family cannot score into a `UserError` that names it.

    Those of a family of somebody else's are faults of its own, whatever they are.
    """
    if family not in FAMILIES.ours:
        with faults_of(lambda: f"question {question.id}: metric family {family}", function):
            yield
        return
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, KeyError):
            raise UserError(
                f"question {question.id}: has no {error} for metric family {family}; {_remedy(family)}"
            ) from error
        if isinstance(error, (TypeError, AttributeError, ZeroDivisionError)):
            raise UserError(
                f"question {question.id}: its metadata does not fit metric family {family} ({error}); {_remedy(family)}"
            ) from error
        raise


def _remedy(family: str) -> str:
    """The benchmarks whose questions have the references of a family."""
    benchmarks = [name for name, benchmark in BENCHMARKS.items() if benchmark.family == family]
    return f"load it with dataset: {' or '.join(benchmarks)}" if benchmarks else "choose another family"
