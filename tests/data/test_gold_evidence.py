from dataclasses import replace
from typing import get_args

import pytest

from notewriter.data.gold_evidence import (
    WRITERS,
    at_hand,
    document_note_score,
    gold_answer,
    gold_document_note,
    gold_note,
    gold_query,
    gold_status,
    is_better,
    reference_score,
    written,
)
from notewriter.ground.records import Passage, Question
from notewriter.methods import METHODS
from notewriter.rollouts.method import Kind
from notewriter.rollouts.parsing import parse_status
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.rehearsal import Rehearsal
from notewriter.rollouts.rollout import Rollout

MOTHER = "Osk's mother is Mira."
BIRTH = "Mira was born in Tolen."
QUESTION = Question("q1", "Where was the mother of Osk born?", ("Tolen",), ("p1", "p2"), (MOTHER, BIRTH))
OSK = Passage("p1", "Osk", f"Osk keeps a bridge. {MOTHER}")
MIRA = Passage("p2", "Mira", f"{BIRTH} She sings.")
RIVER = Passage("p3", "Bore", "The Bore is a river.")


async def search(query, top_k):
    """An index that ranks by shared words."""
    words = set(query.split())
    return sorted([RIVER, OSK, MIRA], key=lambda passage: -len(words & set(passage.text.split())))[:top_k]


async def test_the_gold_note_has_the_facts_at_hand_verbatim_and_no_others():
    assert await gold_note(QUESTION, {"passages": [RIVER, OSK, MIRA]}, search) == f"{MOTHER}\n{BIRTH}"
    assert await gold_note(QUESTION, {"passages": [OSK]}, search) == MOTHER
    assert await gold_note(QUESTION, {"passages": [RIVER]}, search) is None


async def test_a_gold_note_goes_on_with_whole_first_sentences_within_its_words():
    variables = {"passages": [RIVER, OSK, MIRA]}
    assert await written("note", QUESTION, variables, search) == f"{MOTHER}\n{BIRTH}"
    # The fact of Mira's passage is its first sentence.
    most = await written("note", QUESTION, variables, search, 20)
    assert most == f"{MOTHER}\n{BIRTH}\nThe Bore is a river.\nOsk keeps a bridge.\nShe sings."
    # A sentence that does not fit makes room for a shorter one.
    most = await written("note", QUESTION, variables, search, 16)
    assert most == f"{MOTHER}\n{BIRTH}\nThe Bore is a river.\nShe sings."
    assert await written("note", QUESTION, {"passages": [RIVER]}, search, 20) is None
    query = await written("query", QUESTION, {"note": MOTHER, **variables}, search, 40)
    assert query == await gold_query(QUESTION, {"note": MOTHER, **variables}, search)


async def test_the_gold_note_keeps_the_facts_of_the_note_so_far():
    assert await gold_note(QUESTION, {"note": f"Note: {MOTHER}", "passages": [MIRA]}, search) == f"{MOTHER}\n{BIRTH}"


async def test_the_gold_note_is_written_in_paragraphs_one_for_each_passage_as_the_prompts_ask():
    song = "She sings."
    question = Question("q1", "Who sings?", ("Mira",), ("p1", "p2"), (BIRTH, MOTHER, song))
    first = await gold_note(question, {"passages": [OSK, MIRA]}, search)
    assert first == f"{BIRTH} {song}\n{MOTHER}"
    # An updated note keeps the paragraphs of the one before.
    alone = await gold_note(question, {"passages": [MIRA]}, search)
    assert await gold_note(question, {"note": alone, "passages": [OSK]}, search) == first


async def test_the_gold_query_names_the_title_of_the_passage_with_the_first_missing_fact():
    query = await gold_query(QUESTION, {"note": MOTHER, "queries": []}, search)
    assert query == "What is known about Mira?"


async def test_a_gold_query_that_was_asked_already_is_not_repeated():
    variables = {"note": "Osk and Mira are people.", "queries": ["What is known about Osk?"]}
    assert await gold_query(QUESTION, variables, search) == "What is known about Mira?"
    variables["queries"].append("What is known about Mira?")
    assert await gold_query(QUESTION, variables, search) is None


async def test_a_gold_query_that_stands_in_the_note_already_is_not_repeated():
    """As in ReSP, whose note has the questions that were asked."""
    note = "What is known about Osk? Not found.\nMira sings."
    assert await gold_query(QUESTION, {"note": note}, search) == "What is known about Mira?"


@pytest.mark.parametrize("note", [f"{MOTHER} {BIRTH}", "Nothing is known.", "Osk keeps a bridge."])
async def test_there_is_no_gold_query_if_nothing_is_missing_or_the_title_is_unknown(note):
    expected = "What is known about Osk?" if "Osk" in note and MOTHER not in note else None
    assert await gold_query(QUESTION, {"note": note, "queries": []}, search) == expected


async def test_a_passage_without_a_title_has_no_gold_query():
    async def untitled(query, top_k):
        return [Passage("p2", "", BIRTH)]

    assert await gold_query(QUESTION, {"note": MOTHER, "queries": []}, untitled) is None


async def test_the_gold_decision_is_one_that_deepnote_reads():
    for best_note, new_note, better in (("", MOTHER, True), (MOTHER, "No idea.", False), (MOTHER, MOTHER, False)):
        reply = await gold_status(QUESTION, {"best_note": best_note, "new_note": new_note}, search)
        assert parse_status(reply) is better is is_better(QUESTION, best_note, new_note)


async def test_there_is_no_gold_decision_where_no_evidence_is_known():
    unknown = Question("q", "Was Osk born in Tolen?", ("yes",))
    assert await gold_status(unknown, {"best_note": "", "new_note": MOTHER}, search) is None
    assert is_better(unknown, "", MOTHER) is None


async def test_the_gold_answer_is_the_first_and_never_empty():
    assert await gold_answer(Question("q", "Where?", ("Tolen", "Tolen town")), {}, search) == "Tolen"
    assert await gold_answer(Question("q", "Where?", (" ",)), {}, search) is None


def test_gold_evidence_is_known_of_every_kind_but_a_step():
    assert set(WRITERS) == set(get_args(Kind)) - {"step"}


def test_the_reference_score_is_the_mean_of_evidence_and_answer():
    assert reference_score(f"{MOTHER} {BIRTH}", QUESTION) == 1
    assert reference_score("", QUESTION) == 0
    # Words beyond the budget count neither for nor against a note.
    assert reference_score(f"{MOTHER} {BIRTH}", QUESTION, words=4) == reference_score(MOTHER, QUESTION, words=4)
    assert reference_score(f"{MOTHER} {BIRTH} The Bore is a river.", QUESTION, words=9) == 1
    # The answer is there, and with it one of the facts' nine tokens: F1 is 2 / (1 + 9).
    assert reference_score("Tolen", QUESTION) == pytest.approx((0.2 + 1) / 2)


def test_only_what_lies_among_the_passages_or_in_the_note_so_far_counts():
    whole = f"{MOTHER} {BIRTH}"
    known = at_hand(QUESTION, {"passages": [OSK, RIVER]})
    assert (known.supporting_facts, known.answers) == ((MOTHER,), ())
    # What was not retrieved is not missing, and a right guess is not paid.
    assert reference_score(MOTHER, known) == 1 > reference_score(f"{MOTHER} Tolen", known)
    assert at_hand(QUESTION, {"note": MOTHER, "passages": [MIRA]}) == QUESTION
    assert reference_score(whole, at_hand(QUESTION, {"note": "", "passages": [RIVER]})) is None


def test_a_yes_or_no_is_no_answer_that_a_note_can_hold():
    question = replace(QUESTION, question="Is Mira from Tolen?", answers=("Yes",))
    known = at_hand(question, {"passages": [OSK, Passage("p2", "Mira", f"Yes. {BIRTH}")]})
    assert known.answers == () and reference_score("Yes.", known) == 0
    assert reference_score(f"{MOTHER} {BIRTH}", known) == 1
    assert not is_better(question, MOTHER, f"{MOTHER} Yes.")


def test_the_reference_score_is_the_answer_alone_without_known_facts():
    question = Question("q", "Where?", ("Tolen",))
    assert reference_score("She was born in Tolen, I think.", question) == 1
    assert reference_score("She was born in Fulda.", question) == 0


async def test_the_gold_reply_of_a_note_taker_is_what_is_new_in_the_document_or_no():
    for passage, note, reply in (
        (OSK, "", f"YES#{MOTHER}"),
        (OSK, f"Osk - {MOTHER}", "NO#No relevant information."),
        (MIRA, f"Osk - {MOTHER}", f"YES#{BIRTH}"),
        (RIVER, "", "NO#No relevant information."),
    ):
        told = {"passages": [passage], "note": note, "query": "Where?"}
        gold = await gold_document_note(QUESTION, told, search)
        assert gold == reply
        assert document_note_score(gold, QUESTION, told) == 1
    unknown = Question("q", "Where?", ("Tolen",))
    assert await gold_document_note(unknown, {"passages": [OSK], "note": ""}, search) is None


async def test_a_fact_is_known_whatever_the_white_space_of_a_passage_or_note():
    wide = BIRTH.replace(" ", "  ")
    seen = {"passages": [replace(MIRA, text=f"{wide} She sings.")], "note": ""}
    assert await gold_note(QUESTION, seen, search) == BIRTH
    assert await gold_document_note(QUESTION, seen, search) == f"YES#{BIRTH}"
    assert at_hand(QUESTION, seen).supporting_facts == (BIRTH,)
    # Nothing is missing.
    assert await gold_query(QUESTION, {"note": f"{MOTHER} {wide}", "queries": []}, search) is None


@pytest.mark.parametrize(
    ("passage", "reply", "score"),
    [
        (OSK, "YES#Her mother is Mira, I think.", 0.6),
        (OSK, "NO#No relevant information.", 0),
        (OSK, MOTHER, 0),
        (RIVER, "NO#", 1),
        (RIVER, "YES#The Bore is a river.", 0),
        (RIVER, "The Bore is a river.", 0),
    ],
)
def test_a_note_takers_reply_is_worth_what_it_finds_and_what_it_passes_over(passage, reply, score):
    told = {"passages": [passage], "note": ""}
    assert document_note_score(reply, QUESTION, told) == pytest.approx(score)


@pytest.mark.parametrize("method", METHODS)
async def test_the_gold_evidence_can_write_every_stage_of_every_method_from_what_the_stage_is_given(method):
    class Shelf:
        def search(self, query, top_k):
            return [OSK, MIRA, RIVER][:top_k]

    asked = []

    class Given(Rehearsal):
        async def complete(self, stage, messages, sampling, sample, affinity):
            asked.append(stage)
            return await super().complete(stage, messages, sampling, sample, affinity)

    class Told(Rollout):
        async def generate(self, stage, **variables):
            if writer := WRITERS.get(stage.kind):
                gold = await writer(self.question, variables, search)
                assert gold is None or gold.strip()
            return await super().generate(stage, **variables)

    resources = Given({}, Prompts(), Shelf(), count=len, share=0.1, tokens_a_word=1.0)
    options = {"notes": True} if "notes" in METHODS[method].options else {}
    await METHODS[method].run(QUESTION.question, Told(QUESTION, method, resources), **options)
    assert asked
