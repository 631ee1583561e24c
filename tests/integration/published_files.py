"""What is published for the papers' tables, tiny, with the same names and formats, for a stand-in of the Hub."""

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmark_files import TWO_QUESTIONS
from fake_hub import Hub, packed

from notewriter.corpora.sources import SOURCES
from notewriter.datasets import BENCHMARKS
from notewriter.ground.releases import Release
from notewriter.retrieval.published import INDEXES

QUESTIONS = 20
PAGES = [
    (f"p{number}", name, f"{name} is a town by the river Osk. It was founded in {1700 + number} by Mira {name}.")
    for number, name in enumerate(f"Tolen{letter}{digit}" for letter in "abcdefghij" for digit in range(30))
]
"""Id, title and text of three hundred passages."""

IDS = ("_id", "id", "sample_id", "qid")


def _records(dataset: str) -> list[dict[str, Any]]:
    """Twenty questions as the benchmark has them, each with an id and a question of its own."""
    records = []
    for number in range(QUESTIONS):
        record = json.loads(json.dumps(TWO_QUESTIONS[dataset][number % 2]))
        record |= {key: f"{record[key]}{number}" for key in IDS if key in record}
        record |= {
            key: f"{record[key]} ({number})" for key in ("question", "query") if isinstance(record.get(key), str)
        }
        if dataset == "iirc":
            record["questions"][0]["qid"] = f"i{number}"
            record["links"] = [{"target": title, "indices": [0, 3]} for _, title, _ in PAGES[number : number + 3]]
        pages = PAGES[number * 10 : number * 10 + 10]
        if "context" in record:
            record["context"] += [[title, [text]] for _, title, text in pages]
        if "paragraphs" in record:
            more = [{"title": title, "paragraph_text": text, "is_supporting": False} for _, title, text in pages]
            record["paragraphs"] += [{"idx": 3 + place, **each} for place, each in enumerate(more)]
        if dataset == "fanoutqa":
            record["decomposition"][0]["decomposition"] = []
        if dataset == "nq":
            record["ctxs"] = [{"id": each, "title": title, "text": text} for each, title, text in PAGES[:20]]
            record["answers"] = record["answer"]
        records.append(record)
    return records


def _lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _list(records: list[dict[str, Any]]) -> bytes:
    return json.dumps(records).encode()


def _table(header: list[str], rows: list[list[str]]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in [header, *rows]).encode()


def _questions(dataset: str, file: str) -> bytes:
    records = _records(dataset)
    if file == "test.tsv":
        header = ["Prompt", "Answer", "reasoning_types"]
        return _table(header, [[each["question"], each["answer"], each["reasoning_types"]] for each in records])
    if file == "popQA.tsv":
        rows = [[each["id"], each["question"], json.dumps(each["golden_answers"]), "capital"] for each in records]
        return _table(["id", "question", "possible_answers", "prop"], rows)
    if dataset == "asqa":
        return json.dumps({split: {each["sample_id"]: each for each in records} for split in ("train", "dev")}).encode()
    return _lines(records) if file.endswith(".jsonl") else _list(records)


def _parquet(pages: list[tuple[str, str, str]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = [list(column) for column in zip(*pages, strict=True)]
    table = pyarrow.table({"id": columns[0], "url": columns[0], "title": columns[1], "text": columns[2]})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _corpus(source: str, file: str) -> bytes:
    if source == "dpr":
        return gzip.compress(_table(["id", "text", "title"], [[id, text, title] for id, title, text in PAGES]))
    if source == "wiki-18":
        return wiki18()
    if source == "wikipedia":
        # One of 41 files has nearly all.
        return _parquet(PAGES if file.endswith("-00000.parquet") else [(file, f"Page of {file}", "It is short.")])
    assert source == "multihoprag"
    more = dict.fromkeys(("source", "category", "author", "published_at"), "x")
    return _list([{"title": title, "body": text, "url": id} | more for id, title, text in PAGES])


def wiki18() -> bytes:
    """wiki-18 as Search-R1 has it."""
    return _lines([{"id": id, "contents": f'"{title}"\n{text}'} for id, title, text in PAGES])


def _article_texts() -> bytes:
    return json.dumps({title.lower(): text for _, title, text in PAGES}).encode()


SPECIAL: Mapping[str, bytes] = {
    "id_aliases.json": _lines([{"Q_id": "Q1", "aliases": [], "demonyms": []}]),
    "context_articles.json": _article_texts(),
}


def publish(hub: Hub, models: Mapping[str, Path], vectors: bytes) -> None:
    """Publish every benchmark, corpus and model, and the vectors of wiki-18.

    Args:
        hub: the stand-in.
        models: hub id -> the folder of what stands in for it.
        vectors: an index of FAISS with the vectors of wiki-18's passages.
    """
    for name, benchmark in BENCHMARKS.items():
        if isinstance(release := benchmark.source, Release):
            contents = {
                file.here: SPECIAL.get(file.here) or _questions(name, file.here)
                for file in release.files
                if file.split != "corpus"
            }
            hub.publish_release(release, contents)
    for name, source in SOURCES.items():
        release = source.files
        if not isinstance(release, Release):
            continue
        if name == "ircot-hotpotqa":
            (file,) = release.files
            pages = _lines([{"id": id, "title": title, "text": [text]} for id, title, text in PAGES])
            hub.publish(file.addresses[0], packed(file.addresses[0], {f"{file.member}/AA/wiki_00": pages}))
        elif name.startswith("ircot-"):
            dataset = name.removeprefix("ircot-")
            known = {file.here for file in BENCHMARKS[dataset].source.files}
            more = {file.here: _questions(dataset, file.here) for file in release.files if file.here not in known}
            hub.publish_release(release, more)
        else:
            hub.publish_release(release, {file.here: _corpus(name, file.here) for file in release.files})
    release = INDEXES["wiki-18-e5-flat"]
    hub.publish_release(release, {file.here: vectors for file in release.files})
    for name, folder in models.items():
        for path in folder.rglob("*"):
            if path.is_file():
                hub.publish(f"hf://{name}/{path.relative_to(folder)}", path.read_bytes())
