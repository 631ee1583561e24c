"""`notewriter table`: cells are shared and resumed, what lacks a checkpoint is skipped, published values are marked."""

import json

import pytest
import yaml
from benchmark_files import write_two_questions

from notewriter.corpora.published import PUBLISHED, Published
from notewriter.evaluation.metrics import FAMILIES
from notewriter.ground import plugins
from notewriter.ground.errors import UserError
from notewriter.results import table
from notewriter.results.cost import DECODE, PEAK, PREFILL, cost_of, gpu_seconds
from notewriter.results.paper_table import Substitutes, read_table
from notewriter.rollouts.rehearsal import TOKENS_A_WORD, DryRunArguments

MODEL = {"serve": "scripted/Small-1B", "billions": 1}
PAPER = {
    "paper": "DeepNote",
    "variables": {"data": "data", "trained": None},
    "benchmarks": {"hotpotqa": {"dataset": "hotpotqa", "family": "deepnote", "path": "{{ data }}/hotpotqa.json"}},
    "models": {
        "Qwen-2.5-7B-Instruct": MODEL,
        "Other": MODEL | {"serve": "scripted/Other-1B"},
        "Trained": MODEL | {"serve": "{{ trained }}", "recipe": "configs/dpo/mine.yaml"},
    },
    "settings": {"top-k 5": {"method_options": {"top_k": 5}}, "top-k 1": {"method_options": {"top_k": 1}}},
}
CELLS = [{"method": "direct", "model": ["Qwen-2.5-7B-Instruct", "Trained"]}]


@pytest.fixture
def write(tmp_path):
    """Writes a table file and its base; returns the table file's path."""
    (tmp_path / "data").mkdir()
    write_two_questions(tmp_path / "data", "hotpotqa")

    def write(cells=CELLS, name="table_1", paper=PAPER, **changes):
        content = {"title": "A table", "include": "paper.yaml", "place": "Table 1", "columns": ["hotpotqa"]}
        (tmp_path / "paper.yaml").write_text(yaml.safe_dump(paper, sort_keys=False))
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content | {"rows": cells} | changes, sort_keys=False))
        return path

    return write


@pytest.fixture
def run(served, tmp_path, capsys):
    """Runs the command with the paper's own models; returns what it prints."""

    def run(path, *options):
        capsys.readouterr()
        data = ["--set", f"data={tmp_path / 'data'}"]
        table.main([str(path), "--output_dir", str(tmp_path / "out"), *options, *data])
        return capsys.readouterr().out

    return run


def folders(tmp_path):
    return sorted(path.name for path in (tmp_path / "out/cells").iterdir())


def test_a_cell_without_its_checkpoint_is_skipped_and_says_what_to_give(write, run, caplog):
    printed = run(write())
    assert "Trained" in printed and "not run" in printed
    assert "hotpotqa/direct/Trained is skipped: add --set trained=PATH; configs/dpo/mine.yaml trains it" in caplog.text


def test_ours_stand_beside_the_published_values_with_a_mark_where_they_lie_inside(write, run, served, tmp_path):
    printed = run(write())
    (row,) = (line for line in printed.splitlines() if line.startswith("| direct") and "Qwen" in line)
    # Accuracy: "brel" is in both answers; the paper has 19.2. F1 of six words, one of them right: 2 / 7.
    assert "100.0 [100.0, 100.0]" in row and "19.2" in row and "✓" not in row
    out = tmp_path / "out"
    name = f"{tmp_path.name}_table_1"
    assert "100.0" in (out / f"{name}.md").read_text() and r"\toprule" in (out / f"{name}.tex").read_text()
    assert "<h2>hotpotqa</h2>" in (out / f"{name}.html").read_text()


def test_a_published_value_inside_the_interval_is_marked_and_not_beside_a_substitute(write, run, monkeypatch):
    values = {"acc": 100.0, "f1": 1.0}
    row = {"paper": "DeepNote", "place": "Table 1", "dataset": "hotpotqa", "method": "direct", "setting": ""}
    rows = ({**row, "model": "Qwen-2.5-7B-Instruct", "values": values},)
    monkeypatch.setattr("notewriter.results.table_page.published_rows", lambda: rows)
    path = write([{"method": "direct", "model": "Qwen-2.5-7B-Instruct"}])
    (line,) = (line for line in run(path).splitlines() if line.startswith("| direct"))
    assert "100 ✓" in line and line.count("✓") == 1
    printed = run(path, "--model", "scripted/Other-1B")
    (line,) = (line for line in printed.splitlines() if line.startswith("| direct"))
    assert "Other-1B (substitute for Qwen-2.5-7B-Instruct)" in line and "✓" not in line
    assert "stands in for every model" in printed
    printed = run(path, "--limit", "1")
    assert "100.0 [100.0, 100.0]" in printed and "✓" not in printed


def test_a_method_that_never_searches_has_no_share_of_fewer_searches(write, run):
    cells = [{"method": "direct", "model": "Qwen-2.5-7B-Instruct"}]
    (line,) = (line for line in run(write(cells, metrics=["acc", "fewer_searches"])).splitlines() if "direct" in line)
    assert line.count("[100.0, 100.0]") == 1 and "–" in line


OF_ONES_OWN = """
from notewriter.evaluation.metrics.metric import Family, Metric

def score(prediction, question):
    return {"shouted": float(prediction.isupper())}

FAMILY = Family(score, (Metric("shouted", "Shouted", "Whether the answer is in capitals."),))
"""


def test_a_metric_family_of_ones_own_has_columns(write, run, tmp_path):
    (tmp_path / "mine.py").write_text(OF_ONES_OWN)
    cells = [{"method": "direct", "model": "Other", "options": {"family": f"{tmp_path}/mine.py:FAMILY"}}]
    assert " Shouted |" in run(write(cells, metrics=["shouted"]))
    # Nothing is published of a table of one's own, and all that is scored is shown.
    assert " Shouted |" in run(write(cells, place="Mine"))


def test_a_metric_family_that_was_changed_scores_finished_cells_anew_and_asks_no_model(
    write, run, served, tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(OF_ONES_OWN)
    cells = [{"method": "direct", "model": "Other", "options": {"family": f"{tmp_path}/mine.py:FAMILY"}}]
    assert "0.0 [0.0, 0.0]" in run(write(cells, place="Mine"))
    asked = len(served.endpoint.requests)
    (tmp_path / "mine.py").write_text(OF_ONES_OWN.replace("prediction.isupper()", "1"))
    # The next command is another process.
    monkeypatch.setattr(plugins, "_LOADED", {})
    FAMILIES.pop(f"{tmp_path}/mine.py:FAMILY")
    assert "100.0 [100.0, 100.0]" in run(write(cells, place="Mine"))
    assert len(served.endpoint.requests) == asked


def test_without_metrics_a_table_of_ones_own_shows_those_of_the_family(write, run):
    (line,) = (line for line in run(write(place="Mine")).splitlines() if "Method" in line)
    labels = [each.strip() for each in line.split("|")]
    # Nothing is published of it, to stand beside ours or to be marked.
    assert labels[3:-1] == ["Accuracy", "Token F1", "Exact match"]
    assert "✓" not in run(write(place="Mine"))


def test_a_table_of_no_paper_needs_no_name_of_one(write, run):
    paper = {key: value for key, value in PAPER.items() if key != "paper"}
    assert "published" not in run(write(paper=paper))


def test_where_all_cells_fail_no_others_are_spoken_of(write, run, tmp_path):
    path = write([{"method": "vanilla", "model": "Other"}], options={"index": [str(tmp_path / "none")]})
    with pytest.raises(UserError, match="1 of 1 cells failed; hotpotqa/vanilla/Other: "):
        run(path)


def test_scores_of_notes_are_shown_where_they_are_asked_for(write, run):
    assert "Supporting facts in the note" in run(write(metrics=["note_fact_recall"]))


def test_a_misspelt_metric_is_refused_with_the_nearest(write, run):
    with pytest.raises(UserError, match=r"table_1.yaml: metrics: unknown metric 'ac'.*did you mean 'acc'\?"):
        run(write(metrics=["ac"]))


def test_options_of_all_cells_are_named(write, run):
    printed = run(write([{"method": "direct", "model": "Other"}]), "--options", '{"max_tokens": 64}')
    assert 'Options of all cells: {"max_tokens": 64}.' in printed


def test_tables_share_cells_of_equal_settings_and_ask_nothing_twice(write, run, served, tmp_path):
    run(write())
    asked = len(served.endpoint.requests)
    # Both questions have the same words, so one of them is answered from the cache.
    assert asked == 1 and len(folders(tmp_path)) == 1
    # Another table, and a default spelled out.
    run(write([{"method": "direct", "model": "Qwen-2.5-7B-Instruct", "options": {"top_p": 0.9}}], "table_2"))
    assert len(served.endpoint.requests) == asked and len(folders(tmp_path)) == 1
    assert served.calls == ["scripted/Small-1B"]
    run(write([{"method": "direct", "model": "Qwen-2.5-7B-Instruct", "options": {"top_p": 0.5}}], "table_2"))
    assert len(served.endpoint.requests) == 2 * asked and len(folders(tmp_path)) == 2


def test_a_checkpoint_trained_again_is_not_shown_with_its_old_values(write, run, tmp_path):
    checkpoint = tmp_path / "trained"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    paper = PAPER | {"variables": {"data": "data", "trained": str(checkpoint)}}
    path = write([{"method": "direct", "model": "Trained"}], paper=paper)
    run(path)
    (checkpoint / "config.json").write_text('{"trained": "again"}')
    with pytest.raises(UserError, match="other contents of served, which have changed since"):
        run(path)


def test_the_cells_of_a_model_share_one_server(write, run, served):
    models = ["Qwen-2.5-7B-Instruct", "Other"]
    cells = [
        {"method": "direct", "model": models},
        {"method": "direct", "model": models[::-1], "setting": "hot"},
    ]
    run(write(cells, paper=PAPER | {"settings": {"hot": {"temperature": 0.9}}}))
    assert served.calls == ["scripted/Small-1B", "scripted/Other-1B"]


def test_each_sample_has_replies_of_its_own(write, run, served, tmp_path):
    cells = [{"method": "direct", "model": "Qwen-2.5-7B-Instruct"}]
    run(write(cells, samples=2, metrics=["acc", "f1_deviation"]))
    assert len(served.endpoint.requests) == 2
    first, second = folders(tmp_path)
    assert second == f"{first}-sample2"


def test_a_limit_and_a_choice_of_cells(write, run, served):
    path = write([{"method": "direct", "model": ["Qwen-2.5-7B-Instruct", "Other"]}])
    printed = run(path, "--limit", "1", "--cells", "*/Other")
    assert "At most 1 questions a cell" in printed and "Qwen" not in printed
    assert len(served.endpoint.requests) == 1
    with pytest.raises(UserError, match="--cells nothing: fits no cell of"):
        run(path, "--cells", "nothing")


def test_judged_scores_are_part_of_a_cell(write, run):
    printed = run(write(paper=PAPER | {"judge": MODEL, "judgements": ["graded_answer"]}, metrics=["graded_accuracy"]))
    assert "Accuracy, graded by the judge" in printed and "100.0 [100.0, 100.0]" in printed


JUDGED = {"paper": PAPER | {"judge": MODEL | {"serve": "scripted/Judge-1B"}, "judgements": ["graded_answer"]}}


def test_a_table_names_its_judge_and_its_cells_are_not_answered_again(write, run, served, tmp_path):
    cells = [{"method": "direct", "model": "Qwen-2.5-7B-Instruct"}]
    run(write(cells, metrics=["graded_accuracy"], **JUDGED))
    assert served.calls == ["scripted/Small-1B", "scripted/Judge-1B"]
    asked = len(served.endpoint.requests)
    printed = run(write(cells, "table_2", metrics=["graded_accuracy"], judge_model="Other", **JUDGED))
    assert served.calls[2:] == ["scripted/Small-1B", "scripted/Other-1B"] and "100.0 [100.0, 100.0]" in printed
    # The judge alone is asked, in a folder of its own beside the one of the paper's judge.
    assert {request["model"] for request in served.endpoint.requests[asked:]} == {"Other-1B"}
    assert len(folders(tmp_path)) == 2


def test_each_model_judges_its_own_cells_where_the_table_says_so(write):
    cells = [{"method": "direct", "model": ["Qwen-2.5-7B-Instruct", "Other", "Trained"]}]
    path = write(cells, judge_model="{{ model }}", metrics=["graded_accuracy"], **JUDGED)
    judges = [cell.judge.options["serve"] for cell in read_table(path, {}, Substitutes()).cells]
    assert judges == ["scripted/Small-1B", "scripted/Other-1B", "{{ trained }}"]


def test_a_dry_run_asks_nobody_and_counts_the_papers_number_of_questions(write, run, served):
    printed = run(
        write(options={"limit": 500}, paper=PAPER | {"judge": MODEL, "judgements": ["explained_answer"]}),
        "--dry_run",
        "true",
    )
    # A checkpoint that is not there costs what it would.
    lines = [line.replace("|", " ").split() for line in printed.splitlines() if line.startswith("| hotpotqa")]
    rows = {name: numbers for name, *numbers in lines}
    assert rows["hotpotqa/direct/Qwen-2.5-7B-Instruct"] == rows["hotpotqa/direct/Trained"]
    assert rows["hotpotqa/direct/Trained"][:2] == ["500", "1,000"]
    assert "hours on 8 A100s" in printed
    assert not served.endpoint.requests


def test_what_a_table_costs_is_known_before_anything_is_there(write, tmp_path):
    """Stand-ins have the length of the corpus's passages and the number of the published questions."""
    paper = PAPER | {
        "benchmarks": {"musique": {"dataset": "musique", "index": ["wiki"], "temperature": 0.0}},
        "variables": PAPER["variables"] | {"corpora": "corpora"},
        "corpora": {"dpr": {"words": 100}, "pages": {"words": 500, "read": 1000}},
        "indexes": {"wiki": {"corpus": "dpr"}},
    }
    rows = [{"method": ["direct", "vanilla"], "model": "Other"}]

    def tokens(**changes):
        grid = read_table(write(rows, paper=paper | changes, columns=["musique"]), {}, Substitutes())
        costs = cost_of(grid, grid.cells, DryRunArguments(), stand_ins=True)
        return {cost.name.split("/")[1]: cost for cost in costs.values()}

    costs = tokens()
    assert {cost.questions for cost in costs.values()} == {2417}
    assert [cost.calls for cost in costs.values()] == [2417, 2417]
    # Five passages.
    more = costs["vanilla"].prompt_tokens - costs["direct"].prompt_tokens
    assert 500 < more / 2417 / TOKENS_A_WORD < 600
    longer = tokens(indexes={"wiki": {"corpus": "pages"}})["vanilla"].prompt_tokens - costs["direct"].prompt_tokens
    assert 5000 < longer / 2417 / TOKENS_A_WORD < 5100


def test_gpu_seconds_are_operations_by_the_assumed_shares():
    assert gpu_seconds(1e6, 0, 8) == pytest.approx(2 * 8e9 * 1e6 / (PREFILL * PEAK))
    assert gpu_seconds(0, 1e6, 8) == pytest.approx(2 * 8e9 * 1e6 / (DECODE * PEAK))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rows": [{"method": "direct", "model": "Other", "methods": "x"}]}, r"rows\[0\]: unknown key 'methods'"),
        ({"rows": [{"method": "direct", "model": "Gpt"}]}, "unknown model 'Gpt'; choose one of: Other, Qwen"),
        ({"rows": [{"method": "direct"}]}, "has no 'model'"),
        ({"rows": [{"method": "indirect", "model": "Other"}]}, "unknown method 'indirect'; choose one of: "),
        ({"rows": CELLS * 2}, "hotpotqa/direct/Qwen-2.5-7B-Instruct is given twice"),
        ({"options": {"topk": 3}}, "unknown key 'topk'"),
        ({"judgements": ["answer"]}, "there is no judge"),
        ({"judgements": ["answers"]}, "unknown judgement 'answers'"),
        ({"judge_model": "Gpt"}, "unknown model 'Gpt'"),
        ({"table": 3}, "unknown key 'table'"),
        (
            {"options": {"family": "hotpotqq"}},
            r"table_1.yaml: rows\[0\]: unknown metric family 'hotpotqq'; .*did you mean 'hotpotqa'\?",
        ),
        ({"options": {"method_options": [1]}}, r"rows\[0\]: hotpotqa/direct/.*: method_options must be dict"),
        ({"options": {"index": 3}}, r"rows\[0\]: hotpotqa/direct/.*: index must be list\[str\]"),
        (
            {"options": {"retriever": [{"idnex": "x"}]}, "rows": [{"method": "vanilla", "model": "Other"}]},
            r"rows\[0\]: hotpotqa/vanilla/Other: .*idnex",
        ),
        ({"judgements": ["answer"], "judge": MODEL | {"temprature": 0}}, "judge: unknown key 'temprature'"),
        ({"judgements": ["answer"], "judge": {"temperature": 0}}, r"rows\[0\]: hotpotqa/direct/.*: no model; give"),
        (
            {"models": PAPER["models"] | {"Other": {}}, "rows": [{"method": "direct", "model": "Other"}]},
            "no model; give",
        ),
        ({"options": {"base_url": "http://127.0.0.1:9/v1"}}, r"rows\[0\]: hotpotqa/direct/.*: both serve and base_url"),
        (
            {"benchmarks": {"hotpotqa": {"config": "eval/none"}}},
            "name a recipe in config of .*table_1.yaml: benchmarks: hotpotqa",
        ),
        ({"judgements": ["answers"]}, "table_1.yaml: judgements: unknown judgement 'answers'"),
        (
            {"variables": {"model": "models/x"}},
            "variables: 'model' is a name of the table's own; .* benchmark and model",
        ),
    ],
)
def test_a_mistake_in_a_file_is_named(write, changes, complaint):
    with pytest.raises(UserError, match=complaint):
        read_table(write(**changes), {}, Substitutes())


def test_a_single_index_stands_for_a_list_of_one(write):
    (cell,) = read_table(
        write([{"method": "vanilla", "model": "Other"}], options={"index": "runs/one"}), {}, Substitutes()
    ).cells
    assert cell.options["index"] == ["runs/one"]


def test_a_variable_that_the_paper_does_not_have_is_named(write):
    with pytest.raises(UserError, match=r"--set colour: .* has no such variable; it has data, trained"):
        read_table(write(), {"colour": "red"}, Substitutes())


def test_a_substitute_takes_the_place_of_a_server_and_of_the_model_that_it_is_said_to_serve(write):
    models = PAPER["models"] | {"Other": {"base_url": "http://node:8000/v1", "model": "other"}}
    path = write([{"method": "direct", "model": "Other"}], paper=PAPER | {"models": models})
    (cell,) = read_table(path, {}, Substitutes(model="models/small")).cells
    assert cell.options["serve"] == "models/small"
    assert not cell.options.keys() & {"base_url", "model"}


def test_options_of_all_cells_are_those_of_a_substitute_too(write):
    models = PAPER["models"] | {"Other": MODEL | {"serve_options": {"tensor_parallel_size": 4}}}
    path = write([{"method": "direct", "model": "Other"}], paper=PAPER | {"models": models})
    given = Substitutes(model="models/small", options={"serve_options": {"max_model_len": 4096}})
    (cell,) = read_table(path, {}, given).cells
    assert cell.options["serve_options"] == {"max_model_len": 4096}


def test_questions_that_ended_in_an_error_are_counted_beside_the_table(write, run, tmp_path):
    path = write([{"method": "direct", "model": ["Qwen-2.5-7B-Instruct", "Other"]}])
    assert "ended in an error" not in run(path)
    (cell,) = (tmp_path / "out/cells").glob("*-Other-*")
    first, second = map(json.loads, (cell / "predictions.jsonl").read_text().splitlines())
    first["error"] = "the prompt is too long"
    (cell / "predictions.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    ended = "Questions that ended in an error, which count as wrong: direct, Other (1 of 2)."
    assert ended in run(path)
    assert ended in (tmp_path / "out" / f"{tmp_path.name}_table_1.html").read_text()


def test_a_retriever_replaces_an_index(write):
    cells = [{"method": "vanilla", "model": "Other", "options": {"retriever": [{"index": "a"}]}}]
    (cell,) = read_table(write(cells, options={"index": ["b"]}), {}, Substitutes()).cells
    assert cell.options["retriever"] == [{"index": "a"}] and "index" not in cell.options
    (cell,) = read_table(write(cells), {}, Substitutes(indexes="mine")).cells
    assert cell.options["index"] == ["mine/hotpotqa"] and "retriever" not in cell.options


def files_of(tmp_path):
    """The files of the table, by their ending."""
    return {path.suffix: path.read_text() for path in (tmp_path / "out").glob(f"{tmp_path.name}_table_1.*")}


def test_a_cell_that_fails_is_shown_with_its_reason_and_the_others_run(write, run, served, slices, tmp_path):
    served.endpoint.chat_only = True
    path = write([{"method": ["self_rag", "direct"], "model": "Qwen-2.5-7B-Instruct"}])
    with pytest.raises(UserError, match=r"1 of 2 cells failed.* hotpotqa/self_rag/Qwen-2.5-7B-Instruct: "):
        run(path, *slices)
    files = files_of(tmp_path)
    failed, answered = (line for line in files[".md"].splitlines() if line.startswith(("| self", "| direct")))
    assert "failed" in failed and "100.0" in answered and "failed" not in answered
    for text in files.values():
        assert served.endpoint.base_url.partition("//")[2] in text
    asked = len(served.endpoint.requests)
    served.endpoint.chat_only = False
    assert "failed" not in run(path, *slices)
    # Only the cell that had failed is asked again.
    assert all("prompt" in request for request in served.endpoint.requests[asked:])


def test_a_missing_index_fails_the_cells_that_search_it(write, run, tmp_path):
    path = write([{"method": ["vanilla", "direct"], "model": "Other"}], options={"index": [str(tmp_path / "none")]})
    with pytest.raises(UserError, match=r"1 of 2 cells failed.*none"):
        run(path)
    assert "100.0" in files_of(tmp_path)[".md"]


def test_an_interruption_ends_the_command(write, run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("notewriter.results.cells.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(write())


@pytest.fixture
def over_an_index(write, slices, monkeypatch):
    """Writes a table over an index of two passages that is said to be of a corpus of so many, beside a value inside."""

    def table(passages, **index):
        monkeypatch.setitem(PUBLISHED, "multihoprag", Published(passages, "a test"))
        row = {"paper": "DeepNote", "place": "Table 1", "dataset": "hotpotqa", "method": "vanilla", "setting": ""}
        rows = ({**row, "model": "Other", "values": {"acc": 100.0}},)
        monkeypatch.setattr("notewriter.results.table_page.published_rows", lambda: rows)
        indexes = {"{{ indexes }}/one": {"corpus": "multihoprag", **index}}
        variables = PAPER["variables"] | {"indexes": slices[1], "corpora": "corpora"}
        paper = PAPER | {
            "variables": variables,
            "corpora": {"multihoprag": {}},
            "indexes": indexes,
            "options": {"index": ["{{ indexes }}/one"]},
        }
        return write([{"method": "vanilla", "model": "Other"}], paper=paper)

    return table


def test_the_corpus_of_the_table_leaves_the_mark(over_an_index, run):
    assert "100 ✓" in run(over_an_index(2))


def test_another_corpus_is_named_in_the_table_and_has_no_mark(over_an_index, run, tmp_path, caplog):
    run(over_an_index(5_233_329))
    assert "another corpus: 2 passages" in caplog.text and "5,233,329" in caplog.text
    files = files_of(tmp_path)
    assert files.keys() == {".md", ".tex", ".html"}
    for text in files.values():
        assert "Other (another corpus: 2 passages)" in text and "5,233,329 passages" in text
    assert "100 ✓" not in files[".md"] and r"100 $\surd$" not in files[".tex"] and "100 ✓" not in files[".html"]


def test_another_retriever_is_named_too(over_an_index, run):
    printed = run(over_an_index(2, encoder="intfloat/e5-base-v2"))
    assert "Other (another retriever: BM25)" in printed and "100 ✓" not in printed


def test_an_index_in_place_of_the_tables_is_held_against_its_corpus(over_an_index, run, slices):
    path = over_an_index(5_233_329)
    assert "another corpus: 2 passages" in run(path, "--options", json.dumps({"index": [f"{slices[1]}/musique"]}))


def test_a_corpus_that_nobody_knows_is_a_mistake(over_an_index):
    path = over_an_index(2)
    base = path.parent / "paper.yaml"
    base.write_text(base.read_text().replace("corpus: multihoprag", "corpus: multihop"))
    with pytest.raises(UserError, match=r"indexes: .*'multihop'"):
        read_table(path, {}, Substitutes())


def test_a_curve_has_a_row_for_each_number_of_gold_documents(write, run, tmp_path):
    path = write([{"method": "direct", "model": "Other"}], metrics=["acc", "searches_when_wrong"], by="gold_documents")
    run(path)
    (cell,) = (tmp_path / "out/cells").glob("*-Other-*")
    first, second = map(json.loads, (cell / "predictions.jsonl").read_text().splitlines())
    first |= {"gold_documents": 4, "retrievals": 3, "scores": first["scores"] | {"acc": 0.0, "f1": 0.0, "em": 0.0}}
    (cell / "predictions.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    three, four = (line for line in run(path).splitlines() if line.startswith("| direct"))
    assert "3 gold documents (n = 1)" in three and "100.0 [100.0, 100.0]" in three and "–" in three
    assert "4 gold documents (n = 1)" in four and "0.0 [0.0, 0.0]" in four and "3.00 [3.00, 3.00]" in four


def test_a_value_of_all_questions_is_in_no_row_of_a_curve(write, run):
    path = write([{"method": "direct", "model": "Other"}], metrics=["acc", "minutes"], by="gold_documents")
    rows = [line.strip("| ").split() for line in run(path).splitlines() if line.startswith("| direct")]
    assert rows and {row[-1] for row in rows} == {"–"}


def test_minutes_are_those_of_all_model_calls(write, run, tmp_path):
    path = write([{"method": "direct", "model": "Other"}], metrics=["minutes"])
    run(path)
    (cell,) = (tmp_path / "out/cells").glob("*-Other-*")
    traces = [json.loads(line) for line in (cell / "traces.jsonl").read_text().splitlines()]
    for trace in traces:
        for step in trace["steps"]:
            step["completion"]["seconds"] = 45.0
    (cell / "traces.jsonl").write_text("".join(f"{json.dumps(trace)}\n" for trace in traces))
    (row,) = (line for line in run(path).splitlines() if line.startswith("| direct"))
    assert row.strip("| ").split()[-1] == "1.5"
