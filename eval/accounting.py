"""What runs cost: calls, tokens, seconds and money, by stage and role."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from eval.metrics.metric import Metric
from notewriter.artifacts.costs import Costs, StageCosts
from notewriter.artifacts.predictions import Prediction
from notewriter.artifacts.traces import Trace
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.models.roles import ROLES

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

Prices = Mapping[str, list[float]]
"""Role -> price of a million prompt tokens, of a million completion tokens; other roles cost nothing."""

Calls = dict[tuple[str, str], StageCosts]
"""Stage and role -> sums over the calls."""


class Call(Protocol):
    """The cost of a model call, or of several."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens sent."""

    @property
    def cached_tokens(self) -> int:
        """Those of them that the server had in its prefix cache."""

    @property
    def completion_tokens(self) -> int:
        """Tokens received."""

    @property
    def seconds(self) -> float:
        """Time spent waiting."""


def check_prices(prices: Mapping[str, object]) -> None:
    """Check that each role has two prices.

    Raises:
        UserError: names the role.
    """
    for role, price in prices.items():
        choose("role in prices", role, dict.fromkeys(ROLES))
        if not (isinstance(price, list) and len(price) == 2 and all(type(each) in (int, float) for each in price)):
            raise UserError(
                f"prices: {role}: {price!r} is not [price of a million prompt tokens, of a million completion tokens]"
            )


def run_costs(traces: Iterable[Trace], predictions: Iterable[Prediction], prices: Prices) -> Costs:
    """The costs of a run: sums by stage and role, events that methods counted, compression, money.

    Args:
        traces: the traces of the questions.
        predictions: their predictions, for the lengths in words whose ratio is ReSP's compression (section 5.2).
        prices: see `Prices`.
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


def add_call(calls: Calls, stage: str, role: str, call: Call) -> None:
    """Add a call to the sums of its stage and role."""
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
        prompt, completion = prices.get(role, (0.0, 0.0))
        money += (prompt * sums.prompt_tokens + completion * sums.completion_tokens) / 1e6
    return Costs(
        stages={f"{stage} ({role})": sums for (stage, role), sums in calls.items()},
        money=round(money, 6) if prices else None,
        counts=counts or {},
        compression=compression,
    )
