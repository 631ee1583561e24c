"""REPLUG: drafts from each passage alone, and the one whose probability over all passages is the highest."""

import asyncio
import math

from notewriter.artifacts.traces import Generation
from notewriter.ground.records import Completion, Passage, Question, Sampling
from notewriter.methods.replug import replug
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

END = "<|end|>"


class Model:
    """Knows the probability of each answer given each passage; writes the likeliest. The answer's end has its own."""

    def __init__(self, beliefs: dict[str, dict[str, float]], ends: dict[str, float] | None = None) -> None:
        self.beliefs = beliefs
        self.ends = ends or {}
        self.queries: list[tuple[str, int]] = []

    async def complete(self, messages, sampling: Sampling, **_) -> Completion:
        (passage,) = [name for name in self.beliefs if f"text {name}" in messages[0]["content"]]
        belief = self.beliefs[passage]
        prompt_tokens = len(passage) + 10
        if sampling.score_from is None:
            answer = max(belief, key=belief.__getitem__)
            tokens = [(answer, math.log(belief[answer])), (END, 0.0)]
            return Completion(answer, "stop", prompt_tokens, 2, 0, 0.0, tokens)
        assert sampling.score_from == prompt_tokens and sampling.alternatives == (END,) and sampling.max_tokens == 1
        answer = messages[-1]["content"]
        tokens = [(answer[:1], math.log(belief.get(answer, 1e-9))), (answer[1:], 0.0)]
        ending = self.ends.get(answer, 1.0)
        likely = {END: math.log(ending)} if ending else {}
        return Completion("", "stop", prompt_tokens + 2, 1, 0, 0.0, tokens, [likely])

    def search(self, query: str, top_k: int) -> list[Passage]:
        self.queries.append((query, top_k))
        return [Passage(name, name.upper(), f"text {name}") for name in list(self.beliefs)[:top_k]]


def run(model: Model, **options) -> tuple[str, Rollout]:
    rollout = Rollout(Question("q", "Who?", ("Mira",)), "replug", Resources({"policy": model}, Prompts(), model))
    return asyncio.run(replug("Who?", rollout, **options)), rollout


BELIEFS = {
    "a": {"Osk": 0.5, "Mira": 0.45},
    "b": {"Osk": 0.5, "Mira": 0.45},
    "c": {"Mira": 0.9, "Osk": 0.05},
}


def test_the_averaged_probability_decides_and_not_the_number_of_passages():
    """Osk is the answer from two of three passages, but Mira has 0.6 of the average, Osk 0.35."""
    model = Model(BELIEFS)
    answer, rollout = run(model)
    assert answer == "Mira" and model.queries == [("Who?", 10)]
    calls = [step for step in rollout.trace.steps if isinstance(step, Generation)]
    assert len(calls) == 3 + 2 * 3
    assert rollout.trace.counts == {}


def test_a_draft_that_was_cut_while_it_thought_is_no_answer():
    answer, _ = run(Model({"a": {"<think>Osk or": 0.9, "Mira": 0.05}, "b": {"Mira": 0.5}}))
    assert answer == "Mira"


def test_every_passage_is_prepended_alone():
    _, rollout = run(Model(BELIEFS))
    drafts = [step.messages for step in rollout.trace.steps[1:4]]
    assert [len(messages) for messages in drafts] == [1, 1, 1]
    assert [sum(messages[0]["content"].count(f"text {name}") for name in "abc") for messages in drafts] == [1, 1, 1]
    assert drafts[0][0]["content"].startswith("[1] A: text a\n")


def test_the_end_of_an_answer_is_part_of_its_probability():
    """Without it, the beginning of an answer would always be likelier than the whole."""
    beliefs = {"a": {"Mira": 0.9, "Mira of Osk": 0.8}, "b": {"Mira of Osk": 0.8, "Mira": 0.75}}
    assert run(Model(beliefs))[0] == "Mira"
    assert run(Model(beliefs, ends={"Mira": 0.2}))[0] == "Mira of Osk"
    answer, rollout = run(Model(beliefs, ends={"Mira": 0.0}))
    assert answer == "Mira of Osk" and rollout.trace.counts == {"impossible_ends": 2}


def test_a_single_candidate_needs_no_scores():
    model = Model({name: {"Mira": 0.5} for name in "ab"})
    answer, rollout = run(model, top_k=2)
    assert answer == "Mira" and len(rollout.trace.generations) == 2
    assert run(Model({}))[0] == ""


def test_the_probability_of_a_long_answer_may_be_below_the_smallest_number():
    """Both averages are 0 as numbers; the second answer's is the larger one."""
    beliefs = {
        "a": {"Osk at length": 2e-300, "Mira at length": 1e-300},
        "b": {"Mira at length": 9e-300, "Osk at length": 1e-300},
    }
    assert run(Model(beliefs, ends=dict.fromkeys(beliefs["a"], 1e-100)))[0] == "Mira at length"


def test_the_trace_holds_the_reply_that_was_scored():
    _, rollout = run(Model(BELIEFS))
    scored = rollout.trace.generations[-1]
    assert scored.messages[-1] == {"role": "assistant", "content": "Mira"}
    assert [token for token, _ in scored.completion.tokens] == ["M", "ira"]


def test_a_scored_reply_begins_where_the_prompt_ends(tiny_model):
    """The length of the prompt tells which of the continued chat's tokens are the reply's."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    chat = [{"role": "user", "content": "the bridge"}]
    reply = {"role": "assistant", "content": "the river"}
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    whole = tokenizer.apply_chat_template([*chat, reply], continue_final_message=True, return_dict=True)["input_ids"]
    assert whole[: len(prompt)] == prompt and tokenizer.decode(whole[len(prompt) :]) == "the river"
