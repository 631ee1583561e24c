"""What the pages of results must say of themselves."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
PAGES = sorted(RESULTS.glob("e*.md"))


def quality_table(page: Path) -> list[str]:
    """The rows of the quickstart's table."""
    text = page.read_text()
    return re.findall(r"^\|.*$", text[text.index("| metric (100 held-out questions") :].split("\n\n")[0], re.MULTILINE)


def test_the_readme_has_the_table_of_the_results_and_says_of_which_questions():
    rows = quality_table(ROOT / "README.md")
    assert rows == quality_table(ROOT / "docs/results.md")
    assert "generated world" in rows[0]
    assert any("without a model" in row for row in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_that_shows_facts_tells_the_length_of_the_notes(page):
    text = page.read_text()
    assert "note\\_fact\\_recall" not in text or "words" in text.partition("## Pairs")[0].casefold()
    assert "is typed by hand" not in text


@pytest.mark.parametrize("file", sorted(ROOT.glob("configs/experiments/e*.yaml")), ids=lambda file: file.stem)
def test_an_experiment_that_shows_facts_shows_the_words_too(file):
    metrics = (yaml.safe_load(file.read_text()).get("results") or {"metrics": []})["metrics"]
    assert "note_fact_recall" not in metrics or "note_words" in metrics


def test_a_p_value_at_the_floor_of_the_permutations_is_a_bound_on_every_page():
    # E1 has 84 comparisons: 84 / 10,001.
    assert not re.search(r"\| 0\.008 \||p 0\.008\)", (RESULTS / "e1.md").read_text())
    assert all("&lt;0.0" in page.read_text() for page in PAGES)
