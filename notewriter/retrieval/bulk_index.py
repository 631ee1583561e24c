"""`notewriter bulk-index`: index a corpus in Elasticsearch or OpenSearch."""

import sys
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval
from tqdm import tqdm

from notewriter.datasets import BENCHMARKS, load_corpus
from notewriter.ground import config
from notewriter.ground.errors import UserError
from notewriter.models import checkpoints
from notewriter.retrieval import corpus_fingerprint, encoders
from notewriter.retrieval.sources import search_engine
from notewriter.retrieval.sources.search_engine import Connection, Engine


@dataclass(slots=True)
class BulkIndexArguments:
    """The corpus and the search engine."""

    path: str = field(metadata={"help": "the corpus: corpus.jsonl, or a benchmark's own file with paragraphs"})
    name: str = field(metadata={"help": "the index's name on the server; run the same command again to resume"})
    elasticsearch: str | None = field(default=None, metadata={"help": "the address of an Elasticsearch server"})
    opensearch: str | None = field(default=None, metadata={"help": "the address of an OpenSearch server"})
    dataset: str = field(default="jsonl", metadata={"help": f"the format of the corpus: {', '.join(BENCHMARKS)}"})
    encoder: str | None = field(
        default=None,
        metadata={"help": "a sentence-transformers folder or hub id; adds embeddings for kNN search beside BM25"},
    )
    query_prompt: str | None = field(
        default=None, metadata={"help": "prefix of queries; by default from the encoder's configuration or name"}
    )
    passage_prompt: str | None = field(default=None, metadata={"help": "prefix of passages; likewise"})
    device: str | None = field(default=None, metadata={"help": "where passages are embedded; default: a GPU if any"})
    api_key_env: str | None = field(default=None, metadata={"help": "the environment variable of an API key"})
    timeout: Annotated[float, Interval(gt=0)] = field(default=120.0, metadata={"help": "seconds per request"})
    attempts: Annotated[int, Interval(ge=1)] = field(default=8, metadata={"help": "tries per request"})


def main(argv: list[str]) -> None:
    """Index the corpus; running the command again resumes it.

    Raises:
        UserError: not exactly one server is given, the corpus cannot be read, the encoder cannot be loaded, or the
            server does not answer or has another index under the name.
    """
    (arguments,) = config.parse(
        BulkIndexArguments,
        argv,
        prog="notewriter bulk-index",
        description="Index a corpus in Elasticsearch or OpenSearch: BM25 and, with --encoder, kNN.",
    )
    config.choose("dataset", arguments.dataset, BENCHMARKS)
    engine: Engine = "elasticsearch" if arguments.elasticsearch else "opensearch"
    address = arguments.elasticsearch or arguments.opensearch
    if not address or (arguments.elasticsearch and arguments.opensearch):
        raise UserError("give the address of one server, --elasticsearch or --opensearch")
    connection = Connection(
        engine, address, arguments.name, arguments.timeout, arguments.attempts, arguments.api_key_env or ""
    )
    encoder = None
    if arguments.encoder:
        options = encoders.Encoder(
            encoder=arguments.encoder,
            query_prompt=arguments.query_prompt,
            passage_prompt=arguments.passage_prompt,
            device=arguments.device,
        )
        encoder = search_engine.load_embedder(options)
    source = corpus_fingerprint(arguments.dataset, arguments.path)
    meta = search_engine.Meta(
        schema=search_engine.SCHEMA,
        source=source,
        encoder=arguments.encoder or "",
        fingerprint=checkpoints.fingerprint(arguments.encoder) if arguments.encoder else "",
        query_prompt=encoder.query_prompt if encoder else "",
        passage_prompt=encoder.passage_prompt if encoder else "",
    )
    with tqdm(desc="index", unit=" passages", unit_scale=True) as bar:
        passages = load_corpus(arguments.dataset, arguments.path)
        count = search_engine.fill(connection, passages, encoder, meta, bar.update)
    sys.stdout.write(f"{address}/{arguments.name}: indexed {count} passages\n")
