"""The checkpoints of a training run, served and evaluated one after another."""

import contextlib
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import tiny_world, write_config

from notewriter.artifacts.best_checkpoint import BestCheckpoint, Scored
from notewriter.artifacts.metrics import Interval, read_metrics
from notewriter.evaluation import checkpoints, evaluate
from notewriter.evaluation.catalogue import METRICS
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.models import servers
from notewriter.models.roles import ModelArguments
from notewriter.results.checkpoints import curves, draw
from notewriter.results.report import write_report

KNOWN = {"checkpoint-2": 1, "checkpoint-4": 4, "checkpoint-10": 4}
"""How many of the six questions each checkpoint answers rightly."""

HISTORY = [
    {"step": 2, "loss": 0.7, "rewards/margins": 0.0},
    {"step": 4, "loss": 0.4, "rewards/margins": 0.9},
    {"step": 4, "eval_loss": 0.6, "eval_rewards/margins": 0.3},
    {"step": 10, "loss": float("nan"), "rewards/margins": -0.2},
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), 6)


@pytest.fixture
def training_run(tiny_model, tmp_path):
    """A run with three checkpoints, and a fourth that was still being written."""
    for name in KNOWN:
        shutil.copytree(tiny_model, tmp_path / "run" / name)
        (tmp_path / "run" / name / "trainer_state.json").write_text(json.dumps({"log_history": HISTORY}))
    (tmp_path / "run/checkpoint-12").mkdir()
    return tmp_path / "run"


@pytest.fixture
def served(world, monkeypatch):
    """Serves a checkpoint by a stand-in; lists the names of those that were served, and of how many at once."""
    golds = {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}

    def reply(request):
        question = request["messages"][0]["content"].rpartition("Question: ")[2]
        known = sorted(golds)[: KNOWN[request["model"]]]
        return golds[question] if question in known else "nobody knows"

    calls, running = [], []
    with fake_endpoint(reply) as endpoint:

        @contextlib.contextmanager
        def serve(path, options, **_):
            running.append(path)
            calls.append((options["served_model_name"], len(running)))
            endpoint.model = options["served_model_name"]
            endpoint.adapters = [module.split("=")[0] for module in options.get("lora_modules", [])]
            yield SimpleNamespace(base_url=endpoint.base_url, ensure_alive=lambda: None)
            running.remove(path)

        monkeypatch.setattr(servers, "serve", serve)
        yield calls


@pytest.fixture
def run(world, training_run, tmp_path):
    def evaluate_checkpoints(**changes):
        options = {
            **world,
            "method": "deepnote",
            "method_options": {"max_step": 1, "max_failure": 1},
            "checkpoints": str(training_run),
            "output_dir": str(tmp_path / "scores"),
            "cache": str(tmp_path / "cache.sqlite"),
        } | changes
        evaluate.main(write_config(tmp_path / "evaluate.yaml", options))
        return tmp_path / "scores"

    return evaluate_checkpoints


def test_each_checkpoint_is_evaluated_and_the_earliest_of_the_best_is_named(run, served, training_run, capsys):
    folder = run()

    assert served == [("checkpoint-2", 1), ("checkpoint-4", 1), ("checkpoint-10", 1)]
    best = json.loads((folder / "best_checkpoint.json").read_text())
    assert best["schema"] == "notewriter/best_checkpoint/1"
    assert (best["checkpoint"], best["step"], best["metric"]) == (str(training_run / "checkpoint-4"), 4, "f1")
    assert [each["step"] for each in best["checkpoints"]] == [2, 4, 10]
    for each in best["checkpoints"]:
        metrics = read_metrics(folder / f"checkpoint-{each['step']}" / "metrics.json")
        assert metrics.name == f"scores-{each['step']}"
        assert each["score"]["mean"] == metrics.metrics["f1"].mean
    assert best["score"]["low"] < best["score"]["mean"] < best["score"]["high"]
    assert f"best by f1: {training_run / 'checkpoint-4'}, 0.667 [" in capsys.readouterr().out


def test_a_second_run_serves_only_new_checkpoints(run, served, training_run):
    shutil.move(training_run / "checkpoint-10", training_run / "later")
    run()
    served.clear()
    shutil.move(training_run / "later", training_run / "checkpoint-10")

    folder = run(best_by="em")

    assert served == [("checkpoint-10", 1)]
    best = json.loads((folder / "best_checkpoint.json").read_text())
    assert (best["metric"], best["step"], len(best["checkpoints"])) == ("em", 4, 3)


def test_the_best_by_a_score_of_which_less_is_better_has_the_lowest(run, served, monkeypatch):
    monkeypatch.setitem(METRICS, "em", replace(METRICS["em"], better="lower"))
    best = json.loads((run(best_by="em") / "best_checkpoint.json").read_text())
    assert (best["metric"], best["step"]) == ("em", 2)


def test_curves_show_score_loss_and_margin_against_steps(run, served):
    svg = ElementTree.fromstring(curves(run()))

    name = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in svg.iter(f"{name}text")]
    shown = [text for text in texts if text in ("f1, 95% interval", "Loss", "Reward margin", "training", "evaluation")]
    assert shown == ["f1, 95% interval", "Loss", "training", "evaluation", "Reward margin", "training", "evaluation"]
    lines = [(line.get("class"), len(line.get("points").split())) for line in svg.iter(f"{name}polyline")]
    # Three scores; two losses that are numbers, one of an evaluation; three margins and one.
    assert lines == [("curve c0", 3), ("curve c0", 2), ("curve c1", 1), ("curve c0", 3), ("curve c1", 1)]
    ringed = [dot for dot in svg.iter(f"{name}g") if dot.find(f"{name}circle[@class='ring']") is not None]
    assert [dot.find(f"{name}title").text.partition(":")[0] for dot in ringed] == ["step 4"]


def test_the_report_of_the_folder_shows_each_checkpoint_and_the_curves(run, served, tmp_path):
    sections = {each.id: each for each in write_report([run()], tmp_path / "report.html")}
    assert sections["scores"].parts[0][1] == ["", "scores-2", "scores-4", "scores-10"]
    assert sections["checkpoints-0"].title.endswith("the best is checkpoint-4, 0.667 [0.333, 1.000]")
    assert "Reward margin" in (tmp_path / "report.html").read_text()


@pytest.fixture
def adapters(training_run, tiny_model):
    """The checkpoints as LoRA adapters of one base."""
    for name in KNOWN:
        folder = training_run / name
        (folder / "config.json").unlink()
        for weights in folder.glob("*.safetensors"):
            weights.unlink()
        settings = {"base_model_name_or_path": str(tiny_model), "r": 8, "peft_type": "LORA"}
        (folder / "adapter_config.json").write_text(json.dumps(settings))
        (folder / "adapter_model.safetensors").write_bytes(name.encode())


def test_adapters_of_one_base_share_a_server(run, served, adapters, training_run, monkeypatch):
    modules = []
    serve = servers.serve

    def remember(path, options, **rest):
        modules.extend(options["lora_modules"])
        assert (options["max_loras"], options["max_cpu_loras"]) == (1, 3)
        return serve(path, options, **rest)

    monkeypatch.setattr(servers, "serve", remember)
    folder = run()

    assert len(served) == 1
    assert modules == [f"{name}={training_run / name}" for name in KNOWN]
    best = json.loads((folder / "best_checkpoint.json").read_text())
    assert (best["step"], [each["score"]["mean"] > 0.5 for each in best["checkpoints"]]) == (4, [False, True, True])
    served.clear()
    run()
    assert served == []


def test_values_outside_the_axes_are_never_drawn():
    scored = [Scored("a", 3, Interval(0.2, 0.1, 0.3)), Scored("b", 7, Interval(0.9, 0.8, 1.0))]
    history = [{"step": step, "rewards/margins": value} for step, value in ((1, -3.7), (7, 12.4))]

    svg = ElementTree.fromstring(draw(BestCheckpoint("f1", "b", 7, scored[1].score, scored), history))

    name = "{http://www.w3.org/2000/svg}"
    for panel in svg.findall(f"{name}g"):
        grid = [line for line in panel.findall(f"{name}line") if line.get("class") == "grid"]
        rows, columns = (
            {float(line.get(key)) for line in grid for key in keys} for keys in (("y1", "y2"), ("x1", "x2"))
        )
        for line in panel.iter(f"{name}polyline"):
            for x, y in (map(float, point.split(",")) for point in line.get("points").split()):
                assert min(columns) <= x <= max(columns)
                assert min(rows) <= y <= max(rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"serve": "models/x"}, "^both checkpoints and serve are set; give only one of them"),
        ({"models": {"policy": {"serve": "x"}}}, "^both checkpoints and models: policy are set"),
        ({"checkpoints": "nowhere"}, "^nowhere: has no complete checkpoint"),
        ({"best_by": "rouge"}, "^best_by: 'rouge' is not a score of every checkpoint; choose one of: em, f1"),
    ],
)
def test_mistakes_are_told(run, served, changes, message):
    with pytest.raises(UserError, match=message):
        run(**changes)


def test_a_folder_that_names_no_step_is_no_checkpoint(training_run):
    found = checkpoints.find(training_run, ModelArguments())
    shutil.move(training_run / "checkpoint-4", training_run / "checkpoint-last")
    assert checkpoints.find(training_run, ModelArguments()).keys() == found.keys() - {4}
