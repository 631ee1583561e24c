"""`notewriter ask "question"`: one question on a terminal, the steps of the method appearing as they happen."""

import asyncio
import logging
import os
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.artifacts.traces import Generation, Trace
from notewriter.config import parse
from notewriter.errors import UserError
from notewriter.method import Method, Stage
from notewriter.methods import METHODS, check_index, prepare
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments, served_models
from notewriter.records import Completion, Message, Passage, Question, Sampling
from notewriter.rollouts.resources import Resources, check_inputs, open_resources
from notewriter.rollouts.rollout import Rollout
from notewriter.terminal import harmless
from notewriter.text import without_surrogates

logger = logging.getLogger(__name__)

Tell = Callable[[str, str, str], None]
"""Takes a step's headline, what it cost, and its text."""

BOLD, DIM = "1", "2"


@dataclass
class Arguments:
    """What is asked, and how the answer is found."""

    question: str = field(metadata={"help": "the question; without `--question` where it comes first"})
    index: list[str] | None = field(
        default=None, metadata={"help": "the index to retrieve from (notewriter index); several are searched as one"}
    )
    method: str = field(default="deepnote", metadata={"help": f"one of: {', '.join(METHODS)}"})
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's options, e.g. {top_k: 5, max_step: 3}"}
    )
    output_dir: str = field(default="runs/ask", metadata={"help": "where the log of a server that is started goes"})


def main(argv: list[str]) -> None:
    """Answer one question, and show how."""
    if argv and not argv[0].startswith("-"):
        argv = ["--question", *argv]
    # A command line in another encoding than the terminal's comes with halves of surrogate pairs.
    argv = list(map(without_surrogates, argv))
    arguments, models = parse([Arguments, ModelArguments], argv, prog="notewriter ask", description=__doc__)
    if not arguments.question.strip():
        raise UserError('the question is empty; write it in quotes: notewriter ask "Who ...?"')
    method = prepare(arguments.method, arguments.method_options)
    check_index(method, arguments.index)
    check_inputs(models, arguments.index)
    if models.serve:
        logger.info("starting a server for %s", models.serve)
    start = time.perf_counter()
    with served_models(models, Path(arguments.output_dir)) as roles:
        trace = asyncio.run(_answer(arguments, models, roles, method))
    tell("answer", _cost(trace, time.perf_counter() - start), trace.answer)


async def _answer(arguments: Arguments, models: ModelArguments, roles: Any, method: Method) -> Trace:
    async with open_resources(models, roles, arguments.index) as resources:
        rollout = ToldRollout(Question("ask", arguments.question, ()), arguments.method, resources, tell)
        try:
            rollout.trace.answer = await method.run(arguments.question, rollout, **arguments.method_options)
        except RequestRefused as refusal:
            raise UserError(
                f"the model's endpoint refused a request: {str(refusal).rstrip('.')}; change what it names: "
                """a prompt gets shorter with fewer passages (--method_options '{"top_k": 2}'), """
                "and leaves room for itself with a smaller --max_tokens"
            ) from refusal
        return rollout.trace


class ToldRollout(Rollout):
    """A rollout that tells every step when it is done."""

    def __init__(self, question: Question, method: str, resources: Resources, tell: Tell) -> None:
        super().__init__(question, method, resources)
        self._tell = tell

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """The passages, told by their titles and first words."""
        passages = await super().retrieve(query, top_k)
        found = (
            f"[{number}] {passage.title}: {textwrap.shorten(passage.text, 90, placeholder=' ...')}"
            for number, passage in enumerate(passages, start=1)
        )
        self._tell(f"search: {query}", f"{len(passages)} found", "\n".join(found))
        return passages

    def record(self, stage: Stage, messages: list[Message], sampling: Sampling, completion: Completion) -> None:
        """Put a completion into the trace and tell it."""
        super().record(stage, messages, sampling, completion)
        tokens = f"{completion.prompt_tokens} + {completion.completion_tokens} tokens"
        cut = ", cut at max_tokens" if completion.finish_reason == "length" else ""
        self._tell(stage.name, f"{stage.role}, {tokens}, {completion.seconds:.1f} s{cut}", completion.text.strip())


def tell(headline: str, cost: str, text: str) -> None:
    """Write a step to standard output, in colours where that is a terminal that has them."""
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def paint(code: str, words: str) -> str:
        return f"\x1b[{code}m{words}\x1b[0m" if coloured else words

    headline = " ".join(harmless(headline).split())
    told = f"{paint(BOLD, headline)} {paint(DIM, f'({cost})')}\n{textwrap.indent(harmless(text), '  ')}\n\n"
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(told.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _cost(trace: Trace, seconds: float) -> str:
    completions = [step.completion for step in trace.steps if isinstance(step, Generation)]
    read = sum(completion.prompt_tokens for completion in completions)
    written = sum(completion.completion_tokens for completion in completions)
    searches = len(trace.steps) - len(completions)
    return f"searches: {searches}, calls: {len(completions)}, {read} + {written} tokens, {seconds:.1f} s"
