"""Notes before and after training side by side, with the best note that no model wrote."""

import pytest

from notewriter.artifacts.predictions import read_predictions
from notewriter.ground.digests import drawn
from notewriter.ground.errors import UserError
from notewriter.results.compare_runs import examples, main
from notewriter.results.runs import Run


def test_notes_of_both_runs_and_the_best_control_stand_below_their_question(noted_runs, capsys):
    folder = noted_runs[0]
    main(["--before", str(folder / "before"), "--after", str(folder / "after"), "--examples", "2"])
    shown = capsys.readouterr().out.partition("Notes side by side, with their share of the facts:\n\n")[2]
    *blocks, _verdict = shown.strip().split("\n\n")
    after = read_predictions(folder / "after/predictions.jsonl")
    ids = drawn(after, 2)
    assert [block.splitlines()[0] for block in blocks] == [
        f"{after[id].question} ({' | '.join(after[id].answers)})" for id in ids
    ]
    for id, block in zip(ids, blocks, strict=True):
        before, trained, control = (line.split(maxsplit=2) for line in block.splitlines()[1:])
        assert (before[0], trained[0]) == ("before", "after")
        assert trained[1:] == [f"{after[id].scores['note_fact_recall']:.2f}", " ".join(after[id].note.split())]
        assert control[0] in {"lead", "first", "overlap", "random"}
        assert len(control[2].split()) <= len(after[id].note.split())


def test_a_run_is_not_two_seeds_of_its_side(write_run, tmp_path):
    run = str(write_run(tmp_path / "run", {"a": 1.0}))
    with pytest.raises(UserError, match="given twice, which would count as two seeds"):
        main(["--before", run, f"{run}/../run", "--after", run])


def test_runs_without_notes_have_no_examples(write_run, tmp_path):
    before, after = (write_run(tmp_path / name, {"a": 1.0}) for name in ("before", "after"))
    assert examples(Run(before), Run(after), 3, "") == ""


def test_ids_are_drawn_by_their_hashes_alone():
    ids = [f"q{number}" for number in range(100)]
    assert drawn(ids, 5) == drawn(reversed(ids), 5) != ids[:5]
