"""The judges by name. Each compares the candidates of one prompt, in a file of its own."""

from notewriter.data.judges.case import Judge
from notewriter.data.judges.chance import chance
from notewriter.data.judges.decision import decision
from notewriter.data.judges.gain import gain
from notewriter.data.judges.likelihood import likelihood
from notewriter.data.judges.llm import llm
from notewriter.data.judges.metric import metric
from notewriter.data.judges.next_search import next_search
from notewriter.data.judges.outcome import outcome
from notewriter.data.judges.reference import reference
from notewriter.data.judges.retrieval import retrieval
from notewriter.data.judges.status import status
from notewriter.data.judges.whole_facts import whole_facts
from notewriter.ground.plugins import Plugins

_OURS = (
    chance,
    llm,
    outcome,
    gain,
    decision,
    metric,
    reference,
    whole_facts,
    next_search,
    likelihood,
    retrieval,
    status,
)

JUDGES: Plugins[Judge] = Plugins(
    "judges", Judge, {judge.name: judge for judge in _OURS}, of_function="decorate it with @judge(kind)"
)
