"""A pipeline on this machine: its runs in order, each with a log, sharing servers where they ask the same model."""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from notewriter.experiments.run import Pipeline, Run, program, training_of
from notewriter.ground.errors import UserError, writing
from notewriter.ground.terminal import escape_controls
from notewriter.models.servers import Kept, Wanted, keep

POLL = 5.0
"""Seconds between checks of the server while a run uses it."""

SHOW = 1.0
"""The same where a terminal shows how far the run is."""

END_OF_LOG = 4096
"""Bytes at the end of a log in which its last line is looked for."""

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
                title = f"[{next(numbers):2}/{len(pipeline.runs)}] {run.title:{width}}"
                sys.stdout.write(title)
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
                again = f"\r{title}" if sys.stdout.isatty() else ""
                sys.stdout.write(f"{again}{time.monotonic() - start:6.0f} s  {_headline(printed)}\n")
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
                printed = _wait(process, servers, log)
            except BaseException:
                _end(process.pid)
                raise
        file.write(printed)
    if process.returncode:
        reason = last_error(log) or f"exited with code {process.returncode}"
        raise UserError(f"{run.title}: {reason} (log: {log}); run the same command again to resume")
    return printed.strip()


def _wait(process: subprocess.Popen[str], servers: Kept, log: Path) -> str:
    """The standard output of a process; restarts its server if that dies meanwhile.

    A terminal shows the log's path and its last line, which is the run's bar, until the process has ended.
    """
    watched = sys.stdout.isatty()
    if watched:
        sys.stdout.write(f"\n     {log}\n")
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=SHOW if watched else POLL)[0]
            servers.ensure_alive()
            if watched:
                sys.stdout.write(f"\r\x1b[K     {last_line(log)}"[: shutil.get_terminal_size().columns + 3])
                sys.stdout.flush()
    finally:
        if watched:
            # Back to the line of the title, as if nothing had been shown.
            sys.stdout.write("\r\x1b[K\x1b[1A\x1b[K\x1b[1A")


def last_line(log: Path) -> str:
    """The last line of a log that is not blank, or the last state of a progress bar, without control characters."""
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - END_OF_LOG))
        lines = re.split(r"[\r\n]+", file.read().decode("utf-8", "replace"))
    return next((escape_controls(line) for line in reversed(lines) if line.strip()), "")


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
