"""Metric families, each under the rules of the benchmark that it is named after; one file a family."""

from eval.metrics import (
    asqa,
    deepnote,
    drop,
    fanoutqa,
    hotpotqa,
    multihoprag,
    musique,
    nq,
    strategyqa,
    two_wiki_multihop_qa,
)
from eval.metrics.metric import Family
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.records import Question

FAMILIES: dict[str, Family] = {
    "hotpotqa": hotpotqa.FAMILY,
    "2wikimultihopqa": two_wiki_multihop_qa.FAMILY,
    "musique": musique.FAMILY,
    "deepnote": deepnote.FAMILY,
    "drop": drop.FAMILY,
    "nq": nq.FAMILY,
    "strategyqa": strategyqa.FAMILY,
    "multihoprag": multihoprag.FAMILY,
    "asqa": asqa.FAMILY,
    "fanoutqa": fanoutqa.FAMILY,
}


def check_family(family: str) -> None:
    """Make sure that a family can score, before answers are paid for.

    Raises:
        UserError: there is no such family, or what it needs is not installed.
    """
    choose("metric family", family, FAMILIES).check()


def score(family: str, prediction: str, question: Question) -> dict[str, float]:
    """Score a prediction by the rules of a family, each metric in [0, 1].

    Raises:
        UserError: no such family, or a question that lacks what this one scores against.
        ValueError: the question has no gold answer.
    """
    chosen: Family = choose("metric family", family, FAMILIES)
    if not question.answers:
        raise ValueError(f"question {question.id}: a prediction cannot be scored without a gold answer")
    try:
        return chosen.score(prediction, question)
    except KeyError as error:
        raise UserError(
            f"question {question.id}: has no {error} for metric family {family}; load it with dataset: {family}"
        ) from error
    except (TypeError, AttributeError, ZeroDivisionError) as error:
        raise UserError(
            f"question {question.id}: its metadata is not what metric family {family} scores against ({error}); "
            f"load it with dataset: {family}"
        ) from error
