"""A rollout whose model and index are functions of the test, for methods read step by step.

def reply(stage, told):
    return "Mira" if stage == "answer" else "a note"

rollout = ScriptedRollout("rat", reply)
asyncio.run(rat("Who?", rollout))
rollout.stages, rollout.told("answer"), rollout.searches
"""

import copy
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from notewriter.ground.records import Completion, Passage, Question
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

Reply = Callable[[str, dict[str, Any]], str]
PROMPTS = Prompts()

TEXTS = st.text() | st.lists(
    st.sampled_from(
        ["True", "1", "2", "Answer:", "\n", "\n\n", "Mira", "<|begin_search_query|>", "<|end_search_query|>", "- ", " "]
    )
).map("".join)
"""What a model may say: anything, and the marks that methods look for, in any order."""


class ScriptedRollout(Rollout):
    """Replies and finds what the test says; every prompt is rendered, so that one that lacks a variable fails.

    `reply(stage, variables)` writes a completion (`stage` without the method's name), or it is a list of completions
    in order; `found(query, top_k)` names the passages that are found, and a passage's text is its name.
    """

    def __init__(
        self, method: str, reply: Reply | Iterable[str], found: Callable[[str, int], list[str]] | None = None
    ) -> None:
        super().__init__(Question("q", "Who?", ("Mira",)), method, Resources({}, PROMPTS))
        replies = iter(()) if callable(reply) else iter(reply)
        self._reply = reply if callable(reply) else lambda stage, told: next(replies)
        self._found = found or (lambda query, top_k: [f"{query}.{place}" for place in range(top_k)])
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.searches: list[tuple[str, int]] = []

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        self.searches.append((query, top_k))
        return [Passage(name, f"title {name}", name) for name in self._found(query, top_k)]

    async def generate(self, stage, *, stop=(), json_schema=None, sample=0, **variables: Any) -> str:
        self.resources.prompts.render(stage.name, **variables)
        method, name = stage.name.split("/")
        assert method == self.trace.method
        # As it was told: a method may go on to add to its lists.
        self.calls.append((name, stage.role, copy.deepcopy(variables)))
        text = self._reply(name, variables)
        for mark in stop:
            text = text.partition(mark)[0]
        return text if stage.continues else text.strip()

    async def generate_tokens(self, stage, *, max_tokens, **variables: Any) -> list[tuple[str, float]]:
        """A reply's words as tokens; the probability of each is 1, or what stands behind a tilde: `Osk~0.3`."""
        text = await self.generate(stage, **variables)
        split = [word.partition("~") for word in re.findall(r"\s*\S+", text)]
        return [(word, math.log(float(probability or 1))) for word, _, probability in split]

    async def score(self, stage, reply, **variables: Any) -> Completion:
        """A completion whose only token is the reply, with the log-probability that the script replies."""
        return Completion("", "length", 0, 0, 0, 0.0, [(reply, float(await self.generate(stage, **variables)))])

    @property
    def stages(self) -> list[str]:
        """The stages in the order in which they were asked for."""
        return [stage for stage, _, _ in self.calls]

    @property
    def roles(self) -> dict[str, str]:
        """Who plays each stage."""
        return {stage: role for stage, role, _ in self.calls}

    def told(self, stage: str) -> list[dict[str, Any]]:
        """What the model was told each time at a stage; passages by their names."""
        return [
            {key: [passage.id for passage in value] if key == "passages" else value for key, value in variables.items()}
            for name, _, variables in self.calls
            if name == stage
        ]
