"""Where a method runs: it can retrieve and generate, and everything it does is left in a trace."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from notewriter.artifacts.traces import Found, Generation, Retrieval, Trace
from notewriter.method import Stage
from notewriter.records import Completion, Message, Passage, Question, Sampling
from notewriter.rollouts.parsing import without_thinking
from notewriter.rollouts.resources import Resources


class Rollout:
    """One question's run of a method.

    A method gets nothing else to act with than `retrieve` and `generate`; what it does is recorded in `trace`.
    """

    def __init__(self, question: Question, method: str, resources: Resources) -> None:
        self.question = question
        self.resources = resources
        self.trace = Trace(question.id, method)

    def keep_note(self, note: str) -> None:
        """Tell which note is the best so far; the last one kept is what the answer is written from.

        A method that writes notes keeps an empty one first, so that it is measured also where it got no further.
        """
        self.trace.note = note

    def count(self, event: str) -> None:
        """Count an event that an analysis asks for, for example an action that could not be read."""
        self.trace.counts[event] = self.trace.counts.get(event, 0) + 1

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """The `top_k` passages that fit the query best, best first."""
        if self.resources.retriever is None:
            raise ValueError(f"method {self.trace.method} retrieves, but no index was given")
        start = time.perf_counter()
        passages = await asyncio.to_thread(self.resources.retriever.search, query, top_k)
        found = [Found(id=passage.id, title=passage.title) for passage in passages]
        seconds = round(time.perf_counter() - start, 4)
        words = sum(len(passage.text.split()) for passage in passages)
        facts = _standing_in(passages, self.question.supporting_facts)
        self.trace.steps.append(Retrieval(query, top_k, found, seconds, words, facts))
        return passages

    async def generate(
        self,
        stage: Stage,
        *,
        stop: tuple[str, ...] = (),
        json_schema: dict[str, Any] | None = None,
        sample: int = 0,
        **variables: Any,
    ) -> str:
        """One completion of a stage's prompt, without surrounding white space and what a model thought before it.

        `stop` and `json_schema` are those of `Sampling`; `sample` numbers the draws of one prompt; `variables` fill
        the prompt. One of them may be `turns`: the messages of a chat that began with the prompt and that the
        completion continues.
        """
        messages = self.resources.prompts.render(stage.name, **variables)
        sampling = replace(self.sampling(stage), stop=stop, json_schema=json_schema)
        return without_thinking((await self.complete(stage, messages, sampling, sample)).text).strip()

    async def generate_tokens(self, stage: Stage, *, max_tokens: int, **variables: Any) -> list[tuple[str, float]]:
        """The tokens of one completion of a stage's prompt, each with its natural log-probability.

        They are `max_tokens` at the most, or fewer where the stage's sampling says so. The prompt may have `turns`,
        as for `generate`.
        """
        messages = self.resources.prompts.render(stage.name, **variables)
        sampling = self.sampling(stage)
        sampling = replace(sampling, max_tokens=min(max_tokens, sampling.max_tokens), logprobs=True)
        completion = await self.complete(stage, messages, sampling)
        tokens = list(completion.tokens or [])
        # Servers may tell the token that ended the turn too (vLLM does), which is no part of the text. The space is
        # for tokenizers whose first token has one that the text has not.
        while tokens and not f" {completion.text}".endswith(tokens[-1][0]):
            tokens.pop()
        return tokens

    def sampling(self, stage: Stage) -> Sampling:
        """How the completions of a stage are drawn."""
        return self.resources.stage_sampling.get(stage.name, self.resources.sampling)

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion of a chat, recorded."""
        completion = await self.draw(stage, messages, sampling, sample)
        self.record(stage, messages, sampling, completion)
        return completion

    async def draw(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion, not recorded; every call of a rollout goes through here."""
        return await self.resources.complete(stage, messages, sampling, sample, self.question.id)

    def record(self, stage: Stage, messages: list[Message], sampling: Sampling, completion: Completion) -> None:
        """Put a completion into the trace."""
        self.trace.steps.append(Generation(stage.name, stage.role, messages, sampling, completion))


def _standing_in(passages: Sequence[Passage], facts: Sequence[str]) -> list[int]:
    """The places of the facts that stand in a passage, however its lines are broken."""
    if not facts:
        return []
    texts = ["".join(passage.text.split()) for passage in passages]
    return [place for place, fact in enumerate(facts) if any("".join(fact.split()) in text for text in texts)]
