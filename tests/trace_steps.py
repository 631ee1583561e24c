"""Traces and the steps that they consist of, as methods leave them."""

from notewriter.artifacts.traces import Generation, Trace
from notewriter.ground.records import Completion, Sampling


def trace(*steps, note=None):
    return Trace("q", "any", list(steps), note=note)


def generation(stage, text, *messages):
    roles = ["user", "assistant"] * len(messages)
    chat = [{"role": role, "content": message} for role, message in zip(roles, messages, strict=False)]
    return Generation(stage, "policy", chat, Sampling(), Completion(text, "stop", 1, 1, 0, 0.1))
