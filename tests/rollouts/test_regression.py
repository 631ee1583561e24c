"""A note-writer that is fitted and no language model: what it sees, what it learns, and what it must not see."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_encoders import save_encoder
from tiny_world import tiny_world, write_config

from notewriter.artifacts.predictions import read_predictions
from notewriter.evaluation import evaluate, fit_control
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.models.roles import ModelArguments
from notewriter.retrieval.encoders import similarities
from notewriter.rollouts.identity import contents
from notewriter.rollouts.regression import (
    FEATURES,
    FITTED,
    SIMILARITY,
    features,
    fitted,
    with_margin,
)
from notewriter.rollouts.resources import settings_of

QUESTION = Question("q", "Who directed Low Tide?", ("Ana Kesk",))
PASSAGES = [
    Passage("1", "Low Tide (film)", "Low Tide is a film. It was directed by Ana Kesk in 1990."),
    Passage("2", "Ana Kesk", "Ana Kesk was born in Brel."),
]


def test_a_sentence_is_seen_by_its_place_its_words_and_the_titles_in_it():
    sentences, table = features(QUESTION, PASSAGES)
    assert sentences == ["Low Tide is a film.", "It was directed by Ana Kesk in 1990.", "Ana Kesk was born in Brel."]
    film, director, birth = (dict(zip(FEATURES, row, strict=True)) for row in table)
    assert [each["first passage"] for each in (film, director, birth)] == [1, 1, 0]
    assert [each["place in the passage"] for each in (film, director, birth)] == [1, 0.5, 1]
    # Of the question's words `low`, `tide` and `directed` are each in one sentence, and `who` in none.
    assert film["overlap with the question"] == pytest.approx(2 * director["overlap with the question"])
    assert birth["overlap with the question"] == 0
    assert [each["title in the sentence"] for each in (film, director, birth)] == [1, 0, 1]
    assert [each["another title in the sentence"] for each in (film, director, birth)] == [0, 1, 0]
    assert [each["this title in another passage"] for each in (film, director, birth)] == [0, 0, 1]
    assert [each["numbers"] for each in (film, director, birth)] == [0, 1, 0]


def questions_whose_evidence_is_last(number):
    """Each with three sentences that differ in nothing but their place and words."""
    for place in range(number):
        text = f"Osk{place} is old. Tam{place} is low. Brel{place} is far."
        question = Question(f"q{place}", "Where?", ("Brel",), supporting_facts=(f"Brel{place} is far.",))
        yield question, [Passage("1", "Hill", text)]


def test_it_learns_where_the_evidence_stands_and_writes_that_first():
    regression = fitted(questions_whose_evidence_is_last(20))
    question = Question("new", "Where?", ("Brel",))
    passages = [Passage("9", "Hill", "One is here. Two is here. Three is there.")]
    assert regression.write(question, passages, None).startswith("Three is there.")
    assert regression.write(question, passages, 2) == "Three is"
    assert regression.write(question, [], 9) == ""


def test_it_abstains_from_a_third_sentence_as_far_below_the_best_as_pays_on_other_questions():
    regression = fitted(questions_whose_evidence_is_last(20))
    others = [(replace(each, id=f"other {each.id}"), found) for each, found in questions_whose_evidence_is_last(5)]
    chosen = with_margin(regression, others)
    passages = [Passage("9", "Hill", "One is here. Two is here. Three is there.")]
    _, scores = chosen.ranked(QUESTION, passages)
    # One sentence of three is evidence, so that the third costs precision.
    assert chosen.margin is not None and 0 <= chosen.margin < scores[0] - scores[2]
    assert chosen.write(QUESTION, passages, None) == "Three is there. Two is here."
    # A sentence is written whole or not at all, but for the first one.
    assert chosen.write(QUESTION, passages, 5) == "Three is there."
    assert chosen.write(QUESTION, passages, 2) == "Three is"
    assert chosen.write(QUESTION, [], 9) == ""
    # With evidence in all of them, all are written.
    facts = ("Osk0 is old.", "Tam0 is low.", "Brel0 is far.")
    all_needed = with_margin(regression, [(replace(QUESTION, supporting_facts=facts), others[0][1])])
    assert all_needed.write(QUESTION, passages, None).count(".") == 3


def test_a_margin_is_chosen_on_questions_that_it_was_not_fitted_on():
    read = [*questions_whose_evidence_is_last(3)]
    with pytest.raises(UserError, match="fitted on question 'q0'; give runs over other questions"):
        with_margin(fitted(read), read)
    with pytest.raises(UserError, match="no question has evidence among its passages"):
        with_margin(fitted(read), [(QUESTION, PASSAGES)])


def test_with_a_sentence_encoder_it_learns_what_no_count_tells(tmp_path):
    encoder, draw = str(save_encoder(tmp_path / "encoder")), random.Random(0)

    def question_whose_evidence_is_nearest(number):
        asked, *words = ("".join(draw.choices("abcdefghij", k=6)) for _ in range(4))
        sentences = [f"The {word} is old." for word in words]
        near = similarities(f"Which {asked}?", [f"Hill: {sentence}" for sentence in sentences], encoder)
        question = Question(f"q{number}", f"Which {asked}?", (), supporting_facts=(sentences[near.index(max(near))],))
        return question, [Passage("1", "Hill", " ".join(sentences))]

    read = [question_whose_evidence_is_nearest(number) for number in range(60)]
    FITTED.write(tmp_path / "weights.json", fitted(read[:40], encoder))
    regression = FITTED.read(tmp_path / "weights.json")
    assert set(regression.weights) == {*FEATURES, SIMILARITY}

    def share_found(control):
        return sum(control.write(*each, 4) == each[0].supporting_facts[0] for each in read[40:]) / 20

    assert share_found(regression) > 0.9
    assert share_found(fitted(read[:40])) < 0.7


def test_it_writes_no_note_for_a_question_that_it_was_fitted_on(tmp_path):
    FITTED.write(tmp_path / "weights.json", fitted(questions_whose_evidence_is_last(3)))
    regression = FITTED.read(tmp_path / "weights.json")
    with pytest.raises(UserError, match="was fitted on question 'q1'; evaluate it on other questions"):
        regression.write(replace(QUESTION, id="q1"), PASSAGES, 9)
    assert regression.write(QUESTION, PASSAGES, 9)


def test_questions_without_evidence_teach_nothing():
    with pytest.raises(UserError, match="no question has evidence among its passages"):
        fitted([(QUESTION, PASSAGES)])


def test_it_is_fitted_on_a_run_and_plays_the_notes_of_other_questions(tmp_path):
    world, silent = tiny_world(tmp_path / "world", 8), {"policy": {"control": "empty"}}

    def noted(name, control, first, skip):
        lines = Path(world["path"]).read_text().splitlines(keepends=True)[skip : skip + first]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
        options = {"output_dir": str(tmp_path / name), "cache": str(tmp_path / "cache"), "method": "deepnote"}
        options |= {"method_options": {"adaptive_retrieval": False}, "models": {"notes": control, **silent}}
        evaluate.main(write_config(tmp_path / f"{name}.yaml", world | options | {"path": f"{tmp_path}/{name}.jsonl"}))
        return read_predictions(tmp_path / name / "predictions.jsonl")

    noted("lead", {"control": "lead", "words": 20}, 5, 0)
    fit_control.main(["--runs", str(tmp_path / "lead"), "--output", str(tmp_path / "weights.json")])
    control = {"control": "regression", "words": 20, "weights": str(tmp_path / "weights.json")}
    assert {each.scores["note_words"] for each in noted("others", control, 3, 5).values()} == {20.0}
    with pytest.raises(UserError, match="regression: was fitted on question"):
        noted("again", control, 4, 4)


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ({"control": "regression", "words": 9}, "models: notes: weights: the control regression needs a file"),
        ({"control": "regression", "weights": "none/weights.json"}, "none: no such folder"),
        ({"control": "lead", "weights": "weights.json"}, "weights: only the control regression has them"),
    ],
)
def test_weights_that_are_missing_or_of_no_use_are_refused(control, message):
    with pytest.raises(UserError, match=message):
        settings_of(ModelArguments(base_url="http://localhost:1/v1", model="m", models={"notes": control}))


def test_its_weights_are_part_of_what_makes_a_run_the_same(tmp_path):
    FITTED.write(tmp_path / "weights.json", fitted(questions_whose_evidence_is_last(3)))
    models = {"models": {"notes": {"control": "regression", "weights": str(tmp_path / "weights.json")}}}
    before = contents(models)
    FITTED.write(tmp_path / "weights.json", fitted(questions_whose_evidence_is_last(4)))
    assert list(before) == [f"weights: {tmp_path}/weights.json"] and contents(models) != before
