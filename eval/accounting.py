"""What a question cost, by stage and role, and what became of the words that were retrieved for it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

from eval.judgements import reference_of
from eval.metrics.metric import Metric
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.methods import METHODS
from notewriter.models.roles import ROLES
from notewriter.records import Question

COSTS = ("calls", "retrievals", "prompt_tokens", "completion_tokens")
"""What a question cost, in numbers that a repetition of the run gives again."""

METRICS = (
    Metric("supporting_recall", "Gold passages retrieved", "Share of the passages that the answer needs."),
    *(
        Metric(name, label, meaning, better=None, decimals=1)
        for name, label, meaning in (
            ("calls", "Model calls", "Requests to a language model, judges of the method among them."),
            ("retrievals", "Retrievals", "Queries sent to the passage index."),
            ("prompt_tokens", "Prompt tokens", "Tokens sent to models."),
            ("cached_tokens", "Prompt tokens from the cache", "Those of them that the server had in its prefix cache."),
            ("completion_tokens", "Completion tokens", "Tokens written by models."),
            ("seconds", "Seconds of model calls", "Time spent waiting for models; concurrent calls are added up."),
        )
    ),
)
"""What retrieval found and what a question cost."""

COUNTED = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds")
"""What is counted for each stage and role; `seconds` are those spent waiting for the model."""

Calls = dict[tuple[str, str], Counter[str]]
"""Stage and role -> sums of `COUNTED`."""

COSTS_SCHEMA = "notewriter/costs/1"
"""Of costs.json."""

RIGHT = ("judged_accuracy", "acc", "em", "strict", "str_hit")
"""Scores of 1 for a right answer: a judge's word goes before the benchmark's own scorer."""


def account(trace: dict[str, Any], question: Question) -> dict[str, int]:
    """The costs of a trace: the sums of `COSTS`, and two lengths in words whose ratio is ReSP's compression (5.2).

    `words_retrieved` counts all passages that were found, `words_answered_from` the note, or else the passages or
    observations that the last prompt showed: the evidence alone, without instructions (see `reference_of`).
    """
    generations, retrievals = _steps(trace, "generate"), _steps(trace, "retrieve")
    reference = reference_of(trace, question.question) or ""
    return {
        "calls": len(generations),
        "retrievals": len(retrievals),
        "prompt_tokens": sum(step["completion"]["prompt_tokens"] for step in generations),
        "completion_tokens": sum(step["completion"]["completion_tokens"] for step in generations),
        "words_retrieved": sum(step.get("words", 0) for step in retrievals),
        "words_answered_from": len(reference.split()),
    }


def _steps(trace: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [step for step in trace["steps"] if step["kind"] == kind]


def supporting_recall(trace: dict[str, Any], question: Question) -> dict[str, float]:
    """`supporting_recall`: the share of the golds that any retrieval of the trace found.

    Golds are passages by id (or by title, for one whose text the benchmark's file leaves out), where a benchmark
    names none the pages that are needed, by title (FanOutQA, FRAMES), else the supporting facts, each of which has to
    stand in a passage (IIRC, MultiHop-RAG, whose own scorer looks for them so). Left out where none of these is known
    and for methods that do not retrieve. One that retrieves and did not, be it for an error, has found nothing.
    """
    retrievals = _steps(trace, "retrieve")
    if not retrievals and not _can_retrieve(trace["method"]):
        return {}
    passages = [passage for step in retrievals for passage in step["passages"]]
    titles = {passage["title"] for passage in passages}
    if golds := question.supporting_ids:
        found = sum(gold in titles or gold in {passage["id"] for passage in passages} for gold in golds)
    elif golds := _pages(question):
        found = len(set(golds) & set(map(_page_title, titles)))
    elif all("facts" in step for step in retrievals) and (golds := question.supporting_facts):
        found = len({fact for step in retrievals for fact in step["facts"]})
    return {"supporting_recall": found / len(golds)} if golds else {}


def _can_retrieve(method: str) -> bool:
    return method in METHODS and METHODS[method].retrieves


def _pages(question: Question) -> tuple[str, ...]:
    """The titles of the pages that a question needs, each once; a benchmark may give them as addresses."""
    pages = question.metadata.get("pages")
    return tuple(dict.fromkeys(_page_title(str(page)) for page in pages)) if isinstance(pages, list) else ()


def _page_title(page: str) -> str:
    """The title of a page of Wikipedia, from the title or the address, in a form that can be compared."""
    if page.startswith(("https://", "http://")):
        page = unquote(urlsplit(page).path).rpartition("/wiki/")[2].strip("/")
    return " ".join(page.replace("_", " ").casefold().split())


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


def totals(
    traces: Iterable[dict[str, Any]], predictions: Iterable[dict[str, Any]], prices: dict[str, list[float]]
) -> dict[str, Any]:
    """Sums over all questions: by stage and role, events that methods counted, compression, money.

    Args:
        traces: the traces of the questions.
        predictions: their lines in predictions.jsonl, for the words of `account`.
        prices: as for `spent`.

    Returns:
        What `spent` returns; `counts`: event -> number; `compression`: words retrieved for each word that an answer
        was written from (None without retrieval).
    """
    calls: Calls = {}
    counts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for trace in traces:
        counts.update(trace["counts"])
        for step in _steps(trace, "generate"):
            add_call(calls, step["stage"], step["role"], step["completion"])
    for prediction in predictions:
        words.update({key: prediction[key] for key in ("words_retrieved", "words_answered_from")})
    return {
        **spent(calls, prices),
        "counts": dict(sorted(counts.items())),
        "compression": round(words["words_retrieved"] / words["words_answered_from"], 3)
        if words["words_retrieved"] and words["words_answered_from"]
        else None,
    }


def add_call(calls: Calls, stage: str, role: str, completion: dict[str, Any]) -> None:
    """Add what a call cost to the sums of its stage and role."""
    costs = {"calls": 1} | {key: completion[key] for key in COUNTED[1:]}
    calls.setdefault((stage, role), Counter()).update(costs)


def spent(calls: Calls, prices: dict[str, list[float]]) -> dict[str, Any]:
    """What calls cost, in tokens, seconds and money.

    `prices` maps a role to the price of a million prompt tokens and of a million completion tokens;
    roles without a price cost nothing.

    Returns:
        `stages`: `stage (role)` -> sums of `COUNTED`, where `cached_tokens` are those of the prompts that the
        server had in its prefix cache; `money` where prices are given.
    """
    money = 0.0
    for (_, role), costs in calls.items():
        prompt, written = prices.get(role, (0.0, 0.0))
        money += (prompt * costs["prompt_tokens"] + written * costs["completion_tokens"]) / 1e6
    stages = {
        f"{stage} ({role})": {key: round(costs[key], 3) for key in COUNTED} for (stage, role), costs in calls.items()
    }
    return {"stages": stages, **({"money": round(money, 6)} if prices else {})}
