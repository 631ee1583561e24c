"""`accelerate launch` for a node of a cluster, with the same options: it passes signals on and shows the first failure.

    python -m notewriter.training.run.launcher --config_file configs/accelerate/zero3.yaml --log_dir logs \
        training/train_dpo.py ...

- SIGUSR1 and SIGTERM reach the ranks, which save a checkpoint and stop, as long as that takes; `accelerate launch`
  kills them after 30 seconds, and dies of SIGUSR1. The exit code is then 75 (`signals.STOPPED`), and `log_dir` has the
  file `stopped`.
- The ranks of a node log into a folder of its name in `log_dir`, which nodes may share.
- When ranks fail, the end of the log of the one that failed first comes last, and is written into `log_dir` as
  `failed-TIME-NODE-rankN.txt`: over all nodes, the first of these names is the cause.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import psutil
from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from notewriter.ground.errors import run
from notewriter.training import launch_file
from notewriter.training.run.signals import SIGNALS, STOPPED

SAVING = 3600
"""Seconds in which the ranks may save a checkpoint; the cluster ends them earlier."""

LINES = 40
"""Lines of the log of the rank that failed first: one screen."""


def launch(argv: list[str]) -> int:
    """Launch the processes of this node and wait for them; returns the exit code.

    Raises:
        UserError: a run cannot be right with the launch file (`launch_file.check_file`).
    """
    # By default DeepSpeed's own launcher would start the other machines, each of which runs this.
    arguments = launch_command_parser().parse_args(["--deepspeed_multinode_launcher", "standard", *argv])
    if arguments.config_file:
        launch_file.check_file(Path(arguments.config_file))
    launch_file.forget_others()
    logs = Path(arguments.log_dir or tempfile.mkdtemp(prefix="notewriter-"))
    # Nodes may share the folder, and each numbers its processes from 0.
    arguments.log_dir = str(logs / node_name())
    # Standard output and error of each rank go to the console and to a file.
    arguments.tee = "3"
    # Or a single process's exit code would be lost.
    arguments.quiet = False
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SAVING))
    for number in SIGNALS:
        signal.signal(number, _forward)
    code = _run(arguments, logs)
    if code == STOPPED:
        # srun may hide the exit code of one node behind that of another.
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "stopped").touch()
    return code


def node_name() -> str:
    """This node's name in the cluster."""
    return os.environ.get("SLURMD_NODENAME", socket.gethostname())


def _run(arguments: argparse.Namespace, logs: Path) -> int:
    try:
        launch_command(arguments)
    except ChildFailedError as error:
        if any(failure.exitcode == STOPPED for failure in error.failures.values()):
            return STOPPED
        return show_first_failure(error.failures, logs)
    except SignalException:
        # torchrun's own handler has passed SIGTERM on and waited.
        return STOPPED
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


def _forward(number: int, frame: FrameType | None) -> None:
    for child in psutil.Process().children():
        child.send_signal(number)


def show_first_failure(failures: dict[int, ProcessFailure], logs: Path) -> int:
    """Show which rank failed first and the end of its log; returns its exit code, or 1 if a signal killed it."""

    node = node_name()

    def log(failure: ProcessFailure) -> Path | None:
        ours = (logs / node).glob(f"*/attempt_*/{failure.local_rank}/stderr.log")
        return max(ours, key=_written, default=None)

    def moment(failure: ProcessFailure) -> float:
        # The failure's own timestamp is in whole seconds, too coarse to order the ranks; that of the file of the error
        # is not, and is earlier than anything that other ranks notice.
        file = log(failure)
        if file and (noted := file.with_name("error.json")).is_file():
            return _written(noted)
        # Without one, as when the training did not begin, the log's last line has to do. A rank that was killed writes
        # neither; torchrun ends with SIGTERM those that are left, after another one has failed.
        if file is None or failure.exitcode < 0:
            return float(failure.timestamp + (failure.exitcode == -signal.SIGTERM))
        return _written(file)

    rank, failure = min(failures.items(), key=lambda item: moment(item[1]))
    file = log(failure)
    end = file.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES:] if file else []
    how = f"by {failure.signal_name()}" if failure.exitcode < 0 else f"with exit code {failure.exitcode}"
    title = f"rank {rank} on {node} failed first, {how}; {'the end of its log' if end else 'it has no log'}:"
    screen = "\n".join([title, *(f"  {line}" for line in end), f"all logs: {logs}"]) + "\n"
    (logs / f"failed-{moment(failure):.3f}-{node}-rank{rank}.txt").write_text(screen, encoding="utf-8")
    sys.stderr.write(screen)
    return max(failure.exitcode, 1)


def _written(file: Path) -> float:
    return file.stat().st_mtime


if __name__ == "__main__":
    run(lambda: sys.exit(launch(sys.argv[1:])))
