"""Submitting a pipeline, with stand-ins for Slurm's commands that keep a queue in a file."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from metrics_file import write_metrics

from notewriter.experiments import rising, slurm
from notewriter.experiments.here import ATTEMPT, last_error
from notewriter.experiments.rising import GO_ON
from notewriter.experiments.run import Needs, Pipeline, PipelineRun
from notewriter.ground.errors import UserError
from notewriter.ground.recipes import SLURM
from notewriter.training.profiles import PROFILES

TRAIN = "accelerate launch --config_file d.yaml train_dpo.py --lr 1"

# Job ids are 101, 102, ...; each job is pending until the test changes the queue.
SBATCH = """#!/bin/bash
[[ -z "$SBATCH_FAILS" ]] || { echo "sbatch: error: invalid partition $SBATCH_PARTITION" >&2; exit 1; }
job=$((101 + $(wc -l < "$FOLDER/calls")))
echo "$@" >> "$FOLDER/calls"
echo "$SBATCH_PARTITION, $GPUS_PER_NODE, $CLUSTER_ENV" >> "$FOLDER/settings"
echo "$job PENDING" >> "$FOLDER/queue"
echo "$job"
"""


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """The file with what squeue answers."""
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", '#!/bin/bash\ncat "$FOLDER/queue"\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("calls", "queue"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    return tmp_path / "queue"


@pytest.fixture
def cluster_env(tmp_path):
    file = tmp_path / "cluster.env"
    file.write_text("export SBATCH_PARTITION=a100\nGPUS_PER_NODE=4\n")
    return file


@pytest.fixture
def pipeline(tmp_path):
    return Pipeline(
        str(tmp_path / "run"),
        [
            PipelineRun("world", "notewriter world", result=str(tmp_path / "world")),
            PipelineRun(
                "pairs",
                "notewriter pairs",
                result=str(tmp_path / "pairs"),
                serve="models/tiny",
                needs=Needs(gpus=4, hours=1.5, cpus=8, memory_gb=64),
            ),
            PipelineRun("train", TRAIN, result=str(tmp_path / "model"), needs=Needs(gpus=8)),
            PipelineRun("show", "notewriter compare", after=["world", "train"]),
        ],
    )


def calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines()


def test_each_run_is_a_job_that_starts_when_those_before_it_have_succeeded(pipeline, queue, cluster_env, tmp_path):
    shown = slurm.submit(pipeline, cluster_env)
    logs = f"{tmp_path}/run/logs"
    assert calls(tmp_path) == [
        f"--parsable --export=ALL --job-name=run-world --output={logs}/01-world.log --nodes=1 --cpus-per-task=4 "
        f"--mem=16G {SLURM}/run.sbatch notewriter world",
        f"--parsable --export=ALL --job-name=run-pairs --output={logs}/02-pairs.log --nodes=1 --gpus-per-node=4 "
        "--cpus-per-task=8 --mem=64G --dependency=afterok:101 --kill-on-invalid-dep=yes --time=90 "
        f"{SLURM}/run.sbatch notewriter pairs --serve models/tiny",
        f"--parsable --export=ALL --job-name=run-train --output={logs}/03-train.log --nodes=2 --gpus-per-node=4 "
        "--cpus-per-task=32 --mem=240G --dependency=afterok:102 --kill-on-invalid-dep=yes "
        f"{SLURM}/train.sbatch d.yaml train_dpo.py --lr 1",
        f"--parsable --export=ALL --job-name=run-show --output={logs}/04-show.log --nodes=1 --cpus-per-task=4 "
        f"--mem=16G --dependency=afterok:101:103 --kill-on-invalid-dep=yes {SLURM}/run.sbatch notewriter compare",
    ]
    assert "# pairs: submitted as job 102\n" in shown
    assert json.loads((tmp_path / "run/logs/jobs.json").read_text())["train"] == ["103"]


def test_a_job_of_a_round_is_told_what_ends_the_rounds_and_a_skipped_one_is_not_submitted(queue, cluster_env, tmp_path):
    def run(number):
        runs = [str(tmp_path / str(earlier)) for earlier in range(number)]
        return PipelineRun(
            f"round {number}", "train", result=str(tmp_path / "none"), while_rising=":".join(["f1", *runs])
        )

    for number, score in enumerate((0.2, 0.1)):
        (tmp_path / str(number)).mkdir()
        write_metrics(tmp_path / str(number) / "metrics.json", metrics={"f1": {"mean": score, "low": 0, "high": 1}})
    pipeline = Pipeline(str(tmp_path / "run"), [run(1), run(2)])
    shown = slurm.submit(pipeline, cluster_env)
    (call,) = calls(tmp_path)
    assert f"--export=ALL,UNLESS=f1:{tmp_path}/0 " in call
    assert "# round 2: skipped\n" in shown
    assert "round 1 did not raise f1 above 0.200 (0.100)" in slurm.status(pipeline)


@pytest.mark.parametrize(("rounds", "code"), [(1, GO_ON), (2, 0)])
def test_a_job_checks_its_rule_before_it_starts(tmp_path, monkeypatch, capsys, rounds, code):
    for number, score in enumerate((0.2, 0.1)):
        (tmp_path / str(number)).mkdir()
        write_metrics(tmp_path / str(number) / "metrics.json", metrics={"f1": {"mean": score, "low": 0, "high": 1}})
    monkeypatch.setenv("UNLESS", ":".join(["f1", *(str(tmp_path / str(number)) for number in range(rounds))]))
    if code:
        with pytest.raises(SystemExit) as ended:
            rising.main()
        assert ended.value.code == code
    else:
        rising.main()
        assert capsys.readouterr().out == "skipped: round 1 did not raise f1 above 0.200 (0.100)\n"


def test_only_what_is_missing_is_submitted_again(pipeline, queue, cluster_env, tmp_path):
    slurm.submit(pipeline, cluster_env)
    (tmp_path / "world").touch()
    # The pairs failed; the training job still waits.
    queue.write_text("103 PENDING\n")
    shown = slurm.submit(pipeline, cluster_env)
    again = calls(tmp_path)[4:]
    assert len(again) == 2
    assert "run-pairs" in again[0] and "--dependency" not in again[0]
    assert "run-show" in again[1] and "--dependency=afterok:103 " in again[1]
    assert "# world: finished\n" in shown and "# train: job 103 (pending)\n" in shown


@pytest.mark.parametrize(
    ("settings", "needs", "options"),
    [
        ({}, Needs(gpus=2), "--gpus-per-node=2 --cpus-per-task=16 --mem=120G"),
        ({}, Needs(gpus=8, cpus=20), "--gpus-per-node=4 --cpus-per-task=20 --mem=240G"),
        ({}, Needs(nodes=2, memory_gb=90), "--cpus-per-task=4 --mem=90G"),
        (
            {"CPUS_PER_GPU": "16", "MEMORY_GB_PER_GPU": "120", "GPUS_OPTION": "--gpus-per-node=a100:%d"},
            Needs(gpus=1),
            "--gpus-per-node=a100:1 --cpus-per-task=16 --mem=120G",
        ),
        (
            {"CPUS_WITHOUT_GPU": "2", "MEMORY_GB_WITHOUT_GPU": "8", "WHOLE_NODES": "yes"},
            Needs(),
            "--cpus-per-task=2 --mem=8G",
        ),
        ({"WHOLE_NODES": "yes"}, Needs(gpus=2), "--gpus-per-node=2 --cpus-per-task=16 --mem=120G"),
        (
            {"WHOLE_NODES": "yes", "GPUS_OPTION": "--gres=gpu:a100:%d"},
            Needs(gpus=4),
            "--gres=gpu:a100:4 --exclusive --mem=0G",
        ),
        (
            {"WHOLE_NODES": "yes"},
            Needs(gpus=8, cpus=20, memory_gb=90),
            "--gpus-per-node=4 --exclusive --cpus-per-task=20 --mem=90G",
        ),
    ],
)
def test_a_job_asks_for_the_gpus_cpus_and_memory_of_its_run_and_of_the_cluster(
    queue, cluster_env, tmp_path, settings, needs, options
):
    with open(cluster_env, "a") as file:
        file.writelines(f"{name}={value}\n" for name, value in settings.items())
    pipeline = Pipeline(str(tmp_path / "run"), [PipelineRun("train", "train", needs=needs)])
    shown = slurm.submit(pipeline, cluster_env, dry_run=True)
    assert f"--nodes={needs.nodes_of(4)} {options} {SLURM}/run.sbatch" in shown


def test_the_example_of_the_settings_has_the_defaults(pipeline, queue, tmp_path):
    (tmp_path / "empty.env").touch()
    shown = {}
    for file in (SLURM / "cluster.env.example", tmp_path / "empty.env"):
        shown[file.name] = slurm.submit(pipeline, file, dry_run=True).replace(str(file), "")
    assert shown["empty.env"] == shown["cluster.env.example"]


@pytest.mark.parametrize(("needs", "per_node"), [(Needs(gpus=8, nodes=4), 2), (Needs(gpus=6), 3), (Needs(gpus=3), 3)])
def test_gpus_are_the_total_over_all_nodes(pipeline, needs, per_node):
    run = PipelineRun("train", "train", needs=needs)
    command = slurm.sbatch(Pipeline("run", [run]), run, [], slurm.SETTINGS | {"GPUS_PER_NODE": "4"})
    assert f"--gpus-per-node={per_node}" in command


def test_gpus_that_cannot_be_spread_over_the_nodes_are_refused(pipeline):
    run = PipelineRun("train", "train", needs=Needs(gpus=5))
    with pytest.raises(UserError, match="train: needs: 5 GPUs cannot be spread evenly over 2 nodes"):
        slurm.sbatch(Pipeline("run", [run]), run, [], slurm.SETTINGS | {"GPUS_PER_NODE": "4"})


def test_status_tells_what_became_of_each_run(pipeline, queue, cluster_env, tmp_path):
    slurm.submit(pipeline, cluster_env)
    (tmp_path / "world").touch()
    queue.write_text("102 RUNNING\n")
    log = pipeline.log(pipeline.runs[2])
    log.write_text("n1: start\nerror: models/x: is not a model folder\n")
    assert [line.split("  ", 1)[1].strip() for line in slurm.status(pipeline).splitlines()] == [
        "finished  job 101",
        "running  job 102",
        f"failed: models/x: is not a model folder  job 103  {log}",
        "cancelled before it started  job 104",
    ]


def train(tmp_path, *options):
    return Pipeline(
        str(tmp_path / "run"), [PipelineRun("train", " ".join(["notewriter train dpo --accelerate", *options]))]
    )


def test_a_training_as_a_job_has_the_launch_file_that_it_has_here(queue, cluster_env, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    for given, file in (("mine.yaml", "mine.yaml"), ("cpu_ddp", str(PROFILES / "cpu_ddp.yaml"))):
        shown = slurm.submit(train(tmp_path, given, "--lr 1"), cluster_env, dry_run=True)
        assert f"train.sbatch {file} --module notewriter.training.dpo --lr 1" in shown
    with pytest.raises(UserError, match=r"--accelerate other\.yaml: is no file and no profile"):
        slurm.submit(train(tmp_path, "other.yaml"), cluster_env, dry_run=True)


def test_what_says_how_many_processes_there_are_is_the_jobs(queue, cluster_env, tmp_path):
    launch = "--num_processes 2 --log_dir logs --num_machines 2 --machine_rank 0 --main_process_port=29500"
    shown = slurm.submit(train(tmp_path, "cpu_ddp", launch, "--lr 1"), cluster_env, dry_run=True)
    assert shown.rstrip().endswith("cpu_ddp.yaml --module notewriter.training.dpo --lr 1)")


def test_a_batch_that_does_not_divide_among_the_gpus_is_refused_before_it_is_queued(queue, cluster_env, tmp_path):
    recipe = tmp_path / "my.yaml"
    recipe.write_text("total_batch_size: 2\nper_device_train_batch_size: 2\n")

    def on(gpus: int, *more: str) -> str:
        command = (
            f"notewriter train dpo --accelerate zero3 --config {recipe} --output_dir {tmp_path}/m {' '.join(more)}"
        )
        run = PipelineRun("train", command, result=str(tmp_path / "m/training.json"), needs=Needs(gpus=gpus))
        return slurm.submit(Pipeline(str(tmp_path / "run"), [run]), cluster_env, dry_run=True)

    with pytest.raises(
        UserError, match=r"^train: total_batch_size 2 is not a multiple of 8 process\(es\) x per_device"
    ):
        on(8)
    assert "zero3" in on(1)
    assert "zero3" in on(8, "--total_batch_size", "32")


def test_a_training_under_zero_goes_on_with_the_gpus_that_it_began_with(queue, cluster_env, tmp_path):
    state = tmp_path / "m/checkpoint-8/global_step8"
    state.mkdir(parents=True)
    (state.parent / "trainer_state.json").write_text("{}")
    for rank in range(8):
        (state / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()
    command = f"notewriter train dpo --accelerate zero3 --output_dir {tmp_path}/m"

    def on(gpus: int) -> str:
        run = PipelineRun("train", command, result=str(tmp_path / "m/training.json"), needs=Needs(gpus=gpus))
        return slurm.submit(Pipeline(str(tmp_path / "run"), [run]), cluster_env, dry_run=True)

    with pytest.raises(UserError, match=r"train: its last checkpoint was saved by 8 .* needs: gpus: 4; give 8"):
        on(4)
    assert "zero3" in on(8)


@pytest.mark.parametrize(
    ("command", "hours", "notice"),
    [("notewriter world", 0.03, 120), ("notewriter train dpo --accelerate cpu", 0.08, 300)],
)
def test_a_limit_that_is_not_above_the_notice_is_refused(queue, cluster_env, tmp_path, command, hours, notice):
    """The job would go back to the queue as soon as it starts, without end."""
    pipeline = Pipeline(str(tmp_path / "run"), [PipelineRun("short", command, needs=Needs(hours=hours))])
    with pytest.raises(
        UserError, match=rf"short: needs: hours: {hours} is a limit of .* told {notice} s before its limit"
    ):
        slurm.submit(pipeline, cluster_env, dry_run=True)


def test_a_job_on_its_way_back_to_the_queue_is_not_submitted_again(queue, cluster_env, tmp_path):
    pipeline = Pipeline(
        str(tmp_path / "run"), [PipelineRun("world", "notewriter world", result=str(tmp_path / "world"))]
    )
    slurm.submit(pipeline, cluster_env)
    pipeline.log(pipeline.runs[0]).write_text("attempt: job 101, restart 0\n")
    queue.write_text("101 COMPLETING\n")
    assert "# world: job 101 (completing)\n" in slurm.submit(pipeline, cluster_env)
    assert len(calls(tmp_path)) == 1
    assert "world  completing  job 101" in slurm.status(pipeline)


def test_what_is_no_jobs_number_is_not_depended_on(pipeline, queue, cluster_env, tmp_path):
    (tmp_path / "bin/sbatch").write_text("#!/bin/bash\necho welcome to the cluster\n")
    with pytest.raises(UserError, match="world: sbatch answered 'welcome to the cluster"):
        slurm.submit(pipeline, cluster_env)


def test_the_variables_of_a_job_around_the_submission_do_not_reach_what_is_submitted(
    pipeline, queue, cluster_env, tmp_path, monkeypatch
):
    for name in ("SLURM_MEM_PER_CPU", "SLURM_CPUS_PER_TASK", "SLURM_CONF"):
        monkeypatch.setenv(name, "1")
    (tmp_path / "bin/sbatch").write_text(f"#!/bin/bash\nenv | grep ^SLURM_ > {tmp_path}/seen\necho 7\n")
    slurm.submit(pipeline, cluster_env)
    assert (tmp_path / "seen").read_text() == "SLURM_CONF=1\n"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["[default0]:error: a.yaml:3: unknown option"], "a.yaml:3: unknown option"),
        (
            [
                "[default1]:error: connection closed",
                "rank 1 on n2 failed first, with exit code 2; the end of its log:",
                "  error: pairs: no such file; check the path",
                "all logs: ranks/7",
                "srun: error: n2: task 1: Exited",
            ],
            "pairs: no such file; check the path",
        ),
        (
            [
                "rank 1 on n2 failed first, with exit code 1; the end of its log:",
                "  Traceback (most recent call last):",
                '    File "train.py", line 3',
                "  RuntimeError: shard 7 is broken",
                "all logs: ranks/7",
            ],
            "RuntimeError: shard 7 is broken",
        ),
        (["error: first", "attempt: job 7, restart 1", "begun"], ""),
    ],
    ids=["a rank", "an error of the first rank", "a traceback of the first rank", "an earlier attempt"],
)
def test_the_reason_of_a_training_is_that_of_the_rank_that_failed_first(tmp_path, lines, reason):
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    assert last_error(tmp_path / "log") == reason


@pytest.fixture
def run_job(tmp_path):
    """Runs a job script as Slurm does at each attempt, its output appended to the log."""

    def run(log, script, *arguments):
        own = {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURMD_NODENAME": "n1", "CLUSTER_ENV": ""}
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "a") as file:
            command = ["bash", str(SLURM / script), *arguments]
            return subprocess.run(command, env=os.environ | own, cwd=SLURM.parent, stdout=file, stderr=file).returncode

    return run


@pytest.fixture
def notice(tmp_path):
    """A job script of which Slurm says that its time is nearly up; returns exit code, output and what was requeued."""

    def notice(script, *arguments, **own):
        (tmp_path / "cluster.env").write_text(
            f"VENV={sys.prefix}\nPROCESSES_PER_NODE=1\nRENDEZVOUS_PORT=1\nLOGS=ranks\n"
        )
        (tmp_path / "bin").mkdir(exist_ok=True)
        stand_ins = {
            "scontrol": """[[ $1 != show ]] || { echo n1; exit; }
                [[ ! -e running ]] || echo early >>requeued
                echo "$@" >>requeued""",
            "squeue": "echo RUNNING",
            # The step that waits for a preemption ends with its input, ranks at the signal that the job script sends.
            "srun": """[[ $* != *"echo told"* ]] || { read; exit; }
                trap 'kill $child; exit 75' USR1
                sleep 30 & child=$!
                echo $$ >step; touch begun; wait""",
            "scancel": "kill -USR1 $(cat step)",
        }
        for name, text in stand_ins.items():
            (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        environment = os.environ | {
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            **{"SLURM_JOB_ID": "17", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURMD_NODENAME": "n1", "SLURM_NNODES": "1"},
            **{"CLUSTER_ENV": str(tmp_path / "cluster.env"), "SLURM_JOB_NODELIST": "n1", **own},
        }
        for left in ("begun", "requeued"):
            (tmp_path / left).unlink(missing_ok=True)
        command = ["bash", str(SLURM / script), *arguments]
        with open(tmp_path / "out", "w") as out:
            job = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=out, stderr=out)
            while not (tmp_path / "begun").exists():
                time.sleep(0.05)
            job.send_signal(signal.SIGUSR1)
            code = job.wait(timeout=30)
        requeued = tmp_path / "requeued"
        return code, (tmp_path / "out").read_text(), requeued.read_text() if requeued.exists() else ""

    return notice


SLOW_TO_END = "trap 'sleep 0.5; rm running; exit 143' TERM; touch running begun; while :; do sleep 0.1; done"
TRAINING = ("train.sbatch", "launch.yaml", "train.py")


@pytest.fixture
def training(tmp_path):
    for name in ("launch.yaml", "train.py"):
        (tmp_path / name).touch()
    return TRAINING


def test_a_job_goes_back_to_the_queue_when_its_command_has_ended(notice):
    """Slurm kills a job that is requeued while it still runs, after KillWait: 30 of the 120 seconds."""
    code, out, requeued = notice("run.sbatch", "bash", "-c", SLOW_TO_END)
    assert (code, requeued) == (143, "requeue 17\n")
    assert out.endswith("time is nearly up: ending the command\nback to the queue\n")


def test_a_command_that_finishes_at_the_notice_does_not_come_back(notice):
    ends_well = "trap 'exit 0' TERM; touch begun; while :; do sleep 0.1; done"
    assert notice("run.sbatch", "bash", "-c", ends_well)[::2] == (0, "")


@pytest.mark.parametrize("script", ["run.sbatch", "train.sbatch"])
def test_of_an_array_the_task_alone_goes_back_to_the_queue(notice, training, script):
    """The last task to start has the id of the whole array, whose other tasks have time left or are done."""
    command = training if script == "train.sbatch" else (script, "bash", "-c", SLOW_TO_END)
    array = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
    assert notice(*command, **array)[2] == "requeue 17_3\n"


@pytest.mark.parametrize("script", ["run.sbatch", "train.sbatch"])
def test_a_job_whose_time_is_up_soon_after_each_start_ends(notice, training, script):
    command = training if script == "train.sbatch" else (script, "bash", "-c", SLOW_TO_END)
    assert notice(*command, SLURM_RESTART_COUNT="2")[2] == "requeue 17\n"
    code, out, requeued = notice(*command, SLURM_RESTART_COUNT="3")
    assert (code, requeued) == (2, "")
    assert re.search(r"error: its time was nearly up \d+ s after its start, .* give it a longer --time\n$", out)


def test_steps_have_the_cpus_and_the_memory_of_their_own_job(notice, tmp_path):
    """A job that is submitted from inside an interactive one inherits the variables of that one."""
    shows = f"env >{tmp_path}/seen; {SLOW_TO_END}"
    other = {"SLURM_MEM_PER_CPU": "200", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_CPUS_PER_NODE": "8(x2),4"}
    notice("run.sbatch", "bash", "-c", shows, **other, SLURM_MEM_PER_NODE="2048")
    seen = (tmp_path / "seen").read_text()
    assert "SLURM_CPUS_PER_TASK=4\n" in seen and "SLURM_MEM_PER" not in seen


def test_a_failure_before_the_last_attempt_is_no_failure_of_the_run(queue, run_job, tmp_path):
    pipeline = Pipeline(str(tmp_path / "run"), [PipelineRun("show", "notewriter compare")])
    log = pipeline.log(pipeline.runs[0])
    assert run_job(log, "run.sbatch", "true") == 2
    assert "failed: " in slurm.status(pipeline) and "cluster.env: no such file" in slurm.status(pipeline)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm/cluster.env").write_text(f"VENV={sys.prefix}\n")
    assert run_job(log, "run.sbatch", "true") == 0
    assert slurm.status(pipeline) == f"show  ended  {log}\n"
    assert run_job(log, "run.sbatch", "bash", "-c", "echo error: no space; exit 1") == 1
    assert slurm.status(pipeline) == f"show  failed: no space  {log}\n"


def test_a_training_job_tells_its_attempts_too(run_job, tmp_path):
    arguments = ["configs/accelerate/cpu.yaml", "training/train_dpo.py"]
    assert [run_job(tmp_path / "log", "train.sbatch", *arguments) for _ in range(2)] == [2, 2]
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.startswith(ATTEMPT) for line in lines] == [True, False] * 2


@pytest.mark.parametrize("script", ["run.sbatch", "train.sbatch"])
def test_a_job_starts_under_the_bash_of_clusters_too(script):
    """Red Hat 8 has 4.4, without this variable of 5."""
    command = ["bash", "-c", 'unset EPOCHSECONDS; source "$0"', str(SLURM / script)]
    done = subprocess.run(command, env=os.environ | {"SLURM_JOB_ID": "7"}, capture_output=True, text=True)
    assert "error: usage: sbatch" in done.stderr


def test_a_dry_run_prints_lines_for_a_shell_and_submits_nothing(pipeline, queue, cluster_env, tmp_path):
    shown = slurm.submit(pipeline, cluster_env, dry_run=True)
    assert calls(tmp_path) == []
    assert f"mkdir -p {tmp_path}/run/logs\n" in shown
    assert "job_2=$(sbatch --parsable" in shown and "--dependency=afterok:$job_1 " in shown
    assert not (tmp_path / "run").exists()


def test_the_lines_of_a_dry_run_submit_the_same_with_the_settings_of_the_cluster(
    pipeline, queue, cluster_env, tmp_path
):
    other = cluster_env.rename(tmp_path / "other cluster.env")
    lines = slurm.submit(pipeline, other, dry_run=True)
    subprocess.run(["bash", "-euc", lines], check=True)
    pasted, settings = calls(tmp_path), (tmp_path / "settings").read_text()
    assert settings == f"a100, 4, {other}\n" * len(pasted) and (tmp_path / "run/logs").is_dir()
    for name in ("calls", "settings"):
        (tmp_path / name).write_text("")
    slurm.submit(pipeline, other)
    assert (calls(tmp_path), (tmp_path / "settings").read_text()) == (pasted, settings)


def test_a_job_that_is_refused_is_named_and_those_submitted_are_remembered(
    pipeline, queue, cluster_env, tmp_path, monkeypatch
):
    monkeypatch.setenv("SBATCH_FAILS", "1")
    with pytest.raises(UserError, match=r"^world: sbatch: error: invalid partition a100; change its needs or"):
        slurm.submit(pipeline, cluster_env)
    monkeypatch.delenv("SBATCH_FAILS")
    slurm.submit(pipeline, cluster_env)
    assert len(calls(tmp_path)) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no such file; copy /\S+/slurm/cluster\.env\.example there"),
        ("exit 3\n", "correct the file"),
        ("GPUS_PER_NODE=many\n", "GPUS_PER_NODE=many is not a number above 0"),
        ("GPUS_PER_NODE=0\n", "GPUS_PER_NODE=0 is not a number above 0"),
        ("CPUS_PER_GPU=-1\n", "CPUS_PER_GPU=-1 is not a number above 0"),
        ("GPUS_OPTION=a100\n", "GPUS_OPTION=a100 is not an option of sbatch"),
        ("GPUS_OPTION=--gres=gpu:a100\n", "GPUS_OPTION=--gres=gpu:a100 is not an option of sbatch with %d"),
        ("WHOLE_NODES=1\n", "WHOLE_NODES=1 is neither yes nor no"),
    ],
)
def test_settings_that_cannot_be_are_named(pipeline, queue, tmp_path, content, message):
    file = tmp_path / "wrong.env"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError, match=message):
        slurm.submit(pipeline, file)
