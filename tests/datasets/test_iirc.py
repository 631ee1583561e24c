import json

from benchmark_files import iirc_files, write_list

from notewriter.datasets import BENCHMARKS, load_corpus, load_questions


def test_iirc_asks_what_can_be_answered_and_makes_paragraphs_of_articles(tmp_path):
    def ask(qid: str, answer: dict) -> dict:
        return {
            "qid": qid,
            "question": "How old?",
            "answer": answer,
            "context": [{"text": " Ana is. ", "passage": "a"}],
        }

    article = {
        "title": "Ana",
        "text": "Ana was born.\nShe ran.",
        "questions": [
            ask("i1", {"type": "span", "answer_spans": [{"text": "Ana "}, {"text": "Bo"}]}),
            ask("i2", {"type": "value", "answer_value": "7", "answer_unit": "years"}),
            ask("i3", {"type": "none"}),
            ask("i4", {"type": "binary", "answer_value": "yes"}),
            ask("", {"type": "binary", "answer_value": "no"}),
        ],
    }
    dev = write_list(tmp_path / "dev.json", article)
    *questions, without_id = load_questions("iirc", dev)
    assert [(question.id, question.answers) for question in questions] == [
        ("i1", ("Ana, Bo",)),
        ("i2", ("7",)),
        ("i4", ("yes",)),
    ]
    assert without_id.id.startswith("iirc_")
    assert questions[0].supporting_facts == ("Ana is.",)
    assert questions[0].metadata == {"type": "span", "title": "Ana", "spans": ["Ana", "Bo"]}
    assert questions[1].metadata == {"type": "value", "title": "Ana", "unit": "years"}
    articles = tmp_path / "articles.json"
    articles.write_text(json.dumps({"ana": 'Ana &amp; <a href="Bo">Bo</a> ran.\n\nThey won.\nThey won.'}))
    assert [passage.text for passage in load_corpus("iirc", articles)] == ["Ana & Bo ran.", "They won."]
    # The questions' own articles are in no other file.
    assert [passage.text for passage in load_corpus("iirc", dev)] == ["Ana was born.", "She ran."]


def test_a_questions_documents_are_its_article_its_evidence_and_a_paragraph_of_every_other_link(tmp_path):
    """As in IRCoT's processing, which has a random paragraph of each link."""
    dev = iirc_files(tmp_path)
    ((id, passages),) = BENCHMARKS["iirc"].load_contexts(dev)
    assert id == "i1"
    texts = ["Ana was born.", "She ran.", "In 1900 Bo was 7.", "Bo is a man.", "Cy is a town."]
    assert [passage.text for passage in passages] == texts
    # The same passages as in the indexes of both files.
    indexed = {
        passage.id for path in (dev, tmp_path / "context_articles.json") for passage in load_corpus("iirc", path)
    }
    assert {passage.id for passage in passages} <= indexed
