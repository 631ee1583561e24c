"""Notes without a model: text of the retrieved passages, chosen by a rule, as a baseline for a model's notes.

Longer notes contain more, whoever wrote them, so a control has a budget of words.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from notewriter.artifacts.traces import Retrieval, read_traces
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import first_words, paragraphs, places_of, sentences_in, tokens, words_in
from notewriter.models.client import RequestRefused
from notewriter.models.roles import ControlSettings, ModelArguments, control_settings
from notewriter.models.thoughts import after_thinking
from notewriter.retrieval import encoders
from notewriter.rollouts.extraction import named_in
from notewriter.rollouts.method import Stage
from notewriter.rollouts.parsing import parse_note
from notewriter.rollouts.regression import FITTED

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
"""The sentence encoder of `similar`, unless another one is given: a folder or hub id."""

Write = Callable[[Question, Sequence[Passage], int | None], str]
"""Writes a note from passages for a question, cut at a number of words if it is not None."""


class ControlRule(NamedTuple):
    """A rule for notes: its description, and the function that applies it."""

    sentence: str
    write: Write


def lead(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """The first sentence of each passage, best passage first, then the second of each, and so on.

    Of a page in Markdown neither headings nor rows of tables, with which most pages of Wikipedia begin.
    """
    return _cut(first_sentences(passages), words)


def first_sentences(passages: Sequence[Passage]) -> list[str]:
    """The sentences in the order of `lead`."""
    rows = zip_longest(*(paragraphs(_sentences_of(passage.text)) for passage in passages), fillvalue="")
    return [sentence for row in rows for sentence in row if sentence]


def first(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """The sentences of the first passage in their order."""
    return in_order(question, passages[:1], words)


def in_order(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """All passages, one after the other."""
    return _cut([passage.text for passage in passages], words)


def overlap(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """The sentences that share most words with the question, those first."""
    return _cut(_by_overlap(question, passages), words)


def _by_overlap(question: Question, passages: Sequence[Passage]) -> list[str]:
    """The sentences of the passages, those that share most words with the question first.

    A shared word counts by its rarity among the sentences at hand, log(1 + sentences / sentences with it). Words are
    compared as tokens (`ground.text.tokens`); equal sentences stay in the order of the passages.
    """
    sentences = _sentences(passages)
    asked = set(tokens(question.question))
    shared = [asked.intersection(tokens(sentence)) for sentence in sentences]
    frequency = Counter(token for each in shared for token in each)
    # Summed in one order, so that sentences with the same words tie.
    scores = [sum(math.log1p(len(shared) / frequency[token]) for token in sorted(each)) for each in shared]
    return _ranked(sentences, scores)


def hard_negative(question: Question, passages: Sequence[Passage], words: int | None, number: int = 0) -> str:
    """The mistakes of `overlap`: its best sentences without a supporting fact, as many as there are facts at hand.

    With `number` 1 the note has the next best sentences, and so on. Each passage has a line, as in the gold evidence's
    note, so that the form does not tell the two apart. Like that note, it is filled up to `words` with first sentences,
    but with those without a fact.
    """
    facts = ["".join(fact.split()) for fact in facts_among(question, passages)]

    def holds_fact(sentence: str) -> bool:
        bare = "".join(sentence.split())
        return any(fact in bare or bare in fact for fact in facts)

    wrong = [each for each in _by_overlap(question, passages) if not holds_fact(each)]
    taken = wrong[number * len(facts) : (number + 1) * len(facts)]
    lines = [" ".join(each for each in _sentences_of(passage.text) if each in taken) for passage in passages]
    note = _cut(lines, words, "\n")
    if words is None or not note:
        return note
    others = [each for each in first_sentences(passages) if not holds_fact(each)]
    return "\n".join(with_more(note.split("\n"), others, words))


def with_more(lines: Sequence[str], sentences: Iterable[str], words: int) -> list[str]:
    """Lines, and then the sentences that are not among them, as long as whole ones fit within a number of words."""
    written = list(lines)
    left = words - sum(len(words_in(line)) for line in written)
    for sentence in sentences:
        size = len(words_in(sentence))
        if size <= left and not any(sentence in line or line in sentence for line in written):
            written.append(sentence)
            left -= size
    return written


def similar(question: Question, passages: Sequence[Passage], words: int | None, encoder: str = ENCODER) -> str:
    """The sentences nearest to the question by a sentence encoder (cosine), those first.

    Raises:
        UserError: sentence-transformers is not installed (the extra `dense`), or the encoder cannot be loaded.
    """
    sentences = _sentences(passages)
    return _cut(_ranked(sentences, encoders.similarities(question.question, sentences, encoder)), words)


def drawn(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """All sentences in a random order, the same one for the same question id and passages."""
    sentences = _sentences(passages)
    random.Random(question.id).shuffle(sentences)
    return _cut(sentences, words)


def gold(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """The question's supporting facts among the passages: the most that can be copied from them."""
    return _cut(facts_among(question, passages), words)


def facts_among(question: Question, passages: Sequence[Passage]) -> list[str]:
    """The supporting facts that stand in passages, white space aside: the most that a note can copy of them."""
    facts = question.supporting_facts
    return [facts[place] for place in places_of(facts, [passage.text for passage in passages])]


def empty(question: Question, passages: Sequence[Passage], words: int | None) -> str:
    """An empty note."""
    return ""


CONTROLS: dict[str, ControlRule] = {
    "lead": ControlRule("the first sentence of each passage, then the second of each, and so on", lead),
    "first": ControlRule("the sentences of the first passage in their order", first),
    "overlap": ControlRule("the sentences that share most words with the question", overlap),
    "similar": ControlRule("the sentences nearest to the question by a sentence encoder", similar),
    "random": ControlRule("sentences of the passages in a random order", drawn),
    "passages": ControlRule("the passages, one after the other", in_order),
    "gold": ControlRule("the supporting facts that lie among the passages: the ceiling", gold),
    "hard_negative": ControlRule(
        "sentences that share words with the question and hold no supporting fact", hard_negative
    ),
    "empty": ControlRule("nothing", empty),
}
"""The controls by name; `gold` and `hard_negative` read the annotation, the others what a model reads."""

REGRESSION = "regression"
"""The control that is fitted (`notewriter fit-control`): sentences ranked by features that can be counted."""

REPLAY = "replay"
"""The control that is no rule: it repeats the notes of a finished run, for another reader."""

Replies = Mapping[tuple[str, str], Sequence[str]]
"""The texts of a finished run, in order: (question id, stage) -> texts."""


@dataclass(frozen=True)
class Control:
    """A control in the place of a model.

    Args:
        write: the rule.
        words: the words of a note at most, None for as many as there are; or what a finished run wrote, for as many
            words as its replies at the same stage, one by one, to the same question have.
        others: the controls of the further candidates that it gives a prompt of `pairs`.
    """

    write: Write
    words: int | Replies | None = None
    others: Sequence["Control"] = ()

    def reply(self, stage: Stage, question: Question, passages: Sequence[Passage], number: int) -> str:
        """The reply at a stage, in the stage's form; `number` counts its earlier replies there."""
        note = self.write(question, passages, self._budget(stage, question, number))
        return (f"YES#{note}" if note else "NO#") if stage.kind == "document note" else note

    def _budget(self, stage: Stage, question: Question, number: int) -> int | None:
        """Words of the run's reply with this number, or of its last one; without any, the mean over its questions."""
        if not isinstance(self.words, Mapping):
            return self.words
        if own := self.words.get((question.id, stage.name)):
            return _words_of(stage, own[min(number, len(own) - 1)])
        replies = [reply for (_, name), each in self.words.items() if name == stage.name for reply in each]
        if not replies:
            raise UserError(f"models: {stage.role}: words: the run has no {stage.name}; name a run of the same method")
        return round(fmean(_words_of(stage, reply) for reply in replies))


class Replay(Control):
    """A finished run in place of a model: its replies at the same stage to the same question, one by one."""

    def reply(self, stage: Stage, question: Question, passages: Sequence[Passage], number: int) -> str:
        """The reply of the run's model there; its last one if it has fewer.

        Raises:
            RequestRefused: the run has no reply at this stage to this question, for example after an error.
            UserError: it has no such stage.
        """
        assert isinstance(self.words, Mapping)
        if own := self.words.get((question.id, stage.name)):
            return after_thinking(own[min(number, len(own) - 1)]).strip()
        if stage.name not in {name for _, name in self.words}:
            raise UserError(f"models: {stage.role}: words: the run has no {stage.name}; name a run of the same method")
        raise RequestRefused(f"the run whose notes are read again has no {stage.name} for this question")


def controls_of(arguments: ModelArguments) -> dict[str, Control]:
    """The controls that play roles.

    Raises:
        UserError: there is no such control, or no such run.
    """
    return {role: _control(f"models: {role}", settings) for role, settings in control_settings(arguments).items()}


def _control(place: str, settings: ControlSettings) -> Control:
    choose(f"control in {place}", settings.control, dict.fromkeys((*CONTROLS, REGRESSION, REPLAY)))
    if settings.control == REPLAY:
        if not isinstance(settings.words, str):
            raise UserError(f"{place}: words: {REPLAY} reads the notes of a finished run; give its folder")
        return Replay(empty, _replies_in(Path(settings.words)))
    write: Write
    if settings.control == REGRESSION:
        if not settings.weights:
            raise UserError(
                f"{place}: weights: the control {REGRESSION} needs a file of weights; give the one that `notewriter "
                "fit-control` wrote"
            )
        write = FITTED.read(Path(settings.weights)).write
    else:
        write = CONTROLS[settings.control].write
    if settings.encoder:
        if write is not similar:
            raise UserError(f"{place}: encoder: only the control similar has one; remove it")
        write = partial(similar, encoder=settings.encoder)
    if settings.weights and settings.control != REGRESSION:
        raise UserError(f"{place}: weights: only the control {REGRESSION} has them; remove them")
    if settings.candidates > 1 and write is not hard_negative:
        raise UserError(f"{place}: candidates: only the control hard_negative writes several; remove it")
    words = _replies_in(Path(settings.words)) if isinstance(settings.words, str) else settings.words
    others = [Control(partial(hard_negative, number=number), words) for number in range(1, settings.candidates)]
    return Control(write, words, others)


def _replies_in(run: Path) -> Replies:
    replies = defaultdict(list)
    for trace in read_traces(run / "traces.jsonl"):
        searches = [step for step in trace.steps if isinstance(step, Retrieval)]
        titles = {passage["title"] for search in searches for passage in search.passages}
        for step in trace.steps:
            if not isinstance(step, Retrieval) and step.role == "notes":
                # An extractive note is marks of sentences in its prompt.
                note = named_in(after_thinking(step.text), step.messages[-1]["content"], titles)
                replies[trace.question_id, step.stage].append(note)
    return dict(replies)


def _words_of(stage: Stage, reply: str) -> int:
    reply = after_thinking(reply)
    return len(words_in((parse_note(reply) or "") if stage.kind == "document note" else reply))


def _sentences(passages: Sequence[Passage]) -> list[str]:
    return [sentence for passage in passages for sentence in _sentences_of(passage.text)]


@lru_cache(maxsize=128)
def _sentences_of(text: str) -> tuple[str, ...]:
    # Several controls read the same pages, and splitting a long one takes most of their time.
    return tuple(sentences_in(text))


def _ranked(sentences: Sequence[str], scores: Sequence[float]) -> list[str]:
    """The sentences, those with the highest score first; equal ones in their order."""
    return [sentences[index] for index in sorted(range(len(sentences)), key=lambda index: -scores[index])]


def _cut(sentences: Sequence[str], words: int | None, between: str = " ") -> str:
    """The sentences, up to a number of words if it is not None."""
    kept: list[str] = []
    left = words
    for sentence in sentences:
        part = first_words(sentence, left)
        left = None if left is None else left - len(words_in(part))
        kept += [part] if part else []
    return between.join(kept)
