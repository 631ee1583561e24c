"""`notewriter train dpo|kto|sft`: start the processes of a training run on this machine, from any folder.

    notewriter train dpo --config dpo/deepnote_qwen2.5-7b_lora --pairs data/pairs --output_dir runs/dpo
    notewriter train dpo --accelerate zero3 --config dpo/deepnote_qwen2.5-7b --pairs data/pairs --output_dir runs/dpo
    notewriter train sft --accelerate zero3 --config sft/rearag_glm4-9b --data data/chains --output_dir runs/sft

`notewriter train dpo --help`, and so on, lists the options of training. An interrupted run resumes from its last
checkpoint when the same command is given again. SIGTERM and SIGUSR1 save a checkpoint first; the exit code is then 75.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Mapping
from ctypes.util import find_library
from typing import Any

import psutil
import torch

from notewriter.ground.config import choose
from notewriter.ground.parser import Parser
from notewriter.ground.yaml_files import read_mapping
from notewriter.models.nodes import visible_devices
from notewriter.training.profiles import PROFILES, SEVERAL_MACHINES, profile, profiles
from notewriter.training.run.launcher import launch

METHODS = ("dpo", "kto", "sft")
"""Each a module of this package."""

ALLOCATOR = "tcmalloc_minimal"
"""A library that hands freed memory out again, where it is installed. By default glibc maps every large tensor anew, so
that each step of training on a CPU has the kernel clear the same gigabytes page by page."""


def main(argv: list[str]) -> None:
    """Command `notewriter train`.

    Raises:
        UserError: the method or the profile is unknown, or the profile cannot be read.
        SystemExit: the training failed or was stopped, with its exit code.
    """
    parser = _parser()
    method, *rest = argv or ["--help"]
    if method in {"-h", "--help"}:
        sys.stdout.write(parser.format_help())
        return
    module = choose("training method", method, {name: f"notewriter.training.{name}" for name in METHODS})
    options, training = parser.parse_known_args(rest)
    if {"-h", "--help"} & set(training):
        sys.stdout.write(parser.format_help() + "\n")
        importlib.import_module(module).main(["--help"])
    file = profile(options.accelerate or default_profile())
    settings: dict[str, Any] = read_mapping(file)[1]
    # A file of one's own has the machines and processes that `accelerate config` asked for.
    is_profile = file.resolve().parent == PROFILES
    told = options.num_processes or (processes_of(settings, options.num_machines or 1) if is_profile else None)
    processes = told or settings.get("num_processes")
    command = ["--config_file", str(file)]
    if told:
        command += ["--num_processes", str(told)]
    if processes == 1 and not settings.get("use_cpu") and torch.cuda.device_count() > 1:
        # One process that sees several GPUs would divide each batch among them (`options.check_devices`).
        os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(0, 1)
    if settings.get("use_cpu"):
        if allocator := find_library(ALLOCATOR):
            os.environ.setdefault("LD_PRELOAD", allocator)
        if not os.environ.get("OMP_NUM_THREADS"):
            # The number that accelerate would take too, with a warning.
            here = max(1, (processes or 1) // (options.num_machines or settings.get("num_machines") or 1))
            threads = max(1, (psutil.cpu_count(logical=False) or 1) // here)
            command += ["--num_cpu_threads_per_process", str(threads)]
    for name in ("log_dir", *SEVERAL_MACHINES):
        if (value := getattr(options, name)) is not None:
            command += [f"--{name}", str(value)]
    if code := launch([*command, "--module", module, *training]):
        sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="notewriter train",
        usage=f"notewriter train {'|'.join(METHODS)} [--accelerate NAME] --config FILE [options of training]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # An abbreviation could be meant for the training.
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument(
        "--accelerate",
        metavar="NAME",
        help=f"how processes share the work: {', '.join(profiles())}, or a file that `accelerate config` wrote; by "
        "default cpu, single or ddp, whichever this machine is",
    )
    parser.add_argument(
        "--num_processes",
        type=int,
        metavar="N",
        help="number of processes; default: one for each GPU, or the number in your own file",
    )
    parser.add_argument("--log_dir", metavar="FOLDER", help="the folder in which each process writes its log")
    for name, text in SEVERAL_MACHINES.items():
        kind = str if name.endswith("ip") else int
        parser.add_argument(f"--{name}", type=kind, metavar=name.rpartition("_")[2].upper(), help=text)
    return parser


def default_profile() -> str:
    """The profile for what this machine has: no GPU, one, or several."""
    gpus = torch.cuda.device_count()
    return "ddp" if gpus > 1 else "single" if torch.accelerator.is_available() else "cpu"


def processes_of(settings: Mapping[str, Any], machines: int) -> int:
    """The number of a profile's processes over all machines: one for each GPU, or its own figure for one machine."""
    processes = int(settings.get("num_processes") or 1)
    gpus = 0 if settings.get("use_cpu") else torch.cuda.device_count()
    return (gpus if processes > 1 and gpus else processes) * machines
