"""The share of the needed facts in a question's note, in all and at equal words."""

import functools
import re
from collections import Counter
from collections.abc import Sequence

from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.records import Passage, Question
from notewriter.ground.text import first_words, holds, sentences_in, spaced, tokens, words_in

_LINES = re.compile(r"(?<!\S)[|:+-]*\|[|:+-]*(?!\S)")
"""The mark that replaces the lines of a table, between white space."""

FACTS, ANSWER, WORDS, DENSITY = "note_fact_recall", "note_has_answer", "note_words", "note_density"

EQUAL_WORDS = 40
"""Words within which the notes of all runs are compared."""

BUDGETS = (20, EQUAL_WORDS, 80)
"""Words within which `worth` shows them."""

WHOLE_FACTS, STANDS_ALONE, NAMED = f"note_whole_facts_{EQUAL_WORDS}", "note_stands_alone", "note_named_sentences"

PRONOUNS = {"he", "she", "it", "they", "his", "her", "its", "their", "this", "that", "these", "those"}
"""Words of the third person, and those that point: a sentence that begins with one does not name its subject."""

METRICS = (
    Metric(FACTS, "Supporting facts in the note", "Share of the supporting facts' words in the note."),
    Metric(ANSWER, "Gold answer in the note", "Share of notes that contain a gold answer word for word."),
    Metric(WORDS, "Words in the note", "Length of the final note.", better=None, decimals=1, share=False),
    *(
        Metric(f"{name}_{words}", f"{label} within {words} words", "Of the note's first words alone.")
        for name, label in ((FACTS, "Supporting facts"), (ANSWER, "Gold answer"))
        for words in BUDGETS
    ),
    Metric(
        WHOLE_FACTS,
        f"Whole facts within {EQUAL_WORDS} words",
        "Share of the supporting facts among the passages that stand word for word in the note's first words.",
    ),
    Metric(DENSITY, "Density of the note", "Share of the note's words that are words of the supporting facts."),
)
"""The metrics that `note_worth` returns."""

NAMES = (
    Metric(STANDS_ALONE, "Notes that stand alone", "Share of notes whose first sentence names its subject."),
    Metric(NAMED, "Sentences that stand alone", "Share of the note's sentences that name their subject."),
)
"""The metrics that `names_subjects` returns."""


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


def note_scores(note: str, question: Question, at_hand: Sequence[str] = ()) -> dict[str, float]:
    """The scores of a run's note: `note_quality`, and that of its first 40 words (`note_fact_recall_40`, ...).

    Args:
        note: the note.
        question: the question.
        at_hand: the supporting facts that lie among the passages (`whole_facts`).
    """
    scores = note_quality(note, question) | _within(note, question, EQUAL_WORDS)
    if facts := [fact for fact in at_hand if tokens(fact)]:
        scores[WHOLE_FACTS] = whole_facts(_first(note, EQUAL_WORDS), facts)
    return scores


def note_worth(note: str, question: Question, at_hand: Sequence[str] = ()) -> dict[str, float]:
    """`note_scores` of a note, of its first 20 and 80 words too, and its density.

    `note_density` is the share of the note's tokens that belong to a supporting fact, each token of the
    facts used once; 0 for an empty note, left out where no fact has a token.
    """
    scores = note_scores(note, question, at_hand)
    for words in BUDGETS:
        scores |= _within(note, question, words)
    if facts := _facts(question.supporting_facts):
        written = Counter(tokens(note))
        evidence = sum(facts, Counter())
        scores[DENSITY] = (written & evidence).total() / max(1, written.total())
    return scores


def whole_facts(note: str, at_hand: Sequence[str]) -> float:
    """The share of facts that stand in a note word for word, in [0, 1]: their tokens in a row (`ground.text.holds`).

    Case, punctuation, articles and white space do not count. A share of words (`note_fact_recall`) pays for fragments,
    and for names that facts and other sentences have in common; this pays for neither.

    Args:
        note: the note, cut where it is to be.
        at_hand: the facts that a note could have copied; at least one.
    """
    return sum(holds(note, fact) for fact in at_hand) / len(at_hand)


def names_subjects(note: str, passages: Sequence[Passage]) -> dict[str, float]:
    """Whether a note can be read without its passages: whether its sentences name their subjects.

    A sentence names its subject if its first word is no pronoun (`PRONOUNS`) or if it begins with the title of its
    passage. It also does if an earlier sentence of that passage in the note does. Sentences that are in no passage,
    such as a model's own words, count as sentences of one passage. The measure misses a pronoun after other words ("In
    1990 he"), an earlier sentence of the passage that is about something else, and a thing without its name ("the
    film").

    Returns:
        `note_stands_alone`: 1.0 if the first sentence names its subject, else 0.0.
        `note_named_sentences`: the share of the sentences that do. Both are left out for a note without words.
    """
    sentences = [each for each in sentences_in(note) if tokens(each)]
    if not sentences:
        return {}
    texts = ["".join(passage.text.split()) for passage in passages]
    sources = [next((at for at, text in enumerate(texts) if "".join(each.split()) in text), None) for each in sentences]
    titles = [spaced(passages[at].title.partition(" (")[0]) if at is not None else "" for at in sources]
    begins = [
        tokens(sentence)[0] not in PRONOUNS or bool(title.strip() and spaced(sentence).startswith(title))
        for sentence, title in zip(sentences, titles, strict=True)
    ]
    # The first sentence of each passage that names something.
    named = {source: place for place, source in reversed([*enumerate(sources)]) if begins[place]}
    found = [float(place >= named.get(source, len(sources))) for place, source in enumerate(sources)]
    return {STANDS_ALONE: found[0], NAMED: sum(found) / len(found)}


def _first(note: str, words: int) -> str:
    """The first words of a note, without the marks that draw its tables."""
    return first_words(_without_lines(note), words)


def _within(note: str, question: Question, words: int) -> dict[str, float]:
    quality = note_quality(_first(note, words), question)
    return {f"{name}_{words}": quality[name] for name in (FACTS, ANSWER) if name in quality}


def _without_lines(note: str) -> str:
    """A note without the lines of its tables (`|`, `|---|`), which are no words."""
    return _LINES.sub("", note) if "|" in note else note


@functools.lru_cache(maxsize=1024)
def _facts(facts: tuple[str, ...]) -> list[Counter[str]]:
    """The tokens of each supporting fact that has any; remembered for the question's other notes."""
    return [counted for fact in facts if (counted := Counter(tokens(fact)))]
