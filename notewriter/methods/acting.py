"""The loop of thought, action and observation shared by ReAct and ReNAct."""

from collections.abc import Awaitable, Callable, Mapping

from notewriter.ground.records import Message
from notewriter.rollouts.actions import Action, parse_call
from notewriter.rollouts.method import Stage
from notewriter.rollouts.rollout import Rollout

Tool = Callable[[str], Awaitable[str]]
"""Performs an action: takes its argument, returns an observation."""

REHEARSAL = "Thought:{filling}\nAction: search[{query}]"
"""A step that continues the loop, for dry runs."""


async def reason_and_act(
    question: str,
    rollout: Rollout,
    stages: tuple[Stage, Stage],
    tools: Mapping[str, Tool],
    max_step: int,
    answer_style: str,
) -> str:
    """Think, act and observe until an action finishes; if the steps run out, answer from the whole history.

    Every reply is a step, even without a valid action. Counts `steps`, `invalid_actions` and `unfinished`.

    Args:
        question: the question to answer.
        rollout: the rollout to run in.
        stages: the step, and the answer if the steps run out.
        tools: the actions other than `finish`, by name.
        max_step: maximum number of steps.
        answer_style: `short`, `list`, `long` or `yes_no`.
    """
    step, answer = stages
    turns: list[Message] = []
    names = (*tools, "finish")
    for _ in range(max_step):
        reply = await rollout.generate(
            step, stop=("\nObservation",), turns=turns, question=question, answer_style=answer_style
        )
        rollout.count("steps")
        action = parse_call(reply, names)
        if action is None:
            rollout.count("invalid_actions")
            observation = f"No action could be read. End with one of: {', '.join(f'{name}[...]' for name in names)}"
        elif action.name == "finish":
            return action.argument
        else:
            observation = await tools[action.name](action.argument)
        # Chat templates that require alternating turns also need one for an empty reply.
        turns.append({"role": "assistant", "content": _as_step(action) if action else reply or "(nothing)"})
        turns.append({"role": "user", "content": f"Observation: {observation}"})
    rollout.count("unfinished")
    history = [turn["content"] for turn in turns]
    return await rollout.generate(answer, question=question, history=history, answer_style=answer_style)


def _as_step(action: Action) -> str:
    """A step in the normalised form in which it enters the chat."""
    thought = f"Thought: {action.thought}\n" if action.thought else ""
    return f"{thought}Action: {action.name}[{action.argument}]"
