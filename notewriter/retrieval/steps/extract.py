"""Extracting sentences: of all passages found, only the sentences nearest to the query remain (RECOMP, extractive)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from annotated_types import Interval

from notewriter.ground.options import option
from notewriter.ground.records import Passage
from notewriter.ground.text import sentences_in
from notewriter.retrieval import encoders
from notewriter.retrieval.protocol import OpenStep, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """`extract`: a sentence encoder, a model folder or hub id, such as fangyuan/hotpotqa_extractive_compressor."""

    extract: str
    sentences: Annotated[int, Interval(ge=1, le=10_000)] = option(
        1, "number of sentences that remain, those nearest to the query"
    )
    similarity: Literal["dot", "cosine"] = option("dot", "similarity of the embeddings")
    batch_size: Annotated[int, Interval(ge=1, le=65_536)] = field(default=64, metadata={"effect": False})
    device: str | None = option(None, "by default a GPU if there is one; cpu leaves it to a served model", effect=False)


class Extract(OpenStep):
    """RECOMP's extractive compressor (Xu et al. 2023, section 3.1): inner products of query and sentence embeddings.

    A sentence is embedded after the title of its passage, as in the paper.

    Raises:
        UserError: sentence-transformers is not installed, or the model cannot be loaded.
    """

    def __init__(self, options: ExtractOptions) -> None:
        self.name = f"extract {options.extract}"
        self._options = options
        # An encoder that cannot be loaded is told before the first query.
        encoders.load(options.extract, options.device)
        # One thread: fast tokenizers are not thread-safe, and PyTorch uses all cores anyway.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="extract")

    async def apply(self, query: str, passages: list[Passage], top_k: int) -> list[Passage]:
        """The passages with a chosen sentence, reduced to those sentences; the passage of the nearest one first."""
        # Sentences of passages that were only candidates would displace those of the best ones.
        passages = passages[:top_k]
        pool = [(place, text) for place, passage in enumerate(passages) for text in sentences_in(passage.text)]
        if not pool:
            return []
        loop = asyncio.get_running_loop()
        texts = [text for _, text in pool]
        titled = [f"{passages[place].title} {text}".lstrip() for place, text in pool]
        scores = await loop.run_in_executor(self._thread, self._scores, query, titled)
        best = sorted(range(len(pool)), key=lambda index: -scores[index])[: self._options.sentences]
        chosen: dict[int, list[int]] = {}
        for index in best:
            chosen.setdefault(pool[index][0], []).append(index)
        return [
            replace(passages[place], text=" ".join(texts[index] for index in sorted(indices)))
            for place, indices in chosen.items()
        ]

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _scores(self, query: str, texts: list[str]) -> list[float]:
        options = self._options
        return encoders.similarities(
            query, texts, options.extract, options.similarity, options.device, options.batch_size
        )


STEP = Step(
    is_local=True,
    options=ExtractOptions,
    open=lambda options, cache: Extract(options),
    identity=lambda options: encoders.identity(options.extract),
)
