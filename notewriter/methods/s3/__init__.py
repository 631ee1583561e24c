"""s3: a searcher collects documents, and an answerer that was never trained for it answers from them."""

import re

from notewriter.ground.records import Passage
from notewriter.methods.search_r1 import as_question, continued, with_documents
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_json_object
from notewriter.rollouts.rollout import Rollout

SEARCH = Stage(
    "s3/search",
    "query",
    rehearsal="<think>{filling}</think>\n<important_info>[1]</important_info>\n"
    '<search_complete>False</search_complete>\n<query>{"query": "{query}"}</query>',
    stops_thinking=True,
    continues=True,
    max_tokens=500,
)
"""A turn of at most 500 tokens (the authors' code)."""

ANSWER = Stage("s3/answer", "answer", "answer", calls=1)

_IMPORTANT = re.compile(r"<important_info>(.*?)</important_info>", re.DOTALL)
_COMPLETE = re.compile(r"<search_complete>\s*(?:true|yes|y|1)\s*</search_complete>", re.IGNORECASE)
_QUERY = re.compile(r"<query>(.*?)(?:</query>|\Z)", re.DOTALL)


async def s3(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 8,
    initial_top_k: int = 3,
    max_turn: int = 3,
    answer_style: str = "short",
) -> str:
    """Search and select in one growing text, then answer from the documents (s3, Jiang et al. 2025).

    The searcher sees the question with its first documents. In a turn it names the important ones of those it saw
    last, says whether the search is complete, and if not, writes a query as JSON; its documents follow between the
    information tags. A turn without a query is followed by a notice that opens one. After the last turn it may select
    once more, but not search. The answerer gets question and documents: the first ones and the selected ones, each
    once. In the paper what was not selected is dropped; as in the authors' code, documents on which the searcher says
    nothing count as selected, the first ones too.

    Counts `invalid_actions`, `unreadable_selections` and `unfinished` searches. The server has to continue a text,
    as vLLM and SGLang do; a trained searcher needs the authors' `search.jinja` in `prompts_dir`.

    Args:
        question: the question to answer; gets its question mark if it has none, as in training.
        rollout: the rollout to run in; `query` searches and selects, `answer` is the frozen answerer.
        top_k: passages per search (the authors' best setting, 8-3-3: 8).
        initial_top_k: passages for the question itself (8-3-3: 3).
        max_turn: turns in which it may search (8-3-3: 3).
    """
    question = as_question(question)
    found = [await rollout.retrieve(question, initial_top_k)]
    selected = [found[0]]
    text, opened = "", ""
    for turn in range(max_turn + 1):
        reply = opened + await rollout.generate(
            SEARCH, stop=("</query>",), turns=continued(text + opened), question=question, passages=found[0]
        )
        opened = ""
        if important := _IMPORTANT.search(reply):
            numbers = set(map(int, re.findall(r"\d{1,6}", important[1])))
            selected[-1] = [each for number, each in enumerate(found[-1], start=1) if number in numbers]
            if not selected[-1]:
                rollout.count("unreadable_selections")
        if _COMPLETE.search(reply):
            break
        match = _QUERY.search(reply)
        query = _query(match[1]) if match else ""
        if match is None or not query:
            rollout.count("invalid_actions")
            text += f"{reply}\n\n{rollout.text('s3/notice')}\n"
            opened = "<query>\n"
        elif turn < max_turn:
            found.append(await rollout.retrieve(query, top_k))
            selected.append(found[-1])
            text += with_documents(reply[: match.end()], "</query>", found[-1])
    else:
        rollout.count("unfinished")
    documents: dict[str, Passage] = {}
    for passage in (passage for passages in selected for passage in passages):
        documents.setdefault(passage.text, passage)
    return await rollout.generate(
        ANSWER, question=question, passages=list(documents.values()), answer_style=answer_style
    )


def _query(text: str) -> str:
    """The query in `{"query": "..."}`, the first of a list, or else the whole text."""
    query = (parse_json_object(text) or {}).get("query", text)
    query = query[0] if isinstance(query, list) and query else query
    return (query if isinstance(query, str) else text).strip()


METHOD = Method(s3, (SEARCH, ANSWER))
