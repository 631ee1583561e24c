"""Notes without a model, on passages of Wikipedia."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from notewriter.ground.records import Passage, Question
from notewriter.retrieval import encoders
from notewriter.rollouts.controls import CONTROLS, drawn, first, gold, hard_negative, in_order, lead, overlap, similar

WAR = Passage(
    "1",
    "Polish-Russian War (film)",
    "Polish-Russian War (Wojna polsko-ruska) is a 2009 Polish film directed by Xawery Żuławski. "
    "It is based on the novel by D. Masłowska.",
)
DIRECTOR = Passage(
    "2", "Xawery Żuławski", "Xawery Żuławski is a Polish film director. In 1995 he graduated in Łódź. He has a son."
)
PASSAGES = [DIRECTOR, WAR]
WORDS_THERE = sum(len(passage.text.split()) for passage in PASSAGES)
QUESTION = Question(
    "q1",
    "Who directed the film Polish-Russian War?",
    ("Xawery Żuławski",),
    supporting_facts=("In 1995 he graduated in Łódź.", "It is based on the novel by D.  Masłowska.", "He was born."),
)


def test_lead_takes_the_first_sentence_of_each_passage_and_then_the_second_of_each():
    assert lead(QUESTION, PASSAGES, 100) == (
        "Xawery Żuławski is a Polish film director. "
        "Polish-Russian War (Wojna polsko-ruska) is a 2009 Polish film directed by Xawery Żuławski. "
        "In 1995 he graduated in Łódź. It is based on the novel by D. Masłowska. He has a son."
    )


def test_first_takes_the_first_passage_alone_and_passages_all_of_them():
    assert first(QUESTION, PASSAGES, None) == DIRECTOR.text
    assert in_order(QUESTION, PASSAGES, None) == f"{DIRECTOR.text} {WAR.text}"


def test_overlap_takes_the_sentences_that_share_most_words_with_the_question_first():
    note = overlap(QUESTION, PASSAGES, 100)
    assert note.startswith("Polish-Russian War (Wojna polsko-ruska) is a 2009 Polish film directed")
    # "film" is in both first sentences, the other sentences share no word and stay in the order of the passages.
    assert note.endswith(
        "Xawery Żuławski is a Polish film director. In 1995 he graduated in Łódź. He has a son. "
        "It is based on the novel by D. Masłowska."
    )


def test_a_shared_word_counts_by_its_rarity():
    rare = Passage("1", "", "The river is long. The river is wide. The bridge is old.")
    assert overlap(replace(QUESTION, question="river bridge"), [rare], 4) == "The bridge is old."


def test_a_hard_negative_has_as_many_sentences_as_facts_are_at_hand_and_none_of_these():
    # A line for each passage, as in the gold evidence's note.
    lines = [
        "Xawery Żuławski is a Polish film director.",
        "Polish-Russian War (Wojna polsko-ruska) is a 2009 Polish film directed by Xawery Żuławski.",
    ]
    assert hard_negative(QUESTION, PASSAGES, None) == "\n".join(lines)
    assert hard_negative(QUESTION, PASSAGES, 8) == f"{lines[0]}\nPolish-Russian"
    # A fact is one whatever its white space.
    assert hard_negative(QUESTION, PASSAGES, None, number=1) == "He has a son."
    # Up to its words it goes on with first sentences that hold no fact.
    one = replace(QUESTION, supporting_facts=("In 1995 he graduated in Łódź.",))
    assert hard_negative(one, PASSAGES, None) == lines[1]
    assert hard_negative(one, PASSAGES, 25) == f"{lines[1]}\n{lines[0]}\nHe has a son."
    asked = replace(
        QUESTION, question="Who directed a film in 1995?", supporting_facts=("In 1995 he graduated in Łódź.",)
    )
    assert overlap(asked, PASSAGES, None).startswith("In 1995 he graduated")
    assert hard_negative(asked, [DIRECTOR], None) == "Xawery Żuławski is a Polish film director."
    assert hard_negative(asked, [DIRECTOR], None, number=1) == "He has a son."
    assert hard_negative(asked, [DIRECTOR], None, number=2) == ""
    novel = Passage("3", "War", "It is based on the novel by D. Masłowska.")
    twice = replace(asked, supporting_facts=(*asked.supporting_facts, novel.text))
    assert hard_negative(twice, [DIRECTOR, novel], None) == "Xawery Żuławski is a Polish film director. He has a son."
    assert hard_negative(replace(asked, supporting_facts=()), [DIRECTOR], None) == ""


def test_similar_takes_the_sentences_nearest_to_the_question_first(monkeypatch):
    monkeypatch.setattr(encoders, "load", lambda *named: {("words", "cpu"): WordEncoder()}[named])
    asked = replace(QUESTION, question="novel? graduated, Łódź!")
    note = similar(asked, PASSAGES, 100, encoder="words")
    # The other sentences have none of the encoder's words and stay in the order of the passages.
    assert note.startswith("In 1995 he graduated in Łódź. It is based on the novel by D. Masłowska. Xawery")


def test_random_takes_the_sentences_in_an_order_of_the_question(monkeypatch):
    assert drawn(QUESTION, PASSAGES, None) == drawn(QUESTION, PASSAGES, None)
    orders = {drawn(replace(QUESTION, id=f"q{number}"), PASSAGES, None) for number in range(20)}
    assert len(orders) > 10
    assert {tuple(sorted(order.split())) for order in orders} == {tuple(sorted(lead(QUESTION, PASSAGES, None).split()))}


def test_gold_takes_the_facts_that_lie_among_the_passages_whatever_their_white_space():
    assert gold(QUESTION, PASSAGES, None) == "In 1995 he graduated in Łódź. It is based on the novel by D. Masłowska."
    assert gold(QUESTION, [WAR], None) == "It is based on the novel by D. Masłowska."
    assert gold(replace(QUESTION, supporting_facts=()), PASSAGES, None) == ""


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_has_as_many_words_as_are_asked_for_and_as_it_finds(name, monkeypatch):
    monkeypatch.setattr(encoders, "load", lambda encoder, device: WordEncoder())
    found = {"first": len(DIRECTOR.text.split()), "gold": 15, "hard_negative": 24, "empty": 0}.get(name, WORDS_THERE)
    # Without a budget it does not go on with first sentences.
    alone = 20 if name == "hard_negative" else found
    write = CONTROLS[name].write
    lengths = [len(write(QUESTION, PASSAGES, words).split()) for words in (0, 1, 9, 100, None)]
    assert lengths == [*(min(words, found) for words in (0, 1, 9, 100)), alone]
    assert write(QUESTION, [], 10) == ""


class WordEncoder:
    """An encoder whose dimensions are words."""

    prompts: ClassVar[dict[str, str]] = {}
    WORDS = ("graduated", "łódź", "novel", "director")

    def encode_query(self, sentences, **options):
        assert options["normalize_embeddings"]
        rows = [[float(word in text.lower()) for word in self.WORDS] for text in sentences]
        vectors = np.array(rows, dtype=np.float32)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    encode_document = encode_query
