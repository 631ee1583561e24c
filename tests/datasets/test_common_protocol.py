"""The seven test sets of Search-R1's protocol: TriviaQA, PopQA and Bamboogle, and FlashRAG's form of all of them."""

import json

import pytest
from benchmark_files import HOTPOT, write_lines

from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.evaluation import metrics
from notewriter.ground.errors import UserError

SUNSET = {
    "Answer": {
        "Aliases": ["Sunset Blvd", "Sunset Boulevard"],
        "MatchedWikiEntityName": "Sunset Boulevard",
        "NormalizedAliases": ["sunset boulevard", "sunset blvd"],
        "HumanAnswers": ["Sunset"],
        "NormalizedValue": "sunset boulevard",
        "Type": "WikipediaEntity",
        "Value": "Sunset Boulevard",
    },
    "Question": "Which street is it?",
    "QuestionId": "tc_2",
    "QuestionSource": "http://example.org/",
}
POPQA = (
    "id\tsubj\tprop\tobj\tsubj_id\tprop_id\tobj_id\ts_aliases\to_aliases\ts_uri\to_uri\ts_wiki_title\to_wiki_title"
    "\ts_pop\to_pop\tquestion\tpossible_answers\n"
    '42\tAna Kesk\toccupation\tpolitician\t1\t22\t2\t"[""A. Kesk""]"\t"[""pol""]"\thttp://w/Q1\thttp://w/Q2\tAna Kesk'
    '\tPolitician\t142\t25692\tWhat is Ana Kesk\'s occupation?\t"[""politician"", ""pol""]"\n'
)


def test_triviaqa_has_the_aliases_and_those_of_the_official_scorer(tmp_path):
    path = tmp_path / "unfiltered-web-dev.json"
    path.write_text(json.dumps({"Data": [SUNSET], "Domain": "Web", "Split": "dev", "Version": 1.0}))
    (question,) = load_questions("triviaqa", path)
    assert (question.id, question.question) == ("tc_2", "Which street is it?")
    assert question.answers == ("Sunset Boulevard", "Sunset Blvd", "sunset boulevard", "sunset blvd", "Sunset")
    del SUNSET["Answer"]["Value"]
    path.write_text(json.dumps({"Data": [SUNSET]}))
    with pytest.raises(UserError, match=r"dev\.json: record 1: has no 'Value'"):
        load_questions("triviaqa", path)
    path.write_text(json.dumps({"Data": [{"QuestionId": "t", "Question": "Who?"}]}))
    with pytest.raises(UserError, match="has no 'Answer'; use a split with answers"):
        load_questions("triviaqa", path)


def test_popqa_is_read_from_its_table(tmp_path):
    path = tmp_path / "popQA.tsv"
    path.write_text(POPQA)
    (question,) = load_questions("popqa", path)
    assert (question.id, question.question) == ("42", "What is Ana Kesk's occupation?")
    assert question.answers == ("politician", "pol")
    assert question.metadata == {"prop": "occupation", "s_pop": 142, "o_pop": 25692}
    path.write_text(POPQA.replace('"[""politician"", ""pol""]"', "politician"))
    with pytest.raises(UserError, match=r"popQA\.tsv:2: 'possible_answers' is no list and not JSON"):
        load_questions("popqa", path)


@pytest.mark.parametrize(("name", "separator"), [("bamboogle.csv", ","), ("bamboogle.tsv", "\t")])
def test_bamboogle_is_read_from_its_table(tmp_path, name, separator):
    path = tmp_path / name
    path.write_text(f'Question{separator}Answer\n"When did the father, who sang, die?"{separator}July 4\n')
    (question,) = load_questions("bamboogle", path)
    assert question.question == "When did the father, who sang, die?" and question.answers == ("July 4",)


PROTOCOL = ["nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"]


@pytest.mark.parametrize("dataset", PROTOCOL)
def test_one_reader_takes_flashrags_form_of_every_benchmark(tmp_path, dataset):
    record = {"id": "test_0", "question": "who won ", "golden_answers": ["Ana", "Bo", "Ana"]}
    extra = {"metadata": {"type": "bridge", "hops": 2, "context": {"title": ["x"]}}}
    path = write_lines(tmp_path / "test.jsonl", record, record | {"id": "test_1"} | extra)
    first, second = load_questions(dataset, path)
    assert (first.id, first.question, first.answers, first.metadata) == ("test_0", "who won", ("Ana", "Bo"), {})
    assert second.metadata == {"type": "bridge", "hops": 2}


def test_what_is_wrong_with_a_file_of_flashrag_is_named(tmp_path):
    for record, problem in (
        ({"id": "a", "golden_answers": ["Ana"]}, "has no 'question'"),
        ({"id": "a", "question": "who", "golden_answers": []}, "'golden_answers' is empty"),
        ({"id": "a", "question": "who", "golden_answers": ["", " "]}, "'golden_answers' is empty"),
        ({"id": "a", "question": "who", "golden_answers": [3]}, "must be str, not 3"),
        ({"id": "a", "question": "who", "golden_answers": ["Ana"], "metadata": 3}, "'metadata' is a int"),
    ):
        with pytest.raises(UserError, match=rf"test\.jsonl:1: {problem}|test\.jsonl:1: .*{problem}"):
            load_questions("nq", write_lines(tmp_path / "test.jsonl", record))


def test_a_file_that_only_speaks_of_golden_answers_is_the_benchmarks_own(tmp_path):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps([HOTPOT | {"question": 'What are "golden_answers"?'}]))
    assert load_questions("hotpotqa", path)[0].id == "h1"
    own = {"id": "q", "question": 'What are "golden_answers"?', "answers": ["x"]}
    assert load_questions("jsonl", write_lines(tmp_path / "own.jsonl", own))[0].answers == ("x",)


@pytest.mark.parametrize("dataset", ["triviaqa", "popqa", "bamboogle"])
def test_any_alias_is_an_exact_match_as_search_r1_scores_it(tmp_path, dataset):
    benchmark = BENCHMARKS[dataset]
    path = write_lines(tmp_path / "t.jsonl", {"id": "t", "question": "who", "golden_answers": ["Ana", "A. Kesk"]})
    (question,) = load_questions(dataset, path)
    # Search-R1's em_check: equal to any answer, without case, punctuation and articles; no part of one.
    for prediction, em in (("the Ana.", 1), ("A Kesk!", 1), ("Ana Kesk", 0), ("She is Ana", 0)):
        assert metrics.score(benchmark.family, prediction, question)["em"] == em
    assert benchmark.answer_style == "short"
