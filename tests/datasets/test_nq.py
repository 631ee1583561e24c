from benchmark_files import write_lines

from notewriter.datasets import load_questions


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
