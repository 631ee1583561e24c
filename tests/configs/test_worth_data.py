"""The corpora and the questions of the experiment on what notes are worth."""

from pathlib import Path

import pytest
from benchmark_files import HOTPOT, MUSIQUE, write_lines, write_list

from notewriter.corpora import corpus
from notewriter.datasets import load_corpus, load_questions
from notewriter.datasets.question_sets import with_question_set
from notewriter.experiments.run import read_pipeline
from notewriter.ground.recipes import RECIPES
from notewriter.retrieval import index
from notewriter.retrieval.sources.index import open_index

SHARED = Path(__file__).parents[3] / "shared" / "data"
SETS = RECIPES / "experiments/worth_sets"
FILES = {"2wikimultihopqa": "train.json", "hotpotqa": "train.json", "musique": "train.jsonl"}


def other(id: str, title: str) -> dict:
    context = [[title, ["It is a river.", "It is long."]]]
    return HOTPOT | {"_id": id, "context": context, "supporting_facts": [[title, 0]]}


@pytest.fixture
def data(tmp_path):
    """A question of each file, and the introduction of a page that a question has too."""
    for folder in (*FILES, "strategyqa"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    write_list(tmp_path / "data/2wikimultihopqa/train.json", HOTPOT)
    write_list(tmp_path / "data/2wikimultihopqa/dev.json", other("w2", "Osk"))
    write_list(tmp_path / "data/hotpotqa/train.json", other("h1", "Varn"), other("h2", "Osk"))
    write_list(tmp_path / "data/hotpotqa/dev.json", other("h3", "Tolen"))
    write_lines(tmp_path / "data/musique/train.jsonl", MUSIQUE)
    river = {"text": "It is a river. It is long."}
    write_lines(tmp_path / "data/2wikimultihopqa/corpus.jsonl", {"title": "Osk", **river}, {"title": "Sea", **river})
    write_lines(tmp_path / "data/hotpotqa/passages.jsonl", {"title": "Sea", **river}, {"title": "Hill", **river})
    write_lines(tmp_path / "data/strategyqa/passages.jsonl", {"id": "1", "title": "Elk", "text": "An elk is large."})
    return tmp_path / "data"


def test_a_larger_corpus_has_every_passage_once_under_the_ids_of_the_questions(data, tmp_path):
    place = tmp_path / "worth"
    changes = {"data": str(data), "worth_data": str(place)}
    for run in read_pipeline(RECIPES / "experiments/worth_data.yaml", None, changes).runs:
        _, command, *argv = run.argv()
        {"corpus": corpus.main, "index": index.main}[command](argv)
    larger = {passage.id: passage for passage in load_corpus("jsonl", place / "corpus/larger/corpus.jsonl")}
    assert sorted(passage.title for passage in larger.values() if passage.text.startswith("It is a river")) == [
        *("Hill", "Osk", "Sea", "Tolen", "Varn")
    ]
    assert "Elk" in {passage.title for passage in larger.values()}
    for name, file in FILES.items():
        own = {passage.id: passage for passage in load_corpus("jsonl", place / f"corpus/{name}/corpus.jsonl")}
        assert own.items() < larger.items()
        assert own.keys() >= {passage.id for passage in load_corpus(name, data / name / file)}
        for question in load_questions(name, data / name / file):
            # One that the benchmark's file has no text for.
            golds = set(question.supporting_ids) - {"Nowhere"}
            assert golds and own.keys() >= golds
    found = open_index(place / "index/larger").search("a large elk", 1)
    assert [passage.title for passage in found] == ["Elk"]


@pytest.mark.parametrize("name", FILES)
def test_questions_are_trained_on_chosen_by_or_tested_and_never_two_of_these(name):
    chosen: dict[str, list[str]] = {}
    for path in sorted(SETS.glob(f"{name}_*.yaml")):
        part = path.stem.removeprefix(f"{name}_")
        source = SHARED / name / ("dev.json" if part == "test" and name != "musique" else FILES[name])
        if not source.exists():
            pytest.skip(f"no {source}")
        chosen[part] = [each.id for each in with_question_set(load_questions(name, source), path, source)]
    ids = [id for part in chosen.values() for id in part]
    assert len(ids) == len(set(ids))
    assert {part: len(each) for part, each in chosen.items()} == {
        "2wikimultihopqa": {"choose": 100, "test": 493, "train": 400},
        "hotpotqa": {"choose": 40, "test": 488, "train": 60},
        "musique": {"choose": 30, "test": 70},
    }[name]


def test_further_questions_of_hotpotqa_share_no_page_of_evidence_with_its_test():
    files = {name: SHARED / f"hotpotqa/{name}.json" for name in ("dev_more", "dev", "train")}
    if missing := [path for path in files.values() if not path.exists()]:
        pytest.skip(f"no {missing[0]}")
    questions = {name: load_questions("hotpotqa", path) for name, path in files.items()}
    parts = [
        with_question_set(questions["dev_more"], SETS / f"hotpotqa_more_{part}.txt", files["dev_more"])
        for part in ("train", "choose")
    ]
    assert [len(part) for part in parts] == [400, 100]
    chosen = [each for part in parts for each in part]
    assert len({each.id for each in chosen}) == 500
    others = [*questions["dev"], *questions["train"]]
    for of in (lambda each: {each.id}, lambda each: {each.question.casefold()}, lambda each: {*each.supporting_ids}):
        assert not set().union(*map(of, chosen)) & set().union(*map(of, others))
