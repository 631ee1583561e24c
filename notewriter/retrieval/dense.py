"""Dense retrieval: an encoder of sentence-transformers, and exact search by inner product with FAISS.

The embeddings lie in one file of float32 rows, which a build appends to as they come and a search maps into memory:
neither needs room for all of them, and a build that was killed goes on behind the last whole chunk. No approximate
index stands between: with the 139,416 passages of DeepNote's 2WikiMultihopQA a search reads 430 MB.

DeepNote's dense retriever for the multi-hop benchmarks is bge-base-en-v1.5 (section 4.1).
"""

import functools
import json
import os
import re
import shutil
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

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
"""Changes with everything that makes an older index unreadable or its results different."""

PASSAGES, LINES, EMBEDDINGS = "passages.jsonl", "lines.npy", "embeddings.float32"
SETTINGS = "settings.json"
"""What a build that is under way embeds with; one that embeds otherwise does not go on with it."""

CHUNK = 1024
"""Passages that are embedded, sorted by length, and written together: what a killed build loses at most."""

PROMPTS = {
    r"(multilingual-)?e5-(small|base|large)(-v2)?": ("query: ", "passage: "),
    r"bge-(small|base|large)-en(-v1\.5)?": ("Represent this sentence for searching relevant passages: ", ""),
}
"""Of encoders that were trained with prompts and whose configuration does not tell them: by the encoder's name, what
stands before a query and before a passage."""


@dataclass(slots=True)
class Encoder:
    """What turns texts into vectors, and how."""

    encoder: str | None = field(
        default=None,
        metadata={
            "help": "build a dense index with this sentence-transformers model, a folder or a hub id "
            "(BAAI/bge-base-en-v1.5 is DeepNote's); without it the index is BM25"
        },
    )
    query_prompt: Annotated[str, MinLen(0)] | None = field(
        default=None,
        metadata={"help": "what stands before a query; by default what the encoder's configuration or name tells"},
    )
    passage_prompt: Annotated[str, MinLen(0)] | None = field(
        default=None, metadata={"help": "the same before a passage"}
    )
    similarity: str | None = field(
        default=None, metadata={"help": "cosine or dot; by default what the encoder's configuration tells"}
    )
    batch_size: Annotated[int, Interval(ge=1, le=65_536)] = field(
        default=64, metadata={"help": "passages that are embedded at once"}
    )
    device: str | None = field(
        default=None, metadata={"help": "where passages are embedded: cpu, cuda, cuda:1, ...; by default a GPU if any"}
    )
    query_device: str = field(
        default="cpu", metadata={"help": "where queries will be embedded; the GPU is often full of the served model"}
    )


@dataclass(frozen=True)
class Manifest:
    """What `manifest.json` tells of a dense index."""

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

    Memory is bounded but for the ids. The folder appears under its name only when it is complete; what a killed
    build of the same source with the same settings embedded is not embedded again.

    Args:
        passages: the corpus; not drawn from where a killed build has kept it.
        directory: the folder of the index; an older index there is replaced.
        source: a fingerprint of what the passages come from, kept in the manifest.
        options: the encoder.

    Raises:
        UserError: no passage, an id that occurs twice, a folder that is there and is no index, an encoder that
            cannot be loaded or gives vectors that are not finite.
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
    """Whether the folder holds a dense index of this source, encoder and settings; if so, notes the encoder's place.

    So an index whose encoder has moved, or whose queries shall be embedded on another device, is not built again.
    """
    manifest = read_manifest(directory)
    if manifest is None or (manifest.get("schema"), manifest.get("source")) != (SCHEMA, source):
        return False
    if not _describe(options, source)[1].items() <= manifest.items():
        return False
    jsonl.write_text(Path(directory) / MANIFEST, [json.dumps(manifest | _place(options), indent=2) + "\n"])
    return True


class Dense:
    """A dense index that is open for searching; it is a `Retriever`.

    Raises:
        UserError: the folder holds no index that this version can read, or its encoder is not there any more, or
            has changed since.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = directory
        self._manifest = manifest = read_manifest(directory) or {}
        if manifest.get("schema") != SCHEMA:
            raise UserError(f"{directory}: holds no index of schema {SCHEMA}; build it again with `notewriter index`")
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
                f"{directory}: {encoder} is not the encoder any more that the index was built with; "
                "name that one's folder to `notewriter index --encoder`, or build the index again"
            )
        # Fast tokenizers refuse a second thread while a first one sets their padding.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._embeddings)

    def search(self, query: str, top_k: int) -> list[Passage]:
        """The `top_k` passages whose embeddings are nearest to the query's, or all where there are fewer.

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


def _embed(model: Any, settings: dict[str, Any], batch_size: int, folder: Path, count: int) -> int:
    """Append the embeddings that are still missing; returns their dimension."""
    dimension = _encode(model.encode_document, [""], settings, "passage_prompt").shape[1]
    texts = (f"{record['title']}\n{record['text']}" for _, record in jsonl.read(folder / PASSAGES))
    with open(folder / EMBEDDINGS, "ab") as file:
        # Whole chunks only: what is embedded together decides a vector's last digits.
        done = file.tell() // (CHUNK * dimension * 4) * CHUNK
        file.truncate(done * dimension * 4)
        rest = islice(texts, done, None)
        with tqdm(desc="embed", total=count, initial=done, unit=" passages", unit_scale=True) as bar:
            while chunk := list(islice(rest, CHUNK)):
                vectors = _encode(model.encode_document, chunk, settings, "passage_prompt", batch_size)
                if not np.isfinite(vectors).all():
                    raise UserError(f"{settings['fingerprint']}: this encoder gives vectors that are not finite")
                file.write(vectors.tobytes())
                file.flush()
                os.fsync(file.fileno())
                bar.update(len(chunk))
    return int(dimension)


def _encode(
    encode: Any, texts: list[str], settings: dict[str, Any], prompt: str, batch_size: int = 1
) -> NDArray[np.float32]:
    vectors = encode(
        texts,
        prompt=settings[prompt],
        batch_size=batch_size,
        normalize_embeddings=settings["similarity"] == "cosine",
        show_progress_bar=False,
    )
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _describe(options: Encoder, source: str) -> tuple[Any, dict[str, Any]]:
    """The encoder, and everything that decides what the embeddings are."""
    if options.encoder is None:
        raise UserError("a dense index needs an encoder; add --encoder, as BAAI/bge-base-en-v1.5")
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


def _place(options: Encoder) -> dict[str, Any]:
    """Where a search finds the encoder; a folder also from elsewhere."""
    encoder = str(options.encoder)
    return {
        "encoder": str(Path(encoder).resolve()) if Path(encoder).is_dir() else encoder,
        "query_device": options.query_device,
    }


@functools.cache
def _load(encoder: str, device: str | None) -> Any:
    _, sentence_transformers = _libraries()
    if not Path(encoder).is_dir() and not checkpoints.is_hub_id(encoder):
        raise UserError(f"encoder: {encoder} is neither a model folder nor a hub id (owner/name); check the path")
    if device is not None and device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available():
            raise UserError(f"{device}: there is no GPU that PyTorch can use; embed on the cpu")
    with checkpoints.loading(encoder, "encoder"):
        return sentence_transformers.SentenceTransformer(encoder, device=device, trust_remote_code=False)


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
