"""The models that play the roles, from a configuration: served or reached elsewhere, and how they sample."""

import contextlib
import json
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.config import check, choose
from notewriter.errors import UserError
from notewriter.models.chat_template import check_served, check_settings
from notewriter.models.checkpoints import fingerprint
from notewriter.models.client import Endpoint
from notewriter.models.connection import check_address
from notewriter.models.server import Server, check_options, free_ports, serve, visible_devices, with_number_format
from notewriter.records import MOST_TOKENS, Sampling
from notewriter.typecheck import misfit


@dataclass
class ModelArguments:
    """Which models play, how they are reached, and how they sample."""

    serve: str | None = field(
        default=None,
        metadata={"help": "a model folder or hub id; a vLLM server is started for it and plays every role"},
    )
    serve_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "vLLM's own options, e.g. {max_model_len: 4096, tensor_parallel_size: 2}; without a dtype a CPU "
            "computes in bfloat16 where it has units for it and in float32 where it has none"
        },
    )
    port: Annotated[int, Interval(ge=1, le=65_535)] | None = field(
        default=None, metadata={"help": "port of the server that is started; default: a free one"}
    )
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
    chat_template_kwargs: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "variables of the chat template, sent with every request to the model of serve or base_url, e.g. "
            '{enable_thinking: false}, or {date_string: "26 Jul 2024"}; in `models` a role has its own. A checkpoint '
            "is served with those it was trained with unless they are given here"
        },
    )
    replicas: Annotated[int, Interval(ge=1, le=256)] = field(
        default=1,
        metadata={"help": "servers started for each model that is served, each on the next devices"},
    )
    concurrency: Annotated[int, Interval(ge=1, le=65_536)] = field(
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
    temperature: Annotated[float, Interval(ge=0)] = field(
        default=0.1, metadata={"help": "sampling temperature (DeepNote: 0.1)"}
    )
    top_p: Annotated[float, Interval(gt=0, le=1)] = field(
        default=0.9, metadata={"help": "nucleus sampling (the authors' code: 0.9)"}
    )
    max_tokens: Annotated[int, Interval(ge=1, le=MOST_TOKENS)] = field(
        default=1280, metadata={"help": "tokens a completion at the most"}
    )
    stage_sampling: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "stage -> what differs there, e.g. {deepnote/answer: {max_tokens: 32}}"},
    )

    def __post_init__(self) -> None:
        # Here and not where the server starts: the number format can change a reply, so a run's configuration names it.
        if self.serve or any(isinstance(each, dict) and "serve" in each for each in self.models.values()):
            self.serve_options = with_number_format(self.serve_options)


@dataclass(frozen=True)
class Served(Endpoint):
    """A role's model that is served here; what its address and name will be follows from that."""

    serve: Annotated[str, MinLen(1)] = ""
    base_url: str = ""
    model: str = ""


ROLES = ("policy", "notes", "query", "answer", "judge")
"""The parts that models play in methods and judges; a name that is none of them would go unheard."""


SAMPLED = ("temperature", "top_p", "max_tokens")
"""What of a sampling a user sets; the rest belongs to the stages."""


def sampling_by_stage(arguments: ModelArguments) -> tuple[Sampling, dict[str, Sampling]]:
    """The sampling for every stage, and the stages that have their own.

    Raises:
        UserError: a stage's sampling has a key that is none, or a number is one that no server takes.
    """
    general = Sampling(arguments.temperature, arguments.top_p, arguments.max_tokens)
    check_sampling(general)
    by_stage = {}
    for stage, changes in arguments.stage_sampling.items():
        if not isinstance(changes, dict) or not changes.keys() <= set(SAMPLED):
            raise UserError(f"stage_sampling: {stage}: {changes!r} has other keys than {', '.join(SAMPLED)}")
        by_stage[stage] = replace(general, **changes)
        check_sampling(by_stage[stage], f"stage_sampling: {stage}")
    return general, by_stage


def check_sampling(sampling: Sampling, place: str = "") -> None:
    """Find numbers that every server refuses, which would leave a whole run without a reply.

    Raises:
        UserError: a temperature below 0, a top_p outside (0, 1], or less than one token; begins with `place`.
    """
    if problem := misfit(asdict(sampling), Sampling, place):
        raise UserError(problem)


@contextlib.contextmanager
def served_models(arguments: ModelArguments, log_dir: Path) -> Iterator[dict[str, tuple[Endpoint, list[Server]]]]:
    """Start the servers that are asked for; yields each role's endpoint, and its servers where we started them.

    Raises:
        UserError: no model is named, one is named twice over, or an endpoint's keys are wrong.
    """
    check(arguments)
    check_endpoints(arguments)
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
    if arguments.chat_template_kwargs:
        specifications["policy"].setdefault("chat_template_kwargs", arguments.chat_template_kwargs)

    with contextlib.ExitStack() as stack:
        roles: dict[str, tuple[Endpoint, list[Server]]] = {}
        for role, specification in specifications.items():
            specification.setdefault("concurrency", arguments.concurrency)
            path = specification.pop("serve", None)
            variables = specification.pop("chat_template_kwargs", {})
            if variables:
                body = specification.get("extra_body", {})
                specification["extra_body"] = body | {"chat_template_kwargs": variables}
            if path is None:
                roles[role] = (_endpoint(role, specification), [])
                continue
            name = Path(path).name
            check_served(path, variables, arguments.serve_options.get("chat_template"))
            first = sum(len(servers) for _, servers in roles.values())
            servers = _serve_replicas(stack, path, name, arguments, log_dir / f"vllm-{role}.log", first)
            identity = f"{fingerprint(path)} {json.dumps(arguments.serve_options, sort_keys=True)}"
            base_url = ",".join(server.base_url for server in servers)
            # No key of another service goes to a server of ours; vLLM takes its own from this variable.
            specification.setdefault("api_key_env", "VLLM_API_KEY")
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
    return Endpoint(**specification)


def check_endpoints(arguments: ModelArguments) -> None:
    """Find endpoints that are none, and secrets in them: all that stands there is written into a run's config.yaml.

    Raises:
        UserError: a role or a key of an endpoint that there is none of (as `api_key`), an address that is none or
            has a user name or a password in it, or an option that no server of ours gets; no message repeats what
            may be a secret.
    """
    check_options(arguments.serve_options)
    known = [field.name for field in fields(Endpoint)]
    check_settings(arguments.chat_template_kwargs)
    addresses = {"base_url": arguments.base_url}
    for role, value in arguments.models.items():
        choose("role in models", role, dict.fromkeys(ROLES))
        if not isinstance(value, dict):
            raise UserError(f"models: {role}: is no endpoint; give {{serve: PATH}}, or base_url and model")
        if unknown := [key for key in value if key not in (*known, "serve", "chat_template_kwargs")]:
            raise UserError(
                f"models: {role}: unknown key {unknown[0]!r}; an endpoint has: {', '.join(known)}, "
                "chat_template_kwargs, or serve"
            )
        check_settings(value.get("chat_template_kwargs", {}), f"models: {role}: chat_template_kwargs")
        if not ({"serve"} <= value.keys() or {"base_url", "model"} <= value.keys()):
            raise UserError(f"models: {role}: needs base_url and model, or serve")
        if both := {"serve"} & value.keys() and {"base_url", "model", "identity"} & value.keys():
            raise UserError(f"models: {role}: {min(both)} follows from serve; give one of them")
        if not _VARIABLE.fullmatch(str(value.get("api_key_env", "A"))):
            raise UserError(
                f"models: {role}: api_key_env must be the name of an environment variable, as OPENAI_API_KEY; put the "
                "key itself into that variable"
            )
        if problem := misfit(value, Served if "serve" in value else Endpoint, f"models: {role}"):
            # Without the value, which may be a secret that has come to stand in the wrong place.
            raise UserError(f"{problem.partition(', not ')[0]}; correct it")
        addresses[f"models: {role}: base_url"] = value.get("base_url")
    for place, address in addresses.items():
        for part in address.split(",") if isinstance(address, str) else []:
            check_address(part.strip(), place)


_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
