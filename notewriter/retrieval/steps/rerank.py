"""Reranking the first passages of a ranking: with a cross-encoder, or with a language model."""

import asyncio
import functools
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError
from notewriter.ground.records import Message, Passage, Sampling
from notewriter.ground.text import without_surrogates
from notewriter.models import checkpoints
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint, RequestRefused
from notewriter.models.connection import check_address
from notewriter.retrieval import encoders

WINDOW, STRIDE = 20, 10
"""Passages that a language model sees at once, and how far the window moves (RankGPT, Sun et al. 2023, section 3.2)."""

MOST_WORDS = 200
"""Words of a passage that a language model sees."""

PROMPT = """Rank the passages below by how much they help to answer the query.

Query: {query}

{passages}

Write the numbers of all {count} passages, the most helpful first, in the form [2] > [1] > [3], and nothing else."""


@dataclass(frozen=True, slots=True)
class RerankPart:
    """`rerank`: a cross-encoder, a model folder or hub id, such as BAAI/bge-reranker-v2-m3.

    The first `candidates` passages are reordered. `max_length` bounds query and passage in tokens; `prompt` is the
    instruction of models that take one; `device` is chosen by PyTorch unless set.
    """

    rerank: str
    candidates: Annotated[int, Interval(ge=1, le=10_000)] = 50
    batch_size: Annotated[int, Interval(ge=1, le=65_536)] = field(default=32, metadata={"effect": False})
    max_length: Annotated[int, Interval(ge=1)] | None = None
    prompt: str | None = None
    device: str | None = field(default=None, metadata={"effect": False})


@dataclass(frozen=True, slots=True)
class LlmRerankPart:
    """`llm_rerank`: the name of a language model at the OpenAI-compatible address `base_url`.

    The first `candidates` passages are reordered, in windows of 20 from the last to the first.
    """

    llm_rerank: str
    base_url: str = field(metadata={"effect": False})
    candidates: Annotated[int, Interval(ge=2, le=1000)] = 20
    api_key_env: Annotated[str, MinLen(1)] = field(default="OPENAI_API_KEY", metadata={"effect": False})
    timeout: Annotated[float, Interval(gt=0)] = field(default=600.0, metadata={"effect": False})
    attempts: Annotated[int, Interval(ge=1)] = field(default=8, metadata={"effect": False})


class CrossEncoderRerank:
    """A cross-encoder that scores query and passage together.

    Raises:
        UserError: sentence-transformers is not installed, or the model cannot be loaded.
    """

    def __init__(self, part: RerankPart) -> None:
        model = part.rerank
        if not checkpoints.is_hub_id(model) and not Path(model).is_dir():
            raise UserError(f"rerank: {model} is neither a model folder nor a hub id (owner/name); check the path")
        self.name = f"rerank {model}"
        self._part = part
        self._model = _load(model, part.device, part.max_length)
        if self._model.num_labels != 1:
            raise UserError(
                f"rerank: {model} has {self._model.num_labels} outputs; choose a model with one, a reranker"
            )
        # One thread: fast tokenizers are not thread-safe, and PyTorch uses all cores anyway.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank")

    def candidates(self, top_k: int) -> int:
        """How many passages it needs in order to return `top_k`."""
        return max(top_k, self._part.candidates)

    async def check(self) -> None:
        """The model was loaded when the chain was opened."""

    async def apply(self, query: str, passages: list[Passage]) -> list[Passage]:
        """The passages, the first candidates among them by falling score; ties stay in order."""
        if not passages:
            return []
        loop = asyncio.get_running_loop()
        head, tail = passages[: self._part.candidates], passages[self._part.candidates :]
        scores = await loop.run_in_executor(self._thread, self._scores, without_surrogates(query), head)
        order = sorted(range(len(head)), key=lambda place: -scores[place])
        return [head[place] for place in order] + tail

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _scores(self, query: str, passages: list[Passage]) -> list[float]:
        pairs = [(query, f"{passage.title}\n{passage.text}") for passage in passages]
        options = {"prompt": self._part.prompt} if self._part.prompt is not None else {}
        scores = self._model.predict(pairs, batch_size=self._part.batch_size, show_progress_bar=False, **options)
        return [float(score) for score in scores]


class LlmRerank:
    """A language model that orders numbered passages (RankGPT, Sun et al., EMNLP 2023).

    Replies are parsed leniently: passages that a reply does not name follow in their old order.
    """

    def __init__(self, part: LlmRerankPart, cache: ResponseCache | None = None) -> None:
        check_address(part.base_url, "retriever: base_url")
        self.name = f"rerank {part.llm_rerank}"
        self._part = part
        self._client = Client(
            Endpoint(
                part.base_url,
                part.llm_rerank,
                api_key_env=part.api_key_env,
                timeout=part.timeout,
                attempts=part.attempts,
            ),
            cache,
        )

    def candidates(self, top_k: int) -> int:
        """How many passages it needs in order to return `top_k`."""
        return max(top_k, self._part.candidates)

    async def check(self) -> None:
        """Check that the endpoint serves the model.

        Raises:
            UserError: it does not, or cannot be reached.
        """
        await self._client.check()

    async def apply(self, query: str, passages: list[Passage]) -> list[Passage]:
        """The passages, the first candidates among them as the model orders them.

        Raises:
            UserError: the endpoint cannot be reached or refuses the prompt.
        """
        head, tail = passages[: self._part.candidates], passages[self._part.candidates :]
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
            f"[{number}] {passage.title}: {' '.join(passage.text.split()[:MOST_WORDS])}"
            for number, passage in enumerate(passages, start=1)
        )
        prompt = PROMPT.format(query=query, passages=numbered, count=len(passages))
        messages = [Message(role="user", content=without_surrogates(prompt))]
        try:
            reply = await self._client.complete(messages, Sampling(0.0, 1.0, 16 * len(passages)))
        except RequestRefused as refusal:
            raise UserError(
                f"{self._part.base_url}: refuses to rerank ({str(refusal).rstrip('.')}); set fewer candidates"
            ) from refusal
        return [passages[place] for place in _places(reply.text, len(passages))]


@functools.cache
def _load(model: str, device: str | None, max_length: int | None) -> Any:
    cross_encoder = encoders.library("sentence_transformers").CrossEncoder
    with checkpoints.loading(model, "reranker"):
        return cross_encoder(model, device=device, max_length=max_length, trust_remote_code=False)


def _places(reply: str, count: int) -> list[int]:
    """The places of all passages in the order of a reply such as `[2] > [1]`."""
    named = (int(number) - 1 for number in re.findall(r"\d{1,4}", reply.rpartition("</think>")[2]))
    return list(dict.fromkeys([*(place for place in named if 0 <= place < count), *range(count)]))
