"""Prices by role, and a budget that is not exceeded and loses nothing."""

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from fake_endpoint import Fault, completion, fake_endpoint

from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint, RequestRefused
from notewriter.models.prices import SPENT, Budget, CostArguments, check_costs, cost, prices_of
from notewriter.models.roles import ModelArguments, Roles
from notewriter.rollouts.resources import budget_of

SAMPLING = Sampling(max_tokens=10)
PRICES = {"judge": [0.0, 1e6]}
"""A unit of money a completion token: every call costs up to 10, and a reply of the stand-in four."""


def test_a_role_without_a_price_has_the_policys_and_a_factor_applies_to_both() -> None:
    prices = {"policy": [1.0, 2.0], "judge": [1.0, 2.0, 0.5]}
    assert cost(prices, "notes", 10**6, 10**6) == 3
    assert cost(prices, "judge", 10**6, 10**6) == 1.5
    assert cost({"judge": [1.0, 2.0]}, "notes", 10**6, 10**6) == 0


@pytest.mark.parametrize("price", [3, [1], [1, 2, 3, 4], [1, "x"], [1, -2], [1, True]])
def test_prices_of_another_form_are_refused(price: object) -> None:
    with pytest.raises(UserError, match=r"prices: judge: .* is not"):
        check_costs(CostArguments({"judge": price}))


def test_a_limit_needs_prices(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="max_cost: there are no prices"):
        check_costs(CostArguments(max_cost=3))
    with pytest.raises(UserError, match="max_cost: policy has no price"):
        Budget(3, {"judge": [1, 1]}, tmp_path, ["judge", "policy"])


async def ask(budget: Budget, cache: ResponseCache, base_url: str, numbers: range) -> list[object]:
    client = Client(Endpoint(base_url, "fake"), cache)
    chats = ([{"role": "user", "content": f"question {number}"}] for number in numbers)
    calls = (client.complete(chat, SAMPLING, reserve=partial(budget.reserve, "judge")) for chat in chats)
    replies = await asyncio.gather(*calls, return_exceptions=True)
    await client.close()
    return replies


async def test_calls_stop_before_the_limit_and_go_on_with_a_higher_one(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(lambda request: "four words of reply", delay=0.02) as endpoint:
        replies = await ask(Budget(50, PRICES, tmp_path, ["judge"]), cache, endpoint.base_url, range(20))
        refused = [reply for reply in replies if isinstance(reply, UserError)]
        # 44 are spent, and the next call may cost 10.
        assert len(endpoint.requests) == 11
        assert len(refused) == 9
        assert "max_cost: 44.0000 of 50 are spent, and the next call may cost 10.0000" in str(refused[0])
        assert "run the same command again with a higher --max_cost" in str(refused[0])
        assert endpoint.most_at_once <= 5
        lines = (tmp_path / SPENT).read_text().splitlines()
        assert [json.loads(line) for line in lines] == [{"role": "judge", "cost": 4.0}] * 11

        # The same again: what was paid is in the cache, and the limit is still reached.
        replies = await ask(Budget(50, PRICES, tmp_path, ["judge"]), cache, endpoint.base_url, range(20))
        assert sum(isinstance(reply, UserError) for reply in replies) == 9
        assert len(endpoint.requests) == 11

        budget = Budget(90, PRICES, tmp_path, ["judge"])
        assert budget.spent == 44
        replies = await ask(budget, cache, endpoint.base_url, range(20))
        assert not any(isinstance(reply, UserError) for reply in replies)
        assert (len(endpoint.requests), budget.spent) == (20, 80)
    cache.close()


async def test_sums_of_fractions_leave_nothing_reserved(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    # A call may cost 1/3, so that two fit.
    budget = Budget(0.7, {"judge": [0.0, 1e5 / 3]}, tmp_path, ["judge"])
    with fake_endpoint(lambda request: "word") as endpoint:
        replies = await asyncio.wait_for(ask(budget, cache, endpoint.base_url, range(30)), 30)
    assert sum(isinstance(reply, UserError) for reply in replies) == 30 - len(endpoint.requests) > 0
    assert 0.7 - 1 / 3 < budget.spent <= 0.7
    cache.close()


async def test_a_call_that_fails_costs_nothing(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    budget = Budget(10, PRICES, tmp_path, ["judge"])
    with fake_endpoint(lambda request: "four words of reply", faults=["400"]) as endpoint:
        first, second = await ask(budget, cache, endpoint.base_url, range(2))
        assert {type(first).__name__, type(second).__name__} == {"RequestRefused", "Completion"}
    assert budget.spent == 4
    cache.close()


WITHOUT_LOGPROBS = Fault(body=completion({"messages": []}, "four words of reply", "fake"))
WITHOUT_CHOICES = Fault(body=WITHOUT_LOGPROBS.body.replace(b"choices", b"nothing"))


async def test_replies_that_are_of_no_use_are_paid_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)
    cache = ResponseCache(tmp_path / "cache.sqlite")
    faults = [WITHOUT_CHOICES, WITHOUT_CHOICES, None, WITHOUT_LOGPROBS]
    with fake_endpoint(lambda request: "four words of reply", faults=faults) as endpoint:
        budget = Budget(50, PRICES, tmp_path, ["judge"])
        (reply,) = await ask(budget, cache, endpoint.base_url, range(1))
        assert isinstance(reply, Completion)
        assert budget.spent == 12
        client = Client(Endpoint(endpoint.base_url, "fake"), cache)
        with pytest.raises(RequestRefused, match="returns no log-probabilities"):
            chat = [{"role": "user", "content": "hi"}]
            sampling = replace(SAMPLING, logprobs=True)
            await client.complete(chat, sampling, reserve=partial(budget.reserve, "judge"))
        await client.close()
        assert budget.spent == 16
    cache.close()


async def test_what_is_paid_when_a_run_is_stopped_is_in_the_cache(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    budget = Budget(50, PRICES, tmp_path, ["judge"])

    with fake_endpoint(lambda request: "four words of reply", delay=0.02) as endpoint:
        run = asyncio.create_task(ask(budget, cache, endpoint.base_url, range(40)))
        while not (tmp_path / SPENT).exists() or len((tmp_path / SPENT).read_text().splitlines()) < 3:
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        paid = len((tmp_path / SPENT).read_text().splitlines())
        asked = len(endpoint.requests)
        await ask(Budget(1000, PRICES, tmp_path, ["judge"]), cache, endpoint.base_url, range(40))
        assert len(endpoint.requests) - asked == 40 - paid
    cache.close()


async def test_a_call_is_not_repeated_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)
    cache = ResponseCache(tmp_path / "cache.sqlite")
    with fake_endpoint(faults=[WITHOUT_CHOICES] * 2) as endpoint:
        (error,) = await ask(Budget(15, PRICES, tmp_path, ["judge"]), cache, endpoint.base_url, range(1))
        assert "max_cost: 8.0000 of 15 are spent, and the next call may cost 10.0000" in str(error)
    cache.close()


def test_a_role_that_is_served_here_costs_nothing_unless_it_has_a_price_of_its_own() -> None:
    models = {"notes": {"serve": "m"}, "query": {"serve": "m"}, "judge": {"base_url": "u", "model": "m"}}
    prices = prices_of({"policy": [1, 1], "query": [2, 2]}, models)
    each = {role: cost(prices, role, 0, 10**6) for role in ("policy", "notes", "query", "judge")}
    assert each == {"policy": 1, "notes": 0, "query": 2, "judge": 1}
    assert prices_of({}, models) == {}


async def test_a_budget_leaves_out_what_is_served_here(tmp_path: Path) -> None:
    models = ModelArguments(base_url="http://node7/v1", model="m", models={"notes": {"serve": "m"}})
    endpoint = Endpoint("http://node7/v1", "m")
    roles: Roles = {"policy": (endpoint, []), "notes": (endpoint, [object()])}  # type: ignore[list-item]
    budget = budget_of(CostArguments({"policy": [0, 1e6]}, 15), models, roles, tmp_path)
    assert budget
    for role, paid in [("notes", 0), ("policy", 10)]:
        async with budget.reserve(role, [], SAMPLING) as pay:
            pay(0, 10)
        assert budget.spent == paid


def test_a_damaged_record_of_what_was_spent_is_named(tmp_path: Path) -> None:
    (tmp_path / SPENT).write_text('{"role": "judge"}\n')
    with pytest.raises(UserError, match=r"spent\.jsonl:1 has no 'cost'; remove the line"):
        Budget(3, PRICES, tmp_path, [])
