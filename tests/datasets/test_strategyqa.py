import json
from pathlib import Path

import pytest
from benchmark_files import write_list

from notewriter.datasets import load_corpus, load_questions
from notewriter.ground.records import Passage, Question

SHARED = Path(__file__).parents[2] / "../shared/data"


def test_strategyqa_takes_the_evidence_of_the_first_annotator_who_names_paragraphs(tmp_path):
    record = {
        "qid": "s1",
        "question": "Would it fit?",
        "answer": False,
        "facts": ["It is large."],
        "evidence": [
            [["operation"], ["no_evidence"]],
            [[["Elk-1", "Elk-2"]], [["Car-9"]], ["operation"]],
            [[["Elk-7"]]],
        ],
    }
    (read,) = load_questions("strategyqa", write_list(tmp_path / "s.json", record))
    assert read == Question(
        "s1", "Would it fit?", ("no",), ("Elk-1", "Elk-2", "Car-9"), (), {"facts": ["It is large."]}
    )


def test_strategyqa_paragraphs_keep_their_ids(tmp_path):
    path = tmp_path / "paragraphs.json"
    path.write_text(json.dumps({"Elk-1": {"title": "Elk", "section": "", "content": "An elk is large."}}))
    assert list(load_corpus("strategyqa", path)) == [Passage("Elk-1", "Elk", "An elk is large.")]


def test_the_evidence_of_real_strategyqa_questions_stands_in_the_passages():
    path = SHARED / "strategyqa/passages.jsonl"
    if not path.exists():
        pytest.skip(f"no {path}")
    ids = {passage.id for passage in load_corpus("jsonl", path)}
    questions = load_questions("strategyqa", path.with_name("dev.json"))
    assert sum(ids >= set(question.supporting_ids) for question in questions) > 200
