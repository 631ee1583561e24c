"""Secrets and local paths that must not be published.

The search covers all text that this machine may have written: names of files, settings, templates, licences and cards,
the names and metadata of tensors, and every string of every row of data. Texts are read in UTF-8, UTF-16 or UTF-32, as
written and without marks of Markdown and HTML. Numbers of tensors are not searched; the tokens of vocabularies, which
are fragments of arbitrary text, are searched for the formats of keys alone.

detect-secrets knows the formats of most makers; `FORMATS` has further ones. The entropy of a value counts beside a name
such as key or token, and in texts that begin as keys do. Elsewhere it does not: hashes of commits and data belong in
cards and configurations. Nothing is verified online.
"""

import contextlib
import functools
import html
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.ip_public import IPPublicDetector
from tqdm import tqdm

from notewriter.artifacts.parquet import read_rows, read_schema
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import TOKENIZER

VOCABULARIES = {*TOKENIZER, "merges.txt", "vocab.json", "vocab.txt"}
"""Fragments of arbitrary text, as the base model has them: no name beside a fragment makes it a password."""

LONGEST_HEADER = 100_000_000
"""Bytes of a safetensors header, by the format's limit."""

FORMATS = {
    "a Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "an API key": r"\b(?:sk|csk|psk|cpk|sk_live|rk_live|[sp]k-lf)[-_][A-Za-z0-9_-]*[A-Za-z0-9]{16,}",
    "a Weights & Biases key": r"\bwandb_v1_\w{20,}|(?i:wandb).{0,80}?\b[0-9a-f]{40}\b",
    "a provider's key": (
        r"\b(?:(?:gsk|r8|npm|fw|pcsk|rpa|jina|lin_api|ntn|glsa|sbp|flp|up|esecret|dop_v1|dckr_pat|tgp_v1|lsv2_[a-z]{2}"
        r"|KGAT)_|(?:pplx|xai|llx|nvapi|tvly|fc|pa|al|ak|as)-|hvs\.|BSA|dapi)"
        r"(?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]*[A-Za-z0-9]{20,}|\b[0-9a-f]{32}\.[A-Za-z0-9]{16}\b"
        r"|JQQJ99[A-Za-z0-9]{20,}|\bv1\.[A-Za-z0-9_-]{60,}"
    ),
    "an authorization": (
        r"(?i:\bbearer)\s+(?=\S*[0-9])[\w.~+/-]*[A-Za-z0-9]{16,}"
        r"|(?i:authorization)[\"']?\s*[:=]\s*[\"']?(?i:basic)\s+[\w+/-]{8,}"
        r"|(?i:authorization)[\"']?\s*[:=]\s*[\"']?\w+\s+(?=\S*[0-9])[\w.~+/-]*[A-Za-z0-9]{16,}"
        r"|\bcurl\b.{0,200}?\s(?:-u|--user)[ =][\"']?[^\s:\"']+:[^\s\"']{6,}"
    ),
    "a cookie": (
        r"(?i:\b(?:set-)?cookie)[\"']?\s*[:=]\s*[\"']?[\w.$-]+=[^\s;,\"']{8,}"
        r"|\b[\w-]+(?:\.[\w-]+)*\t(?:TRUE|FALSE)\t/\S*\t(?:TRUE|FALSE)\t\d+\t[^\t]+\t\S{8,}"
    ),
    "a login in .netrc": r"\b(?:machine\s+\S+|default)\s+(?:login\s+\S+\s+)?(?:account\s+\S+\s+)?password\s+\S+",
    "a signed address of Azure": r"[?&;]sig=[A-Za-z0-9%+/_-]{30,}",
    "a GitHub token": r"\bgithub_pat_[A-Za-z0-9_]{22,}|\bgh[pousr]_[A-Za-z0-9]{30,}",
    "a Google key": (
        r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_-]{20,}|\bGOCSPX-[A-Za-z0-9_-]{28}|\bAQ\.[A-Za-z0-9_-]{40,}"
    ),
    "a Slack token": r"\bxox[a-z]-[A-Za-z0-9-]{20,}|\bxapp-\d-[A-Za-z0-9-]{20,}",
    "an AWS secret key": r"(?i:aws|secret).{0,30}?[=:]\s*[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    "a password in an address": r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"'<>{}$]*:(?:[^\s/@\"'<>{}$]|\$(?!{))+@",
}
"""Keys in their makers' formats, whatever stands beside them."""

NAMED = {
    "a password or key": (
        r"(?i:api[_-]?key|secret|passw(?:or)?d|passphrase|access[_-]?token|auth[_-]?token|credentials?)[\"']?\s*[:=]\s*"
        r"(?:\"(?=[^\"\s]*[^A-Za-z\"\s])[^\"\s]{8,}\"|'(?=[^'\s]*[^A-Za-z'\s])[^'\s]{8,}'"
        r"|(?=\S*[^A-Za-z\s])[^\s\"'{}<>()\[\],]{8,})"
    ),
}
"""The values that a name beside them makes a secret."""

_NAMES = r"(?:key|token|secret|passw(?:or)?d|pwd|passphrase|credential|auth|session(?:_?id)?)s?"
BESIDE_A_NAME = re.compile(
    rf"(?i:--[\w-]*{_NAMES}\s+|{_NAMES}[\"']?\s*(?:[:=]|=>|,\s*[\"']value[\"']\s*:)\s*)[\"']?([A-Za-z0-9+/_.~-]{{20,}}={{0,2}})"
)
LIKE_A_KEY = re.compile(r"(?<![\w/+=.%-])([a-z]{2,10}[_-][A-Za-z0-9_-]{32,})(?![\w/])")
"""Texts like the keys of unknown makers: a short word, a mark, and then random characters of all three classes."""

LEAST_ENTROPY = 3.2
"""Bits per character, of a value beside a name; random hexadecimal digits have 3.5 and more, a word or path less."""

_NAME = r"[^\s\"'|/\\:<>*?]+"
_MARKS = re.compile(r"[*`\u200b\u2060\ufeff]|\\(?=[^A-Za-z0-9\s\\])")
HOME = (
    rf"(?:/home|/Users|/root|/export/home|/var/root)/{_NAME}[^\s\"'|]*|(?<![\w./~%-])/root(?![\w/-])"
    rf"|[A-Za-z]:\\+Users\\+{_NAME}[^\s\"'|]*|(?<![\w~.)\]])~\w*/[\w.-]+[^\s\"'|]*"
)
# Rows quote arbitrary pages: in them a path counts from two levels below the home folder, and not in an address such as
# https://example.org/home/news or https://example.org/~someone/page.
ROW_HOME = (
    rf"(?<![\w./~%-])(?:(?:/home|/Users|/export/home)/{_NAME}/{_NAME}[^\s\"'|]*"
    rf"|/(?:root|var/root)/{_NAME}/{_NAME}[^\s\"'|]*|[A-Za-z]:\\+Users\\+{_NAME}\\+{_NAME}[^\s\"'|]*"
    rf"|(?<![\w~.)\]])~\w*/[\w.-]+/[\w.-]+[^\s\"'|]*)"
)

Finder = Callable[[str], str | None]


def check_file(path: Path) -> None:
    """Raise a `UserError` if a file or its name contains what looks like a secret or a home folder."""
    check_text(path.name, f"the name of {path}")
    if path.suffix == ".parquet":
        check_rows(path)
        return
    content = _header(path) if path.suffix == ".safetensors" else path.read_bytes()
    for text in _decoded(content):
        if path.name in VOCABULARIES:
            _check_vocabulary(text, str(path))
        else:
            _check_json(text, str(path))


def check_rows(path: Path) -> None:
    """Raise a `UserError` that names row (from 0) and column if a Parquet file contains what looks like a secret.

    Every string in every column is searched, at any depth, and so are the names of columns and the file's metadata.
    """
    schema = read_schema(path)
    check_text("\n".join(_strings([schema.names, schema.metadata or {}])), f"{path}: metadata", ROW_HOME)
    # About 20 ms for a pair of 2,000 words.
    for number, row in enumerate(tqdm(read_rows(path), desc=f"search {path.name}", unit=" rows", delay=2)):
        for column, value in row.items():
            for text in _strings(value):
                check_text(text, f"{path}: row {number}, {column}", ROW_HOME)


def check_text(text: str, place: str, home: str | None = HOME, named: bool = True) -> None:
    """Raise a `UserError` that names the line of a secret or of a path that matches `home`; a secret is not shown.

    Args:
        text: the text to search, as it stands and without marks of Markdown and HTML.
        place: its name in the error.
        home: the pattern of a home folder's path; None searches for none.
        named: whether a name beside a value counts.
    """
    for shown in dict.fromkeys((text, _MARKS.sub("", html.unescape(text)))):
        for name, find in _secrets(named):
            if (secret := find(shown)) is not None:
                line = 1 + shown.count("\n", 0, shown.index(secret))
                raise UserError(
                    f"{place}:{line}: contains what looks like {name}; remove it (and revoke it if it is real)"
                )
        if home and (match := re.search(home, shown)):
            line = 1 + shown.count("\n", 0, match.start())
            raise UserError(f"{place}:{line}: names a folder of this machine, {match[0]}; write a hub id or a name")


def _decoded(content: bytes) -> list[str]:
    """The texts that a file may be: UTF-8 or, where it has zero bytes, UTF-16 or UTF-32 with or without their mark."""
    texts = [content]
    if b"\0" in content:
        # Of characters up to U+00FF nothing but zeros is added, whichever way round the bytes stand.
        texts.append(content.replace(b"\0", b""))
    return [text.decode("utf-8", "replace") for text in texts]


def _check_json(text: str, place: str, **searched: Any) -> None:
    """Check a text, and the texts in it where it is JSON, which may hide characters in escapes."""
    check_text(text, place, **searched)
    with contextlib.suppress(ValueError, RecursionError):
        check_text("\n".join(_strings(json.loads(text))), f"{place}, its texts", **searched)


def _check_vocabulary(text: str, place: str) -> None:
    """Check a tokenizer's file: tokens for the formats of keys alone, all else like settings."""
    _check_json(text, place, home=None, named=False)
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(text)
        if isinstance(record, dict) and isinstance(model := record.get("model"), dict):
            record["model"] = {key: each for key, each in model.items() if key not in ("vocab", "merges")}
            _check_json(json.dumps(record, ensure_ascii=False, indent=1), place)


def _header(path: Path) -> bytes:
    """The JSON before the numbers of a safetensors file: names of tensors, and metadata."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return file.read(min(size, LONGEST_HEADER))


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


@functools.cache
def _secrets(named: bool) -> Sequence[tuple[str, Finder]]:
    """The formats of secrets, with `named` also those that a name makes one: a description, and the search for the
    first."""
    classes: Mapping[str, Any] = get_mapping_from_secret_type_to_class()
    # Public IP addresses are not secret, and version numbers look like them.
    detectors = [each() for each in classes.values() if each is not IPPublicDetector]
    formats = FORMATS | NAMED if named else FORMATS
    return [
        *((name, functools.partial(_search, re.compile(pattern))) for name, pattern in formats.items()),
        *(
            (f"a secret ({each.secret_type})", functools.partial(_detect, each))
            for each in detectors
            if isinstance(each, RegexBasedDetector)
        ),
        *([("a key or token", _beside_a_name), ("a key", _like_a_key)] if named else []),
    ]


def _beside_a_name(text: str) -> str | None:
    return next((each for each in BESIDE_A_NAME.findall(text) if _is_random(each)), None)


def _like_a_key(text: str) -> str | None:
    classes = (r"[A-Z]", r"[a-z]", r"[0-9]")
    found = (each for each in LIKE_A_KEY.findall(text) if all(len(re.findall(kind, each)) > 3 for kind in classes))
    return next((each for each in found if _is_random(each)), None)


def _is_random(value: str) -> bool:
    """Whether characters follow each other as in a key: digits among letters, few repeated, no words between marks."""
    shares = [count / len(value) for count in Counter(value).values()]
    entropy = -sum(share * math.log2(share) for share in shares)
    unbroken = re.search(r"[A-Za-z0-9]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", value)
    # Of letters alone, names in camel case have up to 4.2 bits.
    least = LEAST_ENTROPY if len(re.findall(r"\d", value)) > 2 else 4.4
    return bool(unbroken) and entropy >= least and not value.isdigit()


def _search(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[0] if match else None


def _detect(detector: RegexBasedDetector, text: str) -> str | None:
    return next(iter(detector.analyze_string(text)), None)
