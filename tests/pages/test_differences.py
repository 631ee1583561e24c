import time

import pytest

from notewriter.pages.differences import TooAlike, marked_differences, merged_differences


def test_what_the_other_side_has_not_is_marked():
    one, other = marked_differences("Arlen Voss was born in Tirsk. He lives.", "He was born in Velmor. He lives.")
    assert [word.strip() for word, differs in one if differs] == ["Arlen", "Voss", "Tirsk."]
    assert [word.strip() for word, differs in other if differs] == ["He", "Velmor."]
    assert "".join(word for word, _ in one) == "Arlen Voss was born in Tirsk. He lives."


def test_what_was_added_and_dropped_stands_in_its_place():
    merged = merged_differences("Voss was born in Velmor.", "Arlen Voss was born\nin Tirsk.")
    assert merged == [
        ("Arlen ", "added"),
        ("Voss ", "kept"),
        ("was ", "kept"),
        ("born\n", "kept"),
        ("in ", "kept"),
        ("Velmor. ", "dropped"),
        ("Tirsk.", "added"),
    ]


def test_a_text_that_stays_is_kept_and_one_that_comes_is_added():
    assert merged_differences("the same", "the same") == [("the ", "kept"), ("same", "kept")]
    assert merged_differences("", "new text") == [("new ", "added"), ("text", "added")]
    assert merged_differences("old", "") == [("old ", "dropped")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the " * 20_000, "the " * 20_000 + "mill"),
        ("a b " * 5_000, "b a " * 5_000),
        (
            " ".join(str(number % 300) for number in range(6000)),
            " ".join(str(7 * number % 300) for number in range(6000)),
        ),
    ],
    ids=["one word", "two words", "many words"],
)
@pytest.mark.parametrize("compare", [marked_differences, merged_differences])
def test_texts_that_repeat_themselves_are_given_up_soon(compare, one, other):
    start = time.monotonic()
    with pytest.raises(TooAlike):
        compare(one, other)
    # Their comparison would take minutes.
    assert time.monotonic() - start < 20


def test_long_texts_that_are_alike_are_compared():
    words = [f"word{number}" for number in range(20_000)]
    one, other = marked_differences(" ".join(words), " ".join([*words[:9000], "new", *words[9000:]]))
    assert [word for word, differs in one if differs] == []
    assert [word for word, differs in other if differs] == ["new "]
