"""Extractive notes: a model names sentences of the passages by the marks behind them, and the note is those sentences.

A mark stands behind its sentence, where a causal model has read all of it. Naming takes a few tokens for a whole note,
named sentences are copied without a mistake, and training changes only the choice of sentences.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase

from notewriter.ground.records import Passage
from notewriter.ground.text import sentences_in

_MARK = re.compile(r"\[([A-Z]+)\]")
_MARKS_ALONE = re.compile(r"(?:\W*\[[A-Z]+\])+\W*")


def marked(passages: Sequence[Passage]) -> list[Passage]:
    """The passages with a mark behind each sentence, `It rains. [A] It pours. [B]`, counted over all of them."""
    marks = _marks()
    return [
        replace(passage, text=" ".join(f"{sentence} [{next(marks)}]" for sentence in sentences_in(passage.text)))
        for passage in passages
    ]


def named_sentences(reply: str, passages: Sequence[Passage]) -> str:
    """The note of a reply: the sentences that it names, one a line, each once and in the reply's order.

    Marks behind no sentence are skipped. A reply in words is a note itself.
    """
    return _named(reply, dict(zip(_marks(), _sentences_of(passages), strict=False)))


def named_in(reply: str, prompt: str, titles: Collection[str] = ()) -> str:
    """As `named_sentences`, from the prompt instead of its passages.

    A first sentence keeps the title before it, unless this is one of `titles`.
    """
    # A title may begin with another one.
    known = "|".join(map(re.escape, sorted(titles, key=len, reverse=True)))
    title = re.compile(rf"\A(?:\[\d+\] )?(?:{known}): ")
    # Text and marks take turns in a line.
    lines = (_MARK.split(line) for line in prompt.split("\n"))
    pairs = (pair for line in lines for pair in zip(line[1::2], line[::2], strict=False))
    return _named(reply, {mark: title.sub("", sentence).strip() for mark, sentence in pairs})


def names_of(note: str, passages: Sequence[Passage]) -> str:
    """The reply that names the sentences of a note, in the note's order; empty if the passages have none of them.

    A sentence is named for any sentence of the note that it contains or lies in, as supporting facts are of other
    splitters.
    """
    sentences = list(zip(_marks(), _sentences_of(passages), strict=False))
    wanted = [sentence for line in note.split("\n") for sentence in sentences_in(line)]
    names = dict.fromkeys(
        mark for each in wanted for mark, sentence in sentences if each in sentence or sentence in each
    )
    return "".join(f"[{mark}]" for mark in names)


def _named(reply: str, sentences: Mapping[str, str]) -> str:
    if not _MARKS_ALONE.fullmatch(reply):
        return reply
    return "\n".join(sentences[mark] for mark in dict.fromkeys(_MARK.findall(reply)) if mark in sentences)


def _sentences_of(passages: Sequence[Passage]) -> list[str]:
    return [sentence for passage in passages for sentence in sentences_in(passage.text)]


def _marks() -> Iterator[str]:
    """A to Z, AA to AZ, BA and so on."""
    yield from ascii_uppercase
    for prefix in _marks():
        yield from (prefix + letter for letter in ascii_uppercase)
