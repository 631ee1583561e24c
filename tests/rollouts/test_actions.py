"""Parsing actions: any text in, an action or None out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_texts import TEXTS, check_cut_thinking_says_nothing, check_thinking_is_passed_over

from notewriter.ground.text import without_surrogates
from notewriter.rollouts.actions import Action, parse_action, parse_call, parse_steps

ACTIONS = {"search": "query", "finish": "answer"}
SEARCH = Action("I need her town.", "search", "Where was Mira born?")


@given(TEXTS)
def test_any_text_is_a_whole_action_or_none(text):
    action = parse_action(text, ACTIONS)
    if action is not None:
        assert action.name in ACTIONS
        assert action.argument == action.argument.strip() != ""
        assert without_surrogates(action.thought + action.argument) == action.thought + action.argument


@given(st.text(), st.sampled_from(sorted(ACTIONS)))
def test_an_action_is_read_as_it_was_meant_whatever_its_argument_holds(argument, name):
    meant = without_surrogates(argument).strip()
    call = json.dumps({"function": name, "parameters": {ACTIONS[name]: argument}}, ensure_ascii=False)
    found = parse_action(f"Thought: Next.\nAction: {call}", ACTIONS)
    assert found == (Action("Next.", name, meant) if meant else None)


@pytest.mark.parametrize(
    "text",
    [
        'Thought: I need her town.\nAction: {"function": "search", "parameters": {"query": "Where was Mira born?"}}',
        "Thought 2: I need her town.\nAction 2: {'function': 'search', "
        "'parameters': {'query': 'Where was Mira born?'}}",
        '**Thought:** I need her town.\n\n**Action:**\n```json\n{"function": "search", "parameters": '
        '{"query": "Where was Mira born?"}}\n```\nI will wait for the observation.',
        'I need her town.\n```json\n{"name": "Search", "arguments": {"query": "Where was Mira born?"}}\n```',
        'I need her town. {"function": "search", "query": " Where was Mira born? "}',
        'I need her town. {"function": "search", "parameters": {"query": "Where was Mira born?"}',
        'Thought 1: I need her town. Action 1: {"function": "search", "parameters": {"query": "Where was Mira born?"}}',
        'I need her town. **Action:** ```json\n{"name": "search", "arguments": {"query": "Where was Mira born?"}}\n```',
        "Thought 1\uff1aI need her town.\nAction 1\uff1a"
        '{"function": "search", "parameters": {"query": "Where was Mira born?"}}\nObservation 1\uff1aIn Osk.',
        "思考\uff1aI need her town.\n行动\uff1a"
        '{"function": "search", "parameters": {"query": "Where was Mira born?"}}\n观察\uff1aIn Osk.',
        "### Thought 1\nI need her town.\n\n### Action 1\n```json\n"
        '{"function": "search", "parameters": {"query": "Where was Mira born?"}}\n```\n\n### Observation 1\nIn Osk.',
        "1. **Thought:** I need her town.\n2. **Action:** "
        '{"function": "search", "parameters": {"query": "Where was Mira born?"}}',
        'Thought: I need her town.\nAction: {\n  "function": "search",\n  "parameters": {\n'
        '    "query": "Where was Mira born?", // her town\n  },\n}',
        # Thinking and invented observations are ignored.
        '<think>Or {"function": "finish", "parameters": {"answer": "Tolen"}}?\n</think>\nThought: I need her town.\n'
        'Action: {"function": "search", "parameters": {"query": "Where was Mira born?"}}\nObservation: In Osk.\n'
        'Thought: So it is Osk.\nAction: {"function": "finish", "parameters": {"answer": "Osk"}}',
    ],
)
def test_an_action_is_read_however_it_is_written(text):
    assert parse_action(text, ACTIONS) == SEARCH


@pytest.mark.parametrize("between", [" ", "\n"])
def test_the_first_of_two_actions_is_taken(between):
    first, second = ({"function": "search", "parameters": {"query": query}} for query in (SEARCH.argument, "And Osk?"))
    text = f"Thought: I need her town.{between}Action: {json.dumps(first)}\nThought: Or:\nAction: {json.dumps(second)}"
    assert parse_action(text, ACTIONS) == SEARCH


def test_a_thought_keeps_its_words_about_actions():
    call = '{"function": "search", "parameters": {"query": "Where was Mira born?"}}'
    for thought in ("Action: none yet. I need her town.", "I need her town, so I take this action:"):
        assert parse_action(f"Thought: {thought}\nAction: {call}", ACTIONS) == SEARCH._replace(thought=thought)
    assert parse_action(f"Its chain reaction: {call}", ACTIONS) == SEARCH._replace(thought="Its chain reaction:")


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        # Quotes within quotes, as in the paper's case studies.
        ("{'function': 'finish', 'parameters': {'answer': 'Marie de' Medici'}}", "Marie de' Medici"),
        ("{'function': 'finish', 'parameters': {'answer': 'Marie de\\' Medici'}}", "Marie de' Medici"),
        ("{'function': 'finish', 'parameters': {'answer': 'He sang \"Osk\"'}}", 'He sang "Osk"'),
        ('{"function": "finish", "parameters": {"answer": "two\nlines"}}', "two\nlines"),
        ('{"function": "finish", "parameters": {"answer": 1905}}', "1905"),
        ('{"function": "finish", "parameters": {"answer": true}}', "yes"),
        ('{"function": "finish", "parameters": {"answer": false}}', "no"),
        ('{"function": "finish", "parameters": {"answer": ["Mira Tolen", 1905]}}', "Mira Tolen, 1905"),
        ('{"function": "finish", "parameters": {"answer": "1905", "sure": true}}', "1905"),
        ('{"a": 1} {"function": "finish", "parameters": {"answer": "the second object"}}', "the second object"),
    ],
)
def test_the_argument_is_taken_whole(call, argument):
    assert parse_action(f"Action: {call}", ACTIONS) == Action("", "finish", argument)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I think that Mira was born in Osk.",
        "Action: search for Mira",
        'Action: {"function": "search", "parameters": {"query": "Where was Mi',
        'Action: {"function": "search", "parameters": {"query": "  "}}',
        'Action: {"function": "search", "parameters": {"answer": "Osk"}}',
        "Action: {'function': 'search', 'parameters': {'answer': 'Osk'}}",
        'Action: {"function": "lookup", "parameters": {"query": "Mira"}}',
        'Action: {"function": ["search"], "parameters": {"query": "Mira"}}',
        'Action: {"function": "search", "parameters": {"query": [["Mira"]]}}',
        'Action: {"function": "search", "parameters": {"query": ["Mira", null]}}',
        'Action: {"function": "search", "parameters": {"query": []}}',
        'Action: {"function": "search", "parameters": "Mira"}',
        'Action: {"function": "finish", "parameters": {"answer": null}}',
        '<think>{"function": "finish", "parameters": {"answer": "Osk"}}\n</think>',
        'Observation: {"function": "finish", "parameters": {"answer": "Osk"}}',
        '{"function": ' * 3000,
    ],
)
def test_what_is_no_action_is_none(text):
    assert parse_action(text, ACTIONS) is None


NAMES = ("search", "select", "finish")


@given(TEXTS)
def test_any_text_is_a_call_with_an_argument_or_none(text):
    action = parse_call(text, NAMES)
    assert action is None or (action.name in NAMES and action.argument == action.argument.strip() != "")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: Who?\nAction: search[Osk; who?]", Action("Who?", "search", "Osk; who?")),
        ("**Thought 2:** Who?\n**Action 2:** Search [Osk]", Action("Who?", "search", "Osk")),
        ("Thought: Who? Action: finish[Mira]", Action("Who?", "finish", "Mira")),
        ("Who built it?\nfinish['Mira']", Action("Who built it?", "finish", "Mira")),
        ('finish["Mira" and "Osk"]', Action("", "finish", '"Mira" and "Osk"')),
        ("Action:\n`select(Spin Out (film))` and more", Action("", "select", "Spin Out (film)")),
        ("Action: search[a [nested] one] finish[x]", Action("", "search", "a [nested] one")),
        ("Action: search[not closed\nObservation: made up]", Action("", "search", "not closed")),
        ("Thought: I could search[x].\nAction: finish[y]", Action("I could search[x].", "finish", "y")),
        ("Action: search[]\nAction: finish[y]", Action("", "finish", "y")),
        ("<think>\nsearch[x]\n</think>\nAction: finish[y]", Action("", "finish", "y")),
        ("Thought\uff1aWho?\nAction\uff1asearch[Osk]", Action("Who?", "search", "Osk")),
        ("## Thought\nWho?\n\n## Action\nsearch[Osk]", Action("Who?", "search", "Osk")),
        ("Action: search\u3010Osk\u3011", Action("", "search", "Osk")),
        ("Action: finish[\u201cMira\u201d]", Action("", "finish", "Mira")),
        ('Action: search(query="Osk")', Action("", "search", "Osk")),
        ('Action: search[title="Osk" year="1905"]', Action("", "search", 'title="Osk" year="1905"')),
        ("Observation: none\nAction: finish[y]", None),
        ("I might search[x] or finish[y].", None),
        ("Action: research[x]", None),
        ("Action: open[x]", None),
        ("Action: finish", None),
        ("", None),
    ],
)
def test_a_call_in_brackets_is_read_however_it_is_written(text, action):
    assert parse_call(text, NAMES) == action


WHOLE = """Thought 1: I need her town.
Action 1: {'function': 'search', 'parameters': {'query': 'Where was Mira born?'}}
Observation 1: Mira was born in Osk,
a town by the river.
**Thought 2:** That is it.
**Action 2:** {"function": "finish", "parameters": {"answer": "Osk"}}
"""
STEPS = [(SEARCH, "Mira was born in Osk,\na town by the river."), (Action("That is it.", "finish", "Osk"), "")]


@given(TEXTS)
def test_any_text_is_a_list_of_whole_steps_or_none(text):
    for action, observation in parse_steps(text, ACTIONS, "finish") or []:
        assert action.name in ACTIONS
        assert isinstance(observation, str)


@pytest.mark.parametrize(
    "around", ["{}", "Sure, here it is:\n{}", "{}Observation 2: done\nFinal Answer: Osk", "{}Thought: "]
)
def test_a_chain_that_was_written_at_once_is_read_up_to_its_end(around):
    assert parse_steps(around.format(WHOLE), ACTIONS, "finish") == STEPS


def test_a_chain_without_its_end_is_read_as_far_as_it_goes():
    assert parse_steps(WHOLE[: WHOLE.index("**Thought 2")], ACTIONS, "finish") == STEPS[:1]
    assert parse_steps("I cannot.", ACTIONS, "finish") == []


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("Thought 1: I need her town.\n", ""),
        ("Observation 1: Mira was born in Osk,\n", ""),
        ("**Thought 2:** That is it.\n", ""),
        ("**Thought 2:**", "Observation:"),
        ("Action 1: {'function'", "Action 1: {'funct"),
        ('"finish"', '"search"'),
    ],
)
def test_a_chain_with_a_part_missing_or_out_of_place_is_none(part, other):
    assert part in WHOLE
    assert parse_steps(WHOLE.replace(part, other), ACTIONS, "finish") is None


READERS = [
    (lambda text: parse_action(text, ACTIONS), 'Action: {"function": "finish", "parameters": {"answer": "Osk"}}'),
    (lambda text: parse_call(text, NAMES), "Action: finish[Osk]"),
    (lambda text: parse_steps(text, ACTIONS, "finish"), WHOLE),
]


@pytest.mark.parametrize(("read", "reply"), READERS)
@given(thought=TEXTS)
def test_what_a_model_thought_before_its_action_changes_nothing(read, reply, thought):
    check_thinking_is_passed_over(read, reply, thought)


@pytest.mark.parametrize(("read", "reply"), READERS)
@given(thought=TEXTS)
def test_an_action_in_thinking_that_was_cut_is_none(read, reply, thought):
    check_cut_thinking_says_nothing(read, reply, thought)
