"""SearChain: a whole chain of queries and answers is planned, and retrieval corrects or completes its nodes."""

import re
from typing import NamedTuple

from notewriter.ground.records import Message
from notewriter.models.thoughts import after_thinking
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_answer
from notewriter.rollouts.rollout import Rollout

PLAN = Stage(
    "searchain/plan",
    rehearsal="{filling}\n[Query 1]: {query}\n[Answer 1]: {query}\n[Unsolved Query]: {query} then",
    calls="max_step",
)
READ = Stage("searchain/read", "judge", rehearsal="Unsure: {query}")
ANSWER = Stage("searchain/answer", "answer", "answer", calls=1)

_LABEL = re.compile(
    r"[*_]*\[(unsolved query|query|answer|final content)[ \t]*\d*\][ \t*_]*[:\uff1a]?[ \t*_]*", re.IGNORECASE
)
# "Sure!" is what chat models begin any reply with.
_VERDICT = re.compile(r"\W*(sure|unsure)\b(?!!)[\s*:.,\uff1a]*", re.IGNORECASE)


class _Node(NamedTuple):
    """A node of the chain: an empty answer asks for completion."""

    query: str
    answer: str


async def searchain(
    question: str, rollout: Rollout, *, top_k: int = 1, max_step: int = 5, answer_style: str = "short"
) -> str:
    """Plan a Chain-of-Query; let retrieval verify and complete it node by node (Xu et al. 2023).

    Each round writes a whole chain. Its new nodes are searched in order. A reader, sure of another answer than the
    node's, corrects it; a node without an answer is completed in any case. The model is given either one, and goes
    on from that node with a new chain, the next branch of the tree; nodes seen before are not searched again. A chain
    without objections ends the loop, and its final content is the answer. The note lists the nodes with the passages
    that support them (the paper's tracing).

    The paper reads with DPR's reader, confident at a relevance above 1.5, and compares queries with a cross-encoder;
    here a model in the role `judge` reads and says whether it is sure, and queries are compared by their words. As in
    the released code, an answer is confirmed if it contains the reader's, also in long answers (the paper: ROUGE).
    Counts `steps`, `corrected`, `completed`, `unreadable_verdicts`, `unfinished` (the rounds ran out) and
    `without_final_content`.

    Args:
        rollout: the rollout to run in; `policy` plans, `judge` reads, `answer` answers without a final content.
        top_k: passages per query (the authors' code: 1).
        max_step: maximum number of rounds (the authors' code: 5).
    """
    rollout.keep_note("")
    turns: list[Message] = []
    seen: set[str] = set()
    supported: dict[str, str] = {}
    final, feedback = "", ""
    for _ in range(max_step):
        rollout.count("steps")
        reply = await rollout.generate(PLAN, turns=turns, question=question, answer_style=answer_style)
        turns.append({"role": "assistant", "content": reply or "(nothing)"})
        nodes, final = _parse(reply)
        feedback = ""
        for node in nodes:
            if _plain(node.query) in seen and node.answer:
                continue
            seen.add(_plain(node.query))
            passages = await rollout.retrieve(node.query, top_k)
            read = await rollout.generate(READ, query=node.query, passages=passages)
            verdict = _VERDICT.match(read)
            if verdict is None:
                rollout.count("unreadable_verdicts")
            found = (read[verdict.end() :] if verdict else read).strip()
            is_sure = verdict is not None and verdict[1].lower() == "sure"
            confirmed = bool(node.answer) and _plain(found) in _plain(node.answer)
            if is_sure or not node.answer:
                titles = ", ".join(passage.title for passage in passages)
                supported[_plain(node.query)] = f"{node.query} {found} [{titles}]"
                rollout.keep_note("\n".join(supported.values()))
            if not node.answer or (is_sure and not confirmed):
                rollout.count("corrected" if node.answer else "completed")
                reference = "\n".join(f"{passage.title}: {passage.text}" for passage in passages)
                feedback = f"{node.query}\nBy the reference below, the answer is: {found}\nReference: {reference}"
                break
        if not feedback:
            break
        turns.append({"role": "user", "content": f"{feedback}\nGo on with the chain from there."})
    if feedback:
        rollout.count("unfinished")
    if final:
        return final if answer_style == "long" else parse_answer(final) or final
    rollout.count("without_final_content")
    chain = [turn["content"] for turn in turns]
    return await rollout.generate(ANSWER, question=question, chain=chain, answer_style=answer_style)


def _parse(reply: str) -> tuple[list[_Node], str]:
    """The nodes of a chain and its final content; an answer belongs to the query before it."""
    _, *parts = _LABEL.split(after_thinking(reply))
    nodes: list[_Node] = []
    final = ""
    for label, text in zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True):
        match label.lower():
            case "query" | "unsolved query" if text:
                nodes.append(_Node(text, ""))
            case "answer" if nodes and not nodes[-1].answer:
                nodes[-1] = nodes[-1]._replace(answer=text)
            case "final content":
                final = text
    return nodes, final


def _plain(text: str) -> str:
    """A text's words without case, punctuation and articles."""
    return " ".join(word for word in re.findall(r"\w+", text.casefold()) if word not in ("a", "an", "the"))


METHOD = Method(searchain, (PLAN, READ, ANSWER))
