"""Run folders: each holds one configuration, one process at a time works in it, and its run can resume."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import yaml

from notewriter.artifacts.run_folder import RunFolder, questions_digest
from notewriter.artifacts.run_record import read_inputs
from notewriter.ground.errors import UserError
from notewriter.ground.options import differences
from notewriter.ground.records import Question

QUESTIONS = [Question(f"q{number}", "Who?", ("Mira",)) for number in range(6)]


def run_of(folder, config, questions=(), defaults=None, contents=dict):
    digests = {"questions": questions_digest(questions)}
    return RunFolder(folder, config, digests, partial(differences, defaults=defaults or {}), contents)


def open_and_leave(*args, **options):
    with run_of(*args, **options).open() as opened:
        return opened


def test_a_run_folder_holds_its_resolved_configuration(tmp_path):
    config = {"method": "deepnote", "method_options": {"top_k": 3}, "seed": 0, "name": None}
    folder = open_and_leave(tmp_path / "runs" / "a", config)
    assert yaml.safe_load((folder / "config.yaml").read_text()) == config
    assert open_and_leave(folder, config) == folder


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"seed": 1}, r"a: contains a run with seed: 0, not 1; choose another output_dir, or remove this one"),
        ({"method_options": {"top_k": 5}}, r"method_options: \{'top_k': 3\}, not \{'top_k': 5\}"),
        ({"new": "x"}, r"contains a run with new: None, not 'x'"),
    ],
)
def test_a_folder_refuses_a_run_with_other_settings(tmp_path, change, problem):
    config = {"method_options": {"top_k": 3}, "seed": 0}
    open_and_leave(tmp_path / "a", config)
    with pytest.raises(UserError, match=problem):
        open_and_leave(tmp_path / "a", config | change)
    assert yaml.safe_load((tmp_path / "a" / "config.yaml").read_text()) == config


def test_a_setting_that_was_dropped_is_named_too(tmp_path):
    open_and_leave(tmp_path, {"seed": 0, "limit": 5})
    with pytest.raises(UserError, match="limit: 5, not None"):
        open_and_leave(tmp_path, {"seed": 0})


def test_a_run_goes_on_with_a_later_version_that_has_more_options_which_are_off(tmp_path):
    before = {"seed": 0, "min_gap": 0.0}
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, before | {"where": {}, "dry_run": False, "ids": None})
    with pytest.raises(UserError, match=r"min_gap: 0\.0, not None"):
        open_and_leave(tmp_path, {"seed": 0, "min_gap": None})


def test_a_newer_option_at_its_default_does_not_keep_an_older_run_from_resuming(tmp_path):
    older = {"seed": 0, "limit": 5}
    newer = older | {"share_prefixes": True, "limit": 5, "window": 3}
    defaults = {"seed": 0, "limit": None, "share_prefixes": True, "window": 3}
    open_and_leave(tmp_path, older)
    with pytest.raises(UserError, match="contains a run with window: None, not 4; choose"):
        open_and_leave(tmp_path, newer | {"window": 4}, defaults=defaults)
    # An option that the stored configuration has is compared, at its default or not.
    with pytest.raises(UserError, match="limit: 5, not None"):
        open_and_leave(tmp_path, newer | {"limit": None}, defaults=defaults)
    open_and_leave(tmp_path, newer, defaults=defaults)
    with pytest.raises(UserError, match="share_prefixes: True, not False"):
        open_and_leave(tmp_path, newer | {"share_prefixes": False}, defaults=defaults)


def test_all_settings_that_differ_are_named_up_to_three(tmp_path):
    open_and_leave(tmp_path, dict.fromkeys("abcde", 0))
    with pytest.raises(UserError, match="contains a run with b: 0, not 1 and c: 0, not 1; choose"):
        open_and_leave(tmp_path, dict.fromkeys("abcde", 0) | dict.fromkeys("bc", 1))
    with pytest.raises(UserError, match="a: 0, not 1 and b: 0, not 1 and c: 0, not 1 and 2 more; choose"):
        open_and_leave(tmp_path, dict.fromkeys("abcde", 1))


def test_checking_a_folder_creates_nothing_and_reads_weights_once(tmp_path):
    read = []
    run = run_of(tmp_path / "a", {"serve": "m"}, contents=lambda: read.append("m") or {"serve: m": "1"})
    run = replace(run, inputs={"pairs": "0" * 64})
    run.check()
    assert not (tmp_path / "a").exists()
    with run.open() as folder:
        assert read_inputs(folder) == {"pairs": "0" * 64, "serve: m": "1"}
    assert len(read) == 1
    with pytest.raises(UserError, match="a: contains a run with other contents of pairs, which have changed"):
        replace(run, inputs={"pairs": "1" * 64}).check()


@pytest.mark.parametrize("text", ["{", "- a\n", ""])
def test_a_folder_of_something_else_is_named(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml: is n.* choose another output_dir"):
        open_and_leave(tmp_path, {"seed": 0})


@pytest.mark.parametrize(
    "questions",
    [
        [replace(QUESTIONS[0], answers=("Osk",)), *QUESTIONS[1:]],
        QUESTIONS[:-1],
        QUESTIONS[::-1],
    ],
    ids=["another answer", "one less", "another order"],
)
def test_a_question_file_that_was_changed_in_place_is_refused(tmp_path, questions):
    open_and_leave(tmp_path, {"path": "q.jsonl"}, QUESTIONS)
    open_and_leave(tmp_path, {"path": "q.jsonl"}, [replace(question) for question in QUESTIONS])
    with pytest.raises(UserError, match=r"a run with other contents of questions, which have .*; choose"):
        open_and_leave(tmp_path, {"path": "q.jsonl"}, questions)


def test_two_runs_in_one_folder_are_refused_and_the_other_process_is_named(tmp_path):
    with (
        run_of(tmp_path / "a", {"seed": 0}).open(),
        pytest.raises(UserError, match=rf"a: process {os.getpid()} on \S+ is using this folder; wait until"),
    ):
        open_and_leave(tmp_path / "a", {"seed": 0})
    open_and_leave(tmp_path / "a", {"seed": 0})


def test_a_killed_run_leaves_no_lock_behind(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from notewriter.artifacts.run_folder import RunFolder
with RunFolder(Path({str(tmp_path)!r}), {{"seed": 0}}, {{}}, lambda stored, now: {{}}, dict).open():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    open_and_leave(tmp_path, {"seed": 0})


def test_a_run_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"file: cannot be created as a folder \(File exists\); .* choose another path"),
        run_of(tmp_path / "file", {}).open(),
    ):
        pass
