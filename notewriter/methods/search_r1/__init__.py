"""Search-R1: reasoning, searches and the answer are one text, marked by tags."""

import re
from collections.abc import Sequence

from notewriter.ground.records import Message, Passage
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

REASON = Stage(
    "search_r1/reason",
    rehearsal="<think>{filling}</think>\n<search>{query}</search>",
    stops_thinking=True,
    continues=True,
    max_tokens=500,
)
"""A turn of at most 500 tokens (the authors' code)."""

ANSWER = Stage("search_r1/answer", "answer", "answer")

_ACTION = re.compile(r"<(search|answer)>(.*?)(?:</\1>|\Z)", re.DOTALL)


async def search_r1(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 3,
    max_turn: int = 4,
    answer_unfinished: bool = True,
    answer_style: str = "short",
) -> str:
    """Think, search and answer in one growing text (Search-R1, Jin et al. 2025, Algorithm 1).

    A turn ends with `</search>`, whereupon the passages follow between the information tags, or with `</answer>`. A
    turn with neither is followed by a notice on how to act. After the last turn the model may answer once more, but
    not search (the authors' code; the paper's loop ends there). Counts `invalid_actions`, and `unfinished` texts.

    The server has to continue a text, as vLLM and SGLang do. A trained checkpoint knows one prompt: put the
    authors' `reason.jinja` and `notice.jinja` into `prompts_dir`. The authors' code also cuts what one search found at
    500 tokens; here it is whole.

    Args:
        question: the question to answer; gets its question mark if it has none, as in training.
        rollout: the rollout to run in; `policy` writes the text, `answer` answers from an unfinished one.
        top_k: passages per search (section 4.3: 3).
        max_turn: B, the turns in which it may search (the authors' scripts: 4).
        answer_unfinished: write an answer from a text without one; false: the answer is empty and scores nothing, as in
            the authors' evaluation.
    """
    question = as_question(question)
    text = ""
    for turn in range(max_turn + 1):
        reply = await rollout.generate(
            REASON, stop=("</search>", "</answer>"), turns=continued(text), question=question, answer_style=answer_style
        )
        action = _ACTION.search(reply)
        if action is None:
            rollout.count("invalid_actions")
            text += f"{reply}\n{rollout.text('search_r1/notice')}\n"
            continue
        name, content = action[1], action[2].strip()
        if name == "answer":
            return content
        written = reply[: action.end()]
        if turn < max_turn:
            written = with_documents(written, "</search>", await rollout.retrieve(content, top_k))
        text += written
    rollout.count("unfinished")
    if not answer_unfinished:
        return ""
    return await rollout.generate(ANSWER, question=question, reasoning=text, answer_style=answer_style)


def as_question(text: str) -> str:
    """The question with its question mark."""
    return f"{text.strip().removesuffix('?')}?"


def continued(text: str) -> list[Message]:
    """The turns after which the model goes on writing its own text."""
    return [{"role": "assistant", "content": text}] if text else []


def with_documents(written: str, tag: str, passages: Sequence[Passage]) -> str:
    """A search and the passages found; `tag` ends the search, and the server leaves it out, since it stops there."""
    return f"{written.removesuffix(tag)}{tag}\n\n<information>{as_documents(passages)}</information>\n\n"


def as_documents(passages: Sequence[Passage]) -> str:
    """Passages as the authors' code shows them; in its corpus, titles are in quotation marks."""
    return "\n".join(
        f'Doc {number}(Title: "{each.title}") {each.text}' for number, each in enumerate(passages, start=1)
    )


METHOD = Method(search_r1, (REASON, ANSWER))
