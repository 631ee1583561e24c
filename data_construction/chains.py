"""`notewriter chains`: a teacher reasons and searches, and its chains become data for fine-tuning (ReaRAG)."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
from annotated_types import Interval

from data_construction.card import CHAINS, write_card
from data_construction.hygiene import question_stats
from data_construction.pairs_format import MESSAGES
from data_construction.selection import Selection, SelectionArguments, clean_selection
from data_construction.splits import JOURNAL, dev_questions, write_splits
from eval.metrics.text import token_f1
from notewriter import __version__, jsonl
from notewriter.artifacts.run_folder import (
    ResumeArguments,
    check_journal,
    config_hash,
    defaults,
    drop_errors,
    finished,
    open_run,
    remaining,
    shard_of,
    tell_errors,
)
from notewriter.artifacts.traces import TraceRecord
from notewriter.config import parse
from notewriter.errors import UserError
from notewriter.methods import MOST
from notewriter.methods.rearag import ACTIONS, STEP, TEACH, TEACH_WITH_GOLD, Chain, as_observation, as_step, reason
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ModelArguments
from notewriter.records import Message, Question
from notewriter.rollouts.actions import parse_steps
from notewriter.rollouts.loop import run_questions
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.rehearsal import PricedDryRunArguments, estimate, estimated
from notewriter.rollouts.resources import Resources, check_inputs
from notewriter.rollouts.rollout import Rollout
from notewriter.rollouts.usage import Usage

SCHEMA = "notewriter/chain/1"
STATS_SCHEMA = "notewriter/chains-stats/1"

COLUMNS = pa.schema(
    [
        ("schema", pa.string()),
        # What `rearag` sends when it is evaluated; the steps are the assistant's.
        ("messages", MESSAGES),
        ("question_id", pa.string()),
        ("dataset", pa.string()),
        ("f1", pa.float64()),
        ("steps", pa.int64()),
    ]
)

FAULTS = {
    "malformed": "thought, action and observation do not follow each other",
    "invalid_actions": "an action could not be read",
    "unfinished": "the chain did not finish",
}
"""Counted events that spoil a chain -> the reason for which it is dropped."""


@dataclass(frozen=True)
class ChainRecord:
    """A finished question as the journal keeps it."""

    question_id: str
    turns: list[Message]
    trace: TraceRecord


RECORD = ChainRecord
"""What a line of the journal holds."""


@dataclass(kw_only=True)
class Arguments(SelectionArguments):
    """How the questions are reasoned about, and which chains are kept."""

    reasoning: bool = field(
        default=True,
        metadata={
            "help": "false: the teacher is given the gold sub-questions and answer and writes the chain at once, "
            "without any search (ReaRAG, Algorithm 3); needs a dataset with sub-questions, such as musique"
        },
    )
    top_k: Annotated[int, Interval(ge=1, le=MOST)] = field(default=5, metadata={"help": "passages a search"})
    max_step: Annotated[int, Interval(ge=1, le=MOST)] = field(
        default=25, metadata={"help": "steps a chain at the most (the authors' code: 25)"}
    )
    retries: Annotated[int, Interval(ge=0, le=MOST)] = field(
        default=20,
        metadata={
            "help": "how often a step without an action that can be read is drawn again before its chain is given up "
            "(the authors' code: up to 20 times); at a temperature near 0 the draws are alike"
        },
    )
    min_searches: Annotated[int, Interval(ge=0)] = field(
        default=1, metadata={"help": "chains with fewer searches are dropped: they answer from the teacher's memory"}
    )
    drop_repeated_queries: bool = field(default=False, metadata={"help": "drop chains that send a query twice"})


def main(argv: list[str]) -> None:
    """Build chains; what exists already in the output folder is not done again."""
    arguments, models, resume, dry = parse(
        [Arguments, ModelArguments, ResumeArguments, PricedDryRunArguments],
        argv,
        prog="notewriter chains",
        description=__doc__,
    )
    check(arguments)
    check_inputs(models, arguments.index)
    selection = clean_selection(arguments)
    if not arguments.reasoning:
        check_decompositions(selection.questions)
    members = shard_of(selection.questions, arguments.shard)
    work = partial(roll_out, arguments=arguments)
    if dry.dry_run:
        estimate(dry, models, arguments.index, members, work, Path(arguments.output_dir), dry.prices)
        return
    config = asdict(arguments) | asdict(models)
    with open_run(arguments.output_dir, config, selection.questions, defaults(arguments, models)) as folder:
        journal = folder / JOURNAL
        check_journal(journal, RECORD)
        if resume.retry_errors:
            drop_errors(journal)
        if to_do(arguments, members, journal):
            run_questions(models, arguments.index, members, work, journal, description="reasoning")
        stats = finish(arguments, folder, selection, config)
        tell_errors(journal, members)
    sys.stdout.write(summary(stats, folder))


def to_do(arguments: Arguments, questions: list[Question], journal: Path) -> int:
    """How many questions a run or a shard has still to reason about."""
    return remaining(journal, questions)


def check(arguments: Arguments) -> None:
    """Find what is wrong in the settings before any model is asked.

    Raises:
        UserError: a number out of its range, or no index to search.
    """
    if arguments.reasoning and not arguments.index:
        raise UserError("the teacher searches; add --index PATH (notewriter index builds one)")


def check_decompositions(questions: list[Question]) -> None:
    """Make sure that every question comes with its gold sub-questions.

    Raises:
        UserError: one has none, or they are not objects with `question` and `answer`.
    """
    for question in questions:
        hops = question.metadata.get("decomposition")
        if not (
            isinstance(hops, list)
            and hops
            and all(isinstance(hop, dict) and {"question", "answer"} <= set(hop) for hop in hops)
        ):
            raise UserError(
                f"reasoning: false needs the gold sub-questions, and question {question.id!r} has none "
                "(metadata: decomposition); use musique, or leave reasoning true"
            )


async def roll_out(question: Question, resources: Resources, arguments: Arguments) -> dict[str, Any]:
    """Have the teacher write a chain for one question.

    Returns a JSON-ready record: `question_id`, `turns` (the chat after the instruction) and `trace`, whose answer
    is what the chain finished with.
    """
    rollout = Rollout(question, "rearag", resources)
    chain = Chain()
    try:
        if arguments.reasoning:
            chain = await reason(
                question.question,
                rollout,
                TEACH,
                top_k=arguments.top_k,
                max_step=arguments.max_step,
                retries=arguments.retries,
            )
        else:
            chain = await write_at_once(question, rollout)
    except RequestRefused as refusal:
        rollout.trace.error = str(refusal)
    rollout.trace.answer = chain.answer or ""
    return {"question_id": question.id, "turns": chain.turns, "trace": rollout.trace.to_dict()}


async def write_at_once(question: Question, rollout: Rollout) -> Chain:
    """A chain by a teacher that knows the sub-questions, the evidence and the answer (ReaRAG, Algorithm 3)."""
    reply = await rollout.generate(
        TEACH_WITH_GOLD,
        question=question.question,
        answer=question.answers[0],
        decomposition=question.metadata["decomposition"],
        evidence=question.supporting_facts,
    )
    chain = Chain()
    steps = parse_steps(reply, ACTIONS, "finish")
    if steps is None:
        rollout.count("malformed")
        return chain
    for action, observation in steps:
        rollout.count("steps")
        chain.add("assistant", as_step(action))
        if action.name == "finish":
            chain.answer = action.argument
            return chain
        if action.argument in chain.searches:
            rollout.count("repeated_queries")
        chain.searches[action.argument] = observation
        chain.add("user", as_observation(observation))
    rollout.count("unfinished")
    return chain


def fault_of(record: dict[str, Any], f1: float, arguments: Arguments) -> str | None:
    """Why a chain is no training data, or None where it is (ReaRAG, section 3.2, and what the authors' code checks).

    `f1`, 0 to 1, is that of the answer that the chain finished with. The first reason in this order counts: the
    endpoint refused, `FAULTS`, a step without a thought, too few searches, a repeated query (by option), an F1 of 0.
    """
    counts = record["trace"]["counts"]
    steps = [turn["content"] for turn in record["turns"] if turn["role"] == "assistant"]
    if record["trace"]["error"]:
        return "the endpoint refused the request"
    for event, reason_to_drop in FAULTS.items():
        if counts.get(event):
            return reason_to_drop
    if not all(step.startswith("Thought:") for step in steps):
        return "a step without a thought"
    if len(steps) - 1 - counts.get("repeated_queries", 0) < arguments.min_searches:
        return "too few searches"
    if arguments.drop_repeated_queries and counts.get("repeated_queries"):
        return "a query was repeated"
    if f1 == 0:
        return "the answer's F1 is 0"
    return None


def finish(arguments: Arguments, folder: Path, selection: Selection, config: dict[str, Any]) -> dict[str, Any]:
    """Write the chains in the questions' order (dev.parquet if it has any), stats.json, and the card with its plots."""
    journal, questions = folder / JOURNAL, shard_of(selection.questions, arguments.shard)
    jsonl.write(folder / "dropped_questions.jsonl", (drop.to_dict() for drop in selection.drops))
    prompts = Prompts(config["prompts_dir"])
    by_id = {question.id: question for question in questions}

    def judged() -> Iterator[Judged]:
        for record in finished(journal, questions):
            golds = by_id[record["question_id"]].answers
            # Plain F1: what a chain finishes with may be a sentence, which the rules for a bare yes or no would fail.
            f1 = max((token_f1(record["trace"]["answer"], gold) for gold in golds), default=0.0)
            yield Judged(record, f1, fault_of(record, f1, arguments))

    def rows() -> Iterator[dict[str, Any]]:
        for record, f1, fault in judged():
            if fault is None:
                question = by_id[record["question_id"]]
                yield {
                    "schema": SCHEMA,
                    "messages": prompts.render(STEP.name, turns=record["turns"], question=question.question),
                    "question_id": question.id,
                    "dataset": arguments.dataset,
                    "f1": f1,
                    "steps": record["trace"]["counts"]["steps"],
                }

    # Of all questions, so that every shard makes the same split.
    dev = dev_questions(selection.questions, arguments.dev_share, arguments.seed)
    counts = write_splits(folder, COLUMNS, rows, dev)
    stats = {
        "schema": STATS_SCHEMA,
        "questions": len(questions),
        "chains": counts,
        **chains_stats(judged()),
        **estimated(folder),
        "hygiene": question_stats(selection.drops, selection.evaluation),
        "config_hash": config_hash(config),
        "version": __version__,
    }
    jsonl.write_text(folder / "stats.json", [json.dumps(stats, indent=2, ensure_ascii=False) + "\n"])
    write_card(folder, config, stats, CHAINS)
    return stats


class Judged(NamedTuple):
    """A question's record, the F1 of its chain's answer, 0 to 1, and why the chain is dropped, or None."""

    record: dict[str, Any]
    f1: float
    fault: str | None


def chains_stats(judged: Iterable[Judged]) -> dict[str, Any]:
    """Sum up the chains: why some were dropped, how long the others are, and what all of them cost.

    `events` are counted over all chains, kept and dropped: the rate of invalid actions is invalid_actions / steps.
    `tokens`: every call by stage and role.
    """
    dropped: Counter[str] = Counter()
    lengths: Counter[int] = Counter()
    events: Counter[str] = Counter()
    usage = Usage()
    f1_of_kept = 0.0
    for record, f1, fault in judged:
        events.update(record["trace"]["counts"])
        usage.add(record)
        if fault is None:
            lengths[record["trace"]["counts"]["steps"]] += 1
            f1_of_kept += f1
        else:
            dropped[fault] += 1
    kept = lengths.total()
    return {
        "dropped": dict(sorted(dropped.items())),
        "steps_of_the_kept": {str(length): count for length, count in sorted(lengths.items())},
        "mean_f1_of_the_kept": round(f1_of_kept / kept, 4) if kept else None,
        "events": dict(sorted(events.items())),
        **usage.to_dict(),
    }


def summary(stats: dict[str, Any], folder: Path) -> str:
    """What was built, and why the rest was not."""
    lines = [f"{stats['chains']['train']} training and {stats['chains']['dev']} development chains in {folder}"]
    lines += [f"  {count} left out: {reason}" for reason, count in stats["hygiene"]["questions_dropped"].items()]
    lines += [f"  dropped: {count} {fault}" for fault, count in stats["dropped"].items()]
    return "\n".join(lines) + "\n"
