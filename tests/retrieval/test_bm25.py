import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from notewriter.artifacts.run_record import read_run_record
from notewriter.data.world.generation import generate
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25
from notewriter.retrieval.bm25 import BM25, Analysis, build
from notewriter.retrieval.index import corpus_fingerprint, main
from notewriter.retrieval.index_folder import FILES, MANIFEST
from notewriter.retrieval.sources.index import open_index

WORLD = generate(3, {"test": 30})["test"]


@pytest.fixture(scope="module")
def retriever(tmp_path_factory) -> BM25:
    directory = tmp_path_factory.mktemp("index") / "bm25"
    assert build(WORLD.passages, directory) == len(WORLD.passages)
    return BM25(directory)


def index_of(directory, *texts: str) -> BM25:
    build([Passage(f"p{number}", f"t{number}", text) for number, text in enumerate(texts)], directory)
    return BM25(directory)


def ids(passages: list[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def write_corpus(path, passages):
    path.write_text("".join(json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in passages))
    return path


def test_every_passage_is_found_first_by_its_own_title_and_comes_back_whole(retriever):
    assert len(retriever) == len(WORLD.passages)
    for passage in WORLD.passages:
        assert retriever.search(passage.title, 3)[0] == passage


def test_a_question_finds_the_passage_of_its_first_hop_among_the_first_five(retriever):
    found = [q.supporting_ids[0] in ids(retriever.search(q.question, 5)) for q in WORLD.questions]
    assert sum(found) >= 0.9 * len(found)


def test_no_more_than_top_k_come_and_fewer_come_first_in_the_same_order(retriever):
    for question in WORLD.questions:
        ten = retriever.search(question.question, 10)
        assert len(ten) == len(set(ids(ten))) == 10
        assert retriever.search(question.question, 4) == ten[:4]
    with pytest.raises(UserError, match="top_k: 0 passages"):
        retriever.search("Who?", 0)


def test_a_search_within_a_scope_ranks_its_passages_as_the_whole_index_does(retriever):
    scope = {WORLD.passages[3].id, *(passage.title for passage in WORLD.passages[10:30])}
    for question in WORLD.questions:
        everything = retriever.search(question.question, len(retriever))
        inside = [passage for passage in everything if passage.id in scope or passage.title in scope]
        assert retriever.search(question.question, 5, scope) == inside[:5]
    assert retriever.search(WORLD.questions[0].question, 5, {"nothing"}) == []


def test_rare_words_count_more_and_long_passages_less(tmp_path):
    search = index_of(tmp_path / "i", "river mill", "river tower", "river mill " + "stone " * 50, "river").search
    assert ids(search("river mill", 9))[:2] == ["p0", "p2"]
    assert ids(search("mill", 9)) == ["p0", "p2"]


def test_inflection_case_and_accents_do_not_matter(tmp_path):
    search = index_of(tmp_path / "i", "The composers were married.", "Naïve café", "something else").search
    assert ids(search("COMPOSER marry", 1)) == ["p0"]
    assert ids(search("naive CAFE", 1)) == ["p1"]


def test_words_in_the_query_count_once_however_often_they_are_repeated(tmp_path):
    search = index_of(tmp_path / "i", "alpha", "beta gamma").search
    assert ids(search("alpha " * 50 + "beta gamma", 2)) == ["p1", "p0"]


def test_equal_scores_come_in_the_order_of_the_corpus_in_every_build(tmp_path):
    texts = ["a tower by the river"] * 200 + ["a tower"] + ["a river by the tower"] * 200
    expected = ["p200", *(f"p{number}" for number in range(60))]
    for build_number in range(3):
        passages = [Passage(f"p{number}", "", text) for number, text in enumerate(texts)]
        build(passages, tmp_path / f"i{build_number}")
        retriever = BM25(tmp_path / f"i{build_number}")
        for top_k in (1, 2, 17, 61):
            assert ids(retriever.search("tower", top_k)) == expected[:top_k]


@settings(max_examples=200)
@given(query=st.text(st.characters(codec=None), max_size=300), top_k=st.integers(1, 50))
def test_any_text_is_a_query(retriever, query, top_k):
    found = retriever.search(query, top_k)
    assert len(found) <= top_k
    assert found == retriever.search(query, top_k)


@pytest.mark.parametrize(
    "query",
    ['title:"open', "a AND OR NOT (", "[1 TO *}", "*", "~^+-!{}\\/", "river\x00tower", "\ud800", '{"status": "True"}'],
)
def test_query_syntax_and_broken_text_mean_nothing(retriever, query):
    assert isinstance(retriever.search(query, 5), list)


def test_a_query_without_words_finds_nothing_and_a_very_long_one_still_works(retriever):
    assert retriever.search("", 5) == retriever.search(" ?! ", 5) == []
    long = " ".join(passage.text for passage in WORLD.passages)[:20_000]
    assert len(retriever.search(long, 5)) == 5


def test_threads_can_search_at_once(retriever):
    questions = [question.question for question in WORLD.questions] * 5
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda question: retriever.search(question, 5), questions))
    assert found == [retriever.search(question, 5) for question in questions]


def test_text_that_is_no_unicode_is_indexed_with_its_broken_half_replaced(tmp_path):
    assert index_of(tmp_path / "i", "river \ud800 tower").search("tower", 1)[0].text == "river ? tower"


def test_an_index_is_opened_by_its_manifest(tmp_path):
    build(WORLD.passages[:3], tmp_path / "i", source="corpus 1")
    manifest = json.loads((tmp_path / "i" / MANIFEST).read_text())
    assert (manifest["kind"], manifest["passages"], manifest["source"]) == ("bm25", 3, "corpus 1")
    assert open_index(tmp_path / "i").search(WORLD.passages[0].title, 1) == [WORLD.passages[0]]


def test_a_copy_is_opened_where_nothing_can_be_written(tmp_path):
    build(numbered(1, 2, 3), tmp_path / "i")
    shutil.copytree(tmp_path / "i", tmp_path / "copy", copy_function=shutil.copyfile)
    # A folder in the place of the lock, which not even root can write.
    (tmp_path / "copy" / bm25.LOCK).unlink(missing_ok=True)
    (tmp_path / "copy" / bm25.LOCK).mkdir()
    assert ids(open_index(tmp_path / "copy").search("river", 3)) == ["p1", "p2", "p3"]


def test_a_folder_that_is_no_index_is_refused_with_the_remedy(tmp_path):
    with pytest.raises(UserError, match=r"absent: contains no index; build one with `notewriter index"):
        open_index(tmp_path / "absent")
    build(WORLD.passages[:3], tmp_path / "i")
    (tmp_path / "i" / "meta.json").unlink()
    with pytest.raises(UserError, match=r"meta.json: cannot be read .* build the index again"):
        open_index(tmp_path / "i")
    (tmp_path / "i" / MANIFEST).write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json: "):
        open_index(tmp_path / "i")


def test_an_older_schema_is_refused(tmp_path):
    build(WORLD.passages[:3], tmp_path / "i")
    (tmp_path / "i" / MANIFEST).write_text('{"schema": "notewriter/bm25/0", "kind": "bm25"}')
    with pytest.raises(
        UserError,
        match=r"contains no notewriter/bm25/3 index, but a notewriter/bm25/0 one, .*; build it again",
    ):
        open_index(tmp_path / "i")


def test_a_build_that_fails_leaves_the_older_index_as_it_was(tmp_path):
    build(WORLD.passages[:3], tmp_path / "i")
    twice = [WORLD.passages[0], WORLD.passages[1], WORLD.passages[0]]
    with pytest.raises(UserError, match=f"passages 1 and 3 have the same id '{twice[0].id}'"):
        build(twice, tmp_path / "i")
    with pytest.raises(UserError, match="no passages to index"):
        build([], tmp_path / "i")
    assert len(BM25(tmp_path / "i")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_what_a_killed_build_left_is_cleared_away(tmp_path):
    (tmp_path / "i.partial").mkdir()
    (tmp_path / "i.partial" / "half").write_text("")
    assert len(index_of(tmp_path / "i", "river")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["i"]


def test_a_folder_of_other_files_is_never_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="exists and is not an index"):
        build(WORLD.passages[:3], tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: cannot be created as a folder \(File exists\); .* choose another path"):
        build(WORLD.passages[:3], tmp_path / "file" / "i")


def test_the_command_builds_once_and_again_only_for_another_corpus(tmp_path, capsys):
    corpus = write_corpus(tmp_path / "corpus.jsonl", WORLD.passages)
    argv = ["--path", str(corpus), "--index", str(tmp_path / "i")]
    main(argv)
    assert f"indexed {len(WORLD.passages)} passages" in capsys.readouterr().out
    main(argv)
    assert "already an index of this corpus" in capsys.readouterr().out
    write_corpus(corpus, WORLD.passages[:5])
    main(argv)
    assert "indexed 5 passages" in capsys.readouterr().out
    assert len(BM25(tmp_path / "i")) == 5


def test_the_fingerprint_tells_formats_and_files_apart(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    made = {corpus_fingerprint(dataset, tmp_path / name) for dataset in ("jsonl", "musique") for name in "ab"}
    assert len(made) == 4
    assert corpus_fingerprint("jsonl", tmp_path / "a") in made


def test_the_command_names_what_is_wrong(tmp_path):
    corpus = write_corpus(tmp_path / "c.jsonl", [WORLD.passages[0], WORLD.passages[0]])
    index = ["--index", str(tmp_path / "i")]
    with pytest.raises(UserError, match="passages 1 and 2 have the same id"):
        main(["--path", str(corpus), *index])
    with pytest.raises(UserError, match="absent: cannot be read"):
        main(["--path", str(tmp_path / "absent"), *index])
    with pytest.raises(UserError, match="unknown dataset 'squad'"):
        main(["--path", str(corpus), *index, "--dataset", "squad"])
    with pytest.raises(UserError, match="jsonl is published nowhere; add --path with its file"):
        main(index)


def numbered(*numbers: int) -> list[Passage]:
    return [Passage(f"p{number}", f"t{number}", f"river word{number}") for number in numbers]


def sizes(directory) -> list[tuple[str, int]]:
    return sorted((path.suffix, path.stat().st_size) for path in directory.iterdir() if path.name != FILES)


def test_a_small_corpus_gives_an_index_of_the_same_files_and_sizes_in_every_build(tmp_path):
    for number in range(4):
        build(WORLD.passages, tmp_path / f"i{number}")
        assert sizes(tmp_path / f"i{number}") == sizes(tmp_path / "i0")


@pytest.mark.parametrize(
    ("analyzer", "text", "found"),
    [
        ("english", "the composers", ["composer"]),
        ("plain", "the composers", ["composers"]),
        ("german", "die Häuser", ["haus", "häusern"]),
        ("french", "les cafés", ["café", "cafe"]),
    ],
)
def test_an_analyzer_is_chosen_by_name_and_kept_in_the_manifest(tmp_path, analyzer, text, found):
    build([Passage("p", "", text)], tmp_path / "i", analysis=Analysis(analyzer))
    for query in found:
        assert ids(open_index(tmp_path / "i").search(query, 1)) == ["p"], query
    assert json.loads((tmp_path / "i" / MANIFEST).read_text())["analyzer"] == analyzer
    if analyzer == "plain":
        assert open_index(tmp_path / "i").search("composer", 1) == []


def test_every_analyzer_can_be_built_and_an_unknown_one_is_refused(tmp_path):
    for analyzer in bm25.ANALYZERS:
        assert bm25._analyzer(analyzer).analyze("Αθήνα Москва Paris") != []
    with pytest.raises(UserError, match="unknown analyzer 'klingon'; choose one of: arabic"):
        build(numbered(1), tmp_path / "i", analysis=Analysis("klingon"))
    build(numbered(1), tmp_path / "i")
    manifest = (tmp_path / "i" / MANIFEST).read_text()
    (tmp_path / "i" / MANIFEST).write_text(manifest.replace('"english"', '"klingon"'))
    with pytest.raises(UserError, match="unknown analyzer 'klingon'"):
        open_index(tmp_path / "i")


def test_a_title_counts_as_much_as_is_set(tmp_path, capsys):
    corpus = write_corpus(
        tmp_path / "c.jsonl", [Passage("title", "mill", "a b c d e f g h"), Passage("text", "river", "mill mill mill")]
    )
    argv = ["--path", str(corpus), "--index", str(tmp_path / "i")]
    for boost, first in (("4", "title"), ("0", "text")):
        main([*argv, "--title_boost", boost])
        assert ids(open_index(tmp_path / "i").search("mill", 2))[0] == first
    # Nothing was built again for it, and how to get this index is recorded.
    assert "already an index of this corpus" in capsys.readouterr().out
    record = read_run_record(tmp_path / "i")
    assert record and len(record.starts) == 2


def test_a_search_leaves_the_interpreter_to_other_threads(tmp_path):
    """Were it held, the short search could not end before the long one."""
    rng = random.Random(0)
    texts = (" ".join(rng.choices([f"w{n}" for n in range(500)], k=40)) for _ in range(5_000))
    retriever = index_of(tmp_path / "i", *texts)
    long = tantivy.Query.boolean_query(
        [(tantivy.Occur.Should, tantivy.Query.term_query(retriever._schema, "contents", f"w{n}")) for n in range(500)]
    )
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(lambda: [retriever._searcher.search(long, 5_000, count=True) for _ in range(20)])
        ticks = 0
        while not ended.done():
            ticks += 1
    assert ticks > 20


def test_an_index_whose_passages_and_words_differ_in_number_is_refused(tmp_path):
    build(numbered(1, 2, 3), tmp_path / "i")
    manifest = json.loads((tmp_path / "i" / MANIFEST).read_text())
    (tmp_path / "i" / MANIFEST).write_text(json.dumps(manifest | {"passages": 2}))
    with pytest.raises(UserError, match=r"is damaged .* build it again"):
        open_index(tmp_path / "i")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--path", "c.jsonl", "--analyzer", "klingon"], "unknown analyzer 'klingon'"),
        (["--path", "c.jsonl", "--encoder", "m/n", "--analyzer", "plain"], "are those of BM25"),
        (["--path", "c.jsonl", "--title_boost", "-1"], "title_boost: -1.0 is too small"),
    ],
)
def test_options_that_do_not_fit_are_named(tmp_path, monkeypatch, argv, told):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "c.jsonl", numbered(1, 2))
    build(numbered(1, 2), tmp_path / "i")
    with pytest.raises(UserError, match=told):
        main(["--index", "i", *argv])


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("谁建造了森河磨坊？", "森河磨坊由林达于一七〇二年建造。", "奥尔桥在托斯克村。"),
        ("セン水車は誰が建てた？", "セン水車はオダ・リンドが建てた。", "オル橋はトスク村にある。"),
        ("ใครสร้างโรงสี", "โรงสีสร้างโดยโอดา", "สะพานอยู่ในหมู่บ้าน"),
        ("ໃຜສ້າງໂຮງສີ", "ໂຮງສີສ້າງໂດຍໂອດາ", "ຂົວຢູ່ບ້ານ"),
        ("នរណាសង់រោងម៉ាស៊ីន", "រោងម៉ាស៊ីនសង់ដោយអូដា", "ស្ពាននៅភូមិ"),
        ("စက်ရုံကိုဘယ်သူဆောက်လဲ", "စက်ရုံကိုအိုဒါဆောက်ခဲ့သည်", "တံတားသည်ရွာတွင်ရှိ"),
        ("물레방아는 누가 지었나?", "물레방아를 오다가 지었다.", "다리가 마을에 있다."),
        ("विद्यालय", "यह विद्यालय है।", "यह पुल है।"),
    ],
)
def test_a_question_in_a_script_without_spaces_finds_its_passage(tmp_path, question, right, wrong):
    assert ids(index_of(tmp_path / "i", wrong, right).search(question, 1)) == ["p1"]


def test_a_single_character_of_a_longer_name_is_found(tmp_path):
    assert ids(index_of(tmp_path / "i", "橋は村にある", "水車は川にある").search("川", 5)) == ["p1"]


def test_a_text_without_such_scripts_is_indexed_as_it_is():
    text = "Naïve cafés – “Ærø”, U.S. 1939–1945 Москва Αθήνα"
    assert bm25._unspaced(text, "english") == ""


def test_a_name_in_another_script_does_not_change_how_well_a_passage_fits_an_english_query(tmp_path):
    """It would make the passage many words longer."""
    passages = [
        Passage("long", "Harbour", "The harbour town has lights."),
        Passage("named", "Harbour", "The harbour (정준영정준영정준영)."),
    ]
    bm25.build(passages, tmp_path / "index")
    index = bm25.BM25(tmp_path / "index")
    assert [each.id for each in index.search("harbour", 2)] == ["named", "long"]
    assert [each.id for each in index.search("준영", 2)] == ["named"]


def test_passages_whose_letters_become_no_words_are_warned_of(tmp_path, caplog):
    index_of(tmp_path / "i", "x" * 300, "y" * 300)
    assert "the letters become no words, such as 'x" in caplog.text


def test_an_index_whose_words_another_release_made_is_refused_and_built_again(tmp_path):
    build(numbered(1), tmp_path / "i", source="s")
    file = tmp_path / "i" / MANIFEST
    file.write_text(file.read_text().replace(bm25.WORDS, "notewriter/words/1, tantivy 0.26"))
    with pytest.raises(UserError, match=r"its words were made by .*tantivy 0\.26.*build it again with"):
        BM25(tmp_path / "i")
    assert not bm25.is_current(tmp_path / "i", "s")
