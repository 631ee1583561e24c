"""A fitted note-writer without a language model: sentences ranked by a regression on countable features.

It is fitted on the questions of a finished run with supporting facts, so that a trained model is not set against fixed
rules alone. A model above this control has learnt more than position, overlap and names.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from notewriter.artifacts.reading import Artifact
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import first_words, sentences_in, spaced, tokens, words_in
from notewriter.retrieval.encoders import similarities

FEATURES = (
    "first passage", "second passage", "rank of the passage", "first sentence", "second sentence",
    "place in the passage", "overlap with the question", "overlap of the passage", "overlap of the title",
    "title in the sentence", "another title in the sentence", "this title in another passage",
    "new words", "names", "numbers", "length",
)  # fmt: skip
"""The features of a sentence, in the order of `features`."""

SIMILARITY = "similarity to the question"
"""The last feature, with an encoder: the similarity to the question of the sentence with its title before it."""


@dataclass(frozen=True)
class Regression:
    """A fitted ranking of sentences.

    Attributes:
        weights: of features, by name.
        questions: the ids that it was fitted on, for which it writes no note.
        encoder: a sentence encoder, whose `SIMILARITY` is one of the features.
        margin: how far below the best one's score that of a third or further sentence may lie (`with_margin`); None:
            any distance, and the last sentence is cut at the number of words.
    """

    weights: dict[str, float]
    questions: list[str]
    encoder: str | None = None
    margin: float | None = None

    def write(self, question: Question, passages: Sequence[Passage], words: int | None) -> str:
        """The sentences that it ranks highest, those first, cut at a number of words.

        With a `margin` whole ones alone: it passes over a sentence that does not fit into the words left, and writes a
        third or further one only within the margin. A first sentence that is longer than all words is cut.

        Raises:
            UserError: it was fitted on the question, or its encoder cannot be loaded.
        """
        if question.id in self.questions:
            raise UserError(f"regression: was fitted on question {question.id!r}; evaluate it on other questions")
        sentences, scores = self.ranked(question, passages)
        if self.margin is None:
            return first_words(" ".join(sentences), words)
        taken, left = [], math.inf if words is None else words
        for sentence in sentences[: within(scores, self.margin)]:
            if (size := len(words_in(sentence))) <= left:
                taken.append(sentence)
                left -= size
        return " ".join(taken) or first_words(" ".join(sentences[:1]), words)

    def ranked(self, question: Question, passages: Sequence[Passage]) -> tuple[list[str], list[float]]:
        """The sentences of passages with their scores, the highest first."""
        sentences, table = features(question, passages, self.encoder)
        weights = [self.weights.get(name, 0.0) for name in names_of(self.encoder)]
        scores = [math.fsum(weight * value for weight, value in zip(weights, row, strict=True)) for row in table]
        order = sorted(range(len(sentences)), key=lambda place: -scores[place])
        return [sentences[place] for place in order], [scores[place] for place in order]


AT_LEAST = 2
"""Sentences that are written whatever their scores: questions of several hops need as many."""


def within(scores: Sequence[float], margin: float) -> int:
    """The number of sentences to write, given their scores from the highest on: two, and those within the margin."""
    return max(min(AT_LEAST, len(scores)), sum(scores[0] - each <= margin for each in scores))


def names_of(encoder: str | None) -> tuple[str, ...]:
    """The features that `features` gives, with an encoder or without."""
    return (*FEATURES, SIMILARITY) if encoder else FEATURES


def features(
    question: Question, passages: Sequence[Passage], encoder: str | None = None
) -> tuple[list[str], list[list[float]]]:
    """The sentences of passages, and a row of features for each (`names_of`).

    Overlaps are shares of the question's words, each by its rarity among the sentences, log(1 + sentences / sentences
    with it); words are compared as tokens (`ground.text.tokens`).
    """
    texts = [sentences_in(passage.text) for passage in passages]
    found = [[set(tokens(sentence)) for sentence in each] for each in texts]
    count = sum(map(len, found))
    frequency = Counter(token for each in found for words in each for token in words)
    asked = set(tokens(question.question))
    rarity = {token: math.log1p(count / max(1, frequency[token])) for token in sorted(asked)}
    total = math.fsum(rarity.values()) or 1.0

    def overlap(words: Iterable[str]) -> float:
        return math.fsum(rarity[token] for token in asked.intersection(words)) / total

    titles = [spaced(passage.title.partition(" (")[0]) for passage in passages]
    whole = [spaced(passage.text) for passage in passages]
    table = []
    for rank, (sentences, title) in enumerate(zip(texts, titles, strict=True)):
        others = [other for other in titles if other.strip() and other != title]
        mentioned = any(title in text for place, text in enumerate(whole) if place != rank) and bool(title.strip())
        for place, sentence in enumerate(sentences):
            words, text = found[rank][place], spaced(sentence)
            seen = set[str]().union(*found[rank][:place], asked, title.split())
            written = words_in(sentence)
            row = [
                rank == 0, rank == 1, 1 / (1 + rank), place == 0, place == 1, 1 / (1 + place),
                overlap(words), overlap(whole[rank].split()), overlap(title.split()),
                bool(title.strip()) and title in text, any(other in text for other in others), mentioned,
                len(words - seen) / max(1, len(words)),
                sum(word[:1].isupper() for word in written[1:]) / len(written),
                any(map(str.isdigit, sentence)),
                math.log1p(len(written)),
            ]  # fmt: skip
            table.append([float(value) for value in row])
    sentences = [sentence for each in texts for sentence in each]
    if encoder:
        titled = [f"{passage.title}: {each}" for passage, own in zip(passages, texts, strict=True) for each in own]
        near = similarities(question.question, titled, encoder)
        table = [[*row, value] for row, value in zip(table, near, strict=True)]
    return sentences, table


def fitted(read: Iterable[tuple[Question, Sequence[Passage]]], encoder: str | None = None) -> Regression:
    """Fit on questions with supporting facts: a logistic regression of evidence against the other sentences of each.

    A sentence is evidence if a supporting fact contains it or lies in it. Questions whose passages have no evidence, or
    nothing else, teach nothing.

    Raises:
        UserError: none of the questions teaches anything, or the encoder cannot be loaded.
    """
    # Only fitting needs it, and evaluations start sooner without.
    import numpy as np

    from notewriter.rollouts.shortcuts import preferences

    names = names_of(encoder)
    rows, questions = [], []
    for question, passages in read:
        questions.append(question.id)
        sentences, seen = features(question, passages, encoder)
        is_evidence = _evidence(question, sentences)
        values = np.asarray(seen, dtype=np.float64).reshape(len(seen), len(names))
        evidence, rest = values[is_evidence], values[np.logical_not(is_evidence)]
        rows.append((evidence[:, None] - rest[None, :]).reshape(-1, len(names)))
    table = np.concatenate([np.zeros((0, len(names))), *rows])
    if not len(table):
        raise UserError("no question has evidence among its passages and other sentences; give a run with both")
    scale = np.sqrt((table**2).mean(axis=0))
    scale[scale == 0] = 1.0
    weights = preferences(table / scale) / scale
    return Regression(dict(zip(names, weights.tolist(), strict=True)), questions, encoder)


def _evidence(question: Question, sentences: Sequence[str]) -> list[bool]:
    """Which sentences contain a supporting fact or lie in one."""
    facts = ["".join(fact.split()) for fact in question.supporting_facts]
    bare = ["".join(sentence.split()) for sentence in sentences]
    return [any(fact in each or each in fact for fact in facts if fact) for each in bare]


def with_margin(regression: Regression, read: Iterable[tuple[Question, Sequence[Passage]]]) -> Regression:
    """The regression with the margin that is best on questions which it was not fitted on.

    Best is the highest mean F1 of the sentences written against those with evidence, the F1 that HotpotQA scores
    supporting facts with; of equal ones the smallest. Questions without evidence among their passages tell nothing.

    Raises:
        UserError: it was fitted on one of the questions, or none of them tells anything.
    """
    found = []
    for question, passages in read:
        if question.id in regression.questions:
            raise UserError(
                f"choose_on: the regression is fitted on question {question.id!r}; give runs over other questions"
            )
        sentences, scores = regression.ranked(question, passages)
        is_evidence = _evidence(question, sentences)
        if count := sum(is_evidence):
            f1 = [2 * sum(is_evidence[:size]) / (size + count) for size in range(len(sentences) + 1)]
            found.append((scores, f1))
    if not found:
        raise UserError("choose_on: no question has evidence among its passages; give a run with some")

    def mean(margin: float) -> float:
        return math.fsum(f1[within(scores, margin)] for scores, f1 in found) / len(found)

    margins = sorted({0.0, *(scores[0] - each for scores, _ in found for each in scores[AT_LEAST:])})
    return replace(regression, margin=max(margins, key=mean))


FITTED = Artifact(Regression, "notewriter/regression/1", "fit it with `notewriter fit-control`")
