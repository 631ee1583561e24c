"""ReaRAG, step by step: one script reasons, another answers queries, and their inputs are checked."""

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notewriter.artifacts.traces import Generation, Retrieval
from notewriter.ground.records import Completion, Passage, Question
from notewriter.methods.rearag import ACTIONS, as_step, rearag
from notewriter.rollouts.actions import Action, parse_action
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

# Prompts that are the JSON of their variables, so that the script can read them.
TOLD = {
    "rearag/observe": {"query": "query", "passages": "passages|map(attribute='text')|list"},
    "rearag/shorten": {"question": "question", "reference": "reference", "answer_style": "answer_style"},
    "rearag/conclude": {"question": "question", "searches": "searches", "answer_style": "answer_style"},
}


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Prompts:
    folder: Path = tmp_path_factory.mktemp("prompts")
    for stage, values in TOLD.items():
        told = ", ".join(f'"{name}": {{{{ ({value})|tojson }}}}' for name, value in values.items())
        path = folder / f"{stage}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'{{"stage": "{stage}", {told}}}')
    return Prompts(folder)


def step(thought: str, name: str, argument: str) -> str:
    """A reply with single quotes, as the paper prints them."""
    return f"Thought: {thought}\nAction: {{'function': '{name}', 'parameters': {{'{ACTIONS[name]}': '{argument}'}}}}"


class Script:
    """Replies in turn; remembers the chats."""

    def __init__(self, reply: Callable[[list[dict[str, str]]], str]) -> None:
        self.reply = reply
        self.chats: list[list[dict[str, str]]] = []
        self.stops: list[tuple[str, ...]] = []
        self.samples: list[int] = []

    async def complete(self, messages, sampling, *, sample=0, affinity="") -> Completion:
        self.chats.append(messages)
        self.stops.append(sampling.stop)
        self.samples.append(sample)
        return Completion(self.reply(messages), "stop", 1, 1, 0, 0.0)


class Play:
    """One question's run; `answer` writes the answering model's reply from its input."""

    def __init__(
        self, prompts: Prompts, replies: Iterable[str], answer: Callable[[dict[str, Any]], str] | None = None
    ) -> None:
        script = iter(replies)
        self.searches: list[tuple[str, int]] = []
        self.reasoner = Script(lambda _: next(script))
        self.answerer = Script(lambda messages: (answer or self.default)(json.loads(messages[0]["content"])))
        clients = {"policy": self.reasoner, "answer": self.answerer}
        self.rollout = Rollout(Question("q", "Who?", ("Mira",)), "rearag", Resources(clients, prompts, retriever=self))

    @staticmethod
    def default(told: dict[str, Any]) -> str:
        return f"answer to {told['query']}" if told["stage"] == "rearag/observe" else "final"

    def search(self, query: str, top_k: int) -> list[Passage]:
        self.searches.append((query, top_k))
        return [Passage("p", "Title", f"found for {query}")]

    def run(self, question: str = "Who?", **options: Any) -> str:
        return asyncio.run(rearag(question, self.rollout, **options))

    @property
    def counts(self) -> dict[str, int]:
        return self.rollout.trace.counts

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(chat[0]["content"]) for chat in self.answerer.chats]

    @property
    def observations(self) -> list[str]:
        return [message["content"] for message in self.reasoner.chats[-1][1:] if message["role"] == "user"]


def test_a_search_is_answered_from_its_passages_and_comes_back_as_an_observation(prompts):
    play = Play(prompts, [step("First.", "search", "Where?"), step("Done.", "finish", "In Osk, I think")])
    assert play.run(top_k=3, answer_style="yes_no") == "final"
    assert play.searches == [("Where?", 3)]
    assert play.told == [
        {"stage": "rearag/observe", "query": "Where?", "passages": ["found for Where?"]},
        {"stage": "rearag/shorten", "question": "Who?", "reference": "In Osk, I think", "answer_style": "yes_no"},
    ]
    assert play.reasoner.chats[1][1:] == [
        {
            "role": "assistant",
            "content": 'Thought 1: First.\nAction 1: {"function": "search", "parameters": {"query": "Where?"}}',
        },
        {"role": "user", "content": "Observation 1: answer to Where?"},
    ]
    assert play.counts == {"steps": 2}


def test_the_model_sees_the_chain_grow_and_nothing_of_it_change(prompts):
    replies = [step("", "search", f"{number}?") for number in range(3)]
    play = Play(prompts, [*replies, step("", "finish", "Osk")])
    play.run()
    for before, after in zip(play.reasoner.chats, play.reasoner.chats[1:], strict=False):
        assert after[: len(before)] == before
        assert [message["role"] for message in after[len(before) :]] == ["assistant", "user"]
    # It is stopped before it invents an observation.
    assert set(play.reasoner.stops) == {("\nObservation",)}
    roles = {(step.stage, step.role) for step in play.rollout.trace.steps if isinstance(step, Generation)}
    assert roles == {("rearag/step", "policy"), ("rearag/observe", "answer"), ("rearag/shorten", "answer")}


@pytest.mark.parametrize("reply", ["It must be Osk.", "", 'Action: {"function": "look"}', "Action: {'function': 'se"])
def test_a_reply_without_an_action_is_drawn_again_and_leaves_nothing_in_the_chain(prompts, reply):
    """Training never saw such a step, nor an observation that explains what an action is."""
    play = Play(prompts, [reply, reply, step("Now.", "search", "Where?"), step("Done.", "finish", "Osk")])
    assert play.run() == "final"
    assert play.observations == ["Observation 1: answer to Where?"]
    assert play.reasoner.chats[0] == play.reasoner.chats[1] == play.reasoner.chats[2]
    assert play.counts == {"steps": 2, "redrawn_steps": 2}
    # The stop could have cut a model's thinking.
    assert play.reasoner.stops == [("\nObservation",), (), (), ("\nObservation",)]


def test_retries_are_those_of_the_whole_chain(prompts):
    """The authors' code: 20 a chain. When they are spent, the answer is written from what was found."""
    play = Play(prompts, ["what?", step("", "search", "a?"), "what?", "what?", step("", "finish", "never asked for")])
    assert play.run(retries=2) == "final"
    assert play.told[-1]["stage"] == "rearag/conclude" and play.told[-1]["searches"] == {"a?": "answer to a?"}
    assert play.counts == {"steps": 2, "redrawn_steps": 2, "invalid_actions": 1}
    hopeless = Play(prompts, ["what?"] * 99)
    hopeless.run()
    assert len(hopeless.reasoner.chats) == 1 + 20


def test_a_query_that_was_sent_before_is_searched_and_answered_again(prompts):
    """Algorithms 1 and 2 know no memory of queries; no sentence of ours enters the chain."""
    number = iter(range(9))
    play = Play(
        prompts,
        [*[step("Again.", "search", "Where? ")] * 3, step("Done.", "finish", "Osk")],
        lambda told: f"answer {next(number)}",
    )
    play.run()
    assert play.searches == [("Where?", 3)] * 3
    assert play.observations == [f"Observation {place + 1}: answer {place}" for place in range(3)]
    assert play.counts == {"steps": 4, "repeated_queries": 2}
    # The prompt is the same each time, which the cache would answer with the same reply.
    assert play.answerer.samples == [0, 1, 2, 0]


def test_the_instruction_numbers_the_steps_invites_reflection_and_forbids_no_search():
    """Appendix B, in other words; the third step of the paper's Table 5 confirms what the second found."""
    for stage in ("rearag/step", "rearag/teach"):
        (message,) = Prompts().render(stage, question="Who?")
        text = message["content"]
        assert all(f"{label} 1:" in text for label in ("Thought", "Action", "Observation"))
        assert "reflect" in text.lower()
        assert "same query twice" not in text and "no second confirmation" not in text and "As soon as" not in text


def test_when_the_steps_run_out_the_answer_is_written_from_what_was_found(prompts):
    play = Play(prompts, [step("", "search", "a?"), "what?", step("", "search", "b?"), step("", "search", "c?")])
    assert play.run(max_step=2) == "final"
    assert play.told[-1] == {
        "stage": "rearag/conclude",
        "question": "Who?",
        "searches": {"a?": "answer to a?", "b?": "answer to b?"},
        "answer_style": "short",
    }
    assert play.counts == {"steps": 2, "redrawn_steps": 1, "unfinished": 1}


REPLIES = (
    st.builds(step, st.text(max_size=9), st.sampled_from(sorted(ACTIONS)), st.text(max_size=3))
    | st.builds(step, st.just("Hm."), st.just("search"), st.sampled_from("abc"))
    | st.text()
)


@settings(max_examples=100)
@given(st.lists(REPLIES, min_size=12, max_size=12), st.integers(1, 8), st.integers(1, 4))
def test_whatever_the_model_says_no_limit_is_exceeded_and_there_is_one_answer(prompts, replies, max_step, retries):
    play = Play(prompts, replies)
    assert play.run(max_step=max_step, retries=retries) == "final"

    names = ("steps", "invalid_actions", "redrawn_steps", "unfinished")
    steps, given_up, redrawn, unfinished = (play.counts.get(name, 0) for name in names)
    assert steps + redrawn == len(play.reasoner.chats) and steps <= max_step and redrawn <= retries
    finished = 1 - unfinished - given_up
    searched = steps - given_up - finished
    assert searched == len(play.searches)
    assert steps == max_step or not unfinished
    assert redrawn == retries or not given_up
    stages = [told["stage"] for told in play.told]
    assert stages == ["rearag/observe"] * searched + ["rearag/shorten" if finished else "rearag/conclude"]
    assert sum(isinstance(step, Retrieval) for step in play.rollout.trace.steps) == searched
    for chat in play.reasoner.chats:
        assert [message["role"] for message in chat] == ["user", *["assistant", "user"] * (len(chat) // 2)]
        assert all(message["content"] for message in chat)


@given(st.builds(step, st.text(), st.sampled_from(sorted(ACTIONS)), st.text()) | REPLIES)
def test_a_step_that_is_told_back_is_read_as_the_same_step(reply):
    action = parse_action(reply, ACTIONS)
    if action:
        assert parse_action(as_step(action, 3), ACTIONS) == action


def test_a_step_without_a_thought_is_told_back_without_one():
    assert (
        as_step(Action("", "finish", "Ösk"), 2) == 'Action 2: {"function": "finish", "parameters": {"answer": "Ösk"}}'
    )


# The paper's case studies (appendix C) in their decisions and counts, told in other words.


class Case(Play):
    """A play whose passages answer the queries of the case and no others."""

    def __init__(self, prompts: Prompts, chain: list[tuple[str, str, str]], finish: tuple[str, str], short: str):
        self.index = {query: observation for _, query, observation in chain}
        self.reference = finish[1]
        replies = [step(thought, "search", query) for thought, query, _ in chain]
        super().__init__(prompts, [*replies, step(finish[0], "finish", finish[1])], self.write)
        self.short = short

    def search(self, query: str, top_k: int) -> list[Passage]:
        self.searches.append((query, top_k))
        return [Passage(query, query, self.index[query])]

    def write(self, told: dict[str, Any]) -> str:
        if told["stage"] == "rearag/observe":
            return told["passages"][0]
        if told["stage"] == "rearag/conclude":
            return " ".join(told["searches"].values())
        assert told["reference"] == self.reference
        return self.short


def test_the_case_of_hannibal_and_scipio(prompts):
    """Table 5: the author, the author's school, a confirmation, and a finish whose sentence is made short."""
    question = "Where was the author of Hannibal and Scipio educated at?"
    chain = [
        ("The author comes first.", "Who is the author of Hannibal and Scipio?", "Thomas Nabbes wrote it."),
        ("It is Nabbes; now his school.", "Where was Thomas Nabbes educated?", "At Exeter College, Oxford."),
        ("Let me be sure of it.", "Confirm the education of Thomas Nabbes", "At Exeter College from 1621; no degree."),
    ]
    finish = ("He left without a degree, but that is where he studied.", "Nabbes was taught at Exeter College, Oxford.")
    case = Case(prompts, chain, finish, "Exeter College, Oxford")
    assert case.run(question) == "Exeter College, Oxford"
    assert case.counts == {"steps": 4}
    assert [query for query, _ in case.searches] == [query for _, query, _ in chain]
    assert case.observations == [f"Observation {n}: {observation}" for n, (*_, observation) in enumerate(chain, 1)]
    assert [type(step) for step in case.rollout.trace.steps] == [
        *[Generation, Retrieval, Generation] * 3,
        Generation,
        Generation,
    ]
    # Had it ended before the confirmation, the school would be among the observations.
    assert "At Exeter College, Oxford." in Case(prompts, chain, finish, "").run(question, max_step=2)


def test_the_case_of_holley(prompts):
    """Table 7: two searches find the county, a third finds no second Holley, and the chain finishes all the same."""
    chain = [
        ("His birthplace comes first.", "Where was William W. Blair born?", "In Holley, New York."),
        ("Now the county of Holley.", "Which county is Holley, New York in?", "Holley is in Orleans County."),
        (
            "Is there another Holley in the state?",
            "Are there several Holleys in New York State?",
            "The passages name one Holley, in Orleans County; about others they do not tell.",
        ),
    ]
    case = Case(prompts, chain, ("Nothing speaks against it.", "Orleans County"), "Orleans County")
    assert case.run("In what county is William W. Blair's birthplace located?") == "Orleans County"
    assert case.counts == {"steps": 4}
    assert len(case.searches) == 3
    assert case.rollout.trace.steps[-1].stage == "rearag/shorten"


# The format of the released checkpoints (github.com/THU-KEG/ReaRAG, commit 89baa21: src/agents.py, src/utils.py).


def released(number: int, thought: str, name: str, argument: str) -> str:
    """A step as ReaRAG-9B writes it: numbered, its call a Python dictionary in a code block."""
    call = f"{{'function': '{name}', 'parameters': {{'{ACTIONS[name]}': '{argument}'}}}}"
    return f"Thought {number}: {thought}\nAction {number}:\n```\n{call}\n```"


def test_the_released_checkpoints_chat_in_their_own_format(prompts):
    """The case of Table 8: where an astronaut works, then where that employer has its seat."""
    replies = [
        released(1, "His employer comes first.", "search", "Who is Ulrich Walter's employer?"),
        released(2, "It is the DLR.", "search", "Where is the German Aerospace Center headquartered?"),
        released(3, "This answers it.", "finish", "Cologne, Germany"),
    ]
    question = "Where is Ulrich Walter's employer headquartered?"
    play = Play(prompts, replies)
    assert play.run(question, released_format=True) == "final"
    system, *chat = play.reasoner.chats[-1]
    assert system["role"] == "system" and '"name": "finish"' in system["content"]
    assert chat == [
        {"role": "user", "content": question},
        {"role": "assistant", "content": replies[0]},
        {"role": "observation", "content": "answer to Who is Ulrich Walter's employer?"},
        {"role": "assistant", "content": replies[1]},
        {"role": "observation", "content": "answer to Where is the German Aerospace Center headquartered?"},
    ]
    assert set(play.reasoner.stops) == {("<|user|>", "<|observation|>", "<|assistant|>")}
    assert play.told[-1]["reference"] == "Cologne, Germany"
    assert play.counts == {"steps": 3}


def test_the_chat_template_of_glm4_writes_what_the_authors_code_sends():
    """Its roles are marks of their own, the observation's too; agents.py renders the chat with it."""
    import jinja2

    template = (
        "[gMASK]<sop>{% for item in messages %}<|{{ item['role'] }}|>\n{{ item['content'] }}{% endfor %}<|assistant|>"
    )
    turns = [{"role": "assistant", "content": "Action 1: ..."}, {"role": "observation", "content": "In Osk."}]
    messages = Prompts().render("rearag/released", question="Who?", turns=turns)
    text = jinja2.Template(template).render(messages=messages)
    assert text.startswith("[gMASK]<sop><|system|>\n")
    assert text.endswith("<|user|>\nWho?<|assistant|>\nAction 1: ...<|observation|>\nIn Osk.<|assistant|>")


def test_an_unreadable_step_of_a_released_checkpoint_is_drawn_again(prompts):
    replies = ["Thought 1: hm", released(1, "Now.", "search", "Where?"), released(2, "Done.", "finish", "Osk")]
    play = Play(prompts, replies)
    assert play.run(released_format=True) == "final"
    assert [message["content"] for message in play.reasoner.chats[-1][2:]] == [replies[1], "answer to Where?"]
    assert play.counts == {"steps": 2, "redrawn_steps": 1}
