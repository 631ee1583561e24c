"""Evidence is found where a benchmark's files say that it is."""

import json

from benchmark_files import HOTPOT, MUSIQUE

from notewriter.data.judges.metric import answer_score
from notewriter.datasets import load_questions
from notewriter.ground.records import Question
from notewriter.retrieval.sources.remote import read_reply


def test_musiques_paragraphs_are_found_by_their_idx_in_any_order(tmp_path):
    paragraphs = [{**each, "idx": place} for place, each in enumerate(MUSIQUE["paragraphs"])]
    (tmp_path / "one.jsonl").write_text(json.dumps(MUSIQUE | {"paragraphs": paragraphs}))
    (tmp_path / "other.jsonl").write_text(json.dumps(MUSIQUE | {"paragraphs": paragraphs[::-1]}))
    (one,), (other,) = (load_questions("musique", tmp_path / name) for name in ("one.jsonl", "other.jsonl"))
    assert (one.supporting_facts, set(one.supporting_ids)) == (other.supporting_facts, set(other.supporting_ids))


def test_a_fact_past_its_paragraphs_last_sentence_names_the_paragraph(tmp_path):
    title, sentences = HOTPOT["context"][0]
    record = HOTPOT | {"supporting_facts": [[title, len(sentences)]]}
    (tmp_path / "q.json").write_text(json.dumps([record]))
    (question,) = load_questions("2wikimultihopqa", tmp_path / "q.json")
    assert (len(question.supporting_ids), question.supporting_facts) == (1, ())


def test_an_address_of_frames_ends_before_a_comma(tmp_path):
    row = {"question": "q?", "answer": "a", "wikipedia_link_1": "https://en.wikipedia.org/wiki/Oda_Lind,"}
    (tmp_path / "q.json").write_text(json.dumps([row]))
    (question,) = load_questions("frames", tmp_path / "q.json")
    assert question.metadata["pages"] == ["https://en.wikipedia.org/wiki/Oda_Lind"]


def test_contents_without_a_line_break_are_a_text():
    replies = ["One paragraph.", '"Title"\nText', "x" * 300 + "\nMore"]
    (found,) = read_reply({"result": [[{"document": {"id": "p", "contents": each}} for each in replies]]}, 1)
    expected = [("", "One paragraph."), ("Title", "Text"), ("", replies[2])]
    assert [(each.title, each.text) for each in found] == expected


class _Case:
    class rules:
        family = "musique"

    question = Question("q", "?", ("Oda", "$"))


def test_an_answer_without_a_word_is_never_right_where_it_labels_data():
    scores = [answer_score(_Case, answer) for answer in ("Oda", "The.", "", "。", "$")]  # type: ignore[arg-type]
    assert scores == [1.0, 0.0, 0.0, 0.0, 0.0]
