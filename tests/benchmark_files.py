"""Records and files as the benchmarks have them, for tests of their loaders."""

import json
from pathlib import Path
from typing import Any

HOTPOT = {
    "_id": "h1",
    "type": "bridge",
    "level": "easy",
    "question": "Where was the director of Low Tide born?",
    "answer": "Brel",
    "supporting_facts": [["Low Tide", 1], ["Ana Kesk", 0], ["Ana Kesk", 7], ["Nowhere", 0]],
    "context": [
        ["Low Tide", ["Low Tide is a film.", " It was directed by Ana Kesk."]],
        ["Ana Kesk", ["Ana Kesk was born in Brel.", " She died young."]],
        ["Ana Kesk", ["Another page of the same name."]],
    ],
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Where was the director of Low Tide born?",
    "answer": "Brel",
    "answer_aliases": ["Brel Town", "Brel"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Other", "paragraph_text": "A. Kesk is no one.", "is_supporting": False},
        {"idx": 1, "title": "Ana", "paragraph_text": "She is old. She was born in BREL.", "is_supporting": True},
        {"idx": 2, "title": "Low Tide", "paragraph_text": "It is by Ana K. Kesk. It is long.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Low Tide >> director", "answer": "Ana K. Kesk", "paragraph_support_idx": 2},
        {"id": 2, "question": "#1 >> born", "answer": "Brel", "paragraph_support_idx": 1},
    ],
}


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_list(path: Path, *records: Any) -> Path:
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


def own_question(**changes: Any) -> dict[str, Any]:
    """A question in our own format."""
    return {"id": "q1", "question": "Who?", "answers": ["Ana"], **changes}


def _iirc(number: int) -> dict[str, Any]:
    return {
        "title": "Ana",
        "text": "Ana was born in Brel.",
        "questions": [
            {
                "qid": f"i{number}",
                "question": "Where was she born?",
                "answer": {"type": "span", "answer_spans": [{"text": "Brel"}]},
                "context": [{"text": "Ana was born in Brel.", "passage": "main"}],
            }
        ],
    }


TWO_QUESTIONS: dict[str, list[dict[str, Any]]] = {
    "hotpotqa": [HOTPOT, HOTPOT | {"_id": "h2"}],
    "2wikimultihopqa": [HOTPOT | {"evidences": []}, HOTPOT | {"_id": "h2", "evidences": []}],
    "musique": [MUSIQUE, MUSIQUE | {"id": "2hop__3_4"}],
    "asqa": [
        {"sample_id": name, "question": "Who won?", "qa_pairs": [{"question": "In 1990?", "short_answers": ["Ana"]}]}
        for name in ("a1", "a2")
    ],
    "strategyqa": [
        {"qid": name, "question": "Would it fit?", "answer": True, "facts": ["It is small."], "evidence": []}
        for name in ("s1", "s2")
    ],
    "iirc": [_iirc(1), _iirc(2)],
    "nq": [{"question": "who won", "answer": ["Ana"]}, {"question": "who lost", "answer": ["Bo"]}],
    "fanoutqa": [
        {"id": name, "question": "Who runs?", "answer": ["Ana"], "decomposition": [{"evidence": {"title": "Ana"}}]}
        for name in ("f1", "f2")
    ],
    "frames": [
        {"question": question, "answer": "7", "reasoning_types": "Multiple constraints"}
        for question in ("How old?", "How tall?")
    ],
    "multihoprag": [
        {"query": query, "answer": "Ana", "question_type": "inference_query", "evidence_list": []}
        for query in ("Who was faster?", "Who was slower?")
    ],
} | {
    name: [{"id": f"{name}_{number}", "question": "Who won?", "golden_answers": ["Ana"]} for number in (1, 2)]
    for name in ("triviaqa", "popqa", "bamboogle")
}
"""Two questions of each benchmark, as its own file has them, or in FlashRAG's form."""


def write_two_questions(folder: Path, dataset: str) -> Path:
    """A file of two questions in the benchmark's own format."""
    lines = {"musique", "nq", "frames", "triviaqa", "popqa", "bamboogle"}
    write = write_lines if dataset in lines else write_list
    return write(folder / f"{dataset}.{'jsonl' if dataset in lines else 'json'}", *TWO_QUESTIONS[dataset])


def iirc_files(folder: Path) -> Path:
    """IIRC's questions on one article, the second unanswerable, beside the articles it links to; returns the former."""

    def ask(qid: str, answer: dict[str, str], *context: dict[str, str]) -> dict[str, Any]:
        return {"qid": qid, "question": "How old?", "answer": answer, "context": list(context)}

    gold = [{"text": "Bo was 7.", "passage": "Bo"}, {"text": "She ran.", "passage": "main"}]
    links = [
        {"target": "Bo", "indices": [0, 1]},
        {"target": "Cy", "indices": [0, 1]},
        {"target": "Gone", "indices": []},
    ]
    articles = {"bo": "Bo is a man.\nIn 1900 Bo was 7.\nHe ran too.", "cy": "Cy is a town.\nIt is old.", "dan": "Dan."}
    (folder / "context_articles.json").write_text(json.dumps(articles))
    return write_list(
        folder / "dev.json",
        {
            "title": "Ana",
            "text": "Ana was born.\nShe ran.",
            "links": links,
            "questions": [ask("i1", {"type": "value", "answer_value": "7"}, *gold), ask("i2", {"type": "none"})],
        },
    )
