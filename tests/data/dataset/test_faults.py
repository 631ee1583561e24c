"""Pairs that teach nothing or the wrong thing are dropped, each for a reason."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewriter.data.dataset import faults
from notewriter.data.dataset.faults import pair_fault

PEOPLE = ["Arlen Voss", "Mirela Dahn", "Tobin Ekhart", "Sanne Orrel", "Pavo Lindqvist", "Ilse Marrant", "Joren Kade"]
NOTE = "Arlen Voss was born in Tirsk, the capital of Orvania. He studied at the academy of Velmor until 1931."


def pair(chosen=NOTE, rejected="He liked boats.", prompt="Question: where?"):
    return {
        "prompt": [{"role": "system", "content": "Take notes."}, {"role": "user", "content": prompt}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
        "stage": "deepnote/init_note",
    }


def test_a_sound_pair_has_no_fault():
    assert pair_fault(pair(), chosen_is_cut=False) is None


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (pair(chosen=" \n"), faults.EMPTY),
        (pair(rejected="-- !"), faults.EMPTY),
        (pair(rejected="  " + NOTE.replace(" ", "\n")), faults.IDENTICAL),
        (pair(chosen=NOTE + " He liked boats very much." * 5), faults.LOOP),
    ],
)
def test_a_pair_that_teaches_nothing_has_a_reason(row, fault):
    assert pair_fault(row, chosen_is_cut=False) == fault


def test_a_chosen_side_that_was_cut_is_a_fault():
    assert pair_fault(pair(), chosen_is_cut=True) == faults.CUT


def test_the_rejected_side_may_loop():
    assert pair_fault(pair(rejected="boats " * 60), chosen_is_cut=False) is None


@pytest.mark.parametrize(
    "text",
    [
        "the " * 16,
        "He was born in Tirsk. " * 4,
        " ".join(f"{number}. Arlen Voss was born in the town of Tirsk." for number in range(8)),
        "A note begins well and says something new. " + "Then it does not stop " * 6,
    ],
)
def test_a_loop_is_seen(text):
    assert faults.repeats_itself(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        NOTE,
        "no no no no no",
        "Season 1, Season 2, Season 3, Season 4, Season 5, Season 6.",
        " ".join(f"{person} was born in {1900 + i} and died in {1960 + 3 * i}." for i, person in enumerate(PEOPLE)),
    ],
)
def test_names_lists_and_years_are_no_loop(text):
    assert not faults.repeats_itself(text)


@given(st.text())
def test_any_text_is_a_loop_or_not(text):
    assert faults.repeats_itself(text) in (True, False)


def test_a_pair_of_unusual_length_is_dropped_with_the_name_of_its_side():
    rows = [pair(chosen=NOTE[: 60 + number], prompt="p" * (900 + 20 * number)) for number in range(30)]
    long, short = pair(chosen=NOTE * 20), pair(prompt="p" * 50, chosen=NOTE)
    usual = faults.usual_pair_lengths([*rows, long, short])
    assert Counter(faults.length_fault(row, usual) for row in rows) == {None: 30}
    assert faults.length_fault(short, usual) == "the prompt's length is far from the others' of its stage"
    assert (
        faults.length_fault(long | {"prompt": rows[0]["prompt"]}, usual)
        == "the chosen side's length is far from the others' of its stage"
    )
    record = {"question_id": "q0", "rows": [rows[0], short], "drops": [{"stage": "s", "reason": "r"}]}
    (kept,) = faults.within_lengths(usual, [record])
    assert kept["rows"] == [rows[0]] and [drop["stage"] for drop in kept["drops"]] == ["s", "deepnote/init_note"]
