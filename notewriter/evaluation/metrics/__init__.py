"""Metric families, each following the rules of the benchmark it is named after; one file per family."""

import contextlib
from collections.abc import Iterable, Iterator

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
from notewriter.evaluation.metrics.metric import Family
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import Plugins, fault
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


def check_family(family: str) -> None:
    """Check that a family exists and can score, before answers are paid for.

    Raises:
        UserError: no such family, or a package that it needs is not installed.
    """
    choose("metric family", family, FAMILIES).check()


def check_questions(family: str, questions: Iterable[Question]) -> None:
    """Check that questions contain what a family scores against, before answers are paid for.

    Raises:
        UserError: no such family, or a question that lacks it.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    for question in questions:
        with _naming(family, question):
            if not (question.answers and chosen.golds(question)):
                raise UserError(
                    f"question {question.id}: has no gold answer for metric family {family}; "
                    f"load it with dataset: {family}"
                )


def score(family: str, prediction: str, question: Question) -> dict[str, float]:
    """Score a prediction with a family; returns each metric in [0, 1].

    Raises:
        UserError: no such family, or a question that lacks what it scores against.
        ValueError: the question has no gold answer.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    if not question.answers:
        raise ValueError(f"question {question.id}: a prediction cannot be scored without a gold answer")
    with _naming(family, question):
        return chosen.score(prediction, question)


@contextlib.contextmanager
def _naming(family: str, question: Question) -> Iterator[None]:
    """Turn the errors of a question that a family cannot score into a `UserError` that names it.

    Those of a family of somebody else's are faults of its own, whatever they are.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if family not in FAMILIES.ours:
            raise UserError(
                f"question {question.id}: metric family {family} ended in {fault(error)}; correct it there"
            ) from error
        remedy = f"load it with dataset: {family}"
        if isinstance(error, KeyError):
            raise UserError(f"question {question.id}: has no {error} for metric family {family}; {remedy}") from error
        if isinstance(error, (TypeError, AttributeError, ZeroDivisionError)):
            raise UserError(
                f"question {question.id}: its metadata does not fit metric family {family} ({error}); {remedy}"
            ) from error
        raise
