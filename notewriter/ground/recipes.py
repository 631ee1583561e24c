"""The recipes in this package: a YAML file a run, named by its path without `.yaml`, such as `dpo/quickstart_smollm2`.

In a checkout they are the files of configs/ and slurm/, to which the package has links.
"""

import itertools
from importlib.resources import files
from pathlib import Path

from notewriter.ground.errors import UserError, meant

PACKAGE = Path(str(files("notewriter")))
RECIPES = (PACKAGE / "recipes").resolve()
SLURM = (PACKAGE / "slurm").resolve()


def names() -> list[str]:
    """The names of all recipes and of the scripts for Slurm, by path."""
    yaml = [path.relative_to(RECIPES).with_suffix("").as_posix() for path in sorted(RECIPES.rglob("*.yaml"))]
    return [*yaml, *(f"slurm/{path.name}" for path in sorted(SLURM.iterdir()) if path.is_file())]


def find(name: str | Path) -> Path:
    """The file with this path, or else that of the recipe with this name; the path itself where there is neither.

    A recipe's path in a checkout, below configs/, is a name of it too; one that is not YAML is named with its ending.
    """
    path, ours = Path(name), str(name).removeprefix("configs/")
    if path.exists() or path.is_absolute():
        return path
    recipes = (RECIPES / f"{ours.removesuffix('.yaml')}.yaml", RECIPES / ours)
    return next((recipe for recipe in recipes if recipe.is_file()), path)


def folder(name: str | Path) -> Path:
    """The folder with this path, or else that of ours with this name, such as `prompts/short`; the path otherwise."""
    path = Path(name)
    ours = RECIPES / str(name).removeprefix("configs/")
    return ours if not path.exists() and not path.is_absolute() and ours.is_dir() else path


def file_named(name: str) -> Path:
    """The file of a recipe or script.

    Raises:
        UserError: there is none of that name; suggests the most similar one.
    """
    if name not in names():
        raise UserError(f"no recipe {name!r}; {meant(name, names(), '`notewriter fetch recipe` lists them')}")
    return SLURM / name.removeprefix("slurm/") if name.startswith("slurm/") else RECIPES / f"{name}.yaml"


def purpose(file: Path) -> str:
    """The first sentence of the comment at the top of a recipe."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#!")]
    comment = itertools.takewhile(lambda line: line.startswith("# "), lines)
    return " ".join(line.removeprefix("# ") for line in comment).partition(". ")[0].rstrip(".:")
