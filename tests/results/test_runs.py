"""A cell has the runs of its seeds that have finished, from their folders or from what was published of them."""

from notewriter.results.runs import Cell, Run


def test_the_runs_of_a_cell_are_those_that_have_finished(tmp_path, write_run):
    write_run(tmp_path / "second", {"a": 1.0})
    (tmp_path / "third").mkdir()
    cell = Cell("trained", "near", {1: tmp_path / "first", 2: tmp_path / "second", 3: tmp_path / "third"})
    assert {seed: run.folder.name for seed, run in cell.runs.items()} == {2: "second"}


def test_a_published_run_is_not_read_from_its_folder(tmp_path, write_run):
    write_run(tmp_path / "first", {"a": 1.0})
    write_run(tmp_path / "second", {"a": 0.0})
    published = Run(tmp_path / "gone", published=Run(tmp_path / "second").predictions, scored_by="musique")
    cell = Cell("trained", "near", {1: tmp_path / "first", 2: tmp_path / "second"}, published={1: published})
    assert cell.runs[1] is published and cell.runs[1].predictions["a"].scores == {"f1": 0.0}
    assert cell.runs[2].folder == tmp_path / "second"
