"""Servers between the cells of a table: kept while the next cell asks the same models."""

import contextlib
from dataclasses import replace

import pytest

from notewriter.experiments.tables import running
from notewriter.ground.errors import UserError
from notewriter.models.roles import ModelArguments

MODELS = ModelArguments(base_url="http://node7:8000/v1", model="m", served="models/first")


@pytest.mark.parametrize(
    ("change", "started"),
    [({"temperature": 0.7}, 1), ({"model": "n"}, 2), ({"served": "models/second"}, 2)],
)
def test_other_models_are_started_and_other_sampling_is_not(change, started, tmp_path, monkeypatch):
    """The same name at the same address may be another checkpoint by now."""
    calls = []

    @contextlib.contextmanager
    def served_models(models, log_dir):
        calls.append(models)
        yield {}

    monkeypatch.setattr(running, "served_models", served_models)
    with contextlib.closing(running.KeptServers(tmp_path)) as servers:
        for models in (MODELS, replace(MODELS, **change)):
            with servers(models, tmp_path):
                pass
    assert len(calls) == started


def test_a_server_that_does_not_start_is_tried_once_for_all_cells_that_need_it(tmp_path, monkeypatch):
    calls = []

    @contextlib.contextmanager
    def served_models(models, log_dir):
        calls.append(models)
        raise UserError("the server did not start")
        yield {}

    monkeypatch.setattr(running, "served_models", served_models)
    with contextlib.closing(running.KeptServers(tmp_path)) as servers:
        for _ in range(2):
            with pytest.raises(UserError, match="did not start"), servers(MODELS, tmp_path):
                pass
    assert len(calls) == 1
