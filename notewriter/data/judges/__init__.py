"""The judges by name. Each is an async function that compares the candidates of one prompt."""

from typing import NamedTuple, get_args

from notewriter.data.judges.case import Judge
from notewriter.data.judges.decision import decision
from notewriter.data.judges.gain import gain
from notewriter.data.judges.llm import llm
from notewriter.data.judges.metric import metric
from notewriter.data.judges.outcome import outcome
from notewriter.data.judges.reference import reference
from notewriter.data.judges.retrieval import retrieval
from notewriter.data.judges.status import status
from notewriter.ground.plugins import Plugins
from notewriter.models import Role
from notewriter.rollouts.method import Kind


class Entry(NamedTuple):
    """A judge, the kinds of candidates that it understands, and the roles that need a model of their own."""

    judge: Judge
    kinds: tuple[Kind, ...] = get_args(Kind)
    roles: tuple[Role, ...] = ()


JUDGES: Plugins[Entry] = Plugins(
    "judges",
    Entry,
    {
        "llm": Entry(llm),
        "outcome": Entry(outcome),
        "gain": Entry(gain, ("note", "updated note"), roles=("answer",)),
        "decision": Entry(decision, ("updated note",)),
        "metric": Entry(metric, ("answer",)),
        "reference": Entry(reference, ("note", "updated note", "document note")),
        "retrieval": Entry(retrieval, ("query",)),
        "status": Entry(status, ("status",)),
    },
)
