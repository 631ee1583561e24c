"""Parsers in a child process: what comes back, and what a hostile document costs."""

import os

import parsers
import pytest

from notewriter.corpora.child import in_child
from notewriter.ground.errors import UserError


def test_the_child_is_another_process_that_is_kept_for_the_next_call():
    first = in_child("a.pdf", os.getpid)
    assert first != os.getpid()
    assert in_child("b.pdf", os.getpid) == first


def test_an_error_comes_back_as_it_was_raised(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        in_child("a.pdf", os.stat, tmp_path / "absent")
    with pytest.raises(RuntimeError, match="a fault of its own"):
        in_child("a.pdf", parsers.fails, "a.pdf", tmp_path)


def test_a_new_child_takes_no_module_from_the_working_directory(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"a\.pdf: its parser has crashed \(SIGKILL\)"):
        in_child("a.pdf", parsers.crashes, "a.pdf", tmp_path)
    (tmp_path / "pickle.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    assert in_child("a.pdf", len, "text") == 4
