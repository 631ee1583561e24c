"""`notewriter doctor`: what this machine is, whether what is installed fits it, and what would fit into its memory.

    notewriter doctor
    notewriter doctor --models '{"notes": "runs/checkpoint", "judge": "Qwen/Qwen2.5-7B-Instruct"}'
    notewriter doctor --train dpo/deepnote_qwen2.5-7b --sharding zero3
    notewriter doctor --json true

prints a page for people, or JSON for a report of a problem, with no secret, user name or host name in it. The exit
code is 1 if something is wrong. What may hang or crash runs in processes of their own, all at once, with a time limit.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import psutil
from annotated_types import Interval

from notewriter.doctor import machine
from notewriter.doctor.finding import Finding
from notewriter.doctor.packages import packages
from notewriter.doctor.probes import Result, probe
from notewriter.ground.config import parse
from notewriter.ground.errors import install
from notewriter.ground.terminal import escape_controls
from notewriter.models.gpus import GPU, visible_gpus
from notewriter.models.hub import SMALLEST
from notewriter.models.processor import number_format
from notewriter.models.serve_options import runs_on_cpu
from notewriter.models.server import DEFAULT_ENVIRONMENT

GIB = 1 << 30

VLLM_SHARE = 0.92
"""The part of a GPU that vLLM takes (`gpu_memory_utilization`)."""

BATCHED = 8192
"""Tokens that vLLM reads at once on a GPU, from which its activations follow (`max_num_batched_tokens`)."""

CONTEXT = 4096
"""Tokens of a request, for how many are in flight at once."""

ROOM = 10 * GIB
"""Free bytes that the quickstart needs of a disk, with room for a checkpoint."""

SLOW = 50e6
"""Bytes per second below which a disk makes runs wait."""

KV_CACHE = "VLLM_CPU_KVCACHE_SPACE"
"""The environment variable of the GiB that vLLM's cache has on a CPU."""

SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""Names of environment variables whose values are not shown."""


@dataclass
class DoctorArguments:
    """What to look at beside the machine."""

    json: bool = field(default=False, metadata={"help": "print JSON, for a report of a problem"})
    folder: str = field(default="runs", metadata={"help": "where runs go: the disk that is looked at"})
    models: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "role -> the folder or hub id of the model that is to play it, each served for itself"},
    )
    train: list[str] = field(
        default_factory=lambda: ["dpo/quickstart_smollm2"], metadata={"help": "recipes of training, files or names"}
    )
    sharding: str = field(default="none", metadata={"help": "what training divides among GPUs, as in preflight"})
    prompt_tokens: Annotated[int, Interval(ge=1)] = field(default=900, metadata={"help": "tokens of a trained prompt"})
    completion_tokens: Annotated[int, Interval(ge=1)] = field(
        default=70, metadata={"help": "tokens of a trained completion"}
    )
    patience: Annotated[float, Interval(gt=0)] = field(
        default=60.0, metadata={"help": "seconds that each look has that may hang"}
    )


def main(argv: list[str]) -> None:
    """Look, print, and end with 0 if nothing is wrong, else with 1."""
    (arguments,) = parse(DoctorArguments, argv, prog="notewriter doctor", description=__doc__)
    findings = [without_names(finding) for finding in look(arguments)]
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2) + "\n")
    else:
        sys.stdout.write(page(findings))
    if any(finding.state == "wrong" for finding in findings):
        sys.stdout.flush()
        sys.exit(1)


def look(arguments: DoctorArguments) -> list[Finding]:
    """Every finding, in the order of the page."""
    gpus = visible_gpus()
    uses_gpus = bool(gpus) and not runs_on_cpu()
    small = Path("models") / SMALLEST
    models = arguments.models or ({"policy": str(small)} if small.is_dir() else {})
    with ThreadPoolExecutor(16) as pool:

        def ask(name: str, **options: Any) -> Future[Result]:
            return pool.submit(probe, name, arguments.patience, **options)

        torch, vllm, hub = ask("torch"), ask("vllm"), ask("hub")
        disk = ask("disk", folder=arguments.folder)
        attention = ask("attention") if uses_gpus else None
        nccl = ask("nccl", gpus=len(gpus)) if uses_gpus else None
        served = {role: ask("serving", model=str(model)) for role, model in models.items()}
        trained = {
            recipe: ask(
                "training",
                recipe=recipe,
                model=str(small) if small.is_dir() and "smollm2" in recipe else None,
                gpus=len(gpus) if uses_gpus else 0,
                sharding=arguments.sharding,
                prompt=arguments.prompt_tokens,
                completion=arguments.completion_tokens,
            )
            for recipe in arguments.train
        }
        findings = [*machine.describe(gpus), *packages()]
    findings += torch_findings(torch.result(), gpus, uses_gpus)
    findings.append(vllm_finding(vllm.result(), uses_gpus))
    findings += kernels(attention.result(), nccl.result()) if attention and nccl else [NO_KERNELS]
    findings += [disk_finding(disk.result()), hub_finding(hub.result())]
    room = gpus[0].memory if uses_gpus else psutil.virtual_memory().total
    if not room:
        return [*findings, Finding("memory of a GPU", "note", "unknown, as of a slice of one; what fits is not known")]
    findings += [serving_finding(role, models[role], each.result(), room, uses_gpus) for role, each in served.items()]
    findings += [training_finding(recipe, each.result(), room) for recipe, each in trained.items()]
    return findings


def torch_findings(found: Result, gpus: Sequence[GPU], uses_gpus: bool) -> list[Finding]:
    """PyTorch, whether it is the build for this machine, and whether the driver runs it."""
    if error := found.get("error"):
        return [Finding("torch", "wrong", error, "make clean, then make setup (docs/install.md)")]
    built = f"for CUDA {found['cuda']}" if found["cuda"] else "for the CPU"
    text = f"{found['version']}, {built}"
    if gpus and not uses_gpus:
        return [Finding("torch", "note", f"{text}, beside a GPU", "to use it: make clean, then make setup MACHINE=gpu")]
    if not uses_gpus:
        return [Finding("torch", "ok", text)]
    if not found["cuda"]:
        return [Finding("torch", "wrong", f"{text}, beside a GPU", "make clean, then make setup MACHINE=gpu")]
    driver = machine.driver(gpus, found["cuda"])
    if found["gpus"] != len(gpus):
        seen = f"{text}, sees {found['gpus']} of {len(gpus)} GPUs"
        return [driver, Finding("torch", "wrong", seen, "nvidia-smi; python -c 'import torch; torch.zeros(1).cuda()'")]
    half = "bfloat16" if found["bfloat16"] else "no bfloat16, so training is in float32"
    return [driver, Finding("torch", "ok", f"{text}, sees {found['gpus']} GPUs, {half}, NCCL {found['nccl']}")]


def vllm_finding(found: Result, uses_gpus: bool) -> Finding:
    """VLLM, and whether it would serve where it should."""
    if error := found.get("error"):
        missing = "No module named 'vllm'" in error
        return Finding("vLLM", "wrong", error, install("gpu" if uses_gpus else "cpu") if missing else "docs/install.md")
    text = f"{found['version']}, serves on {found['device']}"
    if found["device"] != ("cuda" if uses_gpus else "cpu"):
        return Finding("vLLM", "wrong", text, "make clean, then make setup (docs/install.md)")
    return Finding("vLLM", "ok", text)


NO_KERNELS = Finding("kernels", "ok", "of the CPU: PyTorch's attention; NCCL is not needed")


def kernels(attention: Result, nccl: Result) -> list[Finding]:
    """The attention kernel of shared prompts and NCCL, both tried on the GPUs."""
    found = []
    if error := attention.get("error"):
        # Shared prompts then use PyTorch's slower attention.
        found.append(Finding("attention", "note", f"FlashAttention: {error}", "a GPU from Ampere on has it"))
    else:
        error = attention["relative_error"]
        right = error < 1e-2
        remedy = "" if right else "set prefix_sharing: false, and report it"
        found.append(Finding("attention", "ok" if right else "wrong", f"FlashAttention, error {error:.0e}", remedy))
    if error := nccl.get("error"):
        found.append(Finding("NCCL", "wrong", error, "NCCL_DEBUG=INFO notewriter doctor; docs/clusters.md"))
    else:
        found.append(Finding("NCCL", "ok", f"sums over {nccl['gpus']} GPUs"))
    return found


def disk_finding(found: Result) -> Finding:
    """The disk of the runs."""
    if error := found.get("error"):
        return Finding("disk", "wrong", error, "choose a folder that can be written with --output_dir")
    shared = ", shared between machines" if found["shared"] else ""
    free, speed = found["free"], found["bytes_per_second"]
    text = f"{found['kind'] or 'unknown kind'}{shared}, {free / GIB:.0f} GiB free, written at {speed / 1e6:.0f} MB/s"
    if free < ROOM:
        return Finding("disk", "wrong", text, f"free some space: {ROOM / GIB:.0f} GiB are needed")
    if speed < SLOW or found["shared"]:
        return Finding("disk", "note", text, "put the response cache on a local disk: export NOTEWRITER_CACHE=FILE")
    return Finding("disk", "ok", text)


def hub_finding(found: Result) -> Finding:
    """The Hugging Face Hub."""
    if error := found.get("error"):
        return Finding("Hub", "note", error, "give models as folders")
    place = "the one of HF_ENDPOINT" if found["own"] else "huggingface.co"
    token = f"a token is {'there' if found['token'] else 'not there'}"
    if found["offline"]:
        return Finding("Hub", "note", f"not asked (HF_HUB_OFFLINE); {token}", "give models as folders")
    if not found["reached"]:
        remedy = "give models as folders, or set HF_ENDPOINT or HTTPS_PROXY"
        return Finding("Hub", "note", f"{place} cannot be reached; {token}", remedy)
    return Finding("Hub", "ok", f"{place} answers; {token}")


def serving_finding(role: str, model: str, found: Result, room: int, uses_gpus: bool) -> Finding:
    """Whether a model can be served here: its weights, vLLM's activations, and what is left for the cache."""
    name = f"serve {role}"
    if error := found.get("error"):
        return Finding(
            name, "note", f"{Path(model).name}: {error}", "give a folder, or a hub id where it can be reached"
        )
    width = 2 if uses_gpus or number_format() == "bfloat16" else 4
    weights = found["parameters"] * width
    inside = BATCHED * (4 * found["hidden"] + 2 * found["intermediate"] + 2 * found["key_value"]) * width
    token = 2 * found["layers"] * found["key_value"] * width
    if uses_gpus:
        cache = VLLM_SHARE * room - weights - inside
    else:
        cache = min(int(os.environ.get(KV_CACHE) or DEFAULT_ENVIRONMENT[KV_CACHE]) * GIB, room - weights - inside)
    held = f"{Path(model).name}: weights {weights / GIB:.1f} GiB, activations {inside / GIB:.1f}"
    if cache < CONTEXT * token:
        devices = 2
        while uses_gpus and VLLM_SHARE * room * devices - weights - inside < CONTEXT * token * 8:
            devices *= 2
        remedy = f"--serve_options '{{\"tensor_parallel_size\": {devices}}}'" if uses_gpus else "a smaller model"
        return Finding(name, "wrong", f"{held}: does not fit into {room / GIB:.0f} GiB", remedy)
    requests = int(cache / token / CONTEXT)
    return Finding(name, "ok", f"{held}, cache {cache / GIB:.1f}: {requests} requests of {CONTEXT} tokens at once")


def training_finding(recipe: str, found: Result, room: int) -> Finding:
    """Whether a recipe can be trained here, by the estimate before a run."""
    name = f"train {Path(recipe).name.removesuffix('.yaml')}"
    if error := found.get("error"):
        return Finding(name, "note", error, "give a recipe of `notewriter fetch recipe`, and models as folders")
    parts = {**found["held"], "activations and more": max(found["moments"].values())}
    listed = ", ".join(f"{part} {size / GIB:.1f}" for part, size in parts.items() if size)
    text = f"{found['total'] / GIB:.1f} GiB ({listed})"
    # What libraries hold besides.
    if 1.2 * found["total"] > room:
        remedy = "--sharding zero3 on several GPUs, a LoRA recipe, or gradient_checkpointing; see notewriter preflight"
        return Finding(name, "wrong", f"{text}, with a fifth more for libraries, of {room / GIB:.0f}", remedy)
    return Finding(name, "ok", f"{text} of {room / GIB:.0f}")


def page(findings: Sequence[Finding]) -> str:
    """The findings for the terminal, each with its remedy below."""
    signs = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{signs[finding.state]}  {finding.name:{width}}  {finding.found}")
        lines += [f"{'':{width + 9}}-> {finding.remedy}"] if finding.remedy else []
    wrong = sum(finding.state == "wrong" for finding in findings)
    lines.append(f"\n{wrong or 'nothing'} wrong; memory is computed, not measured")
    return escape_controls("\n".join(lines)) + "\n"


def without_names(finding: Finding) -> Finding:
    """A finding without the names of user and machine, passwords of addresses, and the values of secret variables."""
    home = os.path.expanduser("~")
    user = os.environ.get("USER") or os.path.basename(home)
    # With or without its domain, as NCCL prints it.
    host = socket.gethostname().partition(".")[0]
    secrets = [value for key, value in os.environ.items() if SECRET.search(key) and len(value) > 5]

    def plain(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        text = text.replace(home, "~") if len(home) > 1 else text
        # A user may be called as an ordinary word.
        text = re.sub(rf"(?<=/){re.escape(user)}\b", "user", text) if user else text
        # Of a proxy or a mirror of the Hub.
        text = re.sub(r"(?<=://)[^/\s@]+@", "***@", text)
        return re.sub(rf"\b{re.escape(host)}(?:\.[\w-]+)*\b", "host", text)

    return replace(finding, found=plain(finding.found), remedy=plain(finding.remedy))
