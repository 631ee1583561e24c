"""Reranking the first passages of a ranking with a language model (RankGPT, Sun et al., EMNLP 2023)."""

import logging
import re
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Message, Passage, Sampling
from notewriter.ground.text import first_words, without_surrogates
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint, RequestRefused
from notewriter.models.connection import check_address
from notewriter.models.thoughts import after_thinking
from notewriter.retrieval.protocol import OpenStep, Step

logger = logging.getLogger(__name__)

WINDOW, STRIDE = 20, 10
"""Passages that a language model sees at once, and how far the window moves (RankGPT, Sun et al. 2023, section 3.2)."""

MOST_WORDS = 200
"""Words of a passage that a language model sees."""

PROMPT = """Rank the passages below by how much they help to answer the query.

Query: {query}

{passages}

Write the numbers of all {count} passages, the most helpful first, in the form [2] > [1] > [3], and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmRerankOptions:
    """`llm_rerank`: the name of a language model."""

    llm_rerank: str
    base_url: str = field(metadata={"help": "the OpenAI-compatible address of the model", "effect": False})
    candidates: Annotated[int, Interval(ge=2, le=1000)] = option(
        20, "number of passages to reorder, in windows of 20 from the last to the first"
    )
    api_key_env: Annotated[str, MinLen(1)] = field(default="OPENAI_API_KEY", metadata={"effect": False})
    timeout: Annotated[float, Interval(gt=0)] = field(default=600.0, metadata={"effect": False})
    attempts: Annotated[int, Interval(ge=1)] = field(default=8, metadata={"effect": False})


class LlmRerank(OpenStep):
    """A language model that orders numbered passages.

    Replies are parsed leniently: passages that a reply does not name follow in their old order.
    """

    def __init__(self, options: LlmRerankOptions, cache: ResponseCache | None) -> None:
        check_address(options.base_url, "retriever: base_url")
        self.name = f"rerank {options.llm_rerank}"
        self._options = options
        self._has_told = False
        self._client = Client(
            Endpoint(
                options.base_url,
                options.llm_rerank,
                api_key_env=options.api_key_env,
                timeout=options.timeout,
                attempts=options.attempts,
            ),
            cache,
        )

    def candidates(self, top_k: int) -> int:
        """The number of passages that it needs to return `top_k`."""
        return max(top_k, self._options.candidates)

    async def check(self) -> None:
        """Check that the endpoint serves the model.

        Raises:
            UserError: it does not, or cannot be reached.
        """
        await self._client.check()

    async def apply(self, query: str, passages: list[Passage], top_k: int) -> list[Passage]:
        """The passages, the first candidates among them as the model orders them.

        Raises:
            UserError: the endpoint cannot be reached or refuses the prompt.
        """
        head, tail = passages[: self._options.candidates], passages[self._options.candidates :]
        start = max(0, len(head) - WINDOW)
        while len(head) > 1:
            head[start : start + WINDOW] = await self._order(query, head[start : start + WINDOW])
            if start == 0:
                break
            start = max(0, start - STRIDE)
        return head + tail

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _order(self, query: str, passages: list[Passage]) -> list[Passage]:
        numbered = "\n\n".join(
            f"[{number}] {passage.title}: {first_words(passage.text, MOST_WORDS)}"
            for number, passage in enumerate(passages, start=1)
        )
        prompt = PROMPT.format(query=query, passages=numbered, count=len(passages))
        messages = [Message(role="user", content=without_surrogates(prompt))]
        try:
            reply = await self._client.complete(messages, Sampling(0.0, 1.0, 16 * len(passages)))
        except RequestRefused as refusal:
            raise UserError(
                f"{self._options.base_url}: refuses to rerank ({str(refusal).rstrip('.')}); set fewer candidates"
            ) from refusal
        said = after_thinking(reply.text)
        if not said and not self._has_told:
            self._has_told = True
            logger.warning(
                "%s: %s is still thinking after %d tokens, so that passages keep their order; switch its thinking off "
                "at the server",
                self._options.base_url,
                self._options.llm_rerank,
                reply.completion_tokens,
            )
        return [passages[place] for place in _places(said, len(passages))]


def _places(reply: str, count: int) -> list[int]:
    """The places of all passages in the order of a reply such as `[2] > [1]`."""
    # A sentence before the ranking may have numbers of its own.
    named = re.findall(r"\[(\d{1,4})\]", reply) or re.findall(r"\d{1,4}", reply)
    numbers = (int(number) - 1 for number in named)
    return list(dict.fromkeys([*(place for place in numbers if 0 <= place < count), *range(count)]))


STEP = Step(options=LlmRerankOptions, open=LlmRerank, calls_model=True)
