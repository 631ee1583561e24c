"""The methods by name. Each is a folder: an async function that retrieves and generates, its stages, its prompts.

What they have in common is not said in each: `question` is the question to answer, `rollout` the rollout to run in, and
`answer_style` is `short`, `list` (FanOutQA), `long` (ASQA) or `yes_no` (StrategyQA).
"""

import inspect
from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Annotated, Any, get_type_hints

from annotated_types import Interval

from notewriter.datasets.benchmark import Benchmark
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError, meant
from notewriter.ground.plugins import Plugins, faults_of
from notewriter.ground.records import MAX_TOKENS
from notewriter.ground.typed import misfit
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.method import Method, Stage

_OURS = (
    "direct", "in_context", "mem_agent", "vanilla", "chain_of_note", "recomp", "replug", "sure", "iter_retgen",
    "ircot", "flare", "self_rag", "rat", "react", "langchain_react", "langchain_self_rag", "searchain", "infogent",
    "search_o1", "search_r1", "s3", "corag", "rearag", "renact", "resp", "deepnote",
)  # fmt: skip

METHODS: Plugins[Method] = Plugins(
    "methods", Method, {name: import_module(f"{__name__}.{name}").METHOD for name in _OURS}
)


MAX_PASSAGES = 1_000_000
"""Largest number of passages, far beyond any model's context; catches typing errors."""

MAX_STEPS = 10_000
"""Largest number of steps, rounds or candidates in a rollout; catches typing errors that would run for days."""

BOUNDS = dict.fromkeys(("top_k", "max_passages", "page_size"), MAX_PASSAGES) | dict.fromkeys(
    ("max_words", "look_ahead", "chunk_tokens"), MAX_TOKENS
)
"""Upper bounds of methods' integer options by name; all others count steps, at most `MAX_STEPS`."""


def stages() -> dict[str, Stage]:
    """Every stage, by name, of our methods and of those of others that were asked for."""
    return {stage.name: stage for method in METHODS.values() for stage in method.stages}


def check_extractive(names: Sequence[str]) -> None:
    """Check that stages write a first note from passages, whose sentences a model can name.

    Raises:
        UserError: one does not, or there is no such stage.
    """
    for name in names:
        choose("extractive stage", name, {each: stage for each, stage in stages().items() if stage.kind == "note"})


def check_stages(method: Method, models: ModelArguments) -> None:
    """Check that what is set by stage has a stage of the method; recipes share it among methods.

    Raises:
        UserError: an option names stages of other methods alone, or as `check_extractive`.
    """
    check_extractive(models.extractive_stages)
    known = [stage.name for stage in method.stages]
    for option in ("words", "extractive_stages", "stage_sampling"):
        given = [*getattr(models, option)]
        if given and not {*given} & {*known}:
            remedy = meant(given[0], known, f"its stages are: {', '.join(known)}")
            raise UserError(f"{option}: {given[0]} is no stage of {method.name}; {remedy}")


def stage_named(name: str) -> Stage:
    """The stage with this name.

    Raises:
        UserError: there is none; suggests the most similar one.
    """
    # One of another package, named by its entry point, may not have been asked for yet.
    if (method := str(name).partition("/")[0]) in METHODS:
        METHODS[method]
    if name not in (known := stages()):
        remedy = meant(str(name), known, f"the stages are: {', '.join(known)}")
        raise UserError(f"no stage {name!r}; {remedy}")
    return known[name]


def check_index(method: Method, retriever: Sequence[object]) -> None:
    """Check that a method that retrieves has an index or a retriever.

    Raises:
        UserError: it has nothing.
    """
    if method.retrieves and not retriever:
        raise UserError(
            f"method {method.name} retrieves; add --index PATH (notewriter index builds one), or ask without passages "
            "(--method direct)"
        )


def with_style(name: str, options: dict[str, Any], benchmark: Benchmark) -> dict[str, Any]:
    """A method's options with the benchmark's style of answers, where the method has one and none is given."""
    if "answer_style" not in choose("method", name, METHODS).options:
        return options
    return {"answer_style": benchmark.answer_style} | options


def prepare(name: str, options: dict[str, Any]) -> Method:
    """The method with this name, after checking its options.

    Raises:
        UserError: an unknown method or option, a value that its annotation does not allow or that is out of bounds, or
            a method of somebody else that has a name of ours or options that are not keyword-only.
    """
    method = choose("method", name, METHODS)
    defaults = method.options
    parameters = inspect.signature(method.run).parameters
    if method.name in METHODS.ours and inspect.getfile(method.run) != inspect.getfile(METHODS[method.name].run):
        # It would get the prompts of ours.
        raise UserError(f"method {name}: {method.name!r} is the name of one of ours; give its function another name")
    if others := [key for key, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD][2:]:
        raise UserError(f"method {name}: {others[0]} is no option; write a * before it: (question, rollout, *, ...)")
    for key, value in options.items():
        if key not in defaults:
            raise UserError(f"method {name} has no option {key!r}; it has: {', '.join(defaults)}")
        kind = _type_of(parameters[key], method, f"method {name}: option {key}")
        if kind is int:
            kind = Annotated[int, Interval(ge=1, le=BOUNDS.get(key, MAX_STEPS))]
        if problem := misfit(value, kind, f"method {name}: option {key}"):
            raise UserError(problem)
    return method


def _type_of(parameter: inspect.Parameter, method: Method, place: str) -> Any:
    """The annotation of an option, which is a text in a module with `from __future__ import annotations`."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    option = SimpleNamespace(__annotations__={"type": parameter.annotation})
    with faults_of(lambda: place, method.run):
        return get_type_hints(option, vars(import_module(method.run.__module__)), include_extras=True)["type"]
