"""A pipeline on this machine: its runs in order or several at once, each with a log, on shared servers.

Consecutive runs that ask the same model share a server.
"""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from notewriter.experiments.run import Pipeline, PipelineRun, program, training_of
from notewriter.ground.errors import UserError, writing
from notewriter.ground.terminal import escape_controls
from notewriter.models.serve_options import runs_on_cpu
from notewriter.models.servers import GPU_SHARE, Kept, Wanted, keep

POLL = 5.0
"""Seconds between checks of the server while a run uses it."""

SHOW = 1.0
"""The same where a terminal shows the progress of the run."""

END_OF_LOG = 4096
"""Bytes at the end of a log in which its last line is looked for."""

PATIENCE = 300.0
"""Seconds that a run has to end when the pipeline is interrupted: training saves a checkpoint first."""


ATTEMPT = "attempt: "
"""The beginning of the line that a job (slurm/*.sbatch) prints at each start; the log goes on in the same file."""

ENDED_WELL = "[ended without an error]"
"""The last line of the log of a finished run; one without a result has no other sign of its end."""

ERROR = re.compile(r"(?:\[\w+\]:)?error: (.*)")
"""A command's error message, also behind the name that torchrun puts before the lines of a rank, `[default0]:`."""

FAILED_FIRST = re.compile(r"rank \d+ on \S+ failed first")
"""The title of the end of a rank's log, in indented lines (`notewriter.training.run.launcher`)."""


def run_here(pipeline: Pipeline, at_once: int = 1) -> None:
    """Do the runs, a line each, and print the output of the last one.

    Every run is started again if it was finished before: its command finds the remaining work, and refuses to go on
    with other inputs.

    Args:
        pipeline: the runs.
        at_once: how many go on side by side. With 1 they run in the order of the file, and the first that fails ends
            the pipeline. With more, a run starts as soon as those that it comes after have ended, and consecutive runs
            that share a server as soon as all have that they come after; those that do not come after one that has
            failed go on.

    Raises:
        UserError: a run fails; gives its reason and its log.
    """
    pipeline.logs.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if pipeline.opening:
        sys.stdout.write(f"{pipeline.opening}\n\n")
    work = _Work(pipeline, at_once)
    if at_once == 1:
        for together in _by_server(pipeline.runs):
            _do(work, together)
    else:
        _side_by_side(work)
    printed = next(filter(None, (work.outputs[run.title] for run in reversed(pipeline.runs))), "")
    report = f"report: {pipeline.report}    " if pipeline.report else ""
    sys.stdout.write(f"\n{printed}\n{report}({time.monotonic() - began:.0f} s in total)\n")


class _Stopped(Exception):
    """Raised when the pipeline ends while a run goes on."""


@dataclass
class _Work:
    """A pipeline under way.

    Args:
        pipeline: the runs.
        at_once: how many go on side by side.
        outputs: what runs printed that have ended, by their titles; empty for one that was skipped.
        failures: of runs side by side.
        stopping: tells runs side by side to end.
    """

    pipeline: Pipeline
    at_once: int
    outputs: dict[str, str] = field(default_factory=dict)
    failures: list[UserError] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def fail(self, error: UserError) -> None:
        """Note that a run has failed, beside which others go on."""
        self.failures.append(error)
        sys.stdout.write(f"{error}\n")

    def title(self, run: PipelineRun) -> str:
        """The title of the next run that ends, with its number."""
        width = max(28, *(len(each.title) + 1 for each in self.pipeline.runs))
        return f"[{len(self.outputs) + 1:2}/{len(self.pipeline.runs)}] {run.title:{width}}"


def _side_by_side(work: _Work) -> None:
    """Do all runs, several at once."""
    pipeline, waiting = work.pipeline, _by_server(work.pipeline.runs)
    working: dict[Future[None], list[PipelineRun]] = {}

    def is_ready(members: list[PipelineRun]) -> bool:
        ahead = [run for others in (*waiting, *working.values()) if others is not members for run in others]
        return not any(each in ahead for run in members for each in pipeline.before(run))

    with ThreadPoolExecutor(work.at_once) as pool:
        try:
            while True:
                for members in list(filter(is_ready, waiting))[: work.at_once - len(working)]:
                    waiting.remove(members)
                    working[pool.submit(_do, work, members)] = members
                if not working:
                    break
                for future in wait(working, return_when=FIRST_COMPLETED).done:
                    del working[future]
                    try:
                        future.result()
                    except UserError as error:
                        work.fail(error)
        except BaseException:
            work.stopping.set()
            raise
    if failures := work.failures:
        left = len(pipeline.runs) - len(work.outputs) - len(failures)
        others = f"; {len(failures) - 1} more failed" if len(failures) > 1 else ""
        raise UserError(f"{failures[0]}{others}" + (f"; {left} more were not started" if left else ""))


def _do(work: _Work, members: Sequence[PipelineRun]) -> None:
    """Do runs with one server, a line each: begun with the run where it is alone, else written when it has ended.

    One that comes after a run without an output is left out.

    Raises:
        UserError: the server does not start, or a run fails that is alone.
    """
    pipeline, alone = work.pipeline, work.at_once == 1
    # As many servers, and trainings beside them, may be on one GPU.
    beside = {} if alone or runs_on_cpu() else {"gpu_memory_utilization": int(100 * GPU_SHARE / work.at_once) / 100}
    with keep(pipeline.logs) as servers:
        for run in members:
            if any(each.title not in work.outputs for each in pipeline.before(run)):
                continue
            if skipped := run.skipped():
                sys.stdout.write(f"{work.title(run)}  skipped: {skipped}\n")
                work.outputs[run.title] = ""
                continue
            # A command that is alone with its model starts its own.
            if run.serve and run.missing() and not (alone and len(members) == 1):
                wanted = Wanted(run.serve, run.mapping("serve_options"), run.replicas())
                log = pipeline.logs / f"server-of-{members[0].slug}.log"
                servers.start([wanted], log, ready_timeout=run.ready_timeout(), beside=beside)
            if alone:
                sys.stdout.write(work.title(run))
                sys.stdout.flush()
            start = time.monotonic()
            try:
                printed = _run(run, pipeline.log(run), servers, None if alone else work.stopping)
            except UserError as error:
                if alone:
                    sys.stdout.write("\n")
                    raise
                work.fail(error)
                continue
            title = work.title(run)
            if alone:
                # It has stood there since the run began; a terminal showed the run's bar below it.
                title = f"\r{title}" if sys.stdout.isatty() else ""
            sys.stdout.write(f"{title}{time.monotonic() - start:6.0f} s  {_headline(printed)}\n")
            sys.stdout.flush()
            work.outputs[run.title] = printed


def _by_server(runs: Sequence[PipelineRun]) -> list[list[PipelineRun]]:
    """Consecutive runs grouped by the server that they ask; those that ask none stand by themselves."""
    keys = [
        (run.serve, repr(sorted(run.mapping("serve_options").items())), run.replicas()) if run.serve else (run.title,)
        for run in runs
    ]
    pairs = zip(keys, runs, strict=True)
    return [[run for _, run in members] for _, members in itertools.groupby(pairs, key=lambda pair: pair[0])]


def _headline(output: str) -> str:
    """The first line of a run's output that is neither a library's log nor a table."""
    return next((line for line in output.splitlines() if not line.startswith(("[", "|", "{"))), "")


def _run(run: PipelineRun, log: Path, servers: Kept, stopping: threading.Event | None = None) -> str:
    """Do a run with its output in `log`, keeping its server alive; returns its standard output.

    With others beside it, `stopping` ends it, and no bar is shown.
    """
    command = program(run.command_line())
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
                printed = _wait(process, servers, log, stopping)
            except BaseException:
                _end(process.pid)
                raise
        file.write(printed)
        if not process.returncode:
            file.write(f"\n{ENDED_WELL}\n")
    if process.returncode:
        reason = last_error(log) or f"exited with code {process.returncode}"
        raise UserError(f"{run.title}: {reason} (log: {log}); run the same command again to resume")
    return printed.strip()


def _wait(process: subprocess.Popen[str], servers: Kept, log: Path, stopping: threading.Event | None = None) -> str:
    """The standard output of a process; restarts its server if that dies meanwhile.

    A terminal shows the log's path and its last line, which is the run's bar, until the process has ended.
    """
    watched = stopping is None and sys.stdout.isatty()
    if watched:
        sys.stdout.write(f"\n     {log}\n")
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=SHOW if watched else POLL)[0]
            if stopping is not None and stopping.is_set():
                raise _Stopped
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
    """End a run and its child processes: servers, and a training to which accelerate does not pass signals on."""
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
    """The last error message in a run's log since its last attempt began; empty if there is none.

    Of a training whose ranks failed, it is that of the rank that failed first: its error, or the last line of its log.
    """
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    reason, in_end_of_rank = "", False
    for line in lines:
        if line.startswith(ATTEMPT):
            reason = ""
        if FAILED_FIRST.match(line):
            reason, in_end_of_rank = "", True
        elif in_end_of_rank and line.startswith("  "):
            error = ERROR.match(line.strip())
            reason = error[1] if error else line.strip() or reason
        else:
            in_end_of_rank = False
            reason = error[1] if (error := ERROR.match(line)) else reason
    return reason
