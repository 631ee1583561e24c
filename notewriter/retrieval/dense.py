"""Dense retrieval: a sentence-transformers encoder and FAISS.

The embeddings are a file of float32 rows, appended to by the build and memory-mapped by searches: neither needs memory
for all of them, and an interrupted build resumes after the last complete chunk. Search compares the query with every
vector, or with few of them in a graph (`vectors`), which is built from the embeddings without embedding again.

DeepNote's dense retriever for the multi-hop benchmarks is bge-base-en-v1.5 (section 4.1).
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval
from tqdm import tqdm

from notewriter.ground import jsonl
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Passage
from notewriter.ground.text import without_surrogates
from notewriter.models.checkpoint import Checkpoint
from notewriter.retrieval import encoders, index_folder, passages, vectors
from notewriter.retrieval.encoders import Encoder
from notewriter.retrieval.passages import REMEDY
from notewriter.retrieval.protocol import Scope, check_top_k
from notewriter.retrieval.published import vectors_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
else:
    np = Lazy("numpy")

logger = logging.getLogger(__name__)

SCHEMA = "notewriter/dense/2"
"""Changes with everything that makes older indexes unreadable or changes their results."""

EMBEDDINGS = "embeddings.float32"
SETTINGS = "settings.json"
"""The settings of an unfinished build; a build with other settings starts over."""

CHUNK = 1024
"""Passages embedded (sorted by length) and written together; the most an interrupted build loses."""

SAMPLE = 20
"""Passages whose own embeddings are compared with vectors made elsewhere."""


@dataclass(frozen=True)
class DenseManifest:
    """The contents of a dense index's `manifest.json`."""

    fingerprint: str
    encoder: str
    query_device: str
    query_prompt: str
    passage_prompt: str
    similarity: str
    passages: Annotated[int, Interval(ge=1)]
    dimension: Annotated[int, Interval(ge=1)]
    structure: vectors.Structure
    pooling: str | None = None
    max_tokens: int | None = None


def build(corpus: Iterable[Passage], directory: str | Path, source: str = "", *, options: Encoder) -> int:
    """Embed passages and index them; returns their number.

    Memory is bounded but for 24 bytes a passage, and for hnsw all vectors. The folder appears under its name only when
    complete. An interrupted build of the same source with the same settings is resumed. Embeddings are taken from the
    index in the folder if only its structure changes.

    Args:
        corpus: the passages; not read if an interrupted build has saved it.
        directory: the folder of the index; an existing index is replaced.
        source: a fingerprint of the corpus, recorded in the manifest.
        options: the encoder and the structure.

    Raises:
        UserError: there are no passages; an id occurs twice; the folder exists and is not an index; the encoder cannot
            be loaded or returns vectors that are not finite; the vectors of `options.vectors` are not those of the
            passages.
    """
    model, settings = _describe(options, source)
    directory = Path(directory)
    choose("structure", options.structure, dict.fromkeys(vectors.STRUCTURES))

    def write(folder: Path) -> dict[str, Any]:
        if _read_json(folder / SETTINGS) != settings:
            shutil.rmtree(folder)
            jsonl.write_text(folder / SETTINGS, [json.dumps(settings)])
            _reuse(directory, settings, folder, options)
        if not passages.are_complete(folder):
            passages.write(corpus, folder)
        stored = passages.Passages(folder)
        if options.vectors is None:
            dimension = _embed(model, settings, options, folder / EMBEDDINGS, stored)
        else:
            dimension = _copy(vectors_file(options.vectors), model, settings, folder / EMBEDDINGS, stored)
        (folder / vectors.FILE).unlink(missing_ok=True)
        structure = vectors.Structure("flat")
        if options.structure == "hnsw":
            queries = _sampled_queries(model, settings, stored)
            embeddings = _map(folder, len(stored), dimension)
            structure = vectors.build_graph(embeddings, folder / vectors.FILE, queries, options.recall)
        sizes = {"passages": len(stored), "dimension": dimension, "structure": _plain(structure)}
        _warn_cut(model, settings["passage_prompt"], stored)
        return settings | {"schema": SCHEMA} | _place(options) | sizes | encoders.description(model)

    return index_folder.write_index(directory, write, resume=True)


def is_current(directory: str | Path, source: str, *, options: Encoder) -> bool:
    """Whether the folder contains a dense index of this source, encoder, settings and structure.

    If so, records the encoder's current path and query device, whose change does not require a new build.
    """
    manifest = index_folder.read_manifest(directory)
    if manifest is None or manifest.get("schema") != SCHEMA or manifest.get("source") != source:
        return False
    _, settings = _describe(options, source)
    if not _has_embeddings_of(manifest, settings, options):
        return False
    structure = manifest.get("structure") or {}
    if structure.get("name") != options.structure or structure.get("target", options.recall) != options.recall:
        return False
    if not _place(options).items() <= manifest.items():
        index_folder.write_manifest(directory, manifest | _place(options))
    return True


def texts_of(directory: str | Path) -> str:
    """The encoder's treatment of a text, in words."""
    manifest = index_folder.checked_manifest(directory, SCHEMA, DenseManifest)
    prompts = f"query prompt {manifest.query_prompt!r}, passage prompt {manifest.passage_prompt!r}"
    if manifest.pooling is None:
        return prompts
    pooling = "no" if manifest.pooling == str(None) else manifest.pooling
    return f"{prompts}, {pooling} pooling" + (f", at most {manifest.max_tokens} tokens" if manifest.max_tokens else "")


def structure_of(directory: str | Path) -> str:
    """The index's way of searching, in words, for its builder."""
    structure = index_folder.checked_manifest(directory, SCHEMA, DenseManifest).structure
    if structure.recall_at_10 is None or structure.target is None:
        return f"{structure.name} (exact)"
    missed = f", below the target of {structure.target}" if structure.recall_at_10 < structure.target else ""
    return f"{structure.name}, recall@10 {structure.recall_at_10:.3f} against exact search{missed}"


class Dense:
    """An open dense index; implements `BatchIndex`.

    Raises:
        UserError: the folder contains no index that this version can read, or its encoder is missing or has changed.
    """

    def __init__(self, directory: str | Path) -> None:
        folder = Path(directory)
        manifest = index_folder.checked_manifest(directory, SCHEMA, DenseManifest)
        choose(f"structure of {directory}", manifest.structure.name, dict.fromkeys(vectors.STRUCTURES))
        self._passages = passages.Passages(folder)
        if len(self._passages) != manifest.passages:
            raise UserError(f"{directory}: is damaged (its passages and vectors differ in number); {REMEDY}")
        embeddings = _map(folder, manifest.passages, manifest.dimension)
        self._vectors = vectors.Vectors(manifest.structure, embeddings, folder / vectors.FILE)
        self._settings = {"query_prompt": manifest.query_prompt, "similarity": manifest.similarity}
        self._model = encoders.load(manifest.encoder, manifest.query_device)
        if Checkpoint(manifest.encoder).fingerprint() != manifest.fingerprint:
            raise UserError(
                f"{directory}: {manifest.encoder} is no longer the encoder that the index was built with; "
                "pass the original one to `notewriter index --encoder`, or build the index again"
            )
        pooling = encoders.description(self._model)["pooling"]
        if (before := _pooling(manifest.pooling, manifest.encoder, pooling)) != pooling:
            raise UserError(
                f"{directory}: its vectors are pooled by {before}, {manifest.encoder} is now by {pooling}; remove the "
                "folder and build the index again"
            )
        # Fast tokenizers cannot be used by one thread while another one sets their padding.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, query: str, top_k: int, scope: Scope | None = None) -> list[Passage]:
        """The `top_k` passages of the scope whose embeddings are closest to the query's, or all if there are fewer.

        Raises:
            UserError: `top_k` is below 1.
        """
        return self.search_all([query], top_k, scope)[0]

    def search_all(self, queries: list[str], top_k: int, scope: Scope | None = None) -> list[list[Passage]]:
        """The result of `search` for each query; the encoder and exact search take them as one batch."""
        check_top_k(top_k)
        within = None if scope is None else self._passages.within(scope)
        with self._lock:
            texts = list(map(without_surrogates, queries))
            embedded = encoders.encode(self._model.encode_query, texts, self._settings, "query_prompt", len(texts))
        rankings = self._vectors.search(embedded, top_k, within)
        return [[self._passages[int(row)] for row in rows if row >= 0] for rows in rankings]


def _embed(
    model: SentenceTransformer, settings: dict[str, Any], options: Encoder, path: Path, corpus: passages.Passages
) -> int:
    """Append the missing embeddings; returns their dimension."""
    dimension = int(encoders.encode(model.encode_document, [""], settings, "passage_prompt").shape[1])
    if path.exists() and path.stat().st_size == len(corpus) * dimension * 4:
        # Never written to again: it may be another index's too.
        return dimension
    texts = (f"{passage.title}\n{passage.text}" for passage in corpus)
    with open(path, "ab") as file, _pool(model, options) as (pool, workers):
        # Whole chunks only: batching affects the last digits of a vector.
        done = file.tell() // (CHUNK * dimension * 4) * CHUNK
        file.truncate(done * dimension * 4)
        rest = islice(texts, done, None)
        with tqdm(desc="embed", total=len(corpus), initial=done, unit=" passages", unit_scale=True) as bar:
            while chunk := list(islice(rest, CHUNK * workers)):
                rows = encoders.encode(
                    model.encode_document, chunk, settings, "passage_prompt", options.batch_size, pool
                )
                if not np.isfinite(rows).all():
                    raise UserError(
                        f"{settings['fingerprint']}: the encoder returns vectors that are not finite; choose another"
                    )
                file.write(rows.tobytes())
                file.flush()
                os.fsync(file.fileno())
                bar.update(len(chunk))
    return dimension


@contextmanager
def _pool(model: SentenceTransformer, options: Encoder) -> Iterator[tuple[Any, int]]:
    """A process per device if there are several, and their number."""
    several = encoders.devices(options.device)
    if len(several) < 2:
        yield None, 1
        return
    pool = model.start_multi_process_pool(several)
    try:
        yield pool, len(several)
    finally:
        model.stop_multi_process_pool(pool)


def _copy(
    file: Path, model: SentenceTransformer, settings: dict[str, Any], path: Path, corpus: passages.Passages
) -> int:
    """Write the vectors of a FAISS index that was built elsewhere of the same passages; returns their dimension.

    Raises:
        UserError: it does not fit the passages or the encoder.
    """
    index = vectors.stored(file)
    rows = np.linspace(0, len(corpus) - 1, min(SAMPLE, len(corpus)), dtype=np.int64)
    texts = [f"{corpus[int(row)].title}\n{corpus[int(row)].text}" for row in rows]
    own = encoders.encode(model.encode_document, texts, settings, "passage_prompt")
    if (index.ntotal, index.d) != (len(corpus), own.shape[1]):
        raise UserError(
            f"{file}: has {index.ntotal:,} vectors of {index.d} dimensions for {len(corpus):,} passages of "
            f"{own.shape[1]}; give the corpus and the encoder that it was built with"
        )
    there = np.concatenate([_as_set(index.reconstruct_n(int(row), 1), settings) for row in rows])
    hits = int(np.sum((own @ there.T).argmax(axis=1) == np.arange(len(rows))))
    if hits * 2 < len(rows):
        raise UserError(
            f"{file}: of {len(rows)} passages {hits} are found by their own embeddings; its vectors are of another "
            "corpus, order, encoder or prompt"
        )
    # A new file: the one there may be another index's too.
    path.unlink(missing_ok=True)
    with open(path, "wb") as output:
        for start in range(0, index.ntotal, vectors.BATCH):
            found = index.reconstruct_n(start, min(vectors.BATCH, index.ntotal - start))
            output.write(_as_set(found, settings).tobytes())
    return int(index.d)


def _as_set(embeddings: NDArray[np.float32], settings: dict[str, Any]) -> NDArray[np.float32]:
    """Embeddings as an index with these settings has them: of length 1 for cosine."""
    if settings["similarity"] != "cosine":
        return embeddings
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = embeddings / np.where(lengths == 0, 1, lengths)
    return scaled


def _sampled_queries(model: SentenceTransformer, settings: dict[str, Any], corpus: passages.Passages) -> vectors.Array:
    """Embedded queries like those of users: sentences of sampled passages."""
    rows = np.linspace(0, len(corpus) - 1, min(vectors.SAMPLE, len(corpus)), dtype=np.int64)
    sampled = (corpus[int(row)] for row in rows)
    texts = [re.split(r"(?<=[.!?])\s", passage.text, maxsplit=1)[0][:300] or passage.title for passage in sampled]
    return encoders.encode(model.encode_query, texts, settings, "query_prompt", 32)


def _pooling(recorded: str | None, encoder: str, now: str) -> str:
    """The pooling of an index's vectors; an earlier version took the mean without modules.json."""
    folder = Path(encoder)
    return recorded or ("mean" if folder.is_dir() and not (folder / "modules.json").is_file() else now)


def _warn_cut(model: SentenceTransformer, prompt: str, corpus: passages.Passages) -> None:
    """Warn of passages, in a sample, that are longer than the encoder reads."""
    rows = np.linspace(0, len(corpus) - 1, min(vectors.SAMPLE, len(corpus)), dtype=np.int64)
    texts = [f"{prompt}{corpus[int(row)].title}\n{corpus[int(row)].text}" for row in rows]
    most, tokenizer = encoders.description(model)["max_tokens"], getattr(encoders.reader(model), "tokenizer", None)
    if most is None or not callable(tokenizer):
        # Bags of words and static embeddings read all of it.
        return
    lengths = [len(ids) for ids in tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
    if cut := sum(length > most for length in lengths):
        logger.warning(
            "of %d passages looked at, %d are longer than the %d tokens that the encoder reads; the rest of them is "
            "not searched (notewriter corpus --split tokens makes shorter ones)",
            len(lengths),
            cut,
            most,
        )


def _has_embeddings_of(manifest: dict[str, Any], settings: dict[str, Any], options: Encoder) -> bool:
    """Whether the embeddings of an index are those that a build with these settings makes."""
    recorded = _pooling(manifest.get("pooling"), str(options.encoder), settings["pooling"])
    return settings.items() <= {**manifest, "pooling": recorded}.items()


def _reuse(directory: Path, settings: dict[str, Any], folder: Path, options: Encoder) -> None:
    """Take passages and embeddings from the index in the folder if they would become the same."""
    manifest = index_folder.read_manifest(directory) or {}
    if manifest.get("schema") != SCHEMA or not _has_embeddings_of(manifest, settings, options):
        return
    if (directory / EMBEDDINGS).exists():
        passages.link(directory, folder)
        passages.link_file(directory / EMBEDDINGS, folder / EMBEDDINGS)


def _map(folder: Path, count: int, dimension: int) -> NDArray[np.float32]:
    try:
        return np.memmap(folder / EMBEDDINGS, np.float32, "r", shape=(count, dimension))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: cannot be opened ({error}); {REMEDY}") from error


def _describe(options: Encoder, source: str) -> tuple[SentenceTransformer, dict[str, Any]]:
    """The encoder, and all settings that determine the embeddings."""
    if options.encoder is None:
        raise UserError("a dense index needs an encoder; add --encoder, for example BAAI/bge-base-en-v1.5")
    if options.batch_size < 1:
        raise UserError(f"batch_size: {options.batch_size} passages cannot be embedded; give at least 1")
    several = encoders.devices(options.device)
    model = encoders.load(options.encoder, several[0] if several else None)
    query_prompt, passage_prompt = encoders.prompts(model, options)
    similarity = options.similarity or model.similarity_fn_name
    if similarity not in ("cosine", "dot"):
        raise UserError(f"similarity: {similarity!r} cannot be searched; choose one of: cosine, dot")
    return model, {
        "kind": "dense",
        "source": source,
        "fingerprint": Checkpoint(options.encoder).fingerprint(),
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
        "similarity": similarity,
        "pooling": encoders.description(model)["pooling"],
    }


def _place(options: Encoder) -> dict[str, str]:
    """The encoder's place for searches; folders as absolute paths."""
    encoder = str(options.encoder)
    return {
        "encoder": str(Path(encoder).resolve()) if Path(encoder).is_dir() else encoder,
        "query_device": options.query_device,
    }


def _plain(structure: vectors.Structure) -> dict[str, Any]:
    return {key: value for key, value in asdict(structure).items() if value is not None}


def _read_json(path: Path) -> Any:
    """The JSON of an interrupted build; None if it is missing or damaged, and the build starts again."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        logger.warning("%s: cannot be read (%s); what was built with it is built again", path, error)
        return None
