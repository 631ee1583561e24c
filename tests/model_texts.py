"""Texts that look like what models write, and what has to hold of everything that reads them."""

from collections.abc import Callable
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

KEYS = [
    "status",
    "correct",
    "efficiency",
    "coherence",
    "evidence",
    "best_id",
    "worst_id",
    "function",
    "parameters",
    "query",
    "answer",
    "search",
    "finish",
]
BRACKETS = ["search[", "Finish (", "]", ")", "YES#", "NO #", "So the answer is: ", ". ", "Mr. "]
LABELS = ["Thought 1: ", "\nAction 1: ", "\nObservation: ", "<think>", "\n</think>"]
CALLS = ['{"function": "search", "parameters": {"query": "', "{'name': 'finish', 'arguments': {'answer': '"]
VALUES = ["true", "False", "null", "1", "-2.5e3", "9" * 5000, "NaN", "\u0661"]
SIGNS = ["{", "}", "[", '"', "'", ":", ",", "```json\n", "\n```", "\\", "\\ud83d", "\x00"]
PIECES = st.sampled_from(KEYS + VALUES + SIGNS + LABELS + CALLS + BRACKETS)
TEXTS = st.text() | st.lists(PIECES | st.text(max_size=3)).map("".join) | st.lists(PIECES).map(" ".join)


def check_thinking_is_passed_over(read: Callable[[str], Any], reply: str, thought: str) -> None:
    """What a model thought before its reply changes nothing."""
    assert read(reply)
    for thinking in (f"<think>{thought}</think>", f"{thought}\n</think>\n\n"):
        assert read(f"{thinking}{reply}") == read(reply)


def check_cut_thinking_says_nothing(read: Callable[[str], Any], reply: str, thought: str) -> None:
    """Thinking that was cut says nothing yet, whatever stands in it."""
    thought = f"{thought}{reply}".replace("</think>", "")
    assume("</think>" not in thought)
    assert read(f"<think>{thought}") == read("")


SCRIPTED_TEXTS = st.text() | st.lists(
    st.sampled_from(
        ["True", "1", "2", "Answer:", "\n", "\n\n", "Mira", "<|begin_search_query|>", "<|end_search_query|>", "- ", " "]
    )
).map("".join)
"""What a model may say: anything, and the marks that methods look for, in any order."""
