"""The command that measures on a GPU, tried without one."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_command_starts_before_any_package_is_installed():
    """`-S` hides what is installed."""
    command = [sys.executable, "-S", "benchmarks/gpu.py", "--list"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert names[0] == "ceiling/bfloat16"


@pytest.mark.integration
def test_the_command_runs_on_the_cpu_at_toy_sizes(tmp_path):
    output = tmp_path / "results.jsonl"
    options = ["--device", "cpu", "--toy", "--minutes", "5", "--output", str(output), "--only"]
    options.append(
        "^(ceiling/float32|right/Qwen2.5-7B/ragged/(fp32|LoRA)|(fast|profile)/Qwen2.5-7B/LoRA/2000.100/batch 1/s)"
    )
    command = [sys.executable, "benchmarks/gpu.py", *options]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    header, *records = (json.loads(line) for line in io.StringIO(output.read_text()))
    assert "benchmarks/gpu.py" in header["header"]["command"]
    assert [record["outcome"] for record in records] == ["measured"] * 5, printed
    assert "## Speed and memory" in printed

    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.read_text().count("\n") == 6
    assert "measured, right" not in again
