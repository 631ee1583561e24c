"""Every command on the pages is accepted by its program or rehearsed, and every path of the project exists."""

import argparse
import functools
import importlib
import itertools
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from benchmark_files import TWO_QUESTIONS, own_question, write_lines, write_two_questions
from command_options import spellings_of
from huggingface_hub import constants
from transformers import AutoTokenizer

from notewriter import Passage, build_index, cli
from notewriter.experiments import pipeline
from notewriter.ground import config, parser, recipes
from notewriter.results import table
from notewriter.training import train

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {*ROOT.glob("*.md"), *(file for name in ("docs", "configs", "tests") for file in (ROOT / name).rglob("*.md"))}
    # What it says of earlier versions need not be so any more.
    - {ROOT / "CHANGELOG.md"}
)
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
OTHERS = {
    "source": "the shell's own",
    "cd": "the shell's own",
    "export": "the shell's own",
    "cp": "copies a file; that it exists is tested below",
    "git": "fetches the repository from wherever it is",
    "python3": "makes a virtual environment",
    "python -m build": "is no dependency of ours; tests/integration/test_wheel.py makes both archives without it",
    "twine": "is no dependency of ours",
    "pip": "needs a package index; that the extras exist is tested below",
    "uv": "as pip",
    "pre-commit": "is no dependency of ours; tests/github tests its file",
    "docker build": "needs Docker; tests/containers tests the file",
    "apptainer build": "needs Apptainer; tests/containers tests the file",
    "python -m vllm.entrypoints.openai.api_server": "is vLLM's own server",
}
"""Programs that are not run here, each with the reason."""
SBATCH = {"--nodes", "--gpus-per-node", "--exclusive", "--mem", "--array", "--time", "--partition", "--account"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def commands() -> list:
    """The lines of the shell on the pages, without variables before a command and programs that run another one."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for line in re.sub(r"\\\n\s*", " ", block[2]).splitlines() if block[1] in ("", "sh") else ():
                if words := shlex.split(line, comments=True):
                    words = command_of(words)
                    number = text.count("\n", 0, block.start()) + 1
                    found.append(pytest.param(words, id=f"{page.relative_to(ROOT)}:{number} {' '.join(words[:2])}"))
    return found


def command_of(words: list[str]) -> list[str]:
    """What a line runs in the end."""
    assert not {"|", "||", "&&", ";", ">"} & set(words)
    while re.fullmatch(r"[A-Z_0-9]+=\S*", words[0]):
        words = words[1:]
    if words[0] == "/usr/bin/time":
        return words[2:]
    # The image and its definition have the program's name too.
    if words[:2] in (["docker", "run"], ["apptainer", "exec"]):
        return words[len(words) - words[::-1].index("notewriter") - 1 :]
    return ["python", *words[1:]] if Path(words[0]).name == "python" else words


class Parsed(BaseException):
    """Raised when a program's parser has accepted its arguments, where the test ends."""


@pytest.fixture
def parse_only(monkeypatch):
    """Run programs up to the end of their parsing."""
    parse_arguments, fill_dataclasses = argparse.ArgumentParser.parse_args, config.filled

    def parse_args(self, *arguments, **options):
        parsed = parse_arguments(self, *arguments, **options)
        if type(self).__module__ != parser.__name__:
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


def command_of_a_job(words: list[str]) -> list[str]:
    """What a job script of the project runs; checks that the job asks for CPUs and memory with its GPUs."""
    number = next(number for number, word in enumerate(words) if word.endswith(".sbatch"))
    options, script, arguments = words[:number], Path(words[number]), words[number + 1 :]
    assert script.parent == Path("slurm")
    assert {"--exclusive", "--mem"} <= {option.partition("=")[0] for option in options} <= SBATCH
    # Slurm replaces %a before the command sees it.
    arguments = [argument.replace("%a", "1") for argument in arguments]
    if script.name == "train.sbatch":
        return ["accelerate", "launch", "--config_file", *arguments]
    return ["notewriter", "serve", *arguments] if script.name == "serve.sbatch" else arguments


@pytest.mark.parametrize("words", commands())
def test_a_command_of_the_pages_is_taken_by_its_program(words, parse_only, monkeypatch):
    program, *arguments = command_of_a_job(words[1:]) if words[0] == "sbatch" else words
    if (program, *arguments[:1]) == ("accelerate", "launch"):
        from accelerate.commands.launch import launch_command_parser

        launch, unknown = launch_command_parser().parse_known_args(arguments[1:])
        assert not unknown and (ROOT / launch.config_file).exists()
        # A machine without a GPU refuses bfloat16, which most recipes ask for.
        script = [launch.training_script, *launch.training_script_args, "--bf16", "false"]
        parse_only(script, script=launch.training_script)
    elif Path(program).name == "notewriter" and arguments[0] == "train":
        launched = []
        monkeypatch.setattr("notewriter.training.train.launch", launched.extend)
        train.main(arguments[1:])
        number = launched.index("--module") + 1
        parse_only(["train", *launched[number + 1 :], "--bf16", "false"], module=launched[number])
    elif Path(program).name == "notewriter":
        parse_only(["notewriter", *arguments])
    elif program == "python" and arguments[0].startswith(("benchmarks/", "examples/")):
        parse_only(arguments, script=arguments[0])
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in arguments if "=" not in word} <= set(targets)
    elif Path(program).parent == Path(".venv/bin"):
        assert Path(program).name in {"pytest", "ruff"}
    else:
        line = " ".join([program, *arguments])
        assert [known for known in OTHERS if f"{line} ".startswith(f"{known} ")]


@pytest.fixture(scope="module")
def options_of():
    """The options of a command, with all that its subcommands have."""

    @functools.cache
    def spellings(name):
        mains = [main for command, main in cli.mains().items() if command.split()[0] == name]
        return set().union(*map(spellings_of, mains))

    return spellings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_in_a_sentence_have_the_options_that_it_names(page, options_of):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for name, rest in re.findall(r"`(?:\.venv/bin/)?notewriter ([a-z][a-z-]*)([^`]*)`", text):
        assert set(re.findall(r"(?<=\s)--[\w-]+", rest)) <= options_of(name) | {"--help"}


UNREHEARSED = {
    "--chains": "calls no model, and has no dry run",
    "--checkpoints": "needs checkpoints",
    "runs/ours": "needs a finished run",
    "runs/worth": "needs a finished run",
    "deepnote.yaml": "is written by the line before it",
    "indexes.yaml": "is written by the line before it",
    "mem_agent": "cuts passages with the tokenizer that it names",
    "riddles": "is rehearsed by tests/examples/test_riddles.py",
}
"""What is in lines that can be rehearsed, but not here, with the reason."""
READERS = ("path", "split", "index", "retriever", "question_set", "ids", "eval_files")
"""Options that name the reader's own files."""


def rehearsable() -> list:
    """The lines whose command has a dry run."""
    names = ("pipeline", "table", "pairs", "gold", "chains", "evaluate")
    lines = [each for each in commands() if Path(each.values[0][0]).name == "notewriter" and each.values[0][1] in names]
    return [each for each in lines if not any(left in word for left in UNREHEARSED for word in each.values[0])]


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """Replaces the reader's files in the arguments of a command by two questions and an index of a passage."""
    folder = tmp_path_factory.mktemp("reader")
    build_index([Passage("p1", "Low Tide", "Low Tide was directed by Ana Kesk.")], folder / "index")

    def replaced(arguments: list[str]) -> list[str]:
        options = config.given(arguments)
        if options["dataset"] in TWO_QUESTIONS:
            path = write_two_questions(folder, options["dataset"])
        else:
            path = write_lines(folder / "questions.jsonl", own_question(supporting_facts=["Ana"]))
        if options.get("config"):
            recipe = yaml.safe_load(recipes.find(options["config"]).read_text(encoding="utf-8"))
            recipe = {key: value for key, value in recipe.items() if key not in READERS}
            (folder / "recipe.yaml").write_text(yaml.dump(recipe), encoding="utf-8")
        named = re.split(r"\0(?=--)", "\0".join(arguments))
        kept = [
            word
            for option in named
            if option.split("\0")[0][2:] not in (*READERS, "config")
            for word in option.split("\0")
        ]
        own = ["--config", str(folder / "recipe.yaml")] if options.get("config") else []
        return [*kept, *own, "--path", str(path), "--index", str(folder / "index")]

    return replaced


@pytest.mark.parametrize("words", rehearsable())
def test_a_command_of_the_pages_is_rehearsed(words, stand_in, tiny_model, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    _, name, *arguments = words
    if name in ("pairs", "gold", "chains", "evaluate"):
        arguments = stand_in(arguments)
        tokenizer = AutoTokenizer.from_pretrained(tiny_model)
        monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: tokenizer)
    elif name == "table" and "--make" not in arguments:
        # The estimate asks for every file of the table; tests/results/test_table.py has them.
        monkeypatch.setattr(table, "cost_of", lambda *_: {})
        monkeypatch.setattr(table, "cost_table", lambda *_: ("", [""], []))
    elif name == "pipeline":
        # It does the runs that are marked, on files that are not here; tests/experiments/test_forecast.py has it.
        monkeypatch.setattr(pipeline, "forecast", lambda each: [pipeline.commands(each)])
    (tmp_path / "slurm").mkdir()
    shutil.copy(ROOT / "slurm/cluster.env.example", tmp_path / "slurm/cluster.env")
    monkeypatch.chdir(tmp_path)
    dry = [] if "--dry_run" in arguments else ["--dry_run", "true"]
    importlib.import_module(cli.COMMANDS[name][0]).main([*arguments, *dry])


def test_no_command_of_the_pages_gives_training_questions_to_a_recipe_with_a_question_set():
    """The sets are rules for whole files of development or test questions; any other file is refused."""
    for each in commands():
        following = dict(itertools.pairwise(each.values[0]))
        if following.get("notewriter") == "evaluate" and {"--config", "--path"} <= following.keys():
            recipe = yaml.safe_load(recipes.find(following["--config"]).read_text(encoding="utf-8"))
            assert not (recipe.get("question_set") and "train" in Path(following["--path"]).stem), each.id


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_project_on_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    words = {word.rstrip(".,:;") for word in re.findall(r"[\w./-]+/[\w./-]+", text)}
    made = set(re.findall(r"(?:file=|^cp \S+ |--output )([^\s`]+)", text, re.MULTILINE))
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
