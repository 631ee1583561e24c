"""What other packages and files add is found by entry point, by module and by file."""

import json
import sys
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from notewriter.ground import config, plugins
from notewriter.ground.errors import UserError
from notewriter.ground.options import kinds_in, names_in
from notewriter.ground.plugins import Plugins

OURS = {"one": 1}


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module `counting` with numbers, on the path."""
    (tmp_path / "counting.py").write_text("two = 2\nword = 'two'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "counting.py"
    sys.modules.pop("counting", None)


@pytest.fixture
def installed(module, monkeypatch):
    """Entry points of an installed package."""

    def install(*points):
        monkeypatch.setattr(plugins, "entry_points", lambda group: [EntryPoint(*each, group) for each in points])

    return install


def test_ours_come_first(installed):
    installed(("one", "counting:two"))
    assert Plugins("numbers", int, OURS)["one"] == 1


def test_an_entry_point_with_a_name_of_ours_is_told_once_when_the_name_is_chosen(installed, caplog):
    installed(("one", "counting:two"), ("two", "counting:two"))
    table = Plugins("numbers", int, OURS)
    assert [table.choose("number", name) for name in ("two", "one", "one")] == [2, 1, 1]
    (told,) = caplog.messages
    assert told.startswith("number one: the entry point with this name (notewriter.numbers: counting:two) is not used")


def test_the_warning_names_the_package(tmp_path, monkeypatch, caplog):
    folder = tmp_path / "rival-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[notewriter.numbers]\nfirst = rival:first\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert Plugins("numbers", int, {"first": 1}).choose("number", "first") == 1
    assert "number first: the entry point of package rival with this name" in caplog.text


def test_a_function_that_is_no_entry_yet_is_told_how_it_becomes_one(module):
    module.write_text("def count(): ...\n")
    place = f"{module}:count"
    plugins.load(place)
    with pytest.raises(UserError, match="is no int but function; call it"):
        Plugins("numbers", int, OURS, of_function="call it").choose("number", place)


@pytest.mark.parametrize("name", ["counting:two", "{file}:two"])
def test_an_object_that_a_user_names_by_module_or_file_is_loaded(name, module):
    table, name = Plugins("numbers", int, OURS), name.format(file=module)
    assert name not in table
    assert plugins.load(name) == table.choose("number", name) == table[name] == 2


def test_an_object_that_a_user_named_by_its_place_has_its_own_name_too(module):
    module.write_text("from types import SimpleNamespace\nfirst = SimpleNamespace(name='mine')\n")
    table, place = Plugins("named", SimpleNamespace, {}), f"{module}:first"
    assert "mine" not in table
    plugins.load(place)
    assert table.choose("thing", "mine") == SimpleNamespace(name="mine") == table[place]
    assert "mine" not in Plugins("numbers", int, OURS)
    assert plugins.file_of("named", "mine") == module


@pytest.mark.parametrize("name", ["counting:two", "{file}:two"])
def test_a_name_in_a_file_loads_nothing_and_the_line_says_how_to(name, module):
    name, ran = name.format(file=module), module.with_name("RAN")
    module.write_text(f"open({str(ran)!r}, 'w').close()\ntwo = 2\n")
    table = Plugins("numbers", int, OURS)
    with pytest.raises(
        UserError, match=f"number '{name}': code that a folder .* is not imported; .* --plugins {name} .*plugins.load"
    ):
        table.choose("number", name)
    with pytest.raises(KeyError):
        table[name]
    assert table.get(name) is None and name not in table and not ran.exists()


@dataclass
class Options:
    number: str = field(default="one", metadata={"names": names_in})
    counted: dict[str, Any] = field(default_factory=dict, metadata={"names": names_in})
    parts: list[dict[str, Any]] | None = field(default=None, metadata={"names": kinds_in})
    note: str = "none"


OF_A_USER = [
    ["--number", "counting:two"],
    ["--counted", '{"a": "counting:two"}'],
    ["--counted", '{"a": ["one", "counting:two"]}'],
    ["--parts", '{"counting:two": 3}'],
    ["--plugins", "counting:two"],
]


@pytest.mark.parametrize("argv", OF_A_USER, ids=" ".join)
@pytest.mark.parametrize("by_file", [False, True])
def test_what_options_name_is_imported_from_the_command_line_and_from_a_file_of_options(
    argv, by_file, module, tmp_path
):
    if by_file:
        option, value = argv[0].removeprefix("--"), argv[1]
        value = [value] if option == "plugins" else value if option == "number" else json.loads(value)
        (tmp_path / "options.yaml").write_text(yaml.safe_dump({option: value}))
        argv = ["--config", str(tmp_path / "options.yaml")]
    config.parse(Options, argv)
    assert Plugins("numbers", int, OURS).choose("number", "counting:two") == 2


def test_what_keywords_name_is_imported_and_a_value_that_is_no_name_is_not(module):
    config.from_keywords([Options], {"note": "counting:two", "parts": [{"one": "counting:two"}]})
    assert "counting:two" not in Plugins("numbers", int, OURS)
    config.from_keywords([Options], {"number": "counting:two"})
    assert "counting:two" in Plugins("numbers", int, OURS)


def test_a_file_is_imported_once(module):
    module.write_text("things = []\n")
    tables = [Plugins("lists", list, {}) for _ in range(2)]
    plugins.load(f"{module}:things")
    one, other = (table.choose("list", f"{module}:things") for table in tables)
    assert one is other


def test_an_entry_point_is_loaded_when_it_is_asked_for(installed):
    installed(("two", "counting:two"), ("broken", "nowhere:two"))
    table = Plugins("numbers", int, OURS)
    assert "two" in table and list(table) == ["one"]
    assert table["two"] == 2 and list(table.values()) == [1, 2]
    with pytest.raises(UserError, match="nowhere"):
        table.installed()


def test_all_of_installed_packages_are_there_for_those_who_list_them(installed):
    installed(("two", "counting:two"))
    assert Plugins("numbers", int, OURS).installed() == [1, 2]


def test_what_a_user_named_is_among_them_where_it_is_of_the_kind(installed, module):
    installed()
    plugins.load("counting:two"), plugins.load("counting:word")
    assert Plugins("numbers", int, OURS).installed() == [1, 2]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("counting:three", ["counting:three", "two, word"]),
        ("counting:word", ["counting:word", "no int but str"]),
        ("nowhere:two", ["nowhere:two", "No module named"]),
        ("missing.py:two", ["missing.py", "check the path"]),
        ("three", ["unknown number 'three'", "one, two"]),
    ],
)
def test_what_cannot_be_loaded_is_one_line_with_the_place(name, parts, installed):
    installed(("two", "counting:two"))
    with pytest.raises(UserError) as caught:
        if ":" in name:
            plugins.load(name)
        Plugins("numbers", int, OURS).choose("number", name)
    assert all(part in str(caught.value) for part in parts) and "\n" not in str(caught.value)


def test_a_file_that_raises_is_named_and_can_be_mended(module):
    module.write_text("two = 2\nopen('missing.txt')\n")
    with pytest.raises(UserError, match=r"cannot be imported \(FileNotFoundError: .*'missing.txt', line 2\)"):
        plugins.load(f"{module}:two")
    module.write_text("two = 2\n")
    assert plugins.load(f"{module}:two") == 2
