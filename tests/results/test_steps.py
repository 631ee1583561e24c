"""The steps before a table follow from its file and the chosen cells, in an order in which they can be done."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from notewriter.experiments.run import read_pipeline
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import ADAPTER
from notewriter.results.cost import CellCost
from notewriter.results.paper_table import Substitutes, read_table
from notewriter.results.steps import missing, plan, steps_of, sums
from notewriter.results.table_file import Corpus, TableIndex

TABLES = ["deepnote/table_1", "rearag/table_1", "resp/table_2", "noteswriting/table_2", "search_r1/seven_sets"]


@pytest.fixture(autouse=True)
def nothing_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("NOTEWRITER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def derived(table, *patterns, substitutes=None, **changes):
    """The steps of some cells of a table, each cell of one GPU hour and one dollar."""
    grid = read_table(Path(f"papers/{table}"), changes, substitutes or Substitutes())
    cells = [cell for cell in grid.chosen(patterns) if not cell.lacks]
    return {step.title: step for step in steps_for(grid, cells, ["notewriter", "table", f"papers/{table}"])}


def steps_for(grid, cells, command=()):
    costs = {cell.folder: CellCost(cell.name, 1, 1, 1, 1, 1.0, 1.0) for cell in cells}
    return steps_of(grid, cells, costs, command)


def test_a_row_is_fetched_built_evaluated_and_written():
    steps = derived("deepnote/table_1", "2wikimultihopqa/*/Llama-3.1-8B-Instruct")
    assert list(steps) == [
        "fetch dataset 2wikimultihopqa dev",
        "fetch corpus ircot-2wikimultihopqa",
        "fetch model meta-llama/Llama-3.1-8B-Instruct",
        "make corpus ircot-2wikimultihopqa",
        "index 2wikimultihopqa-ircot",
        "evaluate Llama-3.1-8B-Instruct",
        "write the table",
    ]
    evaluation = steps["evaluate Llama-3.1-8B-Instruct"]
    assert evaluation.argv()[3:] == ["--cells", "2wikimultihopqa/*/Llama-3.1-8B-Instruct", "--page", "false"]
    assert len(evaluation.result) == 3
    assert (evaluation.needs.gpus, evaluation.hours) == (1, 3.1)


@pytest.mark.parametrize("table", TABLES)
def test_the_stages_are_a_pipeline_in_an_order_that_can_be_done(table, tmp_path):
    steps = derived(table)
    seen = set()
    for step in steps.values():
        assert {*step.after} <= seen, step.title
        seen.add(step.title)
    content = {"output_dir": "runs/x", "runs": [step.entry for step in steps.values()]}
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(content))
    runs = read_pipeline(tmp_path / "pipeline.yaml").runs
    assert [run.argv() for run in runs] == [step.argv() for step in steps.values()]
    assert all(run.missing() for run in runs)


def test_indexes_that_several_cells_and_tables_search_are_the_same_stages():
    resp, seven = derived("resp/table_2"), derived("search_r1/seven_sets")
    shared = {"fetch corpus wiki-18", "fetch index wiki-18-e5-flat", "make corpus wiki-18", "index wiki18-e5-base-v2"}
    assert shared <= resp.keys() & seven.keys()
    assert all(resp[title].command == seven[title].command for title in shared)


def test_a_corpus_of_each_question_comes_from_the_questions():
    corpus = derived("rearag/table_1", "nq/*/ReaRAG-9B")["make corpus rearag-nq"]
    assert corpus.after == ["fetch dataset nq contexts"]
    assert corpus.argv()[2:6] == ["--source", "per-question", "--dataset", "nq"]


def test_the_gpus_are_those_of_all_roles():
    """The student of ReaRAG and the model that answers its searches are served side by side, on four GPUs each."""
    steps = derived("rearag/table_1")
    assert steps["evaluate ReaRAG-9B"].needs.gpus == 8
    assert steps["evaluate GLM-4-9B"].needs.gpus == 1
    api = steps["evaluate GPT-4o"]
    assert (api.needs.gpus, api.hours, api.dollars) == (0, None, 4.0)
    replicas = Substitutes(options={"replicas": 4})
    assert derived("resp/table_2", substitutes=replicas)["evaluate Llama3-8B-Instruct"].needs.gpus == 4


def test_judged_cells_are_never_taken_as_finished():
    """A run is judged after it has its metrics."""
    assert derived("rearag/table_1")["evaluate GLM-4-9B"].result == []


def test_encoders_and_rerankers_are_fetched_too():
    assert {"fetch model BAAI/bge-base-en-v1.5", "fetch model BAAI/bge-reranker-v2-m3"} <= derived(
        "rearag/table_1"
    ).keys()


def test_the_queries_of_deepnotes_table_8_are_embedded_without_an_instruction():
    command = derived("deepnote/table_8", "musique/*/bge*")["index musique-ircot-bge-base-en-v1.5"].argv()
    assert command[command.index("--query_prompt") + 1] == ""


def test_an_encoder_in_a_folder_is_not_fetched(tmp_path):
    """A folder of the name stands for the model of the Hub, everywhere."""
    (tmp_path / "intfloat/e5-base-v2").mkdir(parents=True)
    steps = derived("search_r1/seven_sets", "nq/*")
    assert "fetch model intfloat/e5-base-v2" not in steps
    assert steps["index wiki18-e5-base-v2"].after == ["make corpus wiki-18", "fetch index wiki-18-e5-flat"]


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"indexes": {"i": {"corpus": "dpr", "encoder": "me/mine"}}}, "unknown encoder 'me/mine'; choose one of: BAAI"),
        ({"indexes": {"i": {"corpus": "dpr", "encoder": "intfloat/e5-base-v2", "vectors": "x"}}}, "index 'x'; choose"),
        ({"indexes": {"i": {"corpus": "c"}}, "corpora": {"c": {"source": "dpr"}}}, "corpora: c: has no `passages`"),
        ({"indexes": {"i": {"corpus": "folder"}}, "corpora": {"folder": {"passages": 9}}}, "add their `path`"),
        ({"indexes": {"i": {"corpus": "dpr"}}, "corpora": {"dpr": {"split": "wrods"}}}, "dpr: unknown split 'wrods'"),
        (
            {"indexes": {"i": {"corpus": "c"}}, "corpora": {"c": {"source": "jsonl", "dataset": "jsonl"}}},
            r"seven_sets.yaml: corpora: c: unknown source 'jsonl'; .* a corpus.jsonl that is there, `path` alone",
        ),
        (
            {"indexes": {"i": {"corpus": "c"}}, "corpora": {"c": {"source": "dpr", "dataset": "nq"}}},
            "corpora: c: `source: per-question` and `dataset` belong together",
        ),
        (
            {"indexes": {"i": {"corpus": "c"}}, "corpora": {"c": {"source": "per-question", "dataset": "jsonl"}}},
            "corpora: c: unknown published dataset 'jsonl'; .* add `path` for a file of yours",
        ),
        (
            {
                "indexes": {"i": {"corpus": "c"}},
                "corpora": {"c": {"source": "per-question", "dataset": "nq", "questions": "contextz"}},
            },
            "corpora: c: unknown split of nq 'contextz'; .*did you mean 'contexts'",
        ),
    ],
    ids=["encoder", "vectors", "passages", "files", "passages of", "source", "both", "dataset", "split"],
)  # fmt: skip
def test_an_index_of_the_user_s_own_that_cannot_be_made_is_named(entries, told):
    grid = read_table(Path("papers/search_r1/seven_sets"), {}, Substitutes())
    corpora = grid.file.corpora | {name: Corpus(**each) for name, each in entries.get("corpora", {}).items()}
    indexes = {folder: TableIndex(**each) for folder, each in entries["indexes"].items()}
    cell = replace(grid.cells[0], options={"dataset": "nq", "method": "direct", "index": ["i"], "serve": "m"})
    with pytest.raises(UserError, match=told):
        steps_for(replace(grid, file=replace(grid.file, corpora=corpora), indexes=indexes), [cell])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dataset": "jsonl"}, r"benchmarks: nq: unknown published dataset 'jsonl'; .* add `path` for a file of yours"),
        ({"split": "tset"}, "benchmarks: nq: unknown split of nq 'tset'"),
    ],
)
def test_questions_that_are_published_nowhere_are_named(options, told):
    grid = read_table(Path("papers/search_r1/seven_sets"), {}, Substitutes())
    cell = replace(grid.cells[0], options={"dataset": "nq", "method": "direct"} | options)
    with pytest.raises(UserError, match=told):
        steps_for(grid, [cell])


OWN = """
title: On documents of mine
columns: [notes]
variables: {docs: my docs}
benchmarks: {notes: {dataset: jsonl, path: questions.jsonl, index: [built/notes/index]}}
models: {small: {base_url: "http://127.0.0.1:9/v1", model: m}}
corpora: {notes: {source: folder, path: "{{ docs }}"}, made: {path: "{{ docs }}/corpus.jsonl"}}
indexes: {built/notes/index: {corpus: notes}, built/made/index: {corpus: made}}
rows: [{method: vanilla, model: small}]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A table over documents of the user's, and the folder `my docs`, which has them."""
    monkeypatch.chdir(tmp_path)
    Path("my docs").mkdir()
    Path("my docs/tide.md").write_text("Low Tide is a film. " * 1000)
    Path("own.yaml").write_text(OWN)
    return read_table(Path("own.yaml"), {}, Substitutes())


def serving(cell, **options):
    """The options of a cell that asks a server of its own in place of an address."""
    return {key: each for key, each in cell.options.items() if key not in ("base_url", "model")} | options


def test_the_servers_of_a_role_are_as_many_as_it_says(own):
    (cell,) = own.cells
    answer = {"serve": "owner/large", "replicas": 3, "serve_options": {"tensor_parallel_size": 2}}
    *_, evaluation, _ = steps_for(own, [replace(cell, options=serving(cell, serve="a/b", models={"answer": answer}))])
    assert evaluation.needs.gpus == 1 + 3 * 2


def test_documents_of_the_user_s_are_a_corpus_that_is_made(own):
    steps = {step.title: step for step in steps_for(own, own.cells)}
    # Two indexes have the same name, so that their steps have their paths.
    corpus, index = steps["make corpus notes"], steps["index built/notes/index"]
    assert corpus.argv()[2:] == ["--source", "folder", "--path", "my docs", "--output_dir", "runs/corpus/notes"]
    assert index.argv()[2:] == ["--path", "runs/corpus/notes/corpus.jsonl", "--index", "built/notes/index"]
    assert index.after == ["make corpus notes"]
    # A word of five letters: 20,000 bytes.
    assert corpus.disk == pytest.approx(20_000, rel=0.05)
    assert list(steps) == ["make corpus notes", "index built/notes/index", "evaluate small", "write the table"]


def test_a_corpus_jsonl_of_the_user_s_is_indexed_as_it_is(own):
    cell = replace(own.cells[0], options=own.cells[0].options | {"index": ["built/made/index"]})
    index = steps_for(own, [cell])[0]
    assert index.argv()[2:] == ["--path", "my docs/corpus.jsonl", "--index", "built/made/index"]
    assert index.after == []


def test_documents_of_the_user_s_that_changed_are_read_again(own):
    """Only the commands can tell."""
    for folder in ("runs/corpus/notes", "built/notes/index"):
        Path(folder).mkdir(parents=True)
        Path(folder, "manifest.json").write_text("{}")
    steps = steps_for(own, own.cells)
    assert not [step for step in steps if not step.missing()]
    made = {"output_dir": "runs/x", "runs": [step.entry for step in steps[:2]]}
    Path("pipeline.yaml").write_text(yaml.safe_dump(made))
    assert all(run.missing() for run in read_pipeline(Path("pipeline.yaml")).runs)


def test_what_is_missing_and_made_by_no_step_is_said_with_its_key(own, tmp_path):
    (cell,) = own.cells
    Path("questions.jsonl").write_text("")
    assert missing(own, [cell]) == []
    Path("models/adapter").mkdir(parents=True)
    Path("models/adapter", ADAPTER).write_text("{}")
    served = [replace(cell, options=serving(cell, serve=name)) for name in ("models/adapter", "owner/name")]
    assert missing(own, served) == []
    Path("questions.jsonl").unlink()
    shutil.rmtree("my docs")
    options = serving(cell, index=["built/notes/index", "other"], serve=str(tmp_path / "models/none"))
    path, corpus, index, model = missing(own, [replace(cell, options=options)])
    assert path.startswith("path: questions.jsonl: is not there (notes/vanilla/small")
    assert corpus.startswith("corpora: notes: path: my docs: is not there")
    assert index.startswith("index: other: is not there") and "--index other` builds it" in index
    assert model.startswith("serve: ") and "is neither a model folder nor a hub id" in model


def test_the_time_and_size_of_an_index_are_those_that_were_measured_carried_forward():
    """docs/results.md: BM25 of 5,000,000 passages of 90 words in 156.5 s, 1.12 GB of memory and 4.2 GB of disk."""
    step = derived("deepnote/table_1", "hotpotqa/*/Llama-3.1-8B-Instruct")["index hotpotqa-ircot"]
    words = 5_233_329 * 50 / (5_000_000 * 90)
    assert step.hours * 3600 == pytest.approx(156.5 * words, rel=0.1)
    assert step.disk == pytest.approx(4.2e9 * words, rel=0.1)
    assert 1.12 <= step.needs.memory_gb <= 4


def test_the_user_s_own_questions_and_indexes_are_neither_fetched_nor_built():
    own = Substitutes(questions={"2wikimultihopqa": "mine.json"}, indexes="mine")
    titles = derived("deepnote/table_1", "2wikimultihopqa/*/Llama-3.1-8B-Instruct", substitutes=own)
    assert list(titles) == [
        "fetch model meta-llama/Llama-3.1-8B-Instruct",
        "evaluate Llama-3.1-8B-Instruct",
        "write the table",
    ]


def test_a_model_in_a_folder_is_not_fetched():
    steps = derived("deepnote/table_1", "musique/deepnote/*DPO", dpo_llama="runs/dpo")
    assert not [title for title in steps if title.startswith("fetch model")]
    assert "evaluate Llama-3.1-8B-Instruct with DPO" in steps


def test_the_plan_counts_a_shared_download_once_and_nothing_that_is_finished():
    row = ["deepnote/table_1", "2wikimultihopqa/*/Llama-3.1-8B-Instruct"]
    steps = [*derived(*row).values()]
    _, header, rows = plan(steps)
    # The questions and the corpus are files of one archive.
    assert [line[header.index("download, GB")] for line in rows[:3]] == ["0.26", "0.26", "16.00"]
    assert sums(steps).splitlines()[:2] == ["to be done: 7 of 7 steps", "to download: 16.3 GB"]
    assert "GPU hours: 3.1" in sums(steps) and "by the call: 3.00" in sums(steps)
    for file in steps[1].result:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    assert sums(steps).splitlines()[:2] == ["to be done: 6 of 7 steps", "to download: 16.3 GB"]
    assert plan(steps)[2][1][0] == "fetch corpus ircot-2wikimultihopqa (finished)"


def test_a_size_that_nobody_states_is_said():
    steps = [*derived("deepnote/table_1", "strategyqa/direct/Llama-3.1-8B-Instruct").values()]
    assert "to download: 16.0 GB, and what is not known: fetch dataset strategyqa train\n" in sums(steps)
    _, header, rows = plan(steps)
    assert rows[0][header.index("download, GB")] == "?"


def test_a_model_in_the_cache_of_the_hub_is_finished_when_it_is_complete(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model = tmp_path / "hub/models--meta-llama--Llama-3.1-8B-Instruct"
    shutil.copytree(tiny_model, model / "snapshots/abc")
    (model / "refs").mkdir()
    (model / "refs/main").write_text("abc")
    row = ["deepnote/table_1", "musique/direct/Llama-3.1-8B-Instruct"]
    title = "fetch model meta-llama/Llama-3.1-8B-Instruct"
    assert not derived(*row)[title].missing()
    (model / "snapshots/abc/model.safetensors").unlink()
    assert derived(*row)[title].missing()
