"""The files by which others join: they parse, call what exists, and agree with the project."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import notewriter
from notewriter import cli

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def loaded(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_makes_what_the_makefile_has_on_the_oldest_and_the_newest_python():
    job = loaded(".github/workflows/test.yml")["jobs"]["test"]
    made = [step["run"].split()[1] for step in job["steps"] if "run" in step]
    assert made == ["setup", "lint", "docs", "test-unit"] and set(made) <= TARGETS
    oldest, above = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    assert job["strategy"]["matrix"]["python"] == [f"3.{oldest}", f"3.{int(above) - 1}"]


def test_a_commit_is_checked_by_make_lint():
    (repository,) = loaded(".pre-commit-config.yaml")["repos"]
    (hook,) = repository["hooks"]
    assert hook["entry"].split()[-1] == "lint"
    assert re.search(hook["files"], "notewriter/cli.py") and not re.search(hook["files"], "docs/gpu.md")


def test_the_citation_is_of_this_version_and_licence_and_the_changelog_begins_with_it():
    citation = loaded("CITATION.cff")
    assert (citation["version"], citation["license"]) == (notewriter.__version__, PROJECT["license"])
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert newest == f"{citation['version']} ({citation['date-released']})"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_has_fields_that_are_told_apart(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    names = [field["id"] for field in content["body"]]
    assert len(names) == len(set(names)) and content["name"] and content["description"]


def test_a_problem_comes_with_the_doctors_page():
    fields = {field["id"]: field for field in loaded(".github/ISSUE_TEMPLATE/problem.yml")["body"]}
    assert fields["doctor"]["validations"] == {"required": True}
    assert "notewriter doctor --json true" in fields["doctor"]["attributes"]["description"]
    assert "doctor" in cli.COMMANDS


@pytest.mark.parametrize("page", ["SECURITY.md", "CONTRIBUTING.md"])
def test_a_page_names_files_that_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:notewriter|tests|docs|configs)/[\w./]*)`", text) + re.findall(r"\]\(([\w./-]+)\)", text)
    assert named and not [name for name in named if not (ROOT / name).exists()]
