"""The resources that rollouts share: models by role, prompts, a retriever."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.records import Completion, Message, Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client
from notewriter.models.prices import Budget, CostArguments, prices_of
from notewriter.models.roles import ModelArguments, Roles, check_endpoints, sampling_by_stage
from notewriter.retrieval.chain import Chain, Part, without_models
from notewriter.retrieval.protocol import Retriever
from notewriter.rollouts.controls import Control, controls_of
from notewriter.rollouts.method import Stage
from notewriter.rollouts.prompts import Prompts


@dataclass(frozen=True)
class Resources:
    """The resources that rollouts share.

    `clients` maps roles to models, and `controls` those that are played without one; `"policy"` plays missing roles,
    be it a model or a control. `stage_sampling` maps stages to their own sampling; all others use `sampling`.
    `retriever` may be None for methods that do not retrieve. `budget` pays for calls.
    """

    clients: Mapping[str, Client]
    prompts: Prompts
    retriever: Chain | Retriever | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stage_sampling: Mapping[str, Sampling] = field(default_factory=dict)
    budget: Budget | None = None
    controls: Mapping[str, Control] = field(default_factory=dict)

    async def complete(
        self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int, affinity: str
    ) -> Completion:
        """A completion by the stage's model; see `Client.complete`.

        Raises:
            UserError: a control plays its role, whose replies cannot be sampled or scored.
        """
        if self.control(stage.role):
            raise UserError(f"models: {stage.role}: {stage.name} needs a model that samples; let one play the role")
        client = self.client(stage.role)
        paid = {"reserve": partial(self.budget.reserve, stage.role)} if self.budget else {}
        return await client.complete(messages, sampling, sample=sample, affinity=affinity, **paid)

    def control(self, role: str) -> Control | None:
        """The control that plays a role; None if a model does."""
        return None if role in self.clients else self.controls.get(role, self.controls.get("policy"))

    def client(self, role: str) -> Client:
        """The model that plays a role.

        Raises:
            UserError: a control does.
        """
        if self.control(role):
            raise UserError(f"models: {role}: a control plays it; let a model play it")
        return self.clients.get(role) or self.clients["policy"]

    @property
    def parameters(self) -> dict[str, dict[str, str | None]]:
        """Role -> sampling parameters that its endpoint gets under another name, or not at all."""
        said = {
            role: {**dict.fromkeys(each.left_to_server), **each.endpoint.parameters}
            for role, each in self.clients.items()
        }
        return {role: parameters for role, parameters in said.items() if parameters}

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
    settings_of(arguments)

    async def check() -> None:
        # Models that rerank are checked with all others when the run begins; a dry run does not call them.
        async with open_chain(without_models(retriever or ())):
            pass

    run_async(check())


def settings_of(arguments: ModelArguments) -> dict[str, Any]:
    """The checked settings of `Resources`: prompts, sampling, stage_sampling and controls.

    Raises:
        UserError: an endpoint is not valid or contains a secret, there is no such control or no run that it takes its
            words from, or sampling is set for an unknown stage.
    """
    check_endpoints(arguments)
    sampling, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir, arguments.words, arguments.extractive_stages)
    for stage in stage_sampling:
        prompts.check(stage)
    controls = controls_of(arguments)
    return {"prompts": prompts, "sampling": sampling, "stage_sampling": stage_sampling, "controls": controls}


@contextlib.asynccontextmanager
async def open_chain(parts: Sequence[Part], cache: ResponseCache | None = None) -> AsyncIterator[Chain | None]:
    """The checked retriever of a run, closed at the end; None if it has no parts."""
    chain = Chain(parts, cache) if parts else None
    try:
        if chain:
            await chain.check()
        yield chain
    finally:
        if chain:
            await chain.close()


@contextlib.asynccontextmanager
async def open_resources(
    arguments: ModelArguments, roles: Roles, retriever: Sequence[Part] | None, budget: Budget | None = None
) -> AsyncIterator[Resources]:
    """Open the resources of a run and check every endpoint; connections and cache are closed at the end.

    Calls are paid from `budget`.
    """
    settings = settings_of(arguments)
    with contextlib.closing(ResponseCache(arguments.cache)) as cache:
        clients = {
            role: Client(endpoint, cache, [server.ensure_alive for server in servers])
            for role, (endpoint, servers) in roles.items()
        }
        try:
            await asyncio.gather(*(client.check() for client in clients.values()))
            async with open_chain(retriever or (), cache) as chain:
                yield Resources(clients, retriever=chain, budget=budget, **settings)
        finally:
            await asyncio.gather(*(client.close() for client in clients.values()))


def budget_of(costs: CostArguments, models: ModelArguments, roles: Roles, folder: Path) -> Budget | None:
    """The budget of the run in a folder, if it has one; models that it serves itself need no price.

    Raises:
        UserError: there is a limit, and a model behind an endpoint has no price.
    """
    if costs.max_cost is None:
        return None
    priced = [role for role, (_, servers) in roles.items() if not servers]
    return Budget(costs.max_cost, prices_of(costs.prices, models.models), folder, priced)
