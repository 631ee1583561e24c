"""Dense retrieval: a sentence-transformers encoder and exact inner-product search with FAISS.

The embeddings are a file of float32 rows, appended to by the build and memory-mapped by searches: neither needs memory
for all of them, and an interrupted build resumes after the last complete chunk. There is no approximate index: with
the 139,416 passages of DeepNote's 2WikiMultihopQA a search reads 430 MB.

DeepNote's dense retriever for the multi-hop benchmarks is bge-base-en-v1.5 (section 4.1).
"""

import functools
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from annotated_types import Interval, MinLen
from numpy.typing import NDArray
from tqdm import tqdm

from notewriter import jsonl
from notewriter.errors import UserError
from notewriter.models import checkpoints
from notewriter.records import Passage
from notewriter.retrieval import MANIFEST, check_top_k, checked, read_manifest, write_index
from notewriter.text import without_surrogates
from notewriter.typecheck import misfit

SCHEMA = "notewriter/dense/1"
"""Changes with everything that makes older indexes unreadable or changes their results."""

PASSAGES, LINES, EMBEDDINGS = "passages.jsonl", "lines.npy", "embeddings.float32"
SETTINGS = "settings.json"
"""The settings of an unfinished build; a build with other settings starts over."""

CHUNK = 1024
"""Passages embedded (sorted by length) and written together; the most an interrupted build loses."""

PROMPTS = {
    r"(multilingual-)?e5-(small|base|large)(-v2)?": ("query: ", "passage: "),
    r"bge-(small|base|large)-en(-v1\.5)?": ("Represent this sentence for searching relevant passages: ", ""),
}
"""Query and passage prompts, by name, of encoders that were trained with prompts missing from their configuration."""


class EncoderModel(Protocol):
    """What is used of `sentence_transformers.SentenceTransformer`."""

    prompts: Mapping[str, str]
    similarity_fn_name: str | None

    def encode_document(self, sentences: list[str], **options: object) -> NDArray[np.float32]:
        """Embed passages, one row each."""
        ...

    def encode_query(self, sentences: list[str], **options: object) -> NDArray[np.float32]:
        """Embed queries, one row each."""
        ...


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
        default=None, metadata={"help": "device for passages: cpu, cuda, cuda:1, ...; by default a GPU if there is one"}
    )
    query_device: str = field(
        default="cpu", metadata={"help": "device for queries; the GPU is often occupied by the served model"}
    )


@dataclass(frozen=True)
class Manifest:
    """The contents of a dense index's `manifest.json`."""

    fingerprint: str
    encoder: str
    query_device: str
    query_prompt: str
    passage_prompt: str
    similarity: str
    passages: Annotated[int, Interval(ge=1)]
    dimension: Annotated[int, Interval(ge=1)]


def build(passages: Iterable[Passage], directory: str | Path, source: str = "", *, options: Encoder) -> int:
    """Embed passages and index them; returns their number.

    Memory is bounded except for the ids. The folder appears under its name only when complete. An interrupted build
    of the same source with the same settings is resumed.

    Args:
        passages: the corpus; not read if an interrupted build has saved it.
        directory: the folder of the index; an existing index is replaced.
        source: a fingerprint of the corpus, recorded in the manifest.
        options: the encoder.

    Raises:
        UserError: there are no passages, an id occurs twice, the folder exists and is not an index, or the encoder
            cannot be loaded or returns vectors that are not finite.
    """
    model, settings = _describe(options, source)

    def write(folder: Path) -> dict[str, Any]:
        if _read_json(folder / SETTINGS) != settings:
            shutil.rmtree(folder)
            jsonl.write_text(folder / SETTINGS, [json.dumps(settings)])
        if not (folder / PASSAGES).exists():
            jsonl.write(folder / PASSAGES, map(asdict, checked(passages)))
        with open(folder / PASSAGES, "rb") as lines:
            starts = np.cumsum([0, *map(len, lines)], dtype=np.int64)
        np.save(folder / LINES, starts)
        dimension = _embed(model, settings, options.batch_size, folder, len(starts) - 1)
        return settings | _place(options) | {"passages": len(starts) - 1, "dimension": dimension}

    count: int = write_index(directory, write, resume=True)["passages"]
    return count


def is_current(directory: str | Path, source: str, *, options: Encoder) -> bool:
    """Whether the folder contains a dense index of this source, encoder and settings.

    If so, records the encoder's current path and query device, whose change does not require a new build.
    """
    manifest = read_manifest(directory)
    if manifest is None or (manifest.get("schema"), manifest.get("source")) != (SCHEMA, source):
        return False
    if not _describe(options, source)[1].items() <= manifest.items():
        return False
    jsonl.write_text(Path(directory) / MANIFEST, [json.dumps(manifest | _place(options), indent=2) + "\n"])
    return True


class Dense:
    """An open dense index; implements `Retriever`.

    Raises:
        UserError: the folder contains no index that this version can read, or its encoder is missing or has changed.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = directory
        self._manifest = manifest = read_manifest(directory) or {}
        if manifest.get("schema") != SCHEMA:
            raise UserError(f"{directory}: contains no {SCHEMA} index; build it again with `notewriter index`")
        if problem := misfit(manifest, Manifest, f"{directory}/{MANIFEST}"):
            raise UserError(f"{problem}; remove {directory} and build it again")
        count, dimension, encoder = manifest["passages"], manifest["dimension"], manifest["encoder"]
        try:
            self._lines: NDArray[np.int64] = np.load(Path(directory) / LINES, mmap_mode="r", allow_pickle=False)
            embeddings = np.memmap(Path(directory) / EMBEDDINGS, np.float32, "r", shape=(count, dimension))
            self._passages = np.memmap(Path(directory) / PASSAGES, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise UserError(f"{directory}: cannot be opened ({error}); remove it and build it again") from error
        self._embeddings: NDArray[np.float32] = embeddings
        self._faiss = _libraries()[0]
        self._model = _load(encoder, manifest["query_device"])
        if checkpoints.fingerprint(encoder) != manifest["fingerprint"]:
            raise UserError(
                f"{directory}: {encoder} is no longer the encoder that the index was built with; "
                "pass the original one to `notewriter index --encoder`, or build the index again"
            )
        # Fast tokenizers cannot be used by one thread while another one sets their padding.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._embeddings)

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The `top_k` passages whose embeddings are closest to the query's, or all if there are fewer.

        Raises:
            UserError: `top_k` is below 1.
        """
        check_top_k(top_k)
        with self._lock:
            vectors = _encode(self._model.encode_query, [without_surrogates(query)], self._manifest, "query_prompt")
        inner_product = self._faiss.METRIC_INNER_PRODUCT
        _, rows = self._faiss.knn(vectors, self._embeddings, min(top_k, len(self)), metric=inner_product)
        return [self._passage(row) for row in rows[0]]

    def _passage(self, row: int) -> Passage:
        try:
            start, end = self._lines[row : row + 2]
            return Passage(**json.loads(self._passages[start:end].tobytes()))
        except (ValueError, TypeError) as error:
            raise UserError(f"{self._directory}: is damaged ({error}); remove it and build it again") from error


def _embed(model: EncoderModel, settings: dict[str, Any], batch_size: int, folder: Path, count: int) -> int:
    """Append the missing embeddings; returns their dimension."""
    dimension = _encode(model.encode_document, [""], settings, "passage_prompt").shape[1]
    texts = (f"{record['title']}\n{record['text']}" for _, record in jsonl.read(folder / PASSAGES))
    with open(folder / EMBEDDINGS, "ab") as file:
        # Whole chunks only: batching affects the last digits of a vector.
        done = file.tell() // (CHUNK * dimension * 4) * CHUNK
        file.truncate(done * dimension * 4)
        rest = islice(texts, done, None)
        with tqdm(desc="embed", total=count, initial=done, unit=" passages", unit_scale=True) as bar:
            while chunk := list(islice(rest, CHUNK)):
                vectors = _encode(model.encode_document, chunk, settings, "passage_prompt", batch_size)
                if not np.isfinite(vectors).all():
                    raise UserError(
                        f"{settings['fingerprint']}: the encoder returns vectors that are not finite; choose another"
                    )
                file.write(vectors.tobytes())
                file.flush()
                os.fsync(file.fileno())
                bar.update(len(chunk))
    return int(dimension)


def _encode(
    encode: Callable[..., NDArray[np.float32]],
    texts: list[str],
    settings: Mapping[str, Any],
    prompt: str,
    batch_size: int = 1,
) -> NDArray[np.float32]:
    vectors = encode(
        texts,
        prompt=settings[prompt],
        batch_size=batch_size,
        normalize_embeddings=settings["similarity"] == "cosine",
        show_progress_bar=False,
    )
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _describe(options: Encoder, source: str) -> tuple[EncoderModel, dict[str, Any]]:
    """The encoder, and all settings that determine the embeddings."""
    if options.encoder is None:
        raise UserError("a dense index needs an encoder; add --encoder, for example BAAI/bge-base-en-v1.5")
    if options.batch_size < 1:
        raise UserError(f"batch_size: {options.batch_size} passages cannot be embedded; give at least 1")
    model = _load(options.encoder, options.device)
    name = Path(options.encoder).name.lower()
    by_name = next((prompts for pattern, prompts in PROMPTS.items() if re.fullmatch(pattern, name)), ("", ""))
    own = model.prompts.get("query"), model.prompts.get("document") or model.prompts.get("passage")
    given = options.query_prompt, options.passage_prompt
    prompts = by_name if not any(own) else tuple(prompt or "" for prompt in own)
    query_prompt, passage_prompt = (
        default if prompt is None else prompt for prompt, default in zip(given, prompts, strict=True)
    )
    similarity = options.similarity or model.similarity_fn_name
    if similarity not in ("cosine", "dot"):
        raise UserError(f"similarity: {similarity!r} cannot be searched; choose one of: cosine, dot")
    return model, {
        "schema": SCHEMA,
        "kind": "dense",
        "source": source,
        "fingerprint": checkpoints.fingerprint(options.encoder),
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
        "similarity": similarity,
    }


def _place(options: Encoder) -> dict[str, str]:
    """Where searches find the encoder; folders as absolute paths."""
    encoder = str(options.encoder)
    return {
        "encoder": str(Path(encoder).resolve()) if Path(encoder).is_dir() else encoder,
        "query_device": options.query_device,
    }


@functools.cache
def _load(encoder: str, device: str | None) -> EncoderModel:
    _, sentence_transformers = _libraries()
    if not Path(encoder).is_dir() and not checkpoints.is_hub_id(encoder):
        raise UserError(f"encoder: {encoder} is neither a model folder nor a hub id (owner/name); check the path")
    if device is not None and device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise UserError(f"{device}: PyTorch finds no GPU; use the cpu")
    with checkpoints.loading(encoder, "encoder"):
        model: EncoderModel = sentence_transformers.SentenceTransformer(encoder, device=device, trust_remote_code=False)
        return model


def _libraries() -> tuple[Any, Any]:
    try:
        import faiss
        import sentence_transformers
    except ImportError as error:
        raise UserError(f"dense retrieval needs {error.name}; install notewriter[dense]") from error
    return faiss, sentence_transformers


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
