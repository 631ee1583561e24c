"""A pipeline whose variables have no values asks for them in a terminal."""

import io

import pytest

from notewriter.experiments import asking, pipeline
from notewriter.experiments.asking import asked, lacks_answers
from notewriter.experiments.run import read_pipeline, read_pipeline_file
from notewriter.ground.recipes import RECIPES

OWN = RECIPES / "pipelines/own.yaml"


@pytest.fixture(autouse=True)
def plan(monkeypatch):
    monkeypatch.setattr(
        asking, "forecast", lambda each: ["# train: 2.0 minutes\nnotewriter train\n", "# in all: 5.0 minutes\n"]
    )


def asks_of(tmp_path, *lines):
    """What is asked and said, and what comes of it."""
    typed, shown = iter(lines), []

    def ask(text):
        shown.append(text)
        return next(typed)

    return asked(OWN, str(tmp_path / "my runs"), ask, shown.append), shown


def test_the_answers_are_the_variables_of_a_file_that_is_then_run(tmp_path):
    made, shown = asks_of(tmp_path, "my manuals", "made", "", "", "yes")
    assert shown[0].startswith("a folder of your documents") and shown[0].endswith("text): ")
    assert shown[2] == "the chat model that learns [HuggingFaceTB/SmolLM2-135M-Instruct]: "
    commands = {run.title: run.argv() for run in made.runs}
    assert commands["read the documents"][5] == "my manuals"
    # The same file again, as whoever resumes gives it.
    written = tmp_path / "my runs/pipeline.yaml"
    again = read_pipeline(written, str(tmp_path / "my runs"))
    assert [run.command for run in again.runs] == [run.command for run in made.runs]
    assert not lacks_answers(read_pipeline_file(written)) and lacks_answers(read_pipeline_file(OWN))


def test_what_is_needed_is_asked_again_and_a_teachers_model_only_with_a_teacher(tmp_path):
    made, shown = asks_of(tmp_path, "", "{{ docs }}", "q.jsonl", "", "https://teacher.example/v1", "large", "", "y")
    assert shown[0] == shown[1] and "the name of its model: " in shown
    commands = {run.title: run.argv() for run in made.runs}
    assert commands["read the documents"][5] == "{{ docs }}"
    assert "large" in commands["label pairs"] and "--prices" not in commands["label pairs"]


def test_the_plan_is_said_before_anything_is_run_and_a_no_runs_nothing(tmp_path):
    made, shown = asks_of(tmp_path, "docs", "made", "", "", "no")
    assert made is None
    assert "".join(shown).endswith("train: 2.0 minutes\nin all: 5.0 minutes\nrun it now? [yes]: ")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_in_a_terminal_the_command_asks_and_the_end_of_the_input_ends_it(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", Terminal("docs\n"))
    monkeypatch.setattr("sys.stdout", shown := Terminal())
    monkeypatch.setattr(pipeline, "run_here", lambda *_: pytest.fail("is run"))
    pipeline.main([str(OWN), "--output_dir", str(tmp_path / "out")])
    assert "your questions" in shown.getvalue() and not (tmp_path / "out").exists()
