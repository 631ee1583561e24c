"""A pipeline on this machine: its runs in order, each with a log, sharing servers where they ask the same model."""

import contextlib
import itertools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from notewriter.experiments.run import Pipeline, Run, program, training_of
from notewriter.ground.errors import UserError, writing
from notewriter.models.servers import Kept, Wanted, keep

POLL = 5.0
"""Seconds between checks of the server while a run uses it."""

PATIENCE = 300.0
"""Seconds that a run has to end when the pipeline is interrupted: training saves a checkpoint first."""


ATTEMPT = "attempt: "
"""How the line begins that a job (slurm/*.sbatch) prints at each start; the log goes on in the same file."""


def run_here(pipeline: Pipeline) -> None:
    """Do the runs in order, a line each, and print the output of the last one.

    Every run is started again if it was finished before: its command decides what is left to do, and refuses to go on
    with other inputs.

    Raises:
        UserError: a run fails; gives its reason and its log.
    """
    pipeline.logs.mkdir(parents=True, exist_ok=True)
    width = max(28, *(len(run.title) + 1 for run in pipeline.runs))
    began = time.monotonic()
    numbers = itertools.count(1)
    printed = ""
    for together in _by_server(pipeline.runs):
        shared = together[0].serve is not None and sum(run.shards for run in together) > 1
        last = next((run for run in reversed(together) if run.missing()), None)
        with keep(pipeline.logs) as servers:
            for run in together:
                skipped = run.skipped()
                if shared and run.missing():
                    # It logs a line of its own.
                    _start_server(run, servers, pipeline.logs)
                sys.stdout.write(f"[{next(numbers):2}/{len(pipeline.runs)}] {run.title:{width}}")
                sys.stdout.flush()
                if skipped:
                    sys.stdout.write(f"  skipped: {skipped}\n")
                    continue
                start = time.monotonic()
                try:
                    for shard in range(1, run.shards + 1):
                        printed = _run(run, shard, pipeline.log(run, shard), servers)
                except UserError:
                    sys.stdout.write("\n")
                    raise
                if run is last:
                    # The next run may need the memory.
                    servers.stop()
                sys.stdout.write(f"{time.monotonic() - start:6.0f} s  {_headline(printed)}\n")
    report = f"report: {pipeline.report}    " if pipeline.report else ""
    sys.stdout.write(f"\n{printed}\n{report}({time.monotonic() - began:.0f} s in total)\n")


def _by_server(runs: Sequence[Run]) -> list[list[Run]]:
    """Consecutive runs grouped by the server that they ask."""
    keys = [(run.serve, repr(sorted(run.serve_options().items())), run.replicas()) if run.serve else () for run in runs]
    pairs = zip(keys, runs, strict=True)
    return [[run for _, run in members] for _, members in itertools.groupby(pairs, key=lambda pair: pair[0])]


def _start_server(run: Run, servers: Kept, logs: Path) -> None:
    """Start the server that a run shares with its neighbours, unless it is up."""
    assert run.serve is not None
    wanted = Wanted(run.serve, run.serve_options(), run.replicas())
    log = logs / f"server-of-{Path(run.serve).name}.log"
    servers.start([wanted], log, ready_timeout=run.ready_timeout())


def _headline(output: str) -> str:
    """The first line of a run's output that is neither a library's log nor a table."""
    return next((line for line in output.splitlines() if not line.startswith(("[", "|", "{"))), "")


def _run(run: Run, shard: int, log: Path, servers: Kept) -> str:
    """Do a shard of a run with its output in `log`, keeping its server alive; returns its standard output."""
    command = program(run.command_line(shard))
    # A training that needs one GPU sees one, as it has to.
    one = {"CUDA_VISIBLE_DEVICES": "0"} if run.needs.gpus == 1 and training_of(run.argv()) else {}
    with writing(log), open(log, "w", encoding="utf-8") as file:
        file.write(shlex.join(command) + "\n")
        file.flush()
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=one | os.environ | servers.environment(),
        ) as process:
            try:
                printed = _wait(process, servers)
            except BaseException:
                _end(process.pid)
                raise
        file.write(printed)
    if process.returncode:
        reason = last_error(log) or f"exited with code {process.returncode}"
        raise UserError(f"{run.title}: {reason} (log: {log}); run the same command again to resume")
    return printed.strip()


def _wait(process: subprocess.Popen[str], servers: Kept) -> str:
    """The standard output of a process; restarts its server if that dies meanwhile."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=POLL)[0]
        servers.ensure_alive()


def _end(pid: int) -> None:
    """End a run and what it has started: servers, and the training that accelerate does not pass signals on to."""
    try:
        process = psutil.Process(pid)
        members = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        # A Ctrl-C reached it too, and it has ended.
        return
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    try:
        psutil.wait_procs(members, PATIENCE)
    finally:
        # At a second Ctrl-C too.
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()


def last_error(log: Path) -> str:
    """The last error message in a run's log since its last attempt began; empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    reason = ""
    for line in lines:
        if line.startswith("error: "):
            reason = line.removeprefix("error: ")
        elif line.startswith(ATTEMPT):
            reason = ""
    return reason
