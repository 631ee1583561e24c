"""The models that play the roles, from a configuration: served or reached elsewhere, and how they sample."""

import asyncio
import contextlib
import json
import math
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.llm import Client, Endpoint, ResponseCache
from notewriter.models import fingerprint
from notewriter.prompts import Prompts
from notewriter.records import Sampling
from notewriter.retrieval import open_index
from notewriter.rollout import Resources
from notewriter.serving import Server, free_ports, serve, visible_devices


@dataclass
class ModelArguments:
    """Which models play, how they are reached, and how they sample."""

    serve: str | None = field(
        default=None,
        metadata={"help": "a model folder or hub id; a vLLM server is started for it and plays every role"},
    )
    serve_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "vLLM's own options, e.g. {dtype: bfloat16, tensor_parallel_size: 2}"}
    )
    port: int | None = field(default=None, metadata={"help": "port of the server that is started; default: a free one"})
    base_url: str | None = field(
        default=None,
        metadata={
            "help": "an OpenAI-compatible endpoint that runs already, e.g. http://node7:8000/v1; several servers of "
            "one model with commas between: a question stays on one of them, another does the work of one that is down"
        },
    )
    model: str | None = field(default=None, metadata={"help": "the model's name at base_url"})
    models: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "role -> endpoint (base_url, model, api_key_env, ...) or {serve: PATH}; roles are notes, query, "
            "answer, judge; `policy` plays the roles that are not named"
        },
    )
    replicas: int = field(
        default=1,
        metadata={"help": "servers started for each model that is served, each on the next devices"},
    )
    concurrency: int = field(
        default=256,
        metadata={
            "help": "questions in flight at once, and requests to a server unless its endpoint says otherwise; vLLM "
            "computes up to 256 requests together and is the faster for it, a paid endpoint may want fewer"
        },
    )
    cache: str = field(
        default="runs/cache.sqlite",
        metadata={"help": "every reply is kept here, so that no finished call is made twice"},
    )
    prompts_dir: str | None = field(
        default=None, metadata={"help": "a folder of prompts that go before ours, file by file: <method>/<stage>.jinja"}
    )
    temperature: float = field(default=0.1, metadata={"help": "sampling temperature (DeepNote: 0.1)"})
    top_p: float = field(default=0.9, metadata={"help": "nucleus sampling (the authors' code: 0.9)"})
    max_tokens: int = field(default=1280, metadata={"help": "tokens a completion at the most"})
    stage_sampling: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "stage -> what differs there, e.g. {deepnote/answer: {max_tokens: 32}}"},
    )


ROLES = ("policy", "notes", "query", "answer", "judge")
"""The parts that models play in methods and judges; a name that is none of them would go unheard."""


def sampling_by_stage(arguments: ModelArguments) -> tuple[Sampling, dict[str, Sampling]]:
    """The sampling for every stage, and the stages that have their own.

    Raises:
        UserError: a stage's sampling has a key that is none, or a number is one that no server takes.
    """
    general = Sampling(arguments.temperature, arguments.top_p, arguments.max_tokens)
    check_sampling(general)
    by_stage = {}
    for stage, changes in arguments.stage_sampling.items():
        try:
            by_stage[stage] = Sampling(**(asdict(general) | changes))
        except TypeError as error:
            known = ", ".join(field.name for field in fields(Sampling))
            raise UserError(f"stage_sampling: {stage}: {changes!r} has other keys than {known}") from error
        check_sampling(by_stage[stage], f"stage_sampling: {stage}: ")
    return general, by_stage


def check_sampling(sampling: Sampling, place: str = "") -> None:
    """Find numbers that every server refuses, which would leave a whole run without a reply.

    Raises:
        UserError: a temperature below 0, a top_p outside (0, 1], or less than one token; begins with `place`.
    """
    bounds = (
        ("temperature", 0.0, math.inf, "a number from 0 on"),
        ("top_p", sys.float_info.min, 1.0, "a number above 0 and at most 1"),
        ("max_tokens", 1, math.inf, "a whole number from 1 on"),
    )
    for key, least, most, words in bounds:
        value = getattr(sampling, key)
        kinds = int if key == "max_tokens" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise UserError(f"{place}{key}: {value!r} is not {words}")


@contextlib.contextmanager
def served_models(arguments: ModelArguments, log_dir: Path) -> Iterator[dict[str, tuple[Endpoint, list[Server]]]]:
    """Start the servers that are asked for; yields each role's endpoint, and its servers where we started them.

    Raises:
        UserError: no model is named, one is named twice over, or an endpoint's keys are wrong.
    """
    if arguments.concurrency < 1:
        raise UserError(f"concurrency: {arguments.concurrency} questions at once get nowhere; give at least 1")
    _check_endpoints(arguments)
    if arguments.replicas < 1:
        raise UserError(f"replicas: {arguments.replicas} servers serve nobody; give at least 1")
    if arguments.replicas > 1 and arguments.port:
        raise UserError(f"port: {arguments.replicas} replicas cannot share one; leave it out, and free ones are taken")
    specifications = {role: dict(value) for role, value in arguments.models.items()}
    given = [key for key in ("serve", "base_url") if getattr(arguments, key)]
    given += ["models: policy"] if "policy" in specifications else []
    if len(given) > 1:
        raise UserError(f"both {given[0]} and {given[1]} are set; give one of them")
    if arguments.serve:
        specifications["policy"] = {"serve": arguments.serve}
    elif arguments.base_url:
        if not arguments.model:
            raise UserError("base_url is set and model is not; add --model NAME, as the endpoint calls it")
        specifications["policy"] = {"base_url": arguments.base_url, "model": arguments.model}
    if "policy" not in specifications:
        raise UserError("no model: give --serve PATH, or --base_url URL --model NAME")

    with contextlib.ExitStack() as stack:
        roles: dict[str, tuple[Endpoint, list[Server]]] = {}
        for role, specification in specifications.items():
            specification.setdefault("concurrency", arguments.concurrency)
            path = specification.pop("serve", None)
            if path is None:
                roles[role] = (_endpoint(role, specification), [])
                continue
            name = Path(path).name
            first = sum(len(servers) for _, servers in roles.values())
            servers = _serve_replicas(stack, path, name, arguments, log_dir / f"vllm-{role}.log", first)
            identity = f"{fingerprint(path)} {json.dumps(arguments.serve_options, sort_keys=True)}"
            base_url = ",".join(server.base_url for server in servers)
            specification |= {"base_url": base_url, "model": name, "identity": identity}
            roles[role] = (_endpoint(role, specification), servers)
        yield roles


def _serve_replicas(
    stack: contextlib.ExitStack, path: str, name: str, arguments: ModelArguments, log: Path, first: int
) -> list[Server]:
    """Start a model's servers, all at once since each takes minutes; `first` counts those that have devices already."""
    options = arguments.serve_options | {"served_model_name": name}
    if arguments.replicas == 1:
        return [stack.enter_context(serve(path, options, log=log, port=arguments.port))]
    size = math.prod(int(options.get(key, 1)) for key in ("tensor_parallel_size", "pipeline_parallel_size"))
    devices = [visible_devices((first + number) * size, size) for number in range(arguments.replicas)]
    ports = free_ports(arguments.replicas)

    def start(number: int) -> Server:
        own_log = log.with_stem(f"{log.stem}-{number}")
        return stack.enter_context(serve(path, options, log=own_log, port=ports[number], devices=devices[number]))

    with ThreadPoolExecutor(arguments.replicas) as pool:
        return list(pool.map(start, range(arguments.replicas)))


def _endpoint(role: str, specification: dict[str, Any]) -> Endpoint:
    for key in ("concurrency", "attempts"):
        number = specification.get(key, 1)
        if not isinstance(number, int) or number < 1:
            raise UserError(f"models: {role}: {key} must be a whole number above 0, not {number!r}")
    if not all(isinstance(specification.get(key), str) for key in ("base_url", "model")):
        raise UserError(f"models: {role}: needs base_url and model, or serve")
    return Endpoint(**specification)


def _check_endpoints(arguments: ModelArguments) -> None:
    """Find endpoints that are none, and secrets in them: all that stands there is written into a run's config.yaml.

    Raises:
        UserError: a role or a key of an endpoint that there is none of (as `api_key`), or an address with a user
            name or a password in it; no message repeats what may be a secret.
    """
    known = [field.name for field in fields(Endpoint)]
    addresses = {"base_url": arguments.base_url}
    for role, value in arguments.models.items():
        choose("role in models", role, dict.fromkeys(ROLES))
        if not isinstance(value, dict):
            raise UserError(f"models: {role}: is no endpoint; give {{serve: PATH}}, or base_url and model")
        if unknown := [key for key in value if key not in (*known, "serve")]:
            raise UserError(
                f"models: {role}: unknown key {unknown[0]!r}; an endpoint has: {', '.join(known)}, or serve"
            )
        addresses[f"models: {role}: base_url"] = value.get("base_url")
    for place, address in addresses.items():
        if any(_USER.match(each) for each in str(address or "").split(",")):
            raise UserError(
                f"{place}: has a user name or password before the host, which would be written to config.yaml; take it "
                "out and name the environment variable that holds the key with api_key_env (default: OPENAI_API_KEY)"
            )


_USER = re.compile(r"\s*(?:[\w+.-]+://)?[^/?#]*@")


def check_inputs(arguments: ModelArguments, index: Sequence[str] | None) -> None:
    """Find what is wrong with endpoints, sampling, prompts and index before anything is written or started.

    Raises:
        UserError: an endpoint that is none or holds a secret, a stage's sampling or a prompt that there is none of,
            or a folder that is no index.
    """
    _check_endpoints(arguments)
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
