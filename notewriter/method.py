"""What a method is made of: its function and its stages, declared in its own folder and nowhere else."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["policy", "notes", "query", "answer", "judge"]
"""Which model plays a stage; the policy plays every role that has no model of its own."""

Kind = Literal["note", "updated note", "document note", "query", "status", "answer", "step"]
"""What a completion is, for code that judges, writes or rehearses it without knowing the method.

- `note`: what the passages say about the question;
- `updated note`: replaces the `note` in its prompt;
- `document note`: a note-taker's reply to one document (`YES#...`, `NO#...`);
- `query`: what to search for next, given the `note` in its prompt;
- `status`: whether `new_note` is better than `best_note`;
- `answer`: scored as it stands;
- `step`: anything else, which only judges of any kind can compare.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind of call that a method makes.

    Args:
        name: `<method>/<stage>`, which is also the path of its prompt without `.jinja`.
        role: the model that plays it.
        kind: what its completion is.
        rehearsal: what a dry run replies, where the reply of the kind would not keep the method's loop going.
            `{query}` stands for words to search for, `{filling}` for the words that bring the reply to its expected
            length (appended where it is missing).
        calls: the maximum number of its calls per question, or the name of the option that sets it; None: unknown.
    """

    name: str
    role: Role = "policy"
    kind: Kind = "step"
    rehearsal: str = ""
    calls: int | str | None = None


@dataclass(frozen=True)
class Method:
    """A method.

    Args:
        run: `run(question, rollout, **options)`, an async function that returns the answer; its keyword-only
            parameters are the options.
        stages: the calls that it makes.
        check: a function of some of the options that raises `UserError` where they contradict each other.
    """

    run: Callable[..., Awaitable[str]]
    stages: tuple[Stage, ...]
    check: Callable[..., None] | None = None

    @property
    def name(self) -> str:
        """What users call it."""
        return self.run.__name__

    @property
    def options(self) -> dict[str, Any]:
        """Its options with their defaults."""
        parameters = inspect.signature(self.run).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def retrieves(self) -> bool:
        """Whether it retrieves, and so needs an index: it can be told how many passages."""
        return "top_k" in self.options
