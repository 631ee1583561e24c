"""Runs that do not train report to the trackers that accelerate knows; here to a stand-in, and to wandb offline."""

import json

import pytest
from accelerate import tracking as library
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.trackers import ID, run_id, tracking
from notewriter.data import build_pairs
from notewriter.evaluation import evaluate
from notewriter.ground.errors import UserError
from notewriter.rollouts import runner


@pytest.fixture
def logged(monkeypatch):
    """What a tracker named wandb gets: its project and options, and the figures."""
    entries = []

    class Tracker:
        name, requires_logging_directory = "wandb", False

        def __init__(self, project, **options):
            entries.append((project, options["name"]))

        def start(self):
            pass

        def store_init_configuration(self, values):
            entries.append(values)

        def log(self, values, step=None):
            entries.append((step, values))

        def finish(self):
            entries.append("finished")

    monkeypatch.setitem(library.LOGGER_TYPE_TO_CLASS, "wandb", Tracker)
    monkeypatch.setattr(library, "get_available_trackers", lambda: ["wandb"])
    return entries


@pytest.fixture
def world(tmp_path):
    return tiny_world(tmp_path / "world", 3)


def test_an_evaluation_reports_its_progress_and_its_scores(logged, world, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "INTERVAL_IN_LOG", 0.02)
    with fake_endpoint(delay=0.02) as endpoint:
        evaluate.main(run_config(tmp_path, "run", world, endpoint, {"report_to": ["wandb"], "method": "direct"}))
    started, settings, *figures, last, end = logged
    assert started == ("notewriter", "run") and end == "finished"
    assert settings["method"] == "direct" and "api_key" not in json.dumps(settings)
    assert figures[-1][0] == 3 and figures[-1][1].keys() == {"errors", "questions", "tokens_per_second"}
    metrics = read_metrics(tmp_path / "run/metrics.json")
    assert last[0] is None and last[1]["f1"] == metrics.metrics["f1"].mean and last[1]["calls"] == 1


def test_pairs_report_how_many_there_are_of_each_stage(logged, world, tmp_path):
    with fake_endpoint() as endpoint:
        build_pairs.main(run_config(tmp_path, "run", world, endpoint, DEEPNOTE_PAIRS | {"report_to": ["wandb"]}))
    step, figures = logged[-2]
    assert step == 3 and figures["questions"] == 3 and figures["deepnote/init_note"] >= 1


def test_a_tracker_that_fails_is_warned_of_once_and_the_run_goes_on(logged, tmp_path, monkeypatch, caplog):
    def fail(self, values, step=None):
        raise OSError("no route to host")

    monkeypatch.setattr(library.LOGGER_TYPE_TO_CLASS["wandb"], "log", fail)
    with tracking(["wandb"], tmp_path, {}) as track:
        track({"a": 1.0}, 1)
        track({"a": 2.0}, 2)
    assert caplog.text.count("report_to: wandb: gets no more figures (no route to host)") == 1


@pytest.mark.parametrize(
    ("name", "message"), [("weights", "there is no tracker 'weights'"), ("clearml", "the package of clearml is not")]
)
def test_a_tracker_that_cannot_be_is_named_before_the_run_begins(logged, tmp_path, name, message):
    with pytest.raises(UserError, match=f"report_to: {message}"), tracking([name], tmp_path, {}):
        pass


@pytest.mark.integration
def test_weights_and_biases_takes_it_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with tracking(["wandb"], tmp_path, {"dataset": "jsonl", "models": {}}) as track:
        track({"f1": 0.5}, 3)
    assert list(tmp_path.glob(f"wandb/offline-run-*-{run_id(tmp_path)}/*.wandb"))


def test_a_run_has_one_id_and_another_in_the_same_place_has_its_own(tmp_path):
    (folder := tmp_path / "run").mkdir()
    first = run_id(folder)
    assert run_id(folder) == first
    (folder / ID).unlink()
    assert run_id(folder) != first
