"""LangChain's ReAct agent: thought, action and action input as plain text, with LangChain's parsing and limits."""

import re
from typing import NamedTuple

from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.rollout import Rollout

STEP = Stage("langchain_react/step", rehearsal="{filling}\nAction: search\nAction Input: {query}", calls="max_step")

FINAL = "Final Answer:"
TOOL = "search"
STOPPED = "Agent stopped at its iteration limit."
"""The answer if the steps run out (LangChain's `early_stopping_method="force"`)."""

_ACTION = re.compile(r"Action\s*(?:\d+\s*)?:")
_INPUT = re.compile(r"Action\s*(?:\d+\s*)?Input\s*(?:\d+\s*)?:")


class _Step(NamedTuple):
    """A parsed reply: a final answer, or the tool to call and its input, or the fault of its format."""

    answer: str | None = None
    tool: str = ""
    tool_input: str = ""
    problem: str = ""


async def langchain_react(
    question: str, rollout: Rollout, *, top_k: int = 5, max_step: int = 15, answer_style: str = "short"
) -> str:
    """Reason and act in LangChain's text format (ReAct, Yao et al. 2023, as DeepNote runs it, appendix C.1).

    `create_react_agent` with one tool, `search`: all steps are one text that the prompt ends with, a reply ends before
    its observation, and `ReActSingleInputOutputParser` reads it. A reply with both an action and a final answer, or
    with neither, is a step whose observation names the problem (`handle_parsing_errors=True`; LangChain's default
    raises instead); counted as `invalid_actions`, as is an unknown tool. Counts `steps` and `unfinished`. DeepNote
    names the framework alone: top-k is that of its other baselines, the limits are LangChain's.

    Args:
        rollout: the rollout to run in; `policy` reasons.
        top_k: passages per search (DeepNote: 5).
        max_step: maximum number of steps (`AgentExecutor.max_iterations`: 15).
    """
    scratchpad = ""
    for _ in range(max_step):
        reply = await rollout.generate(
            STEP, stop=("\nObservation",), question=question, scratchpad=scratchpad, answer_style=answer_style
        )
        rollout.count("steps")
        step = _parse(reply)
        if step.answer is not None:
            return step.answer
        if step.problem:
            rollout.count("invalid_actions")
            observation = step.problem
        elif step.tool != TOOL:
            rollout.count("invalid_actions")
            observation = f"There is no tool {step.tool}; use one of [{TOOL}]."
        else:
            passages = await rollout.retrieve(step.tool_input, top_k)
            observation = "\n\n".join(f"{passage.title}: {passage.text}" for passage in passages)
        scratchpad += f" {reply}\nObservation: {observation}\nThought:"
    rollout.count("unfinished")
    return STOPPED


def _parse(reply: str) -> _Step:
    """Parse a reply by the rules of `ReActSingleInputOutputParser`."""
    action = _ACTION.search(reply)
    label = _INPUT.search(reply, action.end()) if action else None
    if action and label:
        if FINAL in reply:
            return _Step(problem="The format is invalid: both an action and a final answer.")
        tool = reply[action.end() : label.start()].strip()
        return _Step(tool=tool, tool_input=reply[label.end() :].strip().strip('"'))
    if FINAL in reply:
        return _Step(answer=reply.split(FINAL)[-1].strip())
    missing = "'Action Input:' after 'Action:'" if action else "'Action:' after 'Thought:'"
    return _Step(problem=f"The format is invalid: missing {missing}")


METHOD = Method(langchain_react, (STEP,))
