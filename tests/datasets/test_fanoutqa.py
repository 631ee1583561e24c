from benchmark_files import write_list

from notewriter.datasets import load_questions


def test_fanoutqa_keeps_the_structure_of_its_answer_and_the_pages_of_all_parts(tmp_path):
    leaf = {"decomposition": [], "evidence": {"title": "Ana"}}
    record = {
        "id": "f1",
        "question": "Who runs?",
        "answer": {"Ana": True, "Bo": ["left", 3]},
        "decomposition": [{"evidence": None, "decomposition": [leaf, leaf | {"evidence": {"title": "Bo"}}]}],
    }
    (read,) = load_questions("fanoutqa", write_list(tmp_path / "f.json", record))
    assert read.answers == ("Ana: yes; Bo: left, 3",)
    assert read.metadata == {"answer": record["answer"], "pages": ["Ana", "Bo"]}


def test_the_revision_of_a_page_that_is_listed_twice_is_the_one_that_is_known(tmp_path):
    parts = [{"decomposition": [], "evidence": {"title": "Ana", "revid": id}} for id in (7, "###TBD###")]
    record = {"id": "f1", "question": "Who runs?", "answer": "Ana", "decomposition": parts}
    (read,) = load_questions("fanoutqa", write_list(tmp_path / "f.json", record))
    assert (read.metadata["pages"], read.metadata["revisions"]) == (["Ana"], [7])


def test_fanoutqa_knows_the_revision_of_a_page_where_the_file_names_it(tmp_path):
    parts = [
        {"decomposition": [], "evidence": {"title": title, "revid": id}}
        for title, id in (("Ana", 7), ("Bo", "###TBD###"))
    ]
    record = {"id": "f1", "question": "Who runs?", "answer": "Ana", "decomposition": parts}
    (read,) = load_questions("fanoutqa", write_list(tmp_path / "f.json", record))
    assert (read.metadata["pages"], read.metadata["revisions"]) == (["Ana", "Bo"], [7, None])
