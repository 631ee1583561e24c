"""The wording of fictional worlds, which wording.yaml holds: parts of names, relations, and sentences."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from notewriter.ground.yaml_files import load_yaml

_WORDING: dict[str, Any] = load_yaml(Path(__file__).with_name("wording.yaml").read_text(encoding="utf-8"))


def _words(name: str) -> list[str]:
    words: str = _WORDING[name]
    return words.split()


def _words_by_kind(name: str) -> dict[str, list[str]]:
    return {kind: words.split() for kind, words in _WORDING[name].items()}


class Relation(NamedTuple):
    """A relation of an entity: the sentences that state it and the questions that ask for its object.

    `phrases` refer to the object within a longer chain; they are empty if the object is a plain value, which can only
    end a chain.
    """

    sentences: Sequence[str]
    questions: Sequence[str]
    phrases: Sequence[str] = ()


ONSETS, VOWELS, LINKS, CODAS, TAILS = map(_words, ("onsets", "vowels", "links", "codas", "tails"))
TOWN_ENDINGS, REGION_ENDINGS = _words("town_endings"), _words("region_endings")
ADJECTIVES, TRADES = _words("adjectives"), _words("trades")
NOUNS, BUSINESSES = _words_by_kind("nouns"), _words_by_kind("businesses")

RELATIONS: dict[str, dict[str, Relation]] = {
    kind: {name: Relation(**wording) for name, wording in relations.items()}
    for kind, relations in _WORDING["relations"].items()
}
"""The relations per kind of entity; the first one opens its passage."""

FILLERS: dict[str, list[str]] = _WORDING["fillers"]
"""Sentences that fill up a passage; they mention other entities without answering any question."""

STARTS: dict[str, str] = _WORDING["starts"]
"""The kinds of entities that a question can start from, and how it refers to them."""
