"""Prompts: every variable is used, missing ones are errors, and a user's own prompts replace ours."""

import re
from pathlib import Path
from typing import Any

import pytest

from notewriter.datasets import BENCHMARKS
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.methods import stages
from notewriter.models.roles import ModelArguments
from notewriter.rollouts import prompts
from notewriter.rollouts.identity import config_hash
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import settings_of

PASSAGES = [
    Passage("1", "Braces {{ question }}", 'The set {x} and the JSON {"a": [1]} and {% if %} and {# no #}.'),
    Passage("2", "Angle <b>brackets</b>", "Tea & biscuits, \"quoted\" and 'quoted'."),
]
STYLES = Path(prompts.__file__).parent / "answer_style"
# The variables that methods pass to each stage.
STAGES = {
    "direct/answer": {"question": "Who?", "answer_style": "short"},
    "vanilla/answer": {"question": "Who?", "passages": PASSAGES, "answer_style": "yes_no"},
    "deepnote/init_note": {"question": "Who?", "passages": PASSAGES},
    "deepnote/refine_query": {"question": "Who?", "note": "Best {note}.", "queries": ["Who {first}?", "Who then?"]},
    "deepnote/accumulate_knowledge": {"question": "Who?", "note": "Best {note}.", "passages": PASSAGES},
    "deepnote/decide": {"question": "Who?", "best_note": "Best {note}.", "new_note": "New {{ note }}."},
    "deepnote/answer": {"question": "Who?", "note": "Best {note}.", "answer_style": "long"},
    "resp/global_evidence": {"question": "Who?", "passages": PASSAGES},
    "resp/local_pathway": {"question": "Who {first}?", "passages": PASSAGES},
    "resp/judge": {"question": "Who?", "note": "Best {note}."},
    "resp/plan": {"question": "Who?", "note": "Best {note}."},
    "resp/answer": {"question": "Who?", "note": "Best {note}.", "answer_style": "short"},
    "react/step": {"question": "Who?", "answer_style": "short"},
    "react/answer": {"question": "Who?", "history": ["Action: search[{x}]", "{y}"], "answer_style": "short"},
    "renact/step": {"question": "Who?", "answer_style": "short"},
    "renact/note": {"query": "Who {built} it?", "passages": PASSAGES[:1], "note": "Best {note}."},
    "renact/answer": {"question": "Who?", "history": ["Action: search[{x}]", "{y}"], "answer_style": "short"},
    "ircot/step": {"question": "Who?", "passages": PASSAGES, "sentences": ["It {is}.", "So."], "answer_style": "short"},
    "ircot/note": {"query": "Who {built} it?", "passages": PASSAGES[:1], "note": "Best {note}."},
    "ircot/answer": {"question": "Who?", "passages": PASSAGES, "sentences": ["It {is}."], "answer_style": "long"},
    "flare/step": {"question": "Who?", "passages": PASSAGES, "sentences": ["It {is}.", "So."], "answer_style": "short"},
    "flare/note": {"query": "Who {built} it?", "passages": PASSAGES[:1], "note": "Best {note}."},
    "flare/answer": {"question": "Who?", "passages": PASSAGES, "sentences": ["It {is}."], "answer_style": "long"},
    "rearag/step": {"question": "Who?"},
    "rearag/teach": {"question": "Who?"},
    "rearag/teach_with_gold": {
        "question": "Who?",
        "answer": "{Mira}",
        "decomposition": [{"question": "bridge >> builder", "answer": "Osk {1}"}],
        "evidence": ["Osk built {it}."],
    },
    "rearag/released": {"question": "Who {x}?"},
    "rearag/observe": {"query": "Who {built} it?", "passages": PASSAGES},
    "rearag/shorten": {"question": "Who?", "reference": "It was {Mira}.", "answer_style": "short"},
    "rearag/conclude": {"question": "Who?", "searches": {"Where?": "In {Osk}."}, "answer_style": "short"},
    "in_context/answer": {"question": "Who?", "passages": PASSAGES, "answer_style": "short"},
    "chain_of_note/take_notes": {"question": "Who?", "passages": PASSAGES},
    "chain_of_note/answer": {
        "question": "Who?",
        "passages": PASSAGES,
        "notes": "[1] {beside} the point",
        "answer_style": "short",
    },
    "sure/candidates": {"question": "Who?", "passages": PASSAGES, "max_candidates": 2, "answer_style": "short"},
    "sure/summarize": {"question": "Who?", "passages": PASSAGES, "candidate": "Mira {a}"},
    "sure/validate": {"question": "Who?", "candidate": "Mira {a}", "summary": "She {{ built }} it."},
    "sure/rank": {"question": "Who?", "summaries": ["She {{ built }} it.", "He {did}."]},
    "iter_retgen/reason": {"question": "Who?", "passages": PASSAGES, "answer_style": "short"},
    "iter_retgen/answer": {"question": "Who?", "passages": PASSAGES, "answer_style": "short"},
    "rat/draft": {"question": "Who?"},
    "rat/query": {"question": "Who?", "thoughts": "First {one}."},
    "rat/revise": {"question": "Who?", "passages": PASSAGES, "thoughts": "First {one}."},
    "rat/answer": {"question": "Who?", "thoughts": "First {one}.", "answer_style": "short"},
    "search_o1/reason": {"question": "Who?", "answer_style": "short"},
    "search_o1/answer": {"question": "Who?", "reasoning": "So {far}.", "answer_style": "short"},
    "search_o1/reason_in_documents": {
        "question": "Who?",
        "reasoning": "So {far}.",
        "query": "{first}?",
        "passages": PASSAGES,
    },
    "langchain_react/step": {"question": "Who?", "scratchpad": " I {search}.", "answer_style": "short"},
    "langchain_self_rag/grade": {"question": "Who?", "passages": PASSAGES[:1]},
    "langchain_self_rag/answer": {"question": "Who?", "passages": PASSAGES, "answer_style": "short"},
    "langchain_self_rag/grade_support": {"passages": PASSAGES, "answer": "Mira {a}"},
    "langchain_self_rag/grade_usefulness": {"question": "Who?", "answer": "Mira {a}"},
    "langchain_self_rag/rewrite": {"question": "Who?"},
    "recomp/compress": {"question": "Who?", "passages": PASSAGES},
    "recomp/answer": {"question": "Who?", "note": "Best {note}.", "answer_style": "short"},
    "self_rag/decide": {"question": "Who?", "answer_style": "long"},
    "self_rag/segment": {"question": "Who?", "answer_style": "long"},
    "replug/answer": {"question": "Who?", "passages": PASSAGES[:1], "answer_style": "short"},
    "searchain/plan": {"question": "Who?", "answer_style": "short"},
    "searchain/read": {"query": "Who {built} it?", "passages": PASSAGES},
    "searchain/answer": {"question": "Who?", "chain": ["[Query 1]: {x}", "{y}"], "answer_style": "short"},
    "infogent/navigate": {"question": "Who?"},
    "infogent/select": {"question": "Who?"},
    "infogent/extract": {"question": "Who?", "passages": PASSAGES, "thought": "The {builder}."},
    "infogent/aggregate": {
        "question": "Who?",
        "kept": ["Osk {built} it."],
        "paragraphs": ["Mira {did}.", "In 1871."],
        "thought": "The {builder}.",
        "feedback": ["Find {Mira}."],
        "max_step": 10,
    },
    "infogent/answer": {"question": "Who?", "kept": ["Osk {built} it."], "answer_style": "short"},
    "search_r1/reason": {"question": "Who?", "answer_style": "short"},
    "search_r1/notice": {},
    "search_r1/answer": {"question": "Who?", "reasoning": "The {builder}.", "answer_style": "short"},
    "s3/search": {"question": "Who?", "passages": PASSAGES},
    "s3/notice": {},
    "s3/answer": {"question": "Who?", "passages": PASSAGES, "answer_style": "short"},
    "mem_agent/update_memory": {"question": "Who?", "note": "The {builder}.", "passages": PASSAGES[:1]},
    "mem_agent/answer": {"question": "Who?", "note": "The {builder}.", "answer_style": "short"},
    **{
        f"corag/{name}": {"question": "Who?", "steps": [{"query": "Who {built} it?", "answer": "{Mira}"}]}
        for name in ("sub_query", "sampled_sub_query")
    },
    **{f"corag/{name}": {"query": "Who {built} it?", "passages": PASSAGES} for name in ("sub_answer", "penalty")},
    "corag/answer": {
        "question": "Who?",
        "passages": PASSAGES,
        "steps": [{"query": "Who {built} it?", "answer": "{Mira}"}],
        "answer_style": "short",
    },
    "judge/best_and_worst": {
        "kind": "note",
        "question": "Who?",
        "request": "Write a {note}.",
        "candidates": ["One {a}", "Two"],
    },
    "judge/answer": {"question": "Who?", "golds": ["Mira {a}", "Lady Mira"], "prediction": "It was {{ Mira }}."},
    "judge/graded_answer": {"question": "Who?", "golds": ["Mira {a}"], "prediction": "It was {{ Mira }}."},
    "judge/explained_answer": {"question": "Who?", "golds": ["Mira {a}", "Lady Mira"], "prediction": "{{ Mira }}."},
    "judge/chain": {"question": "Who?", "steps": ["search: {bridge}\nfound: Osk", "answer: {Mira}"]},
    "judge/density": {"question": "Who?", "reference": "Osk {built} it.\nMira did not."},
}
OWN_FORMS = ("corag", "mem_agent", "s3/search")
"""Stages that write passages as the released checkpoints read them."""

OURS = [Path(__file__).parents[2] / "notewriter" / folder for folder in ("rollouts/prompts", "methods")]


def write(folder: Path, **files: str) -> Prompts:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.jinja"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Prompts(folder)


def test_every_stage_that_we_have_is_listed_here():
    shared = {"passages", "note_taking"} | {f"answer_style/{style}" for style in ("short", "list", "long", "yes_no")}
    files = {path.relative_to(ours).with_suffix("").as_posix() for ours in OURS for path in ours.rglob("*.jinja")}
    assert files == set(STAGES) | shared | {"rearag/released.system", "words", "marks"}


def texts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [key for key in value if key not in ("question", "answer")] + texts_in(list(value.values()))
    return [text for part in value for text in texts_in(part)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("stage", STAGES)
def test_all_that_a_stage_is_given_stands_in_its_prompt_word_for_word(stage):
    variables = STAGES[stage]
    *system, message = Prompts().render(stage, **variables)
    assert message["role"] == "user" and bool(system) == (stage == "rearag/released")
    text = message["content"]
    assert text == text.strip()
    told = [value for key, value in variables.items() if key not in ("answer_style", "kind", "passages")]
    for value in told:
        for part in texts_in(value):
            assert part in text
    for number, passage in enumerate(variables.get("passages", []), start=1):
        shown = passage.text if stage.startswith(OWN_FORMS) else f"[{number}] {passage.title}: {passage.text}"
        assert shown in text


@pytest.mark.parametrize("stage", STAGES)
def test_every_variable_is_needed(stage):
    for key in STAGES[stage]:
        rest = {name: value for name, value in STAGES[stage].items() if name != key}
        with pytest.raises(UserError, match=rf"prompt {stage}\.jinja: '{key}' is undefined; the stage provides: "):
            Prompts().render(stage, **rest)


def test_answer_styles_differ_and_nothing_else_does():
    styles = ["short", "long", "yes_no"]
    texts = {
        style: Prompts().render("deepnote/answer", question="Who?", note="She.", answer_style=style)[0]["content"]
        for style in styles
    }
    rules = {style: (OURS[0] / "answer_style" / f"{style}.jinja").read_text().strip() for style in styles}
    assert len({texts[style].replace(rules[style], "RULE") for style in styles}) == 1
    with pytest.raises(UserError, match=r"no prompt 'answer_style/loud\.jinja'"):
        Prompts().render("deepnote/answer", question="Who?", note="She.", answer_style="loud")


def test_the_first_query_is_asked_without_a_list_of_earlier_ones():
    text = Prompts().render("deepnote/refine_query", question="Who?", note="Note.", queries=[])[0]["content"]
    assert "Asked already" not in text
    assert "\n\n\n" not in text


def test_a_note_that_adds_nothing_or_only_repeats_is_not_the_better_one():
    """DeepNote, Table 15."""
    text = Prompts().render("deepnote/decide", **STAGES["deepnote/decide"])[0]["content"]
    when_true, _, when_false = text.partition('{"status": "True"}')[2].partition('{"status": "False"}')
    assert "clearly better" in when_true
    assert "adds nothing" in when_false and "repeats" in when_false


def test_a_users_prompts_go_before_ours_file_by_file(tmp_path):
    prompts = write(tmp_path, deepnote__init_note="Mine: {{ question }}{% include 'passages.jinja' %}")
    (message,) = prompts.render("deepnote/init_note", question="Who?", passages=PASSAGES[:1])
    assert message["content"].startswith("Mine: Who?[1] Braces")
    ours = Prompts().render("deepnote/decide", **STAGES["deepnote/decide"])
    assert prompts.render("deepnote/decide", **STAGES["deepnote/decide"]) == ours


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("deepnote/init_notes.jinja", r"replaces no prompt, .*; did you mean 'deepnote/init_note'"),
        ("init_note.jinja", r"replaces no prompt, .*; did you mean 'deepnote/init_note'"),
        ("prompts/deepnote/init_note.jinja", r"replaces no prompt, .*; did you mean 'deepnote/init_note'"),
        ("deepnote/init_note.txt", r"is not read, since prompts end in \.jinja; rename or remove it"),
        ("deepnote/init_note.system.md", r"is not read, since prompts end in \.jinja"),
    ],
)
def test_a_file_that_would_not_be_used_is_named(tmp_path, name, message):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Mine: {{ question }}")
    with pytest.raises(UserError, match=rf"{path}: {message}"):
        write(tmp_path, vanilla__answer="{{ question }}")


def test_a_folder_without_prompts_is_named(tmp_path):
    (tmp_path / "prompt.txt").write_text("Mine: {{ question }}")
    with pytest.raises(UserError, match=rf"{tmp_path}: prompts_dir has no prompts; .*<method>/<stage>\.jinja"):
        Prompts(tmp_path)


def test_files_that_prompts_include_and_remarks_beside_them_may_be_there(tmp_path):
    (tmp_path / "README.md").write_text("Our prompts.")
    mine = "{% include 'deepnote/rules.jinja' %} {% include 'passages.jinja' %}"
    prompts = write(tmp_path, deepnote__init_note=mine, deepnote__rules="Rules. {{ question }}")
    (tmp_path / "deepnote/init_note.md").write_text("Why the prompt is as it is.")
    (message,) = Prompts(tmp_path).render("deepnote/init_note", question="Who?", passages=[])
    assert message["content"] == "Rules. Who? None."
    assert prompts.render("deepnote/init_note", question="Who?", passages=[]) == [message]


def test_a_placeholder_of_another_language_is_named_with_its_line(tmp_path):
    with pytest.raises(UserError, match=r"init_note\.jinja:2: {question} is no variable; write {{ question }}"):
        write(tmp_path, deepnote__init_note="{% include 'passages.jinja' %}\nAnswer: {question}")
    # Other words in braces are text, and so are those that belong to a command.
    text = "\\boxed{question} {x} {{ question }}"
    (message,) = write(tmp_path, deepnote__init_note=text).render("deepnote/init_note", question="Who?", passages=[])
    assert message["content"] == "\\boxed{question} {x} Who?"


def test_a_variable_that_is_left_out_is_told(tmp_path, caplog):
    write(tmp_path, deepnote__init_note="{% include 'passages.jinja' %}")
    assert "init_note.jinja: leaves out question, which our prompt has" in caplog.text
    caplog.clear()
    write(tmp_path, **{"deepnote__init_note.system": "You answer {{ question }}."})
    assert not caplog.text


def test_a_list_is_not_shown_as_python_writes_it(tmp_path):
    with pytest.raises(UserError, match=r"prompt deepnote/init_note\.jinja: a list is no text; write out its parts"):
        write(tmp_path, deepnote__init_note="{{ question }} {{ passages }}").render(
            "deepnote/init_note", question="Who?", passages=PASSAGES
        )


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path):
    (tmp_path / "direct").mkdir()
    (tmp_path / "direct/answer.jinja").write_bytes("{{ question }}\r\n{{ answer_style }}".encode("utf-8-sig"))
    (message,) = Prompts(tmp_path).render("direct/answer", question="Who?", answer_style="short")
    assert message["content"] == "Who?\nshort"


def test_a_stage_may_have_a_system_message(tmp_path):
    prompts = write(tmp_path, **{"deepnote__decide.system": "You compare {{ question }}."})
    system, user = prompts.render("deepnote/decide", turns=(), **STAGES["deepnote/decide"])
    assert system == {"role": "system", "content": f"You compare {STAGES['deepnote/decide']['question']}."}
    assert [user] == Prompts().render("deepnote/decide", **STAGES["deepnote/decide"])
    with pytest.raises(UserError, match=r"no prompt 'deepnote/decide\.system'"):
        prompts.check("deepnote/decide.system")


def test_a_users_list_of_passages_is_used_by_our_prompts(tmp_path):
    prompts = write(tmp_path, passages="{% for passage in passages %}<{{ passage.id }}>{% endfor %}")
    assert "<1><2>" in prompts.render("vanilla/answer", **STAGES["vanilla/answer"])[0]["content"]


def test_a_chat_goes_on_after_the_prompt(tmp_path):
    turns = [{"role": "assistant", "content": "Thought: {{ x }}"}, {"role": "user", "content": "Observation"}]
    first, *rest = write(tmp_path, mine__a="Say {{ x }}").render("mine/a", x="yes", turns=turns)
    assert first == {"role": "user", "content": "Say yes"}
    # Turns are literal: nothing in them is rendered or stripped.
    assert rest == turns


def test_half_a_surrogate_pair_does_not_reach_an_endpoint(tmp_path):
    cut = "cut \ud83d here"
    turn = {"role": "assistant", "content": cut}
    for message in write(tmp_path, mine__a="{{ x }}").render("mine/a", x=cut, turns=[turn]):
        assert message["content"].encode("utf-8") == b"cut ? here"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ y }}", r"prompt mine/a\.jinja: 'y' is undefined; the stage provides: x"),
        ("{{ x.y }}", r"prompt mine/a\.jinja: .* has no attribute 'y'"),
        ("{% include 'b.jinja' %}", r"no prompt 'b\.jinja'"),
        ("line\n{% for %}", r"mine/a\.jinja:2: "),
        ("{{ 1 / 0 }}", r"prompt mine/a\.jinja: division by zero"),
        ("{{ x + 1 }}", r"prompt mine/a\.jinja: "),
        # What a third party's template must not do.
        ("{{ x.__class__.__mro__ }}", r"prompt mine/a\.jinja: .* unsafe"),
        ("{{ ''.format.__globals__ }}", r"prompt mine/a\.jinja: "),
        ("{% for i in range(10 ** 9) %}{% endfor %}", r"prompt mine/a\.jinja: "),
        ("{% include '../secret.jinja' %}", "no prompt"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_named(tmp_path, text, problem):
    (tmp_path / "secret.jinja").write_text("secret")
    with pytest.raises(UserError, match=problem) as caught:
        write(tmp_path / "prompts", mine__a=text).render("mine/a", x="value")
    assert "\n" not in str(caught.value)


def test_a_prompt_in_another_encoding_is_named(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/a.jinja").write_bytes("Bogusław".encode("cp1250"))
    with pytest.raises(UserError, match=r"prompt mine/a\.jinja: is not UTF-8"):
        Prompts(tmp_path).render("mine/a")


def test_a_misspelt_stage_is_named_with_the_one_that_is_meant(tmp_path):
    prompts = write(tmp_path, mine__dream="{{ x }}")
    for stage in ("deepnote/answer", "mine/dream"):
        prompts.check(stage)
    with pytest.raises(UserError, match=r"no prompt 'deepnote/anwser'; did you mean 'deepnote/answer'\?"):
        prompts.check("deepnote/anwser")


def test_a_stage_and_a_folder_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no prompt 'deepnote/dream\.jinja'"):
        Prompts().render("deepnote/dream")
    with pytest.raises(UserError, match="absent: prompts_dir is not a folder"):
        Prompts(tmp_path / "absent")


def test_the_short_prompt_for_small_models_ends_with_the_question(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    passages = [Passage("p1", "Osk", "The Osk is a river."), Passage("p2", "Varn", "Varn is a village.")]
    system, prompt = Prompts("prompts/short").render(
        "deepnote/init_note", question="What is the Osk?", passages=passages
    )
    assert system == {"role": "system", "content": "Copy the sentences that answer the question."}
    assert prompt["content"] == "Osk: The Osk is a river.\nVarn: Varn is a village.\n\nWhat is the Osk?"


def test_the_long_style_asks_for_a_concise_answer_and_does_not_hint_at_the_metric():
    """DeepNote's prompt for ASQA (Table 17) is ALCE's; str-em counts the readings that an answer covers."""
    for stage in ("vanilla/answer", "deepnote/answer"):
        (message,) = Prompts().render(stage, question="Who?", passages=[], note="", answer_style="long")
        for wanted in ("accurate", "engaging", "concise", "unbiased", "journalis"):
            assert wanted in message["content"]
        assert not re.search("long|detail|reading|interpretation|ambigu|cover|every", message["content"])


@pytest.mark.parametrize("stage", [stage for stage, given in STAGES.items() if "answer_style" in given])
def test_a_blank_line_stands_between_the_style_of_an_answer_and_what_follows(stage):
    """`trim_blocks` removes the line break after a tag."""
    style = (STYLES / f"{STAGES[stage]['answer_style']}.jinja").read_text().strip()
    shown = "\n".join(message["content"] for message in Prompts().render(stage, **STAGES[stage]))
    before, _, after = shown.partition(style)
    assert before and (not after or re.match(r"\n\n\S", after))


def test_a_stage_without_passages_says_that_there_are_none():
    for stage in ("vanilla/answer", "deepnote/init_note", "resp/global_evidence", "ircot/step"):
        (message,) = Prompts().render(stage, question="Who?", passages=[], sentences=[], answer_style="short")
        assert "Passages:\nNone.\n\n" in message["content"]


def test_each_question_of_an_earlier_query_is_an_item_of_the_list():
    queries = ["Who built it?\nWhen was it built?", "Where is it?"]
    (message,) = Prompts().render("deepnote/refine_query", question="Who?", note="", queries=queries)
    assert "Asked already:\n- Who built it?\n- When was it built?\n- Where is it?\n\n" in message["content"]


def test_the_list_style_asks_for_all_parts():
    """FanOutQA's answers are lists and mappings."""
    (message,) = Prompts().render("renact/step", question="Who?", answer_style="list")
    assert "list them all" in message["content"]
    assert BENCHMARKS["fanoutqa"].answer_style == "list"


def test_a_stage_with_a_budget_asks_for_as_many_words_in_a_sentence_at_the_end_of_its_prompt():
    stage, plain = "deepnote/init_note", Prompts().render("deepnote/init_note", question="Who?", passages=PASSAGES)
    turns = [{"role": "assistant", "content": "Mira"}]
    told = Prompts(words={stage: 40}).render(stage, turns=turns, question="Who?", passages=PASSAGES)
    assert told == [{"role": "user", "content": f"{plain[0]['content']}\n\nWrite at most 40 words."}, *turns]
    other = Prompts(words={"deepnote/answer": 1})
    assert other.render(stage, question="Who?", passages=PASSAGES) == plain
    told = other.render("deepnote/answer", question="Who?", note="n", answer_style="short")[0]["content"]
    assert told.endswith("\n\nWrite at most 1 word.")


def test_evaluation_and_data_construction_have_the_same_prompts_and_a_run_without_budgets_is_as_before_them():
    models = {"base_url": "http://localhost:1/v1", "model": "m"}
    with_words = ModelArguments(**models, words={"rearag/step": 40})
    told = settings_of(with_words)["prompts"].render("rearag/step", question="Who?")[0]["content"]
    assert told.endswith("Write at most 40 words.")
    before, now, other = {"model": "m"}, {"model": "m", "words": {}}, {"model": "m", "words": {"rearag/step": 40}}
    hashes = [config_hash(each, ModelArguments) for each in (before, now, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_sentence_on_words_is_a_prompt_that_a_users_own_replaces(tmp_path):
    (tmp_path / "words.jinja").write_text("Take {{ words }} words.")
    told = Prompts(tmp_path, {"rearag/step": 7}).render("rearag/step", question="Who?")[0]["content"]
    assert told.endswith("\n\nTake 7 words.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"deepnote/init_not": 40}, "no prompt 'deepnote/init_not'; did you mean 'deepnote/init_note'"),
        ({"deepnote/init_note": 0}, "words: deepnote/init_note: 0"),
        ({"deepnote/init_note": "40"}, "words: deepnote/init_note must be int"),
    ],
)
def test_a_budget_of_words_is_a_number_for_a_stage_there_is(words, message):
    with pytest.raises(UserError, match=message):
        Prompts(words=words)


def test_an_extractive_stage_marks_sentences_and_asks_for_marks_in_any_prompt(tmp_path):
    (tmp_path / "deepnote").mkdir()
    (tmp_path / "deepnote" / "init_note.jinja").write_text("{% for each in passages %}{{ each.text }}{% endfor %}")
    prompts = Prompts(tmp_path, {"deepnote/init_note": 40}, ["deepnote/init_note"])
    passages = [Passage("1", "Osk", "It is old. It is low.")]
    (message,) = prompts.render("deepnote/init_note", passages=passages)
    text, words, marks = message["content"].split("\n\n")
    assert text == "It is old. [A] It is low. [B]"
    assert words == "Write at most 40 words." and marks.startswith("Reply only with the marks")
    assert prompts.note_of("deepnote/init_note", "[B]", {"passages": passages}) == "It is low."
    assert prompts.reply_with("deepnote/init_note", "It is low.", {"passages": passages}) == "[B]"
    # Any other stage keeps its passages and its words.
    assert "[A]" not in prompts.render("vanilla/answer", **STAGES["vanilla/answer"])[0]["content"]
    assert prompts.note_of("deepnote/answer", "[B]", {}) == "[B]"


@pytest.mark.parametrize("stage", [name for name, each in stages().items() if each.kind == "note"])
def test_every_stage_of_a_first_note_can_be_extractive(stage):
    *_, message = Prompts(extractive=[stage]).render(stage, **STAGES[stage])
    assert "[A]" in message["content"] and message["content"].endswith("the most important first.")


def test_a_stage_that_is_no_stage_cannot_be_extractive():
    with pytest.raises(UserError, match="no prompt 'deepnote/note'"):
        Prompts(extractive=["deepnote/note"])
