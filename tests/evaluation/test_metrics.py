import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from notewriter.evaluation import metrics
from notewriter.evaluation.catalogue import OF_TABLES, check_family, metric_named
from notewriter.evaluation.metrics import FAMILIES, check_questions
from notewriter.evaluation.metrics.fanoutqa import accuracy
from notewriter.evaluation.metrics.metric import Family, Metric
from notewriter.ground import jsonl, plugins
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import load
from notewriter.ground.records import Question
from notewriter.ground.text import normalise
from notewriter.results.measures import TOGETHER, VALUES

GOLDEN = Path(__file__).parents[1] / "golden"
SHORT_ANSWER = ["hotpotqa", "2wikimultihopqa", "musique", "deepnote", "drop"]
WITH_F1 = ["hotpotqa", "2wikimultihopqa", "musique", "deepnote"]


def score(family: str, prediction: str, golds: list[str]) -> dict[str, float]:
    return metrics.score(family, prediction, Question("q", "?", tuple(golds)))


@pytest.mark.parametrize("family", metrics.FAMILIES)
def test_a_family_names_the_metrics_that_it_gives(family, monkeypatch):
    monkeypatch.setitem(sys.modules, "fanoutqa.norm", SimpleNamespace(normalize=str.lower))
    question = Question("q", "?", ("Fulda",), metadata={"short_answers": [["Fulda"]], "answer": "Fulda"})
    told = metrics.FAMILIES[family].metrics
    assert list(metrics.score(family, "Fulda", question)) == [metric.name for metric in told]
    assert all(metric.label and metric.meaning.endswith(".") for metric in told)


def test_a_metric_of_ours_is_found_without_a_look_at_what_is_installed(monkeypatch):
    # It reads a file of each package, and a report asks for a metric hundreds of times.
    monkeypatch.setattr(plugins, "entry_points", lambda group: pytest.fail(f"{group} was looked for"))
    assert metric_named("f1").name == "f1"


@pytest.mark.parametrize("family", SHORT_ANSWER)
def test_every_family_returns_what_its_official_scorer_returns(family):
    # DROP's scorer gives nothing where the gold is blank.
    rows = [row for _, row in jsonl.read(GOLDEN / "short_answer.jsonl") if row[family] is not None]
    assert len(rows) >= 600
    for row in rows:
        # A question of DeepNote has its first gold answer alone; its scorer takes the best of several.
        golds = [[gold] for gold in row["golds"]] if family == "deepnote" else [row["golds"]]
        scores = [score(family, row["prediction"], each) for each in golds]
        values = {name: max(each[name] for each in scores) for name in scores[0]}
        # DeepNote's scorer rounds to four places; the others do not round.
        tolerance = 5.1e-5 if family == "deepnote" else 1e-12
        assert values == pytest.approx(row[family], abs=tolerance), row


def test_deepnote_counts_the_first_gold_answer_alone():
    """Each question of the authors' test files has one, without the benchmarks' aliases."""
    assert score("deepnote", "New York City", ["NYC", "New York City"]) == {"acc": 0.0, "f1": 0.0, "em": 0.0}
    assert score("deepnote", "NYC", ["NYC", "New York City"]) == {"acc": 1.0, "f1": 1.0, "em": 1.0}


def test_asqa_reads_all_lines_of_an_answer_as_deepnote_does():
    """ALCE itself cuts an answer at its first line break."""
    question = Question("q", "?", ("a",), metadata={"short_answers": [["Osk"], ["Fulda"]]})
    assert metrics.score("asqa", "Osk [1].\nFulda.", question) == {"str_em": 1.0, "str_hit": 1.0}


def test_asqa_returns_what_alce_returns():
    for _, row in jsonl.read(GOLDEN / "asqa.jsonl"):
        short_answers = [pair["short_answers"] for pair in row["qa_pairs"]]
        question = Question("q", "?", ("a",), metadata={"short_answers": short_answers})
        values = metrics.score("asqa", row["prediction"], question)
        assert values == pytest.approx({"str_em": row["str_em"], "str_hit": row["str_hit"]}), row


def test_strategyqa_returns_what_deepnotes_scorer_returns():
    for _, row in jsonl.read(GOLDEN / "strategyqa.jsonl"):
        assert score("strategyqa", row["prediction"], [row["gold"]]) == {"acc": row["acc"]}, row


def test_normalisation_drops_case_punctuation_and_articles():
    assert normalise("  The  Hard-Easy,\tan A. ") == "hardeasy"


def test_punctuation_leaves_no_space_behind():
    assert score("musique", "Betty-Cohen", ["Betty Cohen"]) == {"em": 0.0, "f1": 0.0}


@pytest.mark.parametrize("family", WITH_F1)
def test_half_of_the_gold_tokens_give_two_thirds_of_f1(family):
    values = score(family, "Betty", ["Betty Cohen"])
    assert values["em"] == 0.0
    assert values["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("family", WITH_F1)
def test_repeated_tokens_count_once_for_each_time_the_gold_has_them(family):
    assert score(family, "Fulda Fulda Fulda", ["Fulda"])["f1"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("family", "f1"), [("hotpotqa", 0.0), ("2wikimultihopqa", 0.0), ("musique", 0.5), ("deepnote", 0.5)]
)
def test_a_yes_inside_a_sentence_has_partial_credit_in_two_families_only(family, f1):
    assert score(family, "march or yes", ["yes"])["f1"] == pytest.approx(f1)


@pytest.mark.parametrize(
    ("family", "f1"), [("hotpotqa", 0.0), ("2wikimultihopqa", 0.0), ("musique", 1.0), ("deepnote", 0.0)]
)
def test_two_answers_that_normalise_to_nothing_agree_in_musique_only(family, f1):
    values = score(family, "the", ["The"])
    assert values["em"] == 1.0
    assert values["f1"] == f1


@pytest.mark.parametrize(("family", "em"), [("hotpotqa", 0.0), ("2wikimultihopqa", 1.0), ("musique", 1.0)])
def test_aliases_count_everywhere_but_in_hotpotqa(family, em):
    assert score(family, "Dodgers", ["Los Angeles Dodgers", "Dodgers"])["em"] == em


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "f1"),
    [
        ("The ﬁrst oﬃce", "the first office", 1.0, 1.0),
        ("Ｔｏｌｅｎ １８７１", "Tolen 1871", 1.0, 1.0),
        ("位于东京。", "东京", 0.0, 2 / 3),
        ("„Tolen“ – 1871", "Tolen 1871", 0.0, 0.8),
        ("Yes, it was", "yes", 0.0, 0.0),
        # An answer without a word equals nothing but itself.
        ("$", "$", 1.0, 1.0),
        ("", "$", 0.0, 0.0),
    ],
)
def test_answers_of_ones_own_are_compared_in_any_script(prediction, gold, em, f1):
    assert score("own", prediction, [gold]) == {"em": em, "f1": pytest.approx(f1)}
    assert score("own", prediction, ["something else", gold])["em"] == em


@pytest.mark.parametrize("prediction", ["Betty Cohen", "the town of Tolen", "yes", "Tolen-on-Osk", "U.S. 1,871"])
def test_in_ascii_they_are_compared_as_hotpotqas(prediction):
    for gold in ("Betty  Cohen!", "town of tolen", "no", "Tolen on Osk", "the US, 1871"):
        assert score("own", prediction, [gold]) == score("hotpotqa", prediction, [gold])


def test_deepnote_accuracy_looks_for_the_gold_unnormalised():
    assert score("deepnote", "It was BETTY COHEN, I think.", ["Betty Cohen"])["acc"] == 1.0
    assert score("deepnote", "It was Betty  Cohen", ["Betty Cohen"])["acc"] == 0.0


def test_an_unknown_family_lists_the_families_there_are():
    with pytest.raises(UserError, match=r"squad.*hotpotqa"):
        score("squad", "Fulda", ["Fulda"])


def test_a_question_without_gold_answers_cannot_be_scored():
    with pytest.raises(ValueError, match="without a gold answer"):
        score("musique", "Fulda", [])


def test_drop_wants_the_numbers_of_the_gold():
    assert score("drop", "12 churches", ["12 old churches"])["f1"] == 0.8
    assert score("drop", "13 old churches", ["12 old churches"])["f1"] == 0.0
    assert score("drop", "12.0", ["12"])["em"] == 1.0


def test_drop_parts_tokens_at_line_breaks_too():
    assert score("drop", "twelve\nold\tchurches", ["twelve old churches"]) == {"em": 1.0, "f1": 1.0}


@pytest.mark.parametrize(
    ("prediction", "em", "f1"),
    [
        ("Bo Brel, Ana", 1.0, 1.0),
        ("Ana and Bo Brel", 1.0, 1.0),
        ('["Ana", "Bo Brel"]', 1.0, 1.0),
        # Each span goes to the one it fits best; a missing one, or one too many, is a 0 in the mean.
        ("Ana; Brel", 0.0, 0.83),
        ("Ana", 0.0, 0.5),
        ("Ana, Bo Brel, and Cy", 0.0, 0.67),
        ("Ana, Ana", 0.0, 0.5),
        ("", 0.0, 0.0),
    ],
)
def test_drop_aligns_the_spans_of_an_answer_one_by_one(prediction, em, f1):
    question = Question("q", "Who?", ("Ana, Bo Brel",), metadata={"spans": ["Ana", "Bo Brel"]})
    assert metrics.score("drop", prediction, question) == {"em": em, "f1": f1}


def test_drop_takes_a_single_span_whole_however_it_is_written():
    question = Question("q", "Where?", ("Brel, Osk and Tolen",), metadata={"spans": ["Brel, Osk and Tolen"]})
    assert metrics.score("drop", "Brel, Osk and Tolen", question) == {"em": 1.0, "f1": 1.0}


def test_multihoprag_takes_the_answer_out_of_the_sentence_that_its_prompt_asks_for():
    said = 'The sun is mentioned. The answer to the question is "Mira", I think.'
    assert score("multihoprag", said, ["the sun"])["acc"] == 0.0
    assert score("multihoprag", said, ["Mira"]) == {"acc": 1.0, "em": 1.0, "f1": 1.0}


def test_one_shared_word_is_right_for_multihoprags_official_accuracy_and_not_for_exact_match():
    assert score("multihoprag", "the moon", ["the sun"]) == {"acc": 1.0, "em": 0.0, "f1": 0.0}


def test_multihoprags_accuracy_is_the_share_of_right_answers():
    pairs = [("Mira", "Mira"), ("Yes", "yes"), ("Fulda", "Rome"), ("no", "yes"), ("", "Ana")]
    assert [score("multihoprag", prediction, [gold])["acc"] for prediction, gold in pairs] == [1, 1, 0, 0, 0]


def test_triviaqa_leaves_a_space_where_punctuation_was_and_knows_more_of_it():
    for prediction in ("Betty-Cohen", "Betty_Cohen", "The ‘Betty’ Cohen´"):
        assert score("triviaqa", prediction, ["betty cohen"]) == {"em": 1.0, "f1": 1.0}
    assert score("triviaqa", "O`Hara’s", ["o hara s"])["em"] == 1.0
    assert score("nq", "Betty-Cohen", ["betty cohen"])["em"] == 0.0
    assert score("triviaqa", "Betty", ["Rome", "Betty Cohen"]) == {"em": 0.0, "f1": pytest.approx(2 / 3)}


@pytest.mark.parametrize(
    ("prediction", "acc"),
    [
        ("He was a politician in Fulda.", 1.0),
        ("politicians", 1.0),
        ("Ana Kesk", 1.0),
        ("ana kesk", 1.0),
        # Only the gold answer's case is varied.
        ("POLITICIAN", 0.0),
        ("Ana  Kesk", 0.0),
        ("", 0.0),
    ],
)
def test_popqa_looks_for_a_gold_answer_in_the_prediction(prediction, acc):
    assert score("popqa", prediction, ["politician", "Ana Kesk"])["acc"] == acc


@pytest.mark.parametrize(
    ("prediction", "sub_em"),
    [
        ("the River Fulda, I think", 1.0),
        ("fulda!", 1.0),
        # Contained in the gold, by letters and not by words.
        ("River", 1.0),
        ("a", 1.0),
        ("Rome", 0.0),
        ("", 0.0),
    ],
)
def test_ruler_counts_either_containing_the_other(prediction, sub_em):
    values = score("ruler", prediction, ["River Fulda", "Rome"])
    assert values["sub_em"] == sub_em
    assert set(values) == {"sub_em", "em", "f1"}
    assert score("ruler", "one two", ["two three four"])["f1"] == 0.4
    assert score("ruler", "one two", ["two three four five six"])["f1"] == 0.29


def test_fanoutqa_looks_for_every_key_and_value_of_the_answer_as_whole_words():
    answer = {"Pat Burrell": "Right", "Mark Mulder": ["Left", 7], "JD Drew": True}
    found = accuracy("pat burrell: right. mark mulder: left, 77", answer, str.lower)
    assert found == {"loose": pytest.approx(4 / 7), "strict": 0.0}
    assert accuracy("Left", "left", str.lower) == {"loose": 1.0, "strict": 1.0}


def test_fanoutqa_gives_the_f1_against_the_answer_as_text_beside_its_accuracy(monkeypatch):
    monkeypatch.setitem(sys.modules, "fanoutqa.norm", SimpleNamespace(normalize=str.lower))
    question = Question("q", "How old?", ("Ana: 7; Bo: 8",), metadata={"answer": {"Ana": 7, "Bo": 8}})
    assert metrics.score("fanoutqa", "Ana: 7", question) == {
        "loose": 0.5,
        "strict": 0.0,
        "f1": pytest.approx(2 / 3),
    }


def test_a_family_whose_gold_a_question_lacks_names_the_question_and_the_dataset():
    with pytest.raises(UserError, match=r"question q7: has no 'short_answers'.*dataset: asqa"):
        metrics.score("asqa", "Fulda", Question("q7", "Where?", ("Fulda",)))


@pytest.mark.parametrize(
    ("family", "metadata", "message"),
    [
        ("asqa", {}, "has no 'short_answers' for metric family asqa"),
        ("asqa", {"short_answers": []}, "has no gold answer for metric family asqa"),
        ("asqa", {"short_answers": [["Fulda"], [3]]}, "its metadata does not fit metric family asqa"),
        ("asqa", {"short_answers": 3}, "its metadata does not fit metric family asqa"),
        ("fanoutqa", {}, "has no 'answer' for metric family fanoutqa"),
        ("fanoutqa", {"answer": {}}, "has no gold answer for metric family fanoutqa"),
    ],
)
def test_any_question_that_a_family_cannot_score_is_found_before_answers_are_paid_for(family, metadata, message):
    right = {"short_answers": [["Fulda"]], "answer": {"river": ["Fulda"], "long": True}}
    questions = [Question("q1", "Where?", ("Fulda",), metadata=right), Question("q2", "Where?", ("Fulda",))]
    check_questions(family, questions[:1])
    with pytest.raises(UserError, match=f"question q2: {message}.*; load it with dataset: {family}"):
        check_questions(family, [questions[0], replace(questions[1], metadata=metadata)])
    with pytest.raises(UserError, match="question q3: has no gold answer"):
        check_questions("nq", [Question("q3", "Where?", ())])


def test_a_question_is_scored_by_its_answers_in_the_other_families():
    assert metrics.score("nq", "fulda.", Question("q", "Where?", ("Rome", "Fulda"))) == {"em": 1.0, "f1": 1.0}


def test_a_family_whose_package_is_missing_says_so_before_any_answer_is_paid_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "fanoutqa.norm", None)
    with pytest.raises(UserError, match=r"pip install -e '\.\[fanoutqa\]'"):
        check_family("fanoutqa")
    check_family("asqa")


@pytest.fixture
def fault_of(tmp_path):
    """The error of scoring an answer with a family whose function is `code`, on the file's line 4."""

    def fault(code, declared="(Metric('mine', 'Mine', ''),)"):
        file = tmp_path / "mine.py"
        file.write_text(
            "from notewriter.evaluation.metrics.metric import Family, Metric\n"
            "from notewriter.ground.text import normalise\n\n"
            f"{code}\nFAMILY = Family(score, {declared})\n"
        )
        place = f"{file}:FAMILY"
        plugins._LOADED.pop(place, None)
        FAMILIES.pop(place, None)
        with pytest.raises(UserError) as error:
            load(place)
            metrics.score(place, "Fulda", Question("q7", "Where?", ("Fulda",)))
        return str(error.value).removeprefix(f"question q7: metric family {place} ")

    return fault


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("def score(p, q): return {'mine': 1 / 0}", "ended in ZeroDivisionError: division by zero"),
        ("def score(p, q): return {'mine': normalise(3)}", "ended in AttributeError: "),
        ("def score(p): return {'mine': 0.5}", r"ended in TypeError: score\(\) takes 1 positional argument"),
        ("def score(p, q): return 0.5", "returned 0.5, not a dict of a number for each of: mine"),
        ("def score(p, q): return None", "returned None, not a dict"),
        ("async def score(p, q): return {'mine': 0.5}", "returned a coroutine; a family's function is no `async def`"),
        ("def score(p, q): return {}", "returned no 'mine'; every question needs a number for it"),
        ("def score(p, q): return {'mine': 1.0, 'extra': 0.5}", "returned 'extra', which is none of its metrics: mine"),
        ("def score(p, q): return {'mine': None}", "returned None for 'mine', which is no finite int or float"),
        ("def score(p, q): return {'mine': float('nan')}", "returned nan for 'mine', which is no finite"),
        ("def score(p, q): return {'mine': '0.5'}", "returned '0.5' for 'mine', which is no finite"),
        ("def score(p, q): return {'mine': True}", "returned True for 'mine', which is no finite"),
        ("def score(p, q): return {'mine': 37}", "returned 37 for 'mine', which is a share .* has share=False"),
        ("def score(p, q): return {'mine': -0.5}", "returned -0.5 for 'mine', which is a share of 0 to 1"),
    ],
)
def test_a_fault_of_somebody_elses_family_is_named_as_its_own_with_its_line(code, fault, fault_of):
    said = fault_of(code)
    assert re.match(fault, said) and said.endswith(" (mine.py:4); correct it there"), said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("declared", "fault"),
    [
        ("Metric('mine', 'Mine', '')", r"metrics: is one Metric; give a tuple, \(Metric\(...\),\)"),
        ("(Metric('mine', 'Mine', ''), Metric('mine', 'My', ''))", "metrics: a name is given twice; .*: mine, mine"),
    ],
)
def test_metrics_without_a_tuple_and_a_doubled_name_are_refused_when_the_family_is_loaded(declared, fault, fault_of):
    assert re.search(fault, fault_of("def score(p, q): return {'mine': 0.5}", declared))


def test_a_count_is_no_share_and_a_share_may_be_1_in_floating_point(monkeypatch):
    count = Metric("letters", "Letters", "Letters of the answer.", share=False)
    family = Family(lambda p, q: {"letters": len(p), "share": 1 + 1e-15}, (count, Metric("share", "Share", "")))
    monkeypatch.setitem(FAMILIES, "letters", family)
    assert metrics.score("letters", "Fulda", Question("q", "?", ("a",))) == {"letters": 5, "share": 1 + 1e-15}


@pytest.mark.parametrize("name", ["note_fact_recall", "seconds", "judged_accuracy", "retrievals", "money", "errors"])
def test_a_metric_with_the_name_of_a_score_of_every_run_is_refused(name, monkeypatch):
    monkeypatch.setitem(FAMILIES, "clash", Family(lambda p, q: {name: 0.5}, (Metric(name, "Mine", ""),)))
    with pytest.raises(UserError, match=f"metric family clash: '{name}' is a score of every run; choose another name"):
        check_family("clash")


def test_whatever_tables_compute_of_any_run_has_its_value():
    assert OF_TABLES.keys() <= VALUES.keys() | TOGETHER.keys()


def test_the_remedy_names_the_benchmark_with_the_references_of_a_family():
    without = [Question("q3", "Where?", ())]
    for family, remedy in (("drop", "dataset: iirc"), ("ruler", "choose another family")):
        with pytest.raises(UserError, match=remedy):
            check_questions(family, without)
