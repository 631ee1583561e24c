"""Train local language models to write notes for retrieval-augmented question answering.

The names below are the library's face; docs/python.md uses them. Each is imported when it is first used, so that
`import notewriter` takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from notewriter.artifacts.pairs import read_pairs as load_pairs
    from notewriter.data.building import build_pairs
    from notewriter.evaluation.evaluating import evaluate
    from notewriter.evaluation.metrics import score
    from notewriter.ground.records import Passage, Question
    from notewriter.retrieval.bm25 import build as build_index
    from notewriter.retrieval.sources.index import open_index
    from notewriter.rollouts.method import Method, Stage
    from notewriter.rollouts.rollout import Rollout

__version__ = "0.5.0"

__all__ = [
    "Method",
    "Passage",
    "Question",
    "Rollout",
    "Stage",
    "build_index",
    "build_pairs",
    "evaluate",
    "load_pairs",
    "open_index",
    "score",
]

_PLACES = {
    "Method": "rollouts.method:Method",
    "Passage": "ground.records:Passage",
    "Question": "ground.records:Question",
    "Rollout": "rollouts.rollout:Rollout",
    "Stage": "rollouts.method:Stage",
    "build_index": "retrieval.bm25:build",
    "build_pairs": "data.building:build_pairs",
    "evaluate": "evaluation.evaluating:evaluate",
    "load_pairs": "artifacts.pairs:read_pairs",
    "open_index": "retrieval.sources.index:open_index",
    "score": "evaluation.metrics:score",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PLACES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
