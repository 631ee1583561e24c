"""Sentence encoders: sentence-transformers models, their prompts and their devices."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError, install
from notewriter.ground.lazy import Lazy
from notewriter.ground.options import option
from notewriter.ground.terminal import say_once
from notewriter.ground.text import without_surrogates
from notewriter.models.checkpoint import Checkpoint, is_hub_id, loading

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
else:
    np = Lazy("numpy")

logger = logging.getLogger(__name__)

INSTRUCTION = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"

_E5, _BGE = ("query: ", "passage: "), "Represent this sentence for searching relevant passages: "
_NONE = ("", "")

KNOWN: dict[str, tuple[tuple[str, str], str | None]] = {
    r"e5-mistral-7b-instruct": ((f"{INSTRUCTION} ", ""), "lasttoken"),
    r"multilingual-e5-large-instruct": ((f"{INSTRUCTION} ", ""), "mean"),
    r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?": (_E5, "mean"),
    r"bge-(small|base|large)-en(-v1\.5)?|mxbai-embed-large-v1|snowflake-arctic-embed-(xs|s|m|l)": ((_BGE, ""), "cls"),
    r"bge-(small|base|large)-zh(-v1\.5)?": (("为这个句子生成表示以用于检索相关文章：", ""), "cls"),
    r"bge-m3|gte-modernbert-base|gte-(base|large)-en-v1\.5": (_NONE, "cls"),
    r"gte-(small|base|large)": (_NONE, "mean"),
    r"gtr-t5-(base|large|xl|xxl)|sentence-t5-(base|large|xl|xxl)|labse": (_NONE, None),
    r"contriever(-msmarco)?|mcontriever(-msmarco)?|(hotpotqa|nq|tqa)_extractive_compressor": (_NONE, "mean"),
    r"all-(minilm|mpnet|distilroberta|roberta)-.*|(multi-qa|paraphrase|msmarco)-.*": (_NONE, None),
    r"static-(retrieval|similarity)-mrl-.*|potion-.*": (_NONE, None),
    r"nomic-embed-text-v(1|1\.5|2-moe)": (("search_query: ", "search_document: "), "mean"),
    r"gte-qwen2-(1\.5b|7b)-instruct": ((f"{INSTRUCTION} ", ""), "lasttoken"),
    r"qwen3-embedding-(0\.6b|4b|8b)": ((INSTRUCTION, ""), "lasttoken"),
}
"""Settings of encoders by name, for those whose files lack them: the query and the passage prompt, and how the
vectors of tokens become one (None where the weights of a further layer are needed, too)."""

_QUERY = re.compile(r"(retrieval|search|s2p|web_search)?[._-]?query", re.IGNORECASE)
_PASSAGE = re.compile(r"(retrieval|search)?[._-]?(passage|document|corpus)", re.IGNORECASE)


@dataclass(slots=True)
class Encoder:
    """An encoder with its settings."""

    encoder: str | None = option(
        None,
        "build a dense index with this sentence-transformers model, a folder or a hub id "
        "(BAAI/bge-base-en-v1.5 is DeepNote's); without an encoder the index is BM25",
    )
    query_prompt: Annotated[str, MinLen(0)] | None = option(
        None, "text prepended to queries; by default from the encoder's configuration or name"
    )
    passage_prompt: Annotated[str, MinLen(0)] | None = option(None, "text prepended to passages; likewise")
    similarity: str | None = option(None, "cosine or dot; by default from the encoder's configuration")
    batch_size: Annotated[int, Interval(ge=1, le=65_536)] = option(64, "passages per batch")
    device: str | None = option(
        None, "device for passages: cpu, cuda, cuda:1, or several as cuda:0,cuda:1; by default all GPUs, else cpu"
    )
    query_device: str = option("cpu", "device for queries; the GPU is often occupied by the served model")
    structure: str = option(
        "flat",
        "the structure of a dense index: flat (exact) or hnsw (a graph of FAISS, whose recall is "
        "measured against flat when it is built)",
    )
    recall: Annotated[float, Interval(gt=0, le=1)] = option(
        0.95, "recall@10 against exact search to which hnsw is tuned"
    )
    vectors: str | None = option(
        None,
        "take the vectors of this flat or HNSW index of FAISS instead of embedding; it was built "
        "elsewhere of the same passages in the same order",
    )


@functools.cache
def load(encoder: str, device: str | None) -> SentenceTransformer:
    """The model, loaded once per device.

    Raises:
        UserError: it is not there, cannot be loaded, or the device is missing.
    """
    if not Path(encoder).is_dir() and not is_hub_id(encoder):
        raise UserError(f"encoder: {encoder} is neither a model folder nor a hub id (owner/name); check the path")
    if device is not None and device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise UserError(f"{device}: PyTorch finds no GPU; use the cpu")
    transformer = library("sentence_transformers").SentenceTransformer
    with loading(encoder, "encoder"):
        from sentence_transformers.util.file_io import load_file_path

        if (settings := load_file_path(encoder, "config_sentence_transformers.json")) is not None:
            kind = json.loads(Path(settings).read_text(encoding="utf-8")).get("model_type", transformer.__name__)
            if kind != transformer.__name__:
                # The library would drop its last modules and take the mean of all tokens.
                raise UserError(f"encoder: {encoder} is a {kind}; choose a model with one vector for a text")
        has_nothing = Path(encoder).is_dir() and not (Path(encoder) / "config.json").is_file()
        if has_nothing or load_file_path(encoder, "modules.json") is not None:
            model: SentenceTransformer = transformer(encoder, device=device, trust_remote_code=False)
            return model
        # The library would take the mean of all tokens.
        pooling = (_known(encoder) or (_NONE, None))[1]
        if pooling is None:
            raise UserError(
                f"{encoder}: has no modules.json, so that the pooling of its tokens' vectors is not known; get its "
                "whole folder (modules.json, and 1_Pooling/config.json with it)"
            )
        from sentence_transformers.sentence_transformer import modules

        words = modules.Transformer(encoder, model_kwargs={"trust_remote_code": False})
        pool = modules.Pooling(words.get_embedding_dimension(), pooling)
        model = transformer(modules=[words, pool], device=device)
        return model


def _known(encoder: str) -> tuple[tuple[str, str], str | None] | None:
    """The known settings of an encoder by its name: of its path, the Hub's cache, its card or its configuration."""
    for name in _names(encoder):
        bare = re.split(r"/|--|__", name.strip().lower())[-1]
        if found := next((known for pattern, known in KNOWN.items() if re.fullmatch(pattern, bare)), None):
            return found
    return None


def _names(encoder: str) -> Iterator[str]:
    path = Path(encoder)
    yield path.name
    # As given and as it is: a folder may be a link into the cache.
    for parts in (path.parts, path.resolve().parts):
        yield from (part for part in parts if part.startswith("models--"))
    for file, pattern in (("README.md", r"^#\s+(.+)$"), ("config.json", r'"_name_or_path":\s*"([^"]+)"')):
        with contextlib.suppress(OSError):
            text = (path / file).read_text(encoding="utf-8", errors="replace")
            yield from (match[1] for match in re.finditer(pattern, text, re.MULTILINE))


def description(model: SentenceTransformer) -> dict[str, Any]:
    """The pooling and the number of tokens that are read, None for all, for the manifest of an index."""
    pooling = next((each.pooling_mode for each in model if hasattr(each, "pooling_mode")), None)
    kind = "+".join(pooling) if isinstance(pooling, tuple | list) else pooling
    most = getattr(reader(model), "max_seq_length", None)
    return {"pooling": str(kind), "max_tokens": most if isinstance(most, int) else None}


def reader(model: SentenceTransformer) -> Any:
    """The module that reads passages: the first one, or where queries take another way, the first on theirs."""
    ways = getattr(model[0], "sub_modules", {})
    return ways["document"][0] if "document" in ways else model[0]


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
    """The query and the passage prompt: as given, else of the encoder's configuration, else by its name.

    Raises:
        UserError: one of them is not given, and neither configuration nor name tells it.
    """
    if options.query_prompt is not None and options.passage_prompt is not None:
        return options.query_prompt, options.passage_prompt
    own = {name: prompt for name, prompt in model.prompts.items() if prompt}
    queries = {own[name] for name in own if _QUERY.fullmatch(name)}
    found = {own[name] for name in own if _PASSAGE.fullmatch(name)}
    known = _known(str(options.encoder))
    if len(queries) <= 1 and len(found) <= 1 and (queries or found):
        query, passage = "".join(queries), "".join(found)
    elif known and not own:
        query, passage = known[0]
    else:
        what = f"its prompts are called {', '.join(own)}" if own else "neither its configuration nor its name says it"
        raise UserError(
            f"{options.encoder}: the prompts of its queries and passages are not known ({what}); give both, "
            '--query_prompt TEXT and --passage_prompt TEXT ("" for none)'
        )
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
    """Embed texts, one row each, by an index's settings; `prompt` names the setting with their prompt."""
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
    try:
        asked, read = prompts(model, Encoder(encoder=encoder))
    except UserError as unknown:
        # Sentences are compared without options for prompts, and most encoders of sentences have none.
        say_once(logger, f"{unknown}; its texts are compared without prompts")
        asked, read = _NONE
    settings = {"query_prompt": asked, "passage_prompt": read, "similarity": similarity}
    vector = encode(model.encode_query, [without_surrogates(query)], settings, "query_prompt")[0]
    found = encode(model.encode_document, [*map(without_surrogates, texts)], settings, "passage_prompt", batch_size)
    return [float(score) for score in found @ vector]
