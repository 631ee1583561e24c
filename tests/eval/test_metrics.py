from pathlib import Path

import pytest

from eval.metrics import FAMILIES, normalise, score
from notewriter import jsonl
from notewriter.errors import UserError

GOLDEN = Path(__file__).parents[2] / "../shared/golden/short_answer.jsonl"


@pytest.mark.skipif(not GOLDEN.exists(), reason="the official scorers' values are not beside this checkout")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_returns_what_its_official_scorer_returns(family):
    rows = [row for _, row in jsonl.read(GOLDEN)]
    assert len(rows) > 600
    for row in rows:
        values = score(family, row["prediction"], row["golds"])
        # DeepNote's scorer rounds to four places; the others do not round.
        tolerance = 5.1e-5 if family == "deepnote" else 1e-12
        assert values == pytest.approx(row[family], abs=tolerance), row


def test_normalisation_drops_case_punctuation_and_articles():
    assert normalise("  The  Hard-Easy,\tan A. ") == "hardeasy"


def test_punctuation_leaves_no_space_behind():
    assert score("musique", "Betty-Cohen", ["Betty Cohen"]) == {"em": 0.0, "f1": 0.0}


@pytest.mark.parametrize("family", FAMILIES)
def test_half_of_the_gold_tokens_give_two_thirds_of_f1(family):
    values = score(family, "Betty", ["Betty Cohen"])
    assert values["em"] == 0.0
    assert values["f1"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("family", FAMILIES)
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


def test_deepnote_accuracy_looks_for_the_gold_unnormalised():
    assert score("deepnote", "It was BETTY COHEN, I think.", ["Betty Cohen"])["acc"] == 1.0
    assert score("deepnote", "It was Betty  Cohen", ["Betty Cohen"])["acc"] == 0.0


def test_an_unknown_family_lists_the_families_there_are():
    with pytest.raises(UserError, match=r"squad.*hotpotqa"):
        score("squad", "Fulda", ["Fulda"])


def test_a_question_without_gold_answers_cannot_be_scored():
    with pytest.raises(ValueError, match="golds is empty"):
        score("musique", "Fulda", [])
