"""What rollouts share: models by role, prompts, an index; opened for a run and closed at its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from notewriter.method import Stage
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint
from notewriter.models.roles import ModelArguments, check_endpoints, sampling_by_stage
from notewriter.models.server import Server
from notewriter.records import Completion, Message, Sampling
from notewriter.retrieval import Retriever, open_index
from notewriter.rollouts.prompts import Prompts


@dataclass(frozen=True)
class Resources:
    """What rollouts share: the index, the prompts, the models by role, the sampling by stage.

    `clients` maps a role to its model; a role that is not there is played by `"policy"`. `stage_sampling`
    maps a stage to its own sampling, elsewhere `sampling` holds. `retriever` may be None for methods
    that do not retrieve.
    """

    clients: Mapping[str, Client]
    prompts: Prompts
    retriever: Retriever | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stage_sampling: Mapping[str, Sampling] = field(default_factory=dict)

    async def complete(
        self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int, affinity: str
    ) -> Completion:
        """A completion by the model that plays the stage; see `Client.complete`."""
        client = self.clients.get(stage.role, self.clients["policy"])
        return await client.complete(messages, sampling, sample=sample, affinity=affinity)


def check_inputs(arguments: ModelArguments, index: Sequence[str] | None) -> None:
    """Find what is wrong with endpoints, sampling, prompts and index before anything is written or started.

    Raises:
        UserError: an endpoint that is none or holds a secret, a stage's sampling or a prompt that there is none of,
            or a folder that is no index.
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
    arguments: ModelArguments, roles: dict[str, tuple[Endpoint, list[Server]]], index: Sequence[str] | None
) -> AsyncIterator[Resources]:
    """What rollouts share, with every endpoint checked; connections and cache are closed at the end."""
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
