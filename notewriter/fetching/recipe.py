"""`notewriter fetch recipe`: list the recipes of this package, or copy one to change it.

    notewriter fetch recipe                        every recipe with its first comment
    notewriter fetch recipe NAME [FILE]            copy it, here under its own name or to FILE
    notewriter fetch recipe slurm/train.sbatch

Each is run from anywhere by its name: `notewriter evaluate --config eval/deepnote_hotpotqa`.
"""

import shutil
import sys
from pathlib import Path

from notewriter.ground import recipes
from notewriter.ground.errors import UserError, writing


def main(argv: list[str]) -> None:
    """List recipes or copy one.

    Raises:
        UserError: there is no such recipe, or its copy exists.
    """
    if {"-h", "--help"} & set(argv):
        sys.stdout.write(f"usage: notewriter fetch recipe [NAME [FILE]]\n\n{__doc__}")
        return
    match argv:
        case []:
            sys.stdout.write(_listed())
        case [name] | [name, _] if not name.startswith("-"):
            file = recipes.file_named(name)
            target = Path(argv[-1] if argv[1:] else file.name)
            _copy(file, target / file.name if target.is_dir() else target)
        case _:
            raise UserError(f"{' '.join(argv)}: is not understood; write: notewriter fetch recipe [NAME [FILE]]")


def _listed() -> str:
    files = {name: recipes.file_named(name) for name in recipes.names()}
    width = max(map(len, files))
    return "".join(f"{name:{width}}  {recipes.purpose(file)}".rstrip() + "\n" for name, file in files.items())


def _copy(file: Path, target: Path) -> None:
    if target.exists():
        raise UserError(f"{target}: exists; name another file after the recipe")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    sys.stdout.write(f"{target}\n")
