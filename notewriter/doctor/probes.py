"""Looks that import what may be broken, or wait for a disk or a network: each in a process of its own.

    python -m notewriter.doctor.probes NAME JSON

prints what it found as a JSON object, its last line. `probe` runs it with a time limit.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

Result = dict[str, Any]

BLOCK, BLOCKS = 1 << 22, 32
"""Bytes that are written to measure a disk: 32 x 4 MiB."""

PATIENCE_WITH_KILLED = 10.0
"""Seconds to wait for killed processes: they give back their memory first, or nobody collects them."""


def probe(name: str, patience: float, **options: Any) -> Result:
    """What a probe found; of one that fails, crashes or hangs, `error` and its last line or how it ended."""
    command = [sys.executable, "-m", "notewriter.doctor.probes", name, json.dumps(options)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            output, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            # Those of NCCL would go on, and hold their GPUs until they have ended, which is some time after the signal.
            started = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for each in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(started, timeout=PATIENCE_WITH_KILLED)
            return {"error": f"no answer within {patience:.0f} s"}
    if process.returncode < 0:
        return {"error": f"crashed (signal {-process.returncode})"}
    lines = (output if process.returncode == 0 else errors).strip().splitlines()
    if process.returncode:
        return {"error": lines[-1][:300] if lines else f"ended with {process.returncode}"}
    found: Result = json.loads(lines[-1])
    return found


def torch() -> Result:
    """PyTorch: its version, the CUDA that it is built for, the GPUs that it sees, and NCCL."""
    import torch

    cuda = torch.cuda.is_available()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": torch.cuda.device_count() if cuda else 0,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,
        "bfloat16": cuda and torch.cuda.is_bf16_supported(including_emulation=False),
    }


def attention() -> Result:
    """The FlashAttention that shared prompts use, on a small input; its error against attention in float32."""
    import torch
    from torch.nn.attention.varlen import varlen_attn

    torch.manual_seed(0)
    states = [torch.randn(64, heads, 64, device="cuda", dtype=torch.bfloat16) for heads in (8, 2, 2)]
    bounds = torch.tensor([0, 24, 64], dtype=torch.int32, device="cuda")
    query, key, value = states
    output: Any = varlen_attn(query, key, value, bounds, bounds, 40, 40, window_size=(-1, 0), enable_gqa=True)
    queries, keys, values = (state.float().transpose(0, 1)[None].split([24, 40], dim=2) for state in states)
    attend = torch.nn.functional.scaled_dot_product_attention
    parts = zip(queries, keys, values, strict=True)
    attended = [attend(query, key, value, is_causal=True, enable_gqa=True) for query, key, value in parts]
    exact = torch.cat(attended, dim=2)[0].transpose(0, 1)
    return {"relative_error": ((output.float() - exact).norm() / exact.norm()).item()}


def nccl(gpus: int) -> Result:
    """A sum over all GPUs by NCCL, each in a process of its own."""
    from torch.multiprocessing.spawn import spawn

    with tempfile.TemporaryDirectory() as folder:
        spawn(_sum, (gpus, f"file://{folder}/meet"), nprocs=gpus)
    return {"gpus": gpus}


def _sum(rank: int, gpus: int, meeting: str) -> None:
    import torch
    import torch.distributed

    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=meeting, rank=rank, world_size=gpus)
    total = torch.full((), float(rank), device="cuda")
    torch.distributed.all_reduce(total)
    torch.distributed.destroy_process_group()
    if total.item() != sum(range(gpus)):
        raise ArithmeticError(f"NCCL summed 0 to {gpus - 1} to {total.item()}")


def vllm() -> Result:
    """vLLM: its version, and the kind of device that it would serve on."""
    from vllm import __version__
    from vllm.platforms import current_platform

    return {"version": __version__, "device": current_platform.device_type or "none"}


def disk(folder: str) -> Result:
    """A folder's file system: its kind, whether machines share it, its free bytes, and how fast it is written."""
    import shutil

    from notewriter.models.cache import file_system_of, is_shared

    path = next(each for each in [Path(folder).absolute(), *Path(folder).absolute().parents] if each.is_dir())
    block = os.urandom(BLOCK)
    began = time.perf_counter()
    with tempfile.TemporaryFile(dir=path) as file:
        for _ in range(BLOCKS):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    kind = file_system_of(path)
    seconds = time.perf_counter() - began
    free = shutil.disk_usage(path).free
    return {"kind": kind, "shared": is_shared(kind), "free": free, "bytes_per_second": BLOCK * BLOCKS / seconds}


def hub() -> Result:
    """Whether the Hugging Face Hub answers, whether it is another one, and whether there is a token; never its text."""
    from huggingface_hub import constants, get_token

    from notewriter.models.hub import OWNER, SMALLEST, commit_on_hub

    own = "HF_ENDPOINT" in os.environ
    reached = commit_on_hub(f"{OWNER}/{SMALLEST}") is not None
    return {"own": own, "offline": constants.HF_HUB_OFFLINE, "reached": reached, "token": get_token() is not None}


def serving(model: str) -> Result:
    """The shape of a model that is to be served."""
    from dataclasses import asdict

    from trl import ModelConfig

    from notewriter.models.checkpoint import Checkpoint
    from notewriter.training.cost.cost_model import shape_of

    return asdict(shape_of(ModelConfig(Checkpoint(model).base.path)))


def training(recipe: str, model: str | None, gpus: int, sharding: str, prompt: int, completion: int) -> Result:
    """What each GPU holds in a training run by a recipe, over rows of such a prompt and completions."""
    from trl import ModelConfig

    from notewriter.ground import config
    from notewriter.models.processor import number_format
    from notewriter.training.cost import cost_model
    from notewriter.training.options import OPTIONS

    argv = ["--config", recipe, *(["--model_name_or_path", model] if model else []), "--fp16", "false"]
    folder = Path(recipe).parent.name
    method = folder if folder in OPTIONS else "dpo" if "pairs" in config.given(argv) else "sft"
    arguments, options, base = config.parse([*OPTIONS[method], ModelConfig], [*argv, "--bf16", "false"])
    row = (prompt, completion, completion) if method == "dpo" else (prompt, completion)
    load = cost_model.load_of([row], getattr(arguments, "prefix_sharing", False))
    machine = cost_model.MachineArguments(gpus=max(gpus, 1), sharding=sharding)
    half = cost_model.in_half_precision(argv) if gpus else number_format() == "bfloat16"
    return cost_model.estimate(cost_model.shape_of(base), load, machine, options, base, half)


PROBES: dict[str, Callable[..., Result]] = {
    each.__name__: each for each in (torch, attention, nccl, vllm, disk, hub, serving, training)
}


def main(argv: list[str]) -> None:
    """Run a probe and print what it found."""
    from notewriter.ground.errors import UserError, one_line

    name, options = argv
    try:
        found = PROBES[name](**json.loads(options))
    except UserError as error:
        sys.exit(one_line(error))
    # Libraries may print too.
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
