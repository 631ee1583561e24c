from pathlib import Path

import pytest

from notewriter.datasets import BENCHMARKS, load_corpus, load_questions, select, with_metadata
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question

SHARED = Path(__file__).parents[2] / "../shared/data"
REAL = {
    "hotpotqa": (SHARED / "hotpotqa/train.json", 100),
    "2wikimultihopqa": (SHARED / "2wikimultihopqa/train.json", 500),
    "musique": (SHARED / "musique/train.jsonl", 100),
}
REAL_WITHOUT_PASSAGES = {
    "strategyqa": (SHARED / "strategyqa/dev.json", 229),
    "nq": (SHARED / "nq_open/dev.jsonl", 500),
    "frames": (SHARED / "frames/train.jsonl", 100),
    "fanoutqa": (SHARED / "fanoutqa/dev.json", 100),
}
WITHOUT_PASSAGES = ["fanoutqa", "frames", "asqa", "nq", "triviaqa", "popqa", "bamboogle"]


def real_questions(dataset, path, count):
    if not path.exists():
        pytest.skip(f"no {path}")
    questions = load_questions(dataset, path)
    assert len(questions) == count
    return questions


@pytest.mark.parametrize("dataset", REAL)
def test_real_slices_of_the_benchmarks(dataset):
    path, count = REAL[dataset]
    questions = real_questions(dataset, path, count)
    corpus = {passage.id: passage.text for passage in load_corpus(dataset, path)}
    assert len(corpus) > 5 * count
    for q in questions:
        assert len(q.supporting_ids) >= 1 <= len(q.supporting_facts)
        supporting = [corpus[passage_id] for passage_id in q.supporting_ids]
        assert all(any(fact in text for text in supporting) for fact in q.supporting_facts)


@pytest.mark.parametrize("dataset", REAL_WITHOUT_PASSAGES)
def test_real_slices_of_benchmarks_whose_passages_are_elsewhere(dataset):
    questions = real_questions(dataset, *REAL_WITHOUT_PASSAGES[dataset])
    assert all(question.question.strip() and all(question.answers) for question in questions)


@pytest.mark.parametrize("dataset", BENCHMARKS)
def test_files_that_cannot_be_read_are_named(tmp_path, dataset):
    with pytest.raises(UserError, match="absent: cannot be read"):
        load_questions(dataset, tmp_path / "absent")
    latin = tmp_path / "latin"
    latin.write_bytes("[é".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin:? ?.*is not UTF-8"):
        load_questions(dataset, latin)
    if dataset not in WITHOUT_PASSAGES:
        with pytest.raises(UserError, match=r"latin:? ?.*is not UTF-8"):
            list(load_corpus(dataset, latin))


@pytest.mark.parametrize("dataset", WITHOUT_PASSAGES)
def test_benchmarks_without_passages_say_where_to_get_them(tmp_path, dataset):
    with pytest.raises(UserError, match="contains no passages; make its corpus with `notewriter corpus`"):
        list(load_corpus(dataset, tmp_path / "dev.json"))


def test_an_unknown_dataset_is_answered_with_those_there_are(tmp_path):
    for load in (load_questions, load_corpus):
        with pytest.raises(UserError, match="unknown dataset 'squad'; choose one of: 2wiki"):
            load("squad", tmp_path)


def test_select_takes_the_first_or_a_seeded_sample_in_the_order_of_the_file():
    questions = [Question(f"q{i}", "Who?", ("Ana",)) for i in range(50)]
    assert select(questions) == select(questions, limit=99) == questions
    assert select(questions, limit=3) == questions[:3]
    sample = select(questions, limit=10, seed=1)
    assert sample == select(questions, limit=10, seed=1) != select(questions, limit=10, seed=2)
    assert sample == sorted(sample, key=questions.index) != questions[:10]
    with pytest.raises(UserError, match="give at least 1"):
        select(questions, limit=0)


def test_questions_are_chosen_by_what_their_metadata_say():
    kinds = ["Tabular", "Numerical | Multiple constraints", ["Tabular", "Numerical"], 3, None]
    questions = [
        Question(f"q{i}", "Who?", ("Ana",), metadata={"type": kind, "hops": i}) for i, kind in enumerate(kinds)
    ]
    assert with_metadata(questions, {}) == questions
    assert with_metadata(questions, {"type": "Multiple constraints"}) == [questions[1]]
    assert with_metadata(questions, {"type": "Numerical"}) == questions[1:3]
    assert with_metadata(questions, {"type": "Numerical", "hops": 2}) == [questions[2]]
    assert with_metadata(questions, {"type": 3}) == [questions[3]]
    with pytest.raises(
        UserError, match=r"where: no question has type: 'table' in its metadata; its values are: Tabular"
    ):
        with_metadata(questions, {"type": "table"})


def test_every_benchmark_tells_its_source_its_licence_and_a_metric_family_that_exists():
    from notewriter.evaluation.metrics import FAMILIES

    for name, dataset in BENCHMARKS.items():
        assert dataset.family in FAMILIES
        assert name == "jsonl" or (dataset.source and dataset.licence)
