"""Rollouts: which model is called, with which sampling, and what the trace records."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from notewriter.artifacts.traces import Generation, Retrieval, Trace
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Passage, Question, Sampling
from notewriter.methods import METHODS
from notewriter.models.client import RequestRefused
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import MethodEnded, Rollout

QUESTION = Question("q1", "Who built it?", ("Mira",))
PASSAGES = [Passage("p1", "Bridge", "Mira built it."), Passage("p2", "River", "It flows.")]


class Model:
    """Replies with its name, padded with white space; remembers its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[tuple[str, Sampling, int]] = []

    async def complete(self, messages, sampling, *, sample=0, affinity="") -> Completion:
        self.asked.append((" / ".join(message["content"] for message in messages), sampling, sample))
        return Completion(f"\n {self.name} \n", "stop", 5, 2, 3, 0.25)


class Index:
    def search(self, query: str, top_k: int) -> list[Passage]:
        return PASSAGES[:top_k]


STAGE = Stage("stage")


@pytest.fixture
def resources(tmp_path: Path) -> Resources:
    for stage in ("stage", "other"):
        (tmp_path / f"{stage}.jinja").write_text("Say {{ word }}")
    return Resources(
        {"policy": Model("policy"), "judge": Model("judge")},
        Prompts(tmp_path),
        Index(),
        Sampling(0.1, 0.9, 100),
        {"stage": Sampling(0.7, 0.8, 9)},
    )


async def test_a_role_is_played_by_its_model_and_by_the_policy_where_it_has_none(resources):
    rollout = Rollout(QUESTION, "m", resources)
    assert await rollout.generate(Stage("stage", "judge"), word="yes") == "judge"
    assert await rollout.generate(Stage("stage", "notes"), word="yes") == "policy"
    assert await rollout.generate(STAGE, word="no") == "policy"
    assert [text for text, *_ in resources.clients["policy"].asked] == ["Say yes", "Say no"]


async def test_a_method_gets_what_a_model_said_and_the_trace_keeps_what_it_thought(resources):
    resources.clients["policy"].name = "<think>\nLet me see.\n</think>\n\nMira"
    rollout = Rollout(QUESTION, "m", resources)
    assert await rollout.generate(STAGE, word="yes") == "Mira"
    assert "Let me see." in rollout.trace.steps[0].completion.text


async def test_a_stage_has_its_own_sampling_where_it_is_given_one(resources):
    rollout = Rollout(QUESTION, "m", resources)
    await rollout.generate(STAGE, word="yes")
    await rollout.generate(Stage("other"), word="no")
    assert [sampling for _, sampling, _ in resources.clients["policy"].asked] == [
        Sampling(0.7, 0.8, 9),
        Sampling(0.1, 0.9, 100),
    ]


async def test_a_stage_declares_its_sampling_where_the_run_gives_it_none(resources):
    rollout = Rollout(QUESTION, "m", resources)
    assert rollout.sampling(Stage("other", temperature=0.0, max_tokens=64)) == Sampling(0.0, 0.9, 64)
    # The run may allow fewer tokens, and what it gives to the stage itself comes first.
    assert rollout.sampling(Stage("other", max_tokens=500)) == Sampling(0.1, 0.9, 100)
    assert rollout.sampling(Stage("stage", temperature=0.0, max_tokens=64)) == Sampling(0.7, 0.8, 9)


async def test_a_stage_that_continues_a_text_keeps_its_thinking_and_white_space(resources):
    resources.clients["policy"].name = "<think>\nLet me see.\n</think> Mira"
    rollout = Rollout(QUESTION, "m", resources)
    continued = await rollout.generate(Stage("other", continues=True), word="yes")
    assert continued == "\n <think>\nLet me see.\n</think> Mira \n"


async def test_a_method_has_texts_of_its_own(resources):
    assert Rollout(QUESTION, "m", resources).text("other", word="no") == "Say no"


async def test_a_chat_goes_on_with_the_turns_so_far(resources):
    rollout = Rollout(QUESTION, "m", resources)
    turns = [{"role": "assistant", "content": "yes"}, {"role": "user", "content": "Again."}]
    await rollout.generate(STAGE, word="yes", turns=turns)
    assert [text for text, *_ in resources.clients["policy"].asked] == ["Say yes / yes / Again."]
    # The trace keeps what was sent, even if the list changes later.
    turns.clear()
    assert [message["role"] for message in rollout.trace.steps[0].messages] == ["user", "assistant", "user"]


async def test_events_are_counted_in_the_trace(resources):
    rollout = Rollout(QUESTION, "m", resources)
    for event in ("steps", "steps", "invalid_actions"):
        rollout.count(event)
    assert rollout.trace.to_dict()["counts"] == {"steps": 2, "invalid_actions": 1}


async def test_retrieval_gives_whole_passages_and_records_which(resources):
    rollout = Rollout(QUESTION, "m", resources)
    assert await rollout.retrieve("bridge", 1) == PASSAGES[:1]
    (step,) = rollout.trace.steps
    assert isinstance(step, Retrieval)
    assert (step.query, step.top_k, step.passages) == ("bridge", 1, [{"id": "p1", "title": "Bridge"}])


async def test_what_is_drawn_is_recorded_only_when_it_is_kept(resources):
    rollout = Rollout(QUESTION, "m", resources)
    stage = Stage("stage", "judge")
    messages = [{"role": "user", "content": "Say yes"}]
    drawn = await rollout.draw(stage, messages, Sampling(), 4)
    assert rollout.trace.steps == []
    assert resources.clients["judge"].asked == [("Say yes", Sampling(), 4)]
    rollout.record(stage, messages, Sampling(), drawn)
    assert rollout.trace.steps == [Generation("stage", "judge", messages, Sampling(), drawn)]


async def test_the_trace_holds_what_was_sent_and_the_reply_as_it_came(resources):
    rollout = Rollout(QUESTION, "m", resources)
    await rollout.retrieve("bridge", 2)
    rollout.trace.answer = await rollout.generate(STAGE, word="yes")
    rollout.keep_note("first")
    rollout.keep_note("second")
    trace = json.loads(json.dumps(rollout.trace.to_dict()))
    assert trace["schema"] == "notewriter/trace/1"
    assert (trace["question_id"], trace["method"], trace["answer"]) == ("q1", "m", "policy")
    assert (trace["note"], trace["error"]) == ("second", "")
    assert [step["kind"] for step in trace["steps"]] == ["retrieve", "generate"]
    generation = trace["steps"][1]
    assert generation["messages"] == [{"role": "user", "content": "Say yes"}]
    assert generation["sampling"] == json.loads(json.dumps(asdict(Sampling(0.7, 0.8, 9))))
    assert generation["completion"] == {
        "text": "\n policy \n",
        "finish_reason": "stop",
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "cached_tokens": 3,
        "seconds": 0.25,
        "tokens": None,
        "alternatives": None,
        "thought": "",
        "ended": 0.0,
    }


async def test_a_method_that_retrieves_without_an_index_is_named(resources):
    without = Resources(resources.clients, resources.prompts)
    with pytest.raises(ValueError, match="method m retrieves, but no index was given"):
        await Rollout(QUESTION, "m", without).retrieve("bridge", 1)


@pytest.mark.parametrize(
    ("text", "tokens", "kept"),
    [
        # vLLM returns the end-of-turn token, OpenAI does not.
        ("Mira did.", ["Mira", " did", ".", "<|im_end|>"], 3),
        ("Mira did.", ["Mira", " did", "."], 3),
        ("Mira", ["Mira", "\n", "</s>"], 1),
        ("Mira", [" Mira", "</s>"], 1),
        ("", ["<|im_end|>"], 0),
    ],
)
async def test_the_tokens_are_those_of_the_text(resources, monkeypatch, text, tokens, kept):
    scored = [(token, -0.5) for token in tokens]

    async def complete(messages, sampling, **_):
        assert sampling == Sampling(0.7, 0.8, 9, logprobs=True)
        return Completion(text, "stop", 1, len(tokens), 0, 0.0, scored)

    monkeypatch.setattr(resources.clients["policy"], "complete", complete)
    rollout = Rollout(QUESTION, "m", resources)
    assert await rollout.generate_tokens(STAGE, max_tokens=12, word="yes") == scored[:kept]
    # The completion is recorded unchanged.
    assert rollout.trace.steps[0].completion.tokens == scored


@pytest.mark.parametrize(
    ("text", "thought", "tokens", "kept"),
    [
        ("<think>Who?</think>\n\nMira did.", "", ["<think>", "Who?", "</think>", "\n\n", "Mira", " did."], 2),
        # A reasoning parser cuts the text, and leaves the tokens.
        ("Mira did.", "Who?", ["<think>", "Who?", "</think>", "Mira", " did.", "<|im_end|>"], 2),
        ("<think>Who", "", ["<think>", "Who"], 0),
        ("", "Who", ["<think>", "Who"], 0),
    ],
)
async def test_a_thoughts_tokens_are_no_part_of_a_draft(resources, monkeypatch, text, thought, tokens, kept):
    async def complete(messages, sampling, **_):
        return Completion(text, "length", 1, 6, 0, 0.0, [(token, -0.5) for token in tokens], thought=thought)

    monkeypatch.setattr(resources.clients["policy"], "complete", complete)
    drafted = await Rollout(QUESTION, "m", resources).generate_tokens(STAGE, max_tokens=12, word="yes")
    assert [token for token, _ in drafted] == [token for token in tokens if token in ("Mira", " did.")]
    assert len(drafted) == kept


class Thinker:
    """A reasoning model: stop strings end its reply wherever they occur, and `shown` says what one sees of that."""

    def __init__(self, text: str, shown=lambda text: text) -> None:
        self.text, self.shown = text, shown
        self.stops: list[tuple[str, ...]] = []

    async def complete(self, messages, sampling, *, sample=0, affinity="") -> Completion:
        self.stops.append(sampling.stop)
        text = self.text
        for mark in sampling.stop:
            text = text.partition(mark)[0]
        # A stop string's own tokens count too.
        return Completion(self.shown(text), "stop", 5, len(text.split()) + 1, 0, 0.25)


def parsed(text: str) -> str:
    """What a server with a reasoning parser returns: the reply without its thinking."""
    return text.partition("</think>")[2] if "<think>" in text else text


THOUGHTS = (
    "<think>\nFirst I search.\nObservation: I imagine one.\nWell.\n</think>\n\nAction: search[Osk]\nObservation: no."
)


@pytest.mark.parametrize("shown", [lambda text: text, parsed])
@pytest.mark.parametrize(("stop", "reply"), [("\nObservation", "Action: search[Osk]"), ("\n", "Action: search[Osk]")])
async def test_a_stop_string_does_not_cut_a_models_thinking(resources, stop, reply, shown):
    model = Thinker(THOUGHTS, shown)
    rollout = Rollout(QUESTION, "m", Resources({"policy": model}, resources.prompts))
    assert await rollout.generate(STAGE, stop=(stop,), word="yes") == reply
    assert model.stops == [(stop,), ()]
    assert rollout.trace.counts == {"stopped_in_thinking": 1}
    (step,) = rollout.trace.generations
    assert "Observation: no." not in step.completion.text
    # Both draws were paid.
    drawn = [await model.complete([], Sampling(stop=stops)) for stops in [(stop,), ()]]
    assert step.completion.completion_tokens == sum(completion.completion_tokens for completion in drawn)
    assert (step.completion.prompt_tokens, step.completion.seconds) == (10, 0.5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(THOUGHTS, "stop"), (THOUGHTS.partition("</think>")[0], "length"), ("<think>\n\n</think>Mi", "length")],
)
async def test_a_reply_drawn_without_its_stop_string_is_whole_if_it_was_cut_behind_it(resources, text, reason):
    class CutThinker(Thinker):
        async def complete(self, messages, sampling, **options):
            completion = await super().complete(messages, sampling, **options)
            return replace(completion, finish_reason="stop" if sampling.stop else "length")

    rollout = Rollout(QUESTION, "m", Resources({"policy": CutThinker(text)}, resources.prompts))
    await rollout.generate(STAGE, stop=("\n",), word="yes")
    assert rollout.trace.counts == {"stopped_in_thinking": 1}
    assert [step.completion.finish_reason for step in rollout.trace.generations] == [reason]


async def test_a_stop_string_cuts_a_reply_in_marks_of_its_own(resources):
    model = Thinker("<think>A line.\nWell.</think><response>\nMira\nObservation: no.</response>")
    rollout = Rollout(QUESTION, "m", Resources({"policy": model}, resources.prompts))
    assert await rollout.generate(STAGE, stop=("\nObservation", "\nWell"), word="yes") == "Mira"


async def test_replies_without_thinking_are_asked_for_once(resources):
    for text in ("Action: search[Osk]\nObservation: no.", "<think>Well.</think>Action: search[Osk]\nObservation: no."):
        model = Thinker(text)
        rollout = Rollout(QUESTION, "m", Resources({"policy": model}, resources.prompts))
        assert await rollout.generate(STAGE, stop=("\nObservation",), word="yes") == "Action: search[Osk]"
        assert (model.stops, rollout.trace.counts) == ([("\nObservation",)], {})


async def test_a_stage_that_acts_while_it_thinks_is_stopped_there(resources):
    """Search-o1 searches in the middle of its reasoning."""
    model = Thinker("<think>I wonder. <|search|>Osk<|end|> ...</think> Mira")
    rollout = Rollout(QUESTION, "m", Resources({"policy": model}, resources.prompts))
    reply = await rollout.generate(Stage("stage", stops_thinking=True), stop=("<|end|>",), word="yes")
    assert reply == "<think>I wonder. <|search|>Osk"


@pytest.mark.parametrize("stage", [STAGE, Stage("stage", stops_thinking=True)])
async def test_a_thought_that_was_cut_is_no_reply(resources, monkeypatch, stage):
    async def complete(messages, sampling, **_):
        return Completion("<think>\nOkay, Mira or", "length", 5, 9, 0, 0.25)

    monkeypatch.setattr(resources.clients["policy"], "complete", complete)
    rollout = Rollout(QUESTION, "m", resources)
    assert await rollout.generate(stage, word="yes") == ""
    assert rollout.trace.steps[0].completion.text == "<think>\nOkay, Mira or"


async def test_a_raw_stage_is_sent_as_text_and_a_score_continues_the_prompt(resources, monkeypatch):
    sent = []

    async def complete(messages, sampling, **_):
        sent.append(([message["content"] for message in messages], sampling))
        return Completion("Mira", "stop", 7, 1, 0, 0.0, [("Mira", -0.5)], [{"Mira": -0.5}])

    monkeypatch.setattr(resources.clients["policy"], "complete", complete)
    rollout = Rollout(QUESTION, "m", resources)
    raw = replace(STAGE, raw=True)
    draft = await rollout.generate_scored(raw, max_tokens=3, alternatives=("Mira",), word="yes")
    assert draft.alternatives == [{"Mira": -0.5}]
    await rollout.score(STAGE, draft.text, prompt_tokens=draft.prompt_tokens, word="yes")
    assert sent == [
        (["Say yes"], Sampling(0.7, 0.8, 3, logprobs=True, alternatives=("Mira",), raw=True)),
        (["Say yes", "Mira"], Sampling(0.7, 0.8, 1, logprobs=True, score_from=7)),
    ]
    trace = json.loads(json.dumps(rollout.trace.to_dict()))
    assert Trace.from_dict(trace) == rollout.trace


async def test_a_reply_is_scored_without_knowing_the_length_of_its_prompt(resources, monkeypatch):
    prompt = [("Say", -3.0), (" yes", -2.0), ("Nothing", -0.5), (" was", -0.25), (" found", -0.125)]

    async def complete(messages, sampling, *, sample=0, affinity=""):
        assert messages[-1] == {"role": "assistant", "content": "Nothing was found"}
        assert (sampling.max_tokens, sampling.score_from) == (1, -17)
        return Completion(".", "length", 5, 1, 0, 0.0, prompt)

    monkeypatch.setattr(resources.clients["policy"], "complete", complete)
    completion = await Rollout(QUESTION, "m", resources).score(STAGE, "Nothing was found", word="yes")
    assert completion.tokens == prompt[2:]


@pytest.fixture
def load_method(tmp_path):
    """The method of a file whose line 3 is its function's body."""

    def load(body, head="async def mine(question, rollout, *, top_k=2):"):
        file = tmp_path / "mine.py"
        file.write_text(f"from notewriter import Method, Stage\n{head}\n  {body}\nMETHOD = Method(mine, ())\n")
        place = f"{file}:METHOD"
        plugins._LOADED.pop(place, None)
        METHODS.pop(place, None)
        plugins.load(place)
        return METHODS[place]

    return load


NOTED = "await rollout.generate(Stage('stage', 'notes'), word='a')"
SEARCHED = "await rollout.retrieve('Mira', top_k)"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return [][0]", "method mine ended in IndexError: list index out of range"),
        (f"{NOTED}; return {{}}['a']", "method mine after stage ended in KeyError: 'a'"),
        (f"{SEARCHED}; int('a')", "method mine after a search ended in ValueError: invalid literal for int.*"),
        ("await asyncio.gather(rollout.absent())", "method mine ended in NameError: .*"),
        ("raise ValueError('a ' * 150)", f"method mine ended in ValueError: {'a ' * 100} ..."),
        (f"{NOTED}", "method mine after stage returned None, which is no text"),
        ("return 7", "method mine returned 7, which is no text"),
    ],
)
async def test_a_fault_of_somebody_elses_method_names_the_question_the_stage_and_its_own_line(
    body, fault, load_method, resources
):
    method = load_method(body)
    with pytest.raises(UserError) as error:
        await Rollout(QUESTION, method.name, resources).follow(method, {"top_k": 1})
    # What fell short after the last line of the function is named by its first.
    assert re.fullmatch(rf"question q1: {fault} \(mine\.py:[23]\); correct it there", str(error.value)), str(
        error.value
    )


async def test_a_method_that_is_no_async_function_is_one_line_too(load_method, resources):
    method = load_method("return 'Mira'", "def mine(question, rollout):")
    with pytest.raises(UserError, match=r"question q1: method mine is no async function; write `async def` \(mine"):
        await Rollout(QUESTION, method.name, resources).follow(method, {})


ALONE = "await rollout.retrieve('a', 1)"
AS_A_TASK = "async with __import__('asyncio').TaskGroup() as group: group.create_task(rollout.retrieve('a', 1))"


@pytest.mark.parametrize("body", [ALONE, AS_A_TASK])
@pytest.mark.parametrize("ended", [RequestRefused("too long"), MethodEnded(), UserError("full")])
async def test_what_ends_a_method_from_outside_is_no_fault_of_it(ended, body, load_method, resources):
    class Ending(Rollout):
        async def retrieve(self, query, top_k):
            raise ended

    method = load_method(body)
    with pytest.raises(type(ended)) as caught:
        await Ending(QUESTION, method.name, resources).follow(method, {})
    assert caught.value is ended


async def test_a_fault_of_our_own_method_keeps_its_traceback(resources, monkeypatch):
    async def ours(question, rollout):
        raise KeyError("a")

    monkeypatch.setattr(ours, "__module__", "notewriter.methods.ours")
    with pytest.raises(KeyError):
        await Rollout(QUESTION, "ours", resources).follow(Method(ours, ()), {})
