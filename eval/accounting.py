"""What a question cost, by stage and role, and what became of the words that were retrieved for it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.records import Question
from notewriter.roles import ROLES

COSTS = ("calls", "retrievals", "prompt_tokens", "completion_tokens")
"""What a question cost, in numbers that a repetition of the run gives again."""

COUNTED = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds")
"""What is counted for each stage and role; `seconds` are those spent waiting for the model."""


RIGHT = ("judged_accuracy", "acc", "em", "strict", "str_hit")
"""Scores of 1 for a right answer: a judge's word goes before the benchmark's own scorer."""


def account(trace: dict[str, Any]) -> dict[str, int]:
    """The costs of a trace: the sums of `COSTS`, and two lengths in words whose ratio is ReSP's compression (5.2).

    `words_retrieved` counts all passages that were found, `words_answered_from` the prompt of the last call.
    """
    generations, retrievals = _steps(trace, "generate"), _steps(trace, "retrieve")
    last = generations[-1]["messages"] if generations else []
    return {
        "calls": len(generations),
        "retrievals": len(retrievals),
        "prompt_tokens": sum(step["completion"]["prompt_tokens"] for step in generations),
        "completion_tokens": sum(step["completion"]["completion_tokens"] for step in generations),
        "words_retrieved": sum(step["words"] for step in retrievals),
        "words_answered_from": sum(len(message["content"].split()) for message in last),
    }


def _steps(trace: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [step for step in trace["steps"] if step["kind"] == kind]


def supporting_recall(trace: dict[str, Any], question: Question) -> dict[str, float]:
    """`supporting_recall`: the share of the gold passages that any retrieval of the trace found.

    Left out where the gold passages are not known or the method did not retrieve.
    """
    retrievals = _steps(trace, "retrieve")
    if not question.supporting_ids or not retrievals:
        return {}
    found = {passage["id"] for step in retrievals for passage in step["passages"]}
    return {"supporting_recall": sum(id in found for id in question.supporting_ids) / len(question.supporting_ids)}


def gold_documents(question: Question) -> int:
    """How many documents a question needs by its benchmark; 0 where that is not told."""
    if question.supporting_ids:
        return len(question.supporting_ids)
    pages, hops = question.metadata.get("pages"), question.metadata.get("hops")
    return len(pages) if isinstance(pages, list) else hops if isinstance(hops, int) else 0


def fewer_searches(predictions: Iterable[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How many right answers took fewer searches than there are gold documents (NotesWriting, section 6, Table 5).

    An answer is right by the first of `RIGHT` that it was scored by.

    Returns:
        `{"fewer_searches": {"right": ..., "fewer": ...}}` over the questions whose gold documents are known; empty
        where there is no such question, or nothing was searched at all.
    """
    told = [prediction for prediction in predictions if prediction.get("gold_documents")]
    right = [each for each in told if next((each["scores"][key] for key in RIGHT if key in each["scores"]), 0.0) == 1]
    if not any(prediction["retrievals"] for prediction in told):
        return {}
    fewer = sum(prediction["retrievals"] < prediction["gold_documents"] for prediction in right)
    return {"fewer_searches": {"right": len(right), "fewer": fewer}}


def check_prices(prices: dict[str, Any]) -> None:
    """Refuse prices that are not two numbers for a role.

    Raises:
        UserError: names the role.
    """
    for role, price in prices.items():
        choose("role in prices", role, dict.fromkeys(ROLES))
        if not (isinstance(price, list) and len(price) == 2 and all(type(each) in (int, float) for each in price)):
            raise UserError(
                f"prices: {role}: {price!r} is not [price of a million prompt tokens, of completion tokens]"
            )


def totals(traces: Iterable[dict[str, Any]], prices: dict[str, list[float]]) -> dict[str, Any]:
    """Sums over all questions: by stage and role, events that methods counted, compression, money.

    `prices` maps a role to the price of a million prompt tokens and of a million completion tokens;
    roles without a price cost nothing.

    Returns:
        `stages`: `stage (role)` -> sums of `COUNTED`, where `cached_tokens` are those of the prompts that the
        server had in its prefix cache; `counts`: event -> number; `compression`: words retrieved for each word
        that an answer was written from (None without retrieval); `money` where prices are given.
    """
    stages: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    money = 0.0
    for trace in traces:
        counts.update(trace["counts"])
        words.update({key: value for key, value in account(trace).items() if key.startswith("words")})
        for step in _steps(trace, "generate"):
            completion = step["completion"]
            costs = {"calls": 1} | {key: completion[key] for key in COUNTED[1:]}
            stages.setdefault(f"{step['stage']} ({step['role']})", Counter()).update(costs)
            prompt, written = prices.get(step["role"], (0.0, 0.0))
            money += (prompt * completion["prompt_tokens"] + written * completion["completion_tokens"]) / 1e6
    return {
        "stages": {stage: {key: round(costs[key], 3) for key in COUNTED} for stage, costs in stages.items()},
        "counts": dict(sorted(counts.items())),
        "compression": round(words["words_retrieved"] / words["words_answered_from"], 3)
        if words["words_retrieved"] and words["words_answered_from"]
        else None,
        **({"money": round(money, 6)} if prices else {}),
    }
