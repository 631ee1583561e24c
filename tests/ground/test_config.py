"""Configuration files and command lines: what is accepted, and the errors for what is not."""

import os
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from option_classes import Arguments, Model

from notewriter.ground import config
from notewriter.ground.errors import UserError


def parse(*argv: str) -> Arguments:
    (arguments,) = config.parse(Arguments, argv)
    return arguments


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str) -> str:
        (tmp_path / "run.yaml").write_text(text)
        return str(tmp_path / "run.yaml")

    return write_file


def test_what_is_not_said_is_the_default():
    assert parse("--path", "x") == Arguments("x")


def test_every_kind_of_value_can_be_given_on_the_command_line():
    arguments = parse(
        *("--path", "x", "--top_k", "3", "--share", "1e-1", "--limit", "7", "--greedy", "--names", "b", "c"),
        *("--options", '{"max_step": 3, "deep": {"a": [true, null]}}'),
    )
    options = {"max_step": 3, "deep": {"a": [True, None]}}
    assert arguments == Arguments("x", 3, 0.1, 7, True, ["b", "c"], options)


def test_null_is_none_on_the_command_line_as_in_yaml_where_an_option_may_be_none(write):
    file = write("path: x\nlimit: 7\norder: best\nsizes: [1, 2]\n")
    nulls = ["--limit=null", "--order", "null", "--sizes", "null"]
    assert parse("--config", file, *nulls) == parse("--path", "x")
    assert config.parse(Model, ["--model", "NULL"]) == (Model(None),)
    assert parse("--path", "null").path == "null"


def test_a_path_in_the_home_folder_is_read_as_a_shell_reads_it(write, monkeypatch):
    monkeypatch.setenv("HOME", "/home/mira")
    monkeypatch.setenv("HF_HOME", "/disk")
    file = write("path: ~/runs\noptions: {notes: {serve: ~/m}, ~/a: 1}\nnames: [a~/b, ~/c]\nenv: {HF_HOME: ~/hub}\n")
    options = {"notes": {"serve": "/home/mira/m"}, "/home/mira/a": 1}
    assert parse("--config", file) == Arguments("/home/mira/runs", options=options, names=["a~/b", "/home/mira/c"])
    assert os.environ["HF_HOME"] == "/home/mira/hub"
    assert parse("--path=~/x").path == config.from_keywords([Arguments], {"path": "~/x"})[0].path == "/home/mira/x"


@pytest.mark.parametrize("value", ["$SCRATCH/runs", "${SCRATCH}/runs", "${oc.env:SCRATCH}", "$SCRATCH"])
def test_a_variable_of_the_environment_is_not_taken_for_the_name_of_a_folder(write, value):
    told = "path begins with a variable of the environment, which is not filled in here; write its value"
    with pytest.raises(UserError, match=r"run\.yaml:2: " + told):
        parse("--config", write(f"top_k: 3\npath: {value}\n"))
    with pytest.raises(UserError, match=told):
        parse("--path", value)
    assert parse("--path", "What costs $5/month?").path == "What costs $5/month?"


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("path: no", "path", "no"),
        ("path: 010", "path", "010"),
        ("path: 2024-13-45", "path", "2024-13-45"),
        ("path: 1:30", "path", "1:30"),
        ("path: 1e3", "path", "1e3"),
        ("top_k: 010", "top_k", 10),
        ("top_k: 1e3", "top_k", 1000),
        ("share: 5e-1", "share", 0.5),
        ("limit: 08", "limit", 8),
        ("greedy: on", "greedy", True),
        ("greedy: No", "greedy", False),
        ("names: [no, 007, on]", "names", ["no", "007", "on"]),
        ("options: {a: 1e-5, no: [2.5e3]}", "options", {"a": 1e-5, "no": [2500.0]}),
        ("options: {a: \"no\", b: '010'}", "options", {"a": "no", "b": "010"}),
    ],
)
def test_words_that_yaml_changes_are_read_as_the_option_means_them(write, line, option, value):
    read = getattr(parse("--config", write(f"{line}\n"), *(() if option == "path" else ("--path", "x"))), option)
    assert (read, type(read)) == (value, type(value))


def test_a_file_gives_the_same(write):
    file = write(
        "path: x\ntop_k: 3\nshare: 1e-1\nlimit: 7\ngreedy: true\nnames: [b, c]\n"
        "options:\n  max_step: 3\n  deep: {a: [true, null]}\n"
    )
    options = {"max_step": 3, "deep": {"a": [True, None]}}
    assert parse("--config", file) == Arguments("x", 3, 0.1, 7, True, ["b", "c"], options)


def test_a_single_text_is_a_list_of_one(write):
    assert parse("--config", write("path: x\nnames: b\n")).names == ["b"]
    assert parse("--path", "x", "--names", "b").names == ["b"]


@pytest.mark.parametrize("size", ["3", "'3'", "[3]"])
def test_so_is_a_single_number(write, size):
    assert parse("--config", write(f"path: x\nsizes: {size}\n")).sizes == [3]
    assert config.from_keywords([Arguments], {"path": "x", "sizes": 3})[0].sizes == [3]


@pytest.mark.parametrize("separator", [" ", "="])
def test_the_command_line_wins(write, separator):
    file = write("path: x\ntop_k: 3\nlimit: 7\noptions: {a: 1}\n")
    argv = f"--top_k{separator}4 --config{separator}{file}".split()
    assert parse(*argv) == Arguments("x", 4, limit=7, options={"a": 1})


def test_several_dataclasses_share_a_file(write):
    arguments, model = config.parse([Arguments, Model], ["--config", write("path: x\nmodel: tiny\n")])
    assert (arguments, model) == (Arguments("x"), Model("tiny"))


def test_a_number_may_stand_for_a_fraction_and_nothing_for_what_is_optional(write):
    assert parse("--config", write("path: x\nshare: 1\nlimit:\n")) == Arguments("x", share=1)


def test_the_resolved_configuration_can_be_given_again(tmp_path, write):
    arguments, model = Arguments("Bogusław", 3, limit=7, options={"a": [1]}), Model("tiny")
    text = yaml.safe_dump(asdict(arguments) | asdict(model), sort_keys=False, allow_unicode=True)
    assert config.parse([Arguments, Model], ["--config", write(text)]) == (arguments, model)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("path: x\n\n# a comment\ntopk: 3\n", r"run\.yaml:4: unknown key 'topk'; did you mean 'top_k'\?"),
        ("path: x\n'topk': 3\n", r"run\.yaml:2: unknown key 'topk'"),
        ("path: x\nzzzzz: 3\n", r"run\.yaml:2: unknown key 'zzzzz'; see --help"),
        (
            "topk: 3\npath: 7\nzzzzz: 3\n",
            r"run\.yaml:1: unknown key 'topk'; .*; line 3: unknown key 'zzzzz'; see --help",
        ),
        ("3: x\n", r"run\.yaml:1: unknown key 3"),
        ("path: x\ntop_k: 2.5\n", r"run\.yaml:2: top_k must be int, not 2\.5"),
        ("path: x\ntop_k: true\n", r"run\.yaml:2: top_k must be int, not True"),
        ("path: x\ntop_k:\n", r"run\.yaml:2: top_k must be int, not None"),
        ("path: 7\n", r"run\.yaml:1: path must be str, not 7"),
        ("path:\n", r"run\.yaml:1: path must be str, not None"),
        ("path: x\nlimit: [1]\n", r"run\.yaml:2: limit must be int \| None, not \[1\]"),
        ("path: x\ngreedy: 1\n", r"run\.yaml:2: greedy must be bool, not 1"),
        ("path: x\nnames: {a: b}\n", r"run\.yaml:2: names must be list\[str\], not {'a': 'b'}"),
        ("path: x\nnames: [1]\n", r"run\.yaml:2: names\[0\] must be str, not 1"),
        ("path: x\noptions: [1]\n", r"run\.yaml:2: options must be dict\[str, Any\], not \[1\]"),
        ("path: x\norder: any\n", r"run\.yaml:2: order must be one of best, worst, None, not 'any'"),
        ("path: x\ntop_k: many\n", r"run\.yaml:2: top_k: invalid int value: 'many'; see --help"),
        ("path: x\noptions: many\n", r"run\.yaml:2: options: 'many' is not a JSON object; write it as"),
        ("path: x\nenv: A=1\n", r"run\.yaml:2: env must be dict.*, not 'A=1'"),
        ("top_k: 3\n", r"required: --path"),
        ("- path\n", r"run\.yaml: is not a mapping"),
        ("", r"run\.yaml: is not a mapping"),
        ("path: x\npath: y\n", r"run\.yaml:2: duplicate key 'path' \(see line 1\); remove one"),
        ("path: x\noptions:\n  a: 1\n  b: 2\n  a: 3\n", r"run\.yaml:5: duplicate key 'a' \(see line 3\); remove one"),
        ("path: x\noptions:\n  a: [{b: {c: 1, c: 2}}]\n", r"run\.yaml:3: duplicate key 'c' \(see line 3\)"),
        ("path: {x\n", r"run\.yaml: is not YAML \(.*line 2"),
        ("path: x\ntop_k: !!int ''\n", r"run\.yaml: is not YAML \('' is no int .*line 2"),
        ("path: x\ngreedy: !!bool maybe\n", r"run\.yaml: is not YAML \('maybe' is no bool .*line 2"),
        ("path: x\nnames: [a, !!timestamp soon]\n", r"run\.yaml: is not YAML \('soon' is no timestamp .*line 2"),
        ("path: x\ntop_k: 25e-2\n", r"run\.yaml:2: top_k must be int, not 0\.25"),
        ("path: x\ntop_k: 1:30\n", r"run\.yaml:2: top_k: YAML takes 1:30 for .* in sixties; quote it \(.1:30.\)"),
        (
            "path: x\noptions:\n  a: no\n",
            r"run\.yaml:3: options: a: YAML takes no for a truth value; quote it \(.no.\)",
        ),
        ("path: x\noptions: {a: [b, 010]}\n", r"run\.yaml:2: options: a: YAML takes 010 for an octal number"),
        ("path: x\noptions:\n  a: 2024-01-31\n", r"run\.yaml:3: options: a: YAML takes 2024-01-31 for a date"),
        ("path: " + "[" * 9999, r"run\.yaml: is not YAML \(nested too deeply\)"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(write, text, problem):
    with pytest.raises(UserError, match=problem) as caught:
        parse("--config", write(text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], r"required: --path"),
        (["--path", "x", "--top_k", "many"], r"invalid int value: 'many'"),
        (["--path", "x", "--options", "{a: 1}"], r"argument --options: '{a: 1}' is not a JSON object"),
        (["--path", "x", "--options", "[1]"], r"argument --options: '\[1\]' is not a JSON object"),
        (["--path", "x", "--order", "any"], r"argument --order: invalid choice: 'any'"),
        (["--path", "x", "--topics", "3"], r"--topics"),
        (["--path", "x", "stray"], r"stray"),
        (["--path", "x", "--names", "a", "--names", "b"], r"--names is given twice; give all its values after one"),
        (["--config"], r"--config: the file is missing"),
        (["--config", "absent.yaml"], r"absent\.yaml: cannot be read \(No such file or directory\)"),
        (["--config", "."], r"\.: cannot be read"),
    ],
    ids=" ".join,
)
def test_what_is_wrong_with_a_command_line_is_named(argv, problem):
    with pytest.raises(UserError, match=problem) as caught:
        parse(*argv)
    assert "\n" not in str(caught.value)


def test_a_keyword_that_is_no_choice_is_named():
    with pytest.raises(UserError, match="order must be one of best, worst, None, not 'any'"):
        config.from_keywords([Arguments], {"path": "x", "order": "any"})


def test_a_file_in_another_encoding_is_named(tmp_path):
    (tmp_path / "run.yaml").write_bytes("path: Bogusław\n".encode("cp1250"))
    with pytest.raises(UserError, match=r"run\.yaml: is not UTF-8"):
        parse("--config", str(tmp_path / "run.yaml"))


def test_choosing_lists_what_there_is():
    table = {"b": 2, "a": 1}
    assert config.choose("letter", "a", table) == 1
    with pytest.raises(UserError, match=r"^unknown letter 'c'; choose one of: a, b$"):
        config.choose("letter", "c", table)
