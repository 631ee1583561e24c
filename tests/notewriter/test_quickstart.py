"""The quickstart: commands in sequence, and one server for the two that use the base model."""

import contextlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from notewriter import quickstart
from notewriter.errors import UserError
from notewriter.quickstart import CONFIGS, Stage, main

WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print('wrote', pathlib.Path(sys.argv[1]).name)"


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


class StandIn:
    """A fake server that records events in order."""

    def __init__(self):
        self.events = []

    @contextlib.contextmanager
    def serve(self, model, options, *, log, port):
        self.events.append(("served", model, options["served_model_name"], port))
        try:
            yield self
        finally:
            self.events.append("stopped")

    def ensure_alive(self):
        self.events.append("looked after")


@pytest.fixture
def server(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setattr(quickstart, "serve", stand_in.serve)
    monkeypatch.setattr(quickstart, "free_ports", lambda count: [8123])
    run = quickstart._run

    def told(stage, log, server):
        stand_in.events.append(stage.title)
        return run(stage, log, server)

    monkeypatch.setattr(quickstart, "_run", told)
    return stand_in


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Four small stages in place of the ten; the second and the third use the server."""
    files = [tmp_path / name for name in ("model", "pairs", "before", "checkpoint")]
    small = [
        Stage(file.name, python(WRITE, file), served_until=file if file.name in {"pairs", "before"} else None)
        for file in files
    ]
    monkeypatch.setattr(quickstart, "stages", lambda output, model, base_url: small)
    return small


def run(tmp_path):
    main(["--output_dir", str(tmp_path / "run"), "--model_dir", "models/tiny"])


SERVED = ("served", "models/tiny", "tiny", 8123)


def test_one_server_is_there_for_the_stages_that_ask_it_and_gone_before_training(tmp_path, plan, server, capsys):
    run(tmp_path)
    assert server.events == ["model", SERVED, "pairs", "before", "stopped", "checkpoint"]
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("[ 2/4] pairs ")
    assert shown[1].endswith("wrote pairs")
    assert shown[-1].startswith(f"report: {tmp_path / 'run' / 'report.html'}")


@pytest.mark.parametrize(
    ("finished", "events"),
    [
        (["pairs"], ["model", "pairs", SERVED, "before", "stopped", "checkpoint"]),
        (["pairs", "before"], ["model", "pairs", "before", "checkpoint"]),
    ],
)
def test_a_server_is_started_only_for_what_is_not_finished(tmp_path, plan, server, finished, events):
    for name in finished:
        (tmp_path / name).touch()
    run(tmp_path)
    assert server.events == events


def test_a_server_that_dies_while_it_is_asked_is_started_again(tmp_path, plan, server, monkeypatch):
    monkeypatch.setattr(quickstart, "POLL", 0.05)
    plan[1] = Stage("pairs", python("import time; time.sleep(0.5)"), served_until=tmp_path / "pairs")
    run(tmp_path)
    assert "looked after" in server.events


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('error: no space', file=sys.stderr); sys.exit(2)", "pairs: no space"),
        ("import sys; sys.exit(3)", "pairs: exited with code 3"),
    ],
)
def test_a_stage_that_fails_is_named_with_its_reason_and_log_and_leaves_no_server(
    tmp_path, plan, server, code, message
):
    plan[1] = Stage("pairs", python(code), served_until=tmp_path / "pairs")
    with pytest.raises(UserError) as caught:
        run(tmp_path)
    log = tmp_path / "run" / "logs" / "02-pairs.log"
    assert str(caught.value) == f"{message} (log: {log}); run the same command again to resume"
    assert server.events[-1] == "stopped"


def test_a_server_that_cannot_be_kept_alive_ends_the_stage_at_once(tmp_path, plan, server, monkeypatch):
    monkeypatch.setattr(quickstart, "POLL", 0.05)
    process = tmp_path / "process"
    code = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    plan[1] = Stage("pairs", python(code, process), served_until=tmp_path / "pairs")

    def give_up():
        if process.exists() and process.read_text():
            raise UserError("the vLLM server died 4 times")

    monkeypatch.setattr(server, "ensure_alive", give_up)
    with pytest.raises(UserError, match="died 4 times"):
        run(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process.read_text()), 0)


def test_each_log_begins_with_the_command_to_paste(tmp_path, plan, server):
    run(tmp_path)
    line = (tmp_path / "run" / "logs" / "02-pairs.log").read_text().splitlines()[0]
    assert shlex.split(line) == plan[1].command
    (tmp_path / "pairs").unlink()
    subprocess.run(line, shell=True, check=True)
    assert (tmp_path / "pairs").exists()


def test_the_stages_that_ask_stand_together_and_name_what_they_write():
    plan = quickstart.stages("out", "models/tiny", "http://127.0.0.1:1/v1")
    asking = [number for number, stage in enumerate(plan) if stage.served_until]
    assert asking == list(range(asking[0], asking[0] + 2))
    for number in asking:
        command = plan[number].command
        assert command[command.index("--base_url") + 1] == "http://127.0.0.1:1/v1"
        assert command[command.index("--model") + 1] == "tiny"
        assert command[command.index("--output_dir") + 1] == str(plan[number].served_until.parent)


def test_the_base_model_and_the_trained_one_are_served_and_asked_alike():
    data, evaluation = (yaml.safe_load((CONFIGS / kind / "quickstart.yaml").read_text()) for kind in ("data", "eval"))
    assert data["serve_options"] == evaluation["serve_options"]
    assert "dtype" not in data["serve_options"]
    assert data["stage_sampling"] == evaluation["stage_sampling"]
    assert Path(quickstart.stages("o", "m", "u")[-3].command[3]).samefile(CONFIGS / "eval" / "quickstart.yaml")
