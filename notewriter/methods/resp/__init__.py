"""ReSP: two memories, global evidence and the local pathway, grow until they suffice for an answer."""

import re
from collections import Counter

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_verdict
from notewriter.rollouts.rollout import Rollout

_WORD = r"\W*(yes|no)\b(?!\W+(?:or|and)\W+(?:yes|no)\b)"
_END = r"[\s*.,:;!]*(?:[-\u2013\u2014]\s+)?"
_VERDICT = re.compile(rf"{_WORD}{_END}", re.IGNORECASE)
# A sentence of its own, or what one begins with; not "No. 5" or "No other town is named".
_LATER_VERDICT = re.compile(rf"(?:[.!?;:]\s+|\n){_WORD}(?=[^\w\s]|\s*\n|\s*\Z)(?!\W*\d){_END}", re.IGNORECASE)

# Not a note: its reply begins with Yes or No and answers a sub-question.
LOCAL_PATHWAY = Stage("resp/local_pathway", "notes")
GLOBAL_EVIDENCE = Stage("resp/global_evidence", "notes", "note")
JUDGE = Stage("resp/judge", "judge", rehearsal="No.")
PLAN = Stage("resp/plan", "query", "query")
ANSWER = Stage("resp/answer", "answer", "answer")


async def resp(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 3, answer_style: str = "short"
) -> str:
    """Retrieve, summarize into both memories, judge and plan until the question can be answered (ReSP, Algorithm 1).

    The modules of the paper's Table 4 are roles: the summarizer is `notes`, the reasoner `judge` (judging) and
    `query` (planning), the generator `answer`. The plan after the last round has no effect and is left out. A plan
    that repeats a question is searched and summarized like any other, with new draws of both summaries. Counts
    `repeated_queries`, `unreadable_verdicts` (neither Yes nor No, treated as No) and `unfinished` (the last verdict was
    not Yes).

    Args:
        top_k: K, passages per retrieval (section 5.2: 5; section 6.3: 3 to 15).
        max_step: M, maximum number of retrieval rounds (section 5.2: 3; section 6.4: 1 to 5).
    """
    evidence: list[str] = []
    pathway: list[tuple[str, str]] = []
    asked = Counter({_plain(question): 1})
    query, memory = question, ""
    rollout.keep_note(memory)
    for step in range(1, max_step + 1):
        passages = await rollout.retrieve(query, top_k)
        draw = asked[_plain(query)] - 1
        if query != question:
            reply = await rollout.generate(LOCAL_PATHWAY, sample=draw, question=query, passages=passages)
            pathway.append((query, _response(reply)))
        evidence.append(await rollout.generate(GLOBAL_EVIDENCE, sample=draw, question=question, passages=passages))
        memory = _combined(evidence, pathway)
        rollout.keep_note(memory)
        verdict = await rollout.generate(JUDGE, question=question, note=memory)
        suffices = parse_verdict(verdict, ("yes", "no"))
        if suffices is None:
            rollout.count("unreadable_verdicts")
        if suffices == "yes":
            break
        if step == max_step:
            rollout.count("unfinished")
            break
        query = await rollout.generate(PLAN, question=question, note=memory)
        asked[_plain(query)] += 1
        if asked[_plain(query)] > 1:
            rollout.count("repeated_queries")
    return await rollout.generate(ANSWER, question=question, note=memory, answer_style=answer_style)


def _combined(evidence: list[str], pathway: list[tuple[str, str]]) -> str:
    """Global evidence memory and local pathway memory as one text, the input of reasoner and generator."""
    return "\n".join([*filter(None, evidence), *(f"{question} {answer}" for question, answer in pathway)])


def _response(reply: str) -> str:
    """The summarizer's response to a sub-question: the text after its Yes, or \"Not found.\"

    A Yes at the beginning counts, since a Yes or No behind it may be the response. Of a reply that thinks aloud, or
    thinks better of its No, the last verdict does.
    """
    first = _VERDICT.match(reply)
    *_, last = [first, *_LATER_VERDICT.finditer(reply)]
    verdict = first if first and first[1].lower() == "yes" else last
    if not reply or (verdict and verdict[1].lower() == "no"):
        return "Not found."
    return (reply[verdict.end() :].strip() or ("Yes." if verdict is first else reply)) if verdict else reply


def _plain(query: str) -> str:
    return " ".join(query.casefold().split()).rstrip(" ?.")


METHOD = Method(resp, (LOCAL_PATHWAY, GLOBAL_EVIDENCE, JUDGE, PLAN, ANSWER))
