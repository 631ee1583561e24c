"""`notewriter ask "question"`: answer one question in the terminal, printing each step of the method."""

import asyncio
import logging
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter.artifacts.traces import Generation, Trace
from notewriter.datasets.questions import INDEX, RETRIEVER
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Message, Passage, Question, Sampling
from notewriter.ground.terminal import escape_controls
from notewriter.ground.text import without_surrogates
from notewriter.methods import METHODS, check_index, prepare
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments, Roles, served_models
from notewriter.retrieval.chain import Part, parts_of
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.resources import check_inputs, open_resources
from notewriter.rollouts.rollout import Rollout

logger = logging.getLogger(__name__)

BOLD, DIM = "1", "2"


@dataclass
class AskArguments:
    """The question and how to answer it."""

    question: str = field(metadata={"help": "the question; `--question` may be omitted if it comes first"})
    index: list[str] | None = field(default=None, metadata=INDEX)
    retriever: list[dict[str, Any]] | None = field(default=None, metadata=RETRIEVER)
    method: str = field(default="deepnote", metadata={"help": f"one of: {', '.join(METHODS)}"})
    method_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "the method's options, e.g. {top_k: 5, max_step: 3}"}
    )
    output_dir: str = field(default="runs/ask", metadata={"help": "folder for the server's log (with --serve)"})


def main(argv: list[str]) -> None:
    """Answer one question, printing each step."""
    if argv and not argv[0].startswith("-"):
        argv = ["--question", *argv]
    # A command line that is not in the terminal's encoding contains lone surrogates.
    argv = list(map(without_surrogates, argv))
    arguments, models = parse((AskArguments, ModelArguments), argv, prog="notewriter ask", description=__doc__)
    if not arguments.question.strip():
        raise UserError('the question is empty; write it in quotes: notewriter ask "Who ...?"')
    method = prepare(arguments.method, arguments.method_options)
    parts = parts_of(arguments.index, arguments.retriever)
    check_index(method, parts)
    check_inputs(models, parts)
    if models.serve:
        logger.info("starting a server for %s", models.serve)
    start = time.perf_counter()
    with served_models(models, Path(arguments.output_dir)) as roles:
        trace = asyncio.run(_answer(arguments, models, roles, method, parts))
    print_step("answer", _cost(trace, time.perf_counter() - start), trace.answer)


async def _answer(
    arguments: AskArguments, models: ModelArguments, roles: Roles, method: Method, parts: Sequence[Part]
) -> Trace:
    async with open_resources(models, roles, parts) as resources:
        rollout = PrintingRollout(Question("ask", arguments.question, ()), arguments.method, resources)
        try:
            rollout.trace.answer = await method.run(arguments.question, rollout, **arguments.method_options)
        except RequestRefused as refusal:
            raise UserError(
                f"the model's endpoint rejected a request: {str(refusal).rstrip('.')}; if the prompt is too long, "
                """retrieve fewer passages (--method_options '{"top_k": 2}') or set a smaller --max_tokens"""
            ) from refusal
        return rollout.trace


class PrintingRollout(Rollout):
    """A rollout that prints every step when it is finished."""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """Retrieve passages, and print their titles and first words."""
        passages = await super().retrieve(query, top_k)
        lines = (
            f"[{number}] {passage.title}: {textwrap.shorten(passage.text, 90, placeholder=' ...')}"
            for number, passage in enumerate(passages, start=1)
        )
        print_step(f"search: {query}", f"{len(passages)} found", "\n".join(lines))
        return passages

    def record(self, stage: Stage, messages: list[Message], sampling: Sampling, completion: Completion) -> None:
        """Add a completion to the trace and print it."""
        super().record(stage, messages, sampling, completion)
        tokens = f"{completion.prompt_tokens} + {completion.completion_tokens} tokens"
        cut = ", cut at max_tokens" if completion.finish_reason == "length" else ""
        cost = f"{stage.role}, {tokens}, {completion.seconds:.1f} s{cut}"
        print_step(stage.name, cost, completion.text.strip())


def print_step(headline: str, cost: str, text: str) -> None:
    """Print a step, in colour if standard output is a terminal that supports it."""
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    def paint(code: str, words: str) -> str:
        return f"\x1b[{code}m{words}\x1b[0m" if coloured else words

    headline = " ".join(escape_controls(headline).split())
    step = f"{paint(BOLD, headline)} {paint(DIM, f'({cost})')}\n{textwrap.indent(escape_controls(text), '  ')}\n\n"
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(step.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def _cost(trace: Trace, seconds: float) -> str:
    completions = [step.completion for step in trace.steps if isinstance(step, Generation)]
    read = sum(completion.prompt_tokens for completion in completions)
    written = sum(completion.completion_tokens for completion in completions)
    searches = len(trace.steps) - len(completions)
    return f"searches: {searches}, calls: {len(completions)}, {read} + {written} tokens, {seconds:.1f} s"
