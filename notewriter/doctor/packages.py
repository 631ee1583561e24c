"""Which of the project's requirements are installed, and whether they agree with it: nothing is imported."""

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, metadata, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import notewriter
from notewriter.doctor.finding import Finding
from notewriter.ground.errors import CLONE, with_extras
from notewriter.models.serve_options import runs_on_cpu


def packages() -> list[Finding]:
    """The core, the extras, and the pinned versions where the project is a clone."""
    by_extra = requirements()
    core = [problem for each in by_extra.pop("") if (problem := _problem(each))]
    states = {name: [_problem(each) for each in needed] for name, needed in by_extra.items()}
    # One of the two builds of vLLM is for another machine.
    states.pop("gpu" if runs_on_cpu() else "cpu", None)
    whole = [name for name, problems in states.items() if not any(problems)]
    missing = [name for name, problems in states.items() if any(problem.endswith("is missing") for problem in problems)]
    others = [problem for name in states if name not in missing for problem in states[name] if problem]
    found = f"installed: {', '.join(whole) or 'none'}" + (f"; not: {', '.join(missing)}" if missing else "")
    remedy = f"where one is needed: {with_extras(*missing)}" if missing else ""
    wrong = core + others
    clone = (CLONE / "pyproject.toml").is_file()
    again = "make clean, then make setup; or pip install -e ." if clone else "install its wheel again"
    return [
        Finding("packages", "wrong", "; ".join(wrong), again)
        if wrong
        else Finding("packages", "ok", f"notewriter {notewriter.__version__}, its requirements are met"),
        Finding("extras", "note" if missing else "ok", found, remedy),
        *constraints(),
    ]


def requirements() -> dict[str, list[Requirement]]:
    """The project's requirements that hold on this machine, by extra; the core's are under an empty name."""
    known = metadata("notewriter")
    extras = known.get_all("Provides-Extra") or []
    needed = [Requirement(line) for line in known.get_all("Requires-Dist") or []]
    core = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    by_extra = {
        extra: [each for each in needed if each not in core and each.marker and each.marker.evaluate({"extra": extra})]
        for extra in extras
    }
    return {"": core, **by_extra}


def constraints() -> list[Finding]:
    """How far a clone's installed packages are from the versions that its tests run with."""
    file = CLONE / f"constraints{'' if runs_on_cpu() else '-gpu'}.txt"
    if not file.is_file():
        return []
    pins = _pins(file.read_text(encoding="utf-8").splitlines())
    installed = {name: found for name in pins if (found := _version(name))}
    apart = [f"{name} {found} (not {pins[name]})" for name, found in installed.items() if not _same(found, pins[name])]
    found = f"{len(installed)} packages of {file.name}, {len(apart)} of other versions"
    if not apart:
        return [Finding("versions", "ok", found)]
    remedy = f"pip install -c {file.name} -e ."
    return [Finding("versions", "note", f"{found}: {', '.join(apart[:5])}", remedy)]


def _pins(lines: Iterable[str]) -> dict[str, str]:
    pairs = (line.split(" ")[0].partition("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): pin for name, _, pin in pairs if pin}


def _same(found: str, pin: str) -> bool:
    """Whether two versions are one, but for the local part that names a build."""
    return found.partition("+")[0] == pin.partition("+")[0]


def _problem(requirement: Requirement) -> str:
    """What is wrong with a requirement; empty if it is met."""
    found = _version(requirement.name)
    if found is None:
        return f"{requirement.name} is missing"
    if not requirement.specifier.contains(found, prereleases=True):
        return f"{requirement.name} {found} is not {requirement.specifier}"
    return ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
