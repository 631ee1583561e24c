"""Prompts: one Jinja file a stage, rendered here and nowhere else."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from notewriter.errors import UserError
from notewriter.records import Message
from notewriter.text import without_surrogates


class Prompts:
    """The prompts by stage: a stage `deepnote/init_note` is the file `deepnote/init_note.jinja`.

    A file in `directory` goes before ours of the same name, so that a paper's own set can be used.
    A variable that a prompt names and a method does not give is an error, never an empty place.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        if directory is not None and not Path(directory).is_dir():
            raise UserError(f"{directory}: prompts_dir is not a folder; give one that holds <method>/<stage>.jinja")
        for path in sorted(Path(directory).rglob("*.jinja")) if directory is not None else ():
            if path.is_dir():
                raise UserError(f"{path}: is a folder where a prompt belongs; remove it, or write the prompt as a file")
        # A method's prompts lie in its own folder; what several share lies here.
        ours = [Path(__file__).parents[2] / "methods", Path(__file__).parent]
        places = ours if directory is None else [Path(directory), *ours]
        # Sandboxed, because a prompt set may come from somebody else.
        self._environment = SandboxedEnvironment(
            loader=jinja2.FileSystemLoader(places),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def check(self, stage: str) -> None:
        """Make sure that a stage has a prompt.

        Raises:
            UserError: it has none; tells the most similar stage that has.
        """
        stages = [name.removesuffix(".jinja") for name in self._environment.list_templates(extensions=["jinja"])]
        if stage not in stages:
            near = difflib.get_close_matches(stage, stages, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "a stage needs a file of that name in prompts_dir"
            raise UserError(f"no prompt {stage!r}; {remedy}")

    def render(self, stage: str, *, turns: Sequence[Message] = (), **variables: Any) -> list[Message]:
        """A stage's prompt as a chat: one user message, and after it the turns that a method has had so far.

        Raises:
            UserError: there is no such prompt, or it names a variable that is not given.
        """
        name = f"{stage}.jinja"
        try:
            text = self._environment.get_template(name).render(variables)
        except jinja2.TemplateNotFound as error:
            raise UserError(f"no prompt {error.name!r}; a stage needs a file of that name in prompts_dir") from error
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"{error.filename}:{error.lineno}: {error.message}") from error
        except UnicodeDecodeError as error:
            raise UserError(f"prompt {name}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error
        except RecursionError as error:
            raise UserError(f"prompt {name}: includes itself without an end, or is nested too deeply") from error
        # A template is a program that somebody else wrote: whatever it raises is for its author to mend.
        except Exception as error:
            given = ", ".join(sorted(variables))
            raise UserError(f"prompt {name}: {' '.join(str(error).split())}; the stage gives: {given}") from error
        messages: list[Message] = [{"role": "user", "content": text.strip()}, *turns]
        return [{"role": message["role"], "content": without_surrogates(message["content"])} for message in messages]
