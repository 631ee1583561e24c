"""The corpora of IRCoT (Trivedi et al. 2023, appendix), which DeepNote and many others search.

HotpotQA's has the first paragraphs of all pages of Wikipedia of October 2017. 2WikiMultihopQA's and MuSiQue's have the
distinct paragraphs of all their questions, those of the test set included. IIRC's has the paragraphs of more than ten
words of its articles. The questions' `supporting_ids` refer to its ids.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Record, Source
from notewriter.datasets import BENCHMARKS, iirc, musique, two_wiki_multihop_qa
from notewriter.datasets.reading import get, lines, passage_id, strings
from notewriter.ground.records import Passage
from notewriter.ground.releases import File, Release, only

MIN_WORDS = 11
"""Words of the shortest paragraph in IRCoT's corpus for IIRC."""


def _abstract(place: str, line: str) -> list[Document]:
    record = reading.json_object(place, line)
    title = get(record, "title", str, place)
    text = " ".join(filter(None, (sentence.strip() for sentence in strings(record, "text", place))))
    return [Document(passage_id(title, text), title, text, reading.origin(record))]


def contexts(dataset: str, name: str, path: Path) -> Iterator[Record]:
    """The id and the paragraphs of each question of a benchmark that comes with paragraphs (`load_contexts`).

    Raises:
        UserError: the file is malformed.
    """
    read = BENCHMARKS[dataset].load_contexts
    assert read is not None
    return ((f"{name}: question {id}", passages) for id, passages in read(path))


def paragraphs(place: str, passages: list[Passage]) -> list[Document]:
    """Passages as documents."""
    return [Document(passage.id, passage.title, passage.text) for passage in passages]


def _of_musique(name: str, path: Path) -> Iterator[Record]:
    """The paragraphs of all questions, those included that cannot be answered."""
    return ((place, musique.passages(record, place)) for place, record in lines(path))


def _long_paragraphs(place: str, article: dict[str, Any]) -> list[Document]:
    return paragraphs(place, [each for each in iirc.passages(article, place) if len(each.text.split()) >= MIN_WORDS])


def _source(title: str, files: Release, patterns: tuple[str, ...], records: Any, parse: Any = paragraphs) -> Source:
    return Source(
        title=title,
        files=files,
        inputs=lambda paths: reading.expand(paths, *patterns),
        records=records,
        parse=parse,
        has_repeats=True,
    )


_ABSTRACTS = "enwiki-20171001-pages-meta-current-withlinks-abstracts"

HOTPOTQA = _source(
    "IRCoT's corpus for HotpotQA",
    Release(
        name="hotpotqa-abstracts",
        page="hotpotqa.github.io",
        licence="cc-by-sa-4.0",
        files=(
            File(
                address=f"https://nlp.stanford.edu/projects/hotpotqa/{_ABSTRACTS}.tar.bz2",
                name=_ABSTRACTS,
                member=_ABSTRACTS,
                size=1_553_565_403,
                sha256="1acca1c5cc93c4890ea51091d2bad7c3ef6987aead127ab88728dc9e26555729",
            ),
        ),
    ),
    ("**/wiki_*",),
    reading.lines,
    _abstract,
)
TWO_WIKI = _source(
    "IRCoT's corpus for 2WikiMultihopQA",
    only(two_wiki_multihop_qa.RELEASE, "train.json", "dev.json", "test.json"),
    ("train.json", "dev.json", "test.json"),
    partial(contexts, "2wikimultihopqa"),
)
MUSIQUE = _source(
    "IRCoT's corpus for MuSiQue",
    dataclasses.replace(
        musique.RELEASE,
        files=(
            *musique.RELEASE.files,
            File(address=f"{musique.COPY}/musique_ans_v1.0_test.jsonl", about=28_400_000),
            File(
                address=f"{musique.COPY}/musique_full_v1.0_dev.jsonl",
                about=59_400_000,
                sha256="8cab31d56a3a1c4ef491b205a8dab3f1ac9c66e472098c6cf1de4e20294f7a4a",
            ),
            File(address=f"{musique.COPY}/musique_full_v1.0_test.jsonl", about=55_600_000),
            File(address=f"{musique.COPY}/musique_full_v1.0_train.jsonl", about=477_000_000),
        ),
    ),
    ("musique_ans_v1.0_*.jsonl", "musique_full_v1.0_*.jsonl"),
    _of_musique,
)
IIRC = _source(
    "IRCoT's corpus for IIRC",
    only(iirc.RELEASE, "context_articles.json"),
    ("context_articles.json",),
    lambda name, path: iirc.articles(path),
    _long_paragraphs,
)
