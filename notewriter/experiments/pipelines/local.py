"""A pipeline on this machine: its stages in order, each with a log, sharing servers where they ask the same model."""

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

from notewriter.experiments.pipelines.pipeline import Pipeline, Stage, program
from notewriter.ground.config import given
from notewriter.ground.errors import UserError, writing
from notewriter.models.adapters import groups, with_group
from notewriter.models.server import Server, free_ports, serve

POLL = 5.0
"""Seconds between checks of the server while a stage uses it."""

PATIENCE = 300.0
"""Seconds that a stage has to end when the pipeline is interrupted: training saves a checkpoint first."""


ATTEMPT = "attempt: "
"""How the line begins that a job (slurm/*.sbatch) prints at each start; the log goes on in the same file."""


def run_here(pipeline: Pipeline) -> None:
    """Run the stages in order, a line each, and print the output of the last one.

    Every stage is run again if it was finished before: its command decides what is left to do, and refuses to go on
    with other inputs.

    Raises:
        UserError: a stage fails; gives its reason and its log.
    """
    pipeline.logs.mkdir(parents=True, exist_ok=True)
    width = max(28, *(len(stage.title) + 1 for stage in pipeline.stages))
    began = time.monotonic()
    numbered = iter(enumerate(pipeline.stages, start=1))
    printed = ""
    for shared, group in _by_server(pipeline.stages):
        last_needed = max((index for index, stage in enumerate(group) if stage.missing()), default=-1)
        with contextlib.ExitStack() as serving:
            server = None
            for index, stage in enumerate(group):
                number, _ = next(numbered)
                skipped = stage.skipped()
                if shared and not server and not skipped and stage.missing():
                    # It logs a line of its own.
                    server = serving.enter_context(_serve(stage, pipeline.logs))
                sys.stdout.write(f"[{number:2}/{len(pipeline.stages)}] {stage.title:{width}}")
                sys.stdout.flush()
                if skipped:
                    sys.stdout.write(f"  skipped: {skipped}\n")
                    continue
                start = time.monotonic()
                try:
                    printed = _run_stage(stage, pipeline, server)
                    if index == last_needed:
                        # The next stage may need the memory.
                        serving.close()
                        server = None
                except UserError:
                    sys.stdout.write("\n")
                    raise
                sys.stdout.write(f"{time.monotonic() - start:6.0f} s  {_headline(printed)}\n")
    report = f"report: {pipeline.report}    " if pipeline.report else ""
    sys.stdout.write(f"\n{printed}\n{report}({time.monotonic() - began:.0f} s in total)\n")


def command_line(stage: Stage, shard: int | str = 1) -> list[str]:
    """The command of a stage that stands by itself: launched if it is training, with its own server if it asks one."""
    argv = stage.argv(shard)
    if stage.launch:
        return program(["accelerate", "launch", "--quiet", "--config_file", stage.launch, *argv])
    return program([*argv, *(["--serve", stage.serve] if stage.serve else [])])


def _by_server(stages: Sequence[Stage]) -> list[tuple[bool, list[Stage]]]:
    """Consecutive stages grouped by the server they can share, and whether they share one."""
    groups: list[tuple[bool, list[Stage]]] = []
    for key, members in itertools.groupby(stages, key=_server_of):
        group = list(members)
        groups.append((key is not None and sum(stage.shards for stage in group) > 1, group))
    return groups


def _server_of(stage: Stage) -> tuple[str, str] | None:
    """What tells the server of a stage from others; None if it has none to share."""
    if stage.serve is None:
        return None
    replicas = str(given(stage.argv()).get("replicas", 1))
    if not replicas.isdecimal():
        raise UserError(f"{stage.title}: --replicas {replicas}: is not a number; correct it")
    if int(replicas) > 1:
        return None
    return stage.serve, repr(sorted(stage.serve_options().items()))


def _serve(stage: Stage, logs: Path) -> contextlib.AbstractContextManager[Server]:
    """The server that a stage shares with its neighbours."""
    assert stage.serve is not None
    (group,) = groups([stage.serve])
    name = group.names[stage.serve]
    options = with_group(stage.serve_options(), group)
    log = logs / f"server-of-{name}.log"
    return serve(group.model, options, log=log, port=free_ports(1)[0], ready_timeout=stage.ready_timeout())


def _name(checkpoint: str) -> str:
    """The name of a checkpoint at the server that it has to itself."""
    return groups([checkpoint])[0].names[checkpoint]


def _run_stage(stage: Stage, pipeline: Pipeline, server: Server | None) -> str:
    """Run all shards of a stage, which ask the server if there is one; returns the standard output of the last one."""
    for shard in range(1, stage.shards + 1):
        # A finished stage starts a server of its own only if it has more to ask, as with --retry_errors.
        command = command_line(stage, shard)
        if server:
            checkpoint = str(stage.serve)
            command = [*program(stage.argv(shard)), "--base_url", server.base_url, "--model", _name(checkpoint)]
            command += ["--served", checkpoint]
        printed = _run(stage, command, pipeline.log(stage, shard), server)
    return printed


def _headline(output: str) -> str:
    """The first line of a stage's output that is neither a library's log nor a table."""
    return next((line for line in output.splitlines() if not line.startswith(("[", "|", "{"))), "")


def _environment(stage: Stage) -> dict[str, str]:
    """The environment of a stage's command: a training that needs one GPU sees one, as it has to."""
    one = {"CUDA_VISIBLE_DEVICES": "0"} if stage.launch and stage.needs.gpus == 1 else {}
    return one | os.environ


def _run(stage: Stage, command: list[str], log: Path, server: Server | None) -> str:
    """Run a stage's command with its output in `log`, keeping its server alive; returns its standard output."""
    with writing(log), open(log, "w", encoding="utf-8") as file:
        file.write(shlex.join(command) + "\n")
        file.flush()
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=_environment(stage),
        ) as process:
            try:
                printed = _wait(process, server)
            except BaseException:
                _end(process.pid)
                raise
        file.write(printed)
    if process.returncode:
        reason = last_error(log) or f"exited with code {process.returncode}"
        raise UserError(f"{stage.title}: {reason} (log: {log}); run the same command again to resume")
    return printed.strip()


def _end(pid: int) -> None:
    """End a stage and what it has started: servers, and the training that accelerate does not pass signals on to."""
    try:
        stage = psutil.Process(pid)
        members = [stage, *stage.children(recursive=True)]
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
    """The last error message in a stage's log since its last attempt began; empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    reason = ""
    for line in lines:
        if line.startswith("error: "):
            reason = line.removeprefix("error: ")
        elif line.startswith(ATTEMPT):
            reason = ""
    return reason


def _wait(process: subprocess.Popen[str], server: Server | None) -> str:
    """The standard output of a process; restarts the server if it dies meanwhile."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=POLL)[0]
        if server:
            server.ensure_alive()
