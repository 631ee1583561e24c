import json
import re

import pytest
from by_hand_pairs import BOATS, FACTS, pair, write
from written_runs import noted_runs as noted_runs

from notewriter.artifacts.pairs import read_pairs
from notewriter.data.by_hand.items import ByHandArguments, Item, SampleArguments, sample
from notewriter.data.hand_labels import main
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError


def label(item: Item, judge: str, text: str | None, **changes):
    """A person's answer: the text that they prefer, which they saw on the left; None for neither."""
    texts = item.texts if text in (None, item.texts[0]) else item.texts[::-1]
    return {
        "schema": "notewriter/hand-label/1",
        "item": item.id,
        "judge": judge,
        "question_id": item.question_id,
        "stage": item.stage,
        "dataset": item.dataset,
        "left": texts[0],
        "right": texts[1],
        "preferred": "neither" if text is None else "left",
        "seconds": 4.0,
        **changes,
    }


def written(folder, judge, choose, arguments):
    """A person's labels of all items: `choose(item)` is the text that they prefer."""
    items = sample(arguments, SampleArguments())
    jsonl.write(folder / f"{judge}.jsonl", (label(item, judge, choose(item)) for item in items))


def facts_of(item):
    return next((text for text in item.texts if text.startswith("Arlen Voss was born")), None)


def boats_of(item):
    return next(text for text in item.texts if text.startswith("Arlen Voss liked"))


@pytest.fixture
def pairs(tmp_path):
    return write(tmp_path / "pairs", [pair(number) for number in range(8)])


@pytest.fixture
def labelled(tmp_path, pairs):
    """Writes the labels of a person: of the first `disagreed` questions they prefer what the judge rejected."""

    def write_labels(judge, disagreed=0, neither=()):
        def choose(item):
            if item.question_id in neither:
                return None
            return boats_of(item) if int(item.question_id[1:]) < disagreed else facts_of(item)

        written(tmp_path / "labels", judge, choose, ByHandArguments(pairs=[str(pairs)]))

    return write_labels


def run(tmp_path, *options):
    main(["--labels", str(tmp_path / "labels"), "--pairs", str(tmp_path / "pairs"), *map(str, options)])


def rows(text):
    """Name of a row -> its cells."""
    lines = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return {cells[0]: cells[1:] for cells in lines}


def test_agreement_with_the_judge_of_the_pairs_and_between_people(tmp_path, labelled, capsys):
    labelled("ana", disagreed=2, neither=("q7",))
    labelled("ben", disagreed=2)
    run(tmp_path)
    text = capsys.readouterr().out
    table = rows(text)
    assert table["ana and reference"][0] == "7" and table["ana and reference"][1].startswith("0.714 [")
    # Of two texts in either order, half agree by chance.
    assert table["ana and reference"][2].startswith("0.429 [")
    assert table["ben and reference"][0] == "8" and table["ben and reference"][1].startswith("0.750 [")
    assert text.index("ana and ben") and "neither as an answer" in text
    # Seven of seven where both prefer one, and seven of eight with neither.
    assert re.search(r"ana and ben +\| +7 \| +1\.000 \[1\.000, 1\.000\] \| +1\.000 \[1\.000, 1\.000\] \|", text)
    assert table["ana and ben"][:1] == ["8"] and table["ana and ben"][1].startswith("0.875 [")


def test_what_people_lean_to_stands_beside_it(tmp_path, labelled, capsys):
    labelled("ana", disagreed=8)
    run(tmp_path)
    table = rows(capsys.readouterr().out)
    assert table["ana"] == ["8", "0.000", "1.000 [1.000, 1.000]", "1.000 [1.000, 1.000]", "4"]
    assert table["reference"] == ["8", "0.000", "0.000 [0.000, 0.000]", "", ""]


def test_the_pairs_of_one_question_are_resampled_together(tmp_path, capsys):
    folder = write(tmp_path / "pairs", [pair(number, question_id="q0") for number in range(8)])
    arguments = ByHandArguments(pairs=[str(folder)])
    first = {item.id for item in sample(arguments, SampleArguments())[:4]}
    written(tmp_path / "labels", "ana", lambda item: boats_of(item) if item.id in first else facts_of(item), arguments)
    run(tmp_path)
    # One question has no spread.
    assert rows(capsys.readouterr().out)["ana"][2] == "0.500 [0.500, 0.500]"


def test_agreement_by_stage_dataset_and_length_gap(tmp_path, capsys):
    columns = [
        {"stage": "deepnote/init_note", "dataset": "musique"},
        {"stage": "deepnote/answer", "dataset": "hotpotqa", "rejected": FACTS.replace("Arlen", "Ari")},
    ]
    folder = write(tmp_path / "pairs", [pair(number, **columns[number % 2]) for number in range(8)])
    written(tmp_path / "labels", "ana", facts_of, ByHandArguments(pairs=[str(folder)]))
    run(tmp_path)
    table = rows(capsys.readouterr().out)
    for group in (
        "deepnote/init_note",
        "deepnote/answer",
        "musique",
        "hotpotqa",
        "up to 10% longer",
        "over 50% longer",
    ):
        assert table[f"ana and reference, {group}"][0] in ("4", "8"), group


def test_a_text_that_as_many_people_do_not_prefer_makes_no_pair(tmp_path, labelled, capsys):
    labelled("ana")
    labelled("ben", neither=("q6", "q7"))
    labelled("eve", neither=("q7",))
    run(tmp_path, "--output_dir", tmp_path / "made")
    assert "1 left out: people disagree" in capsys.readouterr().out
    made = {row["question_id"]: row for row in read_pairs(tmp_path / "made" / "train.parquet")}
    assert made.keys() == {f"q{number}" for number in range(7)} and made["q6"]["chosen_score"] == 2


def test_labels_become_pairs_whose_judge_is_human(tmp_path, labelled, capsys):
    columns = {"chosen_source": {"kind": "gold"}, "rejected_source": {"kind": "model", "temperature": 0.5}}
    pairs = write(tmp_path / "pairs", [pair(n, **columns, chosen_score=0.9, chosen_tokens=7) for n in range(8)])
    write(pairs, [pair(9, **columns)], "dev")
    labelled("ana", disagreed=1, neither=("q7",))
    labelled("ben", disagreed=2, neither=("q7",))
    run(tmp_path, "--output_dir", tmp_path / "made")
    assert "6 training and 1 development pairs" in (text := capsys.readouterr().out)
    assert "1 left out: neither is better" in text and "1 left out: people disagree" in text
    made = {row["question_id"]: row for row in read_pairs(tmp_path / "made" / "train.parquet")}
    assert made.keys() == {"q0", "q2", "q3", "q4", "q5", "q6"}
    assert [row["question_id"] for row in read_pairs(tmp_path / "made" / "dev.parquet")] == ["q9"]
    turned, kept = made["q0"], made["q2"]
    assert turned["chosen"][0]["content"] == f"{BOATS} (0)" and turned["rejected"][0]["content"] == f"{FACTS} (0)"
    assert turned["chosen_source"]["kind"] == "model" and turned["rejected_source"]["kind"] == "gold"
    assert (turned["chosen_tokens"], turned["rejected_tokens"]) == (None, 7)
    assert kept["chosen"][0]["content"] == f"{FACTS} (2)" and kept["chosen_tokens"] == 7
    for row in made.values():
        assert row["judge"] == "human" and row["judge_replies"] == ["ana: chosen", "ben: chosen"]
        assert (row["chosen_score"], row["rejected_score"]) == (2, 0)
        assert row["prompt"] == pair(int(row["question_id"][1:]))["prompt"] and row["schema"] == "notewriter/pair/1"


def test_notes_of_two_runs_are_measured_and_are_no_pairs(noted_runs, tmp_path, capsys):
    before, after = (str(noted_runs[0] / name) for name in ("before", "after"))
    arguments = ByHandArguments(runs=[before, after])
    written(tmp_path / "labels", "ana", lambda item: next(t for t in item.texts if t != "nothing"), arguments)
    with pytest.raises(UserError, match="no pair follows from the labels: notes of two runs are no pair"):
        main(["--labels", str(tmp_path / "labels"), "--runs", before, after, "--output_dir", str(tmp_path / "made")])
    table = rows(capsys.readouterr().out)
    assert table[f"ana and always {after}"][1] == "1.000 [1.000, 1.000]"
    assert table[f"ana and always {before}"][1] == "0.000 [0.000, 0.000]"


def test_a_copy_of_a_persons_labels_is_no_second_person(tmp_path, labelled):
    labelled("ana")
    folder = tmp_path / "labels"
    (folder / "ana_before.jsonl").write_text((folder / "ana.jsonl").read_text())
    with pytest.raises(UserError, match=r"ana_before\.jsonl: has labels of ana, as .*ana\.jsonl has"):
        run(tmp_path)


def test_labels_of_two_people_in_one_file_are_not_taken_for_one_persons(tmp_path, labelled):
    labelled("ana")
    labelled("ben", disagreed=8)
    folder = tmp_path / "labels"
    (folder / "all.jsonl").write_text("".join((folder / f"{name}.jsonl").read_text() for name in ("ana", "ben")))
    with pytest.raises(UserError, match=r"all\.jsonl:9: is a label of ben, and those before it are of ana; move each"):
        run(tmp_path)


def test_what_cannot_be_measured_is_one_line(tmp_path, labelled, pairs):
    with pytest.raises(UserError, match="has no labels; `notewriter app"):
        run(tmp_path)
    labelled("ana", neither={f"q{number}" for number in range(8)})
    with pytest.raises(UserError, match=r"no pair follows from the labels: neither is better.*; label more"):
        run(tmp_path, "--output_dir", tmp_path / "made")
    with pytest.raises(UserError, match="choose another output_dir"):
        run(tmp_path, "--output_dir", pairs)
    write(pairs, [pair(number, chosen="other") for number in range(8)])
    with pytest.raises(UserError, match="no label belongs to these pairs"):
        run(tmp_path)
    path = tmp_path / "labels" / "ana.jsonl"
    write(pairs, [pair(number) for number in range(8)])
    path.write_text(json.dumps(json.loads(path.read_text().splitlines()[0]) | {"left": "edited"}) + "\n")
    with pytest.raises(UserError, match=r"ana: the label of item \w+ has other texts"):
        run(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text().splitlines()[0]) | {"preferred": "both"}) + "\n")
    with pytest.raises(UserError, match=r"ana\.jsonl:1: preferred"):
        run(tmp_path)
