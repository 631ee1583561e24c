"""Reading pipeline files: runs, variables, and what is wrong with a file."""

import textwrap
from pathlib import Path

import pytest
import yaml
from command_options import spellings_of

from notewriter.cli import mains
from notewriter.experiments.files import read_file
from notewriter.experiments.run import RESULTS, Needs, PipelineRun, read_pipeline, training_of
from notewriter.ground.errors import UserError
from notewriter.ground.recipes import RECIPES


@pytest.fixture
def read(tmp_path):
    """Read a pipeline from YAML text."""

    def read(text, *arguments):
        path = tmp_path / "pipeline.yaml"
        path.write_text(textwrap.dedent(text))
        return read_pipeline(path, *arguments)

    return read


RUNS = """
    output_dir: runs/x
    variables:
      data: --path {{ output_dir }}/questions.jsonl
    runs:
      - title: Make questions
        command: make {{ output_dir }}
      - title: pairs
        command: >-
          notewriter pairs {{ data }} --output_dir {{ output_dir }}/pairs
        needs: {gpus: 8, hours: 2}
      - title: another
        command: "true"
        after: [Make questions]
    """


def test_variables_may_stand_for_several_words_and_folders_only_for_one(read):
    pipeline = read(RUNS, "my runs/x $y")
    assert pipeline.runs[0].argv() == ["make", "my runs/x $y"]
    words = ["notewriter", "pairs", "--path", "my runs/x $y/questions.jsonl"]
    assert pipeline.runs[1].argv() == [*words, "--output_dir", "my runs/x $y/pairs"]


def test_folders_in_the_home_folder_may_be_named_as_in_a_shell(read, monkeypatch):
    monkeypatch.setenv("HOME", "/home/mira")
    pipeline = read(RUNS.replace("runs/x", "~/runs"), None, {"data": "~/a b"})
    assert pipeline.output_dir == "/home/mira/runs"
    assert pipeline.runs[1].argv()[2:] == ["/home/mira/a b", "--output_dir", "/home/mira/runs/pairs"]


def test_a_run_may_name_the_home_folder_as_in_a_shell(read, monkeypatch):
    """Its result is looked for there, and so is what a job has left."""
    monkeypatch.setenv("HOME", "/home/mira")
    entry = {"title": "t", "command": "notewriter evaluate --limit 5 --output-dir=~/e", "serve": "~/m"}
    (run,) = read(yaml.safe_dump({"output_dir": "x", "runs": [entry]})).runs
    assert run.results() == [Path("/home/mira/e/metrics.json")]
    assert run.command_line()[4:] == ["--output_dir", "/home/mira/e", "--serve", "/home/mira/m"]


def test_a_variable_can_have_another_value(read):
    assert read(RUNS, None, {"data": "a b"}).runs[1].argv()[2] == "a b"


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("notewriter index --path c.jsonl --index runs/index", "runs/index/manifest.json"),
        ("notewriter pairs --index runs/index --output_dir p", "p/stats.json"),
        ("notewriter train dpo --accelerate cpu --output_dir m", "m/training.json"),
        ("notewriter evaluate --checkpoints m --output_dir e", "e/best_checkpoint.json"),
        ("""notewriter evaluate --chains '{"bm25": [{"index": "i"}]}' --output_dir e""", "e/retrieval.json"),
        ("notewriter report --runs a b --output r.html", "r.html"),
        ("notewriter cloze --path c.jsonl --output q.jsonl", "q.jsonl"),
        ("notewriter report --worth --runs a b --output w.html", "w.html"),
        ("notewriter merge --checkpoint a --output_dir m", "m/config.json"),
        ("notewriter evaluate --method deepnote", None),
        ("notewriter evaluate --config made_by_an_earlier_run.yaml", None),
        ("notewriter compare --before a --after b", None),
        ("make --output_dir x", None),
        # Both are an option's spellings on a command line.
        ("notewriter evaluate --output-dir=e", "e/metrics.json"),
        ("notewriter train sft --accelerate=cpu --output-dir m", "m/training.json"),
    ],
)
def test_a_result_follows_from_the_command(read, command, result):
    (run,) = read(yaml.safe_dump({"output_dir": "x", "runs": [{"title": "t", "command": command}]})).runs
    assert run.results() == ([Path(result)] if result else [])


def test_what_an_evaluation_leaves_follows_from_its_file_too(read, tmp_path):
    (tmp_path / "e.yaml").write_text("checkpoints: m\noutput_dir: e\n")
    entry = {"title": "t", "command": f"notewriter evaluate --config {tmp_path}/e.yaml"}
    (run,) = read(yaml.safe_dump({"output_dir": "x", "runs": [entry]})).runs
    assert run.results() == [Path("e/best_checkpoint.json")]


@pytest.mark.parametrize("command", sorted(RESULTS.keys() - {"train"}))
def test_what_a_command_leaves_is_named_by_an_option_that_it_has(command):
    """Asking all commands for their options takes seconds, so that a pipeline has them in a table."""
    assert RESULTS[command][0] in spellings_of(mains()[command])


def test_a_run_comes_after_the_one_before_unless_it_says_otherwise(read):
    pipeline = read(RUNS)
    assert [[each.title for each in pipeline.before(run)] for run in pipeline.runs] == [
        [],
        ["Make questions"],
        ["Make questions"],
    ]


def test_a_run_is_finished_when_its_result_exists(read, tmp_path):
    pipeline = read(RUNS, str(tmp_path))
    assert pipeline.runs[1].missing()
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs/stats.json").touch()
    assert not pipeline.runs[1].missing()
    assert pipeline.runs[0].missing()


def test_logs_are_numbered_and_named_after_their_runs(read):
    pipeline = read(RUNS)
    assert str(pipeline.log(pipeline.runs[0])) == "runs/x/logs/01-make-questions.log"
    assert str(pipeline.log(pipeline.runs[1])) == "runs/x/logs/02-pairs.log"


@pytest.mark.parametrize(
    ("needs", "nodes"), [(Needs(), 1), (Needs(gpus=8), 1), (Needs(gpus=9), 2), (Needs(nodes=4, gpus=8), 4)]
)
def test_gpus_are_spread_over_as_many_nodes_as_hold_them(needs, nodes):
    assert needs.nodes_of(8) == nodes


def test_needs_may_be_variables(read):
    text = """
        output_dir: runs/x
        variables: {gpus: 1}
        runs:
          - {title: train, command: train, needs: {gpus: "{{ gpus }}"}}
        """
    assert read(text).runs[0].needs.gpus == 1
    assert read(text, None, {"gpus": "8"}).runs[0].needs.gpus == 8
    with pytest.raises(UserError, match=r"gpus must be int, not 'many'"):
        read(text, None, {"gpus": "many"})


def test_a_command_can_name_the_pipeline_as_it_was_given(read, tmp_path):
    text = """
        output_dir: runs/x
        variables: {start: models/a}
        runs:
          - {title: write the results, command: "notewriter table {{ pipeline }} --output r.md"}
        """
    assert read(text).runs[0].argv()[2:-2] == [f"{tmp_path}/pipeline.yaml", "--output_dir", "runs/x"]
    given = read(text, "runs/my run", {"start": "models/b c"}).runs[0].argv()
    assert given[3:-2] == ["--output_dir", "runs/my run", "--set", "start=models/b c"]


def test_runs_that_would_take_each_others_results_for_their_own_are_named(read, tmp_path):
    grid = """
        output_dir: runs/x
        runs:
          - title: train with {{ beta }}
            each: {beta: [0.1, 0.3]}
            command: notewriter train dpo --beta {{ beta }} --output_dir {{ output_dir }}/dpo
        """
    with pytest.raises(UserError, match=r"runs\[0\]: 'train with 0.3' writes runs/x/dpo/.*, which 'train with 0.1' wr"):
        read(grid)
    assert len(read(grid.replace("/dpo\n", "/dpo-{{ beta }}\n")).runs) == 2
    # Also by a file that both are configured by.
    (tmp_path / "dpo.yaml").write_text("output_dir: runs/dpo\n")
    with pytest.raises(UserError, match=r"'train with 0.3' writes runs/dpo/training.json, which 'train with 0.1' wr"):
        read(grid.replace("--output_dir {{ output_dir }}/dpo", f"--config {tmp_path}/dpo.yaml"))
    # A page that is written again has no result.
    again = "{command: notewriter report --runs a --output a.html, title: 'page {{ each }}', each: {each: [1, 2]}"
    assert read(f"output_dir: x\nruns: [{again}, result: []}}]").runs[1].missing()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runs": []}, r"pipeline\.yaml: runs.* at least 1"),
        ({"run": []}, "unknown key 'run'; known are: output_dir, runs, variables, report"),
        ({"runs": [{"title": "a"}]}, r"runs\[0\] has no 'command'"),
        ({"runs": [{"title": "a", "command": "b", "afer": []}]}, r"runs\[0\]: unknown key 'afer'; known are: title,"),
        ({"runs": [{"title": "a", "command": "b {{ c }}"}]}, r"runs\[0\]: command: c in .* is not a variable"),
        ({"runs": [{"title": "a", "command": "it's"}]}, "No closing quotation; close the quotation"),
        ({"runs": [{"title": "a", "command": "b"}] * 2}, "title 'a' is given twice"),
        ({"runs": [{"title": "a", "command": "b", "after": ["c"]}]}, "'c' is not the title of an earlier run"),
        (
            {"runs": [{"title": "a", "command": "b", "shards": 3}]},
            r"`each`, or .*--array=1-3 /.*/run\.sbatch",
        ),
        ({"runs": [{"title": "a", "command": "b", "needs": {"gpu": 2}}]}, "needs: unknown key 'gpu'; known are: nodes"),
        ({"runs": [{"title": "a", "command": "b", "needs": {"gpus": -1}}]}, "gpus: -1 is too small"),
        ({"runs": [{"title": "a", "command": "b", "needs": [8]}]}, "needs must be"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_place(read, change, message):
    with pytest.raises(UserError, match=message) as caught:
        read(yaml.safe_dump({"output_dir": "runs/x", "runs": [{"title": "t", "command": "c"}]} | change))
    assert "pipeline.yaml" in str(caught.value) or "needs" in str(caught.value)


def test_a_variable_that_there_is_none_of_cannot_be_set(read):
    with pytest.raises(UserError, match=r"--set model: .* has no such variable; it has data"):
        read(RUNS, None, {"model": "x"})


@pytest.mark.parametrize("path", sorted((RECIPES / "pipelines").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_pipelines_of_the_project_can_be_read(path):
    to_be_given = [name for name, value in read_file(path, "").get("variables", {}).items() if value is None]
    assert read_pipeline(path, None, dict.fromkeys(to_be_given, "given")).runs


@pytest.mark.parametrize(
    ("command", "launch"),
    [
        (
            "notewriter train dpo --accelerate zero3 --config dpo/x",
            (
                f"{RECIPES}/accelerate/zero3.yaml",
                ["--module", "notewriter.training.dpo", "--config", "dpo/x"],
            ),
        ),
        (
            "accelerate launch --quiet --config_file mine.yaml train.py --config dpo/x",
            ("mine.yaml", ["train.py", "--config", "dpo/x"]),
        ),
        (
            "notewriter train dpo --accelerate=zero3 --num-processes=2 --config=dpo/x",
            (
                f"{RECIPES}/accelerate/zero3.yaml",
                ["--module", "notewriter.training.dpo", "--config", "dpo/x"],
            ),
        ),
        (
            "accelerate launch --config-file=mine.yaml train.py --max-steps 2",
            ("mine.yaml", ["train.py", "--max-steps", "2"]),
        ),
        ("notewriter evaluate --output_dir x", None),
    ],
)
def test_a_training_is_known_by_its_command(command, launch):
    assert training_of(PipelineRun("t", command).argv()) == launch
