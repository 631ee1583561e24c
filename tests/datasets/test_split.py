"""Holding questions out: two files that share no question, the same ones for the same seed."""

import json

import pytest
from benchmark_files import own_question, write_lines

from notewriter.datasets import load_questions
from notewriter.datasets.split import main
from notewriter.ground.errors import UserError


@pytest.fixture
def questions(tmp_path):
    lines = [
        {"id": f"q{number}", "question": f"Who is {number}?", "answers": ["a", "b"], "supporting_facts": ["f"]}
        for number in range(10)
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "questions.jsonl"


def split(questions, folder, *options):
    main(["--dataset", "jsonl", "--path", str(questions), "--output_dir", str(folder), *options])
    return {
        name: load_questions("jsonl", folder / f"{name}.jsonl")
        for name in ("train", "dev")
        if (folder / f"{name}.jsonl").exists()
    }


def test_the_two_files_have_every_question_once_and_whole(questions, tmp_path):
    parts = split(questions, tmp_path / "parts", "--dev", "3")
    assert [len(parts[name]) for name in ("train", "dev")] == [7, 3]
    everything = {each.id: each for each in load_questions("jsonl", questions)}
    assert {each.id: each for part in parts.values() for each in part} == everything


def test_the_draw_follows_from_the_seed(questions, tmp_path):
    one, again, other = (
        split(questions, tmp_path / name, "--dev", "4", "--seed", seed)
        for name, seed in (("one", "1"), ("again", "1"), ("other", "2"))
    )
    assert one == again != other


def test_a_file_without_questions_is_not_written(questions, tmp_path):
    assert list(split(questions, tmp_path / "parts", "--dev", "5", "--train", "0")) == ["dev"]


def test_a_file_of_an_earlier_split_does_not_stay(questions, tmp_path):
    """Its training questions may be held out now."""
    split(questions, tmp_path / "parts", "--dev", "3")
    assert list(split(questions, tmp_path / "parts", "--dev", "10")) == ["dev"]


def test_questions_beside_are_learnt_from_unless_they_are_asked_or_their_evidence_is_held_out(tmp_path):
    def write(name, *questions):
        path = tmp_path / name
        lines = [
            {"id": id, "question": text, "answers": ["a"], "supporting_facts": [fact]} for id, text, fact in questions
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    own = write("own.jsonl", ("q0", "Who is 0?", "f0"), ("q1", "Who is 1?", "f1"))
    held = split(own, tmp_path / "parts", "--dev", "1")["dev"][0].supporting_facts[0]
    made = write("made.jsonl", ("m0", "who is 0", "g"), ("m1", "What of it?", held), ("m2", "Which is new?", "h"))
    parts = split(own, tmp_path / "parts", "--dev", "1", "--beside", str(made))
    assert ([each.id for each in parts["train"]][1:], len(parts["dev"])) == (["m2"], 1)
    write("made.jsonl", ("q0", "Which is new?", "h"))
    with pytest.raises(UserError, match=r"made\.jsonl: question q0 has the id of another one"):
        split(own, tmp_path / "parts", "--dev", "1", "--beside", str(made))


def test_the_passages_of_held_out_questions_without_facts_are_learnt_from_by_none_beside(tmp_path):
    names = [("q0", "Who is 0?", "p0"), ("q1", "Who is 1?", "p1")]
    lines = [own_question(id=id, question=text, supporting_ids=[passage]) for id, text, passage in names]
    own = write_lines(tmp_path / "own.jsonl", *lines)
    (held,) = split(own, tmp_path / "parts", "--dev", "1")["dev"]
    made = write_lines(
        tmp_path / "made.jsonl",
        own_question(id="m1", question="What of it?", supporting_ids=["p2", *held.supporting_ids]),
        own_question(id="m2", question="Which is new?", supporting_ids=["p2"]),
    )
    parts = split(own, tmp_path / "parts", "--dev", "1", "--beside", str(made))
    assert [each.id for each in parts["train"]][1:] == ["m2"]


def test_more_questions_than_there_are_is_an_error(questions, tmp_path):
    with pytest.raises(UserError, match=r"questions\.jsonl: has 10 questions, not 12; lower --dev or --train"):
        split(questions, tmp_path / "parts", "--dev", "4", "--train", "8")


@pytest.mark.parametrize("name", ["train", "dev"])
def test_the_question_file_itself_is_never_overwritten_or_removed(questions, tmp_path, name):
    path = questions.rename(tmp_path / f"{name}.jsonl")
    before = path.read_text()
    (tmp_path / "link").symlink_to(tmp_path)
    for options in (["--dev", "3"], ["--dev", "3", "--train", "0"]):
        with pytest.raises(UserError, match=rf"{name}\.jsonl: .* choose another --output_dir"):
            split(path, tmp_path / "link", *options)
    assert path.read_text() == before
