"""Prompts: one Jinja file per stage."""

import contextlib
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from notewriter.ground import recipes, typed
from notewriter.ground.errors import UserError, meant, one_line
from notewriter.ground.lazy import Lazy
from notewriter.ground.records import MAX_TOKENS, Message
from notewriter.ground.terminal import say_once
from notewriter.ground.text import without_surrogates
from notewriter.rollouts.extraction import marked, named_sentences, names_of

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = Lazy("jinja2")

logger = logging.getLogger(__name__)

FOLDERS: dict[str, Path] = {}
"""The folders with the prompts of each method (`rollouts.method.Method`), by its name."""

Budgets = dict[str, Annotated[int, Interval(ge=1, le=MAX_TOKENS)]]
"""Words by stage."""

ENCODING = "utf-8-sig"
"""UTF-8; a byte order mark is no part of a prompt."""

SYSTEM = ".system.jinja"
"""The end of the name of a file with a stage's system message."""


def _beside_module(template: str) -> tuple[str, str, Callable[[], bool]] | None:
    """The prompt of a method of another package: `METHOD/STAGE.jinja` is `STAGE.jinja` in the folder of the method."""
    method, _, name = template.partition("/")
    # Jinja's own loader keeps names with `..` inside the folder.
    loader = jinja2.FileSystemLoader(FOLDERS[method], ENCODING) if method in FOLDERS else None
    return loader.get_source(jinja2.Environment(), name) if loader else None


def _shown(value: object) -> object:
    """A value that a prompt shows: a text or a number; others would stand there as Python writes them."""
    if isinstance(value, str | int | float | jinja2.Undefined):
        return value
    raise TypeError(f"a {type(value).__name__} is no text; write out its parts, as passages.jinja does")


@contextlib.contextmanager
def _faults(name: str, given: Iterable[str]) -> Iterator[None]:
    """What is wrong with a prompt that gets the variables `given`, as an error that names its file."""
    try:
        yield
    except jinja2.TemplateNotFound as error:
        raise UserError(f"no prompt {error.name!r}; add a file of that name to prompts_dir") from error
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{error.filename or name}:{error.lineno}: {error.message}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"prompt {name}: is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except RecursionError as error:
        raise UserError(f"prompt {name}: includes itself or is nested too deeply; simplify it") from error
    # A template is a program and can raise anything; its author has to fix it.
    except Exception as error:
        told = ", ".join(sorted(given))
        raise UserError(f"prompt {name}: {one_line(error)}; the stage provides: {told}") from error


class Prompts:
    """The prompts by stage: `deepnote/init_note` is the file `deepnote/init_note.jinja`.

    A second file, `init_note.system.jinja`, would be its system message; most stages have none.
    A file in `directory` replaces ours of the same name, so that a paper's own prompts can be used. The prompts of a
    method of another package are beside its module.
    An undefined variable in a prompt is an error, and so is a file in `directory` that replaces nothing. A stage in
    `words` asks for at most that many words, in the sentence `words.jinja` after its prompt. One in `extractive` has
    its passages `marked`, and asks for the marks in that of `marks.jinja`.

    Raises:
        UserError: `directory` is not a folder of prompts, or has a file that cannot be one; `words` or `extractive` has
            a stage without a prompt, or `words` an amount that is none.
    """

    def __init__(
        self,
        directory: str | Path | None = None,
        words: Mapping[str, int] = MappingProxyType({}),
        extractive: Collection[str] = (),
    ) -> None:
        directory = None if directory is None else recipes.folder(directory)
        if directory is not None and not directory.is_dir():
            raise UserError(f"{directory}: prompts_dir is not a folder; give one that contains <method>/<stage>.jinja")
        for path in sorted(directory.rglob("*.jinja")) if directory is not None else ():
            if path.is_dir():
                raise UserError(f"{path}: is a folder, not a prompt file; remove or rename it")
        # A method's prompts are in its own folder, shared ones here.
        ours = [Path(__file__).parents[2] / "methods", Path(__file__).parent]
        places = ours if directory is None else [directory, *ours]
        # Imported late: commands that only read their options need none of it.
        from jinja2.sandbox import SandboxedEnvironment

        self._files = files = jinja2.FileSystemLoader(places, ENCODING)
        # Sandboxed, because prompts may come from third parties.
        self._environment = SandboxedEnvironment(
            loader=jinja2.ChoiceLoader([files, jinja2.FunctionLoader(_beside_module)]),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        self._with_system = {name.removesuffix(SYSTEM) for name in self._names() if name.endswith(SYSTEM)}
        if directory is not None:
            self._check_own(directory)
        self._words = typed.read(dict(words), Budgets, "words")
        self._extractive = frozenset(extractive)
        for stage in (*self._words, *extractive):
            self.check(stage)

    def _names(self) -> list[str]:
        beside = [f"{method}/{path.name}" for method, folder in FOLDERS.items() for path in folder.glob("*.jinja")]
        return sorted({*beside, *(name for name in self._files.list_templates() if name.endswith(".jinja"))})

    def _check_own(self, folder: Path) -> None:
        """Check that each prompt in a user's folder replaces one of ours, and tell of variables that it leaves out.

        Raises:
            UserError: one is not read, replaces nothing and is not included, is no template, or writes `{question}`.
        """
        ours = Prompts()
        stages = {name.removesuffix(".jinja").removesuffix(".system") for name in ours._names()}
        own = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        included = {other for name in own if name.endswith(".jinja") for other in self._needs(name)[1]}
        if not any(name.endswith(".jinja") for name in own):
            raise UserError(f"{folder}: prompts_dir has no prompts; give one that contains <method>/<stage>.jinja")
        for name in own:
            parent, _, file = name.rpartition("/")
            stage = f"{parent}/{file.partition('.')[0]}".removeprefix("/")
            prompts = {f"{stage}.jinja", stage + SYSTEM}
            if stage in stages and name in prompts:
                self._check_variables(folder / name, stage, ours._variables(stage))
            elif stage in stages and not prompts & {*own}:
                raise UserError(f"{folder / name}: is not read, since prompts end in .jinja; rename or remove it")
            elif name.endswith(".jinja") and name not in included:
                remedy = meant(stage, stages, "rename or remove it")
                # What is of no method here may be that of another package, which this command does not know.
                is_ours = any(each.startswith(f"{parent}/") for each in stages)
                if is_ours or any(f"/{stage}".endswith(f"/{each}") or each.endswith(f"/{stage}") for each in stages):
                    raise UserError(f"{folder / name}: replaces no prompt, and none includes it by name; {remedy}")
                say_once(logger, f"{folder / name}: no method here reads it; {remedy}")

    def _check_variables(self, path: Path, stage: str, wanted: set[str]) -> None:
        text = path.read_text(ENCODING)
        for found in re.finditer(r"(?<![{\w]){ *(\w+) *}(?!})", text):
            if found[1] in wanted:
                line = text.count("\n", 0, found.start()) + 1
                raise UserError(f"{path}:{line}: {found[0]} is no variable; write {{{{ {found[1]} }}}}")
        if missing := wanted - self._variables(stage):
            say_once(logger, f"{path}: leaves out {', '.join(sorted(missing))}, which our prompt has")

    def _variables(self, stage: str) -> set[str]:
        """The variables of a stage's prompt and system message, and of all that these include."""
        variables, files = set[str](), [f"{stage}.jinja", *([stage + SYSTEM] if stage in self._with_system else [])]
        # Grows while it is read.
        for name in files:
            names, included = self._needs(name)
            variables |= names
            files += included - {*files}
        return variables

    def _needs(self, name: str) -> tuple[set[str], set[str]]:
        """The variables of a file by itself, and the files that it includes by a fixed name."""
        # Imported late, as the sandbox.
        from jinja2 import meta

        with _faults(name, ()):
            assert self._environment.loader is not None
            source, place, _ = self._environment.loader.get_source(self._environment, name)
            tree = self._environment.parse(source, name, place)
            return meta.find_undeclared_variables(tree), {*filter(None, meta.find_referenced_templates(tree))}

    def check(self, stage: str) -> None:
        """Check that a stage has a prompt.

        Raises:
            UserError: it has none; suggests the most similar stage.
        """
        stages = [name.removesuffix(".jinja") for name in self._names() if not name.endswith(SYSTEM)]
        if stage not in stages:
            remedy = meant(stage, stages, "add a file of that name to prompts_dir")
            raise UserError(f"no prompt {stage!r}; {remedy}")

    def render(self, stage: str, *, turns: Sequence[Message] = (), **variables: Any) -> list[Message]:
        """Render a stage's prompt as a chat: one user message, followed by the earlier `turns` of the method.

        A stage with a system message begins with it.

        Raises:
            UserError: there is no such prompt, or it uses an undefined variable.
        """
        messages: list[Message] = []
        if stage in self._extractive:
            variables |= {"passages": marked(variables["passages"])}
        if stage in self._with_system:
            messages.append({"role": "system", "content": self._text(stage + SYSTEM, variables)})
        prompt = self._text(f"{stage}.jinja", variables)
        if words := self._words.get(stage):
            prompt += "\n\n" + self._text("words.jinja", {"words": words})
        if stage in self._extractive:
            prompt += "\n\n" + self._text("marks.jinja", {})
        messages += [{"role": "user", "content": prompt}, *turns]
        return [{"role": message["role"], "content": without_surrogates(message["content"])} for message in messages]

    def note_of(self, stage: str, reply: str, variables: Mapping[str, Any]) -> str:
        """The text of a reply at a stage: at an extractive one the sentences that it names."""
        return named_sentences(reply, variables["passages"]) if stage in self._extractive else reply

    def reply_with(self, stage: str, note: str, variables: Mapping[str, Any]) -> str:
        """The reply that stands for a note, the reverse of `note_of`; empty if there is none."""
        return names_of(note, variables["passages"]) if stage in self._extractive else note

    def _text(self, name: str, variables: dict[str, Any]) -> str:
        with _faults(name, variables):
            return self._environment.get_template(name).render(variables).strip()
