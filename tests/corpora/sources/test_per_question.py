"""A corpus for each question, as in ReaRAG."""

import json
import logging
import shutil

import pytest
from benchmark_files import iirc_files
from corpus_files import read_corpus

from notewriter.corpora import corpus
from notewriter.corpora.sources.per_question import PerQuestionArguments, corpora, gold_ids, sizes, tokens_of
from notewriter.datasets import BENCHMARKS, load_questions
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question
from notewriter.retrieval.steps.within import Scopes, WithinOptions


def contexts():
    """Ten questions with five paragraphs each, of ten tokens."""
    return ((f"q{q}", [Passage(f"{q}.{n}", "", "") for n in range(5)]) for q in range(10))


GOLD = {f"{question}.0" for question in range(10)}


def draw(low, high, seed=0, gold=GOLD, source=contexts):
    (size,) = sizes(PerQuestionArguments(low, high, seed))
    return list(corpora(source(), tokens_of(source, lambda _: 10), gold, size))


def test_each_corpus_has_the_questions_own_paragraphs_and_stays_within_the_bounds():
    for number, each in enumerate(draw(120, 200)):
        assert 120 <= each["tokens"] == 10 * len(each["passage_ids"]) <= 200
        assert {f"{number}.{n}" for n in range(5)} <= set(each["passage_ids"])
        assert each["own"] == 5
        assert len(set(each["passage_ids"])) == len(each["passage_ids"])


def test_gold_documents_of_other_questions_are_drawn_only_when_distractors_run_out():
    first = draw(410, 410)[0]
    assert [id for id in first["passage_ids"] if id in GOLD] == ["0.0"]
    assert len([id for id in draw(450, 450)[0]["passage_ids"] if id in GOLD]) == 5


def test_the_seed_decides():
    assert draw(120, 200) == draw(120, 200)
    assert draw(120, 200) != draw(120, 200, seed=1)


def test_sizes_are_spread_over_the_bounds_and_own_paragraphs_are_not_all_first():
    drawn = draw(100, 300)
    assert len({each["tokens"] for each in drawn}) > 3
    assert any(not each["passage_ids"][0].startswith(f"{number}.") for number, each in enumerate(drawn))


def test_exchanged_bounds_are_an_error():
    with pytest.raises(UserError, match="min_tokens: 300 is more than max_tokens 200"):
        draw(300, 200)


@pytest.fixture
def musique(tmp_path):
    records = []
    for number in range(6):
        paragraphs = [
            {"idx": n, "title": "the river", "paragraph_text": f"a town {number} {n}", "is_supporting": n == 0}
            for n in range(4)
        ]
        records.append(
            {
                "id": str(number),
                "question": "?",
                "answer": "a",
                "answer_aliases": [],
                "question_decomposition": [],
                "paragraphs": paragraphs,
            }
        )
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def run(path, output, tokenizer, *options):
    settings = ["--source", "per-question", "--dataset", "musique", "--tokenizer", str(tokenizer), *options]
    paths = [] if "--path" in options else ["--path", str(path)]
    corpus.main([*settings, *paths, "--output_dir", str(output)])
    return [json.loads(line) for line in (output / "per_question.jsonl").read_text().splitlines()]


def test_the_command_writes_the_union_once_and_a_list_of_ids_for_each_question(musique, tmp_path, tokenizer):
    lines = run(musique, tmp_path / "out", tokenizer, "--min_tokens", "40", "--max_tokens", "60")
    ids = {passage["id"] for passage in read_corpus(tmp_path / "out")}
    assert len(ids) == 24
    assert [line["question_id"] for line in lines] == list("012345")
    assert all(set(line["passage_ids"]) <= ids and 40 <= line["tokens"] <= 60 for line in lines)


def test_of_musique_full_the_questions_get_a_corpus_that_can_be_answered(musique, tmp_path, tokenizer):
    records = [json.loads(line) for line in musique.read_text().splitlines()]
    unanswerable = [record | {"answerable": False, "paragraphs": record["paragraphs"][1:]} for record in records]
    musique.write_text("".join(json.dumps(record) + "\n" for record in [*records, *unanswerable]))
    lines = run(musique, tmp_path / "out", tokenizer, "--min_tokens", "40", "--max_tokens", "60")
    assert [(line["question_id"], line["own"]) for line in lines] == [(id, 4) for id in "012345"]


def test_a_question_that_two_files_have_is_refused(musique, tmp_path, tokenizer):
    again = shutil.copy(musique, tmp_path / "again.jsonl")
    with pytest.raises(UserError, match="question '0' occurs twice"):
        run(musique, tmp_path / "out", tokenizer, "--path", str(musique), str(again))


def test_each_length_has_a_file_of_corpora_that_long_and_counts_in_the_manifest(musique, tmp_path, tokenizer, capsys):
    """RULER: a question's paragraphs among random ones, up to a length, in random order."""
    settings = ["--source", "per-question", "--dataset", "musique", "--tokenizer", str(tokenizer), "--first", "2"]
    folder = tmp_path / "out"
    corpus.main([*settings, "--path", str(musique), "--output_dir", str(folder), "--lengths", "42", "84", "138"])
    out = capsys.readouterr().out
    assert len(read_corpus(folder)) == 24
    assert not (folder / "per_question.jsonl").exists()
    counts = json.loads((folder / "manifest.json").read_text())["per_question"]
    # A paragraph has six tokens.
    for length, paragraphs in ((42, 7), (84, 14), (138, 23)):
        name = f"per_question_{length}.jsonl"
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert [line["question_id"] for line in lines] == ["0", "1"]
        assert [(line["tokens"], len(line["passage_ids"]), line["own"]) for line in lines] == [
            (length, paragraphs, 4)
        ] * 2
        assert counts[name] == {"paragraphs": paragraphs, "tokens": length}
        assert f"{name}: 2 questions with {paragraphs}.0 paragraphs and {length}.0 tokens each on average" in out


def test_a_length_does_not_depend_on_the_others_and_gold_paragraphs_are_drawn_like_any(tmp_path):
    both = sizes(PerQuestionArguments(lengths=[100, 300], seed=3))
    tokens = tokens_of(contexts, lambda _: 10)
    (alone,) = sizes(PerQuestionArguments(lengths=[300], seed=3))
    drawn = list(corpora(contexts(), tokens, (), alone))
    assert drawn == list(corpora(contexts(), tokens, (), both[1]))
    assert any(GOLD & set(each["passage_ids"]) - {f"{number}.0"} for number, each in enumerate(drawn))


@pytest.mark.parametrize("lengths", [["0"], ["-7", "7000"]])
def test_a_length_is_positive(lengths, musique, tmp_path, tokenizer):
    with pytest.raises(UserError, match=r"lengths: .* must be numbers of tokens above 0"):
        run(musique, tmp_path / "out", tokenizer, "--lengths", *lengths)


def test_too_few_paragraphs_are_a_warning(musique, tmp_path, tokenizer, caplog):
    with caplog.at_level(logging.WARNING):
        run(musique, tmp_path / "out", tokenizer)
    assert "6 of 6 questions have fewer than 48000 tokens" in caplog.text


def test_documents_of_contexts_are_read(tmp_path, tokenizer):
    record = {
        "question": "who?",
        "answers": ["a"],
        "ctxs": [{"id": "1", "title": "Osk", "text": "A river.", "isgold": True}],
    }
    (tmp_path / "nq.jsonl").write_text(2 * (json.dumps(record) + "\n"))
    settings = ["--source", "per-question", "--dataset", "nq", "--tokenizer", str(tokenizer)]
    corpus.main([*settings, "--path", str(tmp_path / "nq.jsonl"), "--output_dir", str(tmp_path / "out")])
    assert [passage["title"] for passage in read_corpus(tmp_path / "out")] == ["Osk"]
    # A question that the file has twice is two questions.
    scopes = Scopes(WithinOptions(within=str(tmp_path / "out/per_question.jsonl")))
    assert [len(scopes.of(question)) for question in load_questions("nq", tmp_path / "nq.jsonl")] == [1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokenizer", "x"], "add --dataset"),
        (["--dataset", "musique"], "add --tokenizer"),
        (["--dataset", "frames", "--tokenizer", "x"], "has no paragraphs beside its questions"),
        (["--dataset", "musique", "--tokenizer", "x", "--split", "words"], "leave out --split"),
    ],
)
def test_missing_options_are_named(options, message, tmp_path):
    (tmp_path / "a.jsonl").touch()
    arguments = ["--source", "per-question", "--path", str(tmp_path / "a.jsonl"), "--output_dir", str(tmp_path / "out")]
    with pytest.raises(UserError, match=message):
        corpus.main([*arguments, *options])


def test_a_corpus_for_each_question_of_iirc_and_the_gold_paragraphs_of_others_last(tmp_path, tokenizer):
    (tmp_path / "in").mkdir()
    dev = iirc_files(tmp_path / "in")
    settings = ["--source", "per-question", "--dataset", "iirc", "--tokenizer", str(tokenizer)]
    corpus.main([*settings, "--path", str(dev), "--output_dir", str(tmp_path / "out")])
    (line,) = [json.loads(line) for line in (tmp_path / "out/per_question.jsonl").read_text().splitlines()]
    assert (line["question_id"], line["own"]) == ("i1", 5)
    assert set(line["passage_ids"]) == {passage["id"] for passage in read_corpus(tmp_path / "out")}
    texts = {passage["id"]: passage["text"] for passage in read_corpus(tmp_path / "out")}
    assert {texts[id] for id in gold_ids("iirc", [dev])} == {"She ran.", "In 1900 Bo was 7."}


def test_a_question_of_iirc_without_an_id_has_the_same_one_as_question_and_in_its_corpus(tmp_path):
    dev = iirc_files(tmp_path)
    (article,) = json.loads(dev.read_text())
    questions = [{key: value for key, value in each.items() if key != "qid"} for each in article["questions"]]
    dev.write_text(json.dumps([article | {"questions": 2 * questions}]))
    ids = [question.id for question in load_questions("iirc", dev)]
    assert [id for id, _ in BENCHMARKS["iirc"].load_contexts(dev)] == ids == [ids[0], f"{ids[0]}-2"]


def test_the_gold_paragraphs_of_iirc_are_those_of_all_files(tmp_path):
    (tmp_path / "other").mkdir()
    dev, other = iirc_files(tmp_path), iirc_files(tmp_path / "other")
    other.write_text(other.read_text().replace("She ran.", "She swam."))
    assert gold_ids("iirc", [dev, other]) == gold_ids("iirc", [dev]) | gold_ids("iirc", [other])
    assert gold_ids("iirc", [dev]) != gold_ids("iirc", [other])


def test_what_the_command_writes_restricts_the_searches_of_a_question(musique, tmp_path, tokenizer):
    """ReaRAG's R(q, doc): `within` takes the file as it is."""
    lines = run(musique, tmp_path / "out", tokenizer, "--min_tokens", "40", "--max_tokens", "60")
    scopes = Scopes(WithinOptions(within=str(tmp_path / "out/per_question.jsonl")))
    for line in lines:
        assert list(scopes.of(Question(line["question_id"], "?", ("a",)))) == line["passage_ids"]
