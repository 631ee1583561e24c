"""Each published corpus in its own format."""

import bz2
import gzip
import json
import logging
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from corpus_files import read_corpus, read_skipped

from notewriter.artifacts.traces import Retrieval, Trace
from notewriter.corpora import corpus, published
from notewriter.corpora.sources import SOURCES
from notewriter.datasets import load_corpus, load_questions
from notewriter.datasets.reading import passage_id
from notewriter.evaluation.evidence import supporting_recall
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25
from notewriter.retrieval.chain import Chain, find

SHARED = Path(__file__).parents[2] / "../shared/data"


def build(source, path, output, *options):
    paths = [str(each) for each in (path if isinstance(path, list) else [path])]
    corpus.main(["--source", source, "--path", *paths, "--output_dir", str(output), *options])
    return read_corpus(output)


def jsonl(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def dump(path, *pages):
    rows = [
        {
            "id": str(number),
            "url": f"https://en.wikipedia.org/wiki/{title.replace(' ', '_')}",
            "title": title,
            "text": text,
        }
        for number, (title, text) in enumerate(pages, start=1)
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ["psgs_w100.tsv", "psgs_w100.tsv.gz"])
def test_dpr_keeps_its_ids(name, tmp_path):
    path = tmp_path / name
    opener = gzip.open if name.endswith("gz") else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write('id\ttext\ttitle\n1\t"Aaron ""the"" prophet"\tAaron\n2\tA brother of Moses\tAaron\n')
    assert build("dpr", path, tmp_path / "out") == [
        {"id": "1", "title": "Aaron", "text": 'Aaron "the" prophet'},
        {"id": "2", "title": "Aaron", "text": "A brother of Moses"},
    ]


def test_wiki_18_has_the_title_in_quotation_marks_on_the_first_line(tmp_path):
    path = jsonl(
        tmp_path / "wiki-18.jsonl",
        {"id": "0", "contents": '"Aaron"\nAaron is a prophet.'},
        {"id": 1, "contents": '"""Heroes"" (album)"\nAn album.'},
        {"id": "2", "title": "Osk", "text": "A river."},
    )
    assert build("wiki-18", path, tmp_path / "out") == [
        {"id": "0", "title": "Aaron", "text": "Aaron is a prophet."},
        {"id": "1", "title": '""Heroes"" (album)', "text": "An album."},
        {"id": "2", "title": "Osk", "text": "A river."},
    ]


def test_a_dump_of_wikipedia_is_split_into_words_and_keeps_its_addresses(tmp_path):
    dump(tmp_path / "train-00000-of-00001.parquet", ("River Osk", "word " * 150), ("Empty", ""))
    passages = build("wikipedia", tmp_path, tmp_path / "out")
    assert [(each["id"], each["title"], len(each["text"].split())) for each in passages] == [
        ("1#1", "River Osk", 100),
        ("1#2", "River Osk", 50),
    ]
    assert passages[1]["origin"] == {"url": "https://en.wikipedia.org/wiki/River_Osk", "span": [500, 749]}
    assert list(read_skipped(tmp_path / "out").values()) == ["contains no text"]


def test_articles_of_multihoprag_are_split_between_sentences(tmp_path):
    article = {"title": "A trial", "body": "It began. " * 80, "url": "https://news.example/1", "source": "News"}
    (tmp_path / "corpus.json").write_text(json.dumps([article, article]))
    passages = build("multihoprag", tmp_path / "corpus.json", tmp_path / "out")
    assert len(passages) == 2
    assert all(each["text"].endswith("began.") for each in passages)
    assert passages[0]["origin"]["url"] == "https://news.example/1"


def test_articles_of_multihoprag_stay_whole_with_split_none(tmp_path):
    article = {"title": "A trial", "body": "It began.\n\nIt ended. " * 80, "url": "https://news.example/1"}
    (tmp_path / "corpus.json").write_text(json.dumps([article, article]))
    (passage,) = build("multihoprag", tmp_path / "corpus.json", tmp_path / "out", "--split", "none")
    assert passage["text"] == article["body"].strip()


def test_hotpotqas_abstracts_have_the_ids_of_its_questions(tmp_path):
    sentences = ["The Osk is a river.", " Tolen lies at its mouth."]
    (tmp_path / "AA").mkdir()
    with bz2.open(tmp_path / "AA" / "wiki_00.bz2", "wt") as file:
        for title, text in (("Osk", sentences), ("Varn", ["A village."])):
            file.write(json.dumps({"id": 1, "url": f"https://w.example/{title}", "title": title, "text": text}) + "\n")
    question = {
        "_id": "q",
        "question": "?",
        "answer": "a",
        "context": [["Osk", sentences]],
        "supporting_facts": [["Osk", 0]],
    }
    (tmp_path / "dev.json").write_text(json.dumps([question]))
    passages = build("ircot-hotpotqa", tmp_path, tmp_path / "out")
    assert [each["text"] for each in passages] == ["The Osk is a river. Tolen lies at its mouth.", "A village."]
    assert load_questions("hotpotqa", tmp_path / "dev.json")[0].supporting_ids == (passages[0]["id"],)


def test_2wikis_corpus_is_the_distinct_paragraphs_of_all_splits_the_test_set_included(tmp_path):
    osk, varn, tolen = ["Osk", ["A river."]], ["Varn", ["A village."]], ["Tolen", ["A town."]]
    for name, context in (("train", [osk, varn]), ("dev", [varn]), ("test", [tolen, osk])):
        (tmp_path / f"{name}.json").write_text(json.dumps([{"_id": name, "context": context}]))
    passages = build("ircot-2wikimultihopqa", tmp_path, tmp_path / "out")
    assert sorted(each["title"] for each in passages) == ["Osk", "Tolen", "Varn"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["repeated_documents"] == 2


def test_musiques_corpus_has_the_paragraphs_of_questions_without_an_answer(tmp_path):
    paragraph = {"idx": 0, "title": "Osk", "paragraph_text": "A river.", "is_supporting": True}
    question = {"id": "1", "question": "?", "paragraphs": [paragraph]}
    other = question | {"answerable": False, "paragraphs": [paragraph | {"title": "Varn"}]}
    jsonl(tmp_path / "musique_full_v1.0_test.jsonl", question, other)
    assert [each["title"] for each in build("ircot-musique", tmp_path, tmp_path / "out")] == ["Osk", "Varn"]


def test_joined_passages_keep_beirs_ids_to_which_its_gold_evidence_refers(tmp_path):
    passage = {"title": "Osk", "text": "A river."}
    path = jsonl(tmp_path / "corpus.jsonl", {"_id": "MED-10", "metadata": {}, **passage}, passage)
    assert build("paragraphs", path, tmp_path / "out") == [
        {"id": "MED-10", **passage},
        {"id": passage_id("Osk", "A river."), **passage},
    ]


def test_two_corpora_with_one_id_for_different_passages_are_refused(tmp_path):
    paths = [
        jsonl(tmp_path / f"{title}.jsonl", {"_id": "1", "title": title, "text": "A river."})
        for title in ("Osk", "Varn")
    ]
    with pytest.raises(UserError, match=r"Varn\.jsonl:1: the id '1' is also that of a document with another text"):
        build("paragraphs", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    # The same passage in two files is none to choose from.
    paths[1].write_bytes(paths[0].read_bytes())
    assert [each["title"] for each in build("paragraphs", tmp_path, tmp_path / "out")] == ["Osk"]


def test_iirc_leaves_out_short_paragraphs_as_ircot_does(tmp_path):
    long = "one two three four five six seven eight nine ten <a href='x'>eleven</a>"
    (tmp_path / "context_articles.json").write_text(json.dumps({"Osk": f"Too short.\n{long}"}))
    (passage,) = build("ircot-iirc", tmp_path, tmp_path / "out")
    assert passage["text"].endswith("ten eleven")


def test_real_slices_give_the_corpus_of_their_loader(tmp_path):
    path = SHARED / "2wikimultihopqa" / "train.json"
    if not path.exists():
        pytest.skip("../shared/data is absent")
    passages = build("ircot-2wikimultihopqa", path, tmp_path / "out")
    expected = list(load_corpus("2wikimultihopqa", path))
    assert [(each["id"], each["title"], each["text"]) for each in passages] == [
        (each.id, each.title, each.text) for each in expected
    ]


def test_malformed_records_are_named_and_the_rest_is_kept(tmp_path):
    good = json.dumps({"id": "0", "contents": '"Osk"\nA river.'}).encode()
    path = tmp_path / "wiki-18.jsonl"
    path.write_bytes(good + b'\n{"id": "1", "conte\n[]\n{"id": "2"}\n{"id": "3", "contents": "caf\xe9\\nx"}\n\n')
    assert [each["id"] for each in build("wiki-18", path, tmp_path / "out")] == ["0"]
    skipped = read_skipped(tmp_path / "out")
    assert list(skipped) == [f"{path}:{line}" for line in (2, 3, 4, 5)]
    assert [reason.partition(" (")[0].partition(";")[0] for reason in skipped.values()] == [
        "is not JSON",
        "is a list, not an object",
        "has no 'contents'",
        "is not UTF-8",
    ]


def test_a_file_of_another_format_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "psgs_w100.tsv"
    path.write_text('{"id": "0"}\n' * 5000)
    with pytest.raises(UserError, match=r"psgs_w100.tsv:1000: has 1 columns.*none of 1,000 records could be used"):
        build("dpr", path, tmp_path / "out")


@pytest.mark.parametrize(
    ("source", "name", "problem"),
    [
        ("wiki-18", "a.jsonl.gz", "is truncated or damaged"),
        ("wiki-18", "a.jsonl.bz2", "is truncated or damaged"),
        ("wikipedia", "a.parquet", "is not a readable Parquet file"),
    ],
)
def test_a_truncated_download_is_an_error(source, name, problem, tmp_path):
    path = tmp_path / name
    line = "".join(json.dumps({"id": str(i), "contents": f"T\n{i * 7919}"}) + "\n" for i in range(5000)).encode()
    if source == "wikipedia":
        dump(path, ("Osk", "A river."))
    else:
        path.write_bytes(gzip.compress(line) if name.endswith("gz") else bz2.compress(line))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match=problem + ".* download it again"):
        build(source, path, tmp_path / "out")


def test_a_dump_whose_text_is_not_utf_8_is_an_error(tmp_path):
    columns = {name: pyarrow.array([b"a\xff"]).view(pyarrow.string()) for name in ("id", "url", "title", "text")}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: .*damaged"):
        build("wikipedia", tmp_path / "a.parquet", tmp_path / "out")


def test_a_parquet_file_of_something_else_is_an_error(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: lacks the column\(s\) id, url, title"):
        build("wikipedia", tmp_path, tmp_path / "out")


@pytest.mark.parametrize("source", SOURCES)
def test_a_missing_path_is_an_error(source, tmp_path):
    with pytest.raises(UserError, match="is no file or folder"):
        build(source, tmp_path / "missing", tmp_path / "out")


class TestPublishedCounts:
    def test_a_difference_is_a_warning_that_says_what_differs_and_from_whom(self, tmp_path, caplog):
        path = jsonl(tmp_path / "wiki-18.jsonl", {"id": "0", "contents": "Osk\nA river."})
        with caplog.at_level(logging.WARNING):
            build("wiki-18", path, tmp_path / "out")
        assert "has 1 distinct documents, 21,015,323 fewer than the 21,015,324 of DPR" in caplog.text
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["published"]["differs"]

    def test_the_published_number_passes(self, tmp_path, monkeypatch, caplog):
        monkeypatch.setitem(published.PUBLISHED, "wiki-18", published.Published(1, "a test"))
        path = jsonl(tmp_path / "wiki-18.jsonl", {"id": "0", "contents": "Osk\nA river."})
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                build("wiki-18", path, tmp_path / "out")
        assert not caplog.records

    def test_repetitions_count_where_those_who_published_the_number_counted_them(self):
        assert published.difference(90, 10, published.Published(100, "a paper", with_repeats=True)) == ""
        assert published.difference(90, 10, published.Published(90, "a paper")) == ""
        assert "10 fewer" in published.difference(90, 10, published.Published(100, "a paper"))

    def test_only_the_version_that_was_counted_is_compared(self, tmp_path):
        assert published.published("wikipedia", [tmp_path / "20231101.simple"]) is None
        assert published.published("wikipedia", [tmp_path / "20231101.en"]).documents == 6_407_814

    def test_every_known_corpus_is_a_source(self):
        assert published.PUBLISHED.keys() <= SOURCES.keys()


class TestPages:
    @pytest.fixture
    def fanoutqa(self, tmp_path):
        parts = [{"evidence": {"title": title}, "decomposition": []} for title in ("River Osk", "Varn")]
        path = tmp_path / "dev.json"
        path.write_text(json.dumps([{"id": "1", "question": "?", "answer": "a", "decomposition": parts}]))
        return path

    def test_pages_come_whole_out_of_a_dump(self, fanoutqa, tmp_path, caplog):
        dump(tmp_path / "a.parquet", ("River Osk", "word " * 300), ("Tolen", "A town."))
        options = ["--pages_of", str(fanoutqa), "--dataset", "fanoutqa", "--split", "none"]
        with caplog.at_level(logging.WARNING):
            (passage,) = build("wikipedia", tmp_path / "a.parquet", tmp_path / "out", *options)
        assert (passage["id"], passage["title"], len(passage["text"].split())) == ("1", "River Osk", 300)
        assert "1 of 2 pages were not found: 'Varn'" in caplog.text
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["missing_pages"] == ["Varn"]

    @pytest.fixture
    def crawl(self, tmp_path):
        (tmp_path / "crawl").mkdir()
        (tmp_path / "crawl" / "River_Osk.html").write_text(
            "<title>River Osk - Wikipedia</title><article><h1>River Osk</h1><p>The Osk is a river in the north of the "
            "country.</p><h2>Course</h2><p>It reaches the sea at the town of Tolen, where it is wide.</p></article>"
        )
        (tmp_path / "crawl" / "Other.html").write_text("<p>Another page.</p>")
        return tmp_path / "crawl"

    @pytest.fixture
    def frames(self, tmp_path):
        link = "https://en.wikipedia.org/wiki/river%20Osk#Course"
        return jsonl(tmp_path / "frames.jsonl", {"question": "?", "answer": "a", "wikipedia_link_1": link})

    def test_pages_come_as_markdown_out_of_a_crawl(self, crawl, frames, tmp_path):
        options = ["--pages_of", str(frames), "--dataset", "frames", "--split", "none"]
        (passage,) = build("folder", crawl, tmp_path / "out", *options)
        assert passage["text"].startswith("# River Osk\n") and "## Course" in passage["text"]

    @pytest.mark.parametrize("split", ["none", "headings"])
    async def test_the_questions_search_and_count_the_pages_of_a_crawl_by_their_titles(
        self, crawl, frames, tmp_path, split
    ):
        options = ["--pages_of", str(frames), "--dataset", "frames", "--split", split, "--size", "20"]
        passages = build("folder", crawl, tmp_path / "out", *options)
        assert {passage["title"] for passage in passages} == {"River Osk"}
        assert passages[-1].get("origin", {}).get("headings", []) == (
            ["River Osk", "Course"] if split != "none" else []
        )
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["missing_pages"] == []
        bm25.build(
            [*load_corpus("jsonl", tmp_path / "out" / "corpus.jsonl"), Passage("x", "Sea", "sea")], tmp_path / "i"
        )
        (question,) = load_questions("frames", frames)
        chain = Chain([{"index": str(tmp_path / "i")}, {"within": "pages"}])
        found = (await find(chain, "sea", 9, question)).passages
        await chain.close()
        assert [passage.title for passage in found] == ["River Osk"]
        step = Retrieval("sea", 9, [{"id": found[0].id, "title": found[0].title}], 0.1)
        assert supporting_recall(Trace("q", "m", [step]), question) == {"supporting_recall": 1.0}

    def test_no_page_at_all_is_an_error(self, fanoutqa, tmp_path):
        dump(tmp_path / "a.parquet", ("Tolen", "A town."))
        with pytest.raises(UserError, match="none of 1 documents is a page of"):
            build(
                "wikipedia",
                tmp_path / "a.parquet",
                tmp_path / "out",
                "--pages_of",
                str(fanoutqa),
                "--dataset",
                "fanoutqa",
            )
