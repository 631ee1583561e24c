import json

import pytest
from benchmark_files import HOTPOT, MUSIQUE, own_question, write_list

from notewriter.datasets import load_corpus, load_questions, reading
from notewriter.ground.errors import UserError


def test_a_corpus_holds_each_paragraph_once_and_its_ids_do_not_hang_on_the_file(tmp_path):
    other = {**HOTPOT, "_id": "h2"}
    twice = list(load_corpus("hotpotqa", write_list(tmp_path / "twice.json", HOTPOT, other)))
    once = list(load_corpus("hotpotqa", write_list(tmp_path / "once.json", other)))
    assert twice == once


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_is_read_record_by_record_however_it_is_cut(tmp_path, monkeypatch, size, indent):
    monkeypatch.setattr(reading, "CHUNK", size)
    records = [{**HOTPOT, "_id": f"h{i}", "question": "Où ] , [ est-ce?"} for i in range(5)]
    path = tmp_path / "h.json"
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=False), encoding="utf-8")
    assert [q.id for q in load_questions("hotpotqa", path)] == ["h0", "h1", "h2", "h3", "h4"]


ERRORS = {
    "not JSON": ("jsonl", '{"id": "q1"\n', r"f:1: is not JSON"),
    "missing": ("jsonl", json.dumps({"id": "q1", "question": "Who?"}), r"f:1: has no 'answers'"),
    "wrong type": (
        "jsonl",
        json.dumps(own_question(answers="Ana")),
        r"f:1: answers must be list\[str\], not 'Ana'; write \{",
    ),
    "wrong item": (
        "jsonl",
        json.dumps(own_question(answers=[3])),
        r"f:1: answers\[0\] must be str, not 3",
    ),
    "no answer": ("jsonl", json.dumps(own_question(answers=[])), r"f:1: 'answers' is empty"),
    "blank answer": ("jsonl", json.dumps(own_question(answers=[" "])), r"f:1: 'answers' is empty"),
    "blank question": ("jsonl", json.dumps(own_question(question=" ")), r"f:1: 'question' is empty"),
    "same id": (
        "jsonl",
        f"{json.dumps(own_question())}\n\n{json.dumps(own_question())}",
        r"f:3: has the same id 'q1' as .*f:1",
    ),
    "no question": ("jsonl", "\n", r"f: contains no questions"),
    "no list": ("hotpotqa", "{}", r"f:1: has no 'context'"),
    "empty file": ("hotpotqa", "", r"f: contains no questions"),
    "empty list": ("hotpotqa", "[ ]", r"f: contains no questions"),
    "cut short": ("hotpotqa", json.dumps([HOTPOT, HOTPOT])[:-40], r"record 2: is not JSON"),
    "not closed": ("hotpotqa", json.dumps([HOTPOT])[:-1], r"record 2: is not JSON"),
    "key twice": ("hotpotqa", '[{"_id": "a", "_id": "b"}]', r"record 1: .*has the key '_id' twice, the last time 'b'"),
    "no object": ("hotpotqa", "[[]]", r"record 1: is a list, not an object"),
    "no pairs": ("hotpotqa", json.dumps([{**HOTPOT, "context": {"title": []}}]), r"record 1: 'context' must be list"),
    "uneven columns": (
        "hotpotqa",
        json.dumps([{**HOTPOT, "context": {"title": ["a", "b"], "sentences": [["c"]]}}]),
        r"record 1: 'context' must be list",
    ),
    "same record": ("hotpotqa", json.dumps([HOTPOT, HOTPOT]), r"record 2: has the same id 'h1' as .*record 1"),
    "no paragraph": (
        "musique",
        json.dumps({**MUSIQUE, "paragraphs": ["x"]}),
        r"f:1: 'paragraphs'\[0\] must be dict",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_broken_question_files_are_named_with_the_place_in_one_line(tmp_path, case):
    dataset, text, message = ERRORS[case]
    path = tmp_path / "f"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        load_questions(dataset, path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv"])
def test_a_byte_order_mark_as_of_excel_is_no_part_of_the_first_name(tmp_path, suffix):
    questions = [own_question(), own_question(id="q2")]
    table = "".join(f"{each['id']},{each['question']}\n" for each in questions)
    texts = {".jsonl": "\n".join(map(json.dumps, questions)), ".json": json.dumps(questions)}
    path = tmp_path / f"f{suffix}"
    path.write_text(texts.get(suffix, f"id,question\n{table}"), encoding="utf-8-sig")
    assert [record["id"] for _, record in reading.records(path)] == ["q1", "q2"]


def test_an_empty_corpus_is_refused(tmp_path):
    for dataset, text in (("jsonl", ""), ("hotpotqa", "[]"), ("musique", "")):
        (tmp_path / "empty").write_text(text)
        with pytest.raises(UserError, match="empty: contains no passages"):
            list(load_corpus(dataset, tmp_path / "empty"))


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (['"Senn is where?\tArvel', "Who?\tOda"], [['"Senn is where?', "Arvel"], ["Who?", "Oda"]]),
        (['"Orl" mill\t1711', 'A "mill"\tx"'], [['"Orl" mill', "1711"], ['A "mill"', 'x"']]),
        (['"a ""b"" c"\t"d\te"', '""\t'], [['a "b" c', "d\te"], ["", ""]]),
        (['"two', 'lines"\tx', "y\tz"], [["two\nlines", "x"], ["y", "z"]]),
        (['x\t"two', 'lines"', "y\tz"], [["x", "two\nlines"], ["y", "z"]]),
        (['"a\tb', 'c"\td'], [['"a', "b"], ['c"', "d"]]),
        (['"last\tx'], [['"last', "x"]]),
    ],
)
def test_a_quotation_mark_that_is_not_closed_is_a_character_of_its_cell(lines, rows):
    numbered = ((str(number), f"{line}\n") for number, line in enumerate(["one\ttwo", *lines]))
    assert [row for _, row in reading.cells(numbered, "\t")][1:] == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Question,Answer\nWho?,Ana\nWhere?,Rome, Italy\n", r"q\.csv:3: has 3 cells for 2 columns"),
        ("Question,Answer,Answer\nWho?,Ana,Bo\n", r"q\.csv:1: names the column 'Answer' twice"),
    ],
)
def test_a_table_of_which_cells_would_be_dropped_is_refused(tmp_path, text, said):
    (tmp_path / "q.csv").write_text(text)
    with pytest.raises(UserError, match=said):
        list(reading.records(tmp_path / "q.csv"))


def test_blank_cells_at_the_end_of_a_row_are_none(tmp_path):
    """Spreadsheets write them."""
    (tmp_path / "q.csv").write_text("Question,Answer,\nWho?,Ana,,\n")
    assert [record for _, record in reading.records(tmp_path / "q.csv")] == [
        {"Question": "Who?", "Answer": "Ana", "": ""}
    ]
