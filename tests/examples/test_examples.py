"""Every example runs as its docstring says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_endpoint import fake_endpoint

from notewriter.retrieval import index

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: object) -> str:
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_says_how_it_is_run_and_is_linked_from_a_page(example: Path):
    assert f"    python examples/{example.name} " in example.read_text()
    pages = [EXAMPLES.parent / "README.md", *(EXAMPLES.parent / "docs").glob("*.md")]
    assert any(f"examples/{example.name}" in page.read_text() for page in pages)


def test_a_method_is_rolled_out():
    def reply(request):
        prompt = request["messages"][0]["content"]
        return '{"status": "False"}' if "status" in prompt else "Mira Tolen founded it."

    with fake_endpoint(reply=reply) as endpoint:
        printed = run("roll_out.py", "Who founded Tolen?", "--base_url", endpoint.base_url, "--model", endpoint.model)
    assert printed.startswith("retrieve 'Who founded Tolen?': Tolen")
    assert "deepnote/init_note (4 tokens): Mira Tolen founded it." in printed
    assert printed.endswith("answer: Mira Tolen founded it.\n")


def test_predictions_are_scored(tmp_path: Path):
    questions = [{"id": f"q{number}", "question": "Who?", "answers": ["Mira Tolen"]} for number in range(3)]
    predictions = [{"id": "q0", "prediction": "Mira Tolen"}, {"id": "q1", "prediction": "Mira"}]
    for name, records in (("questions", questions), ("predictions", predictions)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    folder = (tmp_path / "questions.jsonl", tmp_path / "predictions.jsonl")
    printed = run("score_predictions.py", "--questions", folder[0], "--predictions", folder[1])
    means = re.findall(r": (\d\.\d{3}) \[\d\.\d{3}, \d\.\d{3}\], 3 questions", printed)
    assert sorted(means) == ["0.333", "0.556"]


def test_a_prediction_without_its_text_is_named_with_its_line(tmp_path: Path):
    (tmp_path / "questions.jsonl").write_text('{"id": "q0", "question": "Who?", "answers": ["Mira"]}\n')
    (tmp_path / "predictions.jsonl").write_text('{"id": "q0", "answer": "Mira"}\n')
    with pytest.raises(AssertionError, match=r"predictions.jsonl:1 has no .*prediction.*; correct the line"):
        run(
            "score_predictions.py",
            *("--questions", tmp_path / "questions.jsonl", "--predictions", tmp_path / "predictions.jsonl"),
        )


@pytest.mark.integration
def test_a_model_is_trained_on_pairs(tiny_model: Path, tmp_path: Path):
    run("train_on_pairs.py", "--model", tiny_model, "--output_dir", tmp_path / "run")
    record = json.loads((tmp_path / "run/checkpoint/training.json").read_text())
    assert record["rows"]["train"] == {"deepnote/init_note": 4}


def test_notes_without_a_model_are_scored_at_the_words_that_are_asked_for(tmp_path: Path):
    passages = [{"id": "p1", "title": "Osk", "text": "The Osk is a river. The town of Tolen lies at its mouth."}]
    question = {"id": "q1", "question": "Which town lies at the mouth of the Osk?", "answers": ["Tolen"]}
    question["supporting_facts"] = ["The town of Tolen lies at its mouth."]
    for name, records in (("corpus", passages), ("questions", [question])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    index.main(["--path", str(tmp_path / "corpus.jsonl"), "--index", str(tmp_path / "index")])
    printed = run(
        "notes_without_a_model.py",
        *("--path", tmp_path / "questions.jsonl", "--index", tmp_path / "index", "--words", "5", "13"),
        *("--notes", "overlap", "lead"),
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["overlap", "5"], ["lead", "5"], ["overlap", "13"], ["lead", "13"]]
    # The first five words of the fact "town of Tolen lies at its mouth", and none but "the" of the other sentence.
    assert [row[2][:5] for row in rows] == ["0.571", "0.000", "1.000", "1.000"]
    assert [row[3][:5] for row in rows] == ["1.000", "0.000", "1.000", "1.000"]
