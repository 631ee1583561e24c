"""How much of what is needed to answer a question its note contains."""

from collections import Counter

from notewriter.evaluation.metrics.metric import Metric
from notewriter.ground.records import Question
from notewriter.ground.text import normalise

METRICS = (
    Metric("note_fact_recall", "Supporting facts in the note", "Share of the supporting facts' words in the note."),
    Metric("note_has_answer", "Gold answer in the note", "Share of notes that contain a gold answer word for word."),
    Metric("note_words", "Words in the note", "Length of the final note.", better=None, decimals=1, share=False),
)
"""What `note_quality` returns."""


def note_quality(note: str, question: Question) -> dict[str, float]:
    """Measure a note against a question's gold answers and supporting facts, without a model.

    Returns:
        `note_fact_recall`: the share, in [0, 1], of a supporting fact's SQuAD-normalised tokens (as a multiset) that
            occur in the note, averaged over the facts. Left out where no fact has a token.
        `note_has_answer`: 1.0 if a normalised gold answer occurs in the normalised note as whole words, else 0.0. Left
            out where no answer has a token.
        `note_words`: the length of the note in whitespace-separated words.

    Copying every passage maximises recall, so read it together with `note_words`.
    """
    quality = {}
    normalised = normalise(note)
    tokens = Counter(normalised.split())
    facts = [Counter(normalise(fact).split()) for fact in question.supporting_facts]
    recalls = [(fact & tokens).total() / fact.total() for fact in facts if fact]
    if recalls:
        quality["note_fact_recall"] = sum(recalls) / len(recalls)
    answers = [answer for answer in map(normalise, question.answers) if answer]
    if answers:
        quality["note_has_answer"] = float(any(f" {answer} " in f" {normalised} " for answer in answers))
    quality["note_words"] = float(len(note.split()))
    return quality
