"""The cost of runs: calls, tokens, seconds and money, by stage and role."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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
"""The names of a question's costs."""


class StageCalls(NamedTuple):
    """Sums over the calls of a stage, and when each of them began and ended, as far as that is known."""

    sums: StageCosts
    spans: list[tuple[float, float]]


Calls = dict[tuple[str, str], StageCalls]
"""Stage and role -> their calls."""


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
    """Add a call, or all calls of a judgement, to those of their stage and role."""
    sums, spans = calls.setdefault((stage, role), StageCalls(StageCosts(0, 0, 0, 0, 0.0), []))
    sums.calls += 1
    sums.prompt_tokens += call.prompt_tokens
    sums.cached_tokens += call.cached_tokens
    sums.completion_tokens += call.completion_tokens
    sums.seconds += call.seconds
    if call.ended:
        spans.append((call.ended - call.seconds, call.ended))


def wall_seconds(tallies: Sequence[StageCalls]) -> float | None:
    """The time in which at least one call was under way; None where it is unknown of one of them."""
    spans = sorted(span for tally in tallies for span in tally.spans)
    if not spans or len(spans) < sum(tally.sums.calls for tally in tallies):
        return None
    seconds, reached = 0.0, spans[0][0]
    for began, ended in spans:
        seconds += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return round(seconds, 3)


def costs_of(
    calls: Calls, prices: Prices, *, counts: dict[str, int] | None = None, compression: float | None = None
) -> Costs:
    """Sums of calls as they are written to disk: seconds in milliseconds' precision, and money at the given prices."""
    money = 0.0
    for (_, role), tally in calls.items():
        tally.sums.seconds, tally.sums.wall_seconds = round(tally.sums.seconds, 3), wall_seconds([tally])
        money += cost(prices, role, tally.sums.prompt_tokens, tally.sums.completion_tokens)
    return Costs(
        stages={f"{stage} ({role})": tally.sums for (stage, role), tally in calls.items()},
        money=round(money, 6) if prices else None,
        counts=counts or {},
        compression=compression,
        wall_seconds=wall_seconds([*calls.values()]),
    )
