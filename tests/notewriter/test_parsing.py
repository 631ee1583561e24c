"""Any text in, a value or None out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewriter.parsing import parse_best_and_worst, parse_json_object, parse_status

# Texts that look like what models write: braces, quotes, the keys that are looked for, numbers, and anything else.
KEYS = ["status", "best_id", "worst_id"]
VALUES = ["true", "False", "null", "1", "-2.5e3", "9" * 5000, "NaN", "\u0661"]
SIGNS = ["{", "}", "[", '"', "'", ":", ",", "```json\n", "\n```", "\\", "\\ud83d", "\x00"]
PIECES = st.sampled_from(KEYS + VALUES + SIGNS)
TEXTS = st.text() | st.lists(PIECES | st.text(max_size=3)).map("".join) | st.lists(PIECES).map(" ".join)


@given(TEXTS)
def test_any_text_is_an_object_or_none(text):
    assert isinstance(parse_json_object(text), dict | None)


@given(TEXTS)
def test_any_text_is_a_status_or_none(text):
    assert parse_status(text) in (True, False, None)


@given(TEXTS, st.integers(0, 12))
def test_any_text_names_two_candidates_or_none(text, candidates):
    named = parse_best_and_worst(text, candidates)
    assert named is None or all(0 <= index < candidates for index in named)


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text()), st.text(alphabet="ab \n`."))
def test_an_object_is_found_in_prose(value, prose):
    assert parse_json_object(f"{prose}```json\n{json.dumps(value)}\n```{prose}") == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure! Here it is:\n```json\n{"a": {"b": [1]}}\n```\nAnything else?', {"a": {"b": [1]}}),
        ('A set {x} comes first, then {"a": 1} and {"b": 2}', {"a": 1}),
        ('[{"a": 1}]', {"a": 1}),
        ("{'a': 1}", None),
        ('{"a": 1', None),
        ("[1, 2]", None),
        ("", None),
        ('{"a": ' * 3000, None),
        ('{"a": ' + "9" * 5000 + "}", None),
    ],
)
def test_the_first_json_object_counts(text, value):
    assert parse_json_object(text) == value


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"status": "True"}', True),
        ('{"status": "False"}', False),
        ('```json\n{"status": "True"}\n```', True),
        ("{'status': 'False'}", False),
        ('{"status": true}', True),
        ('{ "Status" : FALSE }', False),
        ('The new note is better, so {"status": "True"} it is.', True),
        ("status: false", False),
        ("True", True),
        (' "false." ', False),
        ('{"status": "True"} as I said: {"status": "True"}', True),
        ('{"status": "True"} or {"status": "False"}', None),
        ('{"status": "Maybe"}', None),
        ("It is true that the note is better.", None),
        ('{"status": "Truely"}', None),
        ("", None),
    ],
)
def test_a_status_is_read_however_it_is_quoted(text, status):
    assert parse_status(text) is status


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"best_id": 1, "worst_id": 3}', (0, 2)),
        ('{"worst_id": "2", "best_id": " 3 "}', (2, 1)),
        ('```json\n{"best_id": 2, "worst_id": 2}\n```', (1, 1)),
        ('{"best_id": 0, "worst_id": 1}', None),
        ('{"best_id": 1, "worst_id": 4}', None),
        ('{"best_id": -1, "worst_id": 1}', None),
        ('{"best_id": true, "worst_id": 2}', None),
        ('{"best_id": 1.0, "worst_id": 2}', None),
        ('{"best_id": 1}', None),
        ('{"best_id": "\u0661", "worst_id": 2}', None),
        ("1 is the best, 2 the worst", None),
    ],
)
def test_only_ids_of_candidates_are_accepted(text, named):
    assert parse_best_and_worst(text, 3) == named
