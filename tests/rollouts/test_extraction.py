"""Extractive notes: marks behind sentences, the note that a reply of marks means, and the reply that means a note."""

import pytest

from notewriter.ground.records import Passage
from notewriter.rollouts.extraction import marked, named_in, named_sentences, names_of

PASSAGES = [Passage("1", "Low Tide", "Low Tide is a film. It is by Ana Kesk."), Passage("2", "Ana Kesk", "She is old.")]


def test_a_mark_stands_behind_every_sentence_and_counts_over_all_passages():
    low_tide, ana = marked(PASSAGES)
    assert low_tide == Passage("1", "Low Tide", "Low Tide is a film. [A] It is by Ana Kesk. [B]")
    assert ana.text == "She is old. [C]"


def test_marks_go_on_behind_z():
    (passage,) = marked([Passage("1", "Numbers", " ".join(f"It is {number}." for number in range(703)))])
    assert "It is 25. [Z] It is 26. [AA] It is 27. [AB]" in passage.text
    assert "It is 51. [AZ] It is 52. [BA]" in passage.text
    assert passage.text.endswith("It is 701. [ZZ] It is 702. [AAA]")


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        ("[B][C]", "It is by Ana Kesk.\nShe is old."),
        ("[C], [A] and", "[C], [A] and"),
        ("[C], [A].", "She is old.\nLow Tide is a film."),
        ("[A][A]", "Low Tide is a film."),
        ("[D]", ""),
        ("[D][B]", "It is by Ana Kesk."),
        ("Ana Kesk is old.", "Ana Kesk is old."),
        ("", ""),
    ],
)
def test_a_reply_of_marks_alone_means_their_sentences_and_one_in_words_itself(reply, note):
    assert named_sentences(reply, PASSAGES) == note


def test_a_note_is_named_in_its_own_order():
    assert names_of("She is old.\nLow Tide is a film. It is by Ana Kesk.", PASSAGES) == "[C][A][B]"
    assert names_of("Nobody knows.", PASSAGES) == ""


def test_a_fact_is_named_by_every_sentence_that_contains_it_or_lies_in_it():
    (passage,) = passages = [Passage("1", "Tolen", "Tolen is a town, and old. It lies in Brel.")]
    assert names_of("Tolen is a town", passages) == "[A]"
    assert names_of(passage.text, passages) == "[A][B]"


def test_the_sentences_that_a_reply_names_can_be_read_from_its_prompt():
    prompt = "Who?\n\n" + "\n".join(f"{each.title}: {each.text}" for each in marked(PASSAGES)) + "\n\nWho?"
    assert named_in("[B][C]", prompt) == "It is by Ana Kesk.\nAna Kesk: She is old."
    assert named_in("[D]", prompt) == ""
    assert named_in("In words.", prompt) == "In words."


@pytest.mark.parametrize("number", ["", "[7] "])
def test_a_known_title_before_a_first_sentence_is_no_part_of_it(number):
    trial = Passage("3", "Ana Kesk: A Trial", "It is long.")
    prompt = "\n".join(f"{number}{each.title}: {each.text}" for each in marked([*PASSAGES, trial]))
    note = named_in("[A][C][D]", prompt, {"Ana Kesk", trial.title})
    assert note == f"{number}Low Tide: Low Tide is a film.\nShe is old.\nIt is long."
