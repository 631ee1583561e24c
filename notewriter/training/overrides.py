"""Checks of what training overrides in other libraries, which may change with any of their releases.

They are made once at the start, before an import fails, or an override that is no longer called silently changes the
training.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

from notewriter.ground.errors import UserError

OVERRIDDEN = ("transformers", "trl", "peft", "accelerate")
"""The packages whose private parts training uses; pyproject.toml bounds their releases."""


def start(module: str, argv: list[str]) -> None:
    """Run a command of training, whose module imports those packages.

    Raises:
        UserError: as `check_versions`, or as the command.
    """
    check_versions()
    import_module(module).main(argv)


def check_versions() -> None:
    """Check that the installed releases of `OVERRIDDEN` are those that training was written for.

    Raises:
        UserError: a package is missing or has another release; names the remedy.
    """
    needed = [Requirement(each) for each in requires("notewriter") or ()]
    for requirement in needed:
        if requirement.name not in OVERRIDDEN or requirement.marker is not None:
            continue
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            installed = "none"
        if installed == "none" or not requirement.specifier.contains(installed, prereleases=True):
            raise UserError(
                f"{requirement.name}: {installed} is installed, and training needs {requirement.specifier}; run "
                f"pip install '{requirement}'"
            )


def check_methods(trainer: type[Any]) -> None:
    """Check that every private method that our trainer overrides exists in the library's trainer.

    Raises:
        UserError: one does not exist there, so that the library would no longer call it.
    """
    kinds = trainer.__mro__
    ours = [kind for kind in kinds if kind.__module__.startswith("notewriter.")]
    theirs = next(kind for kind in kinds if kind.__module__.startswith("trl."))
    for kind in ours:
        for name, value in vars(kind).items():
            if name.startswith("_") and not name.startswith("__") and callable(value) and not hasattr(theirs, name):
                raise UserError(
                    f"trl {version('trl')}: its {theirs.__name__} has no {name}, which training overrides; install the "
                    "releases that notewriter's constraints.txt names"
                )
