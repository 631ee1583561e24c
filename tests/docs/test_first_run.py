"""The single commands of a first run, pasted as they stand into an empty folder; a scripted endpoint is the model."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from fake_endpoint import fake_endpoint

from notewriter.fetching.model import HUB_ID

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/step_by_step.md").read_text()


def test_the_first_run_gives_an_index_pairs_a_score_and_a_report(tmp_path: Path):
    for file, text in re.findall(r"^```json file=(\S+)\n(.*?)^```$", PAGE, re.M | re.S):
        (tmp_path / file).write_text(text)
    (shell,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    lines = shell.replace("\\\n", " ").splitlines()
    # Set-up and the model need a network; tests/fetching/test_model.py has the second.
    model = "models/SmolLM2-135M-Instruct"
    assert lines[:2] == ["make setup", f".venv/bin/notewriter fetch model {HUB_ID} --output_dir {model}"]

    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with fake_endpoint(reply=lambda request: "Tolen was founded by Mira Tolen.") as endpoint:
        for line in lines[2:]:
            served = "--serve models/SmolLM2-135M-Instruct"
            line = line.replace(served, f"--base_url {endpoint.base_url} --model {endpoint.model}")
            program, *arguments = shlex.split(line)
            assert program == ".venv/bin/notewriter"
            command = [sys.executable, "-m", "notewriter.cli", *arguments]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr

    stats = json.loads((tmp_path / "runs/pairs/mine/stats.json").read_text())
    assert stats["stages"]["deepnote/init_note"]["pairs"] == 2
    assert json.loads((tmp_path / "runs/mine/metrics.json").read_text())["metrics"]["em"]["mean"] == 0.0
    assert (tmp_path / "runs/mine.html").exists()
