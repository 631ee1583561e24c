"""A killed build goes on: no passage is lost or written twice."""

import json
import multiprocessing
import os
import signal
import time

import pytest
from corpus_files import read_corpus

from notewriter.corpora import corpus, writing


def write_wiki(path, count):
    with open(path, "w") as file:
        for number in range(count):
            text = (
                "not json\n"
                if number % 1000 == 7
                else json.dumps({"id": str(number), "contents": f"T\n{number} x"}) + "\n"
            )
            file.write(text)
    return path


def test_a_build_that_is_killed_again_and_again_writes_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "SYNC_SECONDS", 0.02)
    source = write_wiki(tmp_path / "wiki-18.jsonl", 30_000)
    options = ["--source", "wiki-18", "--path", str(source), "--split", "words", "--size", "1", "--output_dir"]
    corpus.main([*options, str(tmp_path / "whole")])
    progress, seen = tmp_path / "killed.partial" / "progress.json", [0]
    while len(seen) < 4:
        process = multiprocessing.get_context("fork").Process(
            target=corpus.main, args=([*options, str(tmp_path / "killed")],)
        )
        process.start()
        while process.is_alive():
            if progress.exists() and json.loads(progress.read_text())["documents"] > seen[-1] + 2000:
                process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "finished before it was killed; write a longer source"
        seen.append(json.loads(progress.read_text())["documents"])
    corpus.main([*options, str(tmp_path / "killed")])
    for name in ("corpus.jsonl", "skipped.jsonl", "manifest.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not progress.exists()


class Killed(BaseException):
    """Ends a build at a chosen record, as a kill would: nothing more is flushed."""


@pytest.fixture
def kill_at(monkeypatch):
    """Kill the next build when a document's id is reached."""

    def arrange(id):
        add = writing._Output._add

        def stop(self, place, document):
            if document.id == id:
                monkeypatch.setattr(writing._Output, "_add", add)
                # What was written after the last sync may or may not have reached the disk.
                os.write(self._corpus.fileno(), b'{"id": "half')
                raise Killed
            add(self, place, document)

        monkeypatch.setattr(writing._Output, "_add", stop)

    return arrange


@pytest.mark.parametrize("stop", ["c.md", "f.md", "h.md"])
def test_a_folder_is_resumed_between_and_within_syncs(tmp_path, kill_at, monkeypatch, stop):
    (tmp_path / "docs").mkdir()
    for name in "abcdefgh":
        (tmp_path / "docs" / f"{name}.md").write_text(
            "" if name == "d" else f"# {name}\n\nText {name}.\n\n## B\n\nMore.\n"
        )
    options = ["--source", "folder", "--path", str(tmp_path / "docs"), "--output_dir"]
    corpus.main([*options, str(tmp_path / "whole")])
    clock = iter(range(0, 10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    kill_at(stop)
    with pytest.raises(Killed):
        corpus.main([*options, str(tmp_path / "killed")])
    corpus.main([*options, str(tmp_path / "killed")])
    for name in ("corpus.jsonl", "skipped.jsonl", "manifest.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_repeated_documents_are_recognised_after_a_resumption(tmp_path, kill_at, monkeypatch):
    monkeypatch.setattr(writing, "SYNC_SECONDS", -1.0)
    contexts = [[["Osk", ["A river."]]], [["Varn", ["A village."]]], [["Osk", ["A river."]], ["Tolen", ["A town."]]]]
    (tmp_path / "train.json").write_text(json.dumps([{"_id": str(i), "context": c} for i, c in enumerate(contexts)]))
    arguments = ["--source", "ircot-2wikimultihopqa", "--path", str(tmp_path), "--output_dir", str(tmp_path / "out")]
    kill_at(next(each for each in ids(contexts) if each.startswith("Tolen")))
    with pytest.raises(Killed):
        corpus.main(arguments)
    corpus.main(arguments)
    assert [passage["title"] for passage in read_corpus(tmp_path / "out")] == ["Osk", "Varn", "Tolen"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["repeated_documents"] == 1


def ids(contexts):
    from notewriter.datasets.reading import passage_id

    return [passage_id(title, " ".join(sentences)) for context in contexts for title, sentences in context]


def test_other_settings_or_documents_begin_anew(tmp_path, kill_at, monkeypatch):
    monkeypatch.setattr(writing, "SYNC_SECONDS", -1.0)
    (tmp_path / "docs").mkdir()
    for name in "ab":
        (tmp_path / "docs" / f"{name}.txt").write_text("one two three")
    options = ["--source", "folder", "--path", str(tmp_path / "docs"), "--output_dir", str(tmp_path / "out")]
    kill_at("b.txt")
    with pytest.raises(Killed):
        corpus.main([*options, "--split", "words", "--size", "1"])
    corpus.main([*options, "--split", "none"])
    assert [passage["id"] for passage in read_corpus(tmp_path / "out")] == ["a.txt", "b.txt"]


def test_a_shortened_output_is_written_again(tmp_path, kill_at, monkeypatch):
    monkeypatch.setattr(writing, "SYNC_SECONDS", -1.0)
    (tmp_path / "docs").mkdir()
    for name in "abc":
        (tmp_path / "docs" / f"{name}.txt").write_text("one two three")
    arguments = ["--source", "folder", "--path", str(tmp_path / "docs"), "--output_dir", str(tmp_path / "out")]
    kill_at("c.txt")
    with pytest.raises(Killed):
        corpus.main(arguments)
    os.truncate(tmp_path / "out.partial" / "corpus.jsonl", 5)
    corpus.main(arguments)
    assert [passage["id"] for passage in read_corpus(tmp_path / "out")] == ["a.txt#1", "b.txt#1", "c.txt#1"]


@pytest.mark.parametrize("damage", ["not json", "[]", "{}", '{"identity": "another"}'])
def test_a_build_whose_progress_is_damaged_starts_again(tmp_path, kill_at, monkeypatch, damage):
    (tmp_path / "docs").mkdir()
    for name in "abcd":
        (tmp_path / "docs" / f"{name}.md").write_text(f"# {name}\n\nText {name}.\n")
    options = ["--source", "folder", "--path", str(tmp_path / "docs"), "--output_dir"]
    corpus.main([*options, str(tmp_path / "whole")])
    kill_at("c.md")
    with pytest.raises(Killed):
        corpus.main([*options, str(tmp_path / "killed")])
    (tmp_path / "killed.partial" / "progress.json").write_text(damage)
    corpus.main([*options, str(tmp_path / "killed")])
    assert (tmp_path / "killed/corpus.jsonl").read_bytes() == (tmp_path / "whole/corpus.jsonl").read_bytes()
