"""The page on the architecture names places that there are."""

import re
from pathlib import Path

import pytest

import notewriter

PACKAGE = Path(notewriter.__file__).parent
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"
ROWS = re.findall(r"^\| (an? [^|]+) \| ([^|]+) \|", PAGE.read_text().partition("## Where to add")[2], re.MULTILINE)


@pytest.mark.parametrize(("thing", "place"), ROWS, ids=[thing for thing, _ in ROWS])
def test_each_place_to_add_something_exists_and_has_the_table_that_it_names(thing, place):
    named = [each.removeprefix("notewriter/") for each in re.findall(r"`([a-z_/]+(?:/|\.py))`", place)]
    named = [named[0] + name if name == "__init__.py" else name for name in named]
    files = [next((path / name for path in (PACKAGE, ROOT) if (path / name).exists()), None) for name in named]
    assert files and all(files)
    text = "".join(file.read_text() for file in files if file.suffix == ".py")
    names = re.findall(r"`(_?[A-Z_]{5,}|[a-z]+(?:_[a-z]+)+|\w+Arguments)`", place)
    assert all(re.search(rf"\b{name}\b", text) for name in names)


def test_the_tables_rows_are_read():
    assert {"a loss on pairs", "a benchmark", "a judge of candidates", "a control without a model"} <= dict(ROWS).keys()
