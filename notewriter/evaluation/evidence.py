"""The evidence of a question's rollout: the gold evidence that it retrieved, and the text behind its answer."""

import re
from collections.abc import Sequence

from notewriter.artifacts.traces import Trace
from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.records import Message, Passage, Question
from notewriter.ground.text import page_title

METRICS = (Metric("supporting_recall", "Gold passages retrieved", "Share of the passages needed for the answer."),)
"""The metrics that `supporting_recall` returns."""

_FIRST_PASSAGE = re.compile(r"^\[1\] ", re.MULTILINE)
_LABEL = re.compile(r"\s*\bquestion:\s*\Z", re.IGNORECASE)


def supporting_recall(trace: Trace, question: Question) -> dict[str, float]:
    """`supporting_recall`: the share of the question's gold evidence that any retrieval of the trace found.

    Gold evidence is the first of these that is known:

    - the supporting passages by id, or by title where the benchmark's file contains no text for them;
    - the pages that the question needs, by title (FanOutQA, FRAMES);
    - the supporting facts; each must occur in a passage (IIRC and MultiHop-RAG, as its own scorer does).

    Empty where none of these is known and for methods that do not retrieve. A method that retrieves but made no search,
    for example because of an error, has found nothing.
    """
    retrievals = trace.retrievals
    if not retrievals and not trace.retrieves:
        return {}
    passages = [passage for step in retrievals for passage in step.passages]
    titles = {passage["title"] for passage in passages}
    if golds := question.supporting_ids:
        found = sum(gold in titles or gold in {passage["id"] for passage in passages} for gold in golds)
    elif golds := _pages(question):
        found = len(set(golds) & {page_title(title).casefold() for title in titles})
    elif all(step.facts is not None for step in retrievals) and (golds := question.supporting_facts):
        found = len({fact for step in retrievals for fact in step.facts or ()})
    return {"supporting_recall": found / len(golds)} if golds else {}


def has_name(passage: Passage, gold: str) -> bool:
    """Whether a passage is a supporting one: by its id, or by title where the benchmark's file has no text for it."""
    return gold in (passage.id, passage.title)


def reciprocal_rank(gold: str, passages: Sequence[Passage]) -> float:
    """One divided by the rank of a supporting passage, from 1 on; 0 where it is not among them."""
    return next((1 / rank for rank, passage in enumerate(passages, start=1) if has_name(passage, gold)), 0.0)


def _pages(question: Question) -> tuple[str, ...]:
    """The distinct titles of the pages that a question needs; benchmarks may give URLs."""
    pages = question.metadata.get("pages")
    return tuple(dict.fromkeys(page_title(str(page)).casefold() for page in pages)) if isinstance(pages, list) else ()


def gold_documents(question: Question) -> int:
    """The number of documents that a question needs according to its benchmark; 0 where this is unknown."""
    if question.supporting_ids:
        return len(question.supporting_ids)
    hops = question.metadata.get("hops")
    return len(_pages(question)) or (hops if isinstance(hops, int) else 0)


def reference_of(trace: Trace, question: str) -> str | None:
    """The text that a trace's answer was written from (DeepNote's reference, section 5.3).

    For methods that keep a note, the note. None where nothing was retrieved. Otherwise the passages in the last
    prompt, from the first numbered one up to the question; or, for methods that act step by step, the observations in
    the last chat.
    """
    if trace.note is not None:
        return trace.note
    if not any(step.passages for step in trace.retrievals):
        return None
    prompts = [step.messages for step in trace.generations]
    if prompts and (first := _FIRST_PASSAGE.search(text := prompts[-1][0]["content"])):
        end = text.rfind(question)
        return _LABEL.sub("", text[first.start() : end if end > first.start() else None]).strip()
    for messages in reversed(prompts):
        if observations := [message["content"] for message in turns_of(messages) if message["role"] != "assistant"]:
            return "\n".join(observations)
    return None


def turns_of(messages: Sequence[Message]) -> Sequence[Message]:
    """The turns of a chat after the instruction: from the first of the assistant on."""
    first = next((place for place, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return messages[first:]
