"""Questions against the corpus that is to answer them: what is missing, on which lines, and who shares a document."""

import json

import pytest
from benchmark_files import write_list

from notewriter.datasets import load_questions
from notewriter.datasets.split import main
from notewriter.ground.errors import UserError

PAGES = {
    "pump.md": "The pump holds 12 litres. Clean its “coarse” filter monthly.",
    "valve.md": "The valve opens at 3 bar. It is made of brass.",
    "hose.md": "The hose is 4 metres long. It is red.",
    "tank.md": "The tank is of steel. It weighs 40 kilograms.",
}


@pytest.fixture
def corpus(tmp_path):
    """Two passages of each document."""
    lines = [
        {"id": f"{file}#{number}", "title": file, "text": text, "origin": {"file": file}}
        for file, page in PAGES.items()
        for number, text in enumerate(page.split(". "))
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "corpus.jsonl"


def question(id, fact, answer="red", **others):
    return {"id": id, "question": f"What of {id}?", "answers": [answer], "supporting_facts": [fact]} | others


def split(corpus, capsys, lines, *options):
    path = corpus.parent / "questions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = options or ("--dev_share", "0.4")
    folder = corpus.parent / "parts"
    main(["--dataset", "jsonl", "--path", str(path), "--corpus", str(corpus), "--output_dir", str(folder), *options])
    parts = [
        load_questions("jsonl", folder / f"{name}.jsonl") if (folder / f"{name}.jsonl").exists() else []
        for name in ("train", "dev")
    ]
    return capsys.readouterr().out.replace(str(corpus.parent), ""), *parts


def test_each_line_of_the_check_counts_what_is_right_and_numbers_what_is_not(corpus, capsys):
    printed, *_ = split(
        corpus,
        capsys,
        [
            question("q1", "The valve opens at 3 bar", "3 bar"),
            {"id": "q2", "question": "Who?", "answers": ["brass"]},
            question("q3", "A hose of 4 metres long.", "4 metres"),
            question("q4", "It is red.", "violet"),
            question("q5", "It weighs 40 kilograms.", "yes", question="What of q1?"),
        ],
    )
    assert printed.splitlines()[:-1] == [
        "/questions.jsonl: 5 questions over 8 passages; look at lines 2, 3, 4, 5",
        "     4 of 5 have evidence; `supporting_facts` is missing on line 2",
        "     3 of 4 evidence sentences are in the corpus; not those on line 3",
        "       line 3: 'A hose of 4 metres long.' is nearest to hose.md#0: 'The hose is 4 metres long'",
        "     4 of 5 have an answer that the corpus holds; not those on line 4",
        "     4 of 5 are asked once; asked before are those on line 5",
    ]


def test_a_question_without_a_line_of_its_own_is_named_by_its_id(corpus, capsys):
    """IIRC's records are articles."""
    questions = [
        {
            "qid": id,
            "question": f"Is it {id}?",
            "answer": {"type": "binary", "answer_value": "yes"},
            "context": [{"text": fact, "passage": "hose"}],
        }
        for id, fact in (("i1", "It is red."), ("i2", "Nobody wrote this."))
    ]
    path = write_list(corpus.parent / "dev.json", {"title": "Hose", "questions": questions})
    folder = corpus.parent / "parts"
    options = ("--path", str(path), "--corpus", str(corpus), "--output_dir", str(folder), "--dev", "1")
    main(["--dataset", "iirc", *options])
    assert "1 of 2 evidence sentences are in the corpus; not those on question i2\n" in capsys.readouterr().out
    assert len(load_questions("jsonl", folder / "dev.jsonl")) == 1


def test_evidence_with_other_spaces_and_marks_is_taken_as_the_corpus_has_it(corpus, capsys):
    """Notes of gold evidence are looked for in passages character by character."""
    printed, train, dev = split(
        corpus,
        capsys,
        [question("q1", 'Clean  its "coarse"\nfilter monthly.'), question("q2", "It is red.")],
        *("--dev", "1"),
    )
    assert "1 of 2 have evidence with other spaces or marks, which is taken as the corpus has it; on line 1" in printed
    facts = {each.id: each.supporting_facts for each in train + dev}
    assert facts == {"q1": ("Clean its “coarse” filter monthly.",), "q2": ("It is red.",)}


@pytest.mark.parametrize("seed", range(5))
def test_no_document_holds_evidence_of_both_parts(corpus, capsys, seed):
    facts = [sentence for page in PAGES.values() for sentence in page.split(". ")]
    lines = [question(f"q{number}", fact) for number, fact in enumerate(facts)]
    printed, train, dev = split(corpus, capsys, lines, "--dev", "4", "--seed", str(seed))
    assert printed.endswith("no document holds evidence of both\n")
    assert (len(train), len(dev)) == (4, 4)
    documents = {fact: file for file, page in PAGES.items() for fact in page.split(". ")}
    of_train, of_dev = ({documents[fact] for each in part for fact in each.supporting_facts} for part in (train, dev))
    assert len(of_train) == len(of_dev) == 2 and not of_train & of_dev


def test_supporting_ids_are_evidence_too(corpus, capsys):
    lines = [
        {"id": f"q{number}", "question": f"{number}?", "answers": ["a"], "supporting_ids": [f"{file}#0", f"{file}#1"]}
        for number, file in enumerate(PAGES)
    ]
    printed, _, dev = split(corpus, capsys, [*lines, lines[0] | {"id": "q9", "question": "9?"}], "--dev", "1")
    assert (
        "5 of 5 have evidence\n    10 of 10 supporting passages are in the corpus\n     0 of 5 have an answer"
        in printed
    )
    assert len(dev) == 1 and {each.id for each in dev}.isdisjoint({"q0", "q9"})


def test_questions_on_one_document_are_drawn_one_by_one_and_the_last_line_says_so(corpus, capsys):
    lines = [question(f"q{number}", "It is red.") for number in range(10)]
    printed, train, dev = split(corpus, capsys, lines, "--dev", "4")
    assert printed.endswith("by question: one document holds evidence of nearly all\n")
    assert (len(train), len(dev)) == (6, 4)


def test_a_question_that_is_asked_twice_is_in_one_part(corpus, capsys):
    lines = [question(f"q{number}", "It is red.", question=f"{number // 2}?") for number in range(10)]
    _, train, dev = split(corpus, capsys, lines, "--dev", "4")
    assert len(dev) == 4 and not {each.question for each in train} & {each.question for each in dev}


def test_questions_without_evidence_are_refused_before_anything_is_written(corpus, capsys):
    with pytest.raises(UserError, match=r"no question has evidence that .* holds; copy sentences of it into"):
        split(corpus, capsys, [question("q1", "Nobody wrote this."), question("q2", "Nor this.")])
    assert "0 of 2 evidence sentences" in capsys.readouterr().out and not (corpus.parent / "parts").exists()


def test_a_character_of_chinese_is_a_word(tmp_path, capsys):
    path = tmp_path / "corpus.jsonl"
    passages = [{"id": str(n), "title": "t", "text": text} for n, text in enumerate(("水泵容量为12升。", "阀门很红。"))]
    path.write_text("".join(json.dumps(line) + "\n" for line in passages))
    lines = [question("q1", "水泵容量为12升。", "12升"), question("q2", "阀门很红。", "红")]
    assert "2 of 2 have an answer that the corpus holds\n" in split(path, capsys, lines, "--dev", "1")[0]


def test_one_of_number_and_share_is_given(corpus, capsys):
    for options in (("--seed", "1"), ("--dev", "1", "--dev_share", "0.5")):
        with pytest.raises(UserError, match="give --dev, the number of questions to hold out, or --dev_share"):
            split(corpus, capsys, [question("q1", "It is red."), question("q2", "It is made of brass.")], *options)
