from dataclasses import replace

import pytest

from notewriter.artifacts.metrics import Interval
from notewriter.evaluation.catalogue import metric_named
from notewriter.evaluation.statistics import FLOOR, permutation_test
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.results.compare import Paired, compare, corrected, p_value_text
from notewriter.results.compare_runs import format_table, main
from notewriter.results.runs import Run
from notewriter.results.tables import difference_text
from notewriter.results.without_a_model import Beside


def test_the_runs_are_paired_by_question_and_not_by_line(write_run, tmp_path):
    before = write_run(tmp_path / "before", {"a": 0.0, "b": 1.0, "only before": 1.0})
    after = write_run(tmp_path / "after", {"only after": 1.0, "b": 1.0, "a": 0.5}, calls=5)
    comparison = compare([Run(before)], [Run(after)])
    assert comparison["f1"].before == 0.5
    assert comparison["f1"].after == 0.75
    assert comparison["f1"].questions == 2
    assert comparison["f1"].difference.mean == pytest.approx(0.25)
    assert comparison["calls"].difference == Interval(2.0, 2.0, 2.0)


def test_a_question_that_one_run_did_not_score_is_left_out_and_counted_out(write_run, tmp_path):
    before = write_run(tmp_path / "before", {"a": 0.0, "b": None})
    after = write_run(tmp_path / "after", {"a": 1.0, "b": 1.0})
    comparison = compare([Run(before)], [Run(after)])
    assert comparison["f1"].questions == 1
    assert comparison["calls"].questions == 2


def test_runs_without_a_common_question_cannot_be_compared(write_run, tmp_path):
    before, after = write_run(tmp_path / "before", {"a": 0.0}), write_run(tmp_path / "after", {"b": 0.0})
    with pytest.raises(UserError, match=r"before and .*after have no question in common"):
        compare([Run(before)], [Run(after)])


def test_one_id_must_stand_for_one_question(write_run, tmp_path):
    before = write_run(tmp_path / "before", {"a": 0.0})
    after = write_run(tmp_path / "after", {"a": 0.0}, question="Where?")
    with pytest.raises(UserError, match="question 'a' has a different text"):
        compare([Run(before)], [Run(after)])


def test_families_with_other_rules_cannot_be_compared(write_run, tmp_path):
    before = write_run(tmp_path / "before", {"a": 0.0})
    after = write_run(tmp_path / "after", {"a": 0.0}, family="hotpotqa")
    with pytest.raises(UserError, match=r"'musique' and .* by 'hotpotqa'"):
        compare([Run(before)], [Run(after)])


def test_the_command_prints_an_aligned_table_that_marks_what_excludes_zero(write_run, tmp_path, capsys):
    write_run(tmp_path / "before", {str(number): 0.0 for number in range(8)})
    write_run(tmp_path / "after", {str(number): 1.0 for number in range(8)})
    main(["--before", str(tmp_path / "before"), "--after", str(tmp_path / "after")])
    header, rule, first, *others = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len({len(line) for line in (header, rule, first, *others)}) == 1
    assert " ".join(first.split()) == "| f1 | 0.000 | 1.000 | +1.000 [+1.000, +1.000] * | 0.008 | 8 |"
    assert "*" not in others[0]


def test_several_seeds_are_averaged_question_by_question_and_their_deviation_is_told(write_run, tmp_path, capsys):
    for seed, score in enumerate((0.0, 0.5)):
        write_run(tmp_path / f"before{seed}", {"a": score, "b": 0.25})
        write_run(tmp_path / f"after{seed}", {"a": 1.0, "b": 0.75})
    folders = {side: [tmp_path / f"{side}{seed}" for seed in (0, 1)] for side in ("before", "after")}
    row = compare(*(list(map(Run, folders[side])) for side in ("before", "after")))["f1"]
    assert (row.before, row.after, row.questions) == (0.25, 0.875, 2)
    assert row.deviations == (pytest.approx(0.1768, abs=1e-4), 0.0)
    main([*("--before", *map(str, folders["before"])), *("--after", *map(str, folders["after"]))])
    assert "0.250 ± 0.177" in capsys.readouterr().out


def test_the_p_values_of_the_scores_are_corrected_for_their_number(write_run, tmp_path):
    write_run(tmp_path / "before", {str(number): 0.0 for number in range(8)})
    write_run(tmp_path / "after", {str(number): 1.0 for number in range(8)})
    alone = compare([Run(tmp_path / "before")], [Run(tmp_path / "after")])["f1"].p_value
    assert alone == pytest.approx(2 / 2**8)
    for folder in ("before", "after"):
        records = [record for _, record in jsonl.read(tmp_path / folder / "predictions.jsonl")]
        for record in records:
            record["scores"]["em"] = record["scores"]["f1"] if record["question_id"] != "0" else 0.0
        jsonl.write(tmp_path / folder / "predictions.jsonl", records)
    both = compare([Run(tmp_path / "before")], [Run(tmp_path / "after")])
    assert both["f1"].p_value == pytest.approx(2 * alone)
    # One question less changed, and the other test is done.
    assert both["em"].p_value == pytest.approx(2 / 2**7)


def test_alike_scores_are_one_test_and_a_score_that_no_question_changed_is_none(write_run, tmp_path):
    runs = [Run(write_run(tmp_path / str(score), {str(n): score for n in range(8)})) for score in (0.0, 1.0)]
    (alone,) = [each for name, each in compare(runs[:1], runs[1:]).items() if name == "f1"]
    comparison = {"f1": alone, "em": alone, "acc": compare(runs[:1], runs[:1])["f1"]}
    (shown,) = corrected([comparison])
    assert (shown["f1"].p_value, shown["em"].p_value, shown["acc"].p_value) == (alone.p_value, alone.p_value, 1.0)


def test_no_asterisk_stands_beside_a_corrected_p_above_a_twentieth():
    paired = Paired(0.2, 0.5, (None, None), Interval(0.3, 0.1, 0.5), p_value=0.04, questions=24)
    comparison = {name: replace(paired, before=place / 10) for place, name in enumerate(["em", "acc", "str_em", "f1"])}
    (shown,) = corrected([comparison])
    assert difference_text("f1", paired).endswith(" *")
    assert shown["f1"].p_value == pytest.approx(4 * 0.04)
    assert difference_text("f1", shown["f1"]) == "+0.300 [+0.100, +0.500]"
    # A cost has no p.
    assert difference_text("calls", replace(paired, p_value=1.0)).endswith(" *")


def test_a_table_gives_costs_fewer_decimals_than_shares():
    assert metric_named("em").decimals == 3
    assert metric_named("prompt_tokens").decimals == 1
    table = format_table(
        {
            "prompt_tokens": Paired(
                before=1500,
                after=900,
                deviations=(None, None),
                difference=Interval(-600, -700, -500),
                p_value=0.01,
                questions=4,
            )
        },
        Beside({}, {}),
    )
    assert "| 1,500.0 |" in table
    assert "-600.0 [-700.0, -500.0] *" in table


def test_a_p_value_at_the_floor_of_the_permutations_is_shown_as_a_bound_that_is_not_too_low():
    # No other permutation of thirty differences of one sign is as extreme.
    p_value = permutation_test([0.0] * 30, [0.5] * 30)
    assert p_value == FLOOR
    assert p_value_text("f1", 84 * p_value, at_floor=True) == "<0.009"
    assert p_value_text("f1", 84 * p_value) == "0.008"
    assert p_value_text("f1", p_value, at_floor=True) == p_value_text("f1", 1e-9) == "<0.001"
    assert p_value_text("calls", p_value, at_floor=True) == ""
