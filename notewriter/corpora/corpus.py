"""`notewriter corpus`: turn documents of any origin into the passages of a corpus.

Each source reads its own files: a folder of Markdown, HTML, PDF, Word and text files, or a corpus that the papers
searched. What cannot be used is skipped, named and counted.
"""

import dataclasses
import hashlib
import itertools
import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen

from notewriter.corpora.pages import Pages
from notewriter.corpora.published import difference, published
from notewriter.corpora.source import Skipped, Source
from notewriter.corpora.sources import SOURCES, per_question
from notewriter.corpora.sources.per_question import NAME as PER_QUESTION
from notewriter.corpora.sources.per_question import PerQuestionArguments
from notewriter.corpora.splitting import SplitArguments, load_tokenizer, splitter
from notewriter.corpora.writing import (
    CORPUS,
    MANIFEST,
    SCHEMA,
    SKIPPED,
    Build,
    Counts,
    corpus_folder,
    hash_source,
    read_manifest,
    skip_reasons,
    write,
)
from notewriter.datasets import BENCHMARKS, question_file
from notewriter.ground import config, jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_in, option
from notewriter.ground.records import Passage
from notewriter.ground.releases import FETCHED

logger = logging.getLogger(__name__)

CONTEXTS = "contexts"
"""The split of a published file whose questions have paragraphs, where those of the others have none."""

MAX_MISSING_SHOWN = 10


@dataclass
class CorpusArguments:
    """The options of `notewriter corpus`: documents to read, and a folder for the corpus."""

    source: str = field(metadata={"help": f"the kind of documents: {', '.join([*SOURCES, PER_QUESTION])}"})
    output_dir: str = field(metadata={"help": "a folder for corpus.jsonl, manifest.json and skipped.jsonl"})
    path: Annotated[list[str], MinLen(1)] = field(
        default_factory=lambda: [FETCHED],
        metadata={"help": "files or folders, in order; default: the files that `notewriter fetch corpus SOURCE` got"},
    )
    dataset: str | None = option(
        None, "the benchmark whose questions are in --path (--source per-question) or in --pages_of", names=names_in
    )
    pages_of: str | None = option(
        None,
        "a question file: keep only the pages that its questions list (--dataset fanoutqa or frames); "
        f"`{FETCHED}`: the fetched question file",
    )


def main(argv: list[str]) -> None:
    """Write the corpus unless the folder already contains the same one.

    Raises:
        UserError: an option or an input is unusable, nothing could be kept, or the folder is not a corpus.
    """
    arguments, split, questions = config.parse(
        (CorpusArguments, SplitArguments, PerQuestionArguments), argv, prog="notewriter corpus", description=__doc__
    )
    per_question.sizes(questions)
    source, pages = _source(arguments, split), _pages(arguments)
    arguments.path = _paths(arguments, source)
    paths, output_dir = [Path(path) for path in arguments.path], Path(arguments.output_dir)
    for path in paths:
        if arguments.source == "folder" and path.is_dir() and output_dir.resolve().is_relative_to(path.resolve()):
            raise UserError(f"{output_dir}: is inside {path}, whose files are read; choose an --output_dir outside")
    settings = _settings(arguments, split, questions, source)
    build = Build(
        source=source,
        paths=paths,
        split=splitter(split, source.split),
        is_split=settings["split"] != "none",
        page_title=pages.title_of if pages else None,
    )
    sha256, size = hash_source(source, paths)
    identity = hashlib.sha256(json.dumps([SCHEMA, settings, sha256]).encode()).hexdigest()
    expected = published(arguments.source, paths)
    if (manifest := read_manifest(output_dir) or {}).get("identity") == identity:
        sys.stdout.write(f"{output_dir}: already a corpus of these documents and settings\n")
        return
    with corpus_folder(output_dir) as folder:
        counts = write(build, folder, expected.documents if expected else None)
        if not counts.passages:
            raise UserError(_nothing(arguments, folder, counts))
        manifest = {
            "schema": SCHEMA,
            "identity": identity,
            "settings": settings,
            "source": {"paths": arguments.path, "bytes": size, "sha256": sha256},
            "documents": counts.documents,
            "repeated_documents": counts.repeated,
            "passages": counts.passages,
            "skipped": skip_reasons(folder),
        }
        if pages:
            manifest |= _pages_found(pages, folder)
        if expected:
            what_differs = difference(counts.documents, counts.repeated, expected)
            manifest["published"] = dataclasses.asdict(expected) | {"differs": what_differs}
            if what_differs:
                logger.warning("%s: has %s; scores on it are not comparable", arguments.path[0], what_differs)
        if arguments.source == PER_QUESTION:
            manifest |= _write_per_question(arguments, split, questions, folder)
        jsonl.write_text(folder / MANIFEST, [json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"])
    sys.stdout.write(_summary(output_dir, counts, manifest))


def _source(arguments: CorpusArguments, split: SplitArguments) -> Source:
    if arguments.source != PER_QUESTION:
        return config.choose("source", arguments.source, SOURCES | {PER_QUESTION: SOURCES["folder"]})
    if arguments.dataset is None:
        raise UserError("dataset: --source per-question needs the benchmark of the questions; add --dataset")
    if split.split not in (None, "none"):
        raise UserError(f"split: paragraphs of questions are passages already; leave out --split {split.split}")
    if split.tokenizer is None:
        raise UserError("tokenizer: the size of each question's corpus is in tokens; add --tokenizer FOLDER")
    return per_question.source(arguments.dataset)


def _paths(arguments: CorpusArguments, source: Source) -> list[str]:
    """The given files, or else the fetched ones of the source."""
    if arguments.path != [FETCHED]:
        return arguments.path
    if arguments.source == PER_QUESTION:
        release = config.choose("dataset", str(arguments.dataset), BENCHMARKS).source
        split = CONTEXTS if release and CONTEXTS in release.splits else None
        return [question_file(str(arguments.dataset), FETCHED, split)]
    if isinstance(source.files, str):
        raise UserError(f"path: --source {arguments.source} reads {source.files}; add --path")
    command = f"notewriter fetch corpus {arguments.source}"
    return sorted(map(str, source.files.found(source.files.files, command)))


def _pages(arguments: CorpusArguments) -> Pages | None:
    if arguments.pages_of is None:
        if arguments.dataset is not None and arguments.source != PER_QUESTION:
            raise UserError("dataset: is only for --pages_of and --source per-question; leave it out")
        return None
    if arguments.dataset is None:
        raise UserError("dataset: --pages_of needs the benchmark of its questions; add --dataset fanoutqa or frames")
    config.choose("dataset", arguments.dataset, BENCHMARKS)
    arguments.pages_of = question_file(arguments.dataset, arguments.pages_of, None)
    return Pages(arguments.dataset, Path(arguments.pages_of))


def _settings(
    arguments: CorpusArguments, split: SplitArguments, questions: PerQuestionArguments, source: Source
) -> dict[str, Any]:
    """The settings that change the corpus, as in the manifest."""
    name = split.split or source.split
    settings: dict[str, Any] = {"source": arguments.source, "split": name}
    if name != "none":
        settings |= {"size": split.size, "overlap": split.overlap}
    if name == "tokens" or arguments.source == PER_QUESTION:
        settings["tokenizer"] = split.tokenizer
    if arguments.dataset is not None:
        settings["dataset"] = arguments.dataset
    if arguments.pages_of is not None:
        # In earlier versions the passages had the titles of the documents.
        settings |= {"pages_of": file_digest(arguments.pages_of), "titles": "pages"}
    if arguments.source == PER_QUESTION:
        # Unset ones are left out: earlier versions did not have them.
        settings |= {key: value for key, value in dataclasses.asdict(questions).items() if value is not None}
    return settings


def _nothing(arguments: CorpusArguments, folder: Path, counts: Counts) -> str:
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in skip_reasons(folder).items())
    if counts.left_out:
        reasons = f"none of {counts.documents:,} documents is a page of {arguments.pages_of}"
    return f"{arguments.path[0]}: nothing could be kept ({reasons or 'it is empty'}); check --source and --path"


def _pages_found(pages: Pages, folder: Path) -> dict[str, Any]:
    missing = pages.missing(folder / CORPUS)
    if missing:
        shown = ", ".join(map(repr, missing[:MAX_MISSING_SHOWN])) + (
            ", ..." if len(missing) > MAX_MISSING_SHOWN else ""
        )
        logger.warning("%d of %d pages were not found: %s", len(missing), len(pages), shown)
    return {"pages": len(pages), "missing_pages": missing}


def _write_per_question(
    arguments: CorpusArguments, split: SplitArguments, questions: PerQuestionArguments, folder: Path
) -> dict[str, Any]:
    """Write the corpora of the questions; returns how many there are and, for each file, their mean size."""
    dataset = str(arguments.dataset)
    source = per_question.source(dataset)
    paths = [each[1] for each in source.inputs([*map(Path, arguments.path)]) if not isinstance(each, Skipped)]
    tokenizer = load_tokenizer(split.tokenizer)

    def contexts() -> Iterator[tuple[str, list[Passage]]]:
        load = BENCHMARKS[dataset].load_contexts
        assert load is not None
        return itertools.chain.from_iterable(map(load, paths))

    def count_tokens(passage: Passage) -> int:
        return len(tokenizer.encode(f"{passage.title}\n{passage.text}", add_special_tokens=False).ids)

    # ReaRAG's distractors are not the gold paragraphs of other questions; RULER's may be.
    gold = set() if questions.lengths else per_question.gold_ids(dataset, paths)
    tokens = per_question.tokens_of(contexts, count_tokens)
    counts: dict[str, Counter[str]] = {}

    def records(size: per_question.Size, count: Counter[str]) -> Iterator[dict[str, Any]]:
        for each in per_question.corpora(itertools.islice(contexts(), questions.first), tokens, gold, size):
            is_small = each["tokens"] < size.low
            count.update(questions=1, paragraphs=len(each["passage_ids"]), tokens=each["tokens"], small=is_small)
            yield dict(each)

    for size in per_question.sizes(questions):
        count = counts[size.file] = Counter()
        jsonl.write(folder / size.file, records(size, count))
        if count["small"]:
            logger.warning(
                "%s: %d of %d questions have fewer than %d tokens: there are not enough paragraphs of other questions",
                size.file,
                count["small"],
                count["questions"],
                size.low,
            )
    return {
        "questions": next(iter(counts.values()))["questions"],
        "per_question": {
            file: {key: round(count[key] / max(1, count["questions"]), 1) for key in ("paragraphs", "tokens")}
            for file, count in counts.items()
        },
    }


def _summary(output_dir: Path, counts: Counts, manifest: dict[str, Any]) -> str:
    lines = [f"{output_dir / CORPUS}: {counts.passages:,} passages of {counts.documents:,} documents"]
    if counts.skipped:
        lines.append(f"skipped: {counts.skipped:,} (all in {output_dir / SKIPPED})")
        lines += [f"  {count:,} {reason}" for reason, count in manifest["skipped"].items()]
    for file, mean in manifest.get("per_question", {}).items():
        size = f"{mean['paragraphs']:,} paragraphs and {mean['tokens']:,} tokens each on average"
        lines.append(f"{output_dir / file}: {manifest['questions']:,} questions with {size}")
    return "\n".join(lines) + "\n"
