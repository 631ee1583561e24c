"""`notewriter chains`: teachers, good and bad, reason over a tiny world behind a fake endpoint."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.parquet
import pytest
from datasets import load_dataset
from fake_endpoint import fake_endpoint
from tiny_world import stats, tiny_world, write_config

from notewriter.data import build_chains
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Question
from notewriter.methods.rearag import rearag
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

QUESTIONS = 6
Chat = list[dict[str, str]]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def golds(world) -> dict[str, str]:
    """Question -> its gold answer."""
    return {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}


def step(name: str, argument: str, thought: str = "Thought: On we go.\n") -> str:
    parameter = {"search": "query", "finish": "answer"}[name]
    return f"{thought}Action: {json.dumps({'function': name, 'parameters': {parameter: argument}})}"


def numbered(number: int, name: str, argument: str, thought: str = "On we go.") -> str:
    """The step in the form in which it enters a chain."""
    return step(name, argument, f"Thought {number}: {thought}\n").replace("\nAction:", f"\nAction {number}:")


def question_of(chat: Chat) -> str:
    return chat[0]["content"].rpartition("Question: ")[2].partition("\n")[0]


def steps_so_far(chat: Chat) -> int:
    return sum(message["role"] == "assistant" for message in chat)


class Endpoint:
    """A teacher that can be changed, and a model that answers every search; `faults` come before good replies."""

    def __init__(self, golds: dict[str, str]) -> None:
        self.golds = golds
        self.teach: Callable[[Chat], str] = self.teach_well
        self.faults: list[str] = []

    def teach_well(self, chat: Chat) -> str:
        question = question_of(chat)
        return step("finish", self.golds[question]) if steps_so_far(chat) else step("search", question)

    def reply(self, request: dict[str, Any]) -> str:
        chat = request["messages"]
        is_search = chat[0]["content"].startswith("Answer a search query")
        return f"Found: {chat[0]['content'].rpartition('Query: ')[2]}" if is_search else self.teach(chat)


@pytest.fixture
def endpoint(golds):
    fake = Endpoint(golds)
    faults = (fake.faults.pop(0) if fake.faults else None for _ in itertools.count())
    with fake_endpoint(fake.reply, faults) as running:
        fake.running = running
        yield fake


@pytest.fixture
def build(world, endpoint, tmp_path):
    """Build chains in the folder `name`; `teach` writes the teacher's reply from the chat. Returns the folder."""

    def run(teach: Callable[[Chat], str] | None = None, name: str = "chains", **changes: Any):
        endpoint.teach = teach or endpoint.teach_well
        options = {
            **world,
            "output_dir": str(tmp_path / name),
            "cache": str(tmp_path / f"{name}.sqlite"),
            "max_step": 4,
            "dev_share": 0.3,
            "base_url": endpoint.running.base_url,
            "model": endpoint.running.model,
        }
        build_chains.main(write_config(tmp_path / "config.yaml", options | changes))
        return tmp_path / name

    return run


@pytest.fixture
def build_nothing(build, tmp_path):
    """As `build`, for a run without a chain, which is an error when all is written."""

    def run(*arguments: Any, name: str = "chains", **changes: Any):
        with pytest.raises(UserError, match="nothing was made"):
            build(*arguments, name=name, **changes)
        return tmp_path / name

    return run


def rows(folder, split="train"):
    path = folder / f"{split}.parquet"
    return pyarrow.parquet.read_table(path).to_pylist() if path.exists() else []


def test_the_folder_loads_with_datasets_by_its_name_alone_and_no_question_is_in_both_splits(build, tmp_path):
    folder = build()
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "huggingface"))
    assert set(loaded) == {"train", "dev"}
    assert loaded["train"].column_names == ["schema", "messages", "question_id", "dataset", "f1", "steps"]
    train, dev = (set(loaded[split]["question_id"]) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (4, 2) and not train & dev
    assert stats(folder)["chains"] == {"train": 4, "dev": 2}


def test_the_card_describes_the_chains_and_why_others_were_dropped(build, golds):
    wrong = next(iter(golds))

    def mostly_right(chat: Chat) -> str:
        question = question_of(chat)
        answer = "nothing of the kind" if question == wrong else golds[question]
        return step("finish", answer) if steps_so_far(chat) else step("search", question)

    folder = build(mostly_right, dev_share=0.0)
    card = (folder / "README.md").read_text()
    assert "pretty_name: Chains of reasoning and search from questions of its own" in card
    assert "| 5 | 1 the answer's F1 is 0 |" in card and "- train: 5 chains" in card
    assert "| 2 | 5 |" in card and "mean F1 of 1.0" in card
    assert "| policy | fake |" in card and "| max\\_step |" not in card and "| max_step | 4 |" in card
    assert "look it up at their source" in card


def test_a_chain_is_the_instruction_and_then_steps_and_observations_in_turn(build, golds):
    for row in rows(build()):
        first, *turns = row["messages"]
        question = question_of([first])
        assert first == Prompts().render("rearag/step", question=question)[0]
        assert turns == [
            {"role": "assistant", "content": numbered(1, "search", question)},
            {"role": "user", "content": f"Observation 1: Found: {question}"},
            {"role": "assistant", "content": numbered(2, "finish", golds[question])},
        ]
        assert (row["schema"], row["dataset"], row["f1"], row["steps"]) == ("notewriter/chain/1", "jsonl", 1.0, 2)


def test_an_instruction_of_a_chain_states_the_stages_budget_of_words(build):
    words = {"rearag/step": 60}
    for row in rows(build(words=words)):
        first, *_ = row["messages"]
        assert first == Prompts(words=words).render("rearag/step", question=question_of([first]))[0]
        assert "60" in first["content"]


def evaluated(chain: Chat) -> list[Chat]:
    """What `rearag` sends to a student that takes the steps of the chain, with the chain's searches."""
    sent = []

    class Student:
        async def complete(self, messages, *_, **__) -> Completion:
            sent.append(messages)
            return Completion(chain[len(messages)]["content"], "stop", 1, 1, 0, 0.0)

    class Engine:
        async def complete(self, *_, **__) -> Completion:
            return Completion(chain[2]["content"].removeprefix("Observation 1: "), "stop", 1, 1, 0, 0.0)

        def search(self, query, top_k):
            return []

    question = question_of(chain)
    resources = Resources({"policy": Student(), "answer": Engine()}, Prompts(), retriever=Engine())
    asyncio.run(rearag(question, Rollout(Question("q", question, ("x",)), "rearag", resources)))
    return sent


def test_what_the_student_learns_from_is_what_it_is_sent_when_it_is_evaluated(build, golds):
    """Every prompt of `rearag` is the chain up to one of its steps, whatever the teacher's own prompt said."""
    teacher_saw = []

    def untidy(chat: Chat) -> str:
        teacher_saw.append(chat)
        question = question_of(chat)
        if steps_so_far(chat) == 0:
            return f"**Thought 1:** Löök.\n```json\n{step('search', question, '')[8:]}\n```\nObservation 1: made up"
        if steps_so_far(chat) == 1:
            return f"Thought 2: Again!\nAction 2: {{'function': 'search', 'parameters': {{'query': '{question}'}}}}"
        return f"<think>\nWell.\n</think>\n\nIt is found. {step('finish', golds[question], '')[8:]} That is all."

    for row in rows(build(untidy)):
        chain = row["messages"]
        assert evaluated(chain) == [chain[:1], chain[:3], chain[:5]]
        assert len(chain) == 6 and chain[4]["content"] == f"Observation 2: Found: {question_of(chain)}"
        # The teacher had other instructions and the same turns.
        assert chain[1:5] in [chat[1:] for chat in teacher_saw]
        assert not any(chat[0] == chain[0] for chat in teacher_saw)


BAD = {
    "prose": (lambda chat: "I believe that it was Mira.", "an action could not be read"),
    "half JSON": (lambda chat: 'Thought: So.\nAction: {"function": "sea', "an action could not be read"),
    "nothing": (lambda chat: "", "an action could not be read"),
    "never finishes": (lambda chat: step("search", f"Query {steps_so_far(chat)}?"), "the chain did not finish"),
    "repeats itself": (lambda chat: step("search", "Who?"), "the chain did not finish"),
    "recovers from prose": (
        lambda chat: [step("search", "Who?"), "Hm.", step("finish", "x")][steps_so_far(chat)],
        "an action could not be read",
    ),
    "finishes at once": (lambda chat: step("finish", "Mira"), "too few searches"),
    "does not think": (
        lambda chat: step("finish", "x", "") if steps_so_far(chat) else step("search", "Who?", ""),
        "a step without a thought",
    ),
    "is wrong": (
        lambda chat: step("finish", "nothing of the kind") if steps_so_far(chat) else step("search", "Who?"),
        "the answer's F1 is 0",
    ),
    "half a surrogate pair": (
        lambda chat: step("finish", "\ud83d") if steps_so_far(chat) else step("search", "\ud83d?", "Thought: \ud83d\n"),
        "the answer's F1 is 0",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_teacher_gives_counted_reasons_and_no_row(build_nothing, kind, capsys):
    teach, reason = BAD[kind]
    folder = build_nothing(teach)
    assert rows(folder) == rows(folder, "dev") == []
    told = stats(folder)
    assert told["dropped"] == {reason: QUESTIONS}
    assert told["chains"] == {"train": 0, "dev": 0}
    assert told["events"]["steps"] <= 4 * QUESTIONS
    assert f"dropped: {QUESTIONS} {reason}" in capsys.readouterr().out


def test_every_question_is_a_chain_or_dropped_for_one_reason(build, golds):
    order = list(golds)
    teachers = [BAD["prose"][0], BAD["never finishes"][0], BAD["finishes at once"][0]]

    def mixed(chat: Chat) -> str:
        place = order.index(question_of(chat))
        if place < len(teachers):
            return teachers[place](chat)
        return step("finish", golds[order[place]]) if steps_so_far(chat) else step("search", order[place])

    folder = build(mixed, dev_share=0.0)
    told = stats(folder)
    assert told["dropped"] == {
        "an action could not be read": 1,
        "the chain did not finish": 1,
        "too few searches": 1,
    }
    assert told["chains"] == {"train": 3, "dev": 0} and not (folder / "dev.parquet").exists()
    assert told["steps_of_the_kept"] == {"2": 3} and told["mean_f1_of_the_kept"] == 1.0
    # What cannot be read is drawn again, and then the chain is given up.
    assert told["events"] == {"invalid_actions": 1, "redrawn_steps": 20, "steps": 1 + 4 + 1 + 6, "unfinished": 1}
    assert told["tokens"]["rearag/teach"]["policy"]["calls"] == 21 + 4 + 1 + 6
    assert told["tokens"]["rearag/observe"]["answer"]["calls"] == 4 + 3


def unsteady(endpoint, bad: int) -> Callable[[Chat], str]:
    """A teacher whose first `bad` replies to every chat cannot be read."""
    asked: Counter[str] = Counter()

    def teach(chat: Chat) -> str:
        asked[repr(chat)] += 1
        return "Hm." if asked[repr(chat)] <= bad else endpoint.teach_well(chat)

    return teach


def test_a_step_that_cannot_be_read_is_drawn_again(build, endpoint):
    folder = build(unsteady(endpoint, 2), retries=4)
    assert stats(folder)["dropped"] == {}
    assert stats(folder)["events"] == {"redrawn_steps": 2 * 2 * QUESTIONS, "steps": 2 * QUESTIONS}
    # A chain has nothing of what could not be read.
    assert not any("Hm." in message["content"] for row in rows(folder) for message in row["messages"])
    # The stop could have cut a model's thinking.
    draws = [request.get("stop") for request in endpoint.running.requests if request["messages"][-1]["role"] == "user"]
    assert draws.count(["\nObservation"]) == 2 * QUESTIONS


def test_a_chain_is_given_up_when_it_was_drawn_as_often_as_allowed_over_all_of_its_steps(build_nothing, endpoint):
    folder = build_nothing(unsteady(endpoint, 2), retries=3)
    told = stats(folder)
    assert told["dropped"] == {"an action could not be read": QUESTIONS}
    assert told["events"] == {"invalid_actions": QUESTIONS, "redrawn_steps": 3 * QUESTIONS, "steps": 2 * QUESTIONS}
    assert (
        stats(build_nothing(unsteady(endpoint, 1), name="never", retries=0))["tokens"]["rearag/teach"]["policy"][
            "calls"
        ]
        == 6
    )


def test_an_answer_that_is_a_sentence_counts_by_its_share_of_the_gold(build, golds):
    def verbose(chat: Chat) -> str:
        question = question_of(chat)
        return step("finish", f"It must be {golds[question]}") if steps_so_far(chat) else step("search", question)

    assert all(0 < row["f1"] < 1 for row in rows(build(verbose)))


def test_questions_of_an_evaluation_file_are_not_reasoned_about(build, world, tmp_path):
    questions = [record for _, record in jsonl.read(world["path"])]
    evaluation = tmp_path / "evaluation.jsonl"
    jsonl.write(evaluation, [questions[2] | {"id": "e2"}])

    folder = build(eval_files={str(evaluation): "jsonl"})

    rolled_out = {record["question_id"] for _, record in jsonl.read(folder / "rollouts.jsonl")}
    assert rolled_out == {record["id"] for record in questions} - {questions[2]["id"]}
    (dropped,) = (drop for _, drop in jsonl.read(folder / "dropped_questions.jsonl"))
    assert (dropped["question_id"], dropped["other_id"]) == (questions[2]["id"], "e2")
    told = json.loads((folder / "stats.json").read_text())["hygiene"]
    assert told["questions_dropped"] == {"the question is in an evaluation file": 1}


def test_chains_with_a_repeated_query_are_kept(build, golds):
    def repeating(chat: Chat) -> str:
        return step("search", "Who?") if steps_so_far(chat) < 2 else step("finish", golds[question_of(chat)])

    assert stats(build(repeating))["dropped"] == {}


def test_chains_that_answer_from_memory_are_kept_on_request(build, golds):
    folder = build(lambda chat: step("finish", golds[question_of(chat)]), min_searches=0)
    assert sum(stats(folder)["chains"].values()) == QUESTIONS


def test_a_refused_request_is_a_counted_reason_and_the_others_continue(build, endpoint):
    endpoint.faults.append("400")
    folder = build(concurrency=1)
    assert stats(folder)["dropped"] == {"the endpoint refused the request": 1}
    assert sum(stats(folder)["chains"].values()) == QUESTIONS - 1
    build(retry_errors=True)
    assert stats(folder)["dropped"] == {}
    assert sum(stats(folder)["chains"].values()) == QUESTIONS


def test_a_killed_run_resumes_with_what_is_missing_and_the_result_is_the_same(build, endpoint):
    folder = build(concurrency=1)
    names = ("train.parquet", "dev.parquet", "stats.json")
    before = [(folder / name).read_bytes() for name in names]
    journal = folder / "rollouts.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:4]) + lines[4][:-100])
    asked = len(endpoint.running.requests)
    build(cache=str(folder / "new.sqlite"), concurrency=6)
    # Two questions of two steps and a search each are reasoned about again; how a prompt begins a reply is asked once.
    assert len(endpoint.running.requests) == asked + 2 * 3 + 1
    assert [(folder / name).read_bytes() for name in names] == before


# Without reasoning (Algorithm 3)


@pytest.fixture
def decomposed(world, tmp_path):
    """The world's questions with gold sub-questions."""
    path = tmp_path / "decomposed.jsonl"
    hops = [{"question": "town >> founder", "answer": "Osk {1}"}, {"question": "#1 >> sister", "answer": "Tolen"}]
    records = (record | {"metadata": {"decomposition": hops}} for _, record in jsonl.read(world["path"]))
    jsonl.write(path, records)
    return {"path": str(path), "index": None, "reasoning": False}


def test_a_teacher_that_is_given_the_gold_writes_the_chain_at_once(build, golds, decomposed):
    asked = []

    def writer(chat: Chat) -> str:
        asked.append(chat)
        question = question_of(chat)
        finish = step("finish", golds[question], "Thought 2: There it is.\n")
        return f"{step('search', question)}\nObservation 1: It is told.\n{finish}\nObservation 2: <completed>"

    folder = build(writer, **decomposed)
    assert sum(stats(folder)["chains"].values()) == QUESTIONS == len(asked)
    for (message,) in asked:
        told = message["content"]
        assert f"Answer: {golds[question_of([message])]}" in told
        assert "1. town >> founder (answer: Osk {1})\n2. #1 >> sister (answer: Tolen)" in told
    for row in rows(folder):
        question = question_of(row["messages"])
        assert row["messages"] == Prompts().render(
            "rearag/step",
            question=question,
            turns=[
                {"role": "assistant", "content": numbered(1, "search", question)},
                {"role": "user", "content": "Observation 1: It is told."},
                {"role": "assistant", "content": numbered(2, "finish", golds[question], "There it is.")},
            ],
        )
        assert row["steps"] == 2


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "the chain did not finish"),
        ("I cannot do that.", "the chain did not finish"),
        (f"{step('search', 'Who?')}\nObservation: Osk.", "the chain did not finish"),
        (
            f"{step('search', 'Who?')}\n{step('finish', 'x')}",
            "thought, action and observation do not follow each other",
        ),
        ("Thought: So.\nAction: look around", "thought, action and observation do not follow each other"),
        (step("finish", "x"), "too few searches"),
    ],
)
def test_what_a_bad_writer_writes_is_a_counted_reason(build_nothing, decomposed, reply, reason):
    assert stats(build_nothing(lambda chat: reply, **decomposed))["dropped"] == {reason: QUESTIONS}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index": None}, "the teacher searches; add --index"),
        ({"max_step": 0}, "max_step: 0 is too small"),
        ({"min_searches": -1}, "min_searches: -1 is too small; give at least 0"),
        ({"dev_share": 1.0}, r"dev_share: 1.0 is too large; give at least 0 and below 1"),
        ({"reasoning": False}, "needs the gold sub-questions, and question .* has none"),
        ({"stage_sampling": {"rearag/teech": {}}}, "no prompt 'rearag/teech'; did you mean 'rearag/teach'"),
    ],
)
def test_a_mistake_in_the_configuration_is_found_before_any_model_is_asked(build, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        build(**changes)
    assert not (tmp_path / "chains").exists()
