"""What benchmarks are published in: every form gives the same questions and paragraphs."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmark_files import HOTPOT, MUSIQUE

from notewriter.corpora.sources.paragraphs import SOURCE
from notewriter.datasets import BENCHMARKS, load_corpus, load_questions
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question


def columns(record):
    """As the Hub has HotpotQA."""
    facts, context = zip(*record["supporting_facts"], strict=True), zip(*record["context"], strict=True)
    return {key: value for key, value in record.items() if key != "_id"} | {
        "id": record["_id"],
        "supporting_facts": dict(zip(("title", "sent_id"), map(list, facts), strict=True)),
        "context": dict(zip(("title", "sentences"), map(list, context), strict=True)),
    }


def strings(record):
    """As the Hub has 2WikiMultihopQA."""
    return record | {key: json.dumps(record[key]) for key in ("supporting_facts", "context")}


def write(path, records):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
        return path
    is_list = ".json" in path.suffixes
    text = json.dumps(records) if is_list else "".join(f"{json.dumps(each)}\n" for each in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "place"), [("q.jsonl", ":2"), ("q.json", ": record 2"), ("q.parquet", r": row 1 \(counted from 0\)")]
)
def test_the_second_record_is_named_as_the_tools_of_its_form_count_it(name, place, tmp_path):
    path = write(tmp_path / name, [columns(each) for each in (HOTPOT, HOTPOT | {"_id": "b", "question": None})])
    with pytest.raises(UserError, match=rf"{name}{place}: 'question' is a NoneType, not a str"):
        load_questions("hotpotqa", path)


@pytest.mark.parametrize("name", ["q.json", "q.jsonl", "q.json.gz", "q.jsonl.gz", "q.parquet"])
@pytest.mark.parametrize(
    ("dataset", "record", "form"),
    [
        ("hotpotqa", HOTPOT, columns),
        ("2wikimultihopqa", HOTPOT, columns),
        ("2wikimultihopqa", HOTPOT, strings),
        ("musique", MUSIQUE, dict),
    ],
)
def test_every_published_form_gives_the_same(tmp_path, dataset, record, form, name):
    suffix = "json" if dataset != "musique" else "jsonl"
    original = write(tmp_path / f"original.{suffix}", [record])
    published = write(tmp_path / name, [form(record)])
    assert load_questions(dataset, published) == load_questions(dataset, original)
    assert list(load_corpus(dataset, published)) == list(load_corpus(dataset, original))
    contexts = BENCHMARKS[dataset].load_contexts
    assert list(contexts(published)) == list(contexts(original))
    if form is not strings:
        assert len(list(SOURCE.records(str(published), published))) == 1


ON_THE_HUB = {
    "triviaqa": {
        "question": "Which street is it?",
        "question_id": "tc_2",
        "entity_pages": {"title": ["Sunset"], "wiki_context": ["It is a street."]},
        "answer": {"value": "Sunset Blvd", "aliases": ["Sunset"], "normalized_aliases": ["sunset blvd"], "type": "W"},
    },
    "popqa": {
        "id": 42,
        "prop": "occupation",
        "s_pop": 142,
        "o_pop": None,
        "question": "What is Ana's occupation?",
        "possible_answers": '["politician", "pol"]',
    },
    "asqa": {
        "ambiguous_question": "Who won?",
        "sample_id": "-7",
        "qa_pairs": [{"short_answers": ["Ana", "A."], "wikipage": None}, {"short_answers": ["Bo"], "wikipage": "Bo"}],
    },
}
"""Rows as the Hub has them, where these are not the original's records."""


@pytest.mark.parametrize("name", ["q.json", "q.jsonl", "q.jsonl.gz", "q.parquet"])
@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("triviaqa", Question("tc_2", "Which street is it?", ("Sunset Blvd", "Sunset", "sunset blvd"))),
        (
            "popqa",
            Question(
                "42",
                "What is Ana's occupation?",
                ("politician", "pol"),
                metadata={"prop": "occupation", "s_pop": 142},
            ),
        ),
        (
            "asqa",
            Question("-7", "Who won?", ("Ana", "A.", "Bo"), metadata={"short_answers": [["Ana", "A."], ["Bo"]]}),
        ),
    ],
)
def test_the_hubs_own_rows_are_read_in_every_form(tmp_path, dataset, expected, name):
    assert load_questions(dataset, write(tmp_path / name, [ON_THE_HUB[dataset]])) == [expected]


def test_the_hubs_test_questions_of_triviaqa_have_no_answers(tmp_path):
    row = ON_THE_HUB["triviaqa"]
    path = write(tmp_path / "q.parquet", [row | {"answer": row["answer"] | {"value": "<unk>"}}])
    with pytest.raises(UserError, match=r"row 0 .*: its answer is <unk>; use a split with answers"):
        load_questions("triviaqa", path)


def test_the_numbers_of_rows_in_search_r1s_form_are_ids(tmp_path):
    row = {"id": 7, "question": "who won", "golden_answers": ["Ana"], "data_source": "nq"}
    assert load_questions("nq", write(tmp_path / "q.parquet", [row])) == [Question("7", "who won", ("Ana",))]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("train-00000-of-00002", "one of 2 parts, read without train-00001-of-00002.parquet; join them"),
        ("train-00003-of-00007", "one of 7 parts, read without train-00000-of-00007.parquet and 5 more; join them"),
        ("train-00000-of-00001", ""),
    ],
)
def test_a_part_of_a_split_is_read_with_a_warning_that_names_the_others(tmp_path, name, said, caplog):
    path = write(tmp_path / f"{name}.parquet", [columns(HOTPOT)])
    assert len(load_questions("hotpotqa", path)) == 1
    assert list(load_corpus("hotpotqa", path))
    assert [line.partition("is ")[2].partition(" for")[0] for line in caplog.messages] == [said] * bool(said)


def test_a_cut_archive_is_one_line(tmp_path):
    file = write(tmp_path / "q.jsonl.gz", [MUSIQUE])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"q\.jsonl\.gz: is truncated or damaged") as caught:
        load_questions("musique", file)
    assert len(str(caught.value)) < 300
