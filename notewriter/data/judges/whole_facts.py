"""The judge `whole_facts`: notes are scored by the supporting facts that stand in them whole."""

from notewriter.data.gold_evidence import at_hand
from notewriter.data.judges.case import Case, Verdict, by_score, judge
from notewriter.evaluation.notes import whole_facts as share_of_whole_facts
from notewriter.ground.text import first_words, tokens


@judge("note", "updated note")
async def whole_facts(case: Case) -> Verdict:
    """Rank notes by the share of the facts at hand that stand word for word in their first `note_words` words.

    Without a model. `reference` pays for words that a note has in common with a fact, so for fragments too; this pays
    for whole facts alone (`evaluation.notes.whole_facts`), and for no answer. Where no fact lies among the passages or
    in the note so far, there is no pair.
    """
    facts = [fact for fact in at_hand(case.question, case.variables).supporting_facts if tokens(fact)]
    if not facts:
        return Verdict(alike=True, reason="no facts lie among the passages")
    words = case.rules.note_words
    return by_score(case, [share_of_whole_facts(first_words(note, words), facts) for note in case.candidates])
