"""The methods, step by step: a script plays the model, and each step's inputs are read from its prompt."""

import asyncio
import inspect
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Interval
from hypothesis import given, settings
from hypothesis import strategies as st

from notewriter.artifacts.traces import Generation, Retrieval
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Passage, Question
from notewriter.methods import METHODS, check_stages, prepare, stage_named
from notewriter.methods.deepnote import deepnote
from notewriter.methods.direct import direct
from notewriter.methods.vanilla import vanilla
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.method import Method
from notewriter.rollouts.prompts import FOLDERS, Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

# Prompts that are the JSON of their variables, so that the script can read them.
TOLD = {
    "direct/answer": ["question", "answer_style"],
    "vanilla/answer": ["question", "passages", "answer_style"],
    "deepnote/init_note": ["question", "passages"],
    "deepnote/refine_query": ["question", "note", "queries"],
    "deepnote/accumulate_knowledge": ["question", "note", "passages"],
    "deepnote/decide": ["question", "best_note", "new_note"],
    "deepnote/answer": ["question", "note", "answer_style"],
}
BETTER, WORSE = '{"status": "True"}', '{"status": "False"}'


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Prompts:
    folder: Path = tmp_path_factory.mktemp("prompts")
    for stage, names in TOLD.items():
        values = {name: "passages|map(attribute='id')|list" if name == "passages" else name for name in names}
        told = ", ".join(f'"{name}": {{{{ ({value})|tojson }}}}' for name, value in values.items())
        path = folder / f"{stage}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'{{"stage": "{stage}", {told}}}')
    return Prompts(folder)


class Play:
    """One question's run with scripted replies and retrieval; `steps` are the model's inputs, in order."""

    def __init__(self, prompts: Prompts, decisions: list[str], found: Callable[[int, int], list[str]] | None = None):
        self.decisions = iter(decisions)
        self.found = found or (lambda number, top_k: [f"{number}.{place}" for place in range(top_k)])
        self.steps: list[dict[str, Any]] = []
        self.searches: list[tuple[str, int]] = []
        self.notes = 0
        self.rollout = Rollout(
            Question("q", "Who?", ("Mira",)), "deepnote", Resources({"policy": self}, prompts, retriever=self)
        )

    async def complete(self, messages, sampling, *, sample=0, affinity="") -> Completion:
        told = json.loads(messages[0]["content"])
        self.steps.append(told)
        return Completion(self.reply(told), "stop", 1, 1, 0, 0.0)

    def reply(self, told: dict[str, Any]) -> str:
        stage = told["stage"].split("/")[1]
        if stage in ("init_note", "accumulate_knowledge"):
            self.notes += 1
            return f"note {self.notes - 1}"
        if stage == "refine_query":
            return f"query {len(told['queries']) + 1}"
        if stage == "decide":
            return next(self.decisions, BETTER)
        return f"answer from {told.get('note', 'no note')}"

    def search(self, query: str, top_k: int) -> list[Passage]:
        self.searches.append((query, top_k))
        return [Passage(id, f"title {id}", f"text {id}") for id in self.found(len(self.searches) - 1, top_k)]

    def run(self, method=deepnote, **options: Any) -> str:
        return asyncio.run(method("Who?", self.rollout, **options))

    def told(self, stage: str) -> list[dict[str, Any]]:
        return [told for told in self.steps if told["stage"] == f"deepnote/{stage}"]


# DeepNote


def test_a_note_that_is_judged_better_becomes_the_best_one(prompts):
    play = Play(prompts, [BETTER, WORSE, BETTER])
    assert play.run() == "answer from note 3"
    assert [told["best_note"] for told in play.told("decide")] == ["note 0", "note 1", "note 1"]
    assert [told["new_note"] for told in play.told("decide")] == ["note 1", "note 2", "note 3"]
    # Refinement starts from the best note, not from the last one.
    assert [told["note"] for told in play.told("refine_query")] == ["note 0", "note 1", "note 1"]
    assert [told["note"] for told in play.told("accumulate_knowledge")] == ["note 0", "note 1", "note 1"]
    assert play.rollout.trace.note == "note 3"


def test_it_stops_when_refinements_failed_as_often_as_allowed(prompts):
    play = Play(prompts, [WORSE, BETTER, WORSE, BETTER, BETTER])
    # Failures need not be consecutive.
    assert play.run(max_step=5, max_failure=2) == "answer from note 2"
    assert len(play.told("decide")) == 3
    assert play.rollout.trace.note == "note 2"


@pytest.mark.parametrize("max_failure", [1, 2, 3])
def test_when_nothing_helps_the_first_note_is_answered_from(prompts, max_failure):
    play = Play(prompts, [WORSE] * 9)
    assert play.run(max_step=3, max_failure=max_failure) == "answer from note 0"
    assert len(play.told("decide")) == max_failure
    assert play.rollout.trace.note == "note 0"


def test_it_stops_after_the_last_step_that_is_allowed(prompts):
    play = Play(prompts, [BETTER] * 9)
    assert play.run(max_step=2, max_failure=1) == "answer from note 2"
    assert len(play.told("refine_query")) == 2


@pytest.mark.parametrize("reply", ["", "maybe", BETTER + WORSE, '{"status": null}', "The new note is better."])
def test_a_decision_that_cannot_be_read_counts_as_a_failure(prompts, reply):
    play = Play(prompts, [reply, reply, BETTER])
    assert play.run() == "answer from note 0"
    assert len(play.told("decide")) == 2
    assert play.rollout.trace.counts == {"unreadable_decisions": 2}


def test_a_decision_that_can_be_read_is_no_event(prompts):
    play = Play(prompts, [BETTER, WORSE, WORSE])
    play.run()
    assert play.rollout.trace.counts == {}


def test_queries_go_out_with_the_question_and_are_told_to_the_next_ones(prompts):
    play = Play(prompts, [BETTER, WORSE, BETTER])
    play.run(top_k=4)
    assert [told["queries"] for told in play.told("refine_query")] == [[], ["query 1"], ["query 1", "query 2"]]
    assert play.searches == [("Who?", 4), ("query 1 Who?", 4), ("query 2 Who?", 4), ("query 3 Who?", 4)]


def test_every_stage_gets_the_passages_that_were_found_for_it(prompts):
    play = Play(prompts, [BETTER])
    play.run(max_step=1, max_failure=1, top_k=2)
    assert play.told("init_note")[0]["passages"] == ["0.0", "0.1"]
    assert play.told("accumulate_knowledge")[0]["passages"] == ["1.0", "1.1"]


def passages_told(play):
    return [told["passages"] for told in play.steps if "passages" in told]


@pytest.mark.parametrize("options", [{}, {"max_passages": 15}])
def test_every_refinement_gets_its_full_top_k(prompts, options):
    """The paper has no limit of passages, and the authors' one of 15 cuts nothing at top-k 5."""
    play = Play(prompts, [BETTER] * 3, lambda number, top_k: [f"{number}.{place}" for place in range(top_k)])
    play.run(**options)
    assert [len(told) for told in passages_told(play)] == [5, 5, 5, 5]


def test_the_authors_limit_cuts_what_would_exceed_it_and_ends_the_loop_once_it_is_exceeded(prompts):
    """src/main.py, 237-243: near the limit a search brings new passages alone."""
    found = [["a", "b", "c"], ["b", "d", "e"], ["e", "a", "f"], ["d"]]
    play = Play(prompts, [BETTER] * 3, lambda number, top_k: found[number])
    play.run(max_passages=4, top_k=3)
    # Three seen and three more could exceed four: b was seen, d is the fourth, e is cut. Four seen leave a rest of 0,
    # which cuts nothing. Six seen are more than four.
    assert passages_told(play) == [["a", "b", "c"], ["d"], ["e", "a", "f"]]


def test_the_authors_limit_at_another_top_k(prompts):
    play = Play(prompts, [BETTER] * 3, lambda number, top_k: [f"{number}.{place}" for place in range(top_k)])
    play.run(max_passages=15, top_k=7)
    # 7, 14, one more; then 15 are not more than 15, and a rest of 0 cuts nothing.
    assert [len(told) for told in passages_told(play)] == [7, 7, 1, 7]


@pytest.mark.parametrize(("top_k", "told"), [(5, [5, 5, 3]), (7, [7, 4, 7]), (10, [5, 10])])
def test_the_authors_limit_where_half_of_each_search_was_found_by_the_one_before(prompts, top_k, told):
    new = (top_k + 1) // 2
    play = Play(prompts, [BETTER] * 3, lambda number, k: [str(number * new + place) for place in range(k)])
    play.run(max_passages=15, top_k=top_k)
    assert [len(passages) for passages in passages_told(play)] == [top_k, *told]


def test_without_adaptive_retrieval_the_first_note_is_answered_from(prompts):
    play = Play(prompts, [])
    assert play.run(adaptive_retrieval=False) == "answer from note 0"
    assert [told["stage"] for told in play.steps] == ["deepnote/init_note", "deepnote/answer"]
    assert len(play.searches) == 1


def test_every_stage_is_asked_of_its_role(prompts):
    play = Play(prompts, [BETTER])
    play.run(max_step=1, max_failure=1)
    roles = [(step.stage, step.role) for step in play.rollout.trace.steps if isinstance(step, Generation)]
    assert roles == [
        ("deepnote/init_note", "notes"),
        ("deepnote/refine_query", "query"),
        ("deepnote/accumulate_knowledge", "notes"),
        ("deepnote/decide", "judge"),
        ("deepnote/answer", "answer"),
    ]


REPLIES = st.sampled_from([BETTER, WORSE, "True", "false", ""]) | st.text()


@settings(max_examples=40)
@given(data=st.data(), decisions=st.lists(REPLIES, min_size=5, max_size=5), max_step=st.integers(1, 5))
def test_whatever_the_model_says_the_limits_hold_and_the_answer_is_from_the_last_note_that_was_accepted(
    prompts, data, decisions, max_step
):
    max_failure = data.draw(st.integers(1, max_step))
    max_passages = data.draw(st.integers(0, 8))
    found = data.draw(st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=5), min_size=6, max_size=6))
    play = Play(prompts, decisions, lambda number, top_k: found[number])
    answer = play.run(max_step=max_step, max_failure=max_failure, max_passages=max_passages)

    refined = len(play.told("accumulate_knowledge"))
    assert refined <= max_step
    assert len(play.searches) == 1 + refined
    assert len(play.steps) == 2 + 3 * refined
    told = play.told("decide")
    shown = passages_told(play)
    full = bool(max_passages) and len({id for each in shown for id in each}) > max_passages
    before = {id for each in shown[:-1] for id in each}
    assert not max_passages or not refined or len(before) <= max_passages
    if not told:
        assert full and answer == f"answer from {play.rollout.trace.note}"
        return
    accepted = [after["best_note"] == before["new_note"] for before, after in itertools.pairwise(told)]
    last_accepted = play.rollout.trace.note == told[-1]["new_note"]
    failures = [*accepted, last_accepted].count(False)
    assert failures <= max_failure
    assert refined == max_step or failures == max_failure or full
    assert answer == f"answer from {play.rollout.trace.note}"


def test_the_case_of_anna_of_pomerania(prompts):
    """The paper's case study (appendix E, Table 21) in its decisions and counts, told in other words.

    The first passages are about other things. The first refinement finds a Sophie, and is not accepted. The
    second finds who the father was, the third where he died; both are accepted. The limit of three steps ends it.
    """
    question = "Where was the place of death of Anna Of Pomerania's father?"
    notes = [
        "Nothing about Anna's father.",
        "Sophie of Pomerania was a daughter of Bogislaw IX, who died in 1446. Nothing about Anna.",
        "Anna's father was Bogislaw XIII. Nothing about where he died.",
        "Anna's father was Bogislaw XIII; he died on 7 March 1606 in Stettin (Szczecin in Polish).",
    ]
    queries = [
        "Who was Anna's father?\nHow did he live and die?",
        "What was the name of Anna's father?\nWho were her parents?",
        "How did Bogislaw XIII die?\nWhere did Bogislaw XIII die?",
    ]
    answer = "Stettin (also known as Szczecin in Polish)"
    index = {
        question: ["Place of birth", "Sins of the father"],
        f"{queries[0]} {question}": ["Sophie of Pomerania"],
        f"{queries[1]} {question}": ["Anna of Pomerania"],
        f"{queries[2]} {question}": ["Bogislaw XIII"],
    }
    written = {"Place of birth": 0, "Sophie of Pomerania": 1, "Anna of Pomerania": 2, "Bogislaw XIII": 3}

    class Case(Play):
        def reply(self, told):
            stage = told["stage"].split("/")[1]
            if stage in ("init_note", "accumulate_knowledge"):
                return notes[written[told["passages"][0]]]
            if stage == "refine_query":
                return queries[len(told["queries"])]
            if stage == "decide":
                # The judge sees knowledge grow where a note names the right man, and then where he died.
                new, best = (
                    note.count("Bogislaw XIII") + note.count("Stettin")
                    for note in (told["new_note"], told["best_note"])
                )
                return BETTER if new > best else WORSE
            return answer if "Stettin" in told["note"] else "No information"

        def search(self, query, top_k):
            self.searches.append((query, top_k))
            return [Passage(title, title, "...") for title in index[query]]

    case = Case(prompts, [])
    assert asyncio.run(deepnote(question, case.rollout)) == answer
    decisions = case.told("decide")
    assert [told["new_note"] for told in decisions] == notes[1:]
    assert [told["best_note"] for told in decisions] == [notes[0], notes[0], notes[2]]
    assert case.rollout.trace.note == notes[3]
    replies = [
        step.completion.text
        for step in case.rollout.trace.steps
        if isinstance(step, Generation) and step.stage == "deepnote/decide"
    ]
    assert replies == [WORSE, BETTER, BETTER]
    assert len(case.searches) == 4
    assert [told["stage"].split("/")[1] for told in case.steps] == [
        "init_note",
        *["refine_query", "accumulate_knowledge", "decide"] * 3,
        "answer",
    ]
    kinds = [type(step) for step in case.rollout.trace.steps]
    refinement = [Generation, Retrieval, Generation, Generation]
    assert kinds == [Retrieval, Generation, *refinement * 3, Generation]

    # Vanilla RAG, which has only the first passages, does not find it.
    class Baseline(Case):
        def reply(self, told):
            return answer if "Bogislaw XIII" in told["passages"] else "No information"

    baseline = Baseline(prompts, [])
    assert asyncio.run(vanilla(question, baseline.rollout)) == "No information"
    # With a single failure allowed, the search would have ended before it found anything.
    assert asyncio.run(deepnote(question, Case(prompts, []).rollout, max_failure=1)) == "No information"


def test_the_case_of_neighbors(prompts):
    """The paper's second case study (appendix E, Table 22) in its decisions and counts, told in other words.

    The first note knows the author and not his city. The first refinement finds it; the second loses it again, is
    not accepted, and as the single failure allowed ends the search after two of three steps.
    """
    question = "What city was the author of Neighbors born in?"
    notes = [
        "Raymond Carver wrote Neighbors. Where he was born is not told.",
        "Raymond Carver wrote Neighbors; he was born in Clatskanie, Oregon.",
        "Raymond Carver wrote Neighbors, which came out in 1971. His city of birth was not found.",
    ]

    class Case(Play):
        def reply(self, told):
            stage = told["stage"].split("/")[1]
            if stage in ("init_note", "accumulate_knowledge"):
                self.notes += 1
                return notes[self.notes - 1]
            if stage == "decide":
                return BETTER if "Clatskanie" in told["new_note"] and "Clatskanie" not in told["best_note"] else WORSE
            if stage == "answer":
                return "Clatskanie" if "Clatskanie" in told["note"] else "No information"
            return super().reply(told)

    case = Case(prompts, [])
    assert asyncio.run(deepnote(question, case.rollout, max_step=3, max_failure=1)) == "Clatskanie"
    assert [told["best_note"] for told in case.told("decide")] == notes[:2]
    assert [told["new_note"] for told in case.told("decide")] == notes[1:]
    # The refinement that failed is made from the best note, and so is the answer.
    assert [told["note"] for told in case.told("accumulate_knowledge")] == notes[:2]
    assert case.rollout.trace.note == notes[1]
    assert [query for query, _ in case.searches] == [question, f"query 1 {question}", f"query 2 {question}"]


# The baselines


def test_vanilla_answers_from_the_passages_of_the_question(prompts):
    play = Play(prompts, [])
    assert play.run(vanilla, top_k=2, answer_style="yes_no") == "answer from no note"
    assert play.steps == [
        {"stage": "vanilla/answer", "question": "Who?", "passages": ["0.0", "0.1"], "answer_style": "yes_no"}
    ]
    assert play.searches == [("Who?", 2)]


def test_direct_answers_from_the_question_alone(prompts):
    play = Play(prompts, [])
    play.run(direct)
    assert play.steps == [{"stage": "direct/answer", "question": "Who?", "answer_style": "short"}]
    assert play.searches == []


# Errors found before anything is started


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_there_by_its_name_and_takes_no_options_too(name):
    assert prepare(name, {}) is METHODS[name]
    assert METHODS[name].name == name


@pytest.mark.parametrize("name", METHODS)
def test_the_stages_of_a_method_have_its_name_and_a_prompt_in_its_folder(name):
    stages = METHODS[name].stages
    folder = Path(inspect.getfile(METHODS[name].run)).parent
    assert stages and all(stage.name.startswith(f"{name}/") for stage in stages)
    assert all((folder / f"{stage.name.partition('/')[2]}.jinja").is_file() for stage in stages)


def test_a_stage_that_does_not_exist_is_refused_with_the_nearest_one():
    with pytest.raises(UserError, match=r"no stage 'deepnote/init_notes'; did you mean 'deepnote/init_note'\?"):
        stage_named("deepnote/init_notes")
    assert stage_named("deepnote/init_note") is stage_named("deepnote/init_note")


def test_a_method_retrieves_if_it_can_be_told_how_many_passages():
    assert METHODS["vanilla"].retrieves and METHODS["deepnote"].retrieves
    assert not METHODS["direct"].retrieves


def test_an_option_that_is_a_float_takes_a_whole_number_too_and_an_annotation_may_bound_it(monkeypatch):
    async def daring(question, rollout, *, theta: Annotated[float, Interval(ge=0, le=1)] = 0.5, steps: int = 2) -> str:
        return ""

    method = Method(daring, ())
    monkeypatch.setitem(METHODS, "daring", method)
    for options in ({}, {"theta": 1}, {"theta": 0.0, "steps": 3}):
        assert prepare("daring", options) is method
    for options, problem in (
        ({"theta": 2}, "theta: 2 is too large; give at least 0 and at most 1"),
        ({"theta": True}, "must be float"),
        ({"steps": 1.0}, "int"),
    ):
        with pytest.raises(UserError, match=problem):
            prepare("daring", options)


METHOD_OF_A_FILE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from notewriter import Method
if TYPE_CHECKING:
    from notewriter import Rollout

async def {name}(question: str, rollout: Rollout, {options}) -> str:
    return ""

METHOD = Method({name}, ())
"""


@pytest.fixture
def of_a_file(tmp_path, monkeypatch):
    """The place of a method in a file of a user's."""
    monkeypatch.setattr("notewriter.rollouts.prompts.FOLDERS", dict(FOLDERS))
    monkeypatch.setattr("notewriter.rollouts.method.FOLDERS", dict(FOLDERS))

    def write(name: str, options: str) -> str:
        (tmp_path / "mine.py").write_text(METHOD_OF_A_FILE.format(name=name, options=options))
        plugins.load(place := f"{tmp_path / 'mine.py'}:METHOD")
        return place

    return write


def test_annotations_that_a_file_leaves_as_texts_are_kept_to(of_a_file):
    place = of_a_file("mine", "*, top_k: int = 5, style: Rollout | None = None")
    assert prepare(place, {"top_k": 3}).options == {"top_k": 5, "style": None}
    for value, problem in (("3", "option top_k must be int, not '3'"), (0, "option top_k: 0 is too small")):
        with pytest.raises(UserError, match=problem):
            prepare(place, {"top_k": value})
    with pytest.raises(UserError, match=r"option style ended in NameError: .*'Rollout' is not defined.* \(mine.py:8\)"):
        prepare(place, {"style": None})


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("deepnote", "*, top_k: int = 5", "'deepnote' is the name of one of ours; give its function another name"),
        ("mine", "top_k: int = 5", r"top_k is no option; write a \* before it: \(question, rollout, \*, ...\)"),
    ],
)
def test_a_method_that_would_get_our_prompts_or_no_options_is_named(of_a_file, name, options, problem):
    place = of_a_file(name, options)
    with pytest.raises(UserError, match=rf"method {place}: {problem}"):
        prepare(place, {})


def test_options_of_the_right_type_are_taken():
    assert (
        prepare("deepnote", {"top_k": 3, "max_step": 1, "max_failure": 1, "adaptive_retrieval": False}).run is deepnote
    )


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("deepnotes", {}, r"unknown method 'deepnotes'; choose one of: .*deepnote, direct"),
        ("deepnote", {"topk": 3}, r"has no option 'topk'; it has: top_k, max_step, .*"),
        ("direct", {"top_k": 3}, r"method direct has no option 'top_k'; it has: answer_style"),
        ("deepnote", {"question": "Who?"}, "has no option 'question'"),
        ("deepnote", {"top_k": "3"}, "option top_k must be int, not '3'"),
        ("deepnote", {"max_step": True}, "option max_step must be int, not True"),
        ("deepnote", {"adaptive_retrieval": 1}, "option adaptive_retrieval must be bool, not 1"),
        ("vanilla", {"top_k": 0}, "option top_k: 0 is too small; give at least 1"),
        ("deepnote", {"max_failure": 0}, "option max_failure: 0 is too small"),
        ("rearag", {"max_step": 0}, "option max_step: 0 is too small"),
    ],
)
def test_what_a_method_cannot_do_is_named(name, options, problem):
    with pytest.raises(UserError, match=problem) as caught:
        prepare(name, options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"words": {"deepnote/answer": 40}},
        {"extractive_stages": ["deepnote/init_note"]},
        {"stage_sampling": {"deepnote/answer": {"max_tokens": 16}}},
    ],
)
def test_a_setting_of_stages_that_the_method_does_not_have_is_refused(given):
    remedy = "(did you mean 'vanilla/answer'|its stages are: vanilla/answer)"
    with pytest.raises(UserError, match=rf"{next(iter(given))}: deepnote/\w+ is no stage of vanilla; {remedy}"):
        check_stages(METHODS["vanilla"], ModelArguments(**given))


def test_methods_share_a_setting_that_has_a_stage_of_each():
    sampling = {"react/step": {"max_tokens": 96}, "vanilla/answer": {"max_tokens": 16}}
    check_stages(METHODS["vanilla"], ModelArguments(stage_sampling=sampling))
