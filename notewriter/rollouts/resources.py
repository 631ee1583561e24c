"""The resources that rollouts share: models by role, prompts, a retriever."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from notewriter.ground.records import Completion, Message, Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client
from notewriter.models.prices import Budget, CostArguments, prices_of
from notewriter.models.roles import ModelArguments, Roles, check_endpoints, sampling_by_stage
from notewriter.retrieval.chain import Chain, Part, without_models
from notewriter.retrieval.protocol import Retriever
from notewriter.rollouts.method import Stage
from notewriter.rollouts.prompts import Prompts


@dataclass(frozen=True)
class Resources:
    """The resources that rollouts share.

    `clients` maps roles to models; `"policy"` plays missing roles. `stage_sampling` maps stages to their own
    sampling; all others use `sampling`. `retriever` may be None for methods that do not retrieve. `budget` pays for
    calls.
    """

    clients: Mapping[str, Client]
    prompts: Prompts
    retriever: Chain | Retriever | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stage_sampling: Mapping[str, Sampling] = field(default_factory=dict)
    budget: Budget | None = None

    async def complete(
        self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int, affinity: str
    ) -> Completion:
        """A completion by the stage's model; see `Client.complete`."""
        client = self.clients.get(stage.role, self.clients["policy"])
        paid = {"reserve": partial(self.budget.reserve, stage.role)} if self.budget else {}
        return await client.complete(messages, sampling, sample=sample, affinity=affinity, **paid)

    @property
    def parameters(self) -> dict[str, dict[str, str | None]]:
        """Role -> sampling parameters that its endpoint gets under another name, or not at all."""
        return {role: each.endpoint.parameters for role, each in self.clients.items() if each.endpoint.parameters}

    async def try_out(self) -> None:
        """Ask every model for a word before a run begins, and its calls are paid; see `Client.try_out`."""
        for role, client in self.clients.items():
            paid = {"reserve": partial(self.budget.reserve, role)} if self.budget else {}
            await client.try_out(self.sampling, **paid)


def check_inputs(arguments: ModelArguments, retriever: Sequence[Part] | None) -> None:
    """Check endpoints, sampling, prompts and retriever before anything is written or started.

    Raises:
        UserError: an endpoint is not valid or contains a secret, sampling is set for an unknown stage, or a part of
            the retriever cannot be used.
    """
    _check_models(arguments)
    if retriever:
        asyncio.run(_check_retriever(retriever))


@contextlib.asynccontextmanager
async def open_resources(
    arguments: ModelArguments, roles: Roles, retriever: Sequence[Part] | None, budget: Budget | None = None
) -> AsyncIterator[Resources]:
    """Open the resources of a run and check every endpoint; connections and cache are closed at the end.

    Calls are paid from `budget`.
    """
    _check_models(arguments)
    sampling, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    cache = ResponseCache(arguments.cache)
    chain = Chain(retriever, cache) if retriever else None
    clients = {
        role: Client(endpoint, cache, [server.ensure_alive for server in servers])
        for role, (endpoint, servers) in roles.items()
    }
    parts: list[Client | Chain] = [*clients.values(), *([chain] if chain else [])]
    try:
        await asyncio.gather(*(part.check() for part in parts))
        yield Resources(clients, prompts, chain, sampling, stage_sampling, budget)
    finally:
        await asyncio.gather(*(part.close() for part in parts))
        cache.close()


def budget_of(costs: CostArguments, models: ModelArguments, roles: Roles, folder: Path) -> Budget | None:
    """The budget of the run in a folder, if it has one; models that it serves itself need no price.

    Raises:
        UserError: there is a limit, and a model behind an endpoint has no price.
    """
    if costs.max_cost is None:
        return None
    priced = [role for role, (_, servers) in roles.items() if not servers]
    return Budget(costs.max_cost, prices_of(costs.prices, models.models), folder, priced)


def _check_models(arguments: ModelArguments) -> None:
    check_endpoints(arguments)
    _, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    for stage in stage_sampling:
        prompts.check(stage)


async def _check_retriever(parts: Sequence[Part]) -> None:
    # Models that rerank are checked with all others when the run begins; a dry run does not call them.
    chain = Chain(without_models(parts))
    try:
        await chain.check()
    finally:
        await chain.close()
