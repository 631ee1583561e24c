"""The resources that rollouts share: models by role, prompts, an index."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from notewriter.method import Stage
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client
from notewriter.models.roles import ModelArguments, Roles, check_endpoints, sampling_by_stage
from notewriter.models.server import Server
from notewriter.records import Completion, Message, Sampling
from notewriter.retrieval import Retriever, open_index
from notewriter.rollouts.prompts import Prompts


@dataclass(frozen=True)
class Resources:
    """The resources that rollouts share.

    `clients` maps roles to models; `"policy"` plays missing roles. `stage_sampling` maps stages to their own
    sampling; all others use `sampling`. `retriever` may be None for methods that do not retrieve.
    """

    clients: Mapping[str, Client]
    prompts: Prompts
    retriever: Retriever | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stage_sampling: Mapping[str, Sampling] = field(default_factory=dict)

    async def complete(
        self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int, affinity: str
    ) -> Completion:
        """A completion by the stage's model; see `Client.complete`."""
        client = self.clients.get(stage.role, self.clients["policy"])
        return await client.complete(messages, sampling, sample=sample, affinity=affinity)


def check_inputs(arguments: ModelArguments, index: Sequence[str] | None) -> None:
    """Check endpoints, sampling, prompts and index before anything is written or started.

    Raises:
        UserError: an endpoint is not valid or contains a secret, sampling is set for an unknown stage, or a folder is
            not an index.
    """
    check_endpoints(arguments)
    _, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    for stage in stage_sampling:
        prompts.check(stage)
    if index:
        open_index(index)


@contextlib.asynccontextmanager
async def open_resources(
    arguments: ModelArguments, roles: Roles, index: Sequence[str] | None
) -> AsyncIterator[Resources]:
    """Open the resources of a run and check every endpoint; connections and cache are closed at the end."""
    check_inputs(arguments, index)
    sampling, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    retriever = open_index(index) if index else None
    cache = ResponseCache(arguments.cache)
    clients = {
        role: Client(endpoint, cache, partial(_revive, servers) if servers else None)
        for role, (endpoint, servers) in roles.items()
    }
    try:
        await asyncio.gather(*(client.check() for client in clients.values()))
        yield Resources(clients, prompts, retriever, sampling, stage_sampling)
    finally:
        await asyncio.gather(*(client.close() for client in clients.values()))
        cache.close()


def _revive(servers: list[Server]) -> None:
    for server in servers:
        server.ensure_alive()
