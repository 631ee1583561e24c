"""Characters in one spelling, without a number that becomes another."""

import pytest

from notewriter.corpora.characters import lowered, plain, raised


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("The ﬁrst oﬃce", "The first office"),
        ("ＡＢＣ１２", "ABC12"),
        ("10⁶ boats, 3×10⁻² m", "10^6 boats, 3×10^-2 m"),
        ("H₂O, 110₂, log₂10", "H2O, 110_2, log2 10"),
        ("2½ of ½", "2 1/2 of 1/2"),
        ("since 1811³", "since 1811 [3]"),
        ("the 1ˢᵗ", "the 1st"),
        ("Fe³⁺", "Fe^3+"),
        ("Osk™ and a´", "Osk™ and a´"),
        ("page 20①", "page 20 1"),
        ("the ferry\u00adman of To\u2060len", "the ferryman of Tolen"),
    ],
)
def test_letters_are_plain_and_numbers_are_the_same(text, written):
    assert plain(text) == written


@pytest.mark.parametrize(
    ("before", "exponent", "written"),
    [
        ("10", "6", "^6"),
        ("x", "n+1", "^(n+1)"),
        ("21", "st", "st"),
        ("12,345", "1", " [1]"),
        ("1000", "2", "^2"),
        ("word", "[1]", " [1]"),
        ("The end.", "1", " [1]"),
        ("", "1", "1"),
        ("word", "*", "*"),
    ],
)
def test_a_superscript_is_a_power_an_ending_or_the_mark_of_a_note(before, exponent, written):
    assert raised(before, exponent) == written


def test_a_subscript_is_joined_unless_numbers_would_touch():
    assert [lowered("H", "2"), lowered("110", "2"), lowered("a", "n+1")] == ["2", "_2", "_(n+1)"]
