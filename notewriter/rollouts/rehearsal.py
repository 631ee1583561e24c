"""Dry runs: a sample of questions with real prompts and no model, to estimate what a run would cost."""

import hashlib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from annotated_types import Interval

from notewriter.artifacts import run_record
from notewriter.artifacts.statistics import UsageTotals
from notewriter.ground import jsonl
from notewriter.ground.config import check
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.event_loop import run_async
from notewriter.ground.options import option
from notewriter.ground.records import Completion, Message, Question, Sampling
from notewriter.models.checkpoint import Checkpoint, loading
from notewriter.models.prices import Prices, cost, prices_of
from notewriter.models.roles import ModelArguments
from notewriter.models.tokenizer import load_tokenizer
from notewriter.retrieval.chain import Part, without_models
from notewriter.rollouts.method import Kind, Stage
from notewriter.rollouts.resources import Resources, open_chain, settings_of
from notewriter.rollouts.usage import Usage

TOKENS_A_WORD = 1.3
"""Typical for English text in current vocabularies; used if no tokenizer is available."""


@dataclass
class DryRunArguments:
    """Estimate the cost of a run without calling a model."""

    dry_run: bool = option(
        False,
        "render the prompts of a sample of questions, print calls, tokens, time and money of the run, and exit. The "
        "figures are an upper bound: loops run to their limits, and quotas end nothing early",
    )
    dry_run_questions: Annotated[int, Interval(ge=1)] = option(20, "number of questions in the sample")
    reply_share: Annotated[float, Interval(gt=0, le=1)] = option(
        0.5, "expected length of replies as a fraction of max_tokens"
    )
    tokenizer: str | None = option(
        None,
        "a model folder or hub id whose tokenizer counts the tokens; default: the served model's, or "
        f"{TOKENS_A_WORD} tokens per word without one",
    )
    tokens_per_second: Annotated[float, Interval(gt=0)] | None = option(
        None, "completion tokens that the server writes per second, to estimate hours"
    )


REPLIES: dict[Kind, str] = {
    "note": "{query}",
    "updated note": "{query}",
    "document note": "YES#{query}",
    "query": "{query}",
    "status": '{"status": "True"}',
    "answer": "{query}",
    "step": "{query}.",
}
"""The reply for each kind of stage, unless a stage has its own (`Stage.rehearsal`)."""


class InAll(TypedDict):
    """The expected usage of a run in all."""

    calls: NotRequired[float]
    prompt_tokens: float
    completion_tokens: float


class Expected(TypedDict):
    """The part of an `estimate.json` that a run is compared with; others may be of earlier versions."""

    questions: Annotated[int, Interval(ge=1)]
    tokens_in_all: InAll
    money: NotRequired[float]


class Estimate(UsageTotals):
    """The contents of `estimate.json`; time and money as far as speed and prices are given."""

    schema: str
    questions: int
    sample: int
    tokens_counted_with: str
    reply_share: float
    hours: NotRequired[float]
    money: NotRequired[float]


@dataclass(frozen=True)
class Rehearsal(Resources):
    """Resources without models: every call is answered immediately, in its stage's format and at its expected length.

    Loops run to their limits: no token is confident, no verdict ends anything. Search queries are the last words of
    the prompt, usually the question's, so that passages are found. Different draws get different replies, as
    candidates would be.

    Args:
        count: returns the number of tokens in a chat, or in a text that is sent without a chat template.
        share: the expected length of replies as a fraction of `max_tokens`.
        tokens_a_word: tokens per word in these replies.
    """

    count: Callable[[list[Message] | str], int] = field(kw_only=True)
    share: float = field(kw_only=True)
    tokens_a_word: float = field(kw_only=True)

    async def complete(
        self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int, affinity: str
    ) -> Completion:
        """The canned reply of the stage."""
        draw = hashlib.sha256(repr((messages, sampling, sample)).encode()).hexdigest()[:8]
        query = " ".join([*re.findall(r"\w+", messages[0]["content"])[-12:], draw])
        tokens = max(1, round(self.share * sampling.max_tokens))
        filling = " of" * max(0, round(tokens / self.tokens_a_word) - len(query.split()))
        form = stage.rehearsal or REPLIES[stage.kind]
        if "{filling}" not in form:
            form += "{filling}"
        text = form.replace("{query}", query).replace("{filling}", filling)
        logprobs = [(text, -1.0)] if sampling.logprobs else None
        alternatives: list[dict[str, float]] | None = [{}] if sampling.alternatives else None
        prompt = "".join(message["content"] for message in messages) if sampling.raw else messages
        return Completion(text, "stop", self.count(prompt), tokens, 0, 0.0, logprobs, alternatives)


def report(result: Estimate, folder: Path) -> None:
    """Print an estimate and save it in a run's folder, for comparison with the actual figures."""
    jsonl.write_text(folder / run_record.ESTIMATE, [json.dumps(result, indent=2) + "\n"])
    sys.stdout.write(_table(result))


def rehearse(
    dry: DryRunArguments,
    models: ModelArguments,
    retriever: Sequence[Part],
    questions: Sequence[Question],
    work: Callable[[Question, Resources], Awaitable[dict[str, Any]]],
    prices: Prices,
) -> Estimate:
    """The estimated cost of a run over the questions.

    `work` is what the run does with a question; its record contains `usage`, or traces to count from.

    Raises:
        UserError: an option is out of range, or the tokenizer cannot be loaded.
    """
    check(dry)
    sample = questions[:: max(1, len(questions) // dry.dry_run_questions)][: dry.dry_run_questions]
    count, tokens_a_word, counted_with = _counter(
        dry.tokenizer or (models.serve and Checkpoint(models.serve).tokenizer), models.chat_template_kwargs
    )
    # Whose calls are counted and not made: all roles but those that a control plays.
    played: dict[str, Any] = {role: None for role, value in models.models.items() if "control" not in value}
    resources = Rehearsal(
        played, count=count, share=dry.reply_share, tokens_a_word=tokens_a_word, **settings_of(models)
    )

    async def run() -> list[dict[str, Any]]:
        async with open_chain(without_models(retriever)) as chain:
            return [await work(question, replace(resources, retriever=chain)) for question in sample]

    usage = Usage()
    for record in run_async(run()):
        usage.add(record)
    total = usage.to_dict(len(questions) / len(sample))
    result: Estimate = {
        "schema": "notewriter/estimate/1",
        "questions": len(questions),
        "sample": len(sample),
        "tokens_counted_with": counted_with,
        "reply_share": dry.reply_share,
        "tokens": total["tokens"],
        "tokens_in_all": total["tokens_in_all"],
    }
    usages = [(role, usage) for roles in total["tokens"].values() for role, usage in roles.items()]
    if dry.tokens_per_second:
        completion_tokens = sum(usage["completion_tokens"] for _, usage in usages)
        result["hours"] = round(completion_tokens / dry.tokens_per_second / 3600, 2)
    if prices := prices_of(prices, models.models):
        money = (cost(prices, role, usage["prompt_tokens"], usage["completion_tokens"]) for role, usage in usages)
        result["money"] = round(sum(money), 2)
    return result


def estimated(folder: Path) -> dict[str, Any]:
    """The estimate of an earlier dry run in this folder, for comparison; empty if there was none.

    Raises:
        UserError: it is damaged.
    """
    path = folder / run_record.ESTIMATE
    return {"estimate": jsonl.read_object(path, Expected, "remove it")} if path.exists() else {}


def _count_words(prompt: list[Message] | str) -> int:
    texts = [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]
    return round(TOKENS_A_WORD * sum(len(text.split()) for text in texts))


def _counter(model: str | None, variables: dict[str, Any]) -> tuple[Callable[[list[Message] | str], int], float, str]:
    """A function that counts a prompt's tokens, the tokens per word of canned replies, and a description of both."""
    if model is None:
        return _count_words, TOKENS_A_WORD, f"{TOKENS_A_WORD} tokens per word"
    with loading(f"tokenizer: {model}", "tokenizer"):
        tokenizer = load_tokenizer(model)

    def count(prompt: list[Message] | str) -> int:
        if isinstance(prompt, str):
            return len(tokenizer(prompt)["input_ids"])
        try:
            encoded: Any = tokenizer.apply_chat_template(
                prompt,  # type: ignore[arg-type]
                tokenize=True,
                add_generation_prompt=True,
                return_dict=True,
                **variables,
            )
        except Exception as error:  # a template is a program and can raise anything
            reason = one_line(error)[:200]
            raise UserError(f"tokenizer: {model}: its chat template fails on a prompt ({reason})") from error
        return len(encoded["input_ids"])

    return count, 1.0, f"the tokenizer of {model}"


def _table(result: Estimate) -> str:
    keys = ("calls", "prompt_tokens", "completion_tokens")
    rows = [(stage, role, usage) for stage, roles in result["tokens"].items() for role, usage in roles.items()]
    rows.append(("total", "", result["tokens_in_all"]))
    lines = [f"{'stage':34} {'role':8} {'calls':>12} {'prompt tokens':>15} {'completion tokens':>18}"]
    for stage, role, usage in rows:
        lines.append("{:34} {:8} {:12,} {:15,} {:18,}".format(stage, role, *(usage.get(key, 0) for key in keys)))
    lines += [f"{name}: {value:,}" for name in ("hours", "money") if (value := result.get(name)) is not None]
    lines.append(
        f"estimated for {result['questions']} questions from {result['sample']}; tokens counted with "
        f"{result['tokens_counted_with']}; replies assumed to be {result['reply_share']:.0%} of max_tokens; "
        "loops run to their limits"
    )
    return "\n".join(lines) + "\n"
