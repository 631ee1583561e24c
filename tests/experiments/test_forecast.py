"""What a dry run of a pipeline says that it takes: marked runs are done, the others are counted and timed."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from notewriter.artifacts.run_record import ESTIMATE
from notewriter.experiments import forecast as forecasting
from notewriter.experiments.forecast import FOLDER, Speed
from notewriter.experiments.pipeline import main
from notewriter.ground.config import given
from notewriter.ground.errors import UserError

RUNS = [
    {
        "title": "read",
        "command": "notewriter corpus --path docs --output_dir {{ output_dir }}/corpus",
        "in_dry_run": True,
    },
    {"title": "fetch", "command": "notewriter fetch model you/Small-100M --output_dir {{ output_dir }}/small"},
    {
        "title": "label",
        "command": "notewriter pairs --output_dir {{ output_dir }}/pairs",
        "serve": "{{ output_dir }}/small",
    },
    {
        "title": "before",
        "command": "notewriter evaluate --output_dir {{ output_dir }}/before",
        "serve": "{{ output_dir }}/small",
    },
    {
        "title": "train",
        "command": "notewriter train dpo --accelerate cpu --model_name_or_path {{ output_dir }}/small "
        "--pairs {{ output_dir }}/pairs --output_dir {{ output_dir }}/tuned",
    },
    {
        "title": "after",
        "command": "notewriter evaluate --output_dir {{ output_dir }}/after",
        "serve": "{{ output_dir }}/tuned",
    },
    {"title": "show", "command": "notewriter compare"},
]

SPEED = Speed(training=1e10, reading=1e10, writing=1e9, start=3.0)


@pytest.fixture
def asked(monkeypatch):
    """The commands that were run, none of them for real; each says or leaves what the command of that name does."""
    commands = []

    def printed(argv):
        commands.append(argv)
        folder = Path(given(argv).get("output_dir") or "none")
        if argv[1:3] == ["fetch", "model"]:
            return "small: from the Hub\nto download: 270 MB in 9 files; free: 20 GB\n"
        if argv[1] == "preflight":
            return "  memory of a GPU: 5.7 GiB (...)\n  30,000 tokens, 14 optimizer steps, 2.40e+12 operations\n"
        if "--dry_run" in argv:
            folder.mkdir(parents=True)
            total = {"prompt_tokens": 40000, "completion_tokens": 1000}
            (folder / ESTIMATE).write_text(json.dumps({"questions": 9, "tokens_in_all": total, "money": 0.25}))
        return ""

    monkeypatch.setattr(forecasting, "_printed", printed)
    monkeypatch.setattr(forecasting, "probe", lambda: SPEED)
    return commands


def dry_run(tmp_path, capsys, runs):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"output_dir": str(tmp_path / "out"), "runs": runs}))
    main([str(path), "--dry_run", "true"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    return dict(line[2:].split(": ", 1) for line in lines)


def test_each_run_says_what_it_takes_and_the_last_line_the_sum(asked, tmp_path, capsys):
    said = dry_run(tmp_path, capsys, RUNS)
    assert said["fetch"] == "0.0 minutes, 0.3 GB, to download"
    # 2 x 1e8 x (40,000 / 1e10 + 1,000 / 1e9) = 1,000 s, with 2 x 3 s of a command and 19 x 3 s of the server.
    assert said["label"] == "17.7 minutes, 40,000 tokens to read and 1,000 to write"
    # The server is up.
    assert said["before"].startswith("16.8 minutes")
    # 240 s and 9 x 3 s; four times 1e8 float32 numbers.
    assert said["train"] == "4.5 minutes, 1.6 GB, 30,000 tokens in 14 steps, 5.7 GiB of memory"
    # Of a model that is not there, the size is that of the one before.
    assert said["after"].startswith("17.7 minutes")
    assert said["show"] == "0.1 minutes"
    minutes, _, rest = said["in all"].partition(" ")
    assert float(minutes) == pytest.approx(56.8, abs=0.1) and rest.startswith(
        "minutes, 1.9 GB; counted from the inputs"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_is_there_has_the_size_of_its_weights_however_they_are_stored(asked, tmp_path, capsys, dtype):
    model = tmp_path / "model"
    model.mkdir()
    save_file(
        {"a": torch.zeros(10_000, 500, dtype=dtype), "b": torch.zeros(3, dtype=dtype)}, model / "model.safetensors"
    )
    command = f"notewriter evaluate --output_dir {tmp_path}/before"
    said = dry_run(tmp_path, capsys, [RUNS[0], {"title": "before", "command": command, "serve": str(model)}])
    # 2 x 5e6 x (40,000 / 1e10 + 1,000 / 1e9) = 50 s, and 21 x 3 s.
    assert said["before"].startswith("1.9 minutes")


def test_an_adapter_has_the_size_of_its_base(asked, tmp_path, capsys):
    model = tmp_path / "adapter"
    model.mkdir()
    save_file({"a": torch.zeros(10, 5)}, model / "adapter_model.safetensors")
    (model / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "you/Small-5M", "peft_type": "LORA", "r": 8}'
    )
    command = f"notewriter evaluate --output_dir {tmp_path}/before"
    said = dry_run(tmp_path, capsys, [RUNS[0], {"title": "before", "command": command, "serve": str(model)}])
    assert said["before"].startswith("1.9 minutes")


def test_the_server_of_a_run_after_a_finished_one_has_to_start(asked, tmp_path, capsys):
    (tmp_path / "out/pairs").mkdir(parents=True)
    (tmp_path / "out/pairs/stats.json").write_text("{}")
    said = dry_run(tmp_path, capsys, RUNS)
    assert said["label"].endswith("finished") and said["before"].startswith("17.7 minutes")


def test_only_marked_runs_are_done_and_pairs_are_made_without_a_model_beside(asked, tmp_path, capsys):
    dry_run(tmp_path, capsys, RUNS)
    done = [argv for argv in asked if "--dry_run" not in argv]
    assert [argv[1] for argv in done] == ["corpus", "pairs", "preflight"]
    silent = given(done[1])
    assert json.loads(silent["models"]) == {"policy": {"control": "empty"}}
    assert silent["output_dir"] == str(tmp_path / "out" / FOLDER / "pairs")
    # By its name, since it is not there yet.
    assert given(done[2])["model_name_or_path"] == "you/Small-100M" and given(done[2])["pairs"] == silent["output_dir"]
    assert not (tmp_path / "out/pairs/train.parquet").exists()


def test_pairs_without_a_model_keep_the_other_players_of_the_command_line(asked, tmp_path, capsys):
    label = RUNS[2] | {"command": RUNS[2]["command"] + """ --models '{"judge":{"control":"lead"}}'"""}
    dry_run(tmp_path, capsys, [RUNS[0], label])
    (silent,) = (given(argv) for argv in asked if argv[1] == "pairs" and "--dry_run" not in argv)
    assert json.loads(silent["models"]) == {"judge": {"control": "lead"}, "policy": {"control": "empty"}}


def test_a_teacher_is_paid_and_its_time_is_that_of_its_tokens(asked, tmp_path, capsys):
    command = "notewriter pairs --base_url https://teacher.example/v1 --model large --output_dir {{ output_dir }}/pairs"
    said = dry_run(tmp_path, capsys, [RUNS[0], {"title": "label", "command": command}])
    assert said["label"] == "0.1 minutes, $0.25, 40,000 tokens to read and 1,000 to write"
    assert "$0.25" in said["in all"]
    assert "base_url" not in given(asked[-1])


def test_what_is_finished_takes_nothing(asked, tmp_path, capsys):
    (tmp_path / "out/corpus").mkdir(parents=True)
    (tmp_path / "out/corpus/manifest.json").write_text("{}")
    assert dry_run(tmp_path, capsys, RUNS)["read"] == "0.0 minutes, finished"
    assert "corpus" not in [argv[1] for argv in asked]


def test_a_program_of_somebody_else_is_no_training_of_ours(asked, tmp_path, capsys):
    programs = [{"title": title, "command": title} for title in ("./prepare.sh", "other train settings.yaml")]
    said = dry_run(tmp_path, capsys, [RUNS[0], *programs])
    assert said["./prepare.sh"] == said["other train settings.yaml"] == "0.1 minutes"


def test_a_file_without_marked_runs_prints_its_commands_and_runs_nothing(asked, tmp_path, capsys):
    assert dry_run(tmp_path, capsys, [{"title": "read: it", "command": "notewriter corpus"}]) == {"read": "it"}
    assert not asked


def test_a_marked_run_that_fails_ends_the_dry_run_with_its_reason(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(forecasting, "probe", lambda: SPEED)
    command = f"notewriter index --path {tmp_path}/none.jsonl --index {tmp_path}/index"
    with pytest.raises(UserError, match=r"notewriter index: .*none\.jsonl: cannot be read"):
        dry_run(tmp_path, capsys, [{"title": "index", "command": command, "in_dry_run": True}])
