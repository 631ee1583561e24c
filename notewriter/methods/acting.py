"""The loop of thought, action and observation that ReAct and ReNAct share."""

from collections.abc import Awaitable, Callable, Mapping

from notewriter.method import Stage
from notewriter.records import Message
from notewriter.rollouts.actions import Action, parse_call
from notewriter.rollouts.rollout import Rollout

Tool = Callable[[str], Awaitable[str]]
"""What an action does: its argument in, an observation out."""

REHEARSAL = "Thought:{filling}\nAction: search[{query}]"
"""A step that keeps the loop going, for dry runs."""


async def reason_and_act(
    question: str,
    rollout: Rollout,
    stages: tuple[Stage, Stage],
    tools: Mapping[str, Tool],
    max_step: int,
    answer_style: str,
) -> str:
    """Think, act and observe until an action finishes; where the steps run out, answer from all of it.

    Every reply is a step, also one without an action. Counted are `steps`, `invalid_actions` and `unfinished`.

    Args:
        question: the question to answer.
        rollout: where it runs.
        stages: the step, and the answer where the steps ran out.
        tools: the actions there are beside `finish`, by name.
        max_step: steps at the most.
        answer_style: `short`, `long` or `yes_no`.
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
        # Chat templates that want user and assistant in turn also want the turn of a model that said nothing.
        turns.append({"role": "assistant", "content": _as_step(action) if action else reply or "(nothing)"})
        turns.append({"role": "user", "content": f"Observation: {observation}"})
    rollout.count("unfinished")
    history = [turn["content"] for turn in turns]
    return await rollout.generate(answer, question=question, history=history, answer_style=answer_style)


def _as_step(action: Action) -> str:
    """A step as the chat has it: however the model wrote it, it is told back like this."""
    thought = f"Thought: {action.thought}\n" if action.thought else ""
    return f"{thought}Action: {action.name}[{action.argument}]"
