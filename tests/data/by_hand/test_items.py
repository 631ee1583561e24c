import pytest
from by_hand_pairs import BOATS, FACTS, pair, pairs_folder, write
from written_runs import noted_runs as noted_runs

from notewriter.data.by_hand.items import ByHandArguments, SampleArguments, left_index, sample
from notewriter.ground.errors import UserError


def drawn(folders, most=200, seed=0):
    return sample(ByHandArguments(pairs=[str(folder) for folder in folders]), SampleArguments(most=most, seed=seed))


def test_the_order_is_random_and_depends_on_the_seed_alone(tmp_path):
    folder = pairs_folder(tmp_path / "pairs", 30)
    order = [item.question_id for item in drawn([folder])]
    assert sorted(order) == sorted(f"q{number}" for number in range(30))
    assert order not in (sorted(order), [f"q{number}" for number in range(30)])
    assert order == [item.question_id for item in drawn([folder])]
    assert order != [item.question_id for item in drawn([folder], seed=1)]


def test_a_sample_is_the_beginning_of_a_larger_one(tmp_path):
    folder = pairs_folder(tmp_path / "pairs", 30)
    assert drawn([folder], most=5) == drawn([folder], most=20)[:5]


def test_the_sides_are_drawn_for_each_person(tmp_path):
    items = drawn([pairs_folder(tmp_path / "pairs", 60)])
    ana, ben = ([left_index(item, 0, name) for item in items] for name in ("ana", "ben"))
    assert ana != ben and 15 < sum(ana) < 45 and 15 < sum(ben) < 45
    assert ana == [left_index(item, 0, "ana") for item in items]


def test_what_two_judges_labelled_is_one_item(tmp_path):
    first = write(tmp_path / "first", [pair(0), pair(1)])
    second = write(tmp_path / "second", [pair(0, chosen=BOATS, rejected=FACTS, judge="llm")])
    items = {item.question_id: item for item in drawn([first, second])}
    assert items.keys() == {"q0", "q1"}
    judges = items["q0"].preferred
    assert judges.keys() == {"reference (first)", "llm (second)"}
    assert judges["reference (first)"] != judges["llm (second)"]
    assert items["q0"].texts[judges["llm (second)"]] == f"{BOATS} (0)"


def test_judges_in_folders_of_one_name_are_told_apart_by_the_whole_path(tmp_path):
    first, second = (tmp_path / name / "pairs" for name in ("first", "second"))
    for folder, columns in ((first, {}), (second, {"chosen": BOATS, "rejected": FACTS})):
        folder.parent.mkdir()
        write(folder, [pair(0, **columns)])
    (item,) = drawn([first, second])
    chosen = {judge: item.texts[place] for judge, place in item.preferred.items()}
    assert chosen == {f"reference ({first})": f"{FACTS} (0)", f"reference ({second})": f"{BOATS} (0)"}


def test_the_question_is_read_from_the_prompt(tmp_path):
    write(tmp_path / "pairs", [pair(0), pair(1, prompt=[{"role": "user", "content": "Say something."}])])
    items = {item.question_id: item for item in drawn([tmp_path / "pairs"])}
    assert (items["q0"].question, items["q1"].question) == ("Which country? (0)", "")


def test_the_notes_of_two_runs_are_judged_where_they_differ(noted_runs):
    folder, _ = noted_runs
    items = sample(ByHandArguments(runs=[str(folder / "before"), str(folder / "after")]), SampleArguments())
    assert len(items) == 6
    for item in items:
        assert set(item.texts) == {"nothing", ("words " * 12).strip()}
        assert item.context[0] == {"role": "question", "content": item.question}
        after = item.texts.index(("words " * 12).strip())
        assert item.preferred[f"always {folder / 'after'}"] == after


def test_runs_with_the_same_notes_leave_nothing_to_judge(noted_runs):
    run = str(noted_runs[0] / "before")
    with pytest.raises(UserError, match="nothing to judge: the notes of the two runs do not differ"):
        sample(ByHandArguments(runs=[run, run]), SampleArguments())
