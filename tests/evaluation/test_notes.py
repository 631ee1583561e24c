from pathlib import Path

import pytest

from notewriter.evaluation.notes import names_subjects, note_quality, note_scores, note_worth, whole_facts
from notewriter.ground.records import Passage, Question


def ask(*facts: str, answers: tuple[str, ...] = ("Betty Cohen",)) -> Question:
    return Question(id="q", question="Who won the prize?", answers=answers, supporting_facts=facts)


def test_fact_recall_is_the_mean_share_of_each_facts_tokens():
    quality = note_quality(
        "Betty Cohen founded the channel.", ask("Betty Cohen founded Cartoon Network", "It won a prize")
    )
    assert quality["note_fact_recall"] == pytest.approx((3 / 5 + 0 / 3) / 2)


def test_a_token_counts_as_often_as_the_note_has_it():
    assert note_quality("new", ask("new new"))["note_fact_recall"] == 0.5
    assert note_quality("new new new", ask("new new"))["note_fact_recall"] == 1.0


def test_case_punctuation_and_articles_do_not_matter():
    assert note_quality("PRIZE, won!", ask("The prize won."))["note_fact_recall"] == 1.0


def test_the_answer_counts_as_whole_words_only():
    assert note_quality("It was Betty Cohen.", ask())["note_has_answer"] == 1.0
    assert note_quality("It was Betty Cohenson.", ask())["note_has_answer"] == 0.0
    assert note_quality("In 19951 it was", ask(answers=("1995",)))["note_has_answer"] == 0.0


def test_any_alias_will_do():
    assert note_quality("the Dodgers", ask(answers=("Los Angeles Dodgers", "Dodgers")))["note_has_answer"] == 1.0


def test_words_are_counted_as_written():
    assert note_quality("The well-known  prize\nof Fulda", ask())["note_words"] == 5.0
    assert note_quality("", ask("a fact")) == {"note_fact_recall": 0.0, "note_has_answer": 0.0, "note_words": 0.0}


def test_what_a_question_does_not_tell_is_left_out():
    assert "note_fact_recall" not in note_quality("a note", ask())
    assert set(note_quality("a note", ask(answers=()))) == {"note_words"}
    # "The" is all article: it has no token that a note could hold.
    assert set(note_quality("a note", ask("The", answers=("The",)))) == {"note_words"}


def test_notes_are_compared_within_the_same_number_of_words():
    question = ask("one two", "nine", answers=("nine",))
    note = " ".join(["one", *["x"] * 24, "two", *["x"] * 20, "nine"])
    worth = note_worth(note, question)
    assert [worth[f"note_fact_recall_{words}"] for words in (20, 40, 80)] == [0.25, 0.5, 1.0]
    assert [worth[f"note_has_answer_{words}"] for words in (20, 40, 80)] == [0.0, 0.0, 1.0]
    within = {"note_fact_recall_40": 0.5, "note_has_answer_40": 0.0}
    assert note_scores(note, question) == note_quality(note, question) | within


def test_density_is_the_share_of_the_notes_words_that_facts_have():
    question = ask("one two", "two three")
    assert note_worth("two two two three", question)["note_density"] == 3 / 4
    assert note_worth("", question)["note_density"] == 0.0
    assert "note_density" not in note_worth("a note", ask())


def test_the_lines_of_a_table_are_no_words():
    note = "| Population | 12,345 |\n|---|---:|\n| Area | 3 km² |"
    question = Question("1", "?", ("12,345",), supporting_facts=("Area 3 km²",))
    scores = note_scores(note, question)
    assert scores["note_words"] == 5 and scores["note_fact_recall_40"] == 1
    assert note_scores("a|b and | c", question)["note_words"] == 3


def test_a_whole_fact_stands_word_for_word_in_the_first_40_words():
    fact = "The film was made in Oslo."
    question = ask(fact, "Oslo is a city.")
    # Half of its words are no half of a fact; case, punctuation, articles and line breaks do not count.
    assert whole_facts("The film was made", [fact]) == 0
    assert whole_facts("Film WAS made\nin Oslo", [fact, "Oslo is a city."]) == 1 / 2
    cut = " ".join([*["word"] * 36, fact])
    assert note_scores(cut, question, [fact])["note_whole_facts_40"] == 0
    assert note_scores(" ".join([*["word"] * 34, fact]), question, [fact])["note_whole_facts_40"] == 1
    # A note cannot be asked for facts that were not found.
    assert "note_whole_facts_40" not in note_scores(fact, question, [])
    assert "note_whole_facts_40" not in note_scores(fact, question, ["The"])


FILM, ACTOR = (
    Passage("f", "It Rains (film)", "It Rains is a film. It was made in 1950. The rain is real. It won a prize."),
    Passage("a", "Ann Lee", "Ann Lee was born in Oslo. She acted in It Rains."),
)


@pytest.mark.parametrize(
    ("note", "first", "share"),
    [
        ("Ann Lee was born in Oslo. She acted in It Rains.", 1, 1),
        # Whose? The passage that it was copied from says it, the note does not.
        ("She acted in It Rains. Ann Lee was born in Oslo.", 0, 1 / 2),
        # The sentence before it is about something else.
        ("Ann Lee was born in Oslo. It was made in 1950.", 1, 1 / 2),
        # A title may be a pronoun.
        ("It Rains is a film. It was made in 1950.", 1, 1),
        ("It was made in 1950.", 0, 0),
        # In words of one's own, a pronoun refers to what was said before.
        ("Lee comes from Norway. She acts.", 1, 1),
        ("She comes from Norway. Lee acts.", 0, 1 / 2),
        ("This film won.", 0, 0),
    ],
)
def test_a_note_stands_alone_if_it_names_what_it_is_about(note: str, first: float, share: float):
    found = names_subjects(note, [FILM, ACTOR])
    assert found == {"note_stands_alone": first, "note_named_sentences": share}


def test_a_note_without_words_has_no_subject_to_name():
    assert names_subjects("", [FILM]) == {} == names_subjects("...", [FILM])


def test_the_page_of_the_evaluation_tells_the_meaning_of_each_score():
    page = (Path(__file__).parents[2] / "docs/evaluation.md").read_text()
    scores = note_scores("Oslo", ask("Oslo is a city."), ["Oslo is a city."])
    assert [name for name in scores if f"`{name}`" not in page] == []
