"""What the notes of real evaluations are worth, beside notes without a model."""

from dataclasses import replace
from statistics import mean

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config

from notewriter.evaluation import evaluate, notes
from notewriter.evaluation.controls import CONTENDERS, control_scores
from notewriter.ground.errors import UserError
from notewriter.results import report, worth
from notewriter.results.measures import HEADS
from notewriter.results.runs import Run
from notewriter.results.without_a_model import highest_control
from notewriter.results.worth import CONTROLS, OWN, WorthArguments, best_table, curves, worth_of, writers_table
from notewriter.rollouts.regression import fitted
from notewriter.testing import scripted_endpoint


@pytest.fixture(scope="module")
def after(noted_runs):
    folder, _ = noted_runs
    return worth_of(Run(folder / "after"), WorthArguments(), None, folder)


def test_every_writer_has_every_measure_at_the_words_of_the_runs_notes(after):
    assert list(after.scores) == [OWN, *CONTROLS]
    names = {"note_words", "note_fact_recall", "note_fact_recall_40", "note_density", "next_has_answer", "next_recall"}
    for by_question in after.scores.values():
        assert len(by_question) == 6
        assert all(names <= each.keys() for each in by_question.values())
    assert {each["note_words"] for name in (OWN, *CONTENDERS) for each in after.scores[name].values()} == {12.0}


def test_every_measure_of_a_note_has_a_column():
    assert {metric.name for metric in (*notes.METRICS, *notes.NAMES)} <= HEADS.keys()


def test_evidence_finds_more_with_the_next_search_than_a_note_that_knows_nothing(after):
    found = {writer: mean(each["next_recall"] for each in by.values()) for writer, by in after.scores.items()}
    assert found["gold"] > found["other"]
    # The note of the run says nothing, so it searches as the question alone does.
    assert found[OWN] == found["other"]


def test_the_best_control_is_chosen_measure_by_measure_and_compared_with_the_notes(after, noted_runs):
    folder, _ = noted_runs
    _, _, rows = best_table([after], None)
    scores = control_scores(folder / "after")
    best = highest_control(scores, "note_fact_recall")
    expected = mean(each["note_fact_recall"] for each in scores[best].values())
    name, control, own, difference, *_, questions = rows[0]
    assert (name, own, control) == (f"after, facts in 40, minus {best}", "0.000", f"{expected:.3f}")
    # Six questions are too few for an asterisk among four measures.
    assert difference.startswith(f"-{expected:.3f} [") and not difference.endswith(" *")
    assert questions == "6"


def test_the_control_to_beat_is_chosen_on_training_questions_if_these_are_given(after):
    scores = {
        name: {id: {"note_fact_recall_40": float(name == "random")} for id in by_question}
        for name, by_question in after.scores.items()
    }
    chosen = worth.Worth("train", after.readings, scores)
    _, _, rows = best_table([after], chosen)
    assert [row[0].rpartition(" ")[2] for row in rows] == ["random"]


def test_a_control_that_is_fitted_joins_the_others_on_questions_that_it_has_not_seen(after, noted_runs):
    folder, _ = noted_runs
    seen = [replace(each.question, id=f"seen {each.question.id}") for each in after.readings]
    regression = fitted(zip(seen, (each.passages for each in after.readings), strict=True))
    worth = worth_of(Run(folder / "after"), WorthArguments(further=0), None, folder, regression)
    assert {each["note_words"] for each in worth.scores["regression"].values()} == {12.0}
    scores = worth.scores | {"regression": {id: {"note_fact_recall": 1.0} for id in worth.scores["lead"]}}
    assert ">regression<" in curves([replace(worth, scores=scores)], regression)
    of_itself = fitted((each.question, each.passages) for each in after.readings)
    with pytest.raises(UserError, match="regression: was fitted on question"):
        worth_of(Run(folder / "after"), WorthArguments(further=0), None, folder, of_itself)


def test_a_row_of_a_writer_has_its_means_under_short_heads(after):
    caption, header, rows = writers_table(after)
    assert caption.startswith("after: 6 questions")
    assert header[:4] == ["writer", "words", "facts", "facts in 20"]
    assert header[-2:] == ["answer found next", "passages found next"]
    assert [row[0] for row in rows] == ["after", *CONTROLS]
    assert rows[0][1:3] == ["12.0", "0.000"]


def test_the_page_has_the_comparison_the_curves_and_the_writers(noted_runs, tmp_path):
    folder, _ = noted_runs
    page, text = tmp_path / "worth.html", tmp_path / "worth.md"
    runs = [str(folder / "before"), str(folder / "after")]
    report.main(["--worth", "--runs", *runs, "--output", str(page), "--markdown", str(text)])
    for shown in (page.read_text(), text.read_text()):
        assert "chosen on these same questions, which favours it" in shown
        assert "Against the best note without a model" in shown
        assert "before: 6 questions" in shown and "after: 6 questions" in shown
    assert page.read_text().count("<polyline") == 6
    assert "](worth-worth.svg)" in text.read_text()
    assert (tmp_path / "worth-worth.svg").read_text().count("<polyline") == 6

    report.main(["--worth", "--runs", runs[1], "--choose_on", runs[0], "--further", "0", "--output", str(page)])
    assert f"the highest mean on the questions of before ({runs[0]})" in page.read_text()
    assert "passages found next" not in page.read_text()


def test_a_reader_that_is_named_says_how_much_likelier_the_notes_make_the_answer(noted_runs, tmp_path):
    folder, _ = noted_runs
    page = tmp_path / "worth.html"
    with scripted_endpoint() as endpoint:
        reader = ["--base_url", endpoint.base_url, "--model", "scripted", "--cache", str(tmp_path / "cache.sqlite")]
        report.main(["--worth", "--runs", str(folder / "after"), "--further", "0", "--output", str(page), *reader])
        assert endpoint.requests
    # Its likelihoods are the same whatever is in the prompt.
    assert "<th>after, likelihood, minus " in page.read_text() and "+0.000 [+0.000, +0.000]" in page.read_text()


def test_a_control_in_the_place_of_the_model_is_worth_as_much_as_itself(noted_runs, tmp_path):
    _, world = noted_runs
    with fake_endpoint(lambda request: "nobody") as endpoint:
        settings = {
            "method_options": {"adaptive_retrieval": False},
            "models": {"notes": {"control": "lead", "words": 12}},
        }
        evaluate.main(run_config(tmp_path, "lead", world, endpoint, settings))
    measured = worth_of(Run(tmp_path / "lead"), WorthArguments(further=0), None, tmp_path)
    assert measured.scores[OWN] == measured.scores["lead"]


@pytest.mark.parametrize(
    "option", [["--choose_on", "runs/train"], ["--further", "0"], ["--serve", "models/x"], ["--top_p", "0.5"]]
)
def test_an_option_of_what_notes_are_worth_is_not_ignored(noted_runs, tmp_path, option):
    runs = ["--runs", str(noted_runs[0] / "after"), "--output", str(tmp_path / "report.html")]
    with pytest.raises(UserError, match=f"{option[0][2:]} is an option of --worth; add --worth"):
        report.main([*runs, *option])


def test_a_run_without_notes_is_worth_nothing_to_measure(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0})
    with pytest.raises(UserError, match=r"run: has no notes; name a run of a method that keeps one"):
        report.main(["--worth", "--runs", str(run), "--output", str(tmp_path / "worth.html")])
