"""Self-RAG: when it retrieves, how segments are scored by reflection tokens, and which beam is kept."""

import asyncio
import math
from collections.abc import Callable

import pytest

from notewriter.artifacts.traces import Generation
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Passage, Question, Sampling
from notewriter.methods import prepare
from notewriter.methods.self_rag import REFLECTION, self_rag
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

Tokens = list[str | dict[str, float]]
HEADER = "### Instruction:\nWho?\n\n### Response:\n"
YES, NO = {"[Retrieval]": 0.6, "[No Retrieval]": 0.4}, {"[No Retrieval]": 0.9, "[Retrieval]": 0.1}
RELEVANT, SUPPORTED, USEFUL = {"[Relevant]": 1.0}, {"[Fully supported]": 1.0}, {"[Utility:5]": 1.0}


class Checkpoint:
    """Replies to a text with tokens: a string of probability 1, or the likely ones of which the first is taken."""

    def __init__(self, reply: Callable[[str], Tokens]) -> None:
        self.reply = reply
        self.prompts: list[str] = []
        self.queries: list[str] = []

    async def complete(self, messages, sampling: Sampling, **_) -> Completion:
        assert sampling.raw and sampling.alternatives == REFLECTION
        self.prompts.append("".join(message["content"] for message in messages))
        tokens = [{each: 1.0} if isinstance(each, str) else each for each in self.reply(self.prompts[-1])]
        first = [next(iter(each.items())) for each in tokens]
        return Completion(
            *("".join(token for token, _ in first), "stop", 1, len(tokens), 0, 0.0),
            tokens=[(token, math.log(probability)) for token, probability in first],
            alternatives=[{name: math.log(p) for name, p in each.items() if name in REFLECTION} for each in tokens],
        )

    def search(self, query: str, top_k: int) -> list[Passage]:
        self.queries.append(query)
        return [Passage(name, name.upper(), f"text {name}") for name in "abcde"[:top_k]]


def run(reply: Callable[[str], Tokens], **options) -> tuple[str, Checkpoint, Rollout]:
    checkpoint = Checkpoint(reply)
    resources = Resources({"policy": checkpoint}, Prompts(), checkpoint)
    rollout = Rollout(Question("q", "Who?", ("Mira",)), "self_rag", resources)
    return asyncio.run(self_rag("Who?", rollout, **options)), checkpoint, rollout


def by_passage(**segments: Tokens) -> Callable[[str], Tokens]:
    """Wants passages, and writes a segment by the last passage of the prompt."""

    def reply(prompt: str) -> Tokens:
        last = prompt.rpartition("text ")[2][:1] if "<paragraph>" in prompt else ""
        return segments[last] if last else [YES]

    return reply


def test_prompts_are_the_released_ones():
    _, checkpoint, _ = run(by_passage(a=["Mira"], b=["Osk"]), top_k=2)
    assert checkpoint.prompts == [
        HEADER,
        f"{HEADER}[Retrieval]<paragraph>A\ntext a</paragraph>",
        f"{HEADER}[Retrieval]<paragraph>B\ntext b</paragraph>",
    ]
    _, checkpoint, _ = run(lambda prompt: [NO, " Mira"], answer_style="yes_no")
    header = "### Instruction:\nAnswer with one word: yes or no.\n\n## Input:\n\nWho?\n\n### Response:\n"
    assert checkpoint.prompts == [header, f"{header}[No Retrieval]"]


def test_a_short_answer_may_be_asked_for_too():
    """FlashRAG's Self-RAG, which ReSP's Table 2 has."""
    _, checkpoint, _ = run(lambda prompt: [NO, " Mira"], short_instruction=True)
    assert checkpoint.prompts[0].startswith("### Instruction:\nGive only the answer itself")
    assert checkpoint.prompts[0].endswith("\n\n## Input:\n\nWho?\n\n### Response:\n")


@pytest.mark.parametrize(
    ("likely", "threshold", "retrieves"),
    [
        (NO, 0.2, False),
        (NO, 0.05, True),
        (NO, -1.0, True),
        (YES, 0.6, False),
        (YES, 0.5, True),
        (YES, 1.0, False),
        ({"[Retrieval]": 0.01, "[No Retrieval]": 0.02}, 0.3, True),
        ({"[Retrieval]": 1.0}, 1.0, False),
    ],
)
def test_it_retrieves_if_the_share_of_the_retrieval_token_exceeds_the_threshold(likely, threshold, retrieves):
    """Section 3.3: probabilities, not the log-probabilities that the released short-form script compares."""
    answer, checkpoint, rollout = run(lambda prompt: [likely, " Mira\n\nMore"], threshold=threshold, top_k=1)
    assert bool(checkpoint.queries) == retrieves
    assert rollout.trace.counts.get("retrieved", 0) == retrieves
    assert retrieves or answer == "Mira"


@pytest.mark.parametrize(("text", "retrieves"), [("[Retrieval]", True), ("Mira", False)])
def test_without_a_likely_retrieval_token_the_text_decides(text, retrieves):
    _, checkpoint, rollout = run(lambda prompt: [{text: 1.0, "x": 0.0}] if text == "Mira" else [text], top_k=1)
    assert bool(checkpoint.queries) == retrieves
    if not retrieves:
        assert rollout.trace.counts == {"unreadable_reflections": 1}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ([{"[Relevant]": 0.5, "[Irrelevant]": 0.1}, "x"], [{"[Relevant]": 0.6, "[Irrelevant]": 0.4}, "x"]),
        ([RELEVANT, "x", SUPPORTED], [RELEVANT, "x", {"[Partially supported]": 1.0}]),
        ([RELEVANT, "x", {"[Partially supported]": 1.0}], [RELEVANT, "x", {"[No support / Contradictory]": 1.0}]),
        ([RELEVANT, "x", USEFUL], [RELEVANT, "x", {"[Utility:4]": 1.0}]),
        ([RELEVANT, "x", {"[Utility:3]": 1.0}], [RELEVANT, "x", {"[Utility:2]": 1.0}]),
        ([RELEVANT, "x", {"[Utility:2]": 1.0}, SUPPORTED], [RELEVANT, "x", {"[Utility:5]": 1.0}]),
        ([RELEVANT, {"x": 0.9}], [RELEVANT, {"x": 0.8}]),
    ],
)
def test_the_better_critique_wins(better, worse):
    better, worse = [*better, " better"], [*worse, " worse"]
    for segments in ({"a": better, "b": worse}, {"a": worse, "b": better}):
        answer, _, _ = run(by_passage(**segments), top_k=2)
        assert answer == "x better"


def test_the_score_is_the_one_of_the_paper():
    """Equations 3 and 4 with the default weights 1, 1, 0.5."""
    a = [
        {"[Relevant]": 0.9, "[Irrelevant]": 0.1},
        {"a": 0.5},
        {"[Fully supported]": 0.5, "[Partially supported]": 0.5},
        {"[Utility:5]": 0.4, "[Utility:4]": 0.4},
    ]
    b = [RELEVANT, "b", SUPPORTED, {"[Utility:1]": 1.0}]
    a_score = 0.9 + 0.75 + 0.5 * 0.75 + math.exp(sum(map(math.log, (0.9, 0.5, 0.5, 0.4))) / 4)
    assert a_score > 1 + 1 - 0.5 + 1
    assert run(by_passage(a=a, b=b), top_k=2)[0] == "a"
    assert run(by_passage(a=a, b=b), top_k=2, usefulness_weight=0.0)[0] == "b"
    assert run(by_passage(a=a, b=b), top_k=2, sequence_score=False, usefulness_weight=0.3)[0] == "a"


def test_beams_go_on_where_retrieval_is_wanted_and_the_best_product_wins():
    """The first segment of b is the better one, but a's second segment more than makes up for it."""

    def reply(prompt: str) -> Tokens:
        said = prompt.removeprefix(HEADER)
        if not said:
            return [YES]
        if "One" not in said and "Two" not in said:
            good = "text a" in said
            return [{"[Relevant]": 0.8 if good else 0.9, "[Irrelevant]": 0.1}, "One" if good else "Two", "[Retrieval]"]
        return [RELEVANT if "One" in said else {"[Irrelevant]": 1.0}, " end", SUPPORTED]

    answer, checkpoint, rollout = run(reply, top_k=2, max_step=3, sequence_score=False)
    assert answer == "One end" and rollout.trace.counts == {"retrieved": 1, "steps": 2}
    assert checkpoint.queries == ["Who?"]
    # Segments stay in the text, the passages they were written from do not.
    assert checkpoint.prompts[-1].startswith(f"{HEADER}[Relevant]")
    assert checkpoint.prompts[-1].count("<paragraph>") == 1
    assert len(checkpoint.prompts) == 1 + 2 + 2 * 2
    assert run(reply, top_k=2, max_step=3, beam_width=1, sequence_score=False)[0] == "Two end"
    _, checkpoint, _ = run(reply, top_k=2, max_step=3, beam_width=1, retrieve_again=True)
    assert checkpoint.queries == ["Who?", "Who? Two"]


def test_a_no_retrieval_within_a_segment_ends_it_if_retrieval_is_likely_enough():
    segments = [RELEVANT, "One", {"[No Retrieval]": 0.7, "[Retrieval]": 0.3}, " two"]
    replies = {1: [YES], 2: segments, 3: [RELEVANT, " three"]}
    count = iter(range(1, 9))
    answer, *_ = run(lambda prompt: replies[next(count)], top_k=1, max_step=2)
    assert answer == "One three"
    count = iter(range(1, 9))
    answer, *_ = run(lambda prompt: replies[next(count)], top_k=1, max_step=2, threshold=0.4)
    assert answer == "One two"


def test_a_segment_without_a_relevance_token_is_counted_and_may_still_win():
    answer, _, rollout = run(by_passage(a=["Mira"]), top_k=1)
    assert answer == "Mira" and rollout.trace.counts["unreadable_reflections"] == 1


def test_segments_and_the_decision_are_bounded():
    _, _, rollout = run(by_passage(a=["Mira"]), top_k=1, max_tokens=50)
    calls = [step for step in rollout.trace.steps if isinstance(step, Generation)]
    assert [step.sampling.max_tokens for step in calls] == [1, 50]


def test_a_threshold_above_one_is_refused():
    with pytest.raises(UserError, match=r"option threshold: 1\.5 is too large; give at most 1"):
        prepare("self_rag", {"threshold": 1.5})


def test_the_case_of_anna_of_pomerania():
    """DeepNote's case study (appendix, Table 21): one retrieval finds nothing on her father, and no second follows."""
    irrelevant = [{"[Irrelevant]": 0.9, "[Relevant]": 0.1}, "Not mentioned.", {"[No support / Contradictory]": 1.0}]
    answer, checkpoint, rollout = run(by_passage(**dict.fromkeys("abcde", irrelevant)))
    assert answer == "Not mentioned." and checkpoint.queries == ["Who?"]
    assert rollout.trace.counts == {"retrieved": 1, "steps": 1}
