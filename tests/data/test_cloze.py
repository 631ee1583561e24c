"""Questions made of a corpus's words: what they ask, what their evidence is, and that they can be made again."""

import random

import pytest

from notewriter.data import cloze
from notewriter.datasets import load_questions
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage

FILM = Passage("1", "Low Tide (film)", "Low Tide is a silent drama film. It was directed by Ana Kesk in winter.")
WOMAN = Passage("2", "Ana Kesk", "Ana Kesk is a painter from Brel. She later married a sailor.")
OTHERS = [
    Passage(f"{number}", f"Hill {number}", f"The hill {number} has a tower of stone.") for number in range(3, 100)
]


def corpus(*passages):
    return cloze.Sentences(iter([*passages, *OTHERS]))


def questions(make, *passages):
    rng, sentences = random.Random(1), corpus(*passages)
    return [made for _ in range(3000) if (made := make(sentences, rng, "q"))]


def test_a_linked_question_asks_what_a_passage_says_of_the_one_that_it_names():
    made = questions(cloze.linked, FILM, WOMAN)
    assert made
    for question in made:
        first, second = question.supporting_facts
        assert first == "It was directed by Ana Kesk in winter." and second in WOMAN.text
        assert question.answers == ("Ana Kesk",) and question.supporting_ids == ("1", "2")
        # It names the first passage, and the second by none of its name's words.
        assert question.question.endswith(" of Low Tide?") and "Kesk" not in question.question
        asked, through = question.question.removesuffix(" of Low Tide?").split(" of the ")
        assert set(through.split()) <= {"directed", "was", "It", "by", "in", "winter"}
        assert any(word in second for word in asked.split())


def test_both_sentences_of_passages_that_are_alike_have_the_words_that_compare_them():
    other = Passage("0", "High Tide", "High Tide is a silent drama of 1921.")
    made = questions(cloze.alike, FILM, other)
    pairs = {question.supporting_facts for question in made}
    assert pairs == {
        ("Low Tide is a silent drama film.", "High Tide is a silent drama of 1921."),
        ("High Tide is a silent drama of 1921.", "Low Tide is a silent drama film."),
    }
    assert all("Low Tide" in question.question and "High Tide" in question.question for question in made)
    assert any("silent" in question.question and "drama" in question.question for question in made)


def test_a_word_that_stands_twice_in_a_sentence_is_no_second_word():
    made = questions(
        cloze.alike,
        Passage("1", "Ebb", "Silent tides and tides again."),
        Passage("0", "Flood", "Silent tides again in spring."),
    )
    assert made
    assert all(each.question.count("tides") < 2 for each in made)


def test_what_both_passages_have_is_a_yes_and_which_of_them_a_name_of_theirs():
    made = questions(cloze.alike, FILM, Passage("0", "High Tide", "High Tide is a silent drama of 1921."))
    answers = {(question.question.split()[0], question.answers) for question in made}
    assert ("Are", ("yes",)) in answers
    assert {answer for first, (answer,) in answers if first == "Which"} <= {"Low Tide", "High Tide"}


def test_words_of_every_passage_tell_nothing():
    hill = corpus(FILM).by_passage[-1][0]
    assert corpus(FILM).telling(hill) == ["99"]


def test_the_same_seed_makes_the_same_questions_which_are_read_as_a_benchmark(tmp_path):
    names = [f"{colour} {thing}" for colour in ("Red", "Green", "Grey") for thing in ("Mill", "Ford", "Gate", "Pier")]
    passages = [
        {
            "id": name,
            "title": name,
            "text": f"{name} is number {place} of a river. Beside {name} stands inn{place} by {names[place - 1]} now.",
        }
        for place, name in enumerate(names)
    ]
    jsonl.write(tmp_path / "corpus.jsonl", passages)

    def made(name, seed):
        output = tmp_path / name
        options = ["--questions", "15", "--linked", "1", "--seed", str(seed)]
        cloze.main(["--path", str(tmp_path / "corpus.jsonl"), "--output", str(output), *options])
        return load_questions("jsonl", str(output))

    first = made("1.jsonl", 1)
    assert len({question.question for question in first}) == 15 and len({question.id for question in first}) == 15
    texts = {passage["id"]: passage["text"] for passage in passages}
    for question in first:
        pairs = zip(question.supporting_ids, question.supporting_facts, strict=True)
        assert all(fact in texts[name] for name, fact in pairs)
    assert made("2.jsonl", 1) == first != made("3.jsonl", 2)


@pytest.mark.parametrize("text", ["Osk is a town on a river.", "Osk."])
def test_a_corpus_that_is_too_small_says_how_many_questions_it_gives(tmp_path, text):
    path = tmp_path / "corpus.jsonl"
    jsonl.write(path, [{"id": "1", "title": "Osk", "text": text}])
    with pytest.raises(UserError, match="yields only 0 questions; lower --questions"):
        cloze.main(["--path", str(path), "--output", str(tmp_path / "questions.jsonl"), "--questions", "2"])
    with pytest.raises(UserError, match="would replace the corpus"):
        cloze.main(["--path", str(path), "--output", str(path)])


MANUAL = [
    Passage(
        f"care.html#{part}",
        f"pump-care(1) Manual > {part.upper()}",
        f"## {part.upper()}\n\nThe {part} valve{number} opens at pressure{number} of {number}5 bar. See above.",
    )
    for number, part in enumerate(("inlet", "outlet", "drain", "relief", "spare"), start=1)
]


def test_a_question_on_a_manual_names_the_document_and_has_words_of_one_sentence_but_the_answer():
    sentences = cloze.Sentences(iter(MANUAL))
    assert sentences.of_sections and not corpus(FILM, WOMAN).of_sections
    rng = random.Random(1)
    made = [question for _ in range(100) if (question := cloze.told(sentences, rng, "q"))]
    assert made
    for question in made:
        (fact,), (answer,) = question.supporting_facts, question.answers
        assert "pump-care Manual" in question.question and ">" not in question.question
        # Neither a heading nor what every section says, and a name or number is asked for.
        assert fact.startswith("The ") and answer in fact and any(letter.isdigit() for letter in answer)
        asked = {word.strip("?") for word in question.question.split()}
        assert answer not in asked and len(asked & set(fact.split())) >= 2


def test_made_questions_come_with_a_warning(tmp_path, capsys):
    jsonl.write(tmp_path / "corpus.jsonl", [{"id": each.id, "title": each.title, "text": each.text} for each in MANUAL])
    output = str(tmp_path / "questions.jsonl")
    cloze.main(["--path", str(tmp_path / "corpus.jsonl"), "--output", output, "--questions", "5"])
    assert (
        "5 questions; they share words with their evidence, so that scores on them are too high"
        in capsys.readouterr().out
    )


def test_no_questions_are_an_empty_file_without_a_warning(tmp_path, capsys):
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "title": "Fulda", "text": "A river."}\n')
    cloze.main(["--path", f"{tmp_path}/corpus.jsonl", "--questions", "0", "--output", f"{tmp_path}/made.jsonl"])
    assert capsys.readouterr().out == f"{tmp_path}/made.jsonl: 0 questions\n"
    assert not (tmp_path / "made.jsonl").read_text()


def test_words_of_scripts_without_spaces_make_questions_too():
    mill = Passage("1", "石桥手册 > 水车", "塞恩水车由米拉在阿维尔河边建造。它在春天磨麦子和黑米。")
    press = Passage("2", "石桥手册 > 油坊", "油坊的横梁来自海边的老船。工人每年冬天更换绳索。")
    made = [
        question
        for seed in range(200)
        if (question := cloze.told(cloze.Sentences(iter([mill, press])), random.Random(seed), "q"))
    ]
    assert made
    for question in made:
        (answer,), (fact,) = question.answers, question.supporting_facts
        assert fact in mill.text + press.text and answer in fact and "石桥手册" in question.question
    # Characters that follow each other stay a word, which a search can find.
    assert any("水车" in question.question or "横梁" in question.question for question in made)


def test_a_name_in_a_script_without_spaces_links_two_passages():
    mill = Passage("1", "水车", "这座水车由米拉女士在阿维尔河边建造。")
    mira = Passage("2", "米拉女士", "她是布雷尔城的一位画家。")
    made = questions(cloze.linked, mill, mira)
    assert made and all(question.answers == ("米拉女士",) for question in made)
