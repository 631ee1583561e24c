"""A hub on this machine, and what a training run and a construction leave on disk."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import TOKEN, Hub
from huggingface_hub import constants
from metrics_file import write_metrics
from pair_rows import row
from parquet_files import write_rows
from stats_file import write_stats

from notewriter.artifacts.chains import COLUMNS as CHAIN_COLUMNS
from notewriter.artifacts.chains import Conversation
from notewriter.artifacts.pairs import COLUMNS


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        # Its own storage protocol is the hub's alone; plain HTTP uploads are what every endpoint speaks.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
        server.shutdown()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder as a training run leaves it: the model, the record, and what is of use to nobody else."""
    folder = tmp_path / "runs" / "dpo"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"/home/user": 1}}}')
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{% generation %}")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 300)
    record = {
        "schema": "notewriter/training/1",
        "method": "dpo",
        "base_model": "Qwen/Qwen2.5-7B-Instruct",
        "parameters": "full",
        "pairs": str(tmp_path / "pairs"),
        "pairs_sha256": "d" * 64,
        "rows": {"train": {"deepnote/init_note": 70, "deepnote/answer": 30}, "dev": {"deepnote/answer": 5}},
        "hyperparameters": {"beta": 0.1, "learning_rate": 5e-7, "loss_type": ["sigmoid"]},
        "steps": 26,
        "metrics": {"train_loss": 0.61234, "rewards/accuracies": 0.75, "epoch": 1.0},
        "versions": {"trl": "1.16.0"},
    }
    (folder / "training.json").write_text(json.dumps(record))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "trainer_state.json", ".env"):
        (folder / name).write_text("stays")
    (folder / "README.md").write_text("the trainer's own card")
    for name in ("checkpoint-10", "wandb", ".cache"):
        (folder / name).mkdir()
        (folder / name / "model.safetensors").write_bytes(b"stays")
    return folder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A folder as `notewriter pairs` leaves it."""
    folder = tmp_path / "runs" / "pairs"
    return write_dataset(folder, "pairs", {"train": 3, "dev": 1})


@pytest.fixture
def chains(tmp_path: Path) -> Path:
    """A folder as `notewriter chains` leaves it."""
    folder = tmp_path / "runs" / "chains"
    return write_dataset(folder, "chains", {"train": 2, "dev": 1})


def write_dataset(folder: Path, kind: str, counts: dict[str, int]) -> Path:
    folder.mkdir(parents=True)
    for split, count in counts.items():
        if kind == "pairs":
            write_rows(folder / f"{split}.parquet", COLUMNS, [row(number) for number in range(count)])
        else:
            write_rows(folder / f"{split}.parquet", CHAIN_COLUMNS, [chain(number) for number in range(count)])
    write_stats(folder, kind, **{kind: counts})
    files = "".join(f"  - split: {split}\n    path: {split}.parquet\n" for split in counts)
    (folder / "README.md").write_text(
        f"---\nlicense: cc-by-sa-4.0\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n\n# Rows\n"
    )
    (folder / "config.yaml").write_text("seed: 1\n")
    for name in ("journal.jsonl", "cache.sqlite", "notes.parquet"):
        (folder / name).write_text("stays")
    return folder


def chain(number: int) -> Conversation:
    roles = ("user", "assistant", "user", "assistant")
    return {
        "schema": "notewriter/chain/1",
        "messages": [{"role": role, "content": f"{role} {number}"} for role in roles],
        "question_id": f"q{number}",
        "dataset": "jsonl",
        "f1": 1.0,
        "steps": 2,
    }


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    return write_metrics(tmp_path / "metrics.json")
