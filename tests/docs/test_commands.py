"""Every command in README and docs is accepted by its program, and every path of the project exists."""

import argparse
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from notewriter import cli
from notewriter.ground import config, recipes
from notewriter.training import train

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = (
    "notewriter/",
    "configs/",
    "containers/",
    "training/",
    "data_construction/",
    "eval/",
    "benchmarks/",
    "slurm/",
    "tests/",
    "docs/",
    "examples/",
)
"""Prefixes of paths in the project; other paths are the reader's own."""
CODE = [
    file
    for package in ("notewriter", "data_construction", "eval", "training")
    for file in sorted((ROOT / package).rglob("*.py"))
]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def commands() -> list:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for line in re.sub(r"\\\n\s*", " ", block[2]).splitlines():
                if block[1] in ("", "sh") and line.strip() and not line.startswith("#"):
                    number = text.count("\n", 0, block.start()) + 1
                    found.append(
                        pytest.param(line, id=f"{page.relative_to(ROOT)}:{number} {' '.join(line.split()[:2])}")
                    )
    return found


class Parsed(BaseException):
    """Raised when a program's parser has accepted its arguments, where the test ends."""


@pytest.fixture
def parse_only(monkeypatch):
    """Run programs up to the end of their parsing."""
    parse_arguments, fill_dataclasses = argparse.ArgumentParser.parse_args, config.filled

    def parse_args(self, *arguments, **options):
        parsed = parse_arguments(self, *arguments, **options)
        if type(self).__module__ != config.__name__:
            raise Parsed
        return parsed

    def filled(*arguments):
        fill_dataclasses(*arguments)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr(config, "filled", filled)
    monkeypatch.chdir(ROOT)

    def run(argv, script=None, module=None):
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(Parsed):
            if script:
                monkeypatch.syspath_prepend(str((ROOT / script).parent))
                runpy.run_path(script, run_name="__main__")
            elif module:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                cli.main()

    return run


def command_of_a_job(words):
    """What a job script of the project runs; checks that the job asks for CPUs and memory with its GPUs."""
    number = next(number for number, word in enumerate(words) if word.endswith(".sbatch"))
    options, script, arguments = words[:number], Path(words[number]), words[number + 1 :]
    assert script.parent == Path("slurm")
    assert {option.partition("=")[0] for option in options} >= {"--exclusive", "--mem"}
    # Slurm replaces %a before the command sees it.
    arguments = [argument.replace("%a", "1") for argument in arguments]
    return ["notewriter", "serve", *arguments] if script.name == "serve.sbatch" else arguments


@pytest.mark.parametrize("line", commands())
def test_a_command_of_the_pages_is_taken_by_its_program(line, parse_only, monkeypatch):
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_0-9]+=\S*", words[0]):
        words.pop(0)
    if words[0] == "/usr/bin/time":
        words = words[2:]
    if words[0] == "sbatch":
        words = command_of_a_job(words[1:])
    program, *arguments = words
    script = next((word for word in arguments if word.startswith("training/train_")), None)
    if script:
        # A machine without a GPU refuses bfloat16, which most recipes ask for.
        parse_only([script, *arguments[arguments.index(script) + 1 :], "--bf16", "false"], script=script)
    elif Path(program).name == "notewriter" and arguments[0] == "train":
        launched = []
        monkeypatch.setattr("notewriter.training.train.launch", launched.extend)
        train.main(arguments[1:])
        number = launched.index("--module") + 1
        parse_only(["train", *launched[number + 1 :], "--bf16", "false"], module=launched[number])
    elif Path(program).name == "notewriter":
        parse_only(["notewriter", *arguments])
    elif program.endswith("python") and arguments[0].startswith(("benchmarks/", "examples/")):
        parse_only(arguments, script=arguments[0])
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets)
    else:
        known = {"source", "sbatch", "cp", "vllm", "pip", "uv", "python3", "git", "cd", "export", "docker", "apptainer"}
        assert program in known or "vllm.entrypoints" in line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_project_on_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    words = {word.rstrip(".,:;") for word in re.findall(r"[\w./-]+/[\w./-]+", text)}
    made = set(re.findall(r"file=(\S+)|^cp \S+ (\S+)", text, re.MULTILINE))
    made = {name for names in made for name in names}
    # `notewriter/trace/1` is a schema.
    ours = {word for word in words if word.startswith(OURS) and not re.fullmatch(r"notewriter/[\w-]+/\d+", word)} - made
    ours -= set(recipes.names())
    missing += [word for word in ours if not (ROOT / word).exists() and not list(ROOT.glob(word))]
    assert not missing


def test_every_file_of_the_project_that_a_message_names_exists():
    named = {
        (name, file.name)
        for file in CODE
        for name in re.findall(r"\b(?:configs|slurm|examples|docs)/[\w./-]+\.\w+", file.read_text(encoding="utf-8"))
    }
    # A user's own.
    assert {each for each in named if not (ROOT / each[0]).exists()} <= {("slurm/cluster.env", "pipeline.py")}


def test_extras_are_installed_from_a_clone_and_exist():
    texts = {file: file.read_text(encoding="utf-8") for file in (*PAGES, *CODE)}
    assert not [file for file, text in texts.items() if "notewriter[" in text]
    by = re.compile(r"""pip install -e '?\.\[([\w,-]+)\]|\binstall\(["']([\w-]+)["']\)""")
    named = {name for text in texts.values() for found in by.findall(text) for name in "".join(found).split(",")}
    assert {"dense", "corpora"} <= named <= EXTRAS.keys()
