import json

import pytest
from hypothesis import given, settings, strategies

from notewriter.evaluation.report import traces
from notewriter.evaluation.report.traces import FIRST, SURROGATES, Vocabulary, gaps


def read(coded, words):
    """What the page's script does."""
    codes = map(ord, coded)
    return "".join(words[code - FIRST - (len(SURROGATES) if code >= SURROGATES.stop else 0)] for code in codes)


@settings(max_examples=30, deadline=None)
@given(strategies.lists(strategies.text()))
def test_a_coded_text_reads_as_it_was(texts):
    vocabulary = Vocabulary()
    coded = [vocabulary.code(text) for text in texts]
    assert [read(each, vocabulary.words) for each in coded] == texts


def test_a_word_is_a_character_which_json_does_not_escape():
    vocabulary = Vocabulary()
    assert len(vocabulary.code("The river, the Fulda, is\nlong.")) == 10
    assert vocabulary.words == ["The ", "river", ", ", "the ", "Fulda", "is", "\n", "long", "."]
    assert vocabulary.code("The river is long") != vocabulary.code("The long river is")


def test_codes_pass_over_what_is_no_character():
    vocabulary = Vocabulary()
    numbers = [f"{number}." for number in range(30_000)]
    coded = vocabulary.code("".join(numbers))
    assert read(coded, vocabulary.words) == "".join(numbers)
    assert json.loads(json.dumps(coded, ensure_ascii=False).encode()) == coded


def test_a_full_vocabulary_spells_new_words(monkeypatch):
    monkeypatch.setattr(traces, "FULL", 2)
    vocabulary = Vocabulary()
    coded = vocabulary.code("one two three one ")
    assert vocabulary.words == ["one ", "two ", *"thre", " "]
    assert read(coded, vocabulary.words) == "one two three one "


@pytest.mark.parametrize(
    ("numbers", "expected"), [([], []), ([0, 1, 2], [0, 0, 0]), ([5, 9], [5, 3]), ([3, 3, 0], [3, -1, -4])]
)
def test_gaps_are_the_numbers_left_out_in_between(numbers, expected):
    assert gaps(numbers) == expected
