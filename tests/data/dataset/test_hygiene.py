from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewriter.data.dataset import hygiene
from notewriter.data.dataset.hygiene import Seen, clean_questions, hygiene_statistics, load_evaluation
from notewriter.datasets import load_questions
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
PEOPLE = ["Arlen Voss", "Mirela Dahn", "Tobin Ekhart", "Sanne Orrel", "Pavo Lindqvist", "Ilse Marrant", "Joren Kade"]


def ask(identifier, text, answer="Tirsk", passages=()):
    return Question(identifier, text, (answer,), tuple(passages))


def reasons(questions, evaluation=()):
    _, drops = clean_questions(questions, [Seen(question, "test.jsonl") for question in evaluation])
    return {drop.question.id: (drop.reason, drop.other_id) for drop in drops}


BORN = [ask(f"q{i}", f"Which country's capital is the city where {name} was born?") for i, name in enumerate(PEOPLE)]


def test_questions_of_one_template_about_different_people_all_stay():
    kept, drops = clean_questions(BORN)
    assert kept == BORN and drops == []


def test_a_question_in_other_case_and_punctuation_is_there_already():
    again = ask("again", "which country's capital is the city, where Arlen Voss was born", "elsewhere")
    assert reasons([*BORN, again]) == {"again": (hygiene.SAME, "q0")}


def test_a_question_reworded_a_little_is_there_already_if_its_answer_is_the_same():
    text = "Which country's capital is that city where Mirela Dahn was born?"
    assert reasons([*BORN, ask("again", text, "the Tirsk")]) == {"again": (hygiene.ALIKE, "q1")}
    assert reasons([*BORN, ask("other", text, "Velmor")]) == {}


def test_the_order_of_two_that_are_compared_makes_no_other_question():
    first = ask("a", "Who is older, Sanne Orrel or Pavo Lindqvist?", "Sanne Orrel")
    second = ask("b", "Who is older, Pavo Lindqvist or Sanne Orrel?", "Sanne Orrel")
    assert reasons([first, second]) == {"b": (hygiene.ALIKE, "a")}


def test_what_is_in_an_evaluation_file_is_not_trained_on():
    evaluation = [
        ask("e0", BORN[0].question.upper()),
        ask("e1", "Which country's capital is that city where Mirela Dahn was born?"),
        ask("e2", "What river flows past the city where Tobin Ekhart was born, and how long is it?"),
    ]
    assert reasons(BORN, evaluation) == {
        "q0": (hygiene.SAME_EVALUATION, "e0"),
        "q1": (hygiene.ALIKE_EVALUATION, "e1"),
    }
    long = ask("long", "Who ruled the land past the city where Tobin Ekhart was born, in 1900?")
    assert reasons([*BORN, long], evaluation[2:]) == {"long": (hygiene.SHARED_WORDS, "e2")}


def test_a_name_and_a_few_characters_in_common_are_no_overlap_and_a_wording_is():
    """Eight characters of Chinese are some four words."""
    evaluation = [ask("e0", "张艺谋导演的电影叫什么名字")]
    assert reasons([ask("film", "张艺谋导演的电影在哪一年获得了这个奖项", "1988")], evaluation) == {}
    long = ask("long", "谁在阿维尔的河边建造了那座古老的磨坊")
    again = ask("again", "请告诉我在1702年谁在阿维尔的河边建造了那座古老的磨坊呢", "Mira")
    assert reasons([*BORN, again], [long]) == {"again": (hygiene.SHARED_WORDS, "long")}


def test_the_wording_of_a_template_is_no_overlap_however_long():
    many = [ask(f"t{i}", f"What is the place of birth of the director of film X{i}?", str(i)) for i in range(60)]
    assert reasons(many[:40], many[40:]) == {}


def test_a_question_that_rests_on_the_evidence_of_an_evaluation_question_is_dropped():
    questions = [
        ask("all", "Where was Ilse Marrant born?", passages=["p1", "p2", "p3"]),
        ask("one", "Where was Joren Kade born?", passages=["p1"]),
        ask("none", "Where was Arlen Voss born?"),
    ]
    evaluation = [ask("e0", "Who taught her?", passages=["p2", "p1"]), ask("e1", "Who knows?")]
    assert reasons(questions, evaluation) == {"all": (hygiene.SHARED_PASSAGES, "e0")}


def test_a_question_of_unusual_length_is_dropped_if_enough_others_show_what_is_usual():
    usual = [ask(f"u{i}", f"Where was person number {i} of the town born?", str(i)) for i in range(30)]
    long = ask("long", "Where " + " ".join(f"word{i}" for i in range(300)), "?")
    assert reasons([*usual, long]) == {"long": (hygiene.UNUSUAL_QUESTION, "")}
    assert reasons([*usual[:5], long]) == {}


def test_overlap_is_counted_by_evaluation_file(tmp_path):
    for name, questions in {"near": BORN[:2], "far": [ask("f", "Who built the dam of Sarn?")]}.items():
        jsonl.write(
            tmp_path / f"{name}.jsonl",
            ({"id": f"e{q.id}", "question": q.question, "answers": list(q.answers)} for q in questions),
        )
    near, far = str(tmp_path / "near.jsonl"), str(tmp_path / "far.jsonl")
    evaluation = load_evaluation({near: "jsonl", far: "jsonl"})
    kept, drops = clean_questions([*BORN, BORN[0], BORN[6]], evaluation)
    assert kept == BORN[2:]
    assert hygiene_statistics(drops, evaluation) == {
        "questions_dropped": {hygiene.SAME_EVALUATION: 3, hygiene.SAME: 1},
        "evaluation_files": {
            near: {"questions": 2, "training_questions_dropped": 3, "evaluation_questions_met": 2},
            far: {"questions": 1, "training_questions_dropped": 0, "evaluation_questions_met": 0},
        },
    }
    assert drops[0].to_dict() == {
        "question_id": "q0",
        "question": BORN[0].question,
        "reason": hygiene.SAME_EVALUATION,
        "other_id": "eq0",
        "evaluation_file": near,
    }


def test_an_evaluation_file_of_no_known_dataset_is_refused_by_its_name():
    with pytest.raises(UserError, match=r"dev\.json"):
        load_evaluation({"dev.json": "squad"})


def test_it_is_an_error_if_no_question_is_left():
    with pytest.raises(UserError, match="no question is left to train on: 7 times the question is in an evaluation"):
        reasons(BORN, BORN)


@pytest.mark.skipif(not DATA.is_dir(), reason="needs slices of the benchmarks, which are not part of the project")
def test_real_benchmarks_of_one_template_family_keep_their_questions_and_lose_what_was_copied():
    questions = load_questions("2wikimultihopqa", DATA / "2wikimultihopqa" / "train.json")
    hotpotqa = load_questions("hotpotqa", DATA / "hotpotqa" / "train.json")
    assert len(clean_questions(questions, [Seen(each, "hotpotqa") for each in hotpotqa])[0]) == 500
    # Two parts of one benchmark share their templates and, here and there, the beginning of a title.
    assert len(clean_questions(questions[:400], [Seen(each, "dev") for each in questions[400:]])[0]) >= 398
    copied = [
        Question(f"copy{each.id}", "So, " + each.question.replace("the ", ""), each.answers) for each in questions[:50]
    ]
    _, drops = clean_questions([*copied, *questions[50:]], [Seen(each, "dev") for each in questions[:50]])
    others = {drop.question.id: drop.other_id for drop in drops}
    assert {copy.id: others.get(copy.id) for copy in copied} == {f"copy{each.id}": each.id for each in questions[:50]}


@given(st.lists(st.integers(0, 10**6)))
def test_most_lengths_are_usual_whatever_they_are(lengths):
    shortest, longest = hygiene.usual_lengths(lengths)
    usual = sum(shortest <= max(length, 1) <= longest for length in lengths)
    assert usual >= len(lengths) / 2
