"""Sets of pairs side by side: yields, what separates the sides, and agreement, from hand-made folders."""

import pytest
from stats_file import write_stats

from notewriter.ground.errors import UserError
from notewriter.results.pair_sets import pair_tables

STATISTICS = {
    "stages": {"init_note": {"pairs": 3, "dropped": {"candidates too much alike": 1, "beyond the quota": 4}}},
    "agreement": {"init_note": {"asked": 4, "agreed": 3, "rate": 0.75}},
    "tokens_in_all": {"prompt_tokens": 7000, "completion_tokens": 800},
}


def one(number, chosen, rejected):
    return {
        "prompt": [{"role": "user", "content": f"What is {number}?"}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
        "stage": "init_note",
        "question_id": f"q{number}",
    }


def save(write_pairs, tmp_path, name, rows):
    folder = write_pairs(rows).rename(tmp_path / name)
    write_stats(folder, **STATISTICS)
    return str(folder)


def test_a_set_has_its_yield_and_the_feature_that_tells_its_sides_apart(write_pairs, tmp_path):
    rows = [
        one(0, "mira sang", "mira sang and danced"),
        one(1, "osk", "osk and mira"),
        one(2, "in may", "in june 1907"),
    ]
    sets = {"outcome": save(write_pairs, tmp_path, "outcome", rows), "llm": str(tmp_path / "llm")}
    (_, _, yields), (_, _, separations) = pair_tables(sets)
    assert yields == [
        # Of eight prompts, seven gave a pair, and the quota was three.
        ["outcome", "8", "7", "0.875", "3", "3 of 4", "7,000", "800"],
        ["llm", *["not run"] * 7],
    ]
    # The chosen side is longer in none of the three.
    assert separations == [["outcome", "init_note", "3", "1.7", "3.3", "0%", "is longer: 0%"]]


def test_two_sets_agree_on_the_prompts_that_both_have(write_pairs, tmp_path):
    first = [one(0, "a", "b"), one(1, "a", "b"), one(2, "a", "b"), one(3, "a", "b")]
    second = [one(0, "a", "b"), one(1, "a", "c"), one(2, "b", "a"), one(9, "a", "b")]
    sets = {"one": save(write_pairs, tmp_path, "one", first), "two": save(write_pairs, tmp_path, "two", second)}
    *_, (_, _, agreement) = pair_tables(sets)
    assert agreement == [["one and two", "3", "2", "1", "1"]]


def test_disagreement_is_counted_whichever_set_comes_first(write_pairs, tmp_path):
    sets = {"one": save(write_pairs, tmp_path, "one", [one(0, "a", "b")])}
    sets["two"] = save(write_pairs, tmp_path, "two", [one(0, "b", "c")])
    for order in (list(sets), list(sets)[::-1]):
        *_, (_, _, [row]) = pair_tables({name: sets[name] for name in order})
        assert row[1:] == ["1", "0", "0", "1"]


def test_sets_of_other_prompts_are_not_compared(write_pairs, tmp_path):
    sets = {name: save(write_pairs, tmp_path, name, [one(name, "a", "b")]) for name in ("one", "two")}
    assert [title.split()[0] for title, *_ in pair_tables(sets)] == ["Yields", "What"]


def test_a_set_whose_statistics_are_cut_is_named(write_pairs, tmp_path):
    folder = save(write_pairs, tmp_path, "outcome", [one(0, "mira sang", "osk")])
    (tmp_path / "outcome/stats.json").write_text('{"schema": "notewriter/pairs-stats/1"}')
    with pytest.raises(UserError, match=r"outcome/stats\.json has no 'questions'; restore the file"):
        pair_tables({"outcome": folder})
