"""A pipeline on this machine: commands in sequence, and one server for neighbours that ask the same model."""

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from metrics_file import write_metrics

from notewriter.experiments import here, pipeline, slurm
from notewriter.experiments.here import run_here
from notewriter.experiments.run import Needs, Pipeline, PipelineRun
from notewriter.ground.errors import UserError
from notewriter.models import servers

WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print('wrote', pathlib.Path(sys.argv[1]).name)"


def python(code, *arguments):
    return shlex.join([sys.executable, "-c", code, *map(str, arguments)])


class StandIn:
    """A fake server that records events in order."""

    def __init__(self):
        self.events = []
        self.base_url = "http://127.0.0.1:8123/v1"

    @contextlib.contextmanager
    def serve(self, model, options, **_):
        self.events.append(("served", model, options["served_model_name"]))
        try:
            yield self
        finally:
            self.events.append("stopped")

    def ensure_alive(self):
        self.events.append("looked after")


@pytest.fixture
def server(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setattr(servers, "serve", stand_in.serve)
    run = here._run

    def noted(each, *arguments):
        stand_in.events.append(each.title)
        return run(each, *arguments)

    monkeypatch.setattr(here, "_run", noted)
    return stand_in


@pytest.fixture
def plan(tmp_path):
    """Four small runs; the second and the third ask the same model."""
    files = [tmp_path / name for name in ("model", "pairs", "before", "checkpoint")]
    return [
        PipelineRun(
            file.name,
            python(WRITE, file),
            result=str(file),
            serve="models/tiny" if file.name in {"pairs", "before"} else None,
        )
        for file in files
    ]


def run(tmp_path, plan):
    run_here(Pipeline(str(tmp_path / "run"), plan, report="report.html"))


SERVED = ("served", "models/tiny", "tiny")


def test_one_server_is_there_for_the_runs_that_ask_it_and_gone_before_training(tmp_path, plan, server, capsys):
    run(tmp_path, plan)
    assert server.events == ["model", SERVED, "pairs", "before", "stopped", "checkpoint"]
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("[ 2/4] pairs ")
    assert shown[1].endswith("wrote pairs")
    assert shown[-1].startswith("report: report.html ")


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
    run(tmp_path, plan)
    assert server.events == events


def test_a_finished_run_may_still_start_a_server_of_its_own_but_asks_none_that_does_not_run(tmp_path, plan, server):
    (tmp_path / "before").touch()
    run(tmp_path, plan)
    command = (tmp_path / "run" / "logs" / "03-before.log").read_text().splitlines()[0]
    assert shlex.split(command) == [*plan[2].argv(), "--serve", "models/tiny"]


def test_a_server_that_dies_while_it_is_asked_is_started_again(tmp_path, plan, server, monkeypatch):
    monkeypatch.setattr(here, "POLL", 0.05)
    plan[1] = PipelineRun("pairs", python("import time; time.sleep(0.5)"), serve="models/tiny")
    run(tmp_path, plan)
    assert "looked after" in server.events


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; print('error: no space', file=sys.stderr); sys.exit(2)", "pairs: no space"),
        ("import sys; sys.exit(3)", "pairs: exited with code 3"),
    ],
)
def test_a_run_that_fails_is_named_with_its_reason_and_log_and_leaves_no_server(tmp_path, plan, server, code, message):
    plan[1] = PipelineRun("pairs", python(code), serve="models/tiny")
    with pytest.raises(UserError) as caught:
        run(tmp_path, plan)
    log = tmp_path / "run" / "logs" / "02-pairs.log"
    assert str(caught.value) == f"{message} (log: {log}); run the same command again to resume"
    assert server.events[-1] == "stopped"


def test_a_server_that_cannot_be_kept_alive_ends_the_run_at_once(tmp_path, plan, server, monkeypatch):
    monkeypatch.setattr(here, "POLL", 0.05)
    process = tmp_path / "process"
    code = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    plan[1] = PipelineRun("pairs", python(code, process), serve="models/tiny")

    def give_up():
        if process.exists() and process.read_text():
            raise UserError("the vLLM server died 4 times")

    monkeypatch.setattr(server, "ensure_alive", give_up)
    with pytest.raises(UserError, match="died 4 times"):
        run(tmp_path, plan)
    with pytest.raises(ProcessLookupError):
        os.kill(int(process.read_text()), 0)


def test_an_interrupted_run_ends_by_itself_and_so_does_what_it_started(tmp_path, plan, server, monkeypatch):
    """As `accelerate launch` does with one process, the run does not pass the signal on to its child."""
    stopped, started = tmp_path / "stopped", tmp_path / "started"
    code = """
        import pathlib, signal, subprocess, sys, time
        stopped, started = map(pathlib.Path, sys.argv[1:])
        def end(*_):
            time.sleep(0.2)
            stopped.touch()
            sys.exit()
        signal.signal(signal.SIGTERM, end)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        started.write_text(str(child.pid))
        time.sleep(60)
    """
    plan[0] = PipelineRun("model", python(textwrap.dedent(code), stopped, started))

    def interrupted(process, *_):
        while not (started.exists() and started.read_text()):
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(here, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan)
    assert stopped.exists()
    assert not psutil.pid_exists(int(started.read_text()))


def test_a_run_that_an_interrupt_has_ended_already_is_no_error(tmp_path, plan, server, monkeypatch):
    plan[0] = PipelineRun("model", python("pass"))

    def interrupted(process, *_):
        process.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(here, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan)


def test_each_log_begins_with_the_command_to_paste(tmp_path, plan, server):
    run(tmp_path, plan)
    line = (tmp_path / "run" / "logs" / "02-pairs.log").read_text().splitlines()[0]
    assert shlex.split(line) == [*plan[1].argv(), "--serve", "models/tiny"]
    (tmp_path / "pairs").unlink()
    subprocess.run(line, shell=True, check=True)
    assert (tmp_path / "pairs").exists()


def test_a_command_finds_the_shared_server_in_its_environment(tmp_path, plan, server):
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['NOTEWRITER_SERVERS'])"
    plan[1] = PipelineRun("pairs", python(code, tmp_path / "found"), serve="models/tiny")
    run(tmp_path, plan)
    (announced,) = json.loads((tmp_path / "found").read_text())["running"].values()
    assert announced == {"name": "tiny", "base_url": "http://127.0.0.1:8123/v1"}


def test_a_run_that_has_its_model_to_itself_starts_its_own_server(tmp_path, plan, server):
    plan[2] = PipelineRun("before", plan[2].command, result=plan[2].result, serve="models/other")
    run(tmp_path, plan)
    assert server.events == [run.title for run in plan]
    assert plan[1].command_line()[-2:] == ["--serve", "models/tiny"]


def test_replicas_that_are_no_number_are_named_before_a_run_runs(tmp_path, plan, server):
    plan[1] = PipelineRun("pairs", f"{plan[1].command} --replicas two", serve="models/tiny")
    with pytest.raises(UserError, match=r"^pairs: --replicas must be int, not 'two'; correct it"):
        run(tmp_path, plan)
    assert server.events == []


@pytest.mark.parametrize(("gpus", "chosen", "seen"), [(1, None, "0"), (1, "3", "3"), (8, None, "all"), (8, "3", "3")])
def test_a_training_on_one_gpu_sees_one(tmp_path, server, monkeypatch, gpus, chosen, seen):
    """A process that sees several would train on all of them at once, which TRL refuses."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    show = python(
        "import os, sys; open(sys.argv[1], 'w').write(os.getenv('CUDA_VISIBLE_DEVICES', 'all'))", tmp_path / "f"
    )
    monkeypatch.setattr(here, "training_of", lambda argv: ("single.yaml", argv))
    run(tmp_path, [PipelineRun("train", show, needs=Needs(gpus=gpus))])
    assert (tmp_path / "f").read_text() == seen


MEET = """
import pathlib, sys, time
mine, other, done = map(pathlib.Path, sys.argv[1:])
mine.touch()
while not other.exists():
    time.sleep(0.02)
time.sleep(0.2)
done.touch()
"""


def side_by_side(tmp_path, *plan, at_once=2):
    run_here(Pipeline(str(tmp_path / "run"), [*plan]), at_once)


def test_runs_that_do_not_come_after_each_other_go_on_side_by_side(tmp_path, server, capsys):
    """Each of the first two ends when the other has begun; the third finds what the first leaves at its end."""
    one, two, done, three = (tmp_path / name for name in ("one", "two", "done", "three"))
    side_by_side(
        tmp_path,
        PipelineRun("one", python(MEET, one, two, done), after=[]),
        PipelineRun("two", python(MEET, two, one, tmp_path / "other"), after=[]),
        PipelineRun("three", python(f"{WRITE}; assert pathlib.Path(sys.argv[2]).exists()", three, done), after=["one"]),
    )
    shown = capsys.readouterr().out.splitlines()
    # In the order in which they end: the third may be sooner than the second.
    ended = [line.split()[2] for line in shown[:3]]
    assert sorted(ended) == ["one", "three", "two"] and ended.index("one") < ended.index("three")
    assert shown[2].startswith("[ 3/3] ")
    assert shown[4] == "wrote three"


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_run_that_its_rule_ends_is_skipped_with_the_reason_and_those_after_it_go_on(
    tmp_path, server, capsys, at_once
):
    """What the last run printed that was done stands at the end."""
    rule = ["f1"]
    for number, score in enumerate((0.2, 0.1)):
        (tmp_path / str(number)).mkdir()
        write_metrics(tmp_path / str(number) / "metrics.json", metrics={"f1": {"mean": score, "low": 0, "high": 1}})
        rule.append(str(tmp_path / str(number)))
    round_two = PipelineRun("round 2", python(WRITE, tmp_path / "two"), while_rising=":".join(rule))
    report = PipelineRun("report", python(WRITE, tmp_path / "report"))
    round_three = PipelineRun("round 3", python(WRITE, tmp_path / "three"), while_rising=":".join(rule))
    side_by_side(tmp_path, round_two, report, round_three, at_once=at_once)
    skipped, _, _, _, last, *_ = capsys.readouterr().out.splitlines()
    assert skipped == f"[ 1/3] {'round 2':28}  skipped: round 1 did not raise f1 above 0.200 (0.100)"
    assert last == "wrote report"
    assert not (tmp_path / "two").exists() and not (tmp_path / "three").exists()


def test_no_more_run_side_by_side_than_are_allowed(tmp_path, server):
    (tmp_path / "at_work").mkdir()
    code = """
        import os, sys, tempfile, time
        with tempfile.NamedTemporaryFile(dir=sys.argv[1]):
            time.sleep(0.3)
            assert len(os.listdir(sys.argv[1])) <= 2
    """
    runs = [PipelineRun(name, python(textwrap.dedent(code), tmp_path / "at_work"), after=[]) for name in "abcd"]
    side_by_side(tmp_path, *runs, at_once=2)


def test_a_run_that_fails_ends_those_after_it_and_no_others(tmp_path, server, capsys):
    failing = PipelineRun("one", python("import sys; print('error: no space', file=sys.stderr); sys.exit(2)"), after=[])
    other = PipelineRun("three", python(WRITE, tmp_path / "three"), after=[])
    with pytest.raises(UserError) as caught:
        side_by_side(tmp_path, failing, PipelineRun("two", python(WRITE, tmp_path / "two")), other)
    assert str(caught.value).startswith("one: no space (log: ")
    assert str(caught.value).endswith("; 1 more were not started")
    assert (tmp_path / "three").exists() and not (tmp_path / "two").exists()


def test_a_run_that_fails_ends_none_that_only_shares_its_server(tmp_path, server, capsys):
    exists = "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())"
    plan = [
        PipelineRun("model", python(WRITE, tmp_path / "model")),
        PipelineRun("before", python("import sys; sys.exit('error: no space')"), serve="models/tiny", after=["model"]),
        PipelineRun("after", python(exists, tmp_path / "model"), serve="models/tiny", after=["model"]),
        PipelineRun("compared", python("pass"), after=["before", "after"]),
    ]
    with pytest.raises(UserError) as caught:
        side_by_side(tmp_path, *plan)
    assert str(caught.value).startswith("before: no space (log: ")
    assert str(caught.value).endswith("; 1 more were not started")
    assert "after" in server.events and "compared" not in server.events
    assert [event for event in server.events if event == "stopped"] == ["stopped"]
    assert "] after " in capsys.readouterr().out


def test_servers_of_runs_side_by_side_divide_the_gpu(tmp_path, server, monkeypatch):
    monkeypatch.setattr(here, "runs_on_cpu", lambda: False)
    shares = []
    serve = server.serve
    monkeypatch.setattr(
        servers, "serve", lambda model, options, **others: shares.append(options) or serve(model, options, **others)
    )
    runs = [PipelineRun(name, python("pass"), serve=f"models/{name}", after=[]) for name in ("one", "two")]
    side_by_side(tmp_path, *runs)
    assert [each["gpu_memory_utilization"] for each in shares] == [0.46, 0.46]


def test_an_interrupt_ends_all_runs_side_by_side(tmp_path, server, monkeypatch):
    monkeypatch.setattr(here, "POLL", 0.05)
    code = """
        import os, pathlib, sys, time
        started = pathlib.Path(sys.argv[1])
        started.write_text(str(os.getpid()))
        time.sleep(10)
        started.with_suffix(".ended").touch()
    """
    started = [tmp_path / "one", tmp_path / "two"]

    def interrupted(*_, **__):
        while not all(file.exists() and file.read_text() for file in started):
            time.sleep(0.02)
        raise KeyboardInterrupt

    monkeypatch.setattr(here, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        side_by_side(
            tmp_path, *(PipelineRun(file.name, python(textwrap.dedent(code), file), after=[]) for file in started)
        )
    assert not [*tmp_path.glob("*.ended")]
    assert not any(psutil.pid_exists(int(file.read_text())) for file in started)


class Terminal(io.StringIO):
    def isatty(self):
        return True


BARS = """
import sys, time
for done in range(4):
    print(f"step {done}/3 | \x1b[31mloss 0.{done}", end="\\r", file=sys.stderr, flush=True)
    time.sleep(0.3)
print("trained")
"""


def test_a_terminal_shows_the_log_and_the_bar_of_the_run_at_work_and_then_its_line_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(here, "SHOW", 0.1)
    monkeypatch.setattr(sys, "stdout", Terminal())
    pipeline = Pipeline(str(tmp_path / "mine"), [PipelineRun("train", python(BARS))])
    run_here(pipeline)
    shown = sys.stdout.getvalue()
    (log,) = pipeline.logs.iterdir()
    title = f"[ 1/1] {'train':28}"
    assert shown.startswith(f"{title}\n     {log}\n\r\x1b[K     ")
    bars = [line for line in shown.split("\r\x1b[K") if line.startswith("     step")]
    assert bars and {f"     step 3/3 | {chr(92)}x1b[31mloss 0.3"} <= {*bars}
    assert f"\r\x1b[K\x1b[1A\x1b[K\x1b[1A\r{title}" in shown
    assert shown.rpartition(title)[2].lstrip("0123456789 ").startswith("s  trained\n")


def test_the_last_line_of_a_log_is_the_last_state_of_its_bar(tmp_path):
    log = tmp_path / "log"
    log.write_text("command\nline\n 1%|\r 2%|\r\n\n")
    assert here.last_line(log) == " 2%|"
    log.write_text("")
    assert here.last_line(log) == ""
    log.write_bytes(b"\xff" * 10_000)
    assert len(here.last_line(log)) == here.END_OF_LOG


def test_a_cluster_decides_itself_how_many_run_side_by_side():
    with pytest.raises(UserError, match="at_once: is for this machine"):
        pipeline.main(["pipelines/quickstart", "--on", "slurm", "--at_once", "2"])


def test_a_run_without_a_result_is_finished_where_its_log_ends_well(tmp_path):
    runs = [PipelineRun("compare", python("print('better')")), PipelineRun("fail", python("print('worse'); exit(1)"))]
    pipeline = Pipeline(str(tmp_path / "run"), runs)
    with pytest.raises(UserError, match="fail: exited with code 1"):
        here.run_here(pipeline)
    assert {each.run.title: each.state for each in slurm.states(pipeline)} == {"compare": "finished", "fail": "ended"}
