import json

from benchmark_files import MUSIQUE, write_lines

from notewriter.datasets import load_corpus, load_questions


def test_musique_supporting_passages_and_facts_come_in_the_order_of_the_hops(tmp_path):
    path = write_lines(tmp_path / "m.jsonl", MUSIQUE)
    (read,) = load_questions("musique", path)
    by_title = {passage.title: passage.id for passage in load_corpus("musique", path)}
    assert read.supporting_ids == (by_title["Low Tide"], by_title["Ana"])
    assert read.supporting_facts == ("It is by Ana K. Kesk.", "She was born in BREL.")
    assert read.answers == ("Brel", "Brel Town")
    assert read.metadata["hops"] == 2
    assert read.metadata["decomposition"][0] == {"question": "Low Tide >> director", "answer": "Ana K. Kesk"}


def test_musique_gives_the_whole_paragraph_where_no_sentence_holds_the_answer(tmp_path):
    changed = json.loads(json.dumps(MUSIQUE))
    changed["question_decomposition"][1]["answer"] = "nowhere to be found"
    (read,) = load_questions("musique", write_lines(tmp_path / "m.jsonl", changed))
    assert read.supporting_facts[1] == "She is old. She was born in BREL."


def test_of_musique_full_the_questions_are_read_that_can_be_answered(tmp_path, caplog):
    changed = json.loads(json.dumps({**MUSIQUE, "answerable": False}))
    changed["question_decomposition"][1]["paragraph_support_idx"] = None
    changed["paragraphs"][1]["paragraph_text"] = "Something else."
    path = write_lines(tmp_path / "m.jsonl", MUSIQUE, changed)
    (read,) = load_questions("musique", path)
    assert read.metadata["answerable"] is True and len(read.supporting_facts) == 2
    assert "1 unanswerable questions are left out" in caplog.text
    # Its paragraphs stay in the corpus and make it harder, as they should.
    assert len(list(load_corpus("musique", path))) == 4
