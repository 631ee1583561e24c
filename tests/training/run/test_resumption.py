"""A run resumes in all of its processes from the checkpoint that the main process found, or in none."""

from pathlib import Path
from typing import Any

import pytest

from notewriter.ground.errors import UserError
from notewriter.training.run import resumption


def test_a_checkpoint_that_a_machine_does_not_see_ends_the_run_in_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer_state.json").touch()
    assert resumption.on_every_machine(tmp_path) == tmp_path
    assert resumption.on_every_machine(None) is None

    def gather(seen: list[Any]) -> list[Any]:
        return [*seen, False]

    monkeypatch.setattr(resumption, "gather_object", gather)
    with pytest.raises(UserError, match="is not there on every machine; the run's folder has to be one that all"):
        resumption.on_every_machine(tmp_path)
