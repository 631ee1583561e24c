"""The verdict in words: what each outcome of the tables says."""

import shutil

import pytest
from stats_file import write_stats

from notewriter.artifacts.metrics import Interval
from notewriter.results.compare import Paired
from notewriter.results.compare_runs import main
from notewriter.results.report import write_report
from notewriter.results.runs import Run
from notewriter.results.verdict import verdict


def paired(mean, reach, before=0.4, p_value=0.01):
    return Paired(before, before + mean, (None, None), Interval(mean, mean - reach, mean + reach), p_value, 100)


@pytest.fixture
def runs(write_run, tmp_path):
    """The same method with a model before and after training."""
    both = [Run(write_run(tmp_path / name, {"a": 0.0})) for name in ("base", "tuned")]
    metrics = (tmp_path / "tuned/metrics.json").read_text()
    (tmp_path / "tuned/metrics.json").write_text(metrics.replace('"model": "small"', '"model": "checkpoint"'))
    return both


def controls(mean, reach, p_value=0.01):
    facts = {"lead": 0.3, "overlap": 0.5, "gold": 0.9}
    return {name: {"note_fact_recall": paired(mean, reach, before, p_value)} for name, before in facts.items()}


@pytest.mark.parametrize(
    ("gain", "beside", "sentence"),
    [
        (
            paired(0.12, 0.05),
            controls(0.05, 0.02),
            "Training helped: notes hold 0.120 more of the facts than before [+0.070, +0.170], and 0.050 more than the "
            "best note without a model (overlap) [+0.030, +0.070].",
        ),
        (
            paired(0.12, 0.05),
            controls(0.05, 0.2),
            "Training helped: notes hold 0.120 more of the facts than before [+0.070, +0.170], and 0.050 more than the "
            "best note without a model (overlap) [-0.150, +0.250], which may be chance. 100 questions are few to judge "
            "by: if it stays at +0.050, a difference is told from chance with about 1,600.",
        ),
        (
            paired(0.12, 0.05),
            controls(-0.19, 0.1),
            "Do not use this model: its notes hold fewer facts than the sentences that share most words with the "
            "question (overlap: -0.190 [-0.290, -0.090]); notes hold 0.120 more of the facts than before "
            "[+0.070, +0.170].",
        ),
        (
            paired(0.02, 0.05, p_value=0.6),
            {},
            "Nothing shows that training helped: notes hold 0.020 more of the facts than before [-0.030, +0.070]. 100 "
            "questions are few to judge by: if it stays at +0.020, a difference is told from chance with about 625.",
        ),
        (
            # The interval alone excludes zero.
            paired(0.06, 0.05, p_value=0.3),
            {},
            "Nothing shows that training helped: notes hold 0.060 more of the facts than before [+0.010, +0.110].",
        ),
        (
            paired(-0.12, 0.05),
            {},
            "Training hurt: notes hold 0.120 less of the facts than before [-0.170, -0.070].",
        ),
    ],
)
def test_the_intervals_of_the_tables_decide_what_is_said(runs, gain, beside, sentence):
    assert verdict(*runs, {"note_fact_recall": gain, "f1": paired(0.0, 0.1)}, beside) == sentence


def test_a_model_that_is_no_better_and_learnt_from_few_questions_is_said_to_need_more(runs, tmp_path):
    """As the records beside its checkpoint, and beside the data of that, tell."""
    checkpoint, pairs = tmp_path / "checkpoint", tmp_path / "pairs"
    trained_on, asked = {"pairs": pairs, "data": tmp_path / "gold"}, {"path": "questions.jsonl"}
    for folder, config in ((runs[1].folder, {"serve": checkpoint}), (checkpoint, trained_on), (pairs, asked)):
        folder.mkdir(exist_ok=True)
        (folder / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in config.items()))
    write_stats(pairs, questions=25)
    # Of the same questions, which count once.
    shutil.copytree(pairs, tmp_path / "gold")
    worse, better = ({"note_fact_recall": paired(mean, 0.05)} for mean in (-0.12, 0.12))
    few = (
        " It learnt from 25 questions, which are few: with 375 more there would be the 400 up to which notes were seen "
        "to gain (docs/worth.md)."
    )
    assert verdict(*runs, worse, {}).endswith(f"than before [-0.170, -0.070].{few}")
    assert verdict(*runs, better, controls(-0.19, 0.1)).endswith(few)
    assert few not in verdict(*runs, better, controls(0.05, 0.02))
    # Somebody else's statistics, without a configuration, say nothing.
    (tmp_path / "gold/config.yaml").unlink()
    (tmp_path / "gold/stats.json").write_text('{"questions": ["Where?"]}')
    assert verdict(*runs, worse, {}).endswith(few)
    # The interval alone excludes zero.
    assert verdict(*runs, {"note_fact_recall": paired(0.06, 0.05, p_value=0.3)}, {}).endswith(few)


def test_longer_notes_are_said_to_be_longer(runs):
    said = verdict(*runs, {"note_fact_recall": paired(0.12, 0.05), "note_words": paired(7.0, 2.0, 16.0)}, {})
    assert said.endswith("than before [+0.070, +0.170] (+7 words).")


def test_runs_of_other_methods_are_no_training_and_runs_without_notes_go_by_their_score(write_run, tmp_path):
    runs = [Run(write_run(tmp_path / name, {"a": 0.0})) for name in ("vanilla", "deepnote")]
    assert verdict(*runs, {"f1": paired(0.2, 0.1)}, {}) == (
        "deepnote is better: Token F1 is 0.200 more than vanilla [+0.100, +0.300]."
    )
    assert verdict(*runs, {"calls": paired(1, 0)}, {}) == ""


def test_a_control_as_the_run_before_is_no_training(runs):
    metrics = runs[0].folder / "metrics.json"
    metrics.write_text(metrics.read_text().replace('"model": "small"', '"model": ""'))
    said = verdict(Run(runs[0].folder), runs[1], {"note_fact_recall": paired(0.12, 0.05)}, {})
    assert said.startswith("tuned is better: notes hold 0.120 more of the facts than base")


def test_it_is_the_last_line_of_compare_and_the_first_of_the_report(write_run, tmp_path, capsys):
    runs = [write_run(tmp_path / name, {str(n): s for n in range(8)}) for name, s in (("old", 0.0), ("new", 1.0))]
    main(["--before", str(runs[0]), "--after", str(runs[1])])
    sentence = "new is better: Token F1 is 1.000 more than old [+1.000, +1.000]."
    assert capsys.readouterr().out.endswith(f"\n\n{sentence}\n")
    write_report(runs, tmp_path / "report.html")
    header = (tmp_path / "report.html").read_text().partition("<header>")[2]
    assert header.split("<p ")[1].endswith(f"<b>{sentence}</b></p>\n  ")
