"""What of a conversation is trained: the assistant's turns with the token that ends them, under any chat template."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_families import STOPS, TEMPLATES, tokenizer_of
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.training.inputs import conversations, forms, rows

CHAIN = [
    {"role": "system", "content": "the town"},
    {"role": "user", "content": "whose museum"},
    {"role": "assistant", "content": "a river"},
    {"role": "user", "content": "clocks ago"},
    {"role": "assistant", "content": "the mayor"},
]

TRAINED = {
    "chatml": "a river <im_end> the mayor <im_end>",
    "llama3": "a river <eot> the mayor <eot>",
    "mistral": "a river </s> the mayor </s>",
    "glm4": "a river <|user|> the mayor <|user|>",
}


def trained(labelled: dict[str, list[int]], tokenizer: PreTrainedTokenizerBase) -> str:
    return tokenizer.decode([label for label in labelled["labels"] if label != conversations.IGNORED])


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_assistants_turns_and_what_ends_them_are_trained_and_nothing_else(family: str) -> None:
    tokenizer, stops = tokenizer_of(TEMPLATES[family], STOPS[family])

    labelled = conversations.label(CHAIN, 0, tokenizer, stops)

    assert trained(labelled, tokenizer) == TRAINED[family]
    pairs = zip(labelled["input_ids"], labelled["labels"], strict=True)
    assert all(label in (token, conversations.IGNORED) for token, label in pairs)


@pytest.mark.parametrize("family", TEMPLATES)
def test_each_turn_begins_where_a_server_would_let_the_model_write(family: str) -> None:
    tokenizer, stops = tokenizer_of(TEMPLATES[family], STOPS[family])
    labelled = conversations.label(CHAIN, 0, tokenizer, stops)

    for turn in (2, 4):
        served = tokenizer.apply_chat_template(CHAIN[:turn], add_generation_prompt=True, return_dict=True)["input_ids"]
        assert labelled["input_ids"][: len(served)] == served
        assert labelled["labels"][len(served)] == labelled["input_ids"][len(served)]
        assert labelled["labels"][len(served) - 1] == conversations.IGNORED


def test_turns_of_the_prompt_are_not_trained() -> None:
    tokenizer, stops = tokenizer_of(TEMPLATES["chatml"], STOPS["chatml"])

    assert trained(conversations.label(CHAIN, 4, tokenizer, stops), tokenizer) == "the mayor <im_end>"


# What Qwen3 and DeepSeek-R1 do: thoughts stay in the last turn only.
FORGETFUL = (
    "{% for m in messages %}<im_start> {{ m.role }} "
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think> ')[-1] }}"
    "{% else %}{{ m.content }}{% endif %} <im_end> {% endfor %}"
    "{% if add_generation_prompt %}<im_start> assistant {% endif %}"
)
THOUGHTS = [
    message | {"content": f"<think> thought </think> {message['content']}"}
    if message["role"] == "assistant"
    else message
    for message in CHAIN
]


def test_a_template_that_strips_earlier_thoughts_is_refused() -> None:
    tokenizer, stops = tokenizer_of(FORGETFUL, ["<im_end>"])

    with pytest.raises(UserError, match=r"not prefix-stable: after 3 message\(s\) a server renders '<think> thought"):
        conversations.label(THOUGHTS, 0, tokenizer, stops)


def test_split_turns_train_each_turn_as_it_was_written_after_what_a_server_shows(tmp_path: Path) -> None:
    tokenizer, stops = tokenizer_of(FORGETFUL, ["<im_end>"])
    file = tmp_path / "train.parquet"
    Dataset.from_list([{"messages": THOUGHTS}]).to_parquet(str(file))

    rows = conversations.tokenize(conversations.read(file, split_turns=True), tokenizer, stops, file, None)

    assert [trained(row, tokenizer) for row in rows] == [
        "<think> thought </think> a river <im_end>",
        "<think> thought </think> the mayor <im_end>",
    ]
    # The thought of the first turn is not in the context of the second.
    assert tokenizer.decode(rows[1]["input_ids"]).count("thought") == 1


def test_chains_completions_and_pairs_are_read_alike(tmp_path: Path, make_pair: Callable[..., dict]) -> None:
    user, assistant = CHAIN[1], CHAIN[2]
    chains, pairs = tmp_path / "chains.parquet", tmp_path / "pairs.parquet"
    Dataset.from_list([{"messages": CHAIN[:3], "question_id": "q1", "dataset": "musique", "f1": 1.0}]).to_parquet(
        str(chains)
    )
    Dataset.from_list([make_pair(0)]).to_parquet(str(pairs))
    lines = tmp_path / "general.jsonl"
    records = [
        {"prompt": [user], "completion": [assistant]},
        {"prompt": user["content"], "completion": assistant["content"]},
    ]
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))

    columns = ["messages", "trained_from", "stage", "question_id", "row"]
    (chain,) = conversations.read(chains).select_columns(columns)
    assert chain == {
        "messages": CHAIN[:3],
        "trained_from": 0,
        "stage": "musique",
        "question_id": "q1",
        "row": "row 0 (question q1)",
    }
    first, second = conversations.read(lines).select_columns(columns)
    text = {"messages": [user, assistant], "trained_from": 1, "stage": "general", "question_id": ""}
    assert (first, second) == (text | {"row": "line 1"}, text | {"row": "line 2"})
    (pair,) = conversations.read(pairs)
    assert pair["messages"] == make_pair(0)["prompt"] + make_pair(0)["chosen"]
    assert (pair["trained_from"], pair["stage"]) == (1, "init_note")


def test_kept_rows_are_those_of_the_code_that_reads_them(
    tmp_path: Path, make_pair: Callable[..., dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pairs.parquet"
    Dataset.from_list([make_pair(0)]).to_parquet(str(file))
    source = inspect.getsource
    kept = conversations.read(file)._fingerprint
    for changed in (conversations, forms, rows):
        monkeypatch.setattr(inspect, "getsource", lambda module, new=changed: source(module) + "#" * (module is new))
        assert conversations.read(file)._fingerprint != kept
    monkeypatch.undo()
    assert conversations.read(file)._fingerprint == kept


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"text": "the town"}, "has neither messages, nor prompt and completion"),
        ({"messages": CHAIN[:2]}, "has no message of the assistant"),
        ({"messages": CHAIN[2:]}, "begins with a message of the assistant"),
        ({"messages": [{"role": "user"}]}, "messages has a message without a role and a content"),
        ({"prompt": "the town", "completion": [CHAIN[1]]}, "completion has no message of the assistant"),
    ],
)
def test_row_that_is_no_conversation_is_named(tmp_path: Path, row: dict, fault: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"messages": CHAIN}) + "\n" + json.dumps(row) + "\n")

    with pytest.raises(UserError, match=rf"rows\.jsonl: line 2: .*{fault}"):
        conversations.read(file)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('no system role here') }}", "no system role"),
        ("{% for number in range(10**9) %}{% endfor %}", "OverflowError: Range too big"),
    ],
)
def test_row_that_the_template_refuses_is_named(tiny_model: Path, template: str, words: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = template
    dataset = Dataset.from_list([{"messages": CHAIN, "trained_from": 0, "columns": ["messages"] * 2, "row": "row 0"}])

    with pytest.raises(UserError, match=rf"t\.parquet: row 0: the model's chat template refuses it: {words}"):
        conversations.tokenize(dataset, tokenizer, frozenset(), Path("t.parquet"), None)


def test_mixing_draws_rows_by_ratio_and_the_same_ones_with_the_same_seed() -> None:
    dataset = Dataset.from_dict({"question_id": [f"q{i}" for i in range(8)]})
    other = Dataset.from_dict({"question_id": [f"g{i}" for i in range(6)]})

    mixed = rows.mix(dataset, {"g": other}, {"g": 0.5}, seed=1)["question_id"][:]

    assert mixed[:8] == dataset["question_id"][:]
    assert len(set(mixed[8:])) == 4 and set(mixed[8:]) <= set(other["question_id"][:])
    assert rows.mix(dataset, {"g": other}, {"g": 0.5}, seed=1)["question_id"][:] == mixed
    with pytest.raises(UserError, match=r"g: has 6 rows, and a ratio of 1 asks for 8; give at most 0\.75"):
        rows.mix(dataset, {"g": other}, {"g": 1}, seed=1)
    with pytest.raises(UserError, match="not a ratio above 0"):
        rows.mix(dataset, {"g": other}, {"g": 0}, seed=1)
