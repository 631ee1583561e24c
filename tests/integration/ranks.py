"""`accelerate launch` without what each process of a launch spends its time on: importing the libraries.

As a script it is one rank: `accelerate launch` up to the start of torchrun, or of a single process, in whose place it
runs the training's script itself.
`train` has each rank forked from a process that has imported all (`warm.py`).
"""

import os
import runpy
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 600

MODULES = (
    *("notewriter.training.dpo", "notewriter.training.sft", "notewriter.training.kto", "torch.distributed.run"),
    *("trl", "peft", "datasets", "deepspeed", "transformers.models.llama.modeling_llama"),
)
"""What each rank imports."""

OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets, and a single process is without."""


def train(
    program: Sequence[str], arguments: Sequence[str], environment: Mapping[str, str], log: Path, processes: int = 2
) -> list[int]:
    """Train by the arguments of `accelerate launch`; `log` gets what the ranks print. Returns their exit codes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*program, __file__, "--num_processes", str(processes), *arguments]
    count = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables = dict(environment) | {name: str(value) for name, value in count.items()}
    with log.open("w") as written:
        ranks = [
            subprocess.Popen(
                command,
                env=variables | {"RANK": number, "LOCAL_RANK": number},
                cwd=log.parent,
                stdout=written,
                stderr=written,
            )
            for number in map(str, range(processes))
        ]
        try:
            # None is stopped because another has failed: it has to notice.
            return [each.wait(SECONDS) for each in ranks]
        finally:
            for each in ranks:
                each.kill()
                each.wait()


def main() -> None:
    import torch.distributed.run
    from accelerate.commands import launch

    def run(arguments: Namespace) -> None:
        sys.argv = [arguments.training_script, *arguments.training_script_args]
        runpy.run_path(arguments.training_script, run_name="__main__")

    def run_alone(arguments: Namespace) -> None:
        _, environment = launch.prepare_simple_launcher_cmd_env(arguments)
        os.environ.update(environment)
        for name in OF_A_RANK:
            del os.environ[name]
        run(arguments)

    torch.distributed.run.run, launch.simple_launcher = run, run_alone
    launch.launch_command(launch.launch_command_parser().parse_args())


if __name__ == "__main__":
    main()
