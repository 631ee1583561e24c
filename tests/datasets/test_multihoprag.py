from benchmark_files import write_list

from notewriter.datasets import load_corpus, load_questions


def test_multihoprag_has_facts_and_paragraphs(tmp_path):
    record = {
        "query": "Who was faster?",
        "answer": "Ana",
        "question_type": "comparison_query",
        "evidence_list": [{"title": "Race", "fact": "Ana won."}, {"title": "Race", "fact": "Bo lost."}],
    }
    (read,) = load_questions("multihoprag", write_list(tmp_path / "m.json", record))
    assert read.supporting_facts == ("Ana won.", "Bo lost.")
    assert read.metadata == {"type": "comparison_query", "hops": 2}
    corpus = write_list(tmp_path / "corpus.json", {"title": "Race", "body": "Ana won.\n\nBo lost.\nAna won."})
    assert [passage.text for passage in load_corpus("multihoprag", corpus)] == ["Ana won.", "Bo lost."]
