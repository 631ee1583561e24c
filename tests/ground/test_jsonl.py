"""JSON Lines: reading, errors, and what an interrupted write leaves."""

import contextlib
import errno
import json
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

TEXT = st.text(st.characters(exclude_categories=()))  # with lone surrogates, line separators and control characters
RECORDS = st.lists(st.dictionaries(TEXT, TEXT | st.integers() | st.none() | st.lists(TEXT), max_size=3), max_size=4)


@given(RECORDS)
def test_what_is_written_is_read_back(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("jsonl") / "folder" / "a.jsonl"
    jsonl.write(path, records)
    assert list(jsonl.read(path)) == list(enumerate(records, start=1))
    path.unlink()
    with jsonl.Journal(path) as journal:
        for record in records:
            journal.append(record)
    assert list(jsonl.read(path)) == list(enumerate(records, start=1))


def test_letters_are_written_as_themselves(tmp_path):
    jsonl.write(tmp_path / "a.jsonl", [{"name": "Bogusław"}])
    assert (tmp_path / "a.jsonl").read_text("utf-8") == '{"name": "Bogusław"}\n'


def test_empty_lines_are_passed_over_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"a": 1}\n  \n{"a": 2}')
    assert list(jsonl.read(path)) == [(2, {"a": 1}), (4, {"a": 2})]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{'a': 1}", "is not JSON"),
        ('{"a": 1', "is not JSON"),
        ("[1]", "is a list, not an object"),
        ("null", "is a NoneType, not an object"),
        ('{"b": {"a": 1, "a": 2}}', r"cannot be read \(an object has the key 'a' twice, the last time 2\)"),
        ('{"a": ' + "9" * 5000 + "}", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
    ],
    ids=lambda value: value[:12],
)
def test_a_malformed_line_is_named_with_its_file_and_number(tmp_path, line, problem):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": 1}}\n\n{line}\n')
    with pytest.raises(UserError, match=rf"a\.jsonl:3: {problem}") as caught:
        list(jsonl.read(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent: cannot be read \(No such file or directory\)"):
        list(jsonl.read(tmp_path / "absent"))
    with pytest.raises(UserError, match="cannot be read"):
        list(jsonl.read(tmp_path))


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes('{"name": "Bogusław"}\n'.encode("utf-16"))
    with pytest.raises(UserError, match=r"a\.jsonl: is not UTF-8"):
        list(jsonl.read(tmp_path / "a.jsonl"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.jsonl"
    jsonl.write(path, [{"a": 1}])

    def records():
        yield {"a": 2}
        raise KeyError("b")

    with pytest.raises(KeyError):
        jsonl.write(path, records())
    assert list(jsonl.read(path)) == [(1, {"a": 1})]


def test_what_was_appended_is_there_before_the_journal_is_closed(tmp_path):
    with jsonl.Journal(tmp_path / "a.jsonl") as journal:
        journal.append({"a": 1})
        assert list(jsonl.read(journal.path)) == [(1, {"a": 1})]


@pytest.mark.parametrize("length", [1, 20, 65535, 65536, 65537, 200_000])
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_last_line_that_a_kill_cut_is_removed(tmp_path, finished, length):
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"a": number}) + "\n" for number in range(finished)]
    path.write_text("".join(lines) + ('{"text": "' + "x" * length)[:length])
    with jsonl.Journal(path) as journal:
        journal.append({"a": "next"})
    assert [record["a"] for _, record in jsonl.read(path)] == [*range(finished), "next"]


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path):
    """As an editor may leave it."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}')
    assert [record["a"] for _, record in jsonl.read(path, journal=True)] == [1, 2]
    with jsonl.Journal(path) as journal:
        journal.append({"a": 3})
    assert [record["a"] for _, record in jsonl.read(path)] == [1, 2, 3]


def test_a_whole_journal_is_left_as_it_is(tmp_path):
    path = tmp_path / "a.jsonl"
    jsonl.write(path, [{"a": 1}, {"a": 2}])
    before = path.read_bytes()
    with jsonl.Journal(path):
        pass
    assert path.read_bytes() == before


@contextlib.contextmanager
def files_of_at_most(size):
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


@pytest.mark.parametrize("room", [0, 1, 20, 49, 50, 51, 99, 20_000])
@pytest.mark.parametrize("length", [0, 9000, 70_000], ids=lambda length: f"line of {length}")
def test_of_a_line_that_does_not_fit_nothing_stays_and_the_next_ones_are_whole(tmp_path, room, length):
    path = tmp_path / "a.jsonl"
    with jsonl.Journal(path) as journal:
        for number in range(3):
            journal.append({"a": number})
        with files_of_at_most(path.stat().st_size + room), pytest.raises(UserError) as caught:
            journal.append({"text": "x" * (length + room)})
        assert str(caught.value).startswith(f"{path}: cannot be written (File too large); ")
        # Another question may finish before the run ends.
        journal.append({"a": 3})
    assert [record for _, record in jsonl.read(path)] == [{"a": number} for number in range(4)]


def test_a_full_disk_that_is_told_of_only_at_the_end_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    jsonl.write(path, [{"a": 1}])

    def full(descriptor):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"a\.jsonl: cannot be written \(Disk quota exceeded: [\d,]+"):
        jsonl.write(path, [{"a": 2}])
    assert list(jsonl.read(path)) == [(1, {"a": 1})]
    assert list(tmp_path.iterdir()) == [path]


def test_a_journal_that_a_full_disk_keeps_from_being_closed_is_named(tmp_path):
    journal = jsonl.Journal(tmp_path / "a.jsonl")
    with pytest.raises(UserError, match=r"a\.jsonl: cannot be written \(Input/output error"), journal:
        os.close(journal._file.fileno())
        journal._file = FailsToClose()


class FailsToClose:
    def close(self):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_what_a_kill_left_of_a_file_does_not_keep_it_from_being_written(tmp_path):
    (tmp_path / "a.jsonl.partial").write_text("cut")
    jsonl.write(tmp_path / "a.jsonl", [{"a": 1}])
    assert (tmp_path / "a.jsonl").read_text() == '{"a": 1}\n'
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_two_that_write_one_file_at_once(tmp_path):
    path = tmp_path / "a.jsonl"

    def records():
        with pytest.raises(
            UserError, match=r"a\.jsonl: another process is writing this file; wait until it has finished"
        ):
            jsonl.write(path, [{"a": "other"}])
        yield {"a": "first"}

    jsonl.write(path, records())
    assert list(jsonl.read(path)) == [(1, {"a": "first"})]


def test_of_a_journal_a_last_line_that_was_cut_is_passed_over_and_stays(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2')
    assert list(jsonl.read(path, journal=True)) == [(1, {"a": 1})]
    assert path.read_text() == '{"a": 1}\n{"a": 2'
    with pytest.raises(UserError, match=r"a\.jsonl:2: is not JSON"):
        list(jsonl.read(path))


def test_an_object_of_several_lines_is_told_how_to_be_written(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"a": 1}]}, indent=1))
    with pytest.raises(
        UserError, match=r"a\.json:1: begins an object of several lines; write one JSON object per line"
    ):
        list(jsonl.records(tmp_path / "a.json"))
