"""`notewriter ask "question"`: answer one question in the terminal, printing each step of the method."""

import logging
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from notewriter.artifacts.traces import Generation, Retrieval, Step, Trace
from notewriter.evaluation.asking import AskArguments, answer, cost_of, cost_of_step, prepared
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.records import Passage
from notewriter.ground.terminal import escape_controls
from notewriter.ground.text import without_surrogates
from notewriter.models.roles import ModelArguments, served_models
from notewriter.rollouts.resources import open_resources

logger = logging.getLogger(__name__)

BOLD, DIM = "1", "2"


@dataclass
class AskedArguments:
    """The question."""

    question: str = field(metadata={"help": "the question; `--question` may be omitted if it comes first"})


def main(argv: list[str]) -> None:
    """Answer one question, printing each step."""
    if argv and not argv[0].startswith("-"):
        argv = ["--question", *argv]
    # A command line that is not in the terminal's encoding contains lone surrogates.
    argv = list(map(without_surrogates, argv))
    asked, arguments, models = parse(
        (AskedArguments, AskArguments, ModelArguments), argv, prog="notewriter ask", description=__doc__
    )
    if not asked.question.strip():
        raise UserError('the question is empty; write it in quotes: notewriter ask "Who ...?"')
    method, parts = prepared(arguments, models)
    if models.serve:
        logger.info("starting a server for %s", models.serve)
    start = time.perf_counter()
    with served_models(models, Path(arguments.output_dir)) as roles:

        async def answered() -> Trace:
            async with open_resources(models, roles, parts) as resources:
                return await answer(asked.question, method, arguments, resources, print_told)

        trace = run_async(answered())
    print_step("answer", cost_of(trace, time.perf_counter() - start), trace.answer)


def print_told(step: Step, passages: Sequence[Passage]) -> None:
    """Print a step; of the passages that it found, their titles and first words."""
    if isinstance(step, Retrieval):
        lines = (
            f"[{number}] {passage.title}: {textwrap.shorten(passage.text, 90, placeholder=' ...')}"
            for number, passage in enumerate(passages, start=1)
        )
        print_step(f"search: {step.query}", f"{len(passages)} found", "\n".join(lines))
    else:
        cost = cost_of_step(step) if isinstance(step, Generation) else "without a model"
        print_step(step.stage, cost, step.text.strip())


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
