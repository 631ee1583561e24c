"""ReaRAG: a model thinks, searches and observes, step by step, until it knows enough to finish."""

import json
from dataclasses import dataclass, field

from notewriter.method import Method, Stage
from notewriter.records import Message
from notewriter.rollouts.actions import Action, parse_action
from notewriter.rollouts.rollout import Rollout

ACTIONS = {"search": "query", "finish": "answer"}
"""The functions that a step may call, each with its parameter (section 3.1)."""

NO_ACTION = (
    'No action could be read. End with one of these: {"function": "search", "parameters": {"query": "..."}} or '
    '{"function": "finish", "parameters": {"answer": "..."}}'
)


@dataclass
class Chain:
    """A reasoning chain (section 3.1, equation 1).

    `turns` are the chat after the instruction: thought and action from the assistant, the observation from the
    user, in turn. `searches` maps each query to its observation. `answer` is None where the chain did not finish.
    """

    turns: list[Message] = field(default_factory=list)
    searches: dict[str, str] = field(default_factory=dict)
    answer: str | None = None

    def add(self, role: str, content: str) -> None:
        """Let the chat go on with a turn."""
        self.turns.append({"role": role, "content": content})


_REHEARSAL = 'Thought:{filling}\nAction: {"function": "search", "parameters": {"query": "{query}"}}'

STEP = Stage("rearag/step", rehearsal=_REHEARSAL)
OBSERVE = Stage("rearag/observe", "answer")
CONCLUDE = Stage("rearag/conclude", "answer", "answer")
SHORTEN = Stage("rearag/shorten", "answer", "answer")

TEACH = Stage("rearag/teach", rehearsal=_REHEARSAL)
"""The step of a teacher whose chains become training data (Algorithm 1)."""

TEACH_WITH_GOLD = Stage("rearag/teach_with_gold", rehearsal=_REHEARSAL)
"""A whole chain by a teacher that knows the sub-questions and the answer (Algorithm 3)."""


async def rearag(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 15, answer_style: str = "short"
) -> str:
    """Reason until the chain finishes, then give its answer in short (ReaRAG, Algorithm 2).

    The paper leaves open what happens when the steps run out; here an answer is written from what was found.

    Args:
        question: the question to answer.
        rollout: where it runs; `policy` reasons, `answer` answers queries from passages and gives the short answer.
        top_k: passages a search.
        max_step: steps at the most, T_max (the authors' code: 15).
        answer_style: `short`, `long` or `yes_no`.
    """
    chain = await reason(question, rollout, STEP, top_k=top_k, max_step=max_step)
    if chain.answer is None:
        return await rollout.generate(CONCLUDE, question=question, searches=chain.searches, answer_style=answer_style)
    return await rollout.generate(SHORTEN, question=question, reference=chain.answer, answer_style=answer_style)


async def reason(
    question: str, rollout: Rollout, stage: Stage, *, top_k: int, max_step: int, retries: int | None = None
) -> Chain:
    """The loop that inference (Algorithm 2) and data construction (Algorithm 1) share; `stage` has the instruction.

    Every reply is a step, also one without an action, which is told what actions there are. With `retries`, as in
    data construction, it is drawn again, so often at the most, and then the chain ends, since it is nothing to learn
    from. Counted are `steps`, `invalid_actions`, `redrawn_steps` (the further draws), `repeated_queries` and
    `unfinished`.
    """
    chain = Chain()
    for _ in range(max_step):
        reply, action = "", None
        for draw in range(1 + (retries or 0)):
            if draw:
                rollout.count("redrawn_steps")
            # A stop that a model writes while it thinks cuts it off; from the second draw on it may go on, and what
            # it makes up after its action is passed over.
            reply = await rollout.generate(
                stage, stop=() if draw else ("\nObservation",), sample=draw, turns=chain.turns, question=question
            )
            action = parse_action(reply, ACTIONS)
            if action is not None:
                break
        rollout.count("steps")
        if action is None:
            rollout.count("invalid_actions")
            if retries is not None:
                return chain
            # Chat templates that want user and assistant in turn also want the turn of a model that said nothing.
            chain.add("assistant", reply or "(nothing)")
            chain.add("user", as_observation(NO_ACTION))
            continue
        chain.add("assistant", as_step(action))
        if action.name == "finish":
            chain.answer = action.argument
            return chain
        query = action.argument
        if query in chain.searches:
            rollout.count("repeated_queries")
            chain.add("user", as_observation(f"This was searched before. {chain.searches[query]}"))
            continue
        passages = await rollout.retrieve(query, top_k)
        chain.searches[query] = await rollout.generate(OBSERVE, query=query, passages=passages)
        chain.add("user", as_observation(chain.searches[query]))
    rollout.count("unfinished")
    return chain


def as_step(action: Action) -> str:
    """A step as the chat has it, in training and when served: however the model wrote it, it is told back like this."""
    call = {"function": action.name, "parameters": {ACTIONS[action.name]: action.argument}}
    thought = f"Thought: {action.thought}\n" if action.thought else ""
    return f"{thought}Action: {json.dumps(call, ensure_ascii=False)}"


def as_observation(text: str) -> str:
    """What came back from an action as the chat has it."""
    return f"Observation: {text}"


METHOD = Method(rearag, (STEP, OBSERVE, CONCLUDE, SHORTEN))
