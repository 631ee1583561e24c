"""How much of what is needed to answer a question its note contains, in all and at equal words."""

import functools
import re
from collections import Counter

from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.records import Question
from notewriter.ground.text import first_words, holds, tokens, words_in

_LINES = re.compile(r"(?<!\S)[|:+-]*\|[|:+-]*(?!\S)")
"""What stands for the lines of a table, between white space."""

FACTS, ANSWER, WORDS, DENSITY = "note_fact_recall", "note_has_answer", "note_words", "note_density"

EQUAL_WORDS = 40
"""Words within which the notes of all runs are compared."""

BUDGETS = (20, EQUAL_WORDS, 80)
"""Words within which `worth` shows them."""

METRICS = (
    Metric(FACTS, "Supporting facts in the note", "Share of the supporting facts' words in the note."),
    Metric(ANSWER, "Gold answer in the note", "Share of notes that contain a gold answer word for word."),
    Metric(WORDS, "Words in the note", "Length of the final note.", better=None, decimals=1, share=False),
    *(
        Metric(f"{name}_{words}", f"{label} within {words} words", "Of the note's first words alone.")
        for name, label in ((FACTS, "Supporting facts"), (ANSWER, "Gold answer"))
        for words in BUDGETS
    ),
    Metric(DENSITY, "Density of the note", "Share of the note's words that are words of the supporting facts."),
)
"""What `note_worth` returns."""


def note_quality(note: str, question: Question) -> dict[str, float]:
    """Measure a note against a question's gold answers and supporting facts, without a model.

    Returns:
        `note_fact_recall`: the share, in [0, 1], of a supporting fact's tokens (`ground.text.tokens`, as a multiset)
            that occur in the note, averaged over the facts. Left out where no fact has a token.
        `note_has_answer`: 1.0 if the tokens of a gold answer occur in a row in the note, else 0.0. Left out where no
            answer has a token.
        `note_words`: the length of the note in words (`ground.text.words_in`), without the lines of a table.

    Copying every passage maximises recall, so read it together with `note_words`, or at equal words (`note_scores`, and
    `notewriter.evaluation.controls` for notes without a model of as many words).
    """
    quality = {}
    written = Counter(tokens(note))
    recalls = [(fact & written).total() / fact.total() for fact in _facts(question.supporting_facts)]
    if recalls:
        quality[FACTS] = sum(recalls) / len(recalls)
    answers = [answer for answer in question.answers if tokens(answer)]
    if answers:
        quality[ANSWER] = float(any(holds(note, answer) for answer in answers))
    quality[WORDS] = float(len(words_in(_without_lines(note))))
    return quality


def note_scores(note: str, question: Question) -> dict[str, float]:
    """What a run tells of a note: `note_quality`, of its first 40 words too (`note_fact_recall_40`, ...)."""
    return note_quality(note, question) | _within(note, question, EQUAL_WORDS)


def note_worth(note: str, question: Question) -> dict[str, float]:
    """`note_quality` of a note and of its first 20, 40 and 80 words, and its density.

    `note_density` is the share of the note's tokens that belong to a supporting fact, each token of the
    facts used once; 0 for an empty note, left out where no fact has a token.
    """
    scores = note_quality(note, question)
    for words in BUDGETS:
        scores |= _within(note, question, words)
    if facts := _facts(question.supporting_facts):
        written = Counter(tokens(note))
        evidence = sum(facts, Counter())
        scores[DENSITY] = (written & evidence).total() / max(1, written.total())
    return scores


def _within(note: str, question: Question, words: int) -> dict[str, float]:
    quality = note_quality(first_words(_without_lines(note), words), question)
    return {f"{name}_{words}": quality[name] for name in (FACTS, ANSWER) if name in quality}


def _without_lines(note: str) -> str:
    """A note without the lines of its tables (`|`, `|---|`), which nobody reads as words."""
    return _LINES.sub("", note) if "|" in note else note


@functools.lru_cache(maxsize=1024)
def _facts(facts: tuple[str, ...]) -> list[Counter[str]]:
    """The tokens of each supporting fact that has any; remembered for the question's other notes."""
    return [counted for fact in facts if (counted := Counter(tokens(fact)))]
