"""Training starts with the releases that it overrides methods of, and says which one is another."""

import pytest

from notewriter.ground.errors import UserError
from notewriter.training import contract
from notewriter.training.run.trainers import MeteredDPOTrainer, MeteredKTOTrainer, MeteredSFTTrainer


def test_the_installed_releases_pass() -> None:
    contract.check_versions()
    for trainer in (MeteredDPOTrainer, MeteredKTOTrainer, MeteredSFTTrainer):
        contract.check_methods(trainer)


@pytest.mark.parametrize("package", contract.OVERRIDDEN)
def test_another_release_is_named_with_the_remedy(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = contract.version
    monkeypatch.setattr(contract, "version", lambda name: "99.0" if name == package else true(name))
    with pytest.raises(
        UserError, match=rf"{package}: 99\.0 is installed, and training needs .*; run pip install '{package}<"
    ):
        contract.check_versions()


def test_a_method_that_the_library_no_longer_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeteredDPOTrainer, "_compute_gone", lambda self: None, raising=False)
    with pytest.raises(UserError, match="DPOTrainer has no _compute_gone, which training overrides"):
        contract.check_methods(MeteredDPOTrainer)
