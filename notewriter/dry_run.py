"""What a run would cost, before it is spent: a sample of questions with real prompts and a model that pretends."""

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notewriter import jsonl
from notewriter.errors import UserError
from notewriter.methods.search_o1 import BEGIN_QUERY
from notewriter.prompts import Prompts
from notewriter.records import Completion, Message, Question, Sampling
from notewriter.retrieval import open_index
from notewriter.roles import ROLES, ModelArguments, sampling_by_stage
from notewriter.rollout import Resources
from notewriter.usage import Usage

TOKENS_A_WORD = 1.3
"""For English text in the vocabularies of today, where no tokenizer is at hand to count."""

FILE = "estimate.json"
"""What a dry run leaves in the run folder, so that the run can put its actual figures beside it."""


@dataclass
class DryRunArguments:
    """What a run would cost; no model is asked."""

    dry_run: bool = field(
        default=False,
        metadata={
            "help": "render the prompts of a sample of questions, tell calls, tokens, time and money of the whole run, "
            "and stop; an upper bound in that loops go on to their limits and quotas end nothing early"
        },
    )
    dry_run_questions: int = field(default=20, metadata={"help": "questions in the sample"})
    reply_share: float = field(
        default=0.5, metadata={"help": "the expected length of replies as a share of their max_tokens"}
    )
    tokenizer: str | None = field(
        default=None,
        metadata={
            "help": "a model folder or hub id whose tokenizer counts; default: that of the model that is served, or "
            f"{TOKENS_A_WORD} tokens a word where there is none"
        },
    )
    tokens_per_second: float | None = field(
        default=None, metadata={"help": "completion tokens a second of the server; tells the hours"}
    )


@dataclass
class PricedDryRunArguments(DryRunArguments):
    """For commands that have no prices of their own."""

    prices: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "role -> [price of a million prompt tokens, of a million completion tokens]; tells the money; a "
            "role that is not named costs nothing"
        },
    )


class Pretender:
    """A model that answers every prompt at once, with text of the expected length that lets every loop go on.

    Its reply reads as a sentence without an answer, a No, a better status, an order of candidates, a search in the
    form of each method, and a note; none of its tokens is sure. It searches for the last words of the prompt, mostly
    the question's, so that something is found. Replies to different draws differ, as candidates do.
    """

    def __init__(self, count: Callable[[list[Message]], int], share: float, tokens_a_word: float) -> None:
        self._count = count
        self._share = share
        self._tokens_a_word = tokens_a_word

    async def complete(
        self, messages: list[Message], sampling: Sampling, *, sample: int = 0, affinity: str = ""
    ) -> Completion:
        """The reply to a chat."""
        draw = hashlib.sha256(repr((messages, sampling, sample)).encode()).hexdigest()[:8]
        query = " ".join([*re.findall(r"\w+", messages[0]["content"])[-12:], draw])
        call = {"status": "True", "best_id": 1, "worst_id": 2, "function": "search", "parameters": {"query": query}}
        tokens = max(1, round(self._share * sampling.max_tokens))
        filling = " of" * max(0, round(tokens / self._tokens_a_word) - len(query.split()))
        text = f"No, {query}.\nAction: {json.dumps(call)}\nsearch[{query}]\nYES#{draw}{filling}\n{BEGIN_QUERY}{query}"
        logprobs = [(text, -1.0)] if sampling.logprobs else None
        return Completion(text, "stop", self._count(messages), tokens, 0, 0.0, logprobs)


def estimate(
    dry: DryRunArguments,
    models: ModelArguments,
    index: Sequence[str] | str | None,
    questions: Sequence[Question],
    work: Callable[[Question, Resources], Awaitable[dict[str, Any]]],
    folder: Path,
    prices: dict[str, Any],
) -> None:
    """Print what a run over the questions would cost, and leave it in the folder.

    `work` is what the run does with a question; its record holds `usage`, or traces to count from.

    Raises:
        UserError: a number out of its range, or a tokenizer that cannot be loaded.
    """
    if dry.dry_run_questions < 1 or not 0 < dry.reply_share <= 1:
        raise UserError("dry_run_questions must be at least 1, and reply_share above 0 and at most 1")
    for role, price in prices.items():
        if role not in ROLES or not (isinstance(price, list) and len(price) == 2 and all(map(_is_number, price))):
            raise UserError(f"prices: {role}: {price!r} is not a role ({', '.join(ROLES)}) with two numbers")
    sample = questions[:: max(1, len(questions) // dry.dry_run_questions)][: dry.dry_run_questions]
    count, tokens_a_word, counted_with = _counter(dry.tokenizer or models.serve)
    sampling, stage_sampling = sampling_by_stage(models)
    resources = Resources(
        {"policy": Pretender(count, dry.reply_share, tokens_a_word)},  # type: ignore[dict-item]
        Prompts(models.prompts_dir),
        open_index(index) if index else None,
        sampling,
        stage_sampling,
    )

    async def run() -> list[dict[str, Any]]:
        return [await work(question, resources) for question in sample]

    usage = Usage()
    for record in asyncio.run(run()):
        usage.add(record)
    told = usage.to_dict(len(questions) / len(sample))
    result: dict[str, Any] = {
        "schema": "notewriter/estimate/1",
        "questions": len(questions),
        "sample": len(sample),
        "tokens_counted_with": counted_with,
        "reply_share": dry.reply_share,
        **told,
        **_costs(dry.tokens_per_second, prices, told["tokens"]),
    }
    jsonl.write_text(folder / FILE, [json.dumps(result, indent=2) + "\n"])
    sys.stdout.write(_table(result))


def estimated(folder: Path) -> dict[str, Any]:
    """What a dry run told of this folder's run, to stand beside the actual figures; nothing where there was none."""
    path = folder / FILE
    return {"estimate": json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def _counter(model: str | None) -> tuple[Callable[[list[Message]], int], float, str]:
    """What counts a chat's tokens, the tokens of a word in pretended replies, and how that is called."""
    if model is None:
        return (
            lambda messages: round(TOKENS_A_WORD * sum(len(message["content"].split()) for message in messages)),
            TOKENS_A_WORD,
            f"{TOKENS_A_WORD} tokens a word",
        )
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise UserError(f"tokenizer: {model}: cannot be loaded ({' '.join(str(error).split())[:200]})") from error

    def count(messages: list[Message]) -> int:
        encoded: Any = tokenizer.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=True
        )
        return len(encoded["input_ids"])

    return count, 1.0, f"the tokenizer of {model}"


def _costs(
    tokens_per_second: float | None, prices: dict[str, Any], tokens: dict[str, dict[str, dict[str, int]]]
) -> dict[str, float]:
    costs = {}
    usages = [(role, usage) for roles in tokens.values() for role, usage in roles.items()]
    if tokens_per_second:
        total = sum(usage["completion_tokens"] for _, usage in usages)
        costs["hours"] = round(total / tokens_per_second / 3600, 2)
    if prices:
        money = 0.0
        for role, usage in usages:
            prompt, completion = prices.get(role, (0, 0))
            money += (usage["prompt_tokens"] * prompt + usage["completion_tokens"] * completion) / 1e6
        costs["money"] = round(money, 2)
    return costs


def _table(result: dict[str, Any]) -> str:
    keys = ("calls", "prompt_tokens", "completion_tokens")
    tokens: dict[str, dict[str, dict[str, int]]] = result["tokens"]
    rows = [(stage, role, usage) for stage, roles in tokens.items() for role, usage in roles.items()]
    rows.append(("in all", "", result["tokens_in_all"]))
    lines = [f"{'stage':34} {'role':8} {'calls':>12} {'prompt tokens':>15} {'completion tokens':>18}"]
    for stage, role, usage in rows:
        lines.append("{:34} {:8} {:12,} {:15,} {:18,}".format(stage, role, *map(usage.__getitem__, keys)))
    lines += [f"{name}: {result[name]:,}" for name in ("hours", "money") if name in result]
    lines.append(
        f"estimated for {result['questions']} questions from {result['sample']}; tokens counted with "
        f"{result['tokens_counted_with']}; replies taken to be {result['reply_share']:.0%} of max_tokens; "
        "loops to their limits"
    )
    return "\n".join(lines) + "\n"
