"""Sentence encoders: sentence-transformers models, their prompts and their devices."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError, install
from notewriter.ground.lazy import Lazy
from notewriter.ground.text import without_surrogates
from notewriter.models.checkpoint import Checkpoint, is_hub_id, loading

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
else:
    np = Lazy("numpy")

INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

PROMPTS = {
    r"e5-mistral-7b-instruct|multilingual-e5-large-instruct": (f"{INSTRUCTION} ", ""),
    r"(multilingual-)?e5-(small|base|large)(-v2)?": ("query: ", "passage: "),
    r"bge-(small|base|large)-en(-v1\.5)?": ("Represent this sentence for searching relevant passages: ", ""),
    r"bge-(small|base|large)-zh(-v1\.5)?": ("为这个句子生成表示以用于检索相关文章：", ""),
    r"bge-m3|gte-(small|base|large|modernbert-base)|gte-(base|large)-en-v1\.5|gtr-t5-(base|large|xl|xxl)": ("", ""),
    r"gte-qwen2-(1\.5b|7b)-instruct": (f"{INSTRUCTION} ", ""),
    r"qwen3-embedding-(0\.6b|4b|8b)": (INSTRUCTION, ""),
}
"""Query and passage prompts by the name of an encoder, for those whose configuration has none."""


@dataclass(slots=True)
class Encoder:
    """The encoder and how it is used."""

    encoder: str | None = field(
        default=None,
        metadata={
            "help": "build a dense index with this sentence-transformers model, a folder or a hub id "
            "(BAAI/bge-base-en-v1.5 is DeepNote's); without an encoder the index is BM25"
        },
    )
    query_prompt: Annotated[str, MinLen(0)] | None = field(
        default=None,
        metadata={"help": "text prepended to queries; by default from the encoder's configuration or name"},
    )
    passage_prompt: Annotated[str, MinLen(0)] | None = field(
        default=None, metadata={"help": "text prepended to passages; likewise"}
    )
    similarity: str | None = field(
        default=None, metadata={"help": "cosine or dot; by default from the encoder's configuration"}
    )
    batch_size: Annotated[int, Interval(ge=1, le=65_536)] = field(default=64, metadata={"help": "passages per batch"})
    device: str | None = field(
        default=None,
        metadata={
            "help": "device for passages: cpu, cuda, cuda:1, or several as cuda:0,cuda:1; by default all GPUs, else cpu"
        },
    )
    query_device: str = field(
        default="cpu", metadata={"help": "device for queries; the GPU is often occupied by the served model"}
    )
    structure: str = field(
        default="flat",
        metadata={
            "help": "how a dense index is searched: flat (exact) or hnsw (a graph of FAISS, whose recall is measured "
            "against flat when it is built)"
        },
    )
    recall: Annotated[float, Interval(gt=0, le=1)] = field(
        default=0.95, metadata={"help": "recall@10 against exact search to which hnsw is tuned"}
    )
    vectors: str | None = field(
        default=None,
        metadata={
            "help": "take the vectors of this flat or HNSW index of FAISS, which was built elsewhere of the same "
            "passages in the same order, and do not embed"
        },
    )


def load(encoder: str, device: str | None) -> SentenceTransformer:
    """The model, loaded once per device.

    Raises:
        UserError: it is not there, cannot be loaded, or the device is missing.
    """
    return _load(encoder, device)


@functools.cache
def _load(encoder: str, device: str | None) -> SentenceTransformer:
    if not Path(encoder).is_dir() and not is_hub_id(encoder):
        raise UserError(f"encoder: {encoder} is neither a model folder nor a hub id (owner/name); check the path")
    if device is not None and device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise UserError(f"{device}: PyTorch finds no GPU; use the cpu")
    transformer = library("sentence_transformers").SentenceTransformer
    with loading(encoder, "encoder"):
        model: SentenceTransformer = transformer(encoder, device=device, trust_remote_code=False)
        return model


def identity(model: str) -> str | None:
    """The fingerprint of a model's files; None for a hub id that is not on this machine."""
    content = Checkpoint(model).fingerprint()
    return None if content == model else content


def library(name: str) -> Any:
    """Import a library of the extra `dense`.

    Raises:
        UserError: it is missing; names the extra.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{error.name or name} is not installed; {install('dense')}") from error


def devices(device: str | None) -> list[str]:
    """The devices of `--device`, by default every GPU; empty for the library's own choice."""
    if device is not None:
        return device.split(",")
    import torch

    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def prompts(model: SentenceTransformer, options: Encoder) -> tuple[str, str]:
    """The query and the passage prompt: as given, else of the encoder's configuration, else by its name."""
    name = Path(str(options.encoder)).name.lower()
    by_name = next((prompts for pattern, prompts in PROMPTS.items() if re.fullmatch(pattern, name)), ("", ""))
    own = model.prompts.get("query"), model.prompts.get("document") or model.prompts.get("passage")
    query, passage = by_name if not any(own) else tuple(prompt or "" for prompt in own)
    return (
        query if options.query_prompt is None else options.query_prompt,
        passage if options.passage_prompt is None else options.passage_prompt,
    )


def encode(
    function: Callable[..., Any],
    texts: list[str],
    settings: Mapping[str, Any],
    prompt: str,
    batch_size: int = 1,
    pool: dict[str, Any] | None = None,
) -> NDArray[np.float32]:
    """Embed texts, one row each, as an index's settings say; `prompt` names the setting with their prompt."""
    vectors = function(
        texts,
        prompt=settings[prompt],
        batch_size=batch_size,
        normalize_embeddings=settings["similarity"] == "cosine",
        show_progress_bar=False,
        pool=pool,
    )
    return np.ascontiguousarray(vectors, dtype=np.float32)


def similarities(
    query: str,
    texts: Sequence[str],
    encoder: str,
    similarity: str = "cosine",
    device: str | None = "cpu",
    batch_size: int = 64,
) -> list[float]:
    """The similarity of a query with each text: cosine or dot. On the CPU, the GPU is left to a served model.

    Raises:
        UserError: sentence-transformers is not installed (the extra `dense`), or the encoder cannot be loaded.
    """
    if not texts:
        return []
    model = load(encoder, device)
    asked, read = prompts(model, Encoder(encoder=encoder))
    settings = {"query_prompt": asked, "passage_prompt": read, "similarity": similarity}
    vector = encode(model.encode_query, [without_surrogates(query)], settings, "query_prompt")[0]
    found = encode(model.encode_document, [*map(without_surrogates, texts)], settings, "passage_prompt", batch_size)
    return [float(score) for score in found @ vector]
