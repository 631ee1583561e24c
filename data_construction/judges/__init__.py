"""The judges by name. Each is an async function that compares the candidates of one prompt."""

from typing import NamedTuple, get_args

from data_construction.judges.case import Judge
from data_construction.judges.decision import decision
from data_construction.judges.gain import gain
from data_construction.judges.llm import llm
from data_construction.judges.metric import metric
from data_construction.judges.outcome import outcome
from data_construction.judges.reference import reference
from data_construction.judges.retrieval import retrieval
from data_construction.judges.status import status
from notewriter.method import Kind, Role


class Entry(NamedTuple):
    """A judge, the kinds of candidates that it understands, and the roles that need a model of their own."""

    judge: Judge
    kinds: tuple[Kind, ...] = get_args(Kind)
    roles: tuple[Role, ...] = ()


JUDGES: dict[str, Entry] = {
    "llm": Entry(llm),
    "outcome": Entry(outcome),
    "gain": Entry(gain, ("note", "updated note"), roles=("answer",)),
    "decision": Entry(decision, ("updated note",)),
    "metric": Entry(metric, ("answer",)),
    "reference": Entry(reference, ("note", "updated note", "document note")),
    "retrieval": Entry(retrieval, ("query",)),
    "status": Entry(status, ("status",)),
}
