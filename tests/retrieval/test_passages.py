"""Passages on disk, by position and by id."""

import os

import numpy as np
import pytest

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import passages
from notewriter.retrieval.passages import Passages, Writer, link


def numbered(*numbers: int) -> list[Passage]:
    return [Passage(f"p{number}", f"T{number}", f"text {number} é\u2028\n") for number in numbers]


def write(folder, some: list[Passage]) -> int:
    with Writer(folder) as store:
        for passage in some:
            store.append(passage)
        return store.finish()


def test_passages_come_back_by_position_and_by_id(tmp_path):
    assert write(tmp_path, numbered(3, 1, 2)) == 3
    store = Passages(tmp_path)
    assert list(store) == numbered(3, 1, 2)
    assert [store.find(id) for id in ("p3", "p1", "p2", "p8", "\ud800")] == [0, 1, 2, None, None]


def test_a_scope_names_passages_by_id_or_title(tmp_path):
    again, same = Passage("again", "T3", "another part of T3"), Passage("T1", "Same", "its id is the title of another")
    write(tmp_path, [*numbered(3, 1), again, same])
    assert Passages(tmp_path).within({"T3", "p1", "nothing"}).tolist() == [0, 1, 2]
    assert Passages(tmp_path).within({"T1"}).tolist() == [1, 3]


def test_a_scope_of_another_corpus_is_told(tmp_path, caplog):
    write(tmp_path, numbered(3, 1))
    assert Passages(tmp_path).within({"T3", "nothing"}).tolist() == [0] and not caplog.text
    assert Passages(tmp_path).within({"nothing"}).tolist() == []
    assert f"{tmp_path}: has no passage of a question's documents" in caplog.text


def test_ids_are_unique_also_where_their_hashes_are_equal(tmp_path, monkeypatch):
    monkeypatch.setattr(passages, "hash64", lambda id: len(id))
    write(tmp_path, numbered(1, 2, 3))
    store = Passages(tmp_path)
    assert [store.find(id) for id in ("p1", "p3", "p4")] == [0, 2, None]
    with pytest.raises(UserError, match="passages 1 and 3 have the same id 'p5'"):
        write(tmp_path, numbered(5, 6, 5))
    with pytest.raises(UserError, match="no passages to index"):
        write(tmp_path, [])


def test_passages_are_shared(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a", numbered(1, 2))
    link(tmp_path / "a", tmp_path / "b")
    assert os.path.samefile(tmp_path / "a" / passages.PASSAGES, tmp_path / "b" / passages.PASSAGES)
    assert list(Passages(tmp_path / "b")) == numbered(1, 2)


def test_damaged_files_are_named(tmp_path):
    write(tmp_path, numbered(1, 2))
    lines = (tmp_path / passages.LINES).read_bytes()
    (tmp_path / passages.PASSAGES).write_bytes((tmp_path / passages.PASSAGES).read_bytes()[:-1])
    with pytest.raises(UserError, match=r"is damaged .* remove it and build it again"):
        Passages(tmp_path)
    (tmp_path / passages.LINES).write_bytes(lines[:40])
    with pytest.raises(UserError, match=r"cannot be opened .* remove it and build it again"):
        Passages(tmp_path)
    np.save(tmp_path / passages.LINES, np.array([object()]), allow_pickle=True)
    with pytest.raises(UserError, match=r"cannot be opened .* remove it and build it again"):
        Passages(tmp_path)
