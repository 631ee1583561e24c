"""What other packages and files add is found by entry point, by module and by file."""

import sys
from importlib.metadata import EntryPoint

import pytest

from notewriter.ground import plugins
from notewriter.ground.errors import UserError
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


@pytest.mark.parametrize("name", ["counting:two", "{file}:two"])
def test_an_object_is_named_by_module_or_file(name, module):
    assert Plugins("numbers", int, OURS)[name.format(file=module)] == 2


def test_a_file_is_imported_once(module):
    module.write_text("things = []\n")
    table = Plugins("lists", list, {})
    assert table[f"{module}:things"] is Plugins("lists", list, {})[f"{module}:things"]


def test_an_entry_point_is_loaded_when_it_is_asked_for(installed):
    installed(("two", "counting:two"), ("broken", "nowhere:two"))
    seen = []
    table = Plugins("numbers", int, OURS, loaded=seen.append)
    assert "two" in table and list(table) == ["one"] and table.names() == ["one", "two", "broken"]
    assert table["two"] == 2 and table["two"] == 2 and seen == [2]
    assert list(table.values()) == [1, 2]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("counting:three", ["counting:three", "two, word"]),
        ("counting:word", ["counting:word", "no int but str"]),
        ("nowhere:two", ["nowhere:two", "No module named"]),
        ("missing.py:two", ["missing.py", "check the path"]),
    ],
)
def test_what_cannot_be_loaded_is_one_line_with_the_place(name, parts, module):
    with pytest.raises(UserError) as caught:
        Plugins("numbers", int, OURS)[name]
    assert all(part in str(caught.value) for part in parts) and "\n" not in str(caught.value)


def test_a_file_that_raises_is_named_and_can_be_mended(module):
    module.write_text("1 / 0\n")
    with pytest.raises(UserError, match="ZeroDivisionError"):
        plugins.load(f"{module}:two")
    module.write_text("two = 2\n")
    assert plugins.load(f"{module}:two") == 2


def test_another_name_is_no_entry():
    assert "three" not in Plugins("numbers", int, OURS)
    with pytest.raises(KeyError):
        Plugins("numbers", int, OURS)["three"]
