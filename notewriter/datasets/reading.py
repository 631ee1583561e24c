"""Reading benchmark files: streaming records, typed fields, and errors that name the place.

A paragraph's id is its title and a digest of its text, so that it is the same in every file and `supporting_ids` can
be computed without the corpus.
"""

import collections
import gzip
import hashlib
import json
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.records import Passage, Question
from notewriter.ground.terminal import say_once
from notewriter.ground.text import without_surrogates
from notewriter.ground.typed import misfit, shown

if TYPE_CHECKING:
    from notewriter.artifacts import parquet
else:
    parquet = Lazy("notewriter.artifacts.parquet")

logger = logging.getLogger(__name__)

T = TypeVar("T")
Records = Iterator[tuple[str, dict[str, Any]]]
"""Pairs of a record's place in the file, for errors, and the record."""

SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\b")
"""The name of a part of a file, its number from 0, and the number of parts."""

LONGEST_CELL = 1000
"""Lines of a quoted cell at most."""

CHUNK = 1 << 20
"""Characters read at a time."""


def questions(
    records: Callable[[Path], Records],
    parse: Callable[[dict[str, Any], str], Question],
    path: Path,
    *,
    numbered: bool = False,
) -> list[Question]:
    """All questions of a file, in file order, with unique ids.

    `numbered` is for formats whose ids derive from the question's text (`unrepeated`).

    Raises:
        UserError: the file or a record cannot be read, an id occurs twice, or there are no questions.
    """
    questions, places = [], dict[str, str]()
    repeats: Counter[str] = Counter()
    for place, record in records(path):
        try:
            question = _encodable(parse(record, place))
        except RecursionError as error:
            raise UserError(f"{place}: is nested too deeply; use the original file") from error
        if numbered:
            question = replace(question, id=unrepeated(question.id, repeats))
        if question.id in places:
            raise UserError(f"{place}: has the same id {question.id!r} as {places[question.id]}; make ids unique")
        places[question.id] = place
        questions.append(question)
    if not questions:
        raise UserError(f"{path}: contains no questions; check that it is the right file")
    return questions


def unrepeated(id: str, repeats: Counter[str]) -> str:
    """An id with the suffix `-2` when it comes for the second time, and so on; `repeats` counts how often each came."""
    repeats[id] += 1
    return id if repeats[id] == 1 else f"{id}-{repeats[id]}"


def _encodable(question: Question) -> Question:
    """A question with lone surrogates replaced, which neither hashes nor files accept."""
    text = json.dumps(asdict(question), ensure_ascii=False)
    clean = without_surrogates(text)
    return question if clean == text else Question(**{k: _tupled(v) for k, v in json.loads(clean).items()})


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def union(
    records: Callable[[Path], Records], parse: Callable[[dict[str, Any], str], list[Passage]], path: Path
) -> Iterator[Passage]:
    """The distinct passages of all records."""
    seen = set()
    for place, record in records(path):
        for passage in parse(record, place):
            if passage.id not in seen:
                seen.add(passage.id)
                yield passage
    if not seen:
        raise UserError(f"{path}: contains no passages; check that it is the right file")


def contexts(
    records: Callable[[Path], Records],
    parse: Callable[[dict[str, Any], str], list[Passage]],
    key: str,
    path: Path,
) -> Iterator[tuple[str, list[Passage]]]:
    """The id of each question, found under `key`, and the paragraphs beside it; test sets have these too."""
    return ((identifier(record, key, place), parse(record, place)) for place, record in records(path))


def identifier(record: dict[str, Any], key: str, place: str) -> str:
    """A record's id, under its own key or, as on the Hub, under `id`; it may be a number."""
    key = key if key in record else "id"
    return str(record[key]) if isinstance(record.get(key), int) else get(record, key, str, place)


def records(path: Path) -> Records:
    """The records of a file in any of the forms that benchmarks are published in.

    JSON Lines, a JSON list, Parquet, or a table (`.csv`, `.tsv`), each but Parquet also compressed with gzip. Places
    count lines and items from 1, and rows of Parquet from 0, as its tools do.
    """
    if parquet.is_parquet(path):
        return ((f"{path}: row {number} (counted from 0)", row) for number, row in enumerate(parquet.read_rows(path)))
    if Path(path.name.removesuffix(".gz")).suffix in (".csv", ".tsv"):
        return table(path)
    return array(path) if is_list(path) else lines(path)


def warn_of_part(path: Path) -> None:
    """Warn once of a file that is one of several parts, as the Hub divides large splits."""
    if (part := SHARD.match(path.name)) and (count := int(part[3])) > 1:
        first = f"{part[1]}-{0 if int(part[2]) else 1:05}-of-{part[3]}{path.name[part.end() :]}"
        more = f" and {count - 2} more" if count > 2 else ""
        say_once(logger, f"{path}: is one of {count} parts, read without {first}{more}; join them for the whole split")


def lines(path: Path) -> Records:
    """The objects of a JSON Lines file."""
    return ((place, jsonl.parse(line, place)) for place, line in _lines_of(path) if line.strip())


def array(path: Path) -> Records:
    """Stream the objects of a JSON list: training files have hundreds of megabytes."""
    buffer, position, size = "", 0, CHUNK
    number, separator = 1, re.compile(r"\s*\[\s*")
    with open_text(path) as file:
        while True:
            place = f"{path}: record {number}"
            try:
                match = separator.match(buffer, position)
                if not match:
                    raise ValueError("no " + ("list" if number == 1 else "comma before it"))
                if buffer[match.end() : match.end() + 1] == "]":
                    position = match.end() + 1
                    break
                record, end = jsonl.DECODER.raw_decode(buffer, match.end())
            except (ValueError, RecursionError) as error:
                # Either the record continues beyond the buffer or the file is broken; reading more decides.
                more = read(file, size, path)
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
        rest = buffer[position:]
        while rest and not rest.strip():
            rest = read(file, CHUNK, path)
        if rest:
            raise UserError(f"{path}: has text after the end of its list: {shown(rest.strip())}; remove it")


def is_list(path: Path) -> bool:
    """Whether a JSON file contains a list."""
    with open_text(path) as file:
        return read(file, 1000, path).lstrip().startswith("[")


def is_object(path: Path) -> bool:
    """Whether a file contains one JSON object, not records: by its name, or else by its beginning."""
    suffix = Path(path.name.removesuffix(".gz")).suffix
    return suffix not in (".jsonl", ".csv", ".tsv") and not parquet.is_parquet(path) and not is_list(path)


def mapping(path: Path) -> Iterator[tuple[str, Any]]:
    """The keys and values of a file that contains one JSON object, read into memory."""
    with open_text(path) as file:
        try:
            content = json.loads(read(file, -1, path))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: is not JSON ({error}); use the original file") from error
    if not isinstance(content, dict) or not content:
        raise UserError(f"{path}: is not a non-empty JSON object; use the original file")
    yield from content.items()


def table(path: Path) -> Records:
    """The rows of a table as objects by the names in its first row: comma-separated (`.csv`), else tab-separated."""
    rows = cells(_lines_of(path), "," if path.name.endswith((".csv", ".csv.gz")) else "\t")
    first, names = next(rows, ("", []))
    if twice := [name for name, times in Counter(filter(str.strip, names)).items() if times > 1]:
        raise UserError(f"{first}: names the column {twice[0]!r} twice; rename one")
    for place, row in rows:
        if any(map(str.strip, row[len(names) :])):
            raise UserError(
                f"{place}: has {len(row)} cells for {len(names)} columns; put a cell that contains the separator in "
                "quotation marks"
            )
        yield place, dict(zip(names, row, strict=False))


def _lines_of(path: Path) -> Iterator[tuple[str, str]]:
    with open_text(path) as file:
        number = 0
        try:
            for number, line in enumerate(file, start=1):
                yield f"{path}:{number}", line
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: is not UTF-8 ({error.reason}, line {number + 1}); save it as UTF-8") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(f"{path}: is truncated or damaged ({error}); download it again") from error


def cells(lines: Iterator[tuple[str, str]], delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of a delimited table, each with the place of its first line; the first row sets the number of cells.

    A quotation mark quotes a cell only if the cell ends with one: an unclosed one is a character. A quoted cell may
    have line breaks, unless each of the lines has a whole row of cells already.
    """
    cell = re.compile(rf'(?:"((?:[^"]|"")*+)"(?={delimiter}|$)|([^{delimiter}]*))(?:{delimiter}|$)')

    def split(line: str) -> list[str]:
        line = line.removesuffix("\n").removesuffix("\r")
        if '"' not in line:
            return line.split(delimiter)
        row, position = [], 0
        while position <= len(line):
            match = cell.match(line, position)
            assert match
            row.append(match[2] if match[1] is None else match[1].replace('""', '"'))
            ends = match.end() == len(line) and not line.endswith(delimiter, position)
            position = len(line) + 1 if ends or match.end() == position == len(line) else match.end()
        return row

    width, waiting = 0, collections.deque[tuple[str, str]]()
    while (first := waiting.popleft() if waiting else next(lines, None)) is not None:
        place, line = first
        row = split(line)
        if not line.strip():
            continue
        if width and any(each.startswith('"') for each in row):
            joined, alone = line, len(row) == width
            for count in range(LONGEST_CELL):
                if count == len(waiting):
                    if (more := next(lines, None)) is None:
                        break
                    waiting.append(more)
                further = waiting[count][1]
                joined, alone = joined + further, alone and len(split(further)) == width
                if alone and width > 1:
                    break
                if '"' in further and len(whole := split(joined)) == width and not whole[-1].startswith('"'):
                    row = whole
                    for _ in range(count + 1):
                        waiting.popleft()
                    break
        width = width or len(row)
        yield place, row


def open_text(path: Path) -> TextIO:
    """Open a text file for reading (`jsonl.open_text`)."""
    try:
        return jsonl.open_text(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the path") from error


def read(file: TextIO, size: int, path: Path) -> str:
    """Read `size` characters of a text file, or all of them with -1."""
    try:
        return file.read(size)
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: is truncated or damaged ({error}); download it again") from error


def paragraphs(title: str, text: str) -> list[Passage]:
    """The non-blank lines of a text as passages, with white space normalised."""
    lines = filter(None, (" ".join(line.split()) for line in text.split("\n")))
    return [Passage(passage_id(title, line), title, line) for line in lines]


def passage_id(title: str, text: str) -> str:
    """The title and a digest of the text, since titles are not unique."""
    return f"{title}#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def question_id(prefix: str, text: str) -> str:
    """An id for a question without one: a digest of its text."""
    return f"{prefix}_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """The distinct values in order of first occurrence."""
    return tuple(dict.fromkeys(values))


def get(record: dict[str, Any], key: str, expected: type[T], place: str) -> T:
    """A required field of a given type, such as `str` or `list[str]`."""
    if key not in record:
        there = shown(", ".join(record))
        raise UserError(f"{place}: has no {key!r}; it has {there}: rename one, or check file and name of the dataset")
    value = record[key]
    if isinstance(expected, type):
        if not isinstance(value, expected):
            raise UserError(
                f"{place}: {key!r} is a {type(value).__name__}, not a {expected.__name__}; use the original file"
            )
    elif problem := misfit(value, expected, repr(key)):
        raise UserError(f"{place}: {problem}; use the original file")
    return value


def strings(record: dict[str, Any], key: str, place: str, optional: bool = False) -> tuple[str, ...]:
    """A field that is a list of strings."""
    return () if optional and key not in record else tuple(get(record, key, list[str], place))


def objects(record: dict[str, Any], key: str, place: str) -> list[dict[str, Any]]:
    """A field that is a list of objects, or an object of columns, as `datasets` writes such a list."""
    value = record.get(key)
    lengths = (
        {len(each) if isinstance(each, list) else None for each in value.values()} if isinstance(value, dict) else {}
    )
    if isinstance(value, dict) and len(lengths) == 1 and None not in lengths:
        value = [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
    return get(record | {key: value} if key in record else record, key, list[dict[str, Any]], place)


def tuples(record: dict[str, Any], key: str, names: Sequence[str], expected: type[T], place: str) -> T:
    """A field that is a list of lists; or of objects with these names, an object of such columns, or JSON of either."""
    value = record.get(key)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: {key!r} is no list and not JSON ({error}); use the original file") from error
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict) and set(names) <= first.keys():
        value = [[each.get(name) for name in names] for each in objects({key: value}, key, place)]
    return get(record | {key: value} if key in record else record, key, expected, place)
