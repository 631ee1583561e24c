"""Secrets and local paths that must not be published.

Searched is what this machine may have written: names of files, settings, templates, licences and cards, the names and
metadata of tensors, and every string of every row of data. Numbers of tensors and vocabularies are not. detect-secrets
knows the key formats of most providers; `FORMATS` are further ones. Nothing is verified online. Its entropy rules are
left out: hashes of commits and data belong in cards and configurations.
"""

import contextlib
import functools
import json
import re
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

VOCABULARIES = {*TOKENIZER, "merges.txt"}
"""Fragments of arbitrary text, as the base model has them."""

LONGEST_HEADER = 100_000_000
"""Bytes of a safetensors header, by the format's limit."""

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
    "a password or key": (
        r"(?i:api_?key|secret|passw(?:or)?d|passphrase|access_token|auth_token|credentials?)[\"']?\s*[:=]\s*"
        r"(?:\"(?=[^\"\s]*[^A-Za-z\"\s])[^\"\s]{8,}\"|'(?=[^'\s]*[^A-Za-z'\s])[^'\s]{8,}'"
        r"|(?=\S*[^A-Za-z\s])[^\s\"'{}<>()\[\],]{8,})"
    ),
}

_NAME = r"[^\s\"'|/\\:<>*?]+"
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
    elif path.name not in VOCABULARIES:
        text = _header(path) if path.suffix == ".safetensors" else path.read_bytes()
        _check_settings(text.decode("utf-8", "replace"), str(path))


def check_rows(path: Path) -> None:
    """Raise a `UserError` that names row (from 0) and column if a Parquet file contains what looks like a secret.

    Every string in every column is searched, at any depth, and so are the names of columns and the file's metadata.
    """
    schema = read_schema(path)
    check_text("\n".join(_strings([schema.names, schema.metadata or {}])), f"{path}: metadata", ROW_HOME)
    # About 8 ms for a pair of 2,000 words.
    for number, row in enumerate(tqdm(read_rows(path), desc=f"search {path.name}", unit=" rows", delay=2)):
        for column, value in row.items():
            for text in _strings(value):
                check_text(text, f"{path}: row {number}, {column}", ROW_HOME)


def check_text(text: str, place: str, home: str = HOME) -> None:
    """Raise a `UserError` that names the line of a secret or of a path that matches `home`; a secret is not shown."""
    for name, find in _secrets():
        if (secret := find(text)) is not None:
            line = 1 + text.count("\n", 0, text.index(secret))
            raise UserError(f"{place}:{line}: contains what looks like {name}; remove it (and revoke it if it is real)")
    if match := re.search(home, text):
        line = 1 + text.count("\n", 0, match.start())
        raise UserError(f"{place}:{line}: names a folder of this machine, {match[0]}; write a hub id or a name")


def _check_settings(text: str, place: str) -> None:
    check_text(text, place)
    with contextlib.suppress(ValueError, RecursionError):
        # JSON may hide characters in escapes.
        check_text("\n".join(_strings(json.loads(text))), f"{place}, its texts")


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
def _secrets() -> Sequence[tuple[str, Finder]]:
    """The formats of secrets: a name, and a function that finds the first match."""
    classes: Mapping[str, Any] = get_mapping_from_secret_type_to_class()
    # Public IP addresses are not secret, and version numbers look like them.
    detectors = [each() for each in classes.values() if each is not IPPublicDetector]
    return [(name, functools.partial(_search, re.compile(pattern))) for name, pattern in FORMATS.items()] + [
        (f"a secret ({each.secret_type})", functools.partial(_detect, each))
        for each in detectors
        if isinstance(each, RegexBasedDetector)
    ]


def _search(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[0] if match else None


def _detect(detector: RegexBasedDetector, text: str) -> str | None:
    return next(iter(detector.analyze_string(text)), None)
