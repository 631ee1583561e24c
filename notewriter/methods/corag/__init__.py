"""CoRAG: a chain of sub-queries and sub-answers, sampled several times or searched as a tree."""

import re
from collections import Counter
from statistics import fmean
from typing import Literal, NamedTuple

from notewriter.ground.records import Passage
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

SUB_QUERY = Stage("corag/sub_query", "query", "query", temperature=0.0, max_tokens=64)
SAMPLED_SUB_QUERY = Stage("corag/sampled_sub_query", "query", "query", temperature=0.7, max_tokens=64)
SUB_ANSWER = Stage("corag/sub_answer", "answer", temperature=0.0, max_tokens=128)
PENALTY = Stage("corag/penalty", "answer", scored=True)
ANSWER = Stage("corag/answer", "answer", "answer", calls=1, temperature=0.0, max_tokens=128)

NOTHING_FOUND = "No relevant information found"
"""The sub-answer for passages that do not help; its likelihood is a chain's penalty."""

Strategy = Literal["greedy", "best_of_n", "tree_search"]

CALLS_A_STEP = 4
"""Sub-queries drawn per step at most, repeated ones included (the authors' code)."""

_NUMBERED = re.compile(r"^Intermediate query \d+: ")


class SubAnswer(NamedTuple):
    """A sub-query and its answer."""

    query: str
    answer: str


SubAnswers = tuple[SubAnswer, ...]


async def corag(
    question: str,
    rollout: Rollout,
    *,
    decode_strategy: Strategy = "greedy",
    max_path_length: int = 6,
    top_k: int = 5,
    initial_top_k: int = 20,
    best_n: int = 4,
    expand_size: int = 4,
    rollouts: int = 2,
    beam_size: int = 1,
    answer_style: str = "short",
) -> str:
    """Ask sub-queries, answer each from passages of its own, then answer from the chain (CoRAG, Wang et al. 2025).

    A sub-query that was asked before is drawn again at the sampling temperature, as long as there are calls left: 4 a
    step (the authors' code). The final answer is written from the chain and the passages of the question. Strategies
    (section 3.3): `greedy`; `best_of_n` samples further chains, `tree_search` expands every state by several
    sub-queries and rolls each out by up to two further steps. Both keep the chain with the lowest penalty, the mean
    log-probability per token of "No relevant information found" as the answer to the question from the chain. (The
    authors' code also counts the token that ends the turn.) That needs vLLM, which scores prompts. The authors' code
    also cuts prompts of more than 3,072 tokens; here a prompt is whole.

    Counts `repeated_queries`, and `unanswered_queries`, whose passages did not help. The prompts have the parts of
    the released CoRAG-8B's messages in their order, passages last to first; for its wording see docs/methods.md.

    Args:
        rollout: the rollout to run in; `query` asks sub-queries, `answer` answers them and the question.
        decode_strategy: `greedy`, `best_of_n` or `tree_search`.
        max_path_length: L, the most sub-queries in a chain (section 4.2: 6).
        top_k: passages per sub-query (the authors' code: 5).
        initial_top_k: passages of the question that the final answer sees (the authors' code: 20).
        best_n: chains of `best_of_n`, the first of them greedy (the authors' code: 4).
        expand_size: sub-queries per state of `tree_search` (the authors' code: 4).
        rollouts: chains per state of `tree_search` that its penalty is the mean of (the authors' code: 2).
        beam_size: states that `tree_search` keeps (the authors' code: 1).
    """
    search = _Search(question, rollout, top_k, max_path_length)
    if decode_strategy == "tree_search":
        chain = await search.tree(expand_size, rollouts, beam_size)
    else:
        chains = [await search.extend((), max_path_length, SUB_QUERY)]
        if decode_strategy == "best_of_n":
            chains += [await search.extend((), max_path_length) for _ in range(1, best_n)]
        chain = (await search.ranked(chains))[0]
    passages = await rollout.retrieve(question, initial_top_k)
    return await rollout.generate(
        ANSWER, question=question, steps=chain, passages=passages[::-1], answer_style=answer_style
    )


class _Search:
    """The chains of one question."""

    def __init__(self, question: str, rollout: Rollout, top_k: int, max_path_length: int) -> None:
        self.question, self.rollout, self.top_k, self.longest = question, rollout, top_k, max_path_length
        self.drawn: Counter[SubAnswers] = Counter()

    async def extend(self, chain: SubAnswers, length: int, stage: Stage = SAMPLED_SUB_QUERY) -> SubAnswers:
        """The chain with further steps, up to `length` in all; fewer if it repeats its queries too often."""
        repeats = False
        for _ in range(CALLS_A_STEP * (length - len(chain))):
            query = await self.sub_query(chain, SAMPLED_SUB_QUERY if repeats else stage)
            repeats = query in {step.query for step in chain}
            if repeats:
                self.rollout.count("repeated_queries")
                continue
            chain = await self.answered(chain, query)
            if len(chain) == length:
                break
        return chain

    async def tree(self, expand_size: int, rollouts: int, beam_size: int) -> SubAnswers:
        """Breadth-first search: every state is expanded, and the states with the lowest penalty are kept."""
        states: list[SubAnswers] = [()]
        for _ in range(self.longest):
            expanded = []
            for state in states:
                # Half as many again, since some are the same.
                drawn = [await self.sub_query(state, SAMPLED_SUB_QUERY) for _ in range(3 * expand_size // 2)]
                for query in list(dict.fromkeys(drawn))[:expand_size]:
                    expanded.append(await self.answered(state, query))
            states = (await self.ranked(expanded, rollouts, beam_size))[:beam_size]
        return states[0]

    async def ranked(self, chains: list[SubAnswers], rollouts: int = 0, beam_size: int = 1) -> list[SubAnswers]:
        """The chains by penalty, the lowest first; unranked if all of them are kept.

        With `rollouts`, a chain's penalty is the mean of those of so many continuations by up to two steps.
        """
        if len(chains) <= beam_size:
            return chains
        penalties = []
        for chain in chains:
            length = min(self.longest, len(chain) + 2)
            ends = [await self.extend(chain, length) for _ in range(rollouts)] or [chain]
            penalties.append(fmean([await self.penalty(end) for end in ends]))
        return [chains[place] for place in sorted(range(len(chains)), key=penalties.__getitem__)]

    async def sub_query(self, chain: SubAnswers, stage: Stage) -> str:
        """The next sub-query; drawn anew each time a chain is given at the sampled stage."""
        number = 0
        if stage is SAMPLED_SUB_QUERY:
            number, self.drawn[chain] = self.drawn[chain], self.drawn[chain] + 1
        reply = await self.rollout.generate(stage, sample=number, question=self.question, steps=chain)
        if len(reply) > 1 and reply[0] == reply[-1] == '"':
            reply = reply[1:-1]
        return _NUMBERED.sub("", reply)

    async def answered(self, chain: SubAnswers, query: str) -> SubAnswers:
        """The chain with a sub-query and its answer from passages."""
        passages = await self.rollout.retrieve(query, self.top_k)
        answer = await self.rollout.generate(SUB_ANSWER, query=query, passages=passages[::-1])
        if NOTHING_FOUND.casefold() in answer.casefold():
            self.rollout.count("unanswered_queries")
        return (*chain, SubAnswer(query, answer))

    async def penalty(self, chain: SubAnswers) -> float:
        """The mean log-probability of the tokens of "No relevant information found" after the chain."""
        steps = [Passage(str(number), "", f"Q: {query}\nA: {answer}") for number, (query, answer) in enumerate(chain)]
        scored = await self.rollout.score(PENALTY, NOTHING_FOUND, query=self.question, passages=steps)
        return fmean(logprob for _, logprob in scored.tokens or [("", 0.0)])


METHOD = Method(corag, (SUB_QUERY, SAMPLED_SUB_QUERY, SUB_ANSWER, PENALTY, ANSWER))
