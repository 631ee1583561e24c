"""ReaRAG: a model thinks, searches and observes until it knows enough to finish."""

import json
from collections import Counter
from dataclasses import dataclass, field

from notewriter.ground.records import Message
from notewriter.rollouts.actions import Action, parse_action
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

ACTIONS = {"search": "query", "finish": "answer"}
"""The functions a step can call, with their parameters (section 3.1)."""

RETRIES = 20
"""The replies without a readable action that are drawn again in one chain (the authors' code)."""


RELEASED_STOPS = ("<|user|>", "<|observation|>", "<|assistant|>")
"""The end of a step of the released checkpoints (the authors' code): the marks of GLM-4's chat template."""


@dataclass
class ReasoningChain:
    """A reasoning chain (section 3.1, equation 1).

    `turns` is the chat after the instruction: the assistant's thoughts and actions alternate with observations, which
    are the user's, or a role of their own in the released format. `searches` maps each query to its latest observation.
    `answer` is None if the chain did not finish.
    """

    turns: list[Message] = field(default_factory=list)
    searches: dict[str, str] = field(default_factory=dict)
    answer: str | None = None

    def add(self, role: str, content: str) -> None:
        """Append a turn."""
        self.turns.append({"role": role, "content": content})


_REHEARSAL = 'Thought:{filling}\nAction: {"function": "search", "parameters": {"query": "{query}"}}'

STEP = Stage("rearag/step", rehearsal=_REHEARSAL)
OBSERVE = Stage("rearag/observe", "answer")
RELEASED = Stage("rearag/released", rehearsal=_REHEARSAL)
"""A step of the authors' checkpoints, such as ReaRAG-9B, in the format that they were trained on."""

CONCLUDE = Stage("rearag/conclude", "answer", "answer")
SHORTEN = Stage("rearag/shorten", "answer", "answer")

TEACH = Stage("rearag/teach", rehearsal=_REHEARSAL)
"""A step of the teacher whose chains become training data (Algorithm 1)."""

TEACH_WITH_GOLD = Stage("rearag/teach_with_gold", rehearsal=_REHEARSAL)
"""A whole chain by a teacher that is given the sub-questions and the answer (Algorithm 3)."""


async def rearag(
    question: str,
    rollout: Rollout,
    *,
    top_k: int = 3,
    max_step: int = 15,
    retries: int = RETRIES,
    released_format: bool = False,
    answer_style: str = "short",
) -> str:
    """Reason until the chain finishes, then shorten its answer (ReaRAG, Algorithm 2).

    The paper leaves open the case that the steps run out; here an answer is written from the observations.

    Args:
        rollout: the rollout to run in; `policy` reasons, `answer` answers queries from passages and shortens.
        top_k: passages per search (the authors' code: 3).
        max_step: T_max, maximum number of steps (the authors' code: 15).
        retries: how many unreadable replies are drawn again per chain (the authors' code: 20).
        released_format: reason in the format of the authors' checkpoints (THU-KEG/ReaRAG-9B): the instruction is a
            system message, the question the user's; steps stay as they were written, and what a search found is a
            message of the role `observation`. The chat template must know that role, as GLM-4's does.
    """
    stage = RELEASED if released_format else STEP
    chain = await reason(question, rollout, stage, top_k=top_k, max_step=max_step, retries=retries)
    if chain.answer is None:
        return await rollout.generate(CONCLUDE, question=question, searches=chain.searches, answer_style=answer_style)
    return await rollout.generate(SHORTEN, question=question, reference=chain.answer, answer_style=answer_style)


async def reason(
    question: str, rollout: Rollout, stage: Stage, *, top_k: int, max_step: int, retries: int
) -> ReasoningChain:
    """The loop shared by inference (Algorithm 2) and data construction (Algorithm 1); `stage` has the instruction.

    A reply without a readable action is drawn again, up to `retries` times per chain, and leaves no trace in it; then
    the chain ends. A query that was sent before is searched and answered again. Counts `steps`, `invalid_actions`
    (chains that ended that way), `redrawn_steps`, `repeated_queries` and `unfinished`.
    """
    is_released = stage is RELEASED
    stops = RELEASED_STOPS if is_released else ("\nObservation",)
    chain = ReasoningChain()
    sent: Counter[str] = Counter()
    left = retries
    for number in range(1, max_step + 1):
        rollout.count("steps")
        action: Action | None = None
        reply, draw = "", 0
        while action is None:
            # A stop string inside a model's thinking cuts the reply. Later draws have none, and whatever is invented
            # after the action is ignored.
            reply = await rollout.generate(
                stage, stop=() if draw else stops, sample=draw, turns=chain.turns, question=question
            )
            action = parse_action(reply, ACTIONS)
            if action is None:
                if not left:
                    rollout.count("invalid_actions")
                    return chain
                left, draw = left - 1, draw + 1
                rollout.count("redrawn_steps")
        chain.add("assistant", reply if is_released else as_step(action, number))
        if action.name == "finish":
            chain.answer = action.argument
            return chain
        query = action.argument
        if sent[query]:
            rollout.count("repeated_queries")
        passages = await rollout.retrieve(query, top_k)
        chain.searches[query] = await rollout.generate(OBSERVE, sample=sent[query], query=query, passages=passages)
        sent[query] += 1
        if is_released:
            chain.add("observation", chain.searches[query])
        else:
            chain.add("user", as_observation(chain.searches[query], number))
    rollout.count("unfinished")
    return chain


def as_step(action: Action, number: int) -> str:
    """A step in the normalised form in which it enters the chat, in training and inference; numbered from 1."""
    call = {"function": action.name, "parameters": {ACTIONS[action.name]: action.argument}}
    thought = f"Thought {number}: {action.thought}\n" if action.thought else ""
    return f"{thought}Action {number}: {json.dumps(call, ensure_ascii=False)}"


def as_observation(text: str, number: int) -> str:
    """The observation of a step in the form in which it enters the chat."""
    return f"Observation {number}: {text}"


METHOD = Method(rearag, (STEP, RELEASED, OBSERVE, CONCLUDE, SHORTEN))
