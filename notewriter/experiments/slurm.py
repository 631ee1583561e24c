"""A pipeline as jobs of a Slurm cluster: their submission, their order and their states.

Slurm does the scheduling: a run is a job that starts when those before it have succeeded (`afterok`). Here only
`jobs.json` is kept, beside the logs: the job of each run.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from notewriter.experiments.here import ENDED_WELL, last_error, last_line
from notewriter.experiments.run import Needs, Pipeline, PipelineRun, training_of
from notewriter.ground import jsonl
from notewriter.ground.config import given
from notewriter.ground.errors import UserError, one_line
from notewriter.ground.recipes import SLURM
from notewriter.ground.typed import shown
from notewriter.models.checkpoint import checkpoints_of, zero_processes
from notewriter.training.profiles import forwards

JOBS = "jobs.json"
"""The file beside the logs with the ids of the jobs of each run, by title; of ended ones only the last."""

SETTINGS = {
    "GPUS_PER_NODE": "8",
    "GPUS_OPTION": "--gpus-per-node=%d",
    "CPUS_PER_GPU": "8",
    "MEMORY_GB_PER_GPU": "60",
    "CPUS_WITHOUT_GPU": "4",
    "MEMORY_GB_WITHOUT_GPU": "16",
    "WHOLE_NODES": "no",
}
"""The settings in cluster.env of a job's resources, and their defaults; Slurm's own is often one CPU a job."""

NOTICE = re.compile(r"^#SBATCH --signal=B:USR1@(\d+)$", re.MULTILINE)
"""The line of a job script with the seconds before its limit in which its command may end."""


def submit(pipeline: Pipeline, cluster_env: Path, *, dry_run: bool = False) -> str:
    """Submit a job for each run that has no result and no job in the queue; returns a line each.

    With `dry_run` the lines are commands for a shell, and nothing is submitted.

    Raises:
        UserError: the cluster's settings are missing or wrong, Slurm is not installed, or sbatch refuses a job.
    """
    environment = _environment(cluster_env)
    if not dry_run and not shutil.which("sbatch"):
        raise UserError("sbatch: not found; run this on a login node of the cluster, or use --dry_run true")
    jobs = _read_jobs(pipeline)
    queue = _queue(jobs)
    waiting: dict[str, list[str]] = {}  # the jobs of each run that is not finished yet, by title
    lines = []
    for run in pipeline.runs:
        if not run.missing():
            lines.append(f"# {run.title}: {'skipped' if run.skipped() else 'finished'}\n")
            continue
        queued = {job: queue[job] for job in jobs.get(run.title, []) if job in queue}
        if queued:
            waiting[run.title] = list(queued)
            lines += [f"# {run.title}: job {job} ({state})\n" for job, state in queued.items()]
            continue
        after = [job for each in pipeline.before(run) for job in waiting.get(each.title, [])]
        command = sbatch(pipeline, run, after, environment)
        if dry_run:
            name = f"job_{pipeline.runs.index(run) + 1}"
            waiting[run.title] = [f"${name}"]
            # Unquoted, since the job's number is a variable of the shell that these lines are pasted into.
            words = (word if "$job_" in word else shlex.quote(word) for word in command)
            lines.append(f"# {run.title}\n{name}=$({' '.join(words)})\n")
            continue
        pipeline.logs.mkdir(parents=True, exist_ok=True)
        remedy = f"change its needs or {cluster_env} and run the command again"
        answer = _printed(command, run.title, remedy, environment)
        # With several clusters sbatch answers JOB;CLUSTER.
        job = answer.strip().rpartition("\n")[2].partition(";")[0]
        if not job.isdecimal():
            # Slurm drops a dependency on a job that it does not know, and starts what comes after at once.
            raise UserError(f"{run.title}: sbatch answered {shown(answer)}, no job's number; see squeue --me")
        waiting[run.title] = [job]
        jobs[run.title] = [job]
        # Written after each job, so that a submission that is cut short knows its jobs.
        jsonl.write_text(pipeline.logs / JOBS, [json.dumps(jobs, indent=2) + "\n"])
        lines.append(f"# {run.title}: submitted as job {job}\n")
    if dry_run:
        settings = shlex.quote(environment["CLUSTER_ENV"])
        begin = [f"set -a; source {settings}; set +a\n", f"export CLUSTER_ENV={settings}\n"]
        # Slurm does not make the folder of a job's output.
        lines = [*begin, f"mkdir -p {shlex.quote(str(pipeline.logs))}\n", *lines]
    return "".join(lines)


def sbatch(pipeline: Pipeline, run: PipelineRun, after: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    """The command that submits a run, to start after the jobs `after`.

    `settings` are those of the cluster (`SETTINGS`).

    Raises:
        UserError: the GPUs cannot be spread evenly over the nodes.
    """
    needs, nodes = run.needs, run.needs.nodes_of(int(settings["GPUS_PER_NODE"]))
    if needs.gpus % nodes:
        raise UserError(
            f"{run.title}: needs: {needs.gpus} GPUs cannot be spread evenly over {nodes} nodes; give a multiple"
        )
    # `--export` is said, since SBATCH_EXPORT=NONE, which some sites set, would leave the job without its settings.
    export = f"--export=ALL,UNLESS={run.while_rising}" if run.while_rising else "--export=ALL"
    command = ["sbatch", "--parsable", export]
    command += [f"--job-name={Path(pipeline.output_dir).name}-{run.slug}"]
    command += [f"--output={pipeline.log(run)}", f"--nodes={nodes}"]
    command += _share_of_a_node(needs, needs.gpus // nodes, settings)
    # Otherwise a job whose predecessor fails waits forever.
    command += [f"--dependency=afterok:{':'.join(after)}", "--kill-on-invalid-dep=yes"] if after else []
    if training := training_of(run.argv()):
        _check_processes(run, *training)
        script, arguments = SLURM / "train.sbatch", [training[0], *training[1]]
    else:
        script, arguments = SLURM / "run.sbatch", run.command_line()
    if needs.hours:
        command += [f"--time={_limit(run, needs.hours, script)}"]
    return [*command, str(script), *arguments]


def _limit(run: PipelineRun, hours: float, script: Path) -> int:
    """The time limit of a job in minutes.

    Raises:
        UserError: Slurm would send its notice as soon as the job starts, which then goes back to the queue without end.
    """
    minutes, (notice,) = round(hours * 60), NOTICE.findall(script.read_text(encoding="utf-8"))
    if minutes * 60 <= int(notice):
        raise UserError(
            f"{run.title}: needs: hours: {hours} is a limit of {minutes * 60} s, and a job is told {notice} s before "
            f"its limit to end and go on later ({script.name}); give it more than {int(notice) / 3600:.2f} hours"
        )
    return minutes


def _check_processes(run: PipelineRun, launch_file: str, training: Sequence[str]) -> None:
    """Check that a training's batch divides among its GPUs, and that under ZeRO it goes on with as many as it began.

    Raises:
        UserError: the training would refuse it, or could not resume.
    """
    said = given(training)
    # What is no number is the training's to refuse.
    batch = [str(said.get(name)) for name in ("total_batch_size", "per_device_train_batch_size")]
    total, forward = (int(value) if value.isdecimal() else 0 for value in batch)
    if run.needs.gpus and total and forward:
        try:
            forwards(total, run.needs.gpus, forward)
        except UserError as error:
            raise UserError(f"{run.title}: {error}") from error
    options = dict(itertools.pairwise(run.argv()))
    checkpoints = checkpoints_of(Path(options["--output_dir"])) if "--output_dir" in options else {}
    saved_by = zero_processes(list(checkpoints.values())[-1]) if checkpoints else None
    if run.needs.gpus and saved_by not in (None, run.needs.gpus):
        raise UserError(
            f"{run.title}: its last checkpoint was saved by {saved_by} processes, and ZeRO ({Path(launch_file).name}) "
            f"resumes with as many, not with needs: gpus: {run.needs.gpus}; give {saved_by}, or another --output_dir"
        )


def _share_of_a_node(needs: Needs, gpus: int, settings: Mapping[str, str]) -> list[str]:
    """sbatch's options for a job's share of each of its nodes, with `gpus` GPUs."""
    options = [settings["GPUS_OPTION"].replace("%d", str(gpus))] if gpus else []
    if settings["WHOLE_NODES"] == "yes" and gpus == int(settings["GPUS_PER_NODE"]):
        # All CPUs, and as --mem=0 all memory.
        options.append("--exclusive")
        cpus, memory = 0, 0
    elif gpus:
        cpus, memory = gpus * int(settings["CPUS_PER_GPU"]), gpus * int(settings["MEMORY_GB_PER_GPU"])
    else:
        cpus, memory = int(settings["CPUS_WITHOUT_GPU"]), int(settings["MEMORY_GB_WITHOUT_GPU"])
    cpus, memory = needs.cpus or cpus, needs.memory_gb or memory
    return [*options, *([f"--cpus-per-task={cpus}"] if cpus else []), f"--mem={memory}G"]


class RunState(NamedTuple):
    """The state of a pipeline's run: in words, its jobs in the order of their submission, and its log."""

    run: PipelineRun
    state: str
    jobs: list[str]
    log: Path


def states(pipeline: Pipeline) -> Iterator[RunState]:
    """The state of each run, by its result, its jobs in the queue and its log."""
    jobs = _read_jobs(pipeline)
    queue = _queue(jobs)
    for run in pipeline.runs:
        mine, log, state = jobs.get(run.title, []), pipeline.log(run), "not run"
        queued = [queue[job] for job in mine if job in queue]
        if skipped := run.skipped():
            state = f"skipped: {skipped}"
        elif not run.missing():
            state = "finished"
        elif queued:
            state = "; ".join(queued)
        elif log.exists():
            error = last_error(log)
            well = not run.results() and last_line(log) == ENDED_WELL
            ended = "finished" if well else "ended" if not run.results() else "ended without its result"
            state = f"failed: {error}" if error else ended
        elif mine:
            state = "cancelled before it started"
        yield RunState(run, state, mine, log)


def status(pipeline: Pipeline) -> str:
    """A line for each run: its state, its job, its log and, if it failed, the error there."""
    width = max(len(run.title) for run in pipeline.runs)
    lines = []
    for run, state, jobs, log in states(pipeline):
        parts = [f"job {', '.join(jobs)}" if jobs else "", str(log) if log.exists() else ""]
        lines.append("  ".join([f"{run.title:{width}}", state, *filter(None, parts)]) + "\n")
    return "".join(lines)


def _read_jobs(pipeline: Pipeline) -> dict[str, list[str]]:
    path = pipeline.logs / JOBS
    if not path.exists():
        return {}
    remedy = "remove it, after cancelling the run's jobs (scancel)"
    jobs: dict[str, list[str]] = jsonl.read_object(path, dict[str, list[str]], remedy)
    return jobs


def _queue(jobs: Collection[str]) -> dict[str, str]:
    """Job id -> state, of the user's jobs that have not ended, those on their way back to the queue (COMPLETING) too.

    Without `jobs` or without Slurm there are none.
    """
    if not jobs or not shutil.which("squeue"):
        return {}
    command = ["squeue", "--me", "--noheader", "--format=%A %T"]
    printed = _printed(command, "squeue", "try again when the cluster's controller answers")
    return {job: state.lower() for job, state in map(str.split, printed.splitlines())}


def _printed(command: Sequence[str], place: str, remedy: str, environment: Mapping[str, str] | None = None) -> str:
    """The output of a command.

    Raises:
        UserError: it fails; has its reason.
    """
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{place}: {one_line(done.stderr)}; {remedy}")
    return done.stdout


def _environment(cluster_env: Path) -> dict[str, str]:
    """The environment of sbatch: this one, with the settings of the cluster."""
    if not cluster_env.is_file():
        raise UserError(f"{cluster_env}: no such file; copy {SLURM / 'cluster.env.example'} there and fill it in")
    # A shell file, because the job scripts read it too.
    script = 'set -a; source "$0" >&2 && env -0'
    # Of a job in which this command runs, Slurm's variables would pass for options of the jobs that it submits.
    own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}
    printed = _printed(["bash", "-c", script, str(cluster_env.resolve())], str(cluster_env), "correct the file", own)
    environment = SETTINGS | dict(line.split("=", 1) for line in printed.split("\0") if "=" in line)
    for name, usual in SETTINGS.items():
        value = environment[name]
        if usual.isdecimal() and not (value.isdecimal() and int(value)):
            raise UserError(f"{cluster_env}: {name}={value} is not a number above 0; correct it")
    if not re.fullmatch(r"--[a-z-]+=[^\s%]*%d", environment["GPUS_OPTION"]):
        raise UserError(
            f"{cluster_env}: GPUS_OPTION={environment['GPUS_OPTION']} is not an option of sbatch with %d for the "
            "number; write, for example, --gres=gpu:a100:%d"
        )
    if environment["WHOLE_NODES"] not in ("yes", "no"):
        raise UserError(f"{cluster_env}: WHOLE_NODES={environment['WHOLE_NODES']} is neither yes nor no; correct it")
    return environment | {"CLUSTER_ENV": str(cluster_env.resolve())}
