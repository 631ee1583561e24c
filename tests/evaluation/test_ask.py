"""`notewriter ask`: what is printed, when, and what is escaped."""

import io
import json
import re
import sys
from types import SimpleNamespace

import pytest
from fake_endpoint import fake_endpoint

from notewriter.evaluation import ask
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage
from notewriter.retrieval import bm25


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ask")
    bm25.build([Passage("p1", "Bridge", "Mira built the bridge."), Passage("p2", "River", "It flows.")], folder / "one")
    bm25.build([Passage("p1", "Osk", "The bridge stands in Osk.")], folder / "two")
    return folder


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(ask, "sys", SimpleNamespace(stdout=screen))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


@pytest.fixture
def run(index, tmp_path):
    """Run `ask` against an endpoint; further options take precedence."""

    def ask_it(*options, reply=lambda request: "Mira", question="Who built the bridge?", faults=None):
        with fake_endpoint(reply, faults) as endpoint:
            argv = [question, "--method", "vanilla", "--base_url", endpoint.base_url]
            argv += [] if "--index" in options else ["--index", str(index / "one")]
            argv += ["--model", endpoint.model, "--cache", str(tmp_path / "cache.sqlite")]
            ask.main([*argv, "--output_dir", str(tmp_path / "ask"), *options])

    return ask_it


def test_the_steps_and_the_answer_are_told(run, capsys):
    run("--method_options", '{"top_k": 1}')
    out = capsys.readouterr().out
    assert "search: Who built the bridge? (1 found)\n  [1] Bridge: Mira built the bridge.\n\n" in out
    assert re.search(r"\nvanilla/answer \(answer, \d+ \+ 1 tokens, \d+\.\d s\)\n  Mira\n", out)
    assert re.search(r"\nanswer \(searches: 1, calls: 1, \d+ \+ 1 tokens, \d+\.\d s\)\n  Mira\n\n$", out)


@pytest.mark.parametrize(
    ("method", "options", "last"),
    [
        ("search_r1", {}, "<answer>Mira</answer>"),
        ("s3", {}, "<search_complete>True</search_complete> Mira"),
        ("mem_agent", {"chunk_tokens": 2}, "Mira"),
        ("corag", {"max_path_length": 2}, "Mira"),
        ("corag", {"max_path_length": 1, "best_n": 2, "decode_strategy": "best_of_n"}, "Mira"),
    ],
)
def test_the_trained_successors_answer_too(run, capsys, method, options, last):
    first = {"search_r1": "<think>Hm.</think><search>the bridge</search>", "s3": '<query>{"query": "bridge"}</query>'}
    replies = iter([first[method]] if method in first else [])
    run("--method", method, "--method_options", json.dumps(options), reply=lambda request: next(replies, last))
    out = capsys.readouterr().out
    assert re.search(r"\nanswer \(searches: \d, calls: \d+, .*\)\n  .*Mira\n\n$", out)
    assert "search: " in out and f"\n{method}/" in out


def test_each_step_is_told_before_the_next_one_is_asked_for(run, terminal):
    seen = []

    def reply(request):
        seen.append(terminal.getvalue())
        return f"step {len(seen)}"

    run("--method", "deepnote", "--method_options", '{"max_step": 1, "max_failure": 1}', reply=reply)
    assert len(seen) == 5
    for number, text in enumerate(seen):
        assert [f"step {other}\n" in text for other in range(1, 6)] == [other <= number for other in range(1, 6)]
    assert "search: Who built the bridge?" in seen[0]
    assert "search: step 2 Who built the bridge?" in seen[2]


def test_colours_are_for_terminals(run, terminal, monkeypatch):
    run()
    assert "\x1b[1mvanilla/answer\x1b[0m" in terminal.getvalue()
    for name, value in (("NO_COLOR", ""), ("TERM", "dumb")):
        terminal.seek(0)
        terminal.truncate()
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            run()
        assert "vanilla/answer" in terminal.getvalue()
        assert "\x1b" not in terminal.getvalue()


def test_no_colours_elsewhere(run, capsys):
    run()
    assert "\x1b" not in capsys.readouterr().out


def test_several_indexes_are_asked_at_once(run, index, capsys):
    run("--index", str(index / "one"), str(index / "two"))
    out = capsys.readouterr().out
    assert "[1] Bridge: " in out
    assert "[2] Osk: " in out


def test_a_file_gives_the_settings_and_the_question_comes_first(run, index, tmp_path, capsys):
    (tmp_path / "ask.yaml").write_text(json.dumps({"method": "direct", "index": str(index / "one")}))
    run("--config", str(tmp_path / "ask.yaml"), "--method", "direct")
    assert "direct/answer" in capsys.readouterr().out


def test_what_a_model_says_cannot_move_the_cursor_or_hide_text(run, terminal):
    run(reply=lambda request: "\x1b]0;title\x07\x1b[2J\u009b31m Mira \u202eariM\u202c \x00\r and\tso on")
    written = re.sub(r"\x1b\[[012]m", "", terminal.getvalue())
    assert r"\x1b]0;title\x07\x1b[2J\x9b31m Mira \u202eariM\u202c \x00\r and" in written
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written)


def test_a_terminal_that_cannot_show_a_letter_shows_its_number(run, monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    run(reply=lambda request: "Bogusław \ud83d")
    screen.seek(0)
    assert r"Bogus\u0142aw" in screen.read()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--method", "deepnotes"], "unknown method 'deepnotes'"),
        (["--method_options", '{"top": 1}'], "has no option 'top'"),
        (["--index", "absent"], "absent: contains no index"),
    ],
)
def test_what_is_wrong_is_named(run, options, problem):
    with pytest.raises(UserError, match=problem):
        run(*options)


def test_a_question_and_an_index_are_needed(run):
    with pytest.raises(UserError, match="the question is empty"):
        run(question=" ")
    with pytest.raises(UserError, match="method vanilla retrieves; add --index"):
        ask.main(["Who?", "--method", "vanilla", "--base_url", "http://127.0.0.1:9/v1", "--model", "fake"])
    with pytest.raises(UserError, match="--question"):
        ask.main([])


def test_a_refused_request_is_named(run):
    with pytest.raises(UserError, match=r"rejected a request: This model's maximum context length is 4096 tokens\."):
        run(faults=["400"])


@pytest.mark.parametrize(
    ("faults", "options", "problem"),
    [
        (["400"], [], r"rejected a request: .*retrieve fewer passages \(--method_options"),
        (["401"], [], r"rejects the key; set a valid one in the environment variable OPENAI_API_KEY"),
        (None, ["--model", "other"], r"does not serve model 'other'; it serves fake"),
        (None, ["--base_url", "http://127.0.0.1:9/v1"], r"cannot be reached .*; start the server, or correct base_url"),
        (None, ["--cache", "/dev/null/cache.sqlite"], r"/dev/null: cannot be created .*; choose another path"),
        (None, ["--max_tokens", "0"], r"max_tokens: 0 is too small; give at least 1"),
        (None, ["--serve", "absent"], r"both serve and base_url are set; give only one of them"),
    ],
)
def test_every_error_is_one_line_that_says_what_to_do(run, monkeypatch, faults, options, problem):
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)
    with pytest.raises(UserError, match=problem) as caught:
        run(*options, faults=faults)
    assert "\n" not in str(caught.value)


def test_a_question_in_another_encoding_is_asked_as_far_as_it_can_be_read(run, capsys):
    run(question="Who built Bogus\udcb3aw?")
    assert "Bogus?aw?" in capsys.readouterr().out
