"""Rows in the forms in which others publish them: all that they have is trained as written, named, or refused.

The tokens are those of `apply_chat_template` over the row's own messages, tools and variables, which is what TRL does.
"""

import gzip
import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_damage
from datasets import Dataset, Features, Json, Value
from real_templates import tokenizer_of

from notewriter.ground.errors import UserError
from notewriter.training.inputs import conversations, forms, pairs, rendering, written

TOKENIZERS = {"prompt and completion": tokenizer_of("Qwen3")}
"""Of the forms whose keys Qwen2.5's template does not know."""

TOOL = {"type": "function", "function": {"name": "find", "description": "Finds it.", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "find", "arguments": {"what": "mill"}}}
ASKED = [{"role": "user", "content": "Whose museum is it?"}]
ANSWER = [{"role": "assistant", "content": "The river's."}]
OTHER = [{"role": "assistant", "content": "When?"}]
THOUGHT = {"role": "assistant", "content": "The river's.", "reasoning_content": "Years ago, said the mayor."}
CALLING = [
    *ASKED,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "the river"},
    {"role": "assistant", "content": "The river's."},
]


def file_of(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def trained(folder: Path, row: dict[str, Any], family: str = "Qwen3") -> dict[str, Any]:
    """A row as SFT trains it: its tokens, and the text of those with a label."""
    path, (tokenizer, stops) = file_of(folder, row), tokenizer_of(family)
    (made,) = conversations.tokenize(conversations.read(path), tokenizer, stops, path, None)
    labels = [label for label in made["labels"] if label != conversations.IGNORED]
    return {"ids": made["input_ids"], "trained": tokenizer.decode(labels), "unread": made["unread"]}


def rendered(messages: list[dict[str, Any]], family: str = "Qwen3", **given: Any) -> list[int]:
    ids: list[int] = tokenizer_of(family)[0].apply_chat_template(messages, return_dict=False, **given)
    return ids


@pytest.mark.parametrize(
    ("family", "row", "given"),
    [
        ("Qwen2.5", {"messages": CALLING, "tools": [TOOL]}, {"tools": [TOOL]}),
        ("Qwen2.5", {"messages": CALLING, "tools": json.dumps([TOOL])}, {"tools": [TOOL]}),
        ("Qwen3", {"messages": [*ASKED, THOUGHT]}, {}),
        ("Qwen3", {"messages": [*ASKED, {"role": "assistant", "content": "The river's."}]}, {}),
    ],
    ids=["tools and calls", "tools as a text", "a thought", "neither"],
)
def test_a_conversation_is_what_the_template_writes_of_all_its_keys(tmp_path, family, row, given):
    assert trained(tmp_path, row, family)["ids"] == rendered(row["messages"], family, **given)


def test_a_call_and_a_thought_are_trained(tmp_path):
    made = trained(tmp_path, {"messages": CALLING, "tools": [TOOL]}, "Qwen2.5")
    assert '"name": "find", "arguments": {"what": "mill"}' in made["trained"]
    assert "Years ago, said the mayor." in trained(tmp_path, {"messages": [*ASKED, THOUGHT]})["trained"]


def test_arguments_of_a_call_that_are_a_text_are_the_object_that_a_server_makes_of_them(tmp_path):
    as_text = json.loads(json.dumps(CALLING))
    as_text[1]["tool_calls"][0]["function"]["arguments"] = '{"what": "mill"}'
    row = {"messages": as_text, "tools": [TOOL]}
    assert trained(tmp_path, row, "Qwen2.5")["ids"] == rendered(CALLING, "Qwen2.5", tools=[TOOL])


def test_variables_of_a_row_are_those_of_its_template(tmp_path):
    prompt = {"prompt": ASKED, "chosen": [THOUGHT], "rejected": [{"role": "assistant", "content": "When?"}]}
    ids = {}
    for thinking in (True, False):
        row = prompt | {"chat_template_kwargs": {"enable_thinking": thinking}}
        path = file_of(tmp_path, row)
        (made,) = pairs.tokenize(pairs.read(path), *tokenizer_of("Qwen3"), path)
        ids[thinking] = made["prompt_ids"]
        assert ids[thinking] == rendered(ASKED, add_generation_prompt=True, enable_thinking=thinking)
    assert ids[True] != ids[False]


@pytest.mark.parametrize("key", ["weight", "loss_weight", "train"])
def test_a_turn_that_is_not_to_be_trained_has_no_label(tmp_path, key):
    wrong, right = ({"role": "assistant", "content": text} for text in ("Wrong.", "Right."))
    turns = [*ASKED, wrong | {key: 0}, *ASKED, right]
    made = trained(tmp_path, {"messages": turns})
    assert "Right." in made["trained"] and "Wrong." not in made["trained"]
    assert made["ids"] == rendered([*ASKED, wrong, *ASKED, right])


def test_a_system_text_of_a_row_is_its_first_message(tmp_path):
    row = {"messages": [*ASKED, {"role": "assistant", "content": "The river's."}], "system": "You write notes."}
    assert trained(tmp_path, row)["ids"] == rendered(
        [{"role": "system", "content": "You write notes."}, *row["messages"]]
    )


def test_labels_of_kto_choose_what_sft_trains_and_the_side_of_a_pair(tmp_path):
    row = {"prompt": "Whose museum is it?", "completion": "The river's."}
    path = file_of(tmp_path, row | {"label": True}, row | {"label": False})
    assert len(conversations.labelled_true(conversations.read(path), path)) == 1
    good, bad = pairs.read(path, labelled=True)
    assert (good["chosen"][0]["content"], good["rejected"]) == ("The river's.", None)
    assert (bad["rejected"][0]["content"], bad["chosen"]) == ("The river's.", None)


def test_labels_beside_messages_choose_what_sft_trains_too(tmp_path):
    row = {"messages": [*ASKED, *ANSWER]}
    path = file_of(tmp_path, row | {"label": True}, row | {"label": False}, row)
    read = conversations.read(path)
    assert list(read["label"]) == [True, False, True]
    assert len(conversations.labelled_true(read, path)) == 2
    assert not any(read["unread"])


@pytest.mark.parametrize("names", [("score_chosen", "score_rejected"), ("chosen_rating", "rejected_rating")])
def test_scores_of_others_are_the_margin(tmp_path, names):
    row = {
        "prompt": "Whose?",
        "chosen": "The river's.",
        "rejected": "When?",
        **dict(zip(names, (4.0, 1.5), strict=True)),
    }
    assert pairs.margins_of(pairs.read(file_of(tmp_path, row))) == [2.5]


@pytest.mark.parametrize("score", [math.nan, -math.inf])
def test_a_score_that_is_no_finite_number_is_none(tmp_path, score):
    row = {
        "prompt": "Whose?",
        "chosen": "The river's.",
        "rejected": "When?",
        "score_chosen": 2,
        "score_rejected": score,
    }
    assert pairs.margins_of(pairs.read(file_of(tmp_path, row))) == [None]


@pytest.mark.parametrize("arguments", ["12", '["mill"]', ["mill"], 12, True])
def test_arguments_of_a_call_that_are_no_object_are_refused(arguments):
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": arguments}}]}
    with pytest.raises(UserError, match=r"messages: arguments of find are .*; write them as an object"):
        forms.conversation({"messages": [*ASKED, call]})


@pytest.mark.parametrize("arguments", [None, "", "null", "{}", {}])
def test_a_call_may_have_no_arguments(arguments):
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": arguments}}]}
    assert forms.conversation({"messages": [*ASKED, call]})["messages"][1]["tool_calls"]


def test_scores_against_the_names_of_the_sides_are_told_of(tmp_path):
    row = {"prompt": "Whose?", "chosen": "The river's.", "rejected": "When?", "chosen_score": 2, "rejected_score": 9}
    (pair,) = pairs.read(file_of(tmp_path, row))
    assert pair["remarks"] == [
        "rejected has the higher score in some rows; they are trained as labelled, and min_margin drops them"
    ]


def test_half_of_a_character_is_refused_by_its_row(tmp_path):
    path = file_of(tmp_path, {"messages": [*ASKED, ANSWER[0] | {"content": "cut \ud83d"}]})
    with pytest.raises(UserError, match=r"rows\.jsonl: line 1: has half of a character, the unpaired .* \\ud83d;"):
        conversations.read(path)


def test_rows_with_uneven_keys_are_the_same_out_of_parquet(tmp_path):
    """`datasets` 5 writes such columns as Arrow's JSON type."""
    rows = [{"prompt": "Whose?", "completion": "The river's."}, {"prompt": ASKED, "completion": [THOUGHT]}]
    file = tmp_path / "rows.parquet"
    features = Features({"prompt": Json(), "completion": Json(), "note": Value("string")})
    Dataset.from_list([row | {"note": None} for row in rows], features=features).to_parquet(file)
    expected = [row["messages"] for row in conversations.read(file_of(tmp_path, *rows))]
    assert [row["messages"] for row in conversations.read(file)] == expected


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl.gz", "rows.json.gz"])
def test_a_json_list_and_compressed_files_are_read(tmp_path, name):
    rows = [{"prompt": "Whose?", "completion": "The river's."}, {"prompt": "When?", "completion": "Years ago."}]
    text = json.dumps(rows, indent=1) if ".json." in f"{name}." else "\n".join(map(json.dumps, rows))
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert [row["messages"][1]["content"] for row in conversations.read(tmp_path / name)] == [
        "The river's.",
        "Years ago.",
    ]


PUBLISHED = {
    "UltraFeedback, binarized": {
        **{"prompt": "Whose museum is it?", "prompt_id": "a7", "messages": [*ASKED, *ANSWER], "score_chosen": 8.0},
        **{"chosen": [*ASKED, *ANSWER], "rejected": [*ASKED, *OTHER], "score_rejected": 5.0},
    },
    "UltraFeedback, cleaned": {
        **{"prompt": "Whose museum is it?", "chosen-rating": 5.0, "rejected-rating": 1.0, "chosen-model": "m"},
        **{"chosen": [*ASKED, *ANSWER], "rejected": [*ASKED, *OTHER]},
    },
    "HH-RLHF": {
        "chosen": "\n\nHuman: Whose museum is it?\n\nAssistant: The river's.",
        "rejected": "\n\nHuman: Whose museum is it?\n\nAssistant: When?",
    },
    "Tulu 3": {"id": "a7", "prompt": "Whose museum is it?", "chosen": [*ASKED, *ANSWER], "rejected": [*ASKED, *OTHER]},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_forms_of_pairs_are_read(tmp_path, name):
    (pair,) = pairs.read(file_of(tmp_path, PUBLISHED[name]))
    assert [pair[column][0]["content"] for column in ("prompt", "chosen", "rejected")] == [
        *("Whose museum is it?", "The river's.", "When?")
    ]


PUBLISHED_OTHERWISE = [
    ({"system": "Help.", "question": "Who?", "chosen": "Mira.", "rejected": "Oda."}, "rename question to prompt"),
    ({"prompt": "Who?", "response": "Mira.", "helpfulness": 4}, "rename response to completion"),
    ({"instruction": "Who?", "input": "", "output": "Mira."}, "rename instruction to prompt and output to completion"),
    ({"conversation": [{"input": "Who?", "output": "Mira."}]}, "rename conversation to messages"),
    ({"history": "Who?", "human_ref_A": "Mira.", "labels": 1}, "its columns are history, human_ref_A, labels"),
    ({"query": "Who?", "answers": "[]", "tools": "[]"}, "rename query to prompt"),
    ({"text": "Who?", "role": "prompter", "lang": "en"}, "its columns are lang, role, text"),
]


@pytest.mark.parametrize(("row", "told"), PUBLISHED_OTHERWISE)
def test_published_forms_that_need_other_names_are_told_which(tmp_path, row, told):
    """Orca's pairs, HelpSteer2, Alpaca, Capybara, SHP, xLAM and OpenAssistant."""
    with pytest.raises(UserError) as error:
        (pairs if "chosen" in row else conversations).read(file_of(tmp_path, row))
    assert told in str(error.value)


def test_what_is_not_read_is_named(tmp_path):
    row = {"messages": [*ASKED, {"role": "assistant", "content": "The river's.", "id": "a7"}], "source": "web"}
    assert trained(tmp_path, row)["unread"] == ["id of messages", "source"]


def test_the_provenance_of_our_own_data_is_nothing_that_a_training_leaves_out(tmp_path):
    row = {"prompt": ASKED, "chosen": ANSWER, "rejected": OTHER, "method": "deepnote", "judge": "outcome", "lang": "en"}
    assert [each["unread"] for each in pairs.read(file_of(tmp_path, row))] == [["lang"]]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"messages": [*ASKED, ANSWER[0] | {"weight": 0.5}]}, "a weight can only be 0 or 1"),
        ({"messages": [ASKED[0] | {"train": True}, *ANSWER]}, "only messages of the assistant are trained"),
        ({"messages": [*ASKED, ANSWER[0] | {"train": False}]}, "there is nothing to train"),
        ({"messages": [*ASKED, *ANSWER], "images": ["a.png"]}, "only texts are trained"),
        ({"messages": [*ASKED, *ANSWER], "functions": [TOOL]}, "rename it to tools"),
        ({"messages": [*ASKED, *ANSWER], "kto_tag": False}, "rename it to label"),
        ({"messages": [*ASKED, *ANSWER], "tools": "find"}, "tools is a text that is not JSON"),
        ({"messages": [{"role": "narrator", "content": "Once."}, *ANSWER]}, "the roles are assistant, "),
        ({"messages": [{"role": "system", "content": "A."}, *ASKED, *ANSWER], "system": "B."}, "remove one of them"),
        ({"question": "Whose?", "answer": "The river's."}, "rename question to prompt and answer to completion"),
        ({"prompt": "Whose?", "input": "A museum.", "completion": "The river's."}, "put its text into prompt"),
        ({"prompt": "Whose?", "completion": "The river's.", "label": "good"}, "write true for a good completion"),
        ({"messages": "[{'role': 'user', 'content': 'Whose?'}]"}, "write them as a list of objects"),
        ({"prompt": "Whose?", "completion": '{"messages": [{"role": "user"'}, "write them as a list of objects"),
        ({"messages": [*ASKED, ANSWER[0] | {"content": " \n"}]}, "has an empty message of the assistant"),
        ({"messages": [*ASKED, ANSWER[0] | {"mask": 1}]}, "write it as the weight of each message"),
        ({"messages": [*ASKED, *ANSWER], "loss_mask": [0, 1]}, "write it as the weight of each message"),
        ({"messages": [*ASKED, ANSWER[0] | {"loss_scale": 0.5}]}, "a weight can only be 0 or 1"),
        ({"prompt": ASKED, "completion": [*ASKED, *ANSWER]}, "completion repeats its prompt; give only the messages"),
        (
            {"prompt": [*ASKED, *ANSWER], "completion": [*ASKED, *ANSWER, *ASKED, *OTHER]},
            "completion repeats its prompt",
        ),
    ],
)
def test_what_would_change_the_training_is_refused(row, told):
    with pytest.raises(UserError, match=r"\A[^\n]*\Z") as error:
        forms.conversation(row)
    assert told in str(error.value)


PASSAGES = {
    "context": "The river's museum opened in 1921.",
    "contexts": ["The river's museum opened in 1921."],
    "documents": [{"id": 7, "title": "Museums", "text": "The river's museum opened in 1921."}],
    "passages": ["Nobody asked.", "The river's museum opened in 1921."],
    "docs": {"title": "Museums", "sentences": ["The river's museum opened in 1921."]},
}


@pytest.mark.parametrize("name", PASSAGES)
def test_context_beside_the_conversation_has_to_be_in_it(name):
    """A model that is trained without it would learn to answer from nothing."""
    given = {name: PASSAGES[name]}
    forms_of_rows = [
        (forms.conversation, "messages", {"messages": [*ASKED, *ANSWER]}),
        (forms.conversation, "prompt", {"prompt": ASKED, "completion": ANSWER}),
        (forms.pair, "prompt", {"prompt": ASKED, "chosen": ANSWER, "rejected": OTHER}),
        (forms.pair, "chosen", {"chosen": [*ASKED, *ANSWER], "rejected": [*ASKED, *OTHER]}),
    ]
    for form, column, row in forms_of_rows:
        with pytest.raises(
            UserError, match=f"has the column {name} beside {column}, which the model would not see; put"
        ):
            form(row | given)
        shown = json.dumps(row).replace("Whose", "Nobody asked. The river's museum opened in 1921. Whose")
        assert form(json.loads(shown) | given)


def test_context_that_only_the_answer_repeats_is_not_seen():
    with pytest.raises(UserError, match="has the column context beside messages"):
        forms.conversation({"messages": [*ASKED, *ANSWER], "context": ANSWER[0]["content"]})


@pytest.mark.parametrize("key", ["weight", "cache_control", "image_url"])
def test_a_part_of_a_content_has_nothing_but_its_text(key):
    asked = {"role": "user", "content": [{"type": "text", "text": "Whose?", key: {"url": "a"}}]}
    with pytest.raises(UserError, match=f"messages has a message whose content has {key} beside its text"):
        forms.conversation({"messages": [asked, *ANSWER]})
    asked = {"role": "user", "content": [{"type": "text", "text": "Whose?", key: None, "annotations": []}]}
    assert forms.conversation({"messages": [asked, *ANSWER]})["messages"][0]["content"] == "Whose?"


def test_the_space_after_the_last_mark_of_a_dialogue_is_no_part_of_an_answer():
    asked = "\n\nHuman: Whose museum is it?\n\nAssistant:"
    pair = forms.pair({"prompt": asked, "chosen": " The river's.", "rejected": " When?"})
    assert (pair["prompt"], pair["chosen"], pair["rejected"]) == (ASKED, ANSWER, OTHER)
    assert forms.conversation({"prompt": asked, "completion": " The river's."})["messages"] == [*ASKED, *ANSWER]
    # Without marks a text is as it is written.
    assert forms.pair({"prompt": "Whose?", "chosen": " His.", "rejected": "When?"})["chosen"][0]["content"] == " His."


def test_answers_that_begin_with_the_text_of_their_prompt_are_told_of():
    told = [
        "completions repeat the text of their prompt in some rows, and the repetition is trained; remove it from them"
    ]
    pair = {"prompt": "Whose is it?", "chosen": "Whose is it? His.", "rejected": "Whose is it? When?"}
    assert forms.pair(pair)["remarks"] == told
    assert forms.conversation({"prompt": "Whose is it?", "completion": "Whose is it? His."})["remarks"] == told
    assert forms.pair(pair | {"rejected": "When?"})["remarks"] == []


def test_a_completion_of_kto_is_named_by_its_column():
    with pytest.raises(UserError, match="completion is not one message of the assistant"):
        forms.pair({"prompt": ASKED, "completion": [*ASKED, *ANSWER], "label": True}, labelled=True)


def test_a_prompt_and_sides_beside_messages_are_named_as_not_read():
    row = {"messages": [*ASKED, *ANSWER], "prompt": "When?", "chosen": "a", "rejected": "b"}
    assert forms.conversation(row)["unread"] == ["chosen", "prompt", "rejected"]


@pytest.mark.parametrize("content", ["", " \n", None, [], [{"type": "text", "text": ""}]])
def test_an_answer_without_words_is_refused_alike_in_every_form(content):
    empty = [{"role": "assistant", "content": content}]
    sft = [{"messages": [*ASKED, *empty, *ASKED, *ANSWER]}, {"prompt": ASKED, "completion": empty}]
    kto = [{"prompt": ASKED, "completion": empty, "label": label} for label in (True, False)]
    dpo = [{"prompt": ASKED, "chosen": ANSWER, "rejected": ANSWER} | {side: empty} for side in ("chosen", "rejected")]
    for form, rows in ((forms.conversation, sft), (partial(forms.pair, labelled=True), kto), (forms.pair, dpo)):
        for row in rows:
            with pytest.raises(UserError, match="has an empty message of the assistant; only its end would be trained"):
                form(row)


def test_a_call_without_a_text_and_an_empty_turn_that_is_not_trained_are_read():
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": {}}}]}
    assert forms.pair({"prompt": ASKED, "chosen": [call], "rejected": ANSWER})["chosen"] == [call]
    skipped = {"role": "assistant", "content": "", "train": False}
    assert forms.conversation({"messages": [*ASKED, skipped, *ASKED, *ANSWER]})["untrained"] == [1]


@pytest.mark.parametrize(
    ("family", "row", "told"),
    [
        ("SmolLM2", {"messages": [*ASKED, *ANSWER], "tools": [TOOL]}, "does not write them"),
        ("SmolLM2", {"messages": [*ASKED, THOUGHT]}, "does not write reasoning_content of a message"),
        (
            "Qwen3",
            {"messages": [{"role": "system", "content": "Notes.", "tools": [TOOL]}, *ASKED, *ANSWER]},
            "does not write tools of a message; give them in the column tools",
        ),
        (
            "Qwen3",
            {"messages": [*ASKED, {"role": "assistant", "content": "It is.<|im_end|>"}]},
            "holds <|im_end|> in a text",
        ),
        ("Qwen3", {"messages": [*ASKED, *ANSWER], "chat_template_kwargs": {"enable_thinkin": False}}, "enable_thinkin"),
    ],
    ids=["tools", "a thought", "tools of a message", "a special token", "a variable"],
)
def test_what_the_template_does_not_write_is_refused(tmp_path, family, row, told):
    tokenizer, stops = tokenizer_of(family)
    path = file_of(tmp_path, row)
    with pytest.raises(UserError) as error:
        conversations.tokenize(conversations.read(path), tokenizer, stops, path, None)
    assert told in str(error.value) and str(path) in str(error.value) and "line 1" in str(error.value)


ENDED = {"role": "assistant", "content": "The river's.<|im_end|>"}


@pytest.mark.parametrize(
    ("row", "split_turns", "column"),
    [
        (
            {"conversations": [{"from": "human", "value": "Whose?"}, {"from": "gpt", "value": "His.<|im_end|>"}]},
            False,
            0,
        ),
        ({"messages": [*ASKED, *ANSWER, *ASKED, ENDED]}, True, 0),
        ({"prompt": ASKED, "completion": [ENDED]}, False, 1),
        ({"prompt": "Whose?<|im_end|>", "completion": ANSWER}, False, 0),
        ({"prompt": ASKED, "chosen": [ENDED], "rejected": OTHER}, False, 1),
        ({"chosen": [*ASKED, ENDED], "rejected": [*ASKED, *OTHER]}, False, 0),
    ],
)
def test_a_fault_names_the_column_of_the_file(tmp_path, row, split_turns, column):
    tokenizer, stops = tokenizer_of("Qwen3")
    path = file_of(tmp_path, row)
    with pytest.raises(UserError, match=rf"{list(row)[column]} holds <\|im_end\|> in a text"):
        conversations.tokenize(conversations.read(path, split_turns), tokenizer, stops, path, None)


FORMS = {
    "messages": {"messages": [{"role": "system", "content": "Notes."}, *CALLING], "tools": [TOOL], "source": "web"},
    "weights": {"messages": [*ASKED, ANSWER[0] | {"weight": 0}, *ASKED, ANSWER[0] | {"weight": 1}], "system": "Notes."},
    "conversations": {
        "conversations": [{"from": "human", "value": "Whose?"}, {"from": "gpt", "value": "The river's."}]
    },
    "prompt and completion": {
        "prompt": ASKED,
        "completion": [THOUGHT],
        "chat_template_kwargs": {"enable_thinking": True},
    },
    "texts": {"prompt": "Whose?", "completion": "The river's.", "label": True},
    "pairs": {"prompt": ASKED, "chosen": ANSWER, "rejected": OTHER, "score_chosen": 2.0, "score_rejected": 1},
    "whole conversations": {"chosen": [*ASKED, *ANSWER], "rejected": [*ASKED, *OTHER]},
    "dialogues": {
        "chosen": "\n\nHuman: Whose is it?\n\nAssistant: The river's.",
        "rejected": "\n\nHuman: Whose is it?\n\nAssistant: When?",
    },
}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def read_as(row: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The messages that are trained of a row; of a pair those of both sides."""
    tokenizer, stops = TOKENIZERS.get(name) or tokenizer_of("Qwen2.5")
    if "chosen" not in FORMS[name]:
        made = forms.conversation(row)
        messages, given = made["messages"], rendering.given(made)
        own = written.own_tokens(tokenizer, stops)
        trained = [n for n, each in enumerate(messages) if each["role"] == "assistant" and n >= made["trained_from"]]
        written.check(messages, trained, given, lambda _: "messages", tokenizer, own)
        conversations.label(messages, made["trained_from"], tokenizer, stops, made["untrained"], rendering.given(made))
        return list(messages)
    made = forms.pair(row)
    return [*made["prompt"], *made["chosen"], *made["rejected"]]


@pytest.mark.parametrize("name", FORMS)
def test_any_field_of_a_row_damaged_it_is_trained_as_written_or_is_one_clear_line(monkeypatch, name):
    monkeypatch.setattr(test_damage, "EVERYTHING", True)
    read_as(FORMS[name], name)
    kinds = 0
    for what, row in test_damage.damaged(name, FORMS[name]):
        kinds += 1
        there = list(texts(row))
        try:
            messages = read_as(row, name)
        except UserError as error:
            assert str(error) and "\n" not in str(error), what
            continue
        for message in messages:
            said = message.get("content") or ""
            assert any(said in text for text in there) or not said, (what, said)
    assert kinds >= 14
