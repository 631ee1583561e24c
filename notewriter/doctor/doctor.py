"""`notewriter doctor`: whether this machine is ready: versions, GPUs, one forward pass of a model, and the disk.

    notewriter doctor
    notewriter doctor --json true

prints a page for people, or JSON for a report of a problem, with no secret, user name or host name in it. The exit
code is 1 if something is wrong. What may hang or crash runs in processes of their own, all at once, with a time limit.
What a run needs is estimated by `notewriter preflight`, and by the dry run of each command.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from annotated_types import Interval

from notewriter.doctor import machine
from notewriter.doctor.machine import GIB, Finding
from notewriter.doctor.probes import Result, probe
from notewriter.ground.config import parse
from notewriter.ground.errors import install
from notewriter.ground.options import option
from notewriter.ground.terminal import escape_controls
from notewriter.models.gpus import GPU, visible_gpus
from notewriter.models.serve_options import runs_on_cpu

ROOM = 10 * GIB
"""Free bytes that the quickstart needs of a disk, with room for a checkpoint."""

SLOW = 50e6
"""Bytes per second below which a disk makes runs wait."""

WRONG = 0.05
"""The relative error from which a forward pass in bfloat16 is wrong; it is 0.005 to 0.01 where it is right."""

SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""Names of environment variables whose values are not shown."""


@dataclass
class DoctorArguments:
    """The options of `notewriter doctor`."""

    json: bool = option(False, "print JSON, for a report of a problem")
    folder: str = option("runs", "the folder for runs, whose disk is checked")
    patience: Annotated[float, Interval(gt=0)] = option(60.0, "time limit in seconds of each check that may hang")


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
    looks = [("torch",), ("vllm",), ("disk", arguments.folder)]
    with ThreadPoolExecutor() as pool:
        torch, vllm, disk = pool.map(lambda each: probe(each[0], arguments.patience, *each[1:]), looks)
    return [
        *machine.describe(gpus),
        *torch_findings(torch, gpus, uses_gpus),
        vllm_finding(vllm, uses_gpus),
        disk_finding(disk),
    ]


def torch_findings(found: Result, gpus: Sequence[GPU], uses_gpus: bool) -> list[Finding]:
    """PyTorch, whether it is the build for this machine, whether the driver runs it, and whether it computes right."""
    if error := found.get("error"):
        return [Finding("torch", "wrong", error, "make clean, then make setup (docs/install.md)")]
    text = f"{found['version']}, {'for CUDA ' + found['cuda'] if found['cuda'] else 'for the CPU'}"
    error = f"error of a forward pass in bfloat16 {found['relative_error']:.0e}"
    if not found["relative_error"] < WRONG:
        return [Finding("torch", "wrong", f"{text}, {error}", "make clean, then make setup; nvidia-smi")]
    if gpus and not uses_gpus:
        return [Finding("torch", "note", f"{text}, beside a GPU", "to use it: make clean, then make setup MACHINE=gpu")]
    if not uses_gpus:
        return [Finding("torch", "ok", f"{text}, {error}")]
    if not found["cuda"]:
        return [Finding("torch", "wrong", f"{text}, beside a GPU", "make clean, then make setup MACHINE=gpu")]
    driver = machine.driver(gpus, found["cuda"])
    seen = f"{text}, sees {found['gpus']} of {len(gpus)} GPUs"
    if found["gpus"] != len(gpus):
        return [driver, Finding("torch", "wrong", seen, "nvidia-smi; python -c 'import torch; torch.zeros(1).cuda()'")]
    return [driver, Finding("torch", "ok", f"{seen}, {error}")]


def vllm_finding(found: Result, uses_gpus: bool) -> Finding:
    """vLLM, and whether it would serve on the right device."""
    if error := found.get("error"):
        missing = "No module named 'vllm'" in error
        return Finding("vLLM", "wrong", error, install("gpu" if uses_gpus else "cpu") if missing else "docs/install.md")
    text = f"{found['version']}, serves on {found['device']}"
    if found["device"] != ("cuda" if uses_gpus else "cpu"):
        return Finding("vLLM", "wrong", text, "make clean, then make setup (docs/install.md)")
    return Finding("vLLM", "ok", text)


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


def page(findings: Sequence[Finding]) -> str:
    """The findings for the terminal, each with its remedy below."""
    signs = {"ok": "ok   ", "note": "note ", "wrong": "WRONG"}
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{signs[finding.state]}  {finding.name:{width}}  {finding.found}")
        lines += [f"{'':{width + 9}}-> {finding.remedy}"] if finding.remedy else []
    wrong = sum(finding.state == "wrong" for finding in findings)
    lines.append(f"\n{wrong or 'nothing'} wrong")
    return escape_controls("\n".join(lines)) + "\n"


def without_names(finding: Finding) -> Finding:
    """A finding without the names of user and machine, passwords of addresses, and the values of secret variables."""
    home = os.path.expanduser("~")
    user = os.environ.get("USER") or os.path.basename(home)
    # With or without its domain, as libraries print it.
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
