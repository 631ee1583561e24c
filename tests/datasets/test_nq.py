import pytest
from benchmark_files import write_lines

from notewriter.datasets import load_corpus, load_questions
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage


def test_nq_makes_ids_of_its_questions_that_stay(tmp_path):
    records = [{"question": "who won", "answer": ["Ana", "Bo", "Ana"]}, {"question": "who lost", "answer": ["Bo"]}]
    first, second = load_questions("nq", write_lines(tmp_path / "a.jsonl", *records))
    assert first.answers == ("Ana", "Bo")
    assert load_questions("nq", write_lines(tmp_path / "b.jsonl", records[1])) == [second]


def test_a_question_without_an_id_may_stand_twice_in_its_file(tmp_path):
    record = {"question": "who won", "answer": ["Ana"]}
    path = write_lines(tmp_path / "a.jsonl", record, record | {"answer": ["Bo"]}, record)
    first, second, third = load_questions("nq", path)
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")
    assert second.answers == ("Bo",)


def test_wikipedia_passages_are_read_from_dprs_table(tmp_path):
    path = tmp_path / "psgs.tsv"
    path.write_text('id\ttext\ttitle\n1\t"He said ""no""."\tAna\n2\tBo ran.\tBo\n')
    assert list(load_corpus("nq", path)) == [Passage("1", "Ana", 'He said "no".'), Passage("2", "Bo", "Bo ran.")]
    path.write_text("id\ttext\ttitle\n1\tno title\n")
    with pytest.raises(UserError, match=r"psgs\.tsv:2: has 2 columns"):
        list(load_corpus("nq", path))
