"""What is imported is declared: a package that another one happens to bring can go with its next version."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"notewriter", "data_construction", "eval", "training"}


def imported() -> set[str]:
    """The modules of others that our packages import, wherever in a file."""
    names = set()
    for path in (path for package in OURS for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).split(".")[0])
    return names - OURS - set(sys.stdlib_module_names)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    declared = {plain(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}
    installed = packages_distributions()
    missing = {name for name in imported() if not declared & {plain(each) for each in installed.get(name, [name])}}
    # faiss comes as faiss-cpu, and may be absent.
    assert missing - {"faiss"} == set()
