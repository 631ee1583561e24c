"""What the site (mkdocs.yml) has beside docs/: the repository's files that pages link to, and the commands' options.

README.md is the front page. A link out of docs/ leads to a page with the file's text, so that the site needs no address
of a repository and shows the files of its own version.
"""

import argparse
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from notewriter import cli
from notewriter.ground.parser import Parser

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()[\w./-]+(?=[)#])")
FENCE = re.compile(r"^(```\w+) file=(\S+)$", re.MULTILINE)
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sbatch": "sh"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the commands, and README.md with all files that pages link to, and that these link to."""
    pages = [Path(str(file.abs_src_path)) for file in files.documentation_pages()]
    files.append(File.generated(config, "commands.md", content=commands()))
    waiting = [ROOT / "README.md", ROOT / "SECURITY.md", *(path for page in pages for path in linked(page))]
    while waiting:
        path = waiting.pop()
        if place(path) not in files.src_uris:
            files.append(shown(path, config))
            waiting += linked(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to where the files are on the site, and title the blocks that are files."""
    source = page.file.abs_src_path

    def moved(link: re.Match[str]) -> str:
        path = source and target(Path(source), link[0])
        return os.path.relpath(place(path), Path(page.file.src_uri).parent) if path else link[0]

    return FENCE.sub(r'\1 title="\2"', LINK.sub(moved, markdown))


def linked(page: Path) -> list[Path]:
    """The files and folders of the repository that a page of Markdown links to."""
    links = LINK.findall(page.read_text(encoding="utf-8")) if page.suffix == ".md" else []
    return [path for link in links if (path := target(page, link))]


def target(page: Path, link: str) -> Path | None:
    """The file or folder that a link of a page leads to; of a folder its README.md. None if there is none."""
    path = Path(os.path.normpath(page.parent / link))
    if (path / "README.md").exists():
        return path / "README.md"
    return path if path.exists() else None


def place(path: Path) -> str:
    """Where a file or folder of the repository is among the pages of the site."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return "index.md" if name == "README.md" else f"repository/{name.removesuffix('.md')}.md"


def shown(path: Path, config: MkDocsConfig) -> File:
    """The page of a file: itself if it is Markdown, else its text, or the names in a folder; these are not searched."""
    if path.suffix == ".md":
        return File.generated(config, place(path), abs_src_path=str(path))
    if path.is_dir():
        names = sorted(f"- `{each.name}{'/' * each.is_dir()}`" for each in path.iterdir() if each.name != "__pycache__")
        text = "\n".join(names)
    else:
        text = f"```{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}```"
    front = f"---\ntitle: {path.name}\nsearch: {{exclude: true}}\n---\n"
    return File.generated(config, place(path), content=f"{front}# `{path.relative_to(ROOT)}`\n\n{text}\n")


def commands() -> str:
    """The page of the commands, made of their own parsers."""
    sections: list[str] = []
    for name, main in cli.mains().items():
        shown = [action for action in actions_of(main) if action.help != argparse.SUPPRESS]
        rows = [row(action) for action in shown if action.dest != "help"]
        table = "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) if rows else ""
        if name in cli.COMMANDS:
            purpose = cli.COMMANDS[name][1]
            sections += [f"## {name}", f"{purpose[0].upper()}{purpose[1:]}.", *filter(None, [table])]
        elif table and table not in sections:
            # The words of `fetch` have its options.
            sections += [f"### {name}", table]
    return "# Commands\n\nThe commands of `notewriter` with their options, as `--help` has them.\n\n" + "\n\n".join(
        sections
    )


def actions_of(main: Callable[[list[str]], None]) -> list[argparse.Action]:
    """The options of a command, taken from its parser as it prints its help."""
    shown: list[argparse.Action] = []

    def keep(parser: argparse.ArgumentParser) -> str:
        shown.extend(parser._actions)
        return ""

    with mock.patch.object(Parser, "format_help", keep), contextlib.suppress(SystemExit):
        main(["--help"])
    return shown


def row(action: argparse.Action) -> str:
    """An option as a row of its command's table."""
    if action.required:
        default = "required"
    else:
        default = "" if action.default in (None, [], {}, "", argparse.SUPPRESS) else f"`{action.default}`"
    meaning = " ".join((action.help or "").split()).replace("%%", "%")
    cells = (f"`{action.option_strings[0]}`", default, meaning)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
