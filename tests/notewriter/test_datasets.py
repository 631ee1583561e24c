import json
from pathlib import Path

import pytest

from notewriter.datasets import DATASETS, load_corpus, load_questions, reading, select, with_ids, with_metadata
from notewriter.errors import UserError
from notewriter.records import Passage, Question

SHARED = Path(__file__).parents[2] / "../shared/data"
REAL = {
    "hotpotqa": (SHARED / "hotpotqa/train.json", 100),
    "2wikimultihopqa": (SHARED / "2wikimultihopqa/train.json", 500),
    "musique": (SHARED / "musique/train.jsonl", 100),
}
REAL_WITHOUT_PASSAGES = {
    "strategyqa": (SHARED / "strategyqa/dev.json", 229),
    "nq": (SHARED / "nq_open/dev.jsonl", 500),
    "frames": (SHARED / "frames/train.jsonl", 100),
    "fanoutqa": (SHARED / "fanoutqa/dev.json", 100),
}

WITHOUT_PASSAGES = ["fanoutqa", "frames"]

HOTPOT = {
    "_id": "h1",
    "type": "bridge",
    "level": "easy",
    "question": "Where was the director of Low Tide born?",
    "answer": "Brel",
    "supporting_facts": [["Low Tide", 1], ["Ana Kesk", 0], ["Ana Kesk", 7], ["Nowhere", 0]],
    "context": [
        ["Low Tide", ["Low Tide is a film.", " It was directed by Ana Kesk."]],
        ["Ana Kesk", ["Ana Kesk was born in Brel.", " She died young."]],
        ["Ana Kesk", ["Another page of the same name."]],
    ],
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Where was the director of Low Tide born?",
    "answer": "Brel",
    "answer_aliases": ["Brel Town", "Brel"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Other", "paragraph_text": "A. Kesk is no one.", "is_supporting": False},
        {"idx": 1, "title": "Ana", "paragraph_text": "She is old. She was born in BREL.", "is_supporting": True},
        {"idx": 2, "title": "Low Tide", "paragraph_text": "It is by Ana K. Kesk. It is long.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Low Tide >> director", "answer": "Ana K. Kesk", "paragraph_support_idx": 2},
        {"id": 2, "question": "#1 >> born", "answer": "Brel", "paragraph_support_idx": 1},
    ],
}


def write_lines(path: Path, *records) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_list(path: Path, *records) -> Path:
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


def question(**changes) -> dict:
    return {"id": "q1", "question": "Who?", "answers": ["Ana"], **changes}


def test_own_questions_carry_what_the_file_says_and_nothing_where_it_is_silent(tmp_path):
    full = question(id="q2", supporting_ids=["p1"], supporting_facts=["Ana is."], metadata={"hops": 2})
    path = write_lines(tmp_path / "questions.jsonl", question(), full)
    assert load_questions("jsonl", path) == [
        Question("q1", "Who?", ("Ana",)),
        Question("q2", "Who?", ("Ana",), ("p1",), ("Ana is.",), {"hops": 2}),
    ]


def test_own_corpus_is_read_line_by_line(tmp_path):
    path = write_lines(tmp_path / "c.jsonl", {"id": "p1", "title": "Ana", "text": "Ana is."}, {"id": "p2"})
    passages = load_corpus("jsonl", path)
    assert next(passages) == Passage("p1", "Ana", "Ana is.")
    with pytest.raises(UserError, match=r"c\.jsonl:2: has no 'title'"):
        next(passages)


def test_hotpotqa_titles_that_occur_twice_in_a_question_keep_their_passages_apart(tmp_path):
    corpus = list(load_corpus("hotpotqa", write_list(tmp_path / "h.json", HOTPOT)))
    assert [passage.title for passage in corpus] == ["Low Tide", "Ana Kesk", "Ana Kesk"]
    assert len({passage.id for passage in corpus}) == 3


def test_hotpotqa_supporting_facts_follow_the_annotation_and_dangling_ones_are_left_out(tmp_path):
    path = write_list(tmp_path / "h.json", HOTPOT)
    (read,) = load_questions("hotpotqa", path)
    corpus = list(load_corpus("hotpotqa", path))
    # A paragraph that is not in the context, as in the fullwiki file, is missed all the same: its title stands for it.
    assert read.supporting_ids == (corpus[0].id, corpus[1].id, "Nowhere")
    assert read.supporting_facts == ("It was directed by Ana Kesk.", "Ana Kesk was born in Brel.")
    assert corpus[0].text == "Low Tide is a film. It was directed by Ana Kesk."
    assert read.answers == ("Brel",)
    assert read.metadata == {"type": "bridge", "level": "easy"}


def test_2wikimultihopqa_keeps_the_key_of_its_aliases(tmp_path):
    path = write_list(tmp_path / "w.json", {**HOTPOT, "answer_id": "Q7", "evidences": []})
    assert load_questions("2wikimultihopqa", path)[0].metadata["answer_id"] == "Q7"


def test_2wikimultihopqa_takes_the_aliases_that_lie_beside_its_file(tmp_path):
    path = write_list(tmp_path / "dev.json", HOTPOT | {"answer_id": "Q7"}, HOTPOT | {"_id": "h2", "answer_id": None})
    write_lines(
        tmp_path / "id_aliases.json",
        {"Q_id": "Q7", "aliases": ["Brel Town", "Brel"], "demonyms": ["Breller"]},
        {"Q_id": "Q8", "aliases": ["Elsewhere"], "demonyms": []},
    )
    first, second = load_questions("2wikimultihopqa", path)
    assert first.answers == ("Brel", "Brel Town", "Breller")
    assert second.answers == ("Brel",)
    assert load_questions("hotpotqa", path)[0].answers == ("Brel",)


def test_musique_supporting_passages_and_facts_come_in_the_order_of_the_hops(tmp_path):
    path = write_lines(tmp_path / "m.jsonl", MUSIQUE)
    (read,) = load_questions("musique", path)
    by_title = {passage.title: passage.id for passage in load_corpus("musique", path)}
    assert read.supporting_ids == (by_title["Low Tide"], by_title["Ana"])
    assert read.supporting_facts == ("It is by Ana K. Kesk.", "She was born in BREL.")
    assert read.answers == ("Brel", "Brel Town")
    assert read.metadata["hops"] == 2
    assert read.metadata["decomposition"][0] == {"question": "Low Tide >> director", "answer": "Ana K. Kesk"}


def test_musique_gives_the_whole_paragraph_where_no_sentence_holds_the_answer(tmp_path):
    changed = json.loads(json.dumps(MUSIQUE))
    changed["question_decomposition"][1]["answer"] = "nowhere to be found"
    (read,) = load_questions("musique", write_lines(tmp_path / "m.jsonl", changed))
    assert read.supporting_facts[1] == "She is old. She was born in BREL."


def test_of_musique_full_the_questions_are_read_that_can_be_answered(tmp_path, caplog):
    changed = json.loads(json.dumps({**MUSIQUE, "answerable": False}))
    changed["question_decomposition"][1]["paragraph_support_idx"] = None
    changed["paragraphs"][1]["paragraph_text"] = "Something else."
    path = write_lines(tmp_path / "m.jsonl", MUSIQUE, changed)
    (read,) = load_questions("musique", path)
    assert read.metadata["answerable"] is True and len(read.supporting_facts) == 2
    assert "1 questions that its paragraphs do not answer are left out" in caplog.text
    # Its paragraphs make the corpus harder, as they should.
    assert len(list(load_corpus("musique", path))) == 4


def test_a_corpus_holds_each_paragraph_once_and_its_ids_do_not_hang_on_the_file(tmp_path):
    other = {**HOTPOT, "_id": "h2"}
    twice = list(load_corpus("hotpotqa", write_list(tmp_path / "twice.json", HOTPOT, other)))
    once = list(load_corpus("hotpotqa", write_list(tmp_path / "once.json", other)))
    assert twice == once


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_is_read_record_by_record_however_it_is_cut(tmp_path, monkeypatch, size, indent):
    monkeypatch.setattr(reading, "CHUNK", size)
    records = [{**HOTPOT, "_id": f"h{i}", "question": "Où ] , [ est-ce?"} for i in range(5)]
    path = tmp_path / "h.json"
    path.write_text(json.dumps(records, indent=indent, ensure_ascii=False), encoding="utf-8")
    assert [q.id for q in load_questions("hotpotqa", path)] == ["h0", "h1", "h2", "h3", "h4"]


@pytest.mark.parametrize("dataset", REAL)
def test_real_slices_of_the_benchmarks(dataset):
    path, count = REAL[dataset]
    if not path.exists():
        pytest.skip(f"no {path}")
    questions = load_questions(dataset, path)
    corpus = {passage.id: passage.text for passage in load_corpus(dataset, path)}
    assert len(questions) == count
    assert len(corpus) > 5 * count
    for q in questions:
        assert len(q.supporting_ids) >= 1 <= len(q.supporting_facts)
        supporting = [corpus[passage_id] for passage_id in q.supporting_ids]
        assert all(any(fact in text for text in supporting) for fact in q.supporting_facts)


@pytest.mark.parametrize("dataset", REAL_WITHOUT_PASSAGES)
def test_real_slices_of_benchmarks_whose_passages_are_elsewhere(dataset):
    path, count = REAL_WITHOUT_PASSAGES[dataset]
    if not path.exists():
        pytest.skip(f"no {path}")
    questions = load_questions(dataset, path)
    assert len(questions) == count
    assert all(question.question.strip() and all(question.answers) for question in questions)


def test_the_evidence_of_real_strategyqa_questions_stands_in_the_passages():
    path = SHARED / "strategyqa/passages.jsonl"
    if not path.exists():
        pytest.skip(f"no {path}")
    ids = {passage.id for passage in load_corpus("jsonl", path)}
    questions = load_questions("strategyqa", path.with_name("dev.json"))
    assert sum(ids >= set(question.supporting_ids) for question in questions) > 200


ERRORS = {
    "not JSON": ("jsonl", '{"id": "q1"\n', r"f:1: is not JSON"),
    "missing": ("jsonl", json.dumps({"id": "q1", "question": "Who?"}), r"f:1: has no 'answers'"),
    "wrong type": ("jsonl", json.dumps(question(answers="Ana")), r"f:1: 'answers' is a str, not a list"),
    "wrong item": (
        "jsonl",
        json.dumps(question(answers=[3])),
        r"f:1: 'answers' must be a list of strings, but holds a value of type int",
    ),
    "no answer": ("jsonl", json.dumps(question(answers=[])), r"f:1: 'answers' is empty"),
    "same id": ("jsonl", f"{json.dumps(question())}\n\n{json.dumps(question())}", r"f:3: has the id 'q1' of .*f:1"),
    "no question": ("jsonl", "\n", r"f: holds no question"),
    "no list": ("hotpotqa", "{}", r"record 1: is not JSON \(no list\)"),
    "empty file": ("hotpotqa", "", r"record 1: is not JSON"),
    "empty list": ("hotpotqa", "[ ]", r"f: holds no question"),
    "cut short": ("hotpotqa", json.dumps([HOTPOT, HOTPOT])[:-40], r"record 2: is not JSON"),
    "not closed": ("hotpotqa", json.dumps([HOTPOT])[:-1], r"record 2: is not JSON"),
    "no object": ("hotpotqa", "[[]]", r"record 1: is a list, not an object"),
    "no pairs": ("hotpotqa", json.dumps([{**HOTPOT, "context": {"title": []}}]), r"record 1: 'context' is a dict"),
    "same record": ("hotpotqa", json.dumps([HOTPOT, HOTPOT]), r"record 2: has the id 'h1' of .*record 1"),
    "no paragraph": (
        "musique",
        json.dumps({**MUSIQUE, "paragraphs": ["x"]}),
        r"f:1: 'paragraphs' must be a list of objects",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_broken_question_files_are_named_with_the_place_in_one_line(tmp_path, case):
    dataset, text, message = ERRORS[case]
    path = tmp_path / "f"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        load_questions(dataset, path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dataset", DATASETS)
def test_files_that_cannot_be_read_are_named(tmp_path, dataset):
    with pytest.raises(UserError, match="absent: cannot be read"):
        load_questions(dataset, tmp_path / "absent")
    latin = tmp_path / "latin"
    latin.write_bytes("[é".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin:? ?.*is not UTF-8"):
        load_questions(dataset, latin)
    if dataset not in WITHOUT_PASSAGES:
        with pytest.raises(UserError, match=r"latin:? ?.*is not UTF-8"):
            list(load_corpus(dataset, latin))


@pytest.mark.parametrize("dataset", WITHOUT_PASSAGES)
def test_benchmarks_without_passages_say_where_to_get_them(tmp_path, dataset):
    with pytest.raises(UserError, match="holds no pages"):
        list(load_corpus(dataset, tmp_path / "dev.json"))


def test_two_passages_of_one_id_and_an_empty_corpus_are_refused(tmp_path):
    passage = {"id": "p1", "title": "Ana", "text": "Ana is."}
    with pytest.raises(UserError, match=r"c:2: has the id 'p1' of .*c:1"):
        list(load_corpus("jsonl", write_lines(tmp_path / "c", passage, passage)))
    for dataset, text in (("jsonl", ""), ("hotpotqa", "[]"), ("musique", "")):
        (tmp_path / "empty").write_text(text)
        with pytest.raises(UserError, match="empty: holds no passage"):
            list(load_corpus(dataset, tmp_path / "empty"))


def test_an_unknown_dataset_is_answered_with_those_there_are(tmp_path):
    for load in (load_questions, load_corpus):
        with pytest.raises(UserError, match="unknown dataset 'squad'; choose one of: 2wiki"):
            load("squad", tmp_path)


def test_select_takes_the_first_or_a_seeded_sample_in_the_order_of_the_file():
    questions = [Question(f"q{i}", "Who?", ("Ana",)) for i in range(50)]
    assert select(questions) == select(questions, limit=99) == questions
    assert select(questions, limit=3) == questions[:3]
    sample = select(questions, limit=10, seed=1)
    assert sample == select(questions, limit=10, seed=1) != select(questions, limit=10, seed=2)
    assert sample == sorted(sample, key=questions.index) != questions[:10]
    with pytest.raises(UserError, match="ask for at least 1"):
        select(questions, limit=0)


def test_questions_are_chosen_by_what_their_metadata_say():
    kinds = ["Tabular", "Numerical | Multiple constraints", ["Tabular", "Numerical"], 3, None]
    questions = [
        Question(f"q{i}", "Who?", ("Ana",), metadata={"type": kind, "hops": i}) for i, kind in enumerate(kinds)
    ]
    assert with_metadata(questions, {}) == questions
    assert with_metadata(questions, {"type": "Multiple constraints"}) == [questions[1]]
    assert with_metadata(questions, {"type": "Numerical"}) == questions[1:3]
    assert with_metadata(questions, {"type": "Numerical", "hops": 2}) == [questions[2]]
    assert with_metadata(questions, {"type": 3}) == [questions[3]]
    with pytest.raises(UserError, match=r"where: no question has type: 'table' .* under 'type' there is: Tabular"):
        with_metadata(questions, {"type": "table"})


def test_strategyqa_takes_the_evidence_of_the_first_annotator_who_names_paragraphs(tmp_path):
    record = {
        "qid": "s1",
        "question": "Would it fit?",
        "answer": False,
        "facts": ["It is large."],
        "evidence": [
            [["operation"], ["no_evidence"]],
            [[["Elk-1", "Elk-2"]], [["Car-9"]], ["operation"]],
            [[["Elk-7"]]],
        ],
    }
    (read,) = load_questions("strategyqa", write_list(tmp_path / "s.json", record))
    assert read == Question(
        "s1", "Would it fit?", ("no",), ("Elk-1", "Elk-2", "Car-9"), (), {"facts": ["It is large."]}
    )


def test_strategyqa_paragraphs_keep_their_ids(tmp_path):
    path = tmp_path / "paragraphs.json"
    path.write_text(json.dumps({"Elk-1": {"title": "Elk", "section": "", "content": "An elk is large."}}))
    assert list(load_corpus("strategyqa", path)) == [Passage("Elk-1", "Elk", "An elk is large.")]


ASQA = {"qa_pairs": [{"question": "In 1990?", "short_answers": ["Ana"]}, {"short_answers": ["Bo", "Ana"]}]}


def test_asqa_reads_the_dev_split_of_its_own_file_and_alces_list(tmp_path):
    own = tmp_path / "ASQA.json"
    own.write_text(json.dumps({"train": {}, "dev": {"a1": ASQA | {"ambiguous_question": "Who won?"}}}))
    alce = write_list(tmp_path / "asqa_eval.json", ASQA | {"sample_id": "a1", "question": "Who won?"})
    expected = Question("a1", "Who won?", ("Ana", "Bo"), metadata={"short_answers": [["Ana"], ["Bo", "Ana"]]})
    assert load_questions("asqa", own) == load_questions("asqa", alce) == [expected]


def test_nq_makes_ids_of_its_questions_that_stay(tmp_path):
    records = [{"question": "who won", "answer": ["Ana", "Bo", "Ana"]}, {"question": "who lost", "answer": ["Bo"]}]
    first, second = load_questions("nq", write_lines(tmp_path / "a.jsonl", *records))
    assert first.answers == ("Ana", "Bo")
    assert load_questions("nq", write_lines(tmp_path / "b.jsonl", records[1])) == [second]


def test_a_question_without_an_id_may_stand_twice_in_its_file(tmp_path):
    record = {"question": "who won", "answer": ["Ana"]}
    path = write_lines(tmp_path / "a.jsonl", record, record | {"answer": ["Bo"]}, record)
    first, second, third = load_questions("nq", path)
    assert (second.id, third.id) == (f"{first.id}-2", f"{first.id}-3")
    assert second.answers == ("Bo",)


def test_wikipedia_passages_are_read_from_dprs_table(tmp_path):
    path = tmp_path / "psgs.tsv"
    path.write_text('id\ttext\ttitle\n1\t"He said ""no""."\tAna\n2\tBo ran.\tBo\n')
    assert list(load_corpus("nq", path)) == [Passage("1", "Ana", 'He said "no".'), Passage("2", "Bo", "Bo ran.")]
    path.write_text("id\ttext\ttitle\n1\tno title\n")
    with pytest.raises(UserError, match=r"psgs\.tsv:2: has 2 columns"):
        list(load_corpus("nq", path))


def test_iirc_asks_what_can_be_answered_and_makes_paragraphs_of_articles(tmp_path):
    def ask(qid: str, answer: dict) -> dict:
        return {
            "qid": qid,
            "question": "How old?",
            "answer": answer,
            "context": [{"text": " Ana is. ", "passage": "a"}],
        }

    article = {
        "title": "Ana",
        "text": "Ana was born.\nShe ran.",
        "questions": [
            ask("i1", {"type": "span", "answer_spans": [{"text": "Ana "}, {"text": "Bo"}]}),
            ask("i2", {"type": "value", "answer_value": "7", "answer_unit": "years"}),
            ask("i3", {"type": "none"}),
            ask("i4", {"type": "binary", "answer_value": "yes"}),
            ask("", {"type": "binary", "answer_value": "no"}),
        ],
    }
    dev = write_list(tmp_path / "dev.json", article)
    *questions, without_id = load_questions("iirc", dev)
    assert [(question.id, question.answers) for question in questions] == [
        ("i1", ("Ana, Bo",)),
        ("i2", ("7",)),
        ("i4", ("yes",)),
    ]
    assert without_id.id.startswith("iirc_")
    assert questions[0].supporting_facts == ("Ana is.",)
    assert questions[0].metadata == {"type": "span", "title": "Ana", "spans": ["Ana", "Bo"]}
    assert questions[1].metadata == {"type": "value", "title": "Ana", "unit": "years"}
    articles = tmp_path / "articles.json"
    articles.write_text(json.dumps({"ana": 'Ana &amp; <a href="Bo">Bo</a> ran.\n\nThey won.\nThey won.'}))
    assert [passage.text for passage in load_corpus("iirc", articles)] == ["Ana & Bo ran.", "They won."]
    # What the question is asked on is in no other file.
    assert [passage.text for passage in load_corpus("iirc", dev)] == ["Ana was born.", "She ran."]


def test_fanoutqa_keeps_the_structure_of_its_answer_and_the_pages_of_all_parts(tmp_path):
    leaf = {"decomposition": [], "evidence": {"title": "Ana"}}
    record = {
        "id": "f1",
        "question": "Who runs?",
        "answer": {"Ana": True, "Bo": ["left", 3]},
        "decomposition": [{"evidence": None, "decomposition": [leaf, leaf | {"evidence": {"title": "Bo"}}]}],
    }
    (read,) = load_questions("fanoutqa", write_list(tmp_path / "f.json", record))
    assert read.answers == ("Ana: yes; Bo: left, 3",)
    assert read.metadata == {"answer": record["answer"], "pages": ["Ana", "Bo"]}


def test_frames_reads_its_table_and_json_lines_alike(tmp_path):
    table = tmp_path / "test.tsv"
    table.write_text(
        "\tPrompt\tAnswer\twikipedia_link_1\twikipedia_link_11+\treasoning_types\n"
        "0\tHow old?\t7\thttps://w/Ana\thttps://w/Bo,_Brel, https://w/Cy (his son)\tNumerical\n"
    )
    (read,) = load_questions("frames", table)
    assert (read.question, read.answers) == ("How old?", ("7",))
    assert read.metadata == {"pages": ["https://w/Ana", "https://w/Bo,_Brel", "https://w/Cy"], "type": "Numerical"}
    lines = write_lines(tmp_path / "t.jsonl", {"question": "How old?", "answer": "7"})
    assert load_questions("frames", lines)[0].id == read.id


def test_multihoprag_has_facts_and_paragraphs(tmp_path):
    record = {
        "query": "Who was faster?",
        "answer": "Ana",
        "question_type": "comparison_query",
        "evidence_list": [{"title": "Race", "fact": "Ana won."}, {"title": "Race", "fact": "Bo lost."}],
    }
    (read,) = load_questions("multihoprag", write_list(tmp_path / "m.json", record))
    assert read.supporting_facts == ("Ana won.", "Bo lost.")
    assert read.metadata == {"type": "comparison_query", "hops": 2}
    corpus = write_list(tmp_path / "corpus.json", {"title": "Race", "body": "Ana won.\n\nBo lost.\nAna won."})
    assert [passage.text for passage in load_corpus("multihoprag", corpus)] == ["Ana won.", "Bo lost."]


def test_every_benchmark_tells_its_source_its_licence_and_a_metric_family_that_exists():
    from eval.metrics import ALL_FAMILIES

    for name, dataset in DATASETS.items():
        assert dataset.family in ALL_FAMILIES
        assert name == "jsonl" or (dataset.source and dataset.licence)


def test_questions_can_be_named_one_id_a_line(tmp_path):
    questions = [Question(f"q{i}", "Who?", ("Ana",)) for i in range(4)]
    path = tmp_path / "ids.txt"
    path.write_text("q3\n\nq1\n")
    assert [question.id for question in with_ids(questions, path)] == ["q1", "q3"]
    path.write_text("q3\nq9\n")
    with pytest.raises(UserError, match=r"ids\.txt:2: no question has the id 'q9'"):
        with_ids(questions, path)
