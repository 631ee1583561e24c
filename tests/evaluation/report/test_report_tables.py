from notewriter.evaluation.report.runs import read_runs
from notewriter.evaluation.report.tables import differences, kinds, published
from notewriter.ground import jsonl


def test_the_score_is_taken_apart_by_type_and_hops(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0, "b": 1.0, "c": 0.5})
    records = [record for _, record in jsonl.read(run / "predictions.jsonl")]
    metadata = [{"type": "bridge", "hops": 2}, {"type": "bridge | <b>", "hops": 3}, {"type": ["odd"]}]
    jsonl.write(
        run / "predictions.jsonl",
        [record | {"metadata": each} for record, each in zip(records, metadata, strict=True)],
    )
    assert [(row["kind"], row["questions"], row["cells"][0]["text"]) for row in kinds(read_runs([run]))] == [
        ("Type: <b>", 1, "1.000"),
        ("Type: bridge", 2, "0.500"),
        ("Hops: 2", 1, "0.000"),
        ("Hops: 3", 1, "1.000"),
    ]


def test_differences_carry_corrected_p_values(write_run, tmp_path):
    runs = [
        write_run(tmp_path / name, {str(number): score for number in range(12)})
        for name, score in [("before", 0.0), ("after", 1.0)]
    ]
    (difference,) = differences(read_runs(runs))
    row = difference["rows"]["f1"]
    # McNemar's exact test of twelve questions that all changed: 2 / 2 ** 12.
    assert (row["text"], row["p_value"], row["questions"], row["excludes_zero"]) == ("+1.000", "<0.001", 12, True)


def test_p_values_are_corrected_for_the_scores_of_all_runs_together(write_run, tmp_path):
    before, *after = (
        write_run(tmp_path / str(right), {str(number): float(number < right) for number in range(12)})
        for right in (0, 6, 7)
    )
    other = write_run(tmp_path / "other", {"0": 1.0}, family="nq")
    first, second, incomparable = differences(read_runs([before, *after, other]))
    # McNemar's: 2 / 2 ** 6 and 2 / 2 ** 7. The smaller one is doubled; the larger one stays above it.
    assert (first["rows"]["f1"]["p_value"], second["rows"]["f1"]["p_value"]) == ("0.031", "0.031")
    assert "whose rules differ" in incomparable["reason"] and not incomparable["rows"]
    # One alone is corrected for nothing.
    assert differences(read_runs([before, after[1]]))[0]["rows"]["f1"]["p_value"] == "0.016"


def test_the_papers_numbers_of_the_runs_dataset_stand_beside_the_runs(write_run, tmp_path):
    (table,) = published(read_runs([write_run(tmp_path / "run", {"a": 0.5})]))
    assert (table["dataset"], table["metrics"]) == ("musique", ["acc", "f1", "em", "graded_accuracy"])
    # MuSiQue is in three papers; ours has F1 alone.
    assert [row["values"] for row in table["ours"]] == [{"f1": 50.0}]
    assert {row["paper"] for row in table["theirs"]} == {"DeepNote", "ReaRAG", "Search-R1"}
    assert [row["values"] for row in table["theirs"] if row["model"] == "ReaRAG-9B" and row["place"] == "Table 1"] == [
        {"graded_accuracy": 66.0, "em": 40.0}
    ]
