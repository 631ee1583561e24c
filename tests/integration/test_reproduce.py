"""From an empty folder to each paper's main table by the real commands.

A stand-in of the Hub has tiny files with the names and formats of the published ones, and a scripted server stands in for
vLLM. So what is not tested here is the network, the sizes and what models say.
"""

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_hub import serving
from published_files import publish, wiki18
from tiny_encoders import save_encoder, save_reranker

from notewriter.experiments.grid import Substitutes, read_grid

pytest.importorskip("faiss", reason="needs the extra `dense`")
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SMALL = ["--check", "false", "--options", '{"question_set": null, "concurrency": 8}']
"""The published sets of questions name those of the published files."""

STAND_IN = "someone/Small-1B"
NOTES = ["frames/*", "hotpotqa/*", "multihoprag/*", *(["fanoutqa/*"] if find_spec("fanoutqa") else [])]
"""FanOutQA's scorer is a package of its own."""

TABLES = {
    "deepnote/table_1": ["--cells", "*/Llama-3.1-8B-Instruct"],
    # GPT-4o judges and answers in this paper, GPT-4 judges in the next.
    "rearag/table_1": ["--model", STAND_IN],
    "noteswriting/table_2": ["--model", STAND_IN, "--cells", *NOTES],
    "resp/table_2": [],
    "search_r1/seven_sets": [],
}


def served() -> set[str]:
    """The hub ids of all models that the tables serve, the stand-in among them."""
    names = {STAND_IN}
    for table in TABLES:
        for cell in read_grid(Path(f"papers/{table}"), {}, Substitutes()).cells:
            roles = [cell.options, *cell.options.get("models", {}).values()]
            names |= {each["serve"] for each in roles if each.get("serve")}
    return {name for name in names if "{{" not in name}


@pytest.fixture(scope="module")
def hub(tmp_path_factory, tiny_model):
    """A hub with everything that the tables need."""
    folder = tmp_path_factory.mktemp("published")
    encoder = save_encoder(folder / "intfloat/e5-base-v2")
    encoders = dict.fromkeys(
        ["intfloat/e5-base-v2", "BAAI/bge-base-en-v1.5", "sentence-transformers/gtr-t5-xxl"], encoder
    )
    reranker = {"BAAI/bge-reranker-v2-m3": save_reranker(folder / "reranker")}
    models = dict.fromkeys(served(), tiny_model) | encoders | reranker
    with serving() as server:
        publish(server, models, vectors_of(folder, encoder))
        yield server


def vectors_of(folder: Path, encoder: Path) -> bytes:
    """A flat index of FAISS of wiki-18's passages."""
    import faiss
    import numpy as np

    (folder / "wiki-18.jsonl").write_bytes(wiki18())
    for command in (
        ["corpus", "--source", "wiki-18", "--path", folder / "wiki-18.jsonl", "--output_dir", folder / "corpus"],
        ["index", "--path", folder / "corpus/corpus.jsonl", "--index", folder / "index", "--encoder", encoder],
    ):
        notewriter(folder, os.environ | {}, *map(str, command))
    rows = np.fromfile(folder / "index/embeddings.float32", dtype=np.float32).reshape(-1, 32)
    index = faiss.IndexFlatIP(32)
    index.add(rows)
    faiss.write_index(index, str(folder / "flat.index"))
    return (folder / "flat.index").read_bytes()


def notewriter(folder: Path, environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "-m", "notewriter.cli", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def environment(hub, vllm_package, tmp_path):
    """That of a machine on which nothing was fetched, with the stand-ins for the Hub and for vLLM."""
    return (
        os.environ
        | hub.environment(tmp_path / "home")
        | {
            "PYTHONPATH": f"{vllm_package}:{ROOT}:{ROOT / 'tests'}",
            "VLLM_TOLD": str(tmp_path / "told.txt"),
            "VLLM_REPLY": "pleasing",
            "OMP_NUM_THREADS": "1",
            "HF_TOKEN": "",
        }
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_table_comes_from_an_empty_folder(table, environment, tmp_path):
    options = [f"papers/{table}", *TABLES[table], *SMALL]
    plan = notewriter(tmp_path, environment, "reproduce", *options, "--dry_run", "true")
    assert "GPU hours" in plan and not (tmp_path / "runs").exists()
    printed = notewriter(tmp_path, environment, "reproduce", *options)
    page = (tmp_path / f"runs/papers/{table.replace('/', '_')}.md").read_text()
    assert page in printed or "failed" not in page
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert rows and "published" in rows[0]
