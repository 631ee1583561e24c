"""Questions and corpora, in our own JSON Lines and in the benchmarks' own file formats.

The corpus of a benchmark is the union of the paragraphs that come with its questions, each of them once. A
paragraph's id is its title and a digest of its text, so that it is the same whichever file it comes from and
`supporting_ids` refer to the corpus without a look at it.
"""

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from notewriter import jsonl
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.records import Passage, Question

T = TypeVar("T")
Records = Iterator[tuple[str, dict[str, Any]]]
"""Records, each after the place in the file that an error names."""

SENTENCE_END = re.compile(r"(?<=[.!?])(?<![ (][A-Z]\.)\s+")
"""White space after a sentence, not after an initial."""

CHUNK = 1 << 20
"""Characters read at a time."""


class Dataset(NamedTuple):
    """The two functions of a file format; each takes a path."""

    load_questions: Callable[[Path], list[Question]]
    load_corpus: Callable[[Path], Iterator[Passage]]


def load_questions(dataset: str, path: str | Path) -> list[Question]:
    """All questions of a file, in its order. `dataset` is a key of `DATASETS`.

    Raises:
        UserError: an unknown dataset; a file that cannot be read or holds no question; a malformed
            record, a field that is missing or of the wrong type, an id that occurs twice.
    """
    questions: list[Question] = choose("dataset", dataset, DATASETS).load_questions(Path(path))
    return questions


def load_corpus(dataset: str, path: str | Path) -> Iterator[Passage]:
    """The passages of a file, one by one; only their ids stay in memory. `dataset` is a key of `DATASETS`.

    Raises:
        UserError: an unknown dataset; while passages are drawn, the errors of `load_questions`.
    """
    passages: Iterator[Passage] = choose("dataset", dataset, DATASETS).load_corpus(Path(path))
    return passages


def select(questions: list[Question], limit: int | None = None, seed: int | None = None) -> list[Question]:
    """The first `limit` questions, or with a `seed` a random sample of as many, in the order of the file.

    All of them where `limit` is None or there are no more than that.

    Raises:
        UserError: a limit below 1.
    """
    if limit is None or limit >= len(questions):
        return list(questions)
    if limit < 1:
        raise UserError(f"limit: {limit} questions cannot be evaluated; ask for at least 1, or leave it out for all")
    if seed is None:
        return questions[:limit]
    return [questions[index] for index in sorted(random.Random(seed).sample(range(len(questions)), limit))]


def _questions(
    read: Callable[[Path], Records], parse: Callable[[dict[str, Any], str], Question], path: Path
) -> list[Question]:
    questions, places = [], dict[str, str]()
    for place, record in read(path):
        question = parse(record, place)
        if question.id in places:
            raise UserError(f"{place}: has the id {question.id!r} of {places[question.id]}; make ids unique")
        places[question.id] = place
        questions.append(question)
    if not questions:
        raise UserError(f"{path}: holds no question; check that it is the right file")
    return questions


def _union(
    read: Callable[[Path], Records], parse: Callable[[dict[str, Any], str], list[Passage]], path: Path
) -> Iterator[Passage]:
    seen = set()
    for place, record in read(path):
        for passage in parse(record, place):
            if passage.id not in seen:
                seen.add(passage.id)
                yield passage
    if not seen:
        raise UserError(f"{path}: holds no passage; check that it is the right file")


# Our own format


def _jsonl_question(record: dict[str, Any], place: str) -> Question:
    answers = _strings(record, "answers", place)
    if not answers:
        raise UserError(f"{place}: 'answers' is empty; write at least one gold answer")
    return Question(
        id=_get(record, "id", str, place),
        question=_get(record, "question", str, place),
        answers=answers,
        supporting_ids=_strings(record, "supporting_ids", place, optional=True),
        supporting_facts=_strings(record, "supporting_facts", place, optional=True),
        metadata=_get(record, "metadata", dict, place) if "metadata" in record else {},
    )


def _jsonl_corpus(path: Path) -> Iterator[Passage]:
    lines = dict[str, int]()
    for line, record in jsonl.read(path):
        place = f"{path}:{line}"
        passage = Passage(*(_get(record, key, str, place) for key in ("id", "title", "text")))
        if passage.id in lines:
            first = f"{path}:{lines[passage.id]}"
            raise UserError(f"{place}: has the id {passage.id!r} of {first}; make ids unique")
        lines[passage.id] = line
        yield passage
    if not lines:
        raise UserError(f"{path}: holds no passage; check that it is the right file")


# HotpotQA and 2WikiMultihopQA: a JSON list; each question has `context`, a list of [title, sentences]


def _hotpotqa_question(record: dict[str, Any], place: str) -> Question:
    """Supporting facts that point to no sentence of the context, as some in HotpotQA do, are left out.

    2WikiMultihopQA keeps aliases in a file of its own, by `answer_id`, which is kept in the metadata.
    """
    # Of two paragraphs with one title, the first is meant.
    paragraphs = {title: (passage_id, sentences) for passage_id, title, sentences in reversed(_context(record, place))}
    ids, facts = [], []
    for title, index in _pairs(record, "supporting_facts", (str, int), place):
        passage_id, sentences = paragraphs.get(title, ("", []))
        if 0 <= index < len(sentences) and sentences[index]:
            ids.append(passage_id)
            facts.append(sentences[index])
    return Question(
        id=_get(record, "_id", str, place),
        question=_get(record, "question", str, place),
        answers=(_get(record, "answer", str, place),),
        supporting_ids=_distinct(ids),
        supporting_facts=_distinct(facts),
        metadata={key: record[key] for key in ("type", "level", "answer_id") if record.get(key) is not None},
    )


def _hotpotqa_passages(record: dict[str, Any], place: str) -> list[Passage]:
    return [Passage(id, title, _join(sentences)) for id, title, sentences in _context(record, place)]


def _context(record: dict[str, Any], place: str) -> list[tuple[str, str, list[str]]]:
    """The id, title and stripped sentences of each paragraph; the numbering of the sentences stays."""
    paragraphs = []
    for title, sentences in _pairs(record, "context", (str, list), place):
        if not all(isinstance(sentence, str) for sentence in sentences):
            raise UserError(f"{place}: a paragraph of 'context' holds what is no sentence; use the original file")
        stripped = [sentence.strip() for sentence in sentences]
        paragraphs.append((_passage_id(title, _join(stripped)), title, stripped))
    return paragraphs


def _join(sentences: list[str]) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


# MuSiQue: JSON Lines; each question has `paragraphs` and, hop by hop, its `question_decomposition`


def _musique_question(record: dict[str, Any], place: str) -> Question:
    """Supporting passages come in the order of the hops.

    MuSiQue marks paragraphs, not sentences. The facts of a hop are the sentences of its paragraph in
    which the hop's answer occurs, whatever the case of the letters, or else the whole paragraph.
    """
    paragraphs = {}
    supporting = []
    for index, (passage, is_supporting) in enumerate(_paragraphs(record, place)):
        paragraphs[index] = passage
        if is_supporting:
            supporting.append(passage.id)
    ids, facts, decomposition = [], [], []
    for hop in _objects(record, "question_decomposition", place):
        answer = _get(hop, "answer", str, place)
        decomposition.append({"question": _get(hop, "question", str, place), "answer": answer})
        # None where the question was made unanswerable by taking the paragraph away.
        paragraph = paragraphs.get(hop.get("paragraph_support_idx", -1))
        if paragraph:
            sentences = SENTENCE_END.split(paragraph.text)
            ids.append(paragraph.id)
            facts += [s for s in sentences if answer.lower() in s.lower()] or [paragraph.text]
    return Question(
        id=_get(record, "id", str, place),
        question=_get(record, "question", str, place),
        answers=_distinct([_get(record, "answer", str, place), *_strings(record, "answer_aliases", place)]),
        supporting_ids=_distinct(ids + supporting),
        supporting_facts=_distinct(facts),
        metadata={
            "hops": len(decomposition),
            "decomposition": decomposition,
            **({"answerable": record["answerable"]} if "answerable" in record else {}),
        },
    )


def _musique_passages(record: dict[str, Any], place: str) -> list[Passage]:
    return [passage for passage, _ in _paragraphs(record, place)]


def _paragraphs(record: dict[str, Any], place: str) -> Iterator[tuple[Passage, bool]]:
    for paragraph in _objects(record, "paragraphs", place):
        title, text = _get(paragraph, "title", str, place), _get(paragraph, "paragraph_text", str, place).strip()
        yield Passage(_passage_id(title, text), title, text), bool(paragraph.get("is_supporting"))


# What the formats share


def _lines(path: Path) -> Records:
    return ((f"{path}:{number}", record) for number, record in jsonl.read(path))


def _array(path: Path) -> Records:
    """The objects of a file that is one JSON list, decoded one by one: training files have hundreds of megabytes."""
    decoder = json.JSONDecoder()
    buffer, position, size = "", 0, CHUNK
    number, separator = 1, re.compile(r"\s*\[\s*")
    with _open(path) as file:
        while True:
            place = f"{path}: record {number}"
            try:
                match = separator.match(buffer, position)
                if not match:
                    raise ValueError("no " + ("list" if number == 1 else "comma before it"))
                if buffer[match.end() : match.end() + 1] == "]":
                    return
                record, end = decoder.raw_decode(buffer, match.end())
            except ValueError as error:
                # Either the buffer ends within the record or the file is broken; more text will tell.
                more = _read(file, size, path)
                if not more:
                    message = getattr(error, "msg", str(error))
                    raise UserError(f"{place}: is not JSON ({message}); use the original file") from error
                buffer, position, size = buffer[position:] + more, 0, 2 * size
                continue
            if not isinstance(record, dict):
                raise UserError(f"{place}: is a {type(record).__name__}, not an object; use the original file")
            yield place, record
            number, separator = number + 1, re.compile(r"\s*(,\s*|(?=\]))")
            position, size = end, CHUNK


def _open(path: Path) -> TextIO:
    try:
        return open(path, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def _read(file: TextIO, size: int, path: Path) -> str:
    try:
        return file.read(size)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error


def _passage_id(title: str, text: str) -> str:
    # Titles are not unique; the digest tells the texts of one title apart.
    return f"{title}#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _get(record: dict[str, Any], key: str, expected: type[T], place: str) -> T:
    if key not in record:
        raise UserError(f"{place}: has no {key!r}; check the file and the name of the dataset")
    value = record[key]
    if not isinstance(value, expected):
        raise UserError(f"{place}: {key!r} is a {type(value).__name__}, not a {expected.__name__}")
    return value


def _strings(record: dict[str, Any], key: str, place: str, optional: bool = False) -> tuple[str, ...]:
    if optional and key not in record:
        return ()
    values = _get(record, key, list, place)
    for value in values:
        if not isinstance(value, str):
            raise UserError(
                f"{place}: {key!r} must be a list of strings, but holds a value of type {type(value).__name__}"
            )
    return tuple(values)


def _objects(record: dict[str, Any], key: str, place: str) -> list[dict[str, Any]]:
    values = _get(record, key, list, place)
    for value in values:
        if not isinstance(value, dict):
            raise UserError(
                f"{place}: {key!r} must be a list of objects, but holds a value of type {type(value).__name__}"
            )
    return values


def _pairs(record: dict[str, Any], key: str, types: tuple[type, type], place: str) -> list[Any]:
    values = _get(record, key, list, place)
    for value in values:
        if not (isinstance(value, list) and len(value) == 2 and all(map(isinstance, value, types))):
            first, second = (expected.__name__ for expected in types)
            raise UserError(f"{place}: {key!r} must be a list of [{first}, {second}] pairs, as in the original file")
    return values


DATASETS = {
    "jsonl": Dataset(partial(_questions, _lines, _jsonl_question), _jsonl_corpus),
    "hotpotqa": Dataset(partial(_questions, _array, _hotpotqa_question), partial(_union, _array, _hotpotqa_passages)),
    "2wikimultihopqa": Dataset(
        partial(_questions, _array, _hotpotqa_question), partial(_union, _array, _hotpotqa_passages)
    ),
    "musique": Dataset(partial(_questions, _lines, _musique_question), partial(_union, _lines, _musique_passages)),
}
"""File formats by name: `jsonl` is our own, the others are the benchmarks' original files."""
