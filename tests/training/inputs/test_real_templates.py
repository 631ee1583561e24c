"""What is trained under the chat templates that models ship, token by token, and what is refused with which remedy."""

from pathlib import Path

import pytest
from datasets import Dataset
from real_templates import FAMILIES, SHIPPED, template_of, tokenizer_of
from transformers import PreTrainedTokenizerBase

from notewriter.ground.errors import UserError
from notewriter.models import chat_template
from notewriter.training.inputs import checks, conversations, pairs, rendering, rows

CHAIN = [
    {"role": "user", "content": "Whose museum is it?"},
    {"role": "assistant", "content": "The river's."},
    {"role": "user", "content": "When?"},
    {"role": "assistant", "content": "Years ago."},
]

CHATML = """\
Whose museum is it?<|im_end|>
<|im_start|>assistant
⟦The river's.<|im_end|>⟧
<|im_start|>user
When?<|im_end|>
<|im_start|>assistant
⟦Years ago.<|im_end|>⟧
"""
LLAMA = (
    "Whose museum is it?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n⟦The river's.<|eot_id|>⟧"
    "<|start_header_id|>user<|end_header_id|>\n\nWhen?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    "⟦Years ago.<|eot_id|>⟧"
)
GEMMA = """\
Whose museum is it?<end_of_turn>
<start_of_turn>model
⟦The river's.<end_of_turn>⟧
<start_of_turn>user
When?<end_of_turn>
<start_of_turn>model
⟦Years ago.<end_of_turn>⟧
"""
PHI = """\
Whose museum is it?<|end|>
<|assistant|>
⟦The river's.<|end|>⟧
<|user|>
When?<|end|>
<|assistant|>
⟦Years ago.<|end|>⟧
<|endoftext|>"""
WITHOUT_THINKING = CHATML.replace("⟦", "<think>\n\n</think>\n\n⟦")

TRAINED = {
    "SmolLM2": CHATML,
    "SmolLM3 on a day": CHATML,
    "SmolLM3 on a day without thinking": CHATML.replace("⟦", "<think>\n\n</think>\n⟦"),
    "Qwen2.5": CHATML,
    "Qwen3-Instruct-2507": CHATML,
    "Qwen3.8 without thinking": WITHOUT_THINKING,
    "DeepSeek-R1-Distill without its opening": (
        "Whose museum is it?<｜Assistant｜>⟦The river's.<｜end▁of▁sentence｜>⟧"
        "<｜User｜>When?<｜Assistant｜>⟦Years ago.<｜end▁of▁sentence｜>⟧"
    ),
    "Llama-3": LLAMA,
    "Llama-3.1": LLAMA,
    "Llama-3.2 on a day": LLAMA,
    # No turn is closed: the next one's marker, at which a server stops, is what ends it.
    "GLM-Z1 without its opening": (
        "Whose museum is it?<|assistant|>⟦\nThe river's.<|user|>⟧\nWhen?<|assistant|>⟦\nYears ago.<|user|>⟧"
    ),
    "GLM-4.5": (
        "Whose museum is it?<|assistant|>⟦\n<think></think>\nThe river's.<|user|>⟧"
        "\nWhen?<|assistant|>⟦\n<think></think>\nYears ago.<|user|>⟧"
    ),
    "GLM-4.5 without thinking": (
        "Whose museum is it?/nothink<|assistant|>\n<think></think>⟦\nThe river's.<|user|>⟧"
        "\nWhen?/nothink<|assistant|>\n<think></think>⟦\nYears ago.<|user|>⟧"
    ),
    "Gemma": GEMMA,
    "Gemma-3": GEMMA,
    "Gemma-4": GEMMA.replace("<end_of_turn>", "<turn|>").replace("<start_of_turn>", "<|turn>"),
    # A conversation is closed by one token more, which a server never sees: it stops at <|end|>.
    "Phi-3": PHI,
    "Phi-3.5": PHI,
    "Phi-4": (
        "Whose museum is it?<|im_end|><|im_start|>assistant<|im_sep|>⟦The river's.<|im_end|>⟧"
        "<|im_start|>user<|im_sep|>When?<|im_end|><|im_start|>assistant<|im_sep|>⟦Years ago.<|im_end|>⟧"
    ),
}
"""What a conversation of two turns becomes: between ⟦ and ⟧ is what is trained."""

STRIPPED = """\
Whose museum is it?<|im_end|>
<|im_start|>assistant
The river's.<|im_end|>
<|im_start|>user
When?<|im_end|>
<|im_start|>assistant
⟦<think>

</think>

Years ago.<|im_end|>⟧
"""
QUIET = STRIPPED.replace("⟦<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n⟦")

SPLIT = {
    "Qwen3": STRIPPED,
    "Qwen3 without thinking": QUIET,
    "Qwen3.5 without thinking": QUIET,
    "Qwen3.5-2B": QUIET,
    "gpt-oss on a day": (
        "Whose museum is it?<|end|><|start|>assistant<|channel|>final<|message|>The river's.<|end|>"
        "<|start|>user<|message|>When?<|end|><|start|>assistant⟦<|channel|>final<|message|>Years ago.<|return|>⟧"
    ),
}
"""Templates that show an earlier turn otherwise than the last: what the second row of the split conversation is."""

REFUSED = {
    "SmolLM3": r"smollm3: its chat template writes today's date .* no variable for the date: .* replace strftime_now",
    "gpt-oss": r"gptoss: its chat template writes today's date .* no variable for the date: .* replace strftime_now",
    "Mistral-Small-3.1": r"mistral_small_3_1: its chat template writes today's date",
    "Llama-3.2": r'llama3_2: .* today\'s date .* set chat_template_kwargs: {date_string: "26 Jul 2024"}',
    "Qwen3.5": r"set chat_template_kwargs: {enable_thinking: false}, for training and serving",
    "Qwen3.8": r"set chat_template_kwargs: {enable_thinking: false}, for training and serving",
    "DeepSeek-R1-Distill": r"opens each answer with '<think>\\n' and has no variable .* remove this opening from",
    "GLM-Z1": r"opens each answer with '<think>' and has no variable .* remove this opening from",
}
"""What cannot be trained as it comes, and the remedy that the error names."""


def marked(row: dict[str, list[int]], tokenizer: PreTrainedTokenizerBase) -> str:
    """A row's text from the first question on, with what is trained between ⟦ and ⟧."""
    text, shown = "", 0
    for start, end in checks.trained_runs(row["labels"]):
        text += tokenizer.decode(row["input_ids"][shown:start])
        text += f"⟦{tokenizer.decode(row['input_ids'][start:end])}⟧"
        shown = end
    text += tokenizer.decode(row["input_ids"][shown:])
    return text[text.index("Whose") :]


def test_every_family_is_in_one_of_the_tables() -> None:
    assert sorted([*TRAINED, *SPLIT, *REFUSED]) == sorted(FAMILIES)


@pytest.mark.parametrize("family", TRAINED)
def test_what_the_model_writes_is_trained_and_nothing_else(family: str) -> None:
    tokenizer, stops = tokenizer_of(family)

    row = conversations.label(CHAIN, 0, tokenizer, stops)

    assert marked(row, tokenizer) == TRAINED[family]
    sample = row | {"stage": "", "row": "row 0"}
    assert checks.sample_fault(sample, tokenizer, stops) is None
    for turn, (start, _) in zip((1, 3), checks.trained_runs(row["labels"]), strict=True):
        (served,) = rendering.render([CHAIN[:turn]], tokenizer, generate=True)
        assert row["input_ids"][:start] == served


@pytest.mark.parametrize("family", SPLIT)
def test_where_turns_have_to_be_split_the_error_says_so_and_split_they_are_trained(family: str) -> None:
    tokenizer, stops = tokenizer_of(family)

    with pytest.raises(UserError, match=r"not prefix-stable: .*; give --split_turns true"):
        conversations.label(CHAIN, 0, tokenizer, stops)
    assert marked(conversations.label(CHAIN, 3, tokenizer, stops), tokenizer) == SPLIT[family]


@pytest.mark.parametrize("family", REFUSED)
def test_what_cannot_be_trained_as_it_comes_is_refused_with_the_remedy(family: str) -> None:
    tokenizer, stops = tokenizer_of(family)

    with pytest.raises(UserError, match=REFUSED[family]):
        conversations.label(CHAIN[:2], 1, tokenizer, stops)


@pytest.mark.parametrize("family", [*TRAINED, *SPLIT])
def test_both_sides_of_a_pair_begin_with_the_prompt_as_it_is_served(family: str) -> None:
    tokenizer, stops = tokenizer_of(family)
    row = {"prompt": CHAIN[:1], "chosen": CHAIN[1:2], "rejected": CHAIN[3:], "stage": "note", "row": "row 0"}

    measured = pairs.tokenize(Dataset.from_list([row]), tokenizer, stops, Path("train.parquet"))

    checks.check_pairs(measured, tokenizer, stops, "train.parquet")
    assert measured[0]["prompt_ids"] == rendering.render([CHAIN[:1]], tokenizer, generate=True)[0]
    assert "The river's." in tokenizer.decode(measured[0]["chosen_ids"])


@pytest.mark.parametrize("family", [*TRAINED, *SPLIT])
def test_sft_on_pairs_trains_the_tokens_of_the_chosen_side(family: str, tmp_path: Path) -> None:
    tokenizer, stops = tokenizer_of(family)
    file = tmp_path / "train.parquet"
    row = {"prompt": CHAIN[:1], "chosen": CHAIN[1:2], "rejected": CHAIN[3:], "stage": "note", "question_id": "q"}
    Dataset.from_list([row]).to_parquet(str(file))

    (pair,) = pairs.tokenize(pairs.read(file), tokenizer, stops, file)
    (turn,) = conversations.tokenize(conversations.read(file), tokenizer, stops, file, None)

    assert turn["input_ids"] == pair["prompt_ids"] + pair["chosen_ids"]
    ((start, end),) = checks.trained_runs(turn["labels"])
    assert start == len(pair["prompt_ids"])
    # What follows the end of the turn is white space, which only DPO's loss covers.
    assert not tokenizer.decode([token for token in turn["input_ids"][end:] if token not in stops]).strip()
    assert turn["input_ids"][end - 1] in stops


@pytest.mark.parametrize("family", ["Qwen3.5", "Qwen3.8", "DeepSeek-R1-Distill", "GLM-Z1"])
def test_pairs_under_a_template_that_opens_a_thought_are_refused_with_the_remedy(family: str) -> None:
    tokenizer, stops = tokenizer_of(family)
    row = {"prompt": CHAIN[:1], "chosen": CHAIN[1:2], "rejected": CHAIN[3:], "stage": "note", "row": "row 0"}
    measured = pairs.tokenize(Dataset.from_list([row]), tokenizer, stops, Path("train.parquet"))

    with pytest.raises(UserError, match=REFUSED[family]):
        checks.check_pairs(measured, tokenizer, stops, "train.parquet")


def test_a_date_that_only_stands_in_a_default_prompt_hinders_no_row_with_a_prompt_of_its_own() -> None:
    tokenizer, stops = tokenizer_of("Mistral-Small-3.1")

    row = conversations.label([{"role": "system", "content": "You write notes."}, *CHAIN], 0, tokenizer, stops)

    assert marked(row, tokenizer) == ("Whose museum is it?[/INST]⟦The river's.</s>⟧[INST]When?[/INST]⟦Years ago.</s>⟧")


@pytest.mark.parametrize("family", [family for family, known in FAMILIES.items() if known.settings])
def test_a_checkpoints_template_renders_by_itself_as_the_models_own_with_the_variables(family: str) -> None:
    settings = FAMILIES[family].settings
    tokenizer, _ = tokenizer_of(family)
    (preset,) = rendering.render([CHAIN[:3]], tokenizer, generate=True)

    assert tokenizer.chat_template.endswith(template_of(family))
    assert settings.keys() <= chat_template.variables(tokenizer.chat_template)
    own = template_of(family)
    options = {"add_generation_prompt": True, "return_dict": True}
    asked = tokenizer.apply_chat_template(CHAIN[:3], chat_template=own, **options, **settings)
    assert preset == asked["input_ids"]
    # A request still has the last word.
    other = {"enable_thinking": True} if "enable_thinking" in settings else {"date_string": "1 Jan 2000"}
    overridden = tokenizer.apply_chat_template(CHAIN[:3], **options, **other)
    asked = tokenizer.apply_chat_template(CHAIN[:3], chat_template=own, **options, **other)
    assert overridden["input_ids"] == asked["input_ids"] != preset


def test_kept_tokens_are_those_of_the_same_template_variables_stops_and_code() -> None:
    dataset = Dataset.from_list([{"prompt": CHAIN[:1]}])
    plain, stops = tokenizer_of("Qwen3")
    quiet, _ = tokenizer_of("Qwen3 without thinking")

    keys = [
        rows.cache_key(dataset, plain, stops, pairs),
        rows.cache_key(dataset, quiet, stops, pairs),
        rows.cache_key(dataset, plain, frozenset(), pairs),
        rows.cache_key(dataset, plain, stops, conversations),
    ]

    assert len(set(keys)) == 4
    assert rows.cache_key(dataset, plain, stops, pairs) == keys[0]


def test_conversations_of_the_same_file_are_tokenised_once_for_each_template(tmp_path: Path) -> None:
    file = tmp_path / "train.parquet"
    Dataset.from_list([{"messages": CHAIN[:2]}]).to_parquet(str(file))
    plain, stops = tokenizer_of("Qwen3")
    quiet, _ = tokenizer_of("Qwen3 without thinking")

    rows = [
        conversations.tokenize(conversations.read(file), tokenizer, stops, file, None)[0]
        for tokenizer in (plain, quiet)
    ]

    assert [marked(row, plain).count("⟦<think>") for row in rows] == [1, 0]


@pytest.mark.parametrize("template", ["smolvlm", "idefics3"])
def test_a_template_that_takes_lists_alone_is_refused(template: str) -> None:
    """It would write empty turns of texts."""
    tokenizer, _ = tokenizer_of("SmolLM2")
    tokenizer.chat_template = (SHIPPED / f"{template}.jinja").read_text()
    with pytest.raises(
        UserError, match="leaves out the text of a message of the role assistant, or accepts it only as a list"
    ):
        rendering.render([CHAIN], tokenizer)


@pytest.mark.parametrize("role", ["system", "observation"])
def test_a_template_that_leaves_out_a_role_is_refused_where_the_data_have_it(role: str) -> None:
    tokenizer, _ = tokenizer_of("SmolLM2")
    tokenizer.chat_template = (
        "{% for m in messages if m.role in ('user', 'assistant') %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    assert rendering.render([CHAIN], tokenizer)
    with pytest.raises(UserError, match=f"leaves out the text of a message of the role {role}"):
        rendering.render([CHAIN, [*CHAIN, {"role": role, "content": "You write notes."}]], tokenizer)
