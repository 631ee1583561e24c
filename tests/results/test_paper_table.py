"""The table files of configs/papers: what they name exists, the papers' values are found, and they run."""

import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from notewriter.corpora.published import PUBLISHED
from notewriter.ground.recipes import RECIPES, find
from notewriter.methods import prepare
from notewriter.results.cost import CellCost
from notewriter.results.measures import measure
from notewriter.results.paper_table import Substitutes, indexes_of, read_table
from notewriter.results.paper_values import PAPERS, published_rows
from notewriter.results.steps import steps_of
from notewriter.results.table_file import Corpus, EncoderSize, Model, Row, TableFile, TableIndex
from notewriter.results.table_page import check_metrics, columns, published_of, scored_by

ROOT = Path(__file__).parents[2]
CONFIGS = RECIPES / "papers"
FILES = sorted(path for path in CONFIGS.glob("*/*.yaml") if path.name != "paper.yaml")
QUICK = {"deepnote-table_9", "rearag-table_1", "resp-iterations", "noteswriting-table_2"}
"""A table of each paper, which runs with the unit tests."""


def named(path):
    return f"{path.parent.name}-{path.stem}"


@pytest.fixture(params=FILES, ids=named)
def table(request):
    return read_table(request.param, {}, Substitutes())


def test_every_table_and_figure_with_results_has_a_file():
    assert {named(path) for path in FILES} == {
        *(f"deepnote-table_{number}" for number in (1, 2, 4, 5, 6, 7, 8, 9)),
        *(f"deepnote-figure_{number}" for number in (3, 4, 5, 6)),
        *(f"rearag-table_{number}" for number in (1, 2, 3, 4)),
        "rearag-figure_3",
        *(
            "resp-table_2",
            "resp-table_3",
            "resp-table_4",
            "resp-iterations",
            "resp-figure_3",
            "resp-figure_4",
            "resp-figure_5",
        ),
        *(f"noteswriting-table_{number}" for number in range(1, 10)),
        *("noteswriting-figure_2", "noteswriting-figure_3"),
        "search_r1-seven_sets",
    }


def test_cells_name_methods_options_and_benchmarks_that_there_are(table, tmp_path):
    # Where the questions are is known when they are fetched.
    questions = {cell.column: "questions" for cell in table.cells}
    for cell in read_table(table.path, {}, Substitutes(questions=questions)).cells:
        arguments, *_ = cell.arguments(tmp_path, tmp_path / "cache.sqlite")
        prepare(arguments.method, arguments.method_options)
        if cell.judge:
            cell.judge.models(tmp_path / "cache.sqlite")


def test_each_index_that_a_cell_searches_can_be_built(table):
    for cell in table.cells:
        for index in indexes_of(cell.options):
            assert index in table.indexes, f"{cell.name}: {index}"
            encoder = table.indexes[index].encoder
            assert encoder is None or encoder in table.file.encoders


def test_the_documents_of_each_question_are_in_a_corpus_of_the_table(table):
    for cell in table.cells:
        made = {f"{table.corpora_folder}/{table.indexes[index].corpus}" for index in indexes_of(cell.options)}
        files = [part["within"] for part in cell.options.get("retriever") or [] if "within" in part]
        assert {str(Path(file).parent) for file in files if "/" in file} <= made, cell.name


def test_the_page_of_the_indexes_has_each_with_its_published_number_of_passages(table):
    page = (Path(__file__).parents[2] / "docs/papers/indexes.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for folder, index in table.indexes.items():
        (row,) = [row for row in rows if f"`{Path(folder).name}`" in row]
        assert index.corpus not in PUBLISHED or f"| {PUBLISHED[index.corpus].documents:,} |" in row


def test_columns_are_metrics_that_there_are(table):
    for benchmark in {cell.column for cell in table.cells}:
        names = columns(table, benchmark)
        assert names and all(measure(name).label for name in names)


def test_columns_are_what_the_cells_are_scored_by(table):
    for cell in table.cells:
        assert {*published_of(table, cell), *columns(table, cell.column)} <= scored_by(cell), cell.name


def test_each_published_row_of_a_table_has_its_cell_and_each_cell_its_row(table):
    place = (table.file.paper, table.file.place)
    rows = [row for row in published_rows() if (row["paper"], row["place"]) == place]
    if table.file.place is None:
        assert table.file.metrics and not rows
        return
    cells = {(cell.column, cell.method, cell.model, cell.setting) for cell in table.cells}
    published = {(row["dataset"], row["method"], row["model"], row["setting"]) for row in rows}
    if table.path.stem == "figure_4":
        assert cells < published
    elif table.path.stem == "seven_sets":
        assert {method for _, method, *_ in cells - published} == {"deepnote", "resp", "renact"} and cells > published
    else:
        assert cells == published
    shown = [cell for cell in table.cells if (cell.column, cell.method, cell.model, cell.setting) in published]
    assert all(published_of(table, cell) for cell in shown)


def test_all_published_rows_are_in_a_table():
    places = {
        (PAPERS[path.parent.name], read_table(path, {}, Substitutes()).file.place)
        for path in FILES
        if path.parent.name in PAPERS
    }
    assert {(row["paper"], row["place"]) for row in published_rows()} <= places


def test_a_table_and_all_that_it_names_are_found_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    grid = read_table(Path("papers/deepnote/table_9"), {}, Substitutes())
    assert grid.name == "deepnote_table_9"
    assert find(grid.cells[0].options["question_set"]).is_file()


def options_of(path, method, model):
    """The options of a method's cell with a model, on each benchmark of a table."""
    cells = read_table(CONFIGS / path, {}, Substitutes()).cells
    found = {cell.column: cell.options for cell in cells if (cell.method, cell.model) == (method, model)}
    assert found
    return found


@pytest.mark.parametrize("path", ["table_1", "table_2", "table_3", "figure_3"])
def test_rearags_reasoning_model_is_the_preview(path):
    """ReaRAG, footnote 1."""
    served = {
        cell.options["serve"]
        for cell in read_table(CONFIGS / f"rearag/{path}.yaml", {}, Substitutes()).cells
        if cell.model == "QwQ-32B"
    }
    assert served == {"Qwen/QwQ-32B-Preview"}


def test_rearags_own_row_is_the_released_checkpoint_in_its_format():
    """src/infer.py and src/agents.py; the row of one's own training keeps ours."""
    for options in options_of("rearag/table_1.yaml", "rearag", "ReaRAG-9B").values():
        assert options["serve"] == "THU-KEG/ReaRAG-9B" and options["method_options"]["released_format"]
        sampling = options["stage_sampling"]
        assert sampling["rearag/released"] == {"temperature": 1.0, "top_p": 0.85}
        assert sampling["rearag/observe"] == {"temperature": 0.95, "top_p": 0.9}
        assert sampling["rearag/shorten"] == {"temperature": 0.8, "top_p": 0.7, "max_tokens": 64}
    for options in options_of("rearag/table_4.yaml", "rearag", "ReaRAG-9B trained anew").values():
        assert "released_format" not in options["method_options"]


def test_rearags_in_context_rows_read_a_questions_documents_in_their_order():
    """ReaRAG, section 4.1: the corpus is appended, neither ranked nor cut."""
    for benchmark, options in options_of("rearag/table_1.yaml", "in_context", "GLM-4-32B").items():
        documents, within = options["retriever"]
        assert documents["documents"].endswith(f"rearag-{benchmark}") and f"rearag-{benchmark}/" in within["within"]
        assert options["method_options"]["max_words"] >= 58_000
        # GLM-4-32B-0414 has 32,768 positions of its own, and vLLM refuses more unless they are extended by as much.
        serving = options["serve_options"]
        assert serving["max_model_len"] == serving["hf_overrides"]["max_position_embeddings"] > 58_000
        rope = serving["hf_overrides"]["rope_parameters"]
        assert rope["factor"] * rope["original_max_position_embeddings"] == serving["max_model_len"]


def test_rearags_search_o1_reads_three_passages_and_samples_as_its_authors_do():
    """ReaRAG, Tables 5 and 6; Search-o1's code: temperature 0.7, top-p 0.8."""
    for options in options_of("rearag/table_1.yaml", "search_o1", "QwQ-32B").values():
        assert options["method_options"] == {"top_k": 3}
        assert set(options["stage_sampling"]) == {"search_o1/reason", "search_o1/reason_in_documents"}
        assert all(each == {"temperature": 0.7, "top_p": 0.8} for each in options["stage_sampling"].values())


def test_resps_baselines_read_as_many_passages_as_resp_and_have_flashrags_settings():
    """ReSP, section 5.1; FlashRAG's examples/methods/run_exp.py and its pipelines' defaults."""
    settings = {
        "iter_retgen": {"iterations": 3, "reasoning": False},
        "self_rag": {"usefulness_weight": 1.0, "short_instruction": True, "threshold": 0.2, "max_step": 1},
        "flare": {"theta": 0.2, "beta": 0.2, "max_step": 5, "first_search": False},
        "ircot": {"max_step": 5},
    }
    table = read_table(CONFIGS / "resp/table_2.yaml", {}, Substitutes())
    for cell in table.cells:
        method = prepare(cell.options["method"], {})
        options = method.options | cell.options.get("method_options", {})
        assert options.get("top_k", 5) == 5
        assert settings.get(cell.method, {}).items() <= options.items()
        assert cell.method != "self_rag" or (cell.options["temperature"], cell.options["top_p"]) == (0.0, 1.0)
    assert "REPLUG" in table.file.note and "RECOMP" in table.file.note


def test_iterative_baselines_of_later_papers_are_not_bounded_by_ircots_own_limit():
    """ReSP, Figure 4: each search at k = 15 adds passages; NotesWriting, Tables 8 and 9: up to 909,000 tokens read."""
    (ircot,) = (
        cell.options["method_options"]
        for cell in read_table(CONFIGS / "resp/figure_4.yaml", {}, Substitutes()).cells
        if (cell.method, cell.setting) == ("ircot", "k 15")
    )
    assert ircot["top_k"] == 15 and ircot["max_passages"] >= 3 * 15
    for path, method in (("table_8", "ircot"), ("table_9", "flare")):
        for benchmark, options in options_of(f"noteswriting/{path}.yaml", method, "GPT-4o-mini").items():
            assert options["method_options"]["max_step"] == 15
            assert ("max_passages" in options["method_options"]) == (method == "ircot" and benchmark == "multihoprag")


def test_the_seven_sets_are_answered_and_scored_as_in_the_authors_evaluation():
    table = read_table(CONFIGS / "search_r1/seven_sets.yaml", {}, Substitutes())
    for cell in table.cells:
        assert (cell.options["family"], cell.options["temperature"]) == ("nq", 0.0)
        if cell.method == "search_r1":
            assert cell.options["method_options"]["answer_unfinished"] is False
            assert cell.options["serve"].endswith("-ppo-v0.2")


def test_deepnotes_own_rows_have_the_authors_limit_of_passages():
    """src/main.py: max_top_k 15, which cuts the second search of top-k 7 to one passage."""
    for path in ("table_1", "table_2", "table_4", "table_7"):
        cells = read_table(CONFIGS / f"deepnote/{path}.yaml", {}, Substitutes()).cells
        limits = {
            cell.options["method_options"]["max_passages"] for cell in cells if cell.options["method"] == "deepnote"
        }
        assert limits == {15}


def test_the_cost_of_deepnote_is_that_of_50_questions_of_the_whole_set():
    table = read_table(CONFIGS / "deepnote/table_9.yaml", {}, Substitutes())
    sets = {cell.options["question_set"] for cell in table.cells}
    assert sets == {"configs/question_sets/2wikimultihopqa/deepnote_cost_ours.yaml"}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_with_other_places_for_corpora_and_indexes_nothing_of_a_table_lies_elsewhere(path, tmp_path, monkeypatch):
    monkeypatch.setenv("NOTEWRITER_HOME", str(tmp_path / "home"))
    grid = read_table(path, {"indexes": "/mine/indexes", "corpora": "/mine/corpora"}, Substitutes(), Path("out"))
    cells = [cell for cell in grid.cells if not cell.lacks]
    costs = {cell.folder: CellCost(cell.name, 1, 1, 1, 1, 1.0, 1.0) for cell in cells}
    stages = steps_of(grid, cells, costs, ["notewriter", "table"])
    named = [text for stage in stages for text in (*stage.argv(), *map(str, stage.results()))]
    named += [repr(cell.options) for cell in grid.cells]
    assert not [text for text in named if "runs/" in text]
    assert {folder for cell in cells for folder in indexes_of(cell.options)} <= grid.indexes.keys()


def test_the_long_context_of_glm_4_32b_is_that_of_its_in_context_row_alone():
    """YaRN as vLLM has it scales short prompts too."""
    cells = read_table(Path("papers/rearag/table_1"), {}, Substitutes()).cells
    scaled = {cell.name for cell in cells if "hf_overrides" in cell.options.get("serve_options", {})}
    assert scaled == {f"{cell.column}/in_context/GLM-4-32B" for cell in cells}


def test_the_baselines_whose_numbers_are_flashrags_are_decoded_as_there():
    """Greedily, with 32 new tokens; the summary of RECOMP, Self-RAG and FLARE's drafts have lengths of their own."""
    cells = {cell.method: cell.options for cell in read_table(Path("papers/resp/table_2"), {}, Substitutes()).cells}
    greedy = {name: options["max_tokens"] for name, options in cells.items() if options.get("temperature") == 0}
    assert greedy == {
        **dict.fromkeys(("direct", "sure", "recomp", "replug", "iter_retgen"), 32),
        "self_rag": 100,
        "flare": 64,
    }
    assert cells["recomp"]["stage_sampling"] == {"recomp/compress": {"max_tokens": 512}}
    assert all(cells[name]["max_tokens"] == 200 for name in ("vanilla", "ircot", "resp"))


def test_noteswriting_is_scored_against_the_answers_that_its_paper_had():
    path = Path("papers/noteswriting/table_1")
    for changes, split in (({}, "nov23"), ({"fanoutqa": "dev"}, "dev")):
        cells = read_table(path, changes, Substitutes()).cells
        assert {cell.options["split"] for cell in cells if cell.column == "fanoutqa"} == {split}


def covering(cells):
    """Few cells that have every method in every setting, and every benchmark, of those that can be scored here."""
    seen = set()
    for cell in cells:
        own = {(cell.method, cell.setting), cell.column}
        # FanOutQA's scorer is a package of its own.
        if not own <= seen and (cell.column != "fanoutqa" or find_spec("fanoutqa")):
            seen |= own
            yield cell


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=named(path), marks=[] if named(path) in QUICK else [pytest.mark.integration])
        for path in FILES
    ],
)
def test_a_table_runs_from_the_first_cell_to_its_page(path, run_table, tmp_path):
    table = read_table(path, {}, Substitutes())
    cells = list(covering(table.cells))
    if not cells:
        pytest.skip(f"{named(path)} needs the package fanoutqa")
    printed = run_table(path, "--limit", "1", "--cells", *(cell.name for cell in cells))
    for cell in cells:
        assert cell.column in printed and cell.method in printed
    assert "substitute for" in printed and "✓" not in printed
    assert "not run" not in printed
    for ending in ("md", "tex", "html"):
        assert (tmp_path / "out" / f"{table.name}.{ending}").stat().st_size > 500


def test_the_page_lists_the_keys_of_a_table_file():
    """Those of entries stand beside the key that has the entries."""
    page = (ROOT / "docs/papers/README.md").read_text().partition("### A table of your own")[2]
    rows = [line.split(" | ", 1) for line in page.partition("| paper | page |")[0].splitlines() if line[:3] == "| `"]
    keys, meanings = (re.findall(r"`(\w+)`", " ".join(each)) for each in zip(*rows, strict=True))
    assert sorted(keys) == sorted(each.name for each in fields(TableFile))
    of_entries = {each.name for kind in (Row, Model, Corpus, TableIndex, EncoderSize) for each in fields(kind)} - {
        "options"
    }
    assert of_entries <= {*meanings}


def test_the_table_of_ones_own_on_the_page_is_one(tmp_path):
    page = (ROOT / "docs/papers/README.md").read_text().partition("### A table of your own")[2]
    path = tmp_path / "mine.yaml"
    path.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    grid = read_table(path, {}, Substitutes())
    check_metrics(grid)
    assert [cell.name for cell in grid.cells] == ["mine/deepnote/small", "mine/vanilla/small"]
