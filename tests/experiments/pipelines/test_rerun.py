"""`notewriter lineage RUN --rerun FILE`: a pipeline that does a run again, with equal results."""

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_endpoint import fake_endpoint
from notewriter.experiments.pipelines.pipeline import Pipeline, read_pipeline
from notewriter.experiments.pipelines.rerun import rerun as rerun_of
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.artifacts import run_record
from notewriter.artifacts.run_record import Start, add_start
from notewriter.cli import COMMANDS
from notewriter.data import build_pairs
from notewriter.evaluation import evaluate, judge
from notewriter.experiments import lineage
from notewriter.ground.errors import UserError


def reply(request: dict[str, Any]) -> str:
    words = str(request["messages"][-1]["content"]).split()
    return "Yes" if "correct" in words else " ".join(words[-12:])


def rerun(folder: Path, file: Path, output: Path, *options: str) -> Pipeline:
    lineage.main([str(folder), "--rerun", str(file), *options])
    return read_pipeline(file, str(output))


def run_in_process(pipeline: Pipeline) -> None:
    for stage in pipeline.stages:
        _, name, *argv = stage.argv()
        importlib.import_module(COMMANDS[name][0]).main(argv)


def test_a_judged_evaluation_is_done_again_from_its_corpus_with_equal_results(tmp_path: Path) -> None:
    world = tiny_world(tmp_path / "a world", 4)
    with fake_endpoint(reply) as endpoint:
        evaluate.main(run_config(tmp_path, "before", world, endpoint, {"method": "deepnote"}))
        run = tmp_path / "before"
        judging = ["--base_url", endpoint.base_url, "--model", "fake", "--cache", str(tmp_path / "judge.sqlite")]
        judge.main(["--runs", str(run), *judging])
        asked = len(endpoint.requests)

        pipeline = rerun(run, tmp_path / "again.yaml", tmp_path / "new runs")
        assert [stage.title for stage in pipeline.stages] == ["index index", "evaluate before", "judge judged"]
        assert [stage.after for stage in pipeline.stages] == [[], ["index index"], ["evaluate before"]]
        run_in_process(pipeline)

        assert len(endpoint.requests) == 2 * asked
    again = tmp_path / "new runs" / "before"
    for name in ("predictions.jsonl", "judged/answer.jsonl"):
        records = [
            sorted((without_times(json.loads(line)) for line in (folder / name).read_text().splitlines()), key=str)
            for folder in (run, again)
        ]
        assert records[0] == records[1]
    scores = [json.loads((folder / "metrics.json").read_text())["metrics"] for folder in (run, again)]
    assert scores[0] == scores[1]
    assert yaml.safe_load((again / "config.yaml").read_text())["index"] == [str(tmp_path / "new runs" / "index")]
    assert all(stage.missing() == [] for stage in pipeline.stages if stage.result)


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if "seconds" not in key}


def test_pairs_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    world = tiny_world(tmp_path / "world", 4)
    with fake_endpoint(reply) as endpoint:
        build_pairs.main(run_config(tmp_path, "pairs", world, endpoint, DEEPNOTE_PAIRS))
        run_in_process(rerun(tmp_path / "pairs", tmp_path / "again.yaml", tmp_path / "new"))
    for name in ("train.parquet", "dev.parquet", "questions.sha256"):
        assert (tmp_path / "new/pairs" / name).read_bytes() == (tmp_path / "pairs" / name).read_bytes()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Pairs over an index, a training on them that a file configures, and an evaluation of one of its checkpoints."""
    (tmp_path / "dpo.yaml").write_text(yaml.safe_dump({"pairs": str(tmp_path / "pairs"), "beta": 0.1}))
    commands = {
        "index": ["notewriter", "index", "--path", "corpus.jsonl", "--index", str(tmp_path / "index")],
        "pairs": [
            *("notewriter", "pairs", "--retriever", json.dumps({"index": str(tmp_path / "index"), "weight": 1})),
            *(
                "--stages",
                '{"vanilla/answer": "metric"}',
                "--name",
                "a $5 run",
                "--output_dir",
                str(tmp_path / "pairs"),
            ),
        ],
        "dpo": [
            *("training/train_dpo.py", "--config", str(tmp_path / "dpo.yaml")),
            *("--output_dir", str(tmp_path / "dpo")),
        ],
        "after": [
            *("notewriter", "evaluate", "--serve", str(tmp_path / "dpo" / "checkpoint-2")),
            *("--index", str(tmp_path / "index"), "--output_dir", str(tmp_path / "after")),
        ],
    }
    for name, command in commands.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("cache: c\n" if name in ("pairs", "after") else "x: 1\n")
        record(tmp_path / name, command)
    (tmp_path / "dpo/checkpoint-2").mkdir()
    return tmp_path


def record(folder: Path, command: list[str], **hardware: int) -> None:
    inputs = run_record._config_file(command)
    start = Start(
        version="0", commit=None, packages={}, hardware=dict(hardware), seeds={}, inputs=inputs, command=command
    )
    add_start(folder, start)


def test_an_index_that_was_changed_after_it_was_built_is_refused(recorded: Path) -> None:
    record(recorded / "index", ["notewriter", "index", "--delete", "ids.txt", "--index", str(recorded / "index")])
    with pytest.raises(UserError, match=r"was changed by --add or --delete; repeat the commands in its run.json"):
        rerun(recorded / "after", recorded / "again.yaml", Path("runs/new"))


def test_every_stage_on_the_way_works_in_a_new_folder(recorded: Path) -> None:
    pipeline = rerun(recorded / "after", recorded / "again.yaml", Path("runs/new"))
    assert [(stage.title, stage.after) for stage in pipeline.stages] == [
        ("index index", []),
        ("pairs pairs", ["index index"]),
        ("training/train_dpo.py dpo", ["pairs pairs"]),
        ("evaluate after", ["training/train_dpo.py dpo", "index index"]),
    ]
    index, made, training, after = (stage.argv() for stage in pipeline.stages)
    assert index == ["notewriter", "index", "--path", "corpus.jsonl", "--index", "runs/new/index"]
    assert json.loads(made[made.index("--retriever") + 1]) == {"index": "runs/new/index", "weight": 1}
    assert made[made.index("--name") + 1] == "a $5 run"
    assert made[-2:] == ["--cache", "runs/new/cache.sqlite"]
    assert training[1:] == [
        *("--config", str(recorded / "dpo.yaml"), "--output_dir", "runs/new/dpo", "--pairs", "runs/new/pairs")
    ]
    assert pipeline.stages[2].launch and pipeline.stages[2].launch.endswith("configs/accelerate/cpu.yaml")
    assert after[:4] == ["notewriter", "evaluate", "--serve", "runs/new/dpo/checkpoint-2"]


def test_a_model_that_a_pipeline_served_is_served_again(recorded: Path) -> None:
    command = ["notewriter", "evaluate", "--base_url", "http://127.0.0.1:1/v1", "--model", "dpo", "--limit", "3"]
    command += ["--served", str(recorded / "dpo")]
    (recorded / "before").mkdir()
    start = run_record.start_of({}, {})
    add_start(recorded / "before", dataclasses.replace(start, command=command, inputs={}))
    pipeline = rerun(recorded / "before", recorded / "again.yaml", Path("new"))
    assert pipeline.stages[-1].serve == "new/dpo"
    assert pipeline.stages[-1].argv() == ["notewriter", "evaluate", "--limit", "3", "--output_dir", "new/before"]
    assert pipeline.stages[-1].after == ["training/train_dpo.py dpo"]


def test_data_that_is_mixed_in_is_made_again(recorded: Path) -> None:
    (recorded / "earlier").mkdir()
    record(recorded / "earlier", ["notewriter", "gold", "--output_dir", str(recorded / "earlier")])
    (recorded / "sft").mkdir()
    mix = json.dumps({str(recorded / "earlier"): 0.25})
    command = ["training/train_sft.py", "--mix", mix, "--output_dir", str(recorded / "sft")]
    record(recorded / "sft", command)
    earlier, sft = rerun(recorded / "sft", recorded / "again.yaml", Path("new")).stages
    assert (earlier.title, earlier.result) == ("gold earlier", "new/earlier/stats.json")
    assert sft.after == ["gold earlier"]
    assert json.loads(sft.argv()[2]) == {"new/earlier": 0.25}


def test_a_configuration_file_that_changed_since_is_named(recorded: Path) -> None:
    (recorded / "dpo.yaml").write_text("beta: 0.2\n")
    with pytest.raises(UserError, match=r"dpo\.yaml: is no longer what .*dpo was made with; restore the file"):
        rerun_of(recorded / "after")


def test_a_training_by_several_processes_needs_its_launch_configuration(recorded: Path) -> None:
    command = json.loads((recorded / "dpo/run.json").read_text())["starts"][0]["command"]
    record(recorded / "dpo", command, processes=8)
    with pytest.raises(UserError, match=r"dpo: was trained by 8 processes; add --launch FILE"):
        rerun_of(recorded / "after")
    pipeline = rerun(recorded / "after", recorded / "again.yaml", Path("new"), "--launch", "zero3.yaml")
    assert pipeline.stages[2].launch == "zero3.yaml"


def test_a_run_without_a_recorded_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"its command was not recorded"):
        rerun_of(tmp_path)
