"""Passages on disk, by position and by id."""

import os

import numpy as np
import pytest

from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import passages
from notewriter.retrieval.passages import Passages, Writer, delete, link


def numbered(*numbers: int) -> list[Passage]:
    return [Passage(f"p{number}", f"T{number}", f"text {number} é\u2028\n") for number in numbers]


def write(folder, some: list[Passage], done: int = 0) -> int:
    with Writer(folder, done) as store:
        for passage in some:
            store.append(passage)
        return store.finish()


def test_passages_come_back_by_position_and_by_id_whichever_writer_wrote_them(tmp_path):
    assert write(tmp_path, numbered(3, 1, 2)) == 3
    assert write(tmp_path, numbered(9, 7)) == 5
    store = Passages(tmp_path)
    assert list(store) == numbered(3, 1, 2, 9, 7)
    assert [store.find(id) for id in ("p3", "p1", "p2", "p9", "p7", "p8", "\ud800")] == [0, 1, 2, 3, 4, None, None]


def test_a_scope_names_passages_by_id_or_title_also_in_folders_of_earlier_versions(tmp_path):
    write(tmp_path, [*numbered(3, 1), Passage("again", "T3", "another part of T3")])
    write(tmp_path, [Passage("T1", "Added", "its id is the title of another")])
    for _ in range(2):
        assert Passages(tmp_path).within({"T3", "p1", "nothing"}).tolist() == [0, 1, 2]
        assert Passages(tmp_path).within({"T1"}).tolist() == [1, 3]
        # The hashes of titles are computed where there is no file of them.
        for file in tmp_path.glob("titles*.npy"):
            file.unlink()
    delete(tmp_path, [0])
    assert Passages(tmp_path).within({"T3"}).tolist() == [2]


def test_the_first_passages_are_those_that_are_not_deleted(tmp_path):
    write(tmp_path, numbered(3, 1, 2, 9))
    delete(tmp_path, [1])
    assert Passages(tmp_path).first(2) == numbered(3, 2)
    assert Passages(tmp_path).first(9) == numbered(3, 2, 9)


def test_what_an_interrupted_writer_has_synced_is_kept_and_the_rest_written_anew(tmp_path):
    with Writer(tmp_path / ".") as store:
        for passage in numbered(*range(5)):
            store.append(passage)
        store.sync()
    assert len(Passages(tmp_path)) == 0
    inode = os.stat(tmp_path / passages.PASSAGES).st_ino
    assert write(tmp_path, numbered(*range(8)), done=3) == 8
    assert list(Passages(tmp_path)) == numbered(*range(8))
    assert os.stat(tmp_path / passages.PASSAGES).st_ino == inode


def test_ids_are_unique_among_all_writers_also_where_their_hashes_are_equal(tmp_path, monkeypatch):
    monkeypatch.setattr(passages, "hash64", lambda id: len(id))
    write(tmp_path, numbered(1, 2, 3))
    store = Passages(tmp_path)
    assert [store.find(id) for id in ("p1", "p3", "p4")] == [0, 2, None]
    with pytest.raises(UserError, match="passages 1 and 3 have the same id 'p5'"):
        write(tmp_path, numbered(5, 6, 5))
    with pytest.raises(UserError, match="passage 2 has the id 'p2', which is in the index"):
        write(tmp_path, numbered(5, 2))
    with pytest.raises(UserError, match="no passages to index"):
        write(tmp_path, [])
    assert list(Passages(tmp_path)) == numbered(1, 2, 3)


def test_a_deleted_id_is_found_no_more_and_can_come_back(tmp_path):
    write(tmp_path, numbered(1, 2))
    delete(tmp_path, [0])
    assert Passages(tmp_path).find("p1") is None
    assert write(tmp_path, numbered(1)) == 3
    assert Passages(tmp_path).find("p1") == 2


def test_passages_are_shared_until_one_of_the_folders_gets_more(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a", numbered(1, 2))
    link(tmp_path / "a", tmp_path / "b")
    assert os.path.samefile(tmp_path / "a" / passages.PASSAGES, tmp_path / "b" / passages.PASSAGES)
    write(tmp_path / "b", numbered(3))
    assert [len(Passages(tmp_path / name)) for name in "ab"] == [2, 3]
    delete(tmp_path / "b", [0])
    with pytest.raises(UserError, match="some of its passages are deleted; build the index without --share"):
        link(tmp_path / "b", tmp_path / "a")


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
