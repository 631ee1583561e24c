"""Secrets and local paths that must not be published, wherever they are in a file.

detect-secrets knows the key formats of most providers; `FORMATS` are further ones. Nothing is verified online. Each
file is read completely, piece by piece, and each piece is searched as it is, without NUL bytes (which makes UTF-16 and
UTF-32 readable), and with escapes resolved. Its entropy rules are left out: hashes of commits and data belong in cards
and configurations, and a vocabulary is full of random-looking tokens.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin, RegexBasedDetector
from detect_secrets.plugins.ip_public import IPPublicDetector
from detect_secrets.plugins.keyword import KeywordDetector
from tqdm import tqdm

from notewriter.artifacts.parquet import read_rows, read_schema
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import TOKENIZER

PIECE = 4 << 20
OVERLAP = 16 << 10
"""Bytes that consecutive pieces share: more than it takes to recognise any secret."""


LONGEST_HEADER = 100_000_000
"""Bytes of a safetensors header, by the format's limit."""
CONTEXT = 100
"""Characters before a long run of characters that may say what it is."""


class Kind(Enum):
    """The kind of a text, which decides which patterns in it cannot be accidental."""

    PROSE = "prose"
    """Settings, templates, licences, cards: every rule applies."""
    VOCABULARY = "vocabulary"
    """Fragments of arbitrary text: key formats, and paths longer than a token."""
    BYTES = "bytes"
    """Readable runs in binary files: key formats only."""
    ROWS = "rows"
    """Rows of data, which quote arbitrary pages: key formats, assignments, and paths that are no part of an address."""


VOCABULARIES = {*TOKENIZER, "merges.txt"}
BINARY = {".safetensors", ".bin", ".model", ".parquet"}

FORMATS = {
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]*[A-Za-z0-9]{16,}",
    "a Weights & Biases key": r"\bwandb_v1_\w{20,}|(?i:wandb).{0,80}?\b[0-9a-f]{40}\b",
    "a provider's key": r"\b(?:gsk_|pplx-|r8_|tgp_v1_|xai-|npm_)[A-Za-z0-9]{20,}|\bnvapi-[A-Za-z0-9_-]{40,}",
    "a bearer token": r"(?i:\bbearer)\s+(?=\S*[0-9])[\w.~+/-]*[A-Za-z0-9]{16,}",
    "a GitHub token": r"\bgithub_pat_[A-Za-z0-9_]{22,}|\bgh[pousr]_[A-Za-z0-9]{30,}",
    "a Google key": r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_-]{20,}|\bGOCSPX-[A-Za-z0-9_-]{28}",
    "a Slack token": r"\bxox[a-z]-[A-Za-z0-9-]{20,}|\bxapp-\d-[A-Za-z0-9-]{20,}",
    "an AWS secret key": r"(?i:aws|secret).{0,30}?[=:]\s*[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    "a password in an address": r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"'<>{}$]*:(?:[^\s/@\"'<>{}$]|\$(?!{))+@",
}
ASSIGNMENT = {
    "a password or key": (
        r"(?i:api_?key|secret|passw(?:or)?d|passphrase|access_token|auth_token|credentials?)[\"']?\s*[:=]\s*"
        r"(?:\"(?=[^\"\s]*[^A-Za-z\"\s])[^\"\s]{8,}\"|'(?=[^'\s]*[^A-Za-z'\s])[^'\s]{8,}'"
        r"|(?=\S*[^A-Za-z\s])[^\s\"'{}<>()\[\],]{8,})"
    )
}

_NAME = r"[^\s\"'|/\\:<>*?]+"
HOME = {
    "a folder of this machine": (
        rf"(?:/home|/Users|/root|/export/home|/var/root)/{_NAME}[^\s\"'|]*|(?<![\w./~%-])/root(?![\w/-])|[A-Za-z]:\\+Users\\+{_NAME}[^\s\"'|]*"
        rf"|(?<![\w~.)\]])~\w*/[\w.-]+[^\s\"'|]*"
    )
}
# As HOME, at least two levels below the home folder: a token may be a path, but not a long one.
LONG_HOME = {
    "a folder of this machine": (
        rf"(?:/home|/Users|/export/home)/{_NAME}/{_NAME}[^\s\"'|]*|/(?:root|var/root)/{_NAME}/{_NAME}[^\s\"'|]*"
        rf"|[A-Za-z]:\\+Users\\+{_NAME}\\+{_NAME}[^\s\"'|]*|(?<![\w~.)\]])~\w*/[\w.-]+/[\w.-]+[^\s\"'|]*"
    )
}
# As LONG_HOME, outside addresses such as https://example.org/home/news and https://example.org/~someone/page.
ROW_HOME = {name: rf"(?<![\w./~%-])(?:{pattern})" for name, pattern in LONG_HOME.items()}

FURTHER: dict[Kind, dict[str, str]] = {
    Kind.PROSE: ASSIGNMENT | HOME,
    Kind.VOCABULARY: LONG_HOME,
    Kind.BYTES: {},
    Kind.ROWS: ASSIGNMENT | ROW_HOME,
}

Finder = Callable[[str], str | None]


def check_file(path: Path) -> None:
    """Raise a `UserError` if a file or its name contains what looks like a secret or a home folder."""
    check_text(path.name, f"the name of {path}")
    with open(path, "rb") as file:
        if path.suffix == ".safetensors":
            # Tensor names and metadata are JSON; the rest are numbers.
            size = int.from_bytes(file.read(8), "little")
            _check(file, path, Kind.PROSE, size if size <= LONGEST_HEADER else 0)
        if path.suffix == ".parquet":
            check_rows(path)
        kind = Kind.VOCABULARY if path.name in VOCABULARIES else Kind.BYTES if path.suffix in BINARY else Kind.PROSE
        _check(file, path, kind)


def check_rows(path: Path) -> None:
    """Raise a `UserError` that names row (from 0) and column if a Parquet file contains what looks like a secret.

    Every string in every column is searched, at any depth, and so are the names of columns and the file's metadata.
    """
    schema = read_schema(path)
    check_text("\n".join(_strings([schema.names, schema.metadata or {}])), f"{path}: metadata", Kind.ROWS)
    # About 8 ms for a pair of 2,000 words.
    for number, row in enumerate(tqdm(read_rows(path), desc=f"search {path.name}", unit=" rows", delay=2)):
        for column, value in row.items():
            for text in _strings(value):
                check_text(text, f"{path}: row {number}, {column}", Kind.ROWS)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        yield from _strings([*value, *value.values()])
    elif isinstance(value, Sequence):
        for each in value:
            yield from _strings(each)


def check_text(text: str, place: str, kind: Kind = Kind.PROSE, first_line: int = 1) -> None:
    """Raise a `UserError` that names the line of a secret or a home folder; a secret is not shown."""
    if kind in (Kind.VOCABULARY, Kind.BYTES):
        line, start = first_line, 0
        for run in _LONG.finditer(text):
            line, start = line + text.count("\n", start, run.start()), run.start()
            _check_views(text[max(0, start - CONTEXT) : run.end()].replace("\n", " "), place, kind, line)
    else:
        _check_views(text, place, kind, first_line)


def _check_views(text: str, place: str, kind: Kind, first_line: int) -> None:
    for view in views(text):
        for name, find in rules(kind):
            if (found := find(view)) is None:
                continue
            # Binary files have no lines.
            line = "" if kind is Kind.BYTES else f":{first_line + view.count(chr(10), 0, view.index(found))}"
            if name in HOME:
                raise UserError(f"{place}{line}: names {name}, {found}; write a hub id or a name")
            raise UserError(f"{place}{line}: contains what looks like {name}; remove it (and revoke it if it is real)")


@functools.cache
def rules(kind: Kind) -> Sequence[tuple[str, Finder]]:
    """The patterns for a kind of text: a name, and a function that finds the first match."""
    classes: Mapping[str, Any] = get_mapping_from_secret_type_to_class()
    # Public IP addresses are not secret, and version numbers look like them.
    detectors = [each() for each in classes.values() if each is not IPPublicDetector]
    known: list[BasePlugin] = [each for each in detectors if isinstance(each, RegexBasedDetector)]
    ours = FORMATS | FURTHER[kind]
    known += [KeywordDetector()] if kind is Kind.PROSE else []
    return [(name, functools.partial(_search, re.compile(pattern))) for name, pattern in ours.items()] + [
        (f"a secret ({each.secret_type})", functools.partial(_detect, each)) for each in known
    ]


def views(text: str) -> Iterator[str]:
    """A text, and the text with its escapes resolved up to three times, as far as that changes it."""
    yield text
    for _ in range(3):
        if (resolved := _ESCAPE.sub(_resolve, text)) == text:
            return
        yield (text := resolved)


def readable(content: bytes) -> str:
    """The runs of at least 16 printable ASCII characters in binary content, one per line."""
    codes = np.frombuffer(content, np.uint8)
    breaks = np.flatnonzero((codes < 0x20) | (codes > 0x7E))
    starts, ends = np.append(0, breaks + 1), np.append(breaks, len(codes))
    long = ends - starts >= 16
    return "\n".join(content[start:end].decode() for start, end in zip(starts[long], ends[long], strict=True))


def _check(file: BinaryIO, path: Path, kind: Kind, size: int = -1) -> None:
    """Check the next `size` bytes of a file, or the rest of it for -1, in pieces."""
    line, tail = 1, b""
    while block := file.read(PIECE if size < 0 else min(PIECE, size)):
        size -= len(block) if size > 0 else 0
        piece = tail + block
        for each in dict.fromkeys((piece, piece.replace(b"\0", b""))):
            text = readable(each) if kind is Kind.BYTES else each.decode("utf-8", "replace")
            check_text(text, str(path), kind, line)
        tail = piece[-OVERLAP:]
        line += piece[: len(piece) - len(tail)].count(b"\n")
        if size == 0:
            return


# Among millions of short tokens only long ones can be keys, and only these prefixes begin a path or a block.
_LONG = re.compile(r"[^\s\"',]{16,}|[/\\~][^\s\"',]{9,}|-----BEGIN[A-Z ]{0,40}-----")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([\\/\"'.:@_-]))")


def _resolve(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        return match[4]
    # Line breaks would shift the line numbers in errors.
    return chr(min(int(code, 16), 0x10FFFF)).replace("\n", " ")


def _search(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[0] if match else None


def _detect(detector: BasePlugin, text: str) -> str | None:
    return next(iter(detector.analyze_string(text)), None)
