"""What separates the sides of pairs beside what they say."""

import random

import pytest

from notewriter.rollouts.shortcuts import (
    FEATURES,
    Separation,
    Side,
    all_together,
    differences,
    separations,
    sides,
    warning,
)

NAMES = [feature.name for feature in FEATURES]


def value(name, text, prompt="", **changes):
    (feature,) = [each for each in FEATURES if each.name == name]
    return feature.value(Side(text, prompt, **changes))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("words", "Mira was born in Tolen.", 5),
        ("words", "[A][D][AF]", 3),
        ("lines", "One.\nTwo.\n", 2),
        ("list items", "Facts:\n- one\n* two\n1. three\n(4) four\n5 five", 4),
        ("punctuation", "ab..", 0.5),
        ("digits", "In 1907", 4),
        ("capital at the start", "  Mira", 1),
        ("capital at the start", "mira", 0),
        ("stock opening", "Based on the passages, Mira sings.", 1),
        ("stock opening", "**Note:** Mira sings.", 1),
        ("stock opening", "Notes on Mira.", 0),
        ("refusal", "The passages do not mention her.", 1),
        ("refusal", "There is no information about Osk.", 1),
        ("refusal", "It cannot be determined.", 1),
        ("refusal", "Mira knows Osk.", 0),
        ("question mark", "Who is Mira?", 1),
        ("finished sentence", "Mira was born in Tolen.", 1),
        ("finished sentence", 'She said "yes."', 1),
        ("finished sentence", "Mira was born in", 0),
        ("repeated words", "one two three four", 0),
        ("repeated words", "one two three four one two three four", 0.2),
    ],
)
def test_a_feature_is_a_number_of_a_text(name, text, expected):
    assert value(name, text) == pytest.approx(expected)


def test_what_is_copied_is_what_four_words_in_a_row_share_with_the_prompt():
    prompt = "Osk keeps a bridge. Mira was born in Tolen."
    assert value("copied from the prompt", "Mira was born in Tolen, they say.", prompt) == 2 / 4
    assert value("copied from the prompt", "in Tolen", prompt) is None


def test_a_side_is_cut_if_it_has_as_many_tokens_as_it_may():
    pair = {
        "prompt": [{"role": "user", "content": "Who?"}],
        "chosen": [{"role": "assistant", "content": "Mira"}],
        "rejected": [{"role": "assistant", "content": "Osk and"}],
        "chosen_source": {"kind": "model", "max_tokens": 8},
        "rejected_source": {"kind": "model", "max_tokens": 8},
        "chosen_tokens": 3,
        "rejected_tokens": 8,
    }
    assert [side.cut for side in sides(pair)] == [False, True]
    bare = {key: pair[key] for key in ("prompt", "chosen", "rejected")}
    assert [side.cut for side in sides(bare)] == [False, False]


def test_a_script_without_spaces_has_words_too():
    assert value("words", "米拉在托伦建桥。") == 7 and value("words", "Mira built it.") == 3
    assert value("place of the gold answer", "米拉在托伦建桥。", answers=("托伦",)) == 3 / 7


def test_the_temperatures_of_two_samples_tell_them_apart():
    pair = {
        "prompt": [{"role": "user", "content": "Who?"}],
        "chosen": [{"role": "assistant", "content": "Mira"}],
        "rejected": [{"role": "assistant", "content": "Osk"}],
        "chosen_source": {"kind": "model", "temperature": 0.5},
        "rejected_source": {"kind": "model", "temperature": 1.25},
    }
    temperature = NAMES.index("temperature")
    assert differences(*sides(pair))[temperature] == -0.75
    gold = pair | {"chosen_source": {"kind": "gold"}}
    assert differences(*sides(gold))[temperature] == 0


def test_the_place_of_the_answer_is_known_only_where_it_is():
    assert value("place of the gold answer", "Mira was born in Tolen.", answers=("Tolen", "Mira")) == 0
    assert value("place of the gold answer", "Mira was born in Tolen.", answers=("Tolen",)) == 4 / 5
    assert value("place of the gold answer", "Mira sings.", answers=("Tolen",)) is None
    assert value("gold answer", "born in tolen", answers=("Tolen",)) == 1


def test_a_separation_counts_equal_pairs_half():
    found = Separation(pairs=10, higher=2, lower=6)
    assert (found.share, found.predicts) == (0.3, 0.7)


def rows_of(pairs):
    return [differences(Side(chosen, ""), Side(rejected, "")) for chosen, rejected in pairs]


def test_separations_count_the_pairs_with_a_higher_chosen_side():
    rows = rows_of([("one two", "one"), ("one", "two"), ("one", "one two three")])
    assert separations(rows)[NAMES.index("words")] == Separation(3, 1, 1)


def test_a_feature_that_names_most_chosen_sides_is_a_line():
    pairs = [("word " * 5 + ".", "word " * 9 + ".")] * 17 + [("word " * 9 + ".", "word " * 5 + ".")] * 3
    line = warning("deepnote/init_note", rows_of(pairs))
    assert line.startswith("deepnote/init_note: the side that is longer is rejected in 85% of 20 pairs")
    assert warning("deepnote/init_note", rows_of(pairs[:19])) is None
    balanced = pairs[:10] + [(rejected, chosen) for chosen, rejected in pairs[:10]]
    assert warning("deepnote/init_note", rows_of(balanced)) is None


def test_an_answer_is_content_and_no_shortcut():
    answers = ("Tolen",)
    for rejected in ("In Fulda.", "Tolen it."):
        # There or not, or in another place.
        rows = [differences(Side("In Tolen.", "", answers), Side(rejected, "", answers))] * 30
        assert warning("a", rows) is None
        assert all_together(rows, [f"q{number}" for number in range(30)]).share == 0.5


def test_all_together_predict_what_no_feature_predicts_alone_and_chance_is_chance():
    draw = random.Random(0)
    pairs, noise = [], []
    for _ in range(300):
        words, digits = draw.randint(1, 20), draw.randint(1, 9)
        # The chosen side has the greater sum of words and digits.
        other_words, other_digits = draw.randint(1, 20), draw.randint(1, 9)
        both = sorted(
            [(words + 2 * digits, words, digits), (other_words + 2 * other_digits, other_words, other_digits)]
        )
        texts = ["w " * count + "7" * more for _, count, more in both]
        pairs.append((texts[1], texts[0]))
        noise.append(tuple(draw.sample(texts, 2)))
    questions = [f"q{number // 2}" for number in range(300)]
    alone = max(each.predicts for each in separations(rows_of(pairs)))
    assert all_together(rows_of(pairs), questions).share > max(alone + 0.05, 0.93)
    assert 0.4 < all_together(rows_of(noise), questions).share < 0.6
    assert all_together(rows_of(pairs), ["q"] * 300) is None
