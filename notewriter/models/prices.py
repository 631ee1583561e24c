"""The cost of model calls: prices by role, and the budget of a run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

from annotated_types import Interval

from notewriter.ground import jsonl, typed
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Message, Sampling
from notewriter.models import ROLES

SPENT = "spent.jsonl"
"""The file with the spending of a run with a budget, a line per call."""

BYTES_A_TOKEN = 3
"""Bytes of a token, fewer than in most text, so that texts are seldom longer than expected."""

Prices = Mapping[str, list[float]]
"""Role -> price of a million prompt tokens, of a million completion tokens, and optionally a factor on both.

`policy` stands for the roles without their own price.
"""


@dataclass
class CostArguments:
    """The prices of model calls, and the budget of a run."""

    prices: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "role -> [price of a million prompt tokens, of a million completion tokens], for costs in money; "
            "a third number is a factor on both, such as 0.5 for a batch API. `policy` is the price of the roles "
            "without their own; without it they cost nothing",
            "of": "model",
        },
    )
    max_cost: Annotated[float, Interval(gt=0)] | None = option(
        None,
        "the most that the run in this folder may spend, in the currency of prices; it stops before a call "
        "that could exceed it. Finished work is kept: run again with a higher value to go on",
        effect=False,
    )


def cost(prices: Prices, role: str, prompt_tokens: int, completion_tokens: int) -> float:
    """The cost of a role's tokens, in the currency of the prices."""
    prompt, completion, factor = [*prices.get(role, prices.get("policy", [0.0, 0.0])), 1.0][:3]
    return factor * (prompt * prompt_tokens + completion * completion_tokens) / 1e6


def tokens_in(text: str) -> int:
    """An estimate of a text's tokens, rather too high (`BYTES_A_TOKEN`), where no server has counted them."""
    return len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN + 1


def prices_of(prices: Prices, models: Mapping[str, Any]) -> Prices:
    """The prices where `models` (role -> endpoint) serves some roles here, which cost nothing without their own."""
    # The policy's price is not replaced: it stands for other roles too.
    free = {role: [0.0, 0.0] for role, endpoint in models.items() if "serve" in endpoint and role != "policy"}
    return {**free, **prices} if prices else prices


def check_costs(costs: CostArguments) -> None:
    """Check that each role has two prices and at most a factor, and that a limit comes with prices.

    Raises:
        UserError: names the role or the option.
    """
    for role, price in costs.prices.items():
        choose("role in prices", role, dict.fromkeys(ROLES))
        numbers = isinstance(price, list) and all(type(each) in (int, float) and each >= 0 for each in price)
        if not (numbers and len(price) in (2, 3)):
            raise UserError(
                f"prices: {role}: {price!r} is not [price of a million prompt tokens, of a million completion tokens]; "
                "a third number is a factor on both"
            )
    if costs.max_cost is not None and not costs.prices:
        raise UserError(
            "max_cost: there are no prices, so that the cost of a call is unknown; add "
            "--prices '{\"policy\": [PROMPT, COMPLETION]}', per million tokens"
        )


Pay = Callable[[int, int], None]
"""Pays for the prompt tokens and completion tokens of a reply."""


class Paid(TypedDict):
    """A line of the spending of a run."""

    cost: float


Reserve = Callable[[list[Message], Sampling], contextlib.AbstractAsyncContextManager[Pay]]
"""Waits until a request fits into a budget."""


def for_free(messages: list[Message], sampling: Sampling) -> contextlib.AbstractAsyncContextManager[Pay]:
    """The reserve of requests that are free."""
    return contextlib.nullcontext(lambda prompt_tokens, completion_tokens: None)


def spent_in(path: Path) -> float:
    """The sum of a record of spending.

    Raises:
        UserError: a line is damaged.
    """
    lines = jsonl.read(path, journal=True)
    paid = (typed.read(record, Paid, f"{path}:{number}", "remove the line") for number, record in lines)
    return sum(each["cost"] for each in paid)


class Budget:
    """The money that a run has spent over all of its starts, and the greatest cost of its calls in flight.

    A call waits while it and the calls in flight could exceed `max_cost` together; when nothing is in flight and the
    rest is too little for it, the run ends. Nothing that was paid is lost, and the limit is exceeded by no more than
    the prompts' tokens are underestimated by (`BYTES_A_TOKEN`).

    Raises:
        UserError: there is a limit but no prices, or the record of spending is damaged.
    """

    def __init__(self, max_cost: float, prices: Prices, folder: Path, priced: Iterable[str] = ()) -> None:
        """`folder` is the run's, and `priced` are the roles whose models are paid for."""
        self._limit = max_cost
        self._prices = prices
        self._path = folder / SPENT
        self._in_flight, self._reserved = 0, 0.0
        self._released = asyncio.Condition()
        for role in priced:
            if role not in self._prices and "policy" not in self._prices:
                raise UserError(
                    f"max_cost: {role} has no price, so that its cost is unknown; add "
                    f"--prices '{{\"{role}\": [PROMPT, COMPLETION]}}', per million tokens ([0, 0] for a model of yours)"
                )
        with jsonl.Journal(self._path):  # removes a partial last line
            pass
        self.spent = spent_in(self._path)

    @contextlib.asynccontextmanager
    async def reserve(self, role: str, messages: list[Message], sampling: Sampling) -> AsyncIterator[Pay]:
        """Wait until a call fits into the budget; yields the function that pays for its reply.

        Raises:
            UserError: the rest of the budget is too little for the call.
        """
        prompt = tokens_in("".join(message["content"] for message in messages))
        most = cost(self._prices, role, prompt, sampling.max_tokens)
        async with self._released:
            await self._released.wait_for(lambda: not self._in_flight or self._fits(most))
            if not self._fits(most):
                raise UserError(
                    f"max_cost: {self.spent:.4f} of {self._limit:g} are spent, and the next call may cost {most:.4f}; "
                    "finished work is kept; to go on, run the same command again with a higher --max_cost"
                )
            self._in_flight, self._reserved = self._in_flight + 1, self._reserved + most

        def pay(prompt_tokens: int, completion_tokens: int) -> None:
            paid = cost(self._prices, role, prompt_tokens, completion_tokens)
            with jsonl.Journal(self._path) as journal:
                journal.append({"role": role, "cost": paid})
            self.spent += paid

        try:
            yield pay
        finally:
            self._in_flight -= 1
            # Sums of decimal fractions seldom return to zero exactly.
            self._reserved = self._reserved - most if self._in_flight else 0.0
            async with self._released:
                self._released.notify_all()

    def _fits(self, most: float) -> bool:
        return self.spent + self._reserved + most <= self._limit
