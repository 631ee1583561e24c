"""Runs: folders that hold one configuration."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest
import yaml

from notewriter.artifacts import run_folder
from notewriter.artifacts.journal import ResumeArguments
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.models.server import with_number_format

QUESTIONS = [Question(f"q{number}", "Who?", ("Mira",)) for number in range(6)]


def open_and_leave(folder, config, questions=(), defaults=None):
    with run_folder.open_run(folder, config, questions, defaults) as opened:
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


def test_defaults_are_those_of_the_dataclasses():
    @dataclass
    class Options:
        path: str
        on: bool = True
        names: list[str] = field(default_factory=lambda: ["a"])

    expected = {"on": True, "names": ["a"], "retry_errors": False}
    assert run_folder.defaults(Options("a"), ResumeArguments) == expected


def test_all_settings_that_differ_are_named_up_to_three(tmp_path):
    open_and_leave(tmp_path, dict.fromkeys("abcde", 0))
    with pytest.raises(UserError, match="contains a run with b: 0, not 1 and c: 0, not 1; choose"):
        open_and_leave(tmp_path, dict.fromkeys("abcde", 0) | dict.fromkeys("bc", 1))
    with pytest.raises(UserError, match="a: 0, not 1 and b: 0, not 1 and c: 0, not 1 and 2 more; choose"):
        open_and_leave(tmp_path, dict.fromkeys("abcde", 1))


def test_checking_a_folder_creates_nothing_and_reads_weights_once(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(run_folder, "fingerprints", lambda config: read.append(config) or {"serve: m": "1"})
    run = run_folder.RunFolder(tmp_path / "a", {"serve": "m"}, {"pairs": "0" * 64})
    run.check()
    assert not (tmp_path / "a").exists()
    with run.open() as folder:
        assert json.loads((folder / "fingerprints.json").read_text()) == {"serve: m": "1"}
    assert len(read) == 1
    with pytest.raises(UserError, match="a: contains a run over other pairs, the file has changed since it began"):
        replace(run, inputs={"pairs": "1" * 64}).check()


def test_settings_without_effect_may_differ_and_the_last_ones_are_kept(tmp_path):
    before = {"seed": 0, "concurrency": 64, "port": None, "cache": "a", "output_dir": "runs/a"}
    after = {"seed": 0, "concurrency": 8, "port": 8000, "cache": "b", "output_dir": "/runs/a"}
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == after
    assert (
        run_folder.config_hash(before) == run_folder.config_hash(after) != run_folder.config_hash(before | {"seed": 1})
    )


def test_a_model_may_be_reached_elsewhere_when_a_run_goes_on_but_must_be_the_same(tmp_path):
    def config(model, **settings):
        return {"base_url": settings["base_url"], "models": {"judge": {"model": model, **settings}}}

    before = config("m", base_url="http://node7:8000/v1", attempts=8)
    after = config("m", base_url="http://node8:8001/v1,http://node9:8001/v1", timeout=60.0)
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert run_folder.config_hash(before) == run_folder.config_hash(after)
    with pytest.raises(UserError, match=r"contains a run with models: \{'judge': \{'model': 'm'\}\}, not"):
        open_and_leave(tmp_path, config("n", base_url="http://node7:8000/v1"))


def test_the_hash_does_not_depend_on_the_order_of_keys():
    assert run_folder.config_hash({"a": 1, "b": {"c": 2, "d": 3}}) == run_folder.config_hash(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )


@pytest.mark.parametrize("text", ["{", "- a\n", ""])
def test_a_folder_of_something_else_is_named(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match=r"config\.yaml: is n.* choose another output_dir"):
        open_and_leave(tmp_path, {"seed": 0})


def served(tmp_path):
    """A configuration, and the files behind its paths by what they are."""
    files = {
        "weights": tmp_path / "model" / "model.safetensors",
        "judge": tmp_path / "judge" / "model.safetensors",
        "index": tmp_path / "index" / "manifest.json",
        "prompt": tmp_path / "prompts" / "deepnote" / "decide.jinja",
    }
    for path in files.values():
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"source": "a corpus", "query_device": "cpu"}))
    config = {
        "serve": str(tmp_path / "model"),
        "models": {"judge": {"serve": str(tmp_path / "judge")}, "answer": {"base_url": "http://a/v1", "model": "m"}},
        "index": [str(tmp_path / "index")],
        "prompts_dir": str(tmp_path / "prompts"),
    }
    return config, files


@pytest.mark.parametrize(
    ("changed", "setting"),
    [("weights", "served"), ("judge", "serve: .*judge"), ("index", "index: "), ("prompt", "prompts_dir: ")],
)
def test_a_model_trained_again_a_rebuilt_index_and_an_edited_prompt_are_another_run(tmp_path, changed, setting):
    config, files = served(tmp_path)
    open_and_leave(tmp_path / "a", config)
    open_and_leave(tmp_path / "a", config)
    files[changed].write_text(json.dumps({"source": "another one"}))
    with pytest.raises(UserError, match=f"a: contains a run with other contents of {setting}.*; choose another output"):
        open_and_leave(tmp_path / "a", config)


@pytest.mark.parametrize("shared_first", [True, False])
def test_a_stage_that_shared_a_server_resumes_with_one_of_its_own_and_the_reverse(tmp_path, monkeypatch, shared_first):
    # There a command that starts a server chooses its number format; the shared server has it too.
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    config, files = served(tmp_path)
    options = {"max_model_len": 4096}
    alone = config | {"model": None, "base_url": None, "serve_options": with_number_format(options)}
    shared = config | {"serve": None, "served": config["serve"], "model": "model", "base_url": "http://127.0.0.1:8/v1"}
    shared |= {"serve_options": options}
    first, second = (shared, alone) if shared_first else (alone, shared)
    open_and_leave(tmp_path / "a", first)
    open_and_leave(tmp_path / "a", second)
    files["weights"].write_text("trained again")
    with pytest.raises(UserError, match="other contents of served"):
        open_and_leave(tmp_path / "a", first)


def test_where_an_index_is_searched_and_notes_beside_a_model_change_nothing(tmp_path):
    config, files = served(tmp_path)
    open_and_leave(tmp_path / "a", config)
    files["index"].write_text(json.dumps({"source": "a corpus", "query_device": "cuda"}))
    (tmp_path / "model" / "README.md").write_text("trained for long")
    open_and_leave(tmp_path / "a", config)


def test_a_folder_from_before_there_were_fingerprints_goes_on_and_has_them_from_then_on(tmp_path):
    config, files = served(tmp_path)
    folder = open_and_leave(tmp_path / "a", config)
    (folder / "fingerprints.json").unlink()
    files["weights"].write_text("trained again")
    open_and_leave(folder, config)
    files["weights"].write_text("and again")
    with pytest.raises(UserError, match="other contents of serve"):
        open_and_leave(folder, config)


def test_a_model_that_was_removed_since_is_no_other_model(tmp_path):
    config, files = served(tmp_path)
    open_and_leave(tmp_path / "a", config)
    files["weights"].unlink()
    files["weights"].parent.rmdir()
    open_and_leave(tmp_path / "a", config)
    files["weights"].parent.mkdir()
    files["weights"].write_text("another one")
    with pytest.raises(UserError, match="other contents of serve"):
        open_and_leave(tmp_path / "a", config)


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
    with pytest.raises(UserError, match=r"a run over other questions, the file has changed since it began; choose"):
        open_and_leave(tmp_path, {"path": "q.jsonl"}, questions)


def test_two_runs_in_one_folder_are_refused_and_the_other_process_is_named(tmp_path):
    with (
        run_folder.open_run(tmp_path / "a", {"seed": 0}),
        pytest.raises(UserError, match=rf"a: process {os.getpid()} on \S+ is using this folder; wait until"),
    ):
        open_and_leave(tmp_path / "a", {"seed": 0})
    open_and_leave(tmp_path / "a", {"seed": 0})


def test_a_killed_run_leaves_no_lock_behind(tmp_path):
    code = f"""
import os, signal
from notewriter.artifacts import run_folder
from notewriter.artifacts.journal import ResumeArguments
with run_folder.open_run({str(tmp_path)!r}, {{"seed": 0}}):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    open_and_leave(tmp_path, {"seed": 0})


def test_a_run_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match=r"file: cannot be created as a folder \(File exists\); .* choose another path"),
        run_folder.open_run(tmp_path / "file", {}),
    ):
        pass


def test_a_run_of_a_version_without_question_sets_goes_on_and_has_the_same_hash(tmp_path):
    before = {"dataset": "hotpotqa", "limit": 3}
    after = before | {"question_set": None}
    open_and_leave(tmp_path, before)
    open_and_leave(tmp_path, after)
    assert run_folder.config_hash(before) == run_folder.config_hash(after)
    with pytest.raises(UserError, match=r"contains a run with question_set: None, not 'set\.txt'"):
        open_and_leave(tmp_path, before | {"question_set": "set.txt"})
