"""Parsing replies: any text in, a value or None out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_texts import PIECES, TEXTS, check_cut_thinking_says_nothing, check_thinking_is_passed_over

from notewriter.models.thoughts import after_thinking, without_thinking
from notewriter.rollouts.parsing import (
    first_sentence,
    parse_answer,
    parse_best_and_worst,
    parse_correct,
    parse_decision,
    parse_evidence,
    parse_json_object,
    parse_lines,
    parse_note,
    parse_ratings,
    parse_status,
    parse_verdict,
    unknown_mark,
)


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
        ('{"a": "x // y, }", // a comment\n "b": [1, 2,], // another\n}', {"a": "x // y, }", "b": [1, 2]}),
        ("{“a”: “x”}", {"a": "x"}),
        ('{"a": "“x”"}', {"a": "“x”"}),
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
        ('"status": "True" or "status": "False"', None),
        ('{"status": "True or False"}', None),
        ('{"status": "True" | "False"}', None),
        ('{"status": "True/False"}\n{"status": "False"}', False),
        ('{"status": "True" // it adds the year\n}', True),
        ("True | False", None),
        ('"True"/"False"', None),
        ('Is it {"status": "False"}?\n</think>\n\n{"status": "True"}', True),
        ("**Status**: **True**", True),
        ("**True**", True),
        ("True. The new note adds the year.", True),
        ("The status is **False**.", False),
        ("{\u201cstatus\u201d\uff1a \u201cTrue\u201d}", True),
        ("1. Key information: True\n2. Completeness: False", None),
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
        ("{'best_id': 3, 'worst_id': 1}", (2, 0)),
        ('{"reason": {"best": "it is whole"}, "best_id": 3,\n"worst_id": 1\n}', (2, 0)),
        ('{\n  "best_id": 3, // the whole one\n  "worst_id": 1 // the short one\n}', (2, 0)),
        ('{"best_id": 1, "worst_id": 1', None),
        ('{"best_id": 1, "worst_id": 2}\nNo, rather {"best_id": 3, "worst_id": 2}', None),
        ('Is it {"best_id": 1, "worst_id": 2}?\n</think>\n\n{"best_id": 3, "worst_id": 2}', (2, 1)),
    ],
)
def test_only_ids_of_candidates_are_accepted(text, named):
    assert parse_best_and_worst(text, 3) == named


@given(TEXTS)
def test_any_text_is_a_verdict_on_an_answer_or_none(text):
    assert parse_correct(text) in (True, False, None)
    assert parse_decision(text) in (True, False, None)


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ('{"correct": "yes"}', True),
        ('{"correct": "no"}', False),
        ("{'correct': 'No'}", False),
        ('{"correct": true}', True),
        ('```json\n{\n  "correct":\n  "yes"\n}\n```', True),
        ("The town is the same. **Correct:** yes", True),
        ("No.", False),
        ('Is it {"correct": "no"}?\n</think>\n{"correct": "yes"}', True),
        ('{"correct": "yes"} or {"correct": "no"}', None),
        ('{"correct": "yes"} and {"correct": true}', True),
        ('{"correct": "yes"|"no"}', None),
        ('{"correct": yes and no}', None),
        ('{"correct": "yes", "why": "It is the same town."}', True),
        ('{"correct": "yes"', True),
        ('{"correct": "maybe"}', None),
        ('{"correct": "yesterday"}', None),
        ("Yes, no doubt about it.", None),
        ("", None),
    ],
)
def test_a_verdict_on_an_answer_is_read_however_it_is_quoted(text, correct):
    assert parse_correct(text) is correct


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("Explanation: The town is the same.\nDecision: TRUE", True),
        ("**Explanation:** Another town.\n**Decision:** FALSE.", False),
        ('Decision: "TRUE"\n', True),
        ("Decision: (FALSE)", False),
        ('===Output===\nDecision: ("TRUE" or "FALSE")\nExplanation: It is not there.\nDecision: FALSE', False),
        ('Decision: ("TRUE" or "FALSE")', None),
        ("<think>Decision: TRUE</think>Explanation: no.\nDecision: FALSE", False),
        ("Decision: TRUEST", None),
        ("It is TRUE.", None),
        ("", None),
    ],
)
def test_a_decision_after_an_explanation_is_read(text, decision):
    assert parse_decision(text) is decision


CRITERIA = ("efficiency", "coherence")


@given(TEXTS | st.lists(PIECES).map(lambda pieces: f'{{"efficiency": 3, "coherence": {"".join(pieces)}}}'))
def test_any_text_has_every_rating_in_its_range_or_none(text):
    ratings = parse_ratings(text, CRITERIA, 5)
    assert ratings is None or (ratings.keys() == set(CRITERIA) and all(0 <= each <= 5 for each in ratings.values()))


@pytest.mark.parametrize("rating", ["3", '"3"', "3.0", '"3/5"', '" 3 out of 5"'])
def test_a_rating_is_read_as_a_number_or_a_text(rating):
    found = parse_ratings(f'My ratings: {{"Efficiency": {rating}, "coherence": 0}}', CRITERIA, 5)
    assert found == {"efficiency": 3, "coherence": 0}


@pytest.mark.parametrize(
    "rating", ["6", "-1", "5.1", "true", "null", '"good"', '"3/10"', '"3 or 4"', "[3]", "NaN", "1e2", '"\u0663"']
)
def test_no_rating_is_guessed(rating):
    assert parse_ratings(f'{{"efficiency": 3, "coherence": {rating}}}', CRITERIA, 5) is None
    assert parse_ratings('{"efficiency": 3}', CRITERIA, 5) is None


@given(TEXTS)
def test_any_text_is_a_list_of_evidence_or_none(text):
    pieces = parse_evidence(text)
    assert pieces is None or all(piece == piece.strip() != "" for piece in pieces)


@given(st.lists(st.text()))
def test_evidence_is_read_as_it_was_copied(pieces):
    reply = f"Here it is:\n```json\n{json.dumps({'evidence': pieces})}\n```"
    assert parse_evidence(reply) == [piece.strip() for piece in pieces if piece.strip()]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ('{"evidence": []}', []),
        ('{"evidence": "Osk built it."}', ["Osk built it."]),
        ('{"evidence": ["two\nlines"]}', ["two\nlines"]),
        ('{"evidence": ["Osk", 7]}', None),
        ('{"evidence": ["Osk built', None),
        ('{"pieces": ["Osk"]}', None),
        ("Osk built it.", None),
    ],
)
def test_evidence_is_a_list_of_texts(text, pieces):
    assert parse_evidence(text) == pieces


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Osk is the town.\nAnswer: Mira", "Mira"),
        ("**Final Answer:** Mira", "Mira"),
        ("_Answer:_ Mira", "Mira"),
        ("So the answer is: Mira.", "Mira"),
        ("So, the final answer is **Mira**.", "Mira"),
        ("so the answer is 1998", "1998"),
        ("Therefore the answer is: **J. R.**", "J. R."),
        ("Answer: Osk\nNo, wait.\nAnswer: Mira", "Mira"),
        ("Answer:\nMira was first.\nOsk came later.", "Mira was first.\nOsk came later."),
        ("Answer: -5 $", "-5 $"),
        ("The answer: nobody knows whether the answer is known.", "nobody knows whether the answer is known"),
        ("So the answer is:", ""),
        ("Answer\uff1aMira", "Mira"),
        ("Therefore, the answer is **Mira**.", "Mira"),
        ("The final answer is Mira.", "Mira"),
        ("Osk is the town.\n\n### Final Answer\nMira", "Mira"),
        ("**Answer**\n\nMira", "Mira"),
        ("Osk is the town.\n\n**Final Answer**\n\n\\boxed{Mira}", "Mira"),
        ("Answer: \\(\\boxed{\\text{Mira Tolen}}\\)", "Mira Tolen"),
        ("She is $\\boxed{Mira}$, as the second passage says.", "Mira"),
        ("The boxed answer \\boxed{Osk} is wrong.\nAnswer: Mira", "Mira"),
        ("It is Mira.\nAnswer:", ""),
        ("The answer is not known yet.", ""),
        ("Mira built it.", ""),
        ("", ""),
    ],
)
def test_an_answer_is_what_follows_the_last_mark_of_one(text, answer):
    assert parse_answer(text) == answer


@given(TEXTS)
def test_any_text_holds_its_answer(text):
    assert parse_answer(text) in text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("True", "true"),
        ("FALSE. It is not true.", "false"),
        ("**True**", "true"),
        ("Verdict: true", "true"),
        ('{"verdict": "false"}', "false"),
        ("True\nThe summary names her.", "true"),
        ("If it named her I would say true, but it names the year alone. False.", "false"),
        ("One might say true. The summary lacks her name, so the answer is false", "false"),
        ("The first sentence is false, the second too. True.", "true"),
        ("False, the summary does not name her.", "false"),
        ("True - she is named.", "true"),
        ("It isn't named, so false", "false"),
        ("Verdict: FALSE, because she is not named.", "false"),
        ("Answer: True (the summary names her)", "true"),
        ('{"supported": "false", "reason": "it names the year alone"}', "false"),
        ('"true" or "false"', None),
        ("It is not true.", None),
        ("I cannot say that this is true", None),
        ("True or False", None),
        ("True/False", None),
        ('"true" | "false"', None),
        ("True/False: false", "false"),
        ("True and false things are in it", None),
        ("true things are in it", None),
        ("untrue", None),
        ("falsehood", None),
        ("", None),
    ],
)
def test_a_verdict_stands_alone_or_ends_a_reply_or_else_begins_it(text, word):
    assert parse_verdict(text, ("true", "false")) == word


def test_a_number_is_no_word_within_another():
    assert parse_verdict("12 or 2.", ("1", "2")) == "2"


def test_lines_lose_their_marks_and_come_once():
    text = "1. Mira\n- Osk\n\n(a) mira\n b) Tolen \n* \n3) J. Doe\n1871\nU. N. Owen"
    assert parse_lines(text) == ["Mira", "Osk", "Tolen", "*", "J. Doe", "1871", "U. N. Owen"]


@pytest.mark.parametrize(
    "text",
    [
        "Here are two candidates:\n\n1. Mira\n2. Osk",
        "1. **Mira**\n2. **Osk**",
        "**1. Mira**\n**2. Osk**",
        '- "Mira"\n- `Osk`',
        "```\nMira\nOsk\n```",
        "1\u3001Mira\n2\u3001Osk",
    ],
)
def test_only_what_a_list_holds_is_a_line_of_it(text):
    assert parse_lines(text) == ["Mira", "Osk"]


@given(TEXTS)
def test_any_text_is_a_list_of_lines_without_an_empty_one(text):
    assert all(line and line in text for line in parse_lines(text))


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("YES#Mira built it.", "Mira built it."),
        ("yes # Mira\nand Osk.", "Mira\nand Osk."),
        ("The reply is: **YES#** Mira.", "Mira."),
        ("```\nYES#Mira built it.\n```", "Mira built it."),
        ('"YES#Mira built it."', "Mira built it."),
        ("YES\uff03Mira built it.", "Mira built it."),
        ("YES#", ""),
        ("NO#No relevant information.", ""),
        ("NO#", ""),
        # The last verdict that begins a line, or else the last.
        ("I reply with YES#<notes> or NO#<reason>.\nNO#Off topic.", ""),
        ("Either YES#<notes> or NO#. Here: YES#Mira built it.", "Mira built it."),
        ("NO#Off topic.\nThe second line names her, so:\nYES#Mira built it.", "Mira built it."),
        ("YES#Mira built it.\nYES#It spans the Osk.", "Mira built it.\nIt spans the Osk."),
        ("YES#Mira built it; the form NO# is for other pages.", "Mira built it; the form NO# is for other pages."),
        ("YES#Departures of the ferry:\nNo #5 leaves Osk at 9.", "Departures of the ferry:\nNo #5 leaves Osk at 9."),
        ("YES#5 boats", "5 boats"),
        ("Yes, Mira built it.", None),
        ("Mira built it.", None),
        ("", None),
    ],
)
def test_a_note_is_what_follows_a_yes(text, note):
    assert parse_note(text) == note


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("  One is\nTwo.", "One is"),
        ("No end", "No end"),
        ("J. K. Rowling met Mr. Dursley of St. Ives. Then", "J. K. Rowling met Mr. Dursley of St. Ives."),
        ("The U.S. Army left. It", "The U.S. Army left."),
        ('He said "Go." Then he left.', 'He said "Go."'),
        ("It cost 2.5 million. Why? \u017divot.", "It cost 2.5 million."),
        ("Why? So.", "Why?"),
        ("He wrote Symphony No. 5 and Op. 64 Nos. 1 and 2. Then", "He wrote Symphony No. 5 and Op. 64 Nos. 1 and 2."),
        ("It is by Warner Bros. Pictures. Then", "It is by Warner Bros. Pictures."),
        ("No. It was built in 1871.", "No."),
        (" \n ", ""),
    ],
)
def test_the_first_sentence_ends_where_a_reader_would_end_it(text, sentence):
    assert first_sentence(text) == sentence


@given(TEXTS)
def test_the_first_sentence_is_the_beginning_of_any_text_and_its_own_first(text):
    sentence = first_sentence(text)
    assert text.strip().startswith(sentence) and first_sentence(sentence) == sentence
    assert sentence or not text.strip()


READERS = [
    (parse_json_object, '{"a": 1}'),
    (parse_status, '{"status": "True"}'),
    (lambda text: parse_best_and_worst(text, 3), '{"best_id": 1, "worst_id": 3}'),
    (parse_correct, '{"correct": "yes"}'),
    (lambda text: parse_ratings(text, CRITERIA, 5), '{"efficiency": 3, "coherence": 4}'),
    (parse_evidence, '{"evidence": ["Osk built it."]}'),
    (lambda text: parse_verdict(text, ("yes", "no")), "Yes."),
    (parse_lines, "- Osk\n- Mira"),
    (parse_note, "YES#Osk built it."),
    (parse_answer, "So the answer is: Osk."),
]


@pytest.mark.parametrize(("read", "reply"), READERS)
@given(thought=TEXTS)
def test_what_a_model_thought_before_its_reply_changes_nothing(read, reply, thought):
    check_thinking_is_passed_over(read, reply, thought)


@pytest.mark.parametrize(("read", "reply"), READERS[:-1])
@given(thought=TEXTS)
def test_thinking_that_was_cut_says_nothing_yet(read, reply, thought):
    check_cut_thinking_says_nothing(read, reply, thought)


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>\nWho?\n</think>\n\nMira", "\n\nMira"),
        ("<think>Who? </think>Mira", "Mira"),
        ("Who?\n</think>\nMira", "\nMira"),
        ("<think></think>", ""),
        ("<think>\nWho", "<think>\nWho"),
        ("Mira", "Mira"),
    ],
)
def test_thinking_ends_where_its_mark_stands(text, reply):
    assert without_thinking(text) == reply


MARKED = [
    ("Who?</think>Mira", "<think>Who?"),
    ("<thinking>Who?</thinking>Mira", "<thinking>Who?"),
    ("<thought>Who?</thought>Mira", "<thought>Who?"),
    ("<reasoning>Who?</reasoning>\nMira", "<reasoning>Who?"),
    ("[THINK]Who?[/THINK]Mira", "[THINK]Who?"),
    ("<seed:think>Who?</seed:think>Mira", "<seed:think>Who?"),
    ("<mm:think>Who?</mm:think>Mira", "<mm:think>Who?"),
    ("<ifm|think_fast>Who?</ifm|think_fast>Mira", "<ifm|think_fast>Who?"),
    ("<longcat_think>\nWho?\n</longcat_think>\nMira", "<longcat_think>Who?"),
    ("\u25c1think\u25b7Who?\u25c1/think\u25b7Mira", "\u25c1think\u25b7Who?"),
    ("<|START_THINKING|>Who?<|END_THINKING|><|START_RESPONSE|>Mira<|END_RESPONSE|>", "<|START_THINKING|>Who?"),
    (
        "<|begin_of_thought|>Who?<|end_of_thought|>\n\n<|begin_of_solution|>Mira<|end_of_solution|>",
        "<|begin_of_thought|>Who?",
    ),
    ("<|inner_prefix|>Who?<|inner_suffix|>Mira", "<|inner_prefix|>Who?"),
    ("<|channel>thought\nWho?<channel|>Mira", "<|channel>thought\nWho?"),
    (
        "<|open|>think<|sep|>Who?<|close|>think<|sep|><|open|>response<|sep|>Mira<|close|>response<|sep|>",
        "<|open|>think<|sep|>Who?",
    ),
    (
        "<|channel|>analysis<|message|>Who?<|end|><|start|>assistant<|channel|>final<|message|>Mira<|return|>",
        "<|channel|>analysis<|message|>Who?",
    ),
    (
        "<|channel|>analysis<|message|>Who?<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>Mira",
        "<|channel|>commentary<|message|>Who?",
    ),
    ("analysisWe ask who.assistantfinalMira", "analysisWe ask who."),
    ("analysisWe ask.assistantcommentaryWe go on.assistantfinalMira", "commentaryWe ask who."),
    ("to=self<|message|>Who?<|eom|><|start|>assistantto=user<|message|>Mira<|eot|>", "to=self<|message|>Who?"),
    ("Here is my thought process: Who? Here is my response: Mira", "Here is my thought process: Who?"),
    ("<think>Who?</think>\n<answer>\nMira\n</answer>", "<think>Who?"),
    ("<think>Who?</think>\n\n<response>\nMira\n</response>\n", "<think>Who?"),
    ("<think>Who?</think>I see.<think>She?</think>Mira", "<think>Who?</think><think>She?"),
]


@pytest.mark.parametrize(("text", "cut"), MARKED)
def test_a_thought_is_known_in_the_marks_of_the_models_of_today_and_when_it_was_cut(text, cut):
    assert after_thinking(text).strip() == "Mira"
    assert after_thinking(cut) == ""


@pytest.mark.parametrize(
    "text", ["Analysis of the bridge", "analysis of it", "Commentary", "<answer>Mira</answer>", "[1] Mira", "a < b"]
)
def test_a_reply_that_only_looks_like_a_thought_stays(text):
    assert after_thinking(text) == text


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("<scratchpad>Who?</scratchpad>Mira", "<scratchpad>"),
        ("\n[REFLECT] Who?", "[REFLECT]"),
        ("Thinking Process:\n\n1. Who?", "Thinking Process:"),
        ("**Thinking...**\nWho?", "**Thinking..."),
        ("thought\nWho?", "thought"),
        ("<think>Who?</think><scratchpad>Mira", "<scratchpad>"),
        ("<think>Who?</think>Mira", ""),
        ("Thought: Who?", ""),
        ("<note>Mira</note>", ""),
        ("[1] Mira", ""),
        ("Let me think about Mira.", ""),
        ("Mira", ""),
        ("", ""),
    ],
)
def test_a_mark_that_no_prompt_names_is_unknown(text, mark):
    assert unknown_mark(text, "Begin with Thought: and put the note between <note> and </note>.") == mark
