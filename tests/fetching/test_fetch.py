"""Fetching benchmarks, corpora and indexes: completely or not at all, and found afterwards by name."""

import gzip
import hashlib
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fake_hub import TOKEN, Hub, Stored, packed
from huggingface_hub import constants

from notewriter.corpora import corpus
from notewriter.corpora.published import PUBLISHED
from notewriter.corpora.sources import SOURCES
from notewriter.datasets import BENCHMARKS, load_questions, question_file
from notewriter.datasets.questions import QuestionArguments, load_selected
from notewriter.fetching import download, fetch
from notewriter.fetching.catalogue import RELEASES
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.releases import FETCHED, Release
from notewriter.retrieval import index
from notewriter.retrieval.published import INDEXES, vectors_file

FRAMES = b"Prompt\tAnswer\nWho founded Tolen?\tMira Tolen\n"
HOTPOTQA = json.dumps(
    [
        {
            **{"_id": "q1", "question": "Who founded Tolen?", "answer": "Mira Tolen"},
            **{"supporting_facts": [["Tolen", 0]], "context": [["Tolen", ["Tolen was founded by Mira Tolen."]]]},
        }
    ]
).encode()
COMMAND = [sys.executable, "-m", "notewriter.cli", "fetch"]


def release(name: str) -> Release:
    found = BENCHMARKS[name].source
    assert found is not None
    return found


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def frames(hub: Hub) -> Release:
    """A release of one small file, which the hub has."""
    hub.publish_release(release("frames"), {"test.tsv": FRAMES})
    return release("frames")


def unchecked(*argv: str) -> None:
    fetch.main([*argv, "--check", "false"])


# What lies where


def test_a_dataset_lies_in_the_home_folder_with_its_origin(frames: Release, tmp_path: Path) -> None:
    unchecked("dataset", "frames")
    assert frames.folder == tmp_path / "notewriter" / "frames"
    assert (frames.folder / "test.tsv").read_bytes() == FRAMES
    record = json.loads((frames.folder / "origin.json").read_text())
    assert (record["licence"], record["page"]) == (frames.licence, frames.page)
    file = record["files"]["test.tsv"]
    assert (file["address"], file["bytes"], file["sha256"]) == (frames.files[0].address, len(FRAMES), sha256(FRAMES))
    assert file["commit"] in file["address"]
    assert {path.name for path in tmp_path.joinpath("notewriter").iterdir()} == {"frames"}
    assert {path.name for path in frames.folder.iterdir()} == {"test.tsv", "origin.json"}


def test_commands_find_it_by_the_name_of_the_dataset(frames: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked("dataset", "frames")
    monkeypatch.chdir("/")
    arguments = QuestionArguments(dataset="frames", split="test", output_dir="runs/a")
    recorded, questions = load_selected(arguments)
    assert [question.answers for question in questions] == [("Mira Tolen",)]
    assert recorded.path == str(frames.folder / "test.tsv")
    # A run's record has the path, and is read again.
    assert load_selected(recorded) == (recorded, questions)


@pytest.mark.usefixtures("hub")
def test_where_it_is_missing_the_error_says_the_command_that_gets_it() -> None:
    def load(**options: str) -> object:
        return load_selected(QuestionArguments(output_dir="runs/a", **options))

    with pytest.raises(
        UserError, match=r"frames/test.tsv: is not there; get it with `notewriter fetch dataset frames`"
    ):
        load(dataset="frames")
    with pytest.raises(UserError, match=r"path: jsonl is published nowhere; add --path"):
        load(dataset="jsonl")
    with pytest.raises(UserError, match=r"split: frames has no split 'dev'; choose one of: test"):
        load(dataset="frames", split="dev")
    with pytest.raises(UserError, match=r"split: chooses among fetched files"):
        load(dataset="frames", split="test", path="a.tsv")


def test_one_split_can_be_fetched_and_the_others_later(hub: Hub) -> None:
    hotpotqa = release("hotpotqa")
    names = [file.here for file in hotpotqa.files]
    hub.publish_release(hotpotqa, dict.fromkeys(names, HOTPOTQA))
    unchecked("dataset", "hotpotqa", "--split", "dev")
    assert hotpotqa.path(None, "dataset", "hotpotqa").name == names[0]
    with pytest.raises(UserError, match="get it with"):
        hotpotqa.path("train", "dataset", "hotpotqa")
    served = hub.served
    unchecked("dataset", "hotpotqa")
    assert hotpotqa.path("train", "dataset", "hotpotqa").read_bytes() == HOTPOTQA
    assert hub.served - served == len(HOTPOTQA)
    assert set(json.loads((hotpotqa.folder / "origin.json").read_text())["files"]) == set(names)


def test_what_is_there_is_not_fetched_again(hub: Hub, frames: Release, capsys: pytest.CaptureFixture[str]) -> None:
    unchecked("dataset", "frames")
    requests = len(hub.requests)
    unchecked("dataset", "frames")
    assert len(hub.requests) == requests
    assert capsys.readouterr().out.endswith(f"{frames.folder}: complete\n")


def test_a_file_of_another_revision_is_replaced(hub: Hub, frames: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked("dataset", "frames")
    address = "hf://datasets/google/frames-benchmark@" + "a" * 40 + "/test.tsv"
    newer = replace(frames, files=(replace(frames.files[0], address=address),))
    monkeypatch.setitem(BENCHMARKS, "frames", replace(BENCHMARKS["frames"], source=newer))
    hub.publish(address, FRAMES + b"When?\t1871\n")
    unchecked("dataset", "frames")
    assert (frames.folder / "test.tsv").read_bytes().endswith(b"1871\n")


def test_files_that_were_copied_by_hand_are_found(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = release("frames").folder
    folder.mkdir(parents=True)
    (folder / "test.tsv").write_bytes(FRAMES)
    assert question_file("frames", FETCHED, None) == str(folder / "test.tsv")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    unchecked("dataset", "frames")
    assert f"{folder}: is there, and cannot be checked without the internet" in caplog.text


# Archives and parts


def test_files_of_one_archive_are_downloaded_once(hub: Hub) -> None:
    two_wiki = release("2wikimultihopqa")
    contents = {file.here: HOTPOTQA for file in two_wiki.files} | {"id_aliases.json": b'{"Q_id": "q", "aliases": []}\n'}
    hub.publish_release(two_wiki, contents)
    unchecked("dataset", "2wikimultihopqa")
    assert {path.name for path in two_wiki.folder.iterdir()} == {*contents, "origin.json"}
    assert sum(request.startswith("GET") for request in hub.requests) == 1


def test_a_member_is_found_in_whatever_folder_of_its_archive(hub: Hub) -> None:
    iirc = release("iirc")
    hub.publish_release(iirc, {"context_articles.json": b"{}"})
    members = {"iirc_train_dev/dev.json": b"[1]", "iirc_train_dev/train.json": b"[2]", "iirc_train_dev/._dev.json": b""}
    hub.publish(iirc.files[1].addresses[0], packed(".tgz", members))
    unchecked("dataset", "iirc", "--split", "dev")
    assert iirc.path("dev", "dataset", "iirc").read_bytes() == b"[1]"
    assert (iirc.folder / "context_articles.json").read_bytes() == b"{}"


def test_a_folder_of_an_archive_and_a_compressed_file_are_unpacked(hub: Hub) -> None:
    abstracts = SOURCES["ircot-hotpotqa"].files
    assert isinstance(abstracts, Release)
    line = b'{"title": "Tolen", "text": ["A town."]}\n'
    name = abstracts.files[0].here
    hub.publish(abstracts.files[0].addresses[0], packed(".tar.bz2", {f"{name}/AA/wiki_00": line}))
    unchecked("corpus", "ircot-hotpotqa")
    assert (abstracts.folder / name / "AA" / "wiki_00").read_bytes() == line
    nq = release("nq")
    record = json.dumps({"question": "Who?", "answers": ["Mira"], "ctxs": []}).encode() + b"\n"
    hub.publish_release(nq, {nq.files[2].here: record})
    unchecked("dataset", "nq", "--split", "contexts")
    assert nq.path("contexts", "dataset", "nq").read_bytes() == record


def test_parts_are_joined_without_room_for_both(hub: Hub, tmp_path: Path) -> None:
    vectors = INDEXES["wiki-18-e5-flat"]
    content = bytes(range(256)) * 2000
    hub.publish_release(vectors, {"e5_Flat.index": content})
    with pytest.raises(UserError, match="`notewriter fetch index wiki-18-e5-flat`"):
        vectors_file("wiki-18-e5-flat")
    unchecked("index", "wiki-18-e5-flat")
    assert vectors_file("wiki-18-e5-flat").read_bytes() == content
    assert [path.name for path in vectors.folder.iterdir() if path.name != "origin.json"] == ["e5_Flat.index"]


def test_a_join_that_was_killed_is_done_again(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = INDEXES["wiki-18-e5-flat"]
    content = bytes(range(256)) * 2000
    hub.publish_release(vectors, {"e5_Flat.index": content})

    def killed(source: object, target: object, length: int = 0) -> None:
        target.write(b"half of the second part")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(download.shutil, "copyfileobj", killed)
        unchecked("index", "wiki-18-e5-flat")
    served = hub.served
    unchecked("index", "wiki-18-e5-flat")
    assert vectors_file("wiki-18-e5-flat").read_bytes() == content
    assert hub.served == served


# Interruptions


def test_a_killed_download_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    content = b"Prompt\tAnswer\n" + b"Who?\tMira\n" * 400_000
    hub.publish_release(release("frames"), {"test.tsv": content})
    hub.pace = 0.05
    environment = os.environ | hub.environment(tmp_path)
    process = subprocess.Popen([*COMMAND, "dataset", "frames", "--check", "false"], env=environment)
    deadline = time.monotonic() + 120
    while hub.served < 1 << 20 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    folder = release("frames").folder
    (part,) = folder.with_name("frames.partial").rglob("*.part")
    received = part.stat().st_size
    assert 0 < received < len(content)
    assert not folder.exists()
    hub.pace, before = 0.0, hub.served
    unchecked("dataset", "frames")
    assert (folder / "test.tsv").read_bytes() == content
    # The kernel's buffers may have taken some bytes of the first connection after it was killed.
    assert [request for request in hub.ranges if request] == [f"bytes={received}-"]
    assert hub.served - before >= len(content) - received
    assert not folder.with_name("frames.partial").exists()


def test_a_broken_connection_is_resumed(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    content = b"Prompt\tAnswer\n" + b"Who?\tMira\n" * 40_000
    hub.publish_release(release("frames"), {"test.tsv": content})
    hub.faults = [("GET /datasets/google/frames-benchmark/resolve", "half")]
    unchecked("dataset", "frames")
    assert (release("frames").folder / "test.tsv").read_bytes() == content
    assert "the connection broke" in caplog.text


def test_a_file_that_is_stored_compressed_stays_as_it_is(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers send a .gz file as an encoded one, whose length is that of what is sent."""
    dpr = RELEASES["corpus"]()["dpr"]
    content = gzip.compress(b"id\ttext\ttitle\n")
    hub.publish_release(dpr, {"psgs_w100.tsv.gz": content})
    hub.encoding = "gzip"
    unchecked("corpus", "dpr")
    assert (dpr.folder / "psgs_w100.tsv.gz").read_bytes() == content


# What can be wrong


def test_another_number_of_questions_is_refused_and_leaves_nothing(hub: Hub, frames: Release) -> None:
    with pytest.raises(UserError, match=r"has 1 questions, not 824: .*--check false, or run the same command again"):
        fetch.main(["dataset", "frames"])
    assert not frames.folder.exists()
    with pytest.raises(UserError, match="has 1 questions, not 824"):
        fetch.main(["dataset", "frames"])


def test_another_size_and_another_hash_are_refused(hub: Hub) -> None:
    for name in ("fanoutqa", "popqa"):
        hub.publish_release(release(name), {file.here: b"something else" for file in release(name).files})
    with pytest.raises(
        UserError, match=r"fanout-final-dev.json: has 14 bytes, not 1,205,846: this is not the published version"
    ):
        fetch.main(["dataset", "fanoutqa"])
    with pytest.raises(
        UserError, match=rf"popQA.tsv: has {sha256(b'something else')[:12]} as SHA-256, not 9a5227f41bff"
    ):
        fetch.main(["dataset", "popqa"])
    assert not release("popqa").folder.exists()


def test_another_file_is_not_sent_again_to_be_taken_as_it_is(hub: Hub) -> None:
    popqa = release("popqa")
    hub.publish_release(popqa, {popqa.files[0].here: b"something else"})
    with pytest.raises(UserError, match=r"--check false, or remove (\S+) and run the same command again") as refused:
        fetch.main(["dataset", "popqa"])
    (kept,) = re.findall(r"remove (\S+) and", str(refused.value))
    assert Path(kept).read_bytes() == b"something else"
    sent = hub.served
    unchecked("dataset", "popqa")
    assert (popqa.folder / popqa.files[0].here).read_bytes() == b"something else"
    assert hub.served - sent < 10


def test_what_the_server_sends_must_be_what_it_announced(hub: Hub) -> None:
    class Damaged(dict[str, bytes]):
        def __getitem__(self, key: str) -> bytes:
            return super().__getitem__(key)[:-1] + b"?"

    hub.publish_release(INDEXES["wiki-18-e5-flat"], {"e5_Flat.index": bytes(1000)})
    hub.objects = Damaged()
    with pytest.raises(UserError, match=r"part_aa: what was received has .* as SHA-256, not .*; run the same command"):
        unchecked("index", "wiki-18-e5-flat")
    assert not INDEXES["wiki-18-e5-flat"].folder.exists()


def test_a_damaged_archive_is_named(hub: Hub) -> None:
    hub.publish(release("strategyqa").files[0].addresses[0], b"PK, but no archive")
    with pytest.raises(UserError, match=r"strategyqa_dataset.zip: is damaged \(.*\); run the same command again"):
        unchecked("dataset", "strategyqa")


def test_a_repository_that_moved_is_followed_and_said(
    hub: Hub, frames: Release, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = "google/frames-benchmark", "google/frames"
    hub.repositories["dataset", new] = hub.repositories.pop(("dataset", old))
    hub.moved[old] = new
    unchecked("dataset", "frames")
    assert f"{old}: has moved to {new}" in caplog.text


def repository(hub: Hub) -> Stored:
    return hub.repositories["dataset", "google/frames-benchmark"]


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda hub: hub.repositories.clear(), "there is no such repository, or it is private; check the name at "),
        (lambda hub: repository(hub).branches.clear(), "this revision is gone"),
        (lambda hub: [files.clear() for files in repository(hub).branches.values()], "the file is gone; look for it"),
        (lambda hub: hub.gated.add("google/frames-benchmark"), "is gated; accept its conditions at "),
        (lambda hub: setattr(hub, "is_proxy", True), "a proxy or a login may stand before it"),
        (lambda hub: hub.faults.extend([("HEAD /datasets", 503)] * 9), "answered with status 503; try later"),
        (lambda hub: hub.faults.append(("GET /datasets", 429)), "answered with status 429; try later"),
    ],
    ids=["no repository", "no revision", "no file", "gated", "proxy", "fault", "too many requests"],
)  # fmt: skip
def test_what_the_hub_refuses_is_one_line_with_a_remedy(
    break_it: Callable[[Hub], object], told: str, hub: Hub, tmp_path: Path
) -> None:
    hub.publish_release(release("frames"), {"test.tsv": FRAMES})
    break_it(hub)
    done = subprocess.run(
        [*COMMAND, "dataset", "frames"], env=os.environ | hub.environment(tmp_path), capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: hf://datasets/google/frames-benchmark@") and told in line
    assert not list(tmp_path.rglob("*.tsv"))


def test_a_page_and_a_missing_file_of_another_server_are_told(hub: Hub) -> None:
    with pytest.raises(UserError, match=r"popQA.tsv: http.* answered with status 404; the file may have moved"):
        unchecked("dataset", "popqa")
    hub.is_proxy = True
    with pytest.raises(UserError, match=r"did not send the file \(it answered with a web page\); a proxy"):
        unchecked("dataset", "popqa")


def test_a_disk_that_is_too_small_is_said_before_the_download(
    hub: Hub, frames: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "free", lambda folder: 1000)
    with pytest.raises(UserError, match=r"needs 268 MB, and 1 kB are free; free some space or set NOTEWRITER_HOME"):
        unchecked("dataset", "frames")
    assert hub.served == 0


def test_an_archive_needs_room_once_whatever_is_taken_from_it(hub: Hub) -> None:
    twowiki = release("2wikimultihopqa")
    hub.publish_release(twowiki, {file.here: bytes(1000) for file in twowiki.files})
    to_do = download.plan(twowiki.files, "")
    assert len(to_do) == 4 and download.room_for(to_do) == 4 * download.size_of(to_do)
    contexts = [file for file in release("nq").files if file.split == "contexts"]
    hub.publish_release(release("nq"), {contexts[0].here: bytes(1000)})
    compressed = download.plan(contexts, "")
    assert download.room_for(compressed) == 4 * download.size_of(compressed)


@pytest.mark.parametrize("offline", ["HF_HUB_OFFLINE", "no answer"])
def test_an_offline_machine_is_told_what_to_copy_where(
    offline: str, hub: Hub, frames: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    if offline == "HF_HUB_OFFLINE":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
        )
    with pytest.raises(UserError) as caught:
        unchecked("dataset", "frames")
    assert "cannot be reached" in str(caught.value)
    copy = f"run `notewriter fetch dataset frames` and copy the folder that it names here as {frames.folder}"
    assert copy in str(caught.value)


def test_a_token_goes_to_the_hub_alone_and_is_written_nowhere(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.gated = {"PeterJinGo/wiki-18-e5-index"}
    hub.publish_release(INDEXES["wiki-18-e5-flat"], {"e5_Flat.index": bytes(1000)})
    hub.publish_release(release("popqa"), {"popQA.tsv": b"id\n"})
    unchecked("index", "wiki-18-e5-flat")
    unchecked("dataset", "popqa")
    assert f"Bearer {TOKEN}" in hub.authorizations
    assert hub.authorizations_elsewhere == {None}
    shown = capsys.readouterr()
    origin = (INDEXES["wiki-18-e5-flat"].folder / "origin.json").read_text()
    assert TOKEN not in shown.out + shown.err + caplog.text + origin


# The list and the plan


def test_a_dry_run_says_what_from_where_its_licence_and_size_and_downloads_nothing(
    hub: Hub, frames: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch.main(["dataset", "frames", "--dry_run", "true"])
    told = capsys.readouterr().out
    assert f"{frames.folder}: {frames.page}, licence apache-2.0" in told
    assert f"test.tsv  {len(FRAMES)} bytes  {frames.files[0].address}" in told
    assert re.search(rf"to download: {len(FRAMES)} bytes; free: \S+ GB", told)
    assert hub.served == 0 and not frames.folder.exists()


def test_a_dry_run_without_the_internet_says_what_is_known(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    fetch.main(["index", "wiki-18-e5-flat", "--dry_run", "true"])
    assert "\nto download: 64.6 GB; free: " in capsys.readouterr().out
    fetch.main(["dataset", "nq", "--dry_run", "true"])
    assert "\nto download: over 16 MB; free: " in capsys.readouterr().out


def test_the_list_has_every_name_with_size_and_licence(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    fetch.main([])
    told = capsys.readouterr().out
    for kind, releases in RELEASES.items():
        for name, each in releases().items():
            assert re.search(rf"^{kind} +{re.escape(name)} .*{re.escape(each.licence)}$", told, re.M)
    assert not hub.requests
    with pytest.raises(SystemExit):
        fetch.main(["--help"])
    assert told in capsys.readouterr().out


def test_an_unknown_kind_or_name_lists_those_that_are_known(hub: Hub) -> None:
    with pytest.raises(UserError, match="unknown kind 'data'; choose one of: dataset, corpus, index, model"):
        fetch.main(["data", "hotpotqa"])
    with pytest.raises(UserError, match=r"unknown corpus 'wiki'; choose one of: .*wiki-18"):
        fetch.main(["corpus", "wiki"])
    with pytest.raises(UserError, match="dataset: its name is missing"):
        fetch.main(["dataset"])
    with pytest.raises(
        UserError, match=r"output_dir: is an option for models; .* lies in .*frames, in \$NOTEWRITER_HOME"
    ):
        fetch.main(["dataset", "frames", "--output_dir", "here"])
    with pytest.raises(UserError, match="split: is an option for datasets; leave it out"):
        fetch.main(["model", "someone/model", "--split", "test"])
    with pytest.raises(UserError, match="split: frames has test; leave out --split"):
        fetch.main(["dataset", "frames", "--split", "train"])


def test_every_benchmark_and_every_corpus_of_the_tables_can_be_fetched() -> None:
    assert set(RELEASES["dataset"]()) == set(BENCHMARKS) - {"jsonl"}
    assert set(RELEASES["corpus"]()) == set(PUBLISHED)
    for releases in RELEASES.values():
        for each in releases().values():
            assert each.files and each.licence and each.page
            assert len({file.here for file in each.files}) == len(each.files)
            for address in (address for file in each.files for address in file.addresses):
                assert re.match(r"hf://(datasets/)?[\w-]+/[\w.-]+@(main|[0-9a-f]{40})/.|https?://", address)
            for file in each.files:
                assert (
                    file.size or file.sha256 or file.rows or file.about or file.unverified or "@" in str(file.address)
                )


def test_a_release_prints_as_where_it_is_and_the_names_of_its_files() -> None:
    assert str(release("hotpotqa")) == "hotpotqa.github.io: hotpot_dev_distractor_v1.json, hotpot_train_v1.1.json"
    assert str(SOURCES["wikipedia"].files).endswith(
        ": 20231101.en/train-00000.parquet, ..., 20231101.en/train-00040.parquet"
    )


# Corpora and indexes afterwards


def test_a_corpus_and_an_index_are_made_of_what_was_fetched(hub: Hub, tmp_path: Path) -> None:
    multihoprag = release("multihoprag")
    article = {"title": "Tolen", "body": "Tolen was founded in 1871.", "url": "https://example.org"}
    questions = [{"query": "When?", "answer": "1871", "evidence_list": []}]
    contents = {"corpus.json": json.dumps([article]).encode(), "MultiHopRAG.json": json.dumps(questions).encode()}
    hub.publish_release(multihoprag, contents)
    argv = ["--source", "multihoprag", "--output_dir", str(tmp_path / "corpus"), "--split", "none"]
    with pytest.raises(UserError, match="`notewriter fetch corpus multihoprag`"):
        corpus.main(argv)
    unchecked("corpus", "multihoprag")
    assert not (multihoprag.folder / "MultiHopRAG.json").exists()
    corpus.main(argv)
    assert [record["title"] for _, record in jsonl.read(tmp_path / "corpus" / "corpus.jsonl")] == ["Tolen"]
    index.main(["--dataset", "multihoprag", "--index", str(tmp_path / "index")])
    unchecked("dataset", "multihoprag")
    assert len(load_questions("multihoprag", multihoprag.path(None, "dataset", "multihoprag"))) == 1


def test_the_archive_of_wiki_18_is_read_as_it_is_too(hub: Hub, tmp_path: Path) -> None:
    lines = b"".join(b'{"id": "%d", "contents": "\\"Tolen\\"\\nText %d."}\n' % (n, n) for n in range(3))
    file = tmp_path / "wiki-18.jsonl.gz"
    file.write_bytes(packed(".tar.gz", {"a/wiki_dump.jsonl": lines}))
    assert b"ustar" in gzip.decompress(file.read_bytes())[:512]
    corpus.main(["--source", "wiki-18", "--path", str(file), "--output_dir", str(tmp_path / "corpus")])
    records = [record for _, record in jsonl.read(tmp_path / "corpus" / "corpus.jsonl")]
    assert [record["text"] for record in records] == ["Text 0.", "Text 1.", "Text 2."]
    assert json.loads((tmp_path / "corpus" / "manifest.json").read_text())["skipped"] == {}


# What a server or an archive says is not trusted


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED, link: str = "") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, text in members:
            archive.writestr(name, text)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc/passwd")
    return content.getvalue()


def taped(*members: tarfile.TarInfo, kind: str = "gz") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=f"w:{kind}") as tape:  # type: ignore[call-overload]
        for member in members:
            tape.addfile(member, io.BytesIO(bytes(member.size)))
    return content.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


def headed(content: bytes, place: int, number: int) -> bytes:
    """An archive with a number at a place of all its headers: 2 for the flags, 4 for the way of compression."""
    for mark, before in ((b"PK\x03\x04", place), (b"PK\x01\x02", place + 2)):
        pattern = re.escape(mark) + b"(.{%d}).." % before
        value = number.to_bytes(2, "little")
        content = re.sub(pattern, lambda at, head=mark, end=value: head + at[1] + end, content, flags=re.DOTALL)
    return content


TRAIN = ("strategyqa_train.json", b"[]")
LZMA = zipped(("strategyqa_train.json", b"[" + b" " * 1000 + b"]"), method=zipfile.ZIP_LZMA)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (headed(zipped(TRAIN), 2, 1), r"cannot be unpacked \(File .* is encrypted"),
        (headed(zipped(TRAIN), 4, 97), "cannot be unpacked"),
        (LZMA[:60] + b"\xff" * 20 + LZMA[80:], "is damaged"),
        (zipped(TRAIN)[:-10], "is damaged"),
        (zipped(("readme", b"")), "contains no strategyqa_train.json"),
        (zipped(link="strategyqa_train.json"), "is a link or no file; unpack it yourself"),
    ],
    ids=["encrypted", "exotic", "damaged LZMA", "cut", "without it", "link"],
)
def test_a_zip_that_cannot_be_unpacked_is_one_line(hub: Hub, content: bytes, told: str) -> None:
    hub.publish(release("strategyqa").files[0].addresses[0], content)
    with pytest.raises(UserError, match=rf"strategyqa_dataset.zip: .*{told}"):
        unchecked("dataset", "strategyqa")
    assert not release("strategyqa").folder.exists()


@pytest.mark.parametrize("above", ["", "../../", "/", "deep/" * 300], ids=["none", "out", "root", "long"])
def test_the_folders_above_a_member_make_no_path(hub: Hub, tmp_path: Path, above: str) -> None:
    before = {path for path in tmp_path.parent.rglob("*") if "notewriter" not in path.parts}
    hub.publish(release("strategyqa").files[0].addresses[0], zipped((f"{above}strategyqa_train.json", b"[1]")))
    unchecked("dataset", "strategyqa", "--split", "train")
    assert (release("strategyqa").folder / "strategyqa_train.json").read_bytes() == b"[1]"
    assert {path for path in tmp_path.parent.rglob("*") if "notewriter" not in path.parts} == before


@pytest.mark.parametrize(
    ("below", "told"),
    [
        ([member("{name}/../../out")], "has a name that leads elsewhere"),
        ([member("{name}//etc/passwd")], "has a name that leads elsewhere"),
        ([member("{name}/a\\..\\b")], "has a name that leads elsewhere"),
        ([member("{name}/a\nb")], "has a name that leads elsewhere"),
        ([member("{name}/link", tarfile.SYMTYPE, "/etc")], "is a link or no file"),
        ([member("{name}/link", tarfile.LNKTYPE, "../../x")], "is a link or no file"),
        ([member("{name}/pipe", tarfile.FIFOTYPE)], "is a link or no file"),
        ([member("{name}/a"), member("{name}/a/b")], "is a file and a folder"),
    ],
)
def test_a_member_that_leads_elsewhere_is_refused_by_name(
    hub: Hub, tmp_path: Path, below: list[tarfile.TarInfo], told: str
) -> None:
    abstracts = SOURCES["ircot-hotpotqa"].files
    assert isinstance(abstracts, Release)
    members = []
    for each in below:
        each = each.replace(name=each.name.replace("{name}", abstracts.files[0].here), deep=False)
        members.append(each)
    hub.publish(abstracts.files[0].addresses[0], taped(*members, kind="bz2"))
    with pytest.raises(UserError, match=rf"its member .* {told}"):
        unchecked("corpus", "ircot-hotpotqa")
    assert not abstracts.folder.exists() and not (tmp_path / "out").exists()


def test_what_unpacks_to_more_than_the_disk_has_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.publish(release("strategyqa").files[0].addresses[0], zipped(TRAIN))
    monkeypatch.setattr(download, "free", lambda path: 0 if ".unpacked" in str(path) else 10**12)
    with pytest.raises(UserError, match="more is unpacked than the disk has room for"):
        unchecked("dataset", "strategyqa", "--split", "train")


def test_a_part_of_a_file_that_has_changed_begins_anew(hub: Hub) -> None:
    """The server's ETag is another one by now, and it sends the whole file; one without ETags says it by the length."""
    popqa, old, new = release("popqa"), b"old" * 50_000, b"new" * 50_000
    hub.publish_release(popqa, {"popQA.tsv": old})
    hub.faults = [("GET /raw.githubusercontent.com", "half")]
    hub.after_fault = lambda: hub.publish_release(popqa, {"popQA.tsv": new})
    unchecked("dataset", "popqa")
    assert (popqa.folder / "popQA.tsv").read_bytes() == new


@pytest.mark.parametrize("answer", ["elsewhere", "longer", "416"])
def test_a_part_that_the_server_does_not_continue_begins_anew(hub: Hub, answer: str) -> None:
    popqa, content = release("popqa"), bytes(range(256)) * 1000
    hub.publish_release(popqa, {"popQA.tsv": content})
    hub.faults = [("GET /raw.githubusercontent.com", "half")]
    hub.continues = answer
    unchecked("dataset", "popqa")
    assert (popqa.folder / "popQA.tsv").read_bytes() == content
    assert [bool(asked) for asked in hub.ranges] == [False, True, False]


def test_an_error_of_the_server_keeps_the_part_that_is_there(hub: Hub) -> None:
    popqa, content = release("popqa"), bytes(range(256)) * 1000
    hub.publish_release(popqa, {"popQA.tsv": content})
    place = "GET /raw.githubusercontent.com"
    hub.faults = [(place, "half"), (place, 503)]
    with pytest.raises(UserError, match="answered with status 503; try later"):
        unchecked("dataset", "popqa")
    served = hub.served
    unchecked("dataset", "popqa")
    assert (popqa.folder / "popQA.tsv").read_bytes() == content and hub.served - served < len(content)


def test_a_connection_that_is_too_slow_counts_as_broken(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.publish_release(release("popqa"), {"popQA.tsv": bytes(2_000_000)})
    hub.pace = 0.2
    monkeypatch.setattr(download, "SLOW_AFTER", 0.1)
    monkeypatch.setattr(download, "SLOWEST", 10**6)
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    with pytest.raises(UserError, match=r"cannot be reached \(less than 1 MB in 0.1 seconds\)"):
        unchecked("dataset", "popqa")


@pytest.mark.parametrize(
    ("mirror", "told"),
    [
        ("http://[::1", "NOTEWRITER_MIRROR: 'http://\\[::1' is not the address"),
        ("mirror.example", "NOTEWRITER_MIRROR: .* does not begin with http"),
        ("http://me:secret@mirror.example", "NOTEWRITER_MIRROR: contains a user name or password"),
        ("http://127.0.0.1:99999", "NOTEWRITER_MIRROR: "),
    ],
)
@pytest.mark.usefixtures("hub")
def test_an_address_of_a_mirror_that_is_none_is_one_line(
    monkeypatch: pytest.MonkeyPatch, mirror: str, told: str
) -> None:
    monkeypatch.setenv("NOTEWRITER_MIRROR", mirror)
    with pytest.raises(UserError, match=told) as refused:
        unchecked("dataset", "popqa")
    assert "secret" not in str(refused.value)


@pytest.mark.usefixtures("hub")
def test_an_address_of_a_proxy_that_is_none_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://proxy.example:1")
    monkeypatch.delenv("NOTEWRITER_MIRROR")
    with pytest.raises(
        UserError, match=r"popQA.tsv: .*Unknown scheme for proxy URL.*; correct HF_ENDPOINT, or the proxy"
    ):
        unchecked("dataset", "popqa")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"files": []}', '{"files": {"test.tsv": 1}}', "{}", "\xff"])
def test_a_damaged_record_of_what_was_fetched_is_one_line(frames: Release, content: str) -> None:
    unchecked("dataset", "frames")
    (frames.folder / "origin.json").write_text(content, encoding="latin-1")
    with pytest.raises(UserError, match=r"origin\.json.*; remove it: the files beside it are fetched again"):
        unchecked("dataset", "frames")


@pytest.mark.parametrize("tag", ['"../../../x"', '"a/b"', '".."', '"' + "a" * 300 + '"'])
def test_an_etag_that_is_no_name_is_refused_before_a_file_is_called_so(hub: Hub, frames: Release, tag: str) -> None:
    hub.tag = tag
    with pytest.raises(UserError, match="its reply is not that of a Hub"):
        unchecked("dataset", "frames")


def test_hotpotqa_which_comes_over_plain_http_is_checked_by_its_hash() -> None:
    plain = [
        file
        for releases in RELEASES.values()
        for each in releases().values()
        for file in each.files
        if any(address.startswith("http://") for address in file.addresses)
    ]
    assert {file.split for file in plain} == {"dev", "train"}
    assert all(len(file.sha256) == 64 and file.size for file in plain)
