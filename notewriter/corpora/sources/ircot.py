"""The corpora of IRCoT (Trivedi et al. 2023, appendix), which DeepNote and many others search.

HotpotQA's are the first paragraphs of all pages of Wikipedia of October 2017. 2WikiMultihopQA's and MuSiQue's are the
distinct paragraphs of all their questions, those of the test set included; IIRC's are the paragraphs of more than ten
words of its articles. Ids are those that the questions' `supporting_ids` refer to.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from notewriter.corpora import reading
from notewriter.corpora.source import Document, Record, Source
from notewriter.datasets import BENCHMARKS, iirc, musique
from notewriter.datasets.reading import get, lines, passage_id, strings
from notewriter.ground.records import Passage

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


def _source(title: str, files: str, patterns: tuple[str, ...], records: Any, parse: Any = paragraphs) -> Source:
    return Source(
        title=title,
        files=files,
        inputs=lambda paths: reading.expand(paths, *patterns),
        records=records,
        parse=parse,
        has_repeats=True,
    )


HOTPOTQA = _source(
    "IRCoT's corpus for HotpotQA",
    "enwiki-20171001-pages-meta-current-withlinks-abstracts, unpacked, from hotpotqa.github.io",
    ("**/wiki_*",),
    reading.lines,
    _abstract,
)
TWO_WIKI = _source(
    "IRCoT's corpus for 2WikiMultihopQA",
    "train.json, dev.json and test.json, from github.com/Alab-NII/2wikimultihop (data_ids_april7.zip)",
    ("train.json", "dev.json", "test.json"),
    partial(contexts, "2wikimultihopqa"),
)
MUSIQUE = _source(
    "IRCoT's corpus for MuSiQue",
    "musique_ans_v1.0_{dev,test,train}.jsonl and musique_full_v1.0_{dev,test,train}.jsonl, from "
    "github.com/StonyBrookNLP/musique",
    ("musique_ans_v1.0_*.jsonl", "musique_full_v1.0_*.jsonl"),
    _of_musique,
)
IIRC = _source(
    "IRCoT's corpus for IIRC",
    "context_articles.json, from allenai.org/data/iirc",
    ("context_articles.json",),
    lambda name, path: iirc.articles(path),
    _long_paragraphs,
)
