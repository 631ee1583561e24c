from benchmark_files import HOTPOT, write_lines, write_list

from notewriter.datasets import load_corpus, load_questions


def test_hotpotqa_titles_that_occur_twice_in_a_question_keep_their_passages_apart(tmp_path):
    corpus = list(load_corpus("hotpotqa", write_list(tmp_path / "h.json", HOTPOT)))
    assert [passage.title for passage in corpus] == ["Low Tide", "Ana Kesk", "Ana Kesk"]
    assert len({passage.id for passage in corpus}) == 3


def test_hotpotqa_supporting_facts_follow_the_annotation_and_dangling_ones_are_left_out(tmp_path):
    path = write_list(tmp_path / "h.json", HOTPOT)
    (read,) = load_questions("hotpotqa", path)
    corpus = list(load_corpus("hotpotqa", path))
    # A paragraph missing from the context, as in the fullwiki file, is still expected: its title serves as its id.
    assert read.supporting_ids == (corpus[0].id, corpus[1].id, "Nowhere")
    assert read.supporting_facts == ("It was directed by Ana Kesk.", "Ana Kesk was born in Brel.")
    assert corpus[0].text == "Low Tide is a film. It was directed by Ana Kesk."
    assert read.answers == ("Brel",)
    assert read.metadata == {"type": "bridge", "level": "easy"}


def test_2wikimultihopqa_keeps_the_key_of_its_aliases(tmp_path):
    path = write_list(tmp_path / "w.json", {**HOTPOT, "answer_id": "Q7", "evidences": []})
    assert load_questions("2wikimultihopqa", path)[0].metadata["answer_id"] == "Q7"


def test_2wikimultihopqa_takes_the_aliases_that_lie_beside_its_file(tmp_path):
    path = write_list(tmp_path / "dev.json", HOTPOT | {"answer_id": "Q7"}, HOTPOT | {"_id": "h2", "answer_id": None})
    write_lines(
        tmp_path / "id_aliases.json",
        {"Q_id": "Q7", "aliases": ["Brel Town", "Brel"], "demonyms": ["Breller"]},
        {"Q_id": "Q8", "aliases": ["Elsewhere"], "demonyms": []},
    )
    first, second = load_questions("2wikimultihopqa", path)
    assert first.answers == ("Brel", "Brel Town", "Breller")
    assert second.answers == ("Brel",)
    assert load_questions("hotpotqa", path)[0].answers == ("Brel",)


def test_aliases_that_cannot_be_looked_up_are_told(tmp_path, caplog):
    """Copies on the Hub leave out the entities of answers, and the official scorer counts their aliases."""
    write_lines(tmp_path / "id_aliases.json", {"Q_id": "Q7", "aliases": ["Brel Town"], "demonyms": []})
    path = write_list(tmp_path / "dev.json", HOTPOT | {"answer_id": "Q7"}, HOTPOT | {"_id": "h2", "answer_id": None})
    load_questions("2wikimultihopqa", path)
    assert "do not count" not in caplog.text
    load_questions("2wikimultihopqa", write_list(tmp_path / "hub.json", HOTPOT))
    assert (
        "hub.json: no question has an 'answer_id', so that the aliases in id_aliases.json do not count" in caplog.text
    )
