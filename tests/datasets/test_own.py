import json

import pytest
from benchmark_files import own_question, write_lines

from notewriter.datasets import load_corpus, load_questions
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question


def test_own_questions_carry_what_the_file_says_and_nothing_where_it_is_silent(tmp_path):
    full = own_question(id="q2", supporting_ids=["p1"], supporting_facts=["Ana is."], metadata={"hops": 2})
    path = write_lines(tmp_path / "questions.jsonl", own_question(), full)
    assert load_questions("jsonl", path) == [
        Question("q1", "Who?", ("Ana",)),
        Question("q2", "Who?", ("Ana",), ("p1",), ("Ana is.",), {"hops": 2}),
    ]


@pytest.mark.parametrize("key", ["answers", "golden_answers"])
def test_a_blank_is_no_gold_answer(tmp_path, key):
    """A reader that says nothing would be right by it."""
    path = write_lines(tmp_path / "q.jsonl", {"id": "q1", "question": "Who?", key: ["", "Ana", " "]})
    assert load_questions("jsonl", path)[0].answers == ("Ana",)


def test_own_corpus_is_read_line_by_line(tmp_path):
    path = write_lines(tmp_path / "c.jsonl", {"id": "p1", "title": "Ana", "text": "Ana is."}, {"id": "p2"})
    passages = load_corpus("jsonl", path)
    assert next(passages) == Passage("p1", "Ana", "Ana is.")
    with pytest.raises(UserError, match=r"c\.jsonl:2: has no 'title'"):
        next(passages)


def test_keys_that_are_not_read_are_named_once(tmp_path, caplog):
    lines = [
        json.dumps({"id": f"q{n}", "question": "Who?", "answers": ["x"], "supporting_fact": ["f"], "year": 1702})
        for n in range(2)
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(lines))
    for _ in range(2):
        load_questions("jsonl", path)
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "the key 'supporting_fact' of questions is not read; did you mean 'supporting_facts'?",
        "the key 'year' of questions is not read; put it under metadata to keep it",
    ]


def test_what_passages_of_others_have_is_told(tmp_path):
    """BEIR's, and the table without names of ColBERT and MS MARCO."""
    (tmp_path / "beir.jsonl").write_text('{"_id": "1", "title": "Osk", "text": "A river.", "metadata": {}}\n')
    with pytest.raises(UserError, match=r"beir\.jsonl:1: has no 'id'; it has '_id, title, text, metadata'"):
        list(load_corpus("jsonl", tmp_path / "beir.jsonl"))
    (tmp_path / "collection.tsv").write_text("0\tThe Osk is a river.\n1\tTolen is a town.\n")
    with pytest.raises(UserError, match=r"has no 'id'; it has '0, The Osk is a river\.'"):
        list(load_corpus("jsonl", tmp_path / "collection.tsv"))
