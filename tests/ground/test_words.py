"""Words in scripts with and without spaces between them."""

import pytest

from notewriter.evaluation.notes import note_quality
from notewriter.ground.records import Question
from notewriter.ground.text import bare_words, first_words, holds, normalise, sentences_in, tokens, word_spans, words_in

TEXTS = [
    "The Senn “mill” – stands, 1939–1945",
    "森河磨坊由林达于1702年建造，在1931年关闭。",
    "セン水車は「アルベル」の川にあり、オダ・リンドが建てた。",
    "โรงสีสร้างโดยโอดา",
    "ໂຮງສີສ້າງໂດຍໂອດາ",
    "រោងម៉ាស៊ីនសង់ដោយអូដា។",
    "စက်ရုံကိုအိုဒါဆောက်ခဲ့သည်။",
    "물레방아는 1702년에 지었다.",
    "यह विद्यालय है।",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_words_of_a_text_are_all_of_it(text):
    assert "".join(words_in(text)) == "".join(text.split())
    assert [text[start:end] for start, end in word_spans(text)] == words_in(text)
    assert first_words(text, None) == first_words(text, 1000) == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "count"), list(zip(TEXTS, (6, 17, 23, 15, 14, 11, 11, 3, 3), strict=True)), ids=range(len(TEXTS))
)
def test_a_character_of_a_script_without_spaces_is_a_word_with_its_marks_and_punctuation(text, count):
    assert len(words_in(text)) == count
    assert words_in("河边，由 (林)") == ["河", "边，", "由", "(林)"]


def test_text_with_spaces_has_the_words_between_them():
    text = "A  “quoted” naïve\u00a0word – and 1939–1945"
    assert words_in(text) == text.split()
    assert first_words(text, 3) == "A “quoted” naïve"


def test_the_first_words_of_a_text_without_spaces_get_none():
    assert first_words("森河磨坊，由林达 建造", 5) == "森河磨坊，由"


def test_tokens_are_squads_but_for_punctuation_beyond_ascii():
    text = "The U.S. – Betty-Cohen's café, 1939–1945"
    assert tokens(text) == normalise(text).split()
    assert tokens("“Oda Lind” «Мир», ¿Quién? １７０２年 ﬁrst") == ["oda", "lind", "мир", "quién", "1702", "年", "first"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("磨坊由工匠林达建造。", "林达"),
        ("オダ・リンドが建てた", "オダ・リンド"),
        ("สร้างโดยโอดาในปี", "โอดา"),
        ("Built by “Oda Lind”.", "Oda Lind"),
        ("इसे ओडा लिंड ने बनाया।", "ओडा लिंड"),
        ("بناها أودا ليند؟", "أودا ليند"),
    ],
)
def test_a_note_with_the_answer_has_it(text, answer):
    assert holds(text, answer)
    scores = note_quality(text, Question("q", "?", (answer,), supporting_facts=(text,)))
    assert (scores["note_has_answer"], scores["note_fact_recall"]) == (1.0, 1.0)


def test_an_answer_without_a_word_is_held_by_no_text():
    assert not any(holds("$ a the .", answer) for answer in ("$", "a", "。", ""))


def test_sentences_end_at_the_full_stops_of_other_scripts():
    assert sentences_in("磨坊在河边。它由林达建造！真的？") == ["磨坊在河边。", "它由林达建造！", "真的？"]
    assert sentences_in("यह पुल है। वह नदी है।") == ["यह पुल है।", "वह नदी है।"]


def test_the_words_of_questions_are_compared_without_spaces_too():
    assert bare_words("森河，在?") == ("森", "河", "在")
    assert bare_words("Who built Betty-Cohen's mill?") == ("who", "built", "betty", "cohen", "s", "mill")
