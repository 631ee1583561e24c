"""From an empty folder to each paper's main table by the real commands.

A stand-in of the Hub has tiny files with the names and formats of the published ones, and a scripted server stands in
for vLLM. So what is not tested here is the network, the sizes and what models say.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fake_hub import serving
from published_files import publish, wiki18
from tiny_encoders import save_encoder, save_reranker

from notewriter.results.paper_table import Substitutes, read_table

pytest.importorskip("faiss", reason="needs the extra `dense`")
pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SMALL = ["--check", "false", "--options", '{"question_set": null, "concurrency": 8}']
"""The published sets of questions name those of the published files."""

STAND_IN = "someone/Small-1B"
TABLES = {
    "deepnote/table_1": ["--cells", "*/Llama-3.1-8B-Instruct"],
    # GPT-4o judges and answers in this paper, GPT-4 judges in the next.
    "rearag/table_1": ["--model", STAND_IN, "--cells", "iirc/*", "nq/*"],
    # FanOutQA's scorer is a package of its own.
    "noteswriting/table_2": ["--model", STAND_IN, "--cells", "frames/*", "multihoprag/*"],
    "resp/table_2": [],
    "search_r1/seven_sets": ["--cells", "nq/*", "triviaqa/*", "popqa/*", "bamboogle/*"],
}
"""Every benchmark is in one of them, and every index of these tables."""


def served() -> set[str]:
    """The hub ids of all models that the tables serve, the stand-in among them."""
    names = {STAND_IN}
    for table in TABLES:
        for cell in read_table(Path(f"papers/{table}"), {}, Substitutes()).cells:
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
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
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


def values(page: str) -> list[tuple[str, str]]:
    """The pairs of our value and the published one in the rows of a page."""
    rows = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ")]
    body = [row for row in rows if row[0] != "Method" and not row[0].startswith("---")]
    return [(ours, theirs) for row in body for ours, theirs in zip(row[2::2], row[3::2], strict=True)]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_comes_from_an_empty_folder(table, environment, tmp_path):
    options = [f"papers/{table}", *TABLES[table], *SMALL]
    plan = notewriter(tmp_path, environment, "table", *options, "--make", "true", "--dry_run", "true")
    assert "GPU hours" in plan and not (tmp_path / "runs").exists()
    notewriter(tmp_path, environment, "table", *options, "--make", "true")
    pairs = values((tmp_path / f"runs/papers/{table.replace('/', '_')}.md").read_text())
    ours, published = ([value for value in side if value[:1].isdecimal()] for side in zip(*pairs, strict=True))
    # Rows of the protocol's own have no published value, and rows with a missing checkpoint none of ours.
    assert len(ours) >= 6 and len(published) >= 6


MAKE = ["--cells", "2wikimultihopqa/*/Llama-3.1-8B-Instruct", *SMALL, "--make", "true"]


def test_a_killed_reproduction_goes_on_and_a_second_table_makes_nothing_twice(hub, environment, tmp_path):
    command = [sys.executable, "-m", "notewriter.cli", "table", "papers/deepnote/table_1", *MAKE]
    slow = environment | {"VLLM_DELAY": "5"}
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=tmp_path, env=slow, stdout=silent, stderr=silent) as process:
        cells = tmp_path / "runs/papers/cells"
        deadline = time.monotonic() + 300
        while not list(cells.glob("*/run.json")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        for each in [(parent := psutil.Process(process.pid)), *parent.children(recursive=True)]:
            each.kill()
    assert not list(cells.glob("*/metrics.json"))

    sent, built = hub.served, made(tmp_path)
    plan = notewriter(tmp_path, environment, "table", "papers/deepnote/table_1", *MAKE, "--dry_run", "true")
    assert plan.count("(finished)") == 5
    notewriter(tmp_path, environment, "table", "papers/deepnote/table_1", *MAKE)
    assert len(values((tmp_path / "runs/papers/deepnote_table_1.md").read_text())) == 9
    finished = made(tmp_path)
    assert finished.keys() > built.keys() and built.items() <= finished.items()

    notewriter(tmp_path, environment, "table", "papers/deepnote/table_5", *MAKE)
    assert len(values((tmp_path / "runs/papers/deepnote_table_5.md").read_text())) == 9
    # It has one cell of its own.
    after = made(tmp_path)
    assert finished.items() <= after.items() and len(after) == len(finished) + 1
    assert hub.served == sent


def made(folder: Path) -> dict[str, int]:
    """What was made and when: corpora, indexes, and the scores of cells."""
    files = [*folder.glob("runs/*/*/manifest.json"), *folder.glob("runs/papers/cells/*/metrics.json")]
    return {str(file): file.stat().st_mtime_ns for file in files}
