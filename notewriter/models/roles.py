"""The model of each role, served here or reached at an endpoint, with its sampling."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground import typed
from notewriter.ground.config import check, choose
from notewriter.ground.errors import UserError
from notewriter.ground.options import defaults, option, where_set
from notewriter.ground.records import MAX_TOKENS, Sampling
from notewriter.ground.typed import misfit
from notewriter.models import ROLES
from notewriter.models.chat_template import check_settings, check_template
from notewriter.models.checkpoint import Checkpoint
from notewriter.models.client import Endpoint
from notewriter.models.connection import check_address
from notewriter.models.dialects import PARAMETERS
from notewriter.models.serve_options import check_options, with_defaults
from notewriter.models.server import READY_TIMEOUT, Server
from notewriter.models.servers import ServerOfParent, Wanted, use


@dataclass
class ModelArguments:
    """The options for models: their names, addresses and sampling."""

    serve: str | None = option(
        None,
        "a model folder, LoRA adapter or hub id; starts a vLLM server that plays every role",
        card=False,
        of="model",
    )
    serve_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "card": False,
            "help": "vLLM's own options, e.g. {max_model_len: 4096, tensor_parallel_size: 2}; dtype defaults to the "
            "model's on a GPU, and on a CPU to bfloat16 if it has matrix units for it, else float32, with "
            "enforce_eager",
            "of": "model",
        },
    )
    port: Annotated[int, Interval(ge=1, le=65_535)] | None = option(
        None, "port of the server; default: a free one", effect=False, of="model"
    )
    base_url: str | None = option(
        None,
        "a running OpenAI-compatible endpoint, e.g. http://node7:8000/v1; several servers of one model are "
        "separated by commas: each question stays on one of them unless it is down",
        effect=False,
        of="model",
    )
    model: str | None = option(None, "the model's name at base_url", card=False, of="model")
    models: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "card": False,
            "help": "role -> endpoint (base_url, model, api_key_env, ...; batch: true for a batch API) or "
            "{serve: PATH}, with serve_options and replicas of its own. Roles: notes, query, answer, judge; `policy` "
            "plays all others. LoRA adapters of one base share a server. Notes may also come from a rule without a "
            "model, such as {control: lead, words: 40}; {control: empty} silences any role",
            "of": "model",
        },
    )
    chat_template_kwargs: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "variables of the chat template, sent with every request to the model of serve or base_url, e.g. "
            '{enable_thinking: false} or {date_string: "26 Jul 2024"}; roles in `models` have their own. They '
            "default to the values that a checkpoint was trained with",
            "of": "model",
        },
    )
    replicas: Annotated[int, Interval(ge=1, le=256)] = option(
        1, "servers to start for each served model, each on the next devices", effect=False, of="model"
    )
    ready_timeout: Annotated[float, Interval(gt=0)] = option(
        READY_TIMEOUT, "seconds within which a started server must be ready", effect=False, of="model"
    )
    concurrency: Annotated[int, Interval(ge=1, le=65_536)] = option(
        256,
        "questions in flight, and requests per server unless its endpoint sets its own limit; vLLM batches "
        "up to 256 requests, a paid endpoint may need a lower value",
        effect=False,
        of="model",
    )
    cache: str = field(
        default_factory=lambda: os.environ.get("NOTEWRITER_CACHE", "runs/cache.sqlite"),
        metadata={
            "help": "SQLite file with every reply, so that no finished call is repeated; default: NOTEWRITER_CACHE in "
            "the environment, or runs/cache.sqlite",
            "effect": False,
            "of": "output",
        },
    )
    prompts_dir: str | None = option(
        None,
        "a folder with prompts that replace ours, file by file: <method>/<stage>.jinja; `prompts/short` "
        "(ours too) is for models of a few hundred million parameters",
        card=False,
    )
    words: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "stage -> the most words that its prompt asks for, in one sentence at its end, e.g. "
            "{deepnote/init_note: 40}",
            "effect": where_set,
            "of": "method",
        },
    )
    extractive_stages: list[str] = field(
        default_factory=list,
        metadata={
            "help": "stages of first notes at which the model names sentences of the passages, [B][E], and the note is "
            "those sentences, e.g. deepnote/init_note",
            "effect": where_set,
            "of": "method",
        },
    )
    temperature: Annotated[float, Interval(ge=0)] = option(0.1, "sampling temperature (DeepNote: 0.1)")
    top_p: Annotated[float, Interval(gt=0, le=1)] = option(0.9, "nucleus sampling (DeepNote's code: 0.9)")
    max_tokens: Annotated[int, Interval(ge=1, le=MAX_TOKENS)] = option(1280, "maximum tokens per completion")
    stage_sampling: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "stage -> its own sampling, e.g. {deepnote/answer: {max_tokens: 32}}", "of": "method"},
    )

    def __post_init__(self) -> None:
        # Set here, not at server start: our defaults can change replies, so they belong to the run's configuration.
        if self.serve or any(isinstance(each, dict) and "serve" in each for each in self.models.values()):
            self.serve_options = with_defaults(self.serve_options)


Roles = dict[str, tuple[Endpoint, Sequence[Server | ServerOfParent]]]
"""Each role's endpoint, and its servers if it is a checkpoint served for this run."""


@dataclass(frozen=True)
class ModelOfRole(Endpoint):
    """A value of `models`: an endpoint, or a checkpoint that is served here and whose address and name follow.

    Its `serve_options` are added to those of all models; its `replicas` replace theirs.
    """

    base_url: str = field(default="", metadata={"effect": False})
    model: str = ""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    serve: Annotated[str | None, MinLen(1)] = None
    serve_options: dict[str, Any] = field(default_factory=dict)
    replicas: Annotated[int, Interval(ge=1, le=256)] | None = field(default=None, metadata={"effect": False})


SILENT = "empty"
"""The control that writes nothing, and so may play any role: an evaluation of notes alone needs no answers."""


@dataclass(frozen=True)
class ControlSettings:
    """A value of `models` that is no model: a rule that writes the notes (`notewriter.rollouts.controls`), or silence.

    Args:
        control: its name.
        words: how many words a note has at most, or the folder of a finished run, for as many as its notes have (for
            the control `replay`, the run whose notes are read again).
        encoder: the sentence encoder of the control `similar`, a folder or hub id.
        weights: the file of the control `regression`.
        candidates: how many the control `hard_negative` writes for a prompt of `pairs`, each of the next best ones.
    """

    control: str
    words: Annotated[int, Interval(ge=0)] | str | None = None
    encoder: Annotated[str, MinLen(1)] | None = None
    weights: Annotated[str, MinLen(1)] | None = None
    candidates: Annotated[int, Interval(ge=1)] = 1


def control_settings(arguments: ModelArguments) -> dict[str, ControlSettings]:
    """The roles that a control plays."""
    return {role: ControlSettings(**value) for role, value in arguments.models.items() if "control" in value}


SAMPLED = [each.name for each in fields(Sampling) if each.name in defaults(ModelArguments)]
"""The sampling parameters that are options; the others belong to the stages."""


def sampling_by_stage(arguments: ModelArguments) -> tuple[Sampling, dict[str, Sampling]]:
    """The default sampling, and the sampling of stages that have their own.

    Raises:
        UserError: a stage's sampling has an unknown key or a value that every server would reject.
    """
    general = Sampling(**{name: getattr(arguments, name) for name in SAMPLED})
    check_sampling(general)
    by_stage = {}
    for stage, changes in arguments.stage_sampling.items():
        if not isinstance(changes, dict) or not changes.keys() <= set(SAMPLED):
            raise UserError(f"stage_sampling: {stage}: {changes!r} must be a mapping of {', '.join(SAMPLED)}")
        by_stage[stage] = replace(general, **changes)
        check_sampling(by_stage[stage], f"stage_sampling: {stage}")
    return general, by_stage


def check_sampling(sampling: Sampling, place: str = "") -> None:
    """Check for values that every server would reject.

    Raises:
        UserError: a temperature below 0, a top_p outside (0, 1], or max_tokens below 1; begins with `place`.
    """
    typed.read(asdict(sampling), Sampling, place)


def policies_in(arguments: ModelArguments) -> list[str]:
    """The options that name a policy; a run has one."""
    named = {"serve": arguments.serve, "base_url": arguments.base_url, "models: policy": "policy" in arguments.models}
    return [option for option, value in named.items() if value]


def policy_of(arguments: ModelArguments) -> dict[str, Any]:
    """The endpoint of the policy, as in `models`; a run asks for it before it writes anything.

    Raises:
        UserError: no model is given, or one is given twice.
    """
    given = policies_in(arguments)
    if len(given) > 1:
        raise UserError(f"both {given[0]} and {given[1]} are set; give only one of them")
    if not given:
        raise UserError("no model; give --serve PATH, or --base_url URL --model NAME")
    if arguments.serve:
        return {"serve": arguments.serve}
    if not arguments.base_url:
        return dict(arguments.models["policy"])
    if not arguments.model:
        raise UserError("base_url is set but model is not; add --model NAME, the name used by the endpoint")
    return {"base_url": arguments.base_url, "model": arguments.model}


@contextlib.contextmanager
def served_models(arguments: ModelArguments, log_dir: Path) -> Iterator[Roles]:
    """Start the configured servers that are not up yet; yields each role's endpoint, and its servers if it is served.

    See `servers.keep` for how long they stay.

    Raises:
        UserError: no model is given, one is given twice, or an endpoint is not valid.
    """
    check(arguments)
    check_endpoints(arguments)
    models, wanted = models_of(arguments), wanted_by(arguments)
    logs = {model.serve: log_dir / f"vllm-{role}.log" for role, model in reversed(models.items()) if model.serve}
    with use(list(wanted.values()), logs, arguments.port, arguments.ready_timeout) as running:
        roles: Roles = {}
        for role, model in models.items():
            servers: Sequence[Server | ServerOfParent] = ()
            if path := model.serve:
                name, servers = running[path]
                identity = Checkpoint(path).identity(wanted[path].options)
                model = replace(model, base_url=running[path].base_url, model=name, identity=identity)
            roles[role] = (model, servers)
        yield roles


def wanted_by(arguments: ModelArguments) -> dict[str, Wanted]:
    """The checkpoints that are to be served here for all roles, by path.

    Raises:
        UserError: roles want one checkpoint in two ways, or its chat template does not know the variables that it gets.
    """
    wanted: dict[str, Wanted] = {}
    for role, model in models_of(arguments).items():
        if path := model.serve:
            options = {**arguments.serve_options, **model.serve_options}
            own = Wanted(path, options, model.replicas or arguments.replicas)
            if wanted.setdefault(path, own) != own:
                raise UserError(
                    f"models: {role}: {path} has other serve_options or replicas in another role; give both roles the "
                    "same"
                )
            check_template(Checkpoint(path).tokenizer, model.chat_template_kwargs, options.get("chat_template"))
    return wanted


def models_of(arguments: ModelArguments) -> dict[str, ModelOfRole]:
    """Role -> its model, without the roles that controls play.

    Raises:
        UserError: as `policy_of`.
    """
    policy = {"chat_template_kwargs": arguments.chat_template_kwargs} | policy_of(arguments)
    roles = arguments.models | {"policy": policy}
    return {role: _model(value, arguments) for role, value in roles.items() if "control" not in value}


def _model(value: dict[str, Any], arguments: ModelArguments) -> ModelOfRole:
    """The model of a role, with the settings of all roles."""
    # Never send another service's key to our own server; vLLM reads its own from this variable.
    key = {"api_key_env": "VLLM_API_KEY"} if "serve" in value else {}
    model = ModelOfRole(**{"concurrency": arguments.concurrency, **key, **value})
    if not model.chat_template_kwargs:
        return model
    return replace(model, extra_body=model.extra_body | {"chat_template_kwargs": model.chat_template_kwargs})


def check_endpoints(arguments: ModelArguments) -> None:
    """Check all endpoints, and that they contain no secrets, since they are written to the run's config.yaml.

    Raises:
        UserError: an unknown role or key (such as `api_key`), an address that is not valid or contains a user name
            or password, or a refused vLLM option; no message repeats a possible secret.
    """
    check_options(arguments.serve_options)
    check_settings(arguments.chat_template_kwargs)
    _check_addresses(arguments.base_url, "base_url")
    for role, value in arguments.models.items():
        choose("role in models", role, dict.fromkeys(ROLES))
        _check_model(value, f"models: {role}")


def _check_model(value: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise UserError(f"{place}: is not an endpoint; give {{serve: PATH}}, or base_url and model")
    if "control" in value:
        _check_control(value, place)
        return
    keys = [each.name for each in fields(ModelOfRole)]
    if unknown := [key for key in value if key not in keys]:
        raise UserError(f"{place}: unknown key {unknown[0]!r}; an endpoint has: {', '.join(keys)}")
    if not ({"serve"} <= value.keys() or {"base_url", "model"} <= value.keys()):
        raise UserError(f"{place}: needs base_url and model, or serve")
    if "serve" in value and (both := {"base_url", "model", "identity"} & value.keys()):
        raise UserError(f"{place}: {min(both)} follows from serve; give only one of them")
    if "serve" not in value and (needless := {"serve_options", "replicas"} & value.keys()):
        raise UserError(f"{place}: {min(needless)} is for a model that is served here; remove it")
    if problem := misfit(value, ModelOfRole, place):
        # Without the value, which may be a misplaced secret.
        raise UserError(f"{problem.partition(', not ')[0]}; fix the value")
    model = ModelOfRole(**value)
    if model.batch and (model.serve or len(model.addresses) > 1):
        raise UserError(f"{place}: batch needs the base_url of one batch API; remove batch")
    if not _VARIABLE.fullmatch(model.api_key_env):
        raise UserError(
            f"{place}: api_key_env must be the name of an environment variable, such as OPENAI_API_KEY; set that "
            "variable to the key"
        )
    check_settings(model.chat_template_kwargs, f"{place}: chat_template_kwargs")
    for name, other in model.parameters.items():
        choose(f"{place}: parameters", name, dict.fromkeys(PARAMETERS))
        if other is not None and not _VARIABLE.fullmatch(other):
            raise UserError(
                f"{place}: parameters: {name}: is not a parameter's name; give the endpoint's name for it, or null"
            )
    check_options(model.serve_options, f"{place}: serve_options")
    _check_addresses(model.base_url, f"{place}: base_url")


def _check_control(value: dict[str, Any], place: str) -> None:
    if place != "models: notes" and value["control"] != SILENT:
        raise UserError(
            f"{place}: a control writes notes and nothing else; let a model play the role, or {SILENT!r}, for no reply"
        )
    keys = [each.name for each in fields(ControlSettings)]
    if unknown := [key for key in value if key not in keys]:
        raise UserError(f"{place}: unknown key {unknown[0]!r}; a control has: {', '.join(keys)}")
    if problem := misfit(value, ControlSettings, place):
        raise UserError(f"{problem}; fix the value")


def _check_addresses(base_url: str | None, place: str) -> None:
    for address in base_url.split(",") if base_url else []:
        check_address(address.strip(), place)


_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
