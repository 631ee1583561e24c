"""The cost of runs: calls, tokens, seconds and money, by stage and role."""

from collections import Counter
from collections.abc import Iterable

from notewriter.artifacts.costs import Costs, StageCosts
from notewriter.artifacts.judgements import Judgement
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.traces import Trace
from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.records import Completion
from notewriter.models.prices import Prices, cost

METRICS = tuple(
    Metric(name, label, meaning, better=None, decimals=1, share=False)
    for name, label, meaning in (
        ("calls", "Model calls", "Requests to a language model, including the method's own judges."),
        ("retrievals", "Retrievals", "Queries sent to the passage index."),
        ("prompt_tokens", "Prompt tokens", "Tokens sent to models."),
        ("cached_tokens", "Prompt tokens from the cache", "Prompt tokens that the server had in its prefix cache."),
        ("completion_tokens", "Completion tokens", "Tokens written by models."),
        ("seconds", "Seconds of model calls", "Time spent waiting for models; concurrent calls add up."),
    )
)
"""Names of what a question cost."""

Calls = dict[tuple[str, str], StageCosts]
"""Stage and role -> sums over the calls."""


def run_costs(traces: Iterable[Trace], predictions: Iterable[Prediction], prices: Prices) -> Costs:
    """The costs of a run: sums by stage and role, events that methods counted, compression, money.

    Args:
        traces: the traces of the questions.
        predictions: their predictions, for the lengths in words whose ratio is ReSP's compression (section 5.2).
        prices: see `notewriter.models.prices.Prices`.
    """
    calls: Calls = {}
    counts: Counter[str] = Counter()
    for trace in traces:
        counts.update(trace.counts)
        for step in trace.generations:
            add_call(calls, step.stage, step.role, step.completion)
    retrieved = answered_from = 0
    for prediction in predictions:
        retrieved += prediction.words_retrieved
        answered_from += prediction.words_answered_from
    compression = round(retrieved / answered_from, 3) if retrieved and answered_from else None
    return costs_of(calls, prices, counts=dict(sorted(counts.items())), compression=compression)


def add_call(calls: Calls, stage: str, role: str, call: Completion | Judgement) -> None:
    """Add a call, or all calls of a judgement, to the sums of their stage and role."""
    sums = calls.setdefault((stage, role), StageCosts(0, 0, 0, 0, 0.0))
    sums.calls += 1
    sums.prompt_tokens += call.prompt_tokens
    sums.cached_tokens += call.cached_tokens
    sums.completion_tokens += call.completion_tokens
    sums.seconds += call.seconds


def costs_of(
    calls: Calls, prices: Prices, *, counts: dict[str, int] | None = None, compression: float | None = None
) -> Costs:
    """Sums of calls as they are written to disk: seconds in milliseconds' precision, and money at the given prices."""
    money = 0.0
    for (_, role), sums in calls.items():
        sums.seconds = round(sums.seconds, 3)
        money += cost(prices, role, sums.prompt_tokens, sums.completion_tokens)
    return Costs(
        stages={f"{stage} ({role})": sums for (stage, role), sums in calls.items()},
        money=round(money, 6) if prices else None,
        counts=counts or {},
        compression=compression,
    )
