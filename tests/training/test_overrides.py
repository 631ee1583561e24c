"""Training starts with the releases that it overrides methods of, and says which one is another."""

import importlib
import runpy
import sys
from pathlib import Path

import pytest

from notewriter import cli
from notewriter.ground.errors import UserError
from notewriter.training import overrides
from notewriter.training.run.trainers import MeteredDPOTrainer, MeteredKTOTrainer, MeteredSFTTrainer


def test_the_installed_releases_pass() -> None:
    overrides.check_versions()
    for trainer in (MeteredDPOTrainer, MeteredKTOTrainer, MeteredSFTTrainer):
        overrides.check_methods(trainer)


@pytest.mark.parametrize("package", overrides.OVERRIDDEN)
def test_another_release_is_named_with_the_remedy(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = overrides.version
    monkeypatch.setattr(overrides, "version", lambda name: "99.0" if name == package else true(name))
    with pytest.raises(
        UserError, match=rf"{package}: 99\.0 is installed, and training needs .*; run pip install '{package}<"
    ):
        overrides.check_versions()


@pytest.fixture
def another_trl(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed TRL that lacks what training imports of it."""
    true = overrides.version
    monkeypatch.setattr(overrides, "version", lambda name: "1.15.0" if name == "trl" else true(name))
    monkeypatch.setitem(sys.modules, "trl", None)
    for name in [
        name for name in sys.modules if name.startswith("notewriter.training.") and name != overrides.__name__
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError):
        importlib.import_module("notewriter.training.dpo")


@pytest.mark.usefixtures("another_trl")
@pytest.mark.parametrize(
    "door", sorted((Path(__file__).parents[2] / "training").glob("*.py")), ids=lambda door: door.name
)
def test_it_is_named_before_it_is_imported(
    door: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(door), "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(door), run_name="__main__")
    assert stopped.value.code == 2
    assert "trl: 1.15.0 is installed, and training needs" in capsys.readouterr().err


@pytest.mark.usefixtures("another_trl")
@pytest.mark.parametrize("command", ["preflight", "train", "merge"])
def test_and_by_each_command(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["notewriter", command, "--help"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "trl: 1.15.0 is installed" in capsys.readouterr().err


def test_a_method_that_the_library_no_longer_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeteredDPOTrainer, "_compute_gone", lambda self: None, raising=False)
    with pytest.raises(UserError, match="DPOTrainer has no _compute_gone, which training overrides"):
        overrides.check_methods(MeteredDPOTrainer)
