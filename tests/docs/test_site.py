"""The documentation as a site: strict, whole, and with nothing loaded from elsewhere."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import notewriter
from notewriter import cli

ROOT = Path(__file__).parents[2]
REFERENCE = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(encoding="utf-8"), re.MULTILINE)
LOADED = re.compile(r"""<(?:script|img|iframe|source)[^>]* src="?(\w+:[^"> ]+)|<link[^>]* href="?(https?:[^"> ]+)""")


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs/hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("line", ["[text](missing.md)", "[text](other.md#missing)", "![image](missing.svg)"])
def test_a_dead_link_fails(tmp_path, line):
    def built(text: str) -> None:
        (tmp_path / "docs/index.md").write_text(text)
        folders = {"docs_dir": f"{tmp_path}/docs", "site_dir": f"{tmp_path}/site"}
        build(load_config(str(ROOT / "mkdocs.yml"), **folders, hooks=[], plugins=[], nav=["index.md", "other.md"]))

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/other.md").write_text("# Other\n\n## Here\n")
    (tmp_path / "docs/site.css").touch()
    built("[text](other.md#here)")
    with pytest.raises(Abort):
        built(line)


def test_links_out_of_docs_lead_to_pages_with_the_files(hooks):
    page = ROOT / "docs/training.md"
    assert hooks.place(hooks.target(page, "../configs/dpo/deepnote_qwen2.5-7b.yaml")) == (
        "repository/configs/dpo/deepnote_qwen2.5-7b.yaml.md"
    )
    assert hooks.place(hooks.target(page, "results/e1.md")) == "results/e1.md"
    assert hooks.place(hooks.target(ROOT / "docs/results/README.md", "../../configs/experiments")) == (
        "repository/configs/experiments/README.md"
    )
    assert hooks.place(hooks.target(ROOT / "README.md", "README.md")) == "index.md"
    assert hooks.target(page, "missing.md") is None


def test_every_public_name_is_in_the_reference():
    assert {f"notewriter.{name}" for name in notewriter.__all__} <= set(REFERENCE)


@pytest.mark.parametrize("page", ["extending.md", "python.md"])
def test_what_a_page_names_by_its_module_is_in_the_reference(page):
    named = set(re.findall(r"`(notewriter(?:\.\w+)+)`", (ROOT / "docs" / page).read_text(encoding="utf-8")))
    entry_points = {f"notewriter.{group}" for group in ("methods", "judges", "metrics", "retrievers", "datasets")}
    assert not [
        name for name in named - entry_points if not any(f"{each}.".startswith(f"{name}.") for each in REFERENCE)
    ]


@pytest.mark.integration
@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_shows_each_name_with_its_signature_and_docstring(site, name):
    page = (site / "reference.html").read_text(encoding="utf-8")
    shown = page.partition(f'<h3 id="{name}"')[2].partition("<h3 ")[0]
    assert "<p>" in shown.partition("doc-contents")[2]
    # An exception that adds nothing to its base has none.
    assert "doc-signature" in shown or name == "notewriter.ground.errors.UserError"


@pytest.mark.integration
def test_the_front_page_is_the_readme_and_the_commands_have_their_options(site):
    front = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="install.html"' in front and 'src="pipeline.svg"' in front
    page = (site / "commands.html").read_text(encoding="utf-8")
    assert all(f'<h2 id="{name}"' in page for name in cli.COMMANDS)
    assert "<code>--max_length_gap</code>" in page


@pytest.mark.integration
def test_what_is_found_are_the_pages_and_no_files(site):
    places = {each["location"] for each in json.loads((site / "search/search_index.json").read_text())["docs"]}
    assert {"data_construction.html#building-pairs", "results/e1.html", "reference.html#notewriter.evaluate"} <= places
    assert not [place for place in places if place.startswith("repository/configs/dpo")]


@pytest.mark.integration
def test_nothing_is_loaded_from_elsewhere_and_no_folder_of_this_machine_is_named(site):
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(pages) > 60
    assert not {found for text in pages.values() for found in LOADED.findall(text)}
    assert not [page for page in site.rglob("*.css") if re.search(r"url\(.?https?:", page.read_text(encoding="utf-8"))]
    assert not [page for page, text in pages.items() if str(Path.home()) + "/" in text or str(ROOT) in text]


@pytest.mark.integration
def test_no_list_is_taken_for_a_part_of_the_paragraph_before_it(site):
    list_in_paragraph = re.compile(r"<p>(?:(?!</p>).)*\n[-*] ", re.DOTALL)
    pages = [page for page in site.rglob("*.html") if list_in_paragraph.search(page.read_text(encoding="utf-8"))]
    assert not pages


def test_every_page_of_the_site_is_in_the_navigation_once():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("nav:\n  -") :])["nav"]
    pages = re.findall(r"[\w/-]+\.md", json.dumps(nav))
    assert len(pages) == len(set(pages))
