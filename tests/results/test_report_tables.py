from notewriter.ground import jsonl
from notewriter.results.runs import read_runs
from notewriter.results.sections import difference_table, differences, kinds


def test_the_score_is_taken_apart_by_type_and_hops(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0, "b": 1.0, "c": 0.5})
    records = [record for _, record in jsonl.read(run / "predictions.jsonl")]
    metadata = [{"type": "bridge", "hops": 2}, {"type": "bridge | <b>", "hops": 3}, {"type": ["odd"]}]
    jsonl.write(
        run / "predictions.jsonl",
        [record | {"metadata": each} for record, each in zip(records, metadata, strict=True)],
    )
    caption, header, rows = kinds(read_runs([run]))
    assert (caption, header) == ("Token F1 by kind of question", ["", "Questions", "run"])
    assert [(kind, questions, score.split()[0]) for kind, questions, score in rows] == [
        ("Type: <b>", "1", "1.000"),
        ("Type: bridge", "2", "0.500"),
        ("Hops: 2", "1", "0.000"),
        ("Hops: 3", "1", "1.000"),
    ]


def test_differences_carry_corrected_p_values(write_run, tmp_path):
    runs = [
        write_run(tmp_path / name, {str(number): score for number in range(12)})
        for name, score in [("before", 0.0), ("after", 1.0)]
    ]
    runs = read_runs(runs)
    (difference,) = differences(runs)
    _, _, rows = difference_table(difference, runs)
    # McNemar's exact test of twelve questions that all changed: 2 / 2 ** 12.
    assert rows[0] == ["Token F1", "0.000", "1.000", "+1.000 [+1.000, +1.000] *", "<0.001", "12"]


def test_p_values_are_corrected_for_the_scores_of_all_runs_together(write_run, tmp_path):
    before, *after = (
        write_run(tmp_path / str(right), {str(number): float(number < right) for number in range(12)})
        for right in (0, 6, 7)
    )
    other = write_run(tmp_path / "other", {"0": 1.0}, family="nq")
    first, second, incomparable = differences(read_runs([before, *after, other]))
    # McNemar's: 2 / 2 ** 6 and 2 / 2 ** 7. The smaller one is doubled; the larger one stays above it.
    assert [each.comparison["f1"].p_value for each in (first, second)] == [2 / 2**6, 2 / 2**6]
    assert "whose rules differ" in incomparable.reason and not incomparable.comparison
    # One alone is corrected for nothing.
    assert differences(read_runs([before, after[1]]))[0].comparison["f1"].p_value == 2 / 2**7
