"""Methods and their stages, as each method declares them in its own folder."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from notewriter.models import Role
from notewriter.rollouts.prompts import FOLDERS

Kind = Literal["note", "updated note", "document note", "query", "status", "answer", "step"]
"""What kind of text a completion is, for code that judges, writes or rehearses it without knowing the method.

- `note`: what the passages say about the question;
- `updated note`: replaces the `note` in its prompt;
- `document note`: a note-taker's reply about one document (`YES#...`, `NO#...`);
- `query`: what to search for next, given the `note` in its prompt;
- `status`: whether `new_note` is better than `best_note`;
- `answer`: scored unchanged;
- `step`: anything else; only judges that accept any kind can compare it.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """One kind of model call made by a method.

    Args:
        name: `<method>/<stage>`, also the path of its prompt without `.jinja`.
        role: the model that plays it.
        kind: the kind of its completion.
        rehearsal: the reply in a dry run, if the kind's default reply would end the method's loop early. `{query}`
            stands for search words, `{filling}` for words that pad the reply to its expected length (appended by
            default).
        calls: the maximum number of calls per question, or the name of the option that sets it; None if unknown.
        stops_thinking: its stop strings also end a reasoning model's thinking, since that is where it acts.
        continues: its completions continue a text that the method goes on writing, and keep their thinking and white
            space.
        temperature: its own temperature, unless the run gives the stage its own sampling.
        max_tokens: the most tokens of its completions, likewise.
        raw: its prompt and turns are one text in a checkpoint's own format, sent without a chat template.
        scored: its completions are only read with their log-probabilities (`generate_scored`, `score`), so that no
            other text can take their place.
    """

    name: str
    role: Role = "policy"
    kind: Kind = "step"
    rehearsal: str = ""
    calls: int | str | None = None
    stops_thinking: bool = False
    continues: bool = False
    temperature: float | None = None
    max_tokens: int | None = None
    raw: bool = False
    scored: bool = False


@dataclass(frozen=True)
class Method:
    """A method; its prompts are beside the module of its function.

    Args:
        run: `run(question, rollout, **options)`, an async function that returns the answer; its keyword-only
            parameters are the method's options; their annotations give the allowed values.
        stages: the calls it makes.
    """

    run: Callable[..., Awaitable[str]]
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        FOLDERS[self.name] = Path(inspect.getfile(self.run)).parent

    @property
    def name(self) -> str:
        """The method's name on the command line."""
        return self.run.__name__

    @property
    def options(self) -> dict[str, Any]:
        """Options and their defaults."""
        parameters = inspect.signature(self.run).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def retrieves(self) -> bool:
        """Whether it retrieves and therefore needs an index, that is, has an option `top_k`."""
        return "top_k" in self.options
