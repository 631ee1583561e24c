"""One question, answered step by step: each step is reported as it is finished."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from notewriter.artifacts.traces import Generation, Step, Trace
from notewriter.datasets.questions import INDEX, RETRIEVER
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_in, option
from notewriter.ground.records import Completion, Message, Passage, Question, Sampling
from notewriter.methods import METHODS, check_index, check_stages, prepare
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments
from notewriter.retrieval.chain import Part, parts_of
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.resources import Resources, check_inputs
from notewriter.rollouts.rollout import Rollout

Tell = Callable[[Step, Sequence[Passage]], None]
"""Called with every step and the passages that it found."""


@dataclass
class AskArguments:
    """The options for answering questions."""

    index: list[str] | None = field(default=None, metadata=INDEX)
    retriever: list[dict[str, Any]] | None = field(default=None, metadata=RETRIEVER)
    method: str = option("deepnote", f"one of: {', '.join(METHODS)}", plugins=METHODS, names=names_in)
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's options, e.g. {top_k: 5, max_step: 3}"}
    )
    output_dir: str = option("runs/ask", "folder for the server's log (with --serve)")


def prepared(arguments: AskArguments, models: ModelArguments) -> tuple[Method, Sequence[Part]]:
    """The method and its retriever, checked before a server is started.

    Raises:
        UserError: there is no such method or option, or the index, an endpoint or the sampling is not valid.
    """
    method = prepare(arguments.method, arguments.method_options)
    parts = parts_of(arguments.index, arguments.retriever)
    check_index(method, parts)
    check_inputs(models, parts)
    check_stages(method, models)
    return method, parts


async def answer(question: str, method: Method, arguments: AskArguments, resources: Resources, tell: Tell) -> Trace:
    """The trace of a question, reported step by step.

    Raises:
        UserError: the model's endpoint rejected a request, or the method, somebody else's, failed.
    """
    rollout = _Told(Question("ask", question, ()), arguments.method, resources, tell)
    try:
        rollout.trace.answer = await rollout.follow(method, arguments.method_options)
    except RequestRefused as refusal:
        raise UserError(
            f"the model's endpoint rejected a request: {str(refusal).rstrip('.')}; if the prompt is too long, "
            """retrieve fewer passages (--method_options '{"top_k": 2}') or set a smaller --max_tokens"""
        ) from refusal
    return rollout.trace


class _Told(Rollout):
    """A rollout that reports every step when it is finished."""

    def __init__(self, question: Question, method: str, resources: Resources, tell: Tell) -> None:
        super().__init__(question, method, resources)
        self._tell = tell

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        passages = await super().retrieve(query, top_k)
        self._tell(self.trace.steps[-1], passages)
        return passages

    def record(self, stage: Stage, messages: list[Message], sampling: Sampling, completion: Completion) -> None:
        super().record(stage, messages, sampling, completion)
        self._tell(self.trace.steps[-1], ())

    def _controlled(self, *arguments: Any, **options: Any) -> str:
        text = super()._controlled(*arguments, **options)
        self._tell(self.trace.steps[-1], ())
        return text


def cost_of_step(step: Generation) -> str:
    """The cost of a model call, in words."""
    completion = step.completion
    cut = ", cut at max_tokens" if completion.finish_reason == "length" else ""
    return (
        f"{step.role}, {completion.prompt_tokens} + {completion.completion_tokens} tokens, "
        f"{completion.seconds:.1f} s{cut}"
    )


def cost_of(trace: Trace, seconds: float) -> str:
    """The cost of a question, in words."""
    completions = [step.completion for step in trace.generations]
    read = sum(completion.prompt_tokens for completion in completions)
    written = sum(completion.completion_tokens for completion in completions)
    return f"searches: {len(trace.retrievals)}, calls: {len(completions)}, {read} + {written} tokens, {seconds:.1f} s"
