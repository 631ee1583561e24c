"""Search-o1: a reasoning model searches while it reasons, and a separate module reads the documents."""

from notewriter.methods.search_r1 import continued
from notewriter.models.thoughts import after_thinking
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.parsing import parse_answer
from notewriter.rollouts.rollout import Rollout

BEGIN_QUERY, END_QUERY = "<|begin_search_query|>", "<|end_search_query|>"
BEGIN_RESULT, END_RESULT = "<|begin_search_result|>", "<|end_search_result|>"

REASON = Stage(
    "search_o1/reason", rehearsal=f"{{filling}}\n{BEGIN_QUERY}{{query}}", stops_thinking=True, continues=True
)
REASON_IN_DOCUMENTS = Stage("search_o1/reason_in_documents", "notes", "note")
ANSWER = Stage("search_o1/answer", "answer", "answer")

LAST_STEPS = 3
"""The steps before a search that Reason-in-Documents always sees (the authors' code)."""


async def search_o1(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 10,
    max_search: int = 10,
    max_turn: int = 15,
    answer_style: str = "short",
) -> str:
    """Reason, search where knowledge is missing, and continue with the results (Li et al. 2025, Algorithm 1).

    The reasoning is one text, which a query between the search marks halts and its result continues. The passages found
    do not enter it; the Reason-in-Documents module reads them together with the reasoning so far, `shortened`,
    and writes what helps in their place. The first turn without a query ends the loop. If the turns run out, an answer
    is written from the reasoning (the paper does not specify this). Counts `repeated_queries` and `unfinished`.

    The server has to continue a text, as vLLM and SGLang do. The authors sample at temperature 0.7 and top-p 0.8, in
    both stages.

    Args:
        rollout: the rollout to run in; `policy` reasons, `notes` reads documents, `answer` answers if turns run out.
        top_k: passages per search (the paper: 10).
        max_search: maximum number of searches; further queries are refused (the authors' code: 10 for multi-hop
            questions, 5 for others).
        max_turn: maximum number of reasoning turns (the authors' code: 15).
    """
    rollout.keep_note("")
    reasoning = ""
    found: dict[str, str] = {}
    for _ in range(max_turn):
        thought = await rollout.generate(
            REASON, stop=(END_QUERY,), turns=continued(reasoning), question=question, answer_style=answer_style
        )
        query = _query(thought)
        if not query:
            return parse_answer(thought) or after_thinking(thought).strip()
        reasoning += f"{thought}{END_QUERY}"
        if query in found:
            rollout.count("repeated_queries")
            result = "This was searched before; its result stands above."
        elif len(found) == max_search:
            result = "No further search is possible. Answer from what is known."
        else:
            passages = await rollout.retrieve(query, top_k)
            result = found[query] = await rollout.generate(
                REASON_IN_DOCUMENTS, question=question, reasoning=shortened(reasoning), query=query, passages=passages
            )
            rollout.keep_note("\n".join(found.values()))
        reasoning += f"\n\n{BEGIN_RESULT}{result}{END_RESULT}\n\n"
    rollout.count("unfinished")
    return await rollout.generate(ANSWER, question=question, reasoning=reasoning, answer_style=answer_style)


def shortened(reasoning: str) -> str:
    """The reasoning as Reason-in-Documents sees it (the authors' code).

    Its lines are numbered as steps; the first one, the last three and those with a search or its result are kept, and
    an ellipsis stands for each run of others.
    """
    steps = reasoning.replace("\n\n", "\n").split("\n")
    kept: list[str] = []
    for place, step in enumerate(steps):
        is_near = place == 0 or place >= len(steps) - LAST_STEPS
        if is_near or BEGIN_QUERY in step or BEGIN_RESULT in step:
            kept.append(f"Step {place + 1}: {step}")
        elif kept[-1] != "...":
            kept.append("...")
    return "\n\n".join(kept)


def _query(thought: str) -> str:
    """The query at the end of the reasoning; empty if it does not search."""
    _, mark, rest = thought.rpartition(BEGIN_QUERY)
    return rest.strip().partition("\n")[0] if mark else ""


METHOD = Method(search_o1, (REASON, REASON_IN_DOCUMENTS, ANSWER))
