"""Every line of a published model's card does what it says, as it stands: against a Hub here and a real vLLM."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from fake_hub import REPO, TOKEN, Hub
from huggingface_hub import constants
from peft import LoraConfig, get_peft_model
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from notewriter.models.server import DEFAULT_ENVIRONMENT, free_ports
from notewriter.training.publishing import publish

pytestmark = pytest.mark.integration

BASE = "owner/tiny"
HERE = {"METHOD": "direct", "DATASET": "jsonl", "QUESTIONS": "questions.jsonl", "RUN": "run"}
"""What a reader puts in place of the words in capitals; this method has no index."""

SMALL = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "2048"]


@pytest.fixture
def hub(monkeypatch):
    with Hub() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
        server.shutdown()


@pytest.fixture
def base(tiny_model, tmp_path):
    """The tiny model with heads of a size that vLLM has, and room for a prompt."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = LlamaConfig.from_pretrained(
        tiny_model, num_attention_heads=1, num_key_value_heads=1, head_dim=32, max_position_embeddings=2048
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def record(folder: Path) -> None:
    (folder / "training.json").write_text(json.dumps({"schema": "notewriter/training/1", "base_model": BASE}))


def commands(card: str) -> list[list[str]]:
    """The lines of the card's shell blocks, with a reader's words in place of those in capitals."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", card, re.DOTALL) for line in block.splitlines() if line]
    return [[HERE.get(word, word) for word in shlex.split(line.replace(" --index INDEX", ""))] for line in lines]


def check_serving(command: list[str], model: str, environment: dict[str, str], folder: Path) -> None:
    """Start vLLM by a line of a card, with what a small machine needs, and ask it."""
    (port,) = free_ports(1)
    # The program `vllm` of the package for CPUs does not find its own version; on GPUs it starts this module.
    server = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model"]
    program = [*server, *command[2:], *SMALL, "--port", str(port)]
    with open(folder / "vllm.log", "wb") as log:
        process = subprocess.Popen(program, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder)
    try:
        body = {"model": model, "messages": [{"role": "user", "content": "the town"}], "max_tokens": 4}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(600):
            assert process.poll() is None, (folder / "vllm.log").read_text()[-3000:]
            try:
                with opener.open(request) as reply:
                    assert json.load(reply)["usage"]["completion_tokens"] > 0
                return
            except (ConnectionError, urllib.error.URLError):
                time.sleep(0.5)
        raise AssertionError("vLLM does not answer")
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("kind", ["adapter", "whole"])
def test_every_line_of_a_card_works_as_it_stands(hub, base, tmp_path, kind):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    files = {path.name: path.read_bytes() for path in base.iterdir()}
    hub.repository("model", BASE).branches["main"] = files
    checkpoint = base
    if kind == "adapter":
        checkpoint = tmp_path / "lora"
        # The rank of every LoRA recipe, which vLLM takes only when it is told.
        lora = LoraConfig(r=32, target_modules="all-linear", init_lora_weights=False)
        get_peft_model(LlamaForCausalLM.from_pretrained(base), lora).save_pretrained(checkpoint)
        settings = json.loads((checkpoint / "adapter_config.json").read_text())
        (checkpoint / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": BASE}))
        AutoTokenizer.from_pretrained(base).save_pretrained(checkpoint)
    record(checkpoint)
    publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO))
    card = hub.arrived()["README.md"].decode()

    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "questions.jsonl").write_text('{"id": "1", "question": "the town", "answers": ["river"]}\n')
    cache = {"NOTEWRITER_CACHE": str(folder / "cache.sqlite"), "HF_TOKEN": TOKEN}
    environment = {**os.environ, **DEFAULT_ENVIRONMENT, **hub.environment(folder), **cache}
    served, *others = commands(card)
    assert served[:2] == ["vllm", "serve"]
    check_serving(served, REPO.split("/")[1] if kind == "adapter" else REPO, environment, folder)
    assert [command[:2] for command in others] == [["notewriter", "merge"]] * (kind == "adapter") + [
        ["notewriter", "evaluate"]
    ]
    for command in others:
        more = [] if command[1] == "merge" else ["--serve_options", '{"max_model_len": 2048}', "--max_tokens", "8"]
        program = [str(Path(sys.executable).with_name("notewriter")), *command[1:], *more]
        done = subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    assert "1 questions, 0 errors" in done.stdout
