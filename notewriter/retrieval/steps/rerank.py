"""Reranking the first passages of a ranking with a cross-encoder."""

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from notewriter.ground.errors import UserError
from notewriter.ground.options import option
from notewriter.ground.records import Passage
from notewriter.ground.text import without_surrogates
from notewriter.models.checkpoint import is_hub_id, loading
from notewriter.retrieval import encoders
from notewriter.retrieval.protocol import OpenStep, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankOptions:
    """`rerank`: a cross-encoder, a model folder or hub id, such as BAAI/bge-reranker-v2-m3."""

    rerank: str
    candidates: Annotated[int, Interval(ge=1, le=10_000)] = option(50, "number of passages to reorder, the first ones")
    batch_size: Annotated[int, Interval(ge=1, le=65_536)] = field(default=32, metadata={"effect": False})
    max_length: Annotated[int, Interval(ge=1)] | None = option(None, "maximum number of tokens of query and passage")
    prompt: str | None = option(None, "the instruction, for models that take one")
    device: str | None = option(None, "by default a GPU if there is one; cpu leaves it to a served model", effect=False)


class Rerank(OpenStep):
    """A cross-encoder that scores query and passage together.

    Raises:
        UserError: sentence-transformers is not installed, or the model cannot be loaded.
    """

    def __init__(self, options: RerankOptions) -> None:
        model = options.rerank
        if not is_hub_id(model) and not Path(model).is_dir():
            raise UserError(f"rerank: {model} is neither a model folder nor a hub id (owner/name); check the path")
        self.name = f"rerank {model}"
        self._options = options
        self._model = _load(model, options.device, options.max_length)
        if self._model.num_labels != 1:
            raise UserError(
                f"rerank: {model} has {self._model.num_labels} outputs; choose a model with one, a reranker"
            )
        # One thread: fast tokenizers are not thread-safe, and PyTorch uses all cores anyway.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rerank")

    def candidates(self, top_k: int) -> int:
        """The number of passages that it needs to return `top_k`."""
        return max(top_k, self._options.candidates)

    async def apply(self, query: str, passages: list[Passage], top_k: int) -> list[Passage]:
        """The passages, the first candidates among them by falling score; ties stay in order."""
        if not passages:
            return []
        loop = asyncio.get_running_loop()
        head, tail = passages[: self._options.candidates], passages[self._options.candidates :]
        scores = await loop.run_in_executor(self._thread, self._scores, without_surrogates(query), head)
        order = sorted(range(len(head)), key=lambda place: -scores[place])
        return [head[place] for place in order] + tail

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _scores(self, query: str, passages: list[Passage]) -> list[float]:
        pairs = [(query, f"{passage.title}\n{passage.text}") for passage in passages]
        prompt = {"prompt": self._options.prompt} if self._options.prompt is not None else {}
        scores = self._model.predict(pairs, batch_size=self._options.batch_size, show_progress_bar=False, **prompt)
        return [float(score) for score in scores]


@functools.cache
def _load(model: str, device: str | None, max_length: int | None) -> Any:
    cross_encoder = encoders.library("sentence_transformers").CrossEncoder
    with loading(model, "reranker"):
        loaded = cross_encoder(model, device=device, max_length=max_length, trust_remote_code=False)
        from sentence_transformers.util.file_io import load_file_path

        if hasattr(loaded[-1], "true_token_id") and load_file_path(model, "modules.json") is None:
            # The library would compare the logits of "yes" and "no" after the bare query and passage.
            raise UserError(
                f"rerank: {model} is a language model without the settings of a reranker (modules.json); choose a "
                "cross-encoder, or serve it and name it as `llm_rerank`"
            )
        inner = loaded[0].model
        # transformers makes what the files lack at random, and only its own log says so.
        _, info = type(inner).from_pretrained(model, trust_remote_code=False, output_loading_info=True)
        if missing := sorted(info["missing_keys"]):
            raise UserError(
                f"rerank: {model}: its files lack {len(missing)} weights, {missing[0]} first, so that its scores would "
                "be random; choose a trained reranker"
            )
        return loaded


STEP = Step(
    is_local=True,
    options=RerankOptions,
    open=lambda options, cache: Rerank(options),
    identity=lambda options: encoders.identity(options.rerank),
)
