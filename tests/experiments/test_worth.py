"""The experiment of what notes are worth, from its questions to its page: a scripted student, and no training."""

import importlib
import itertools
import re

import pytest
import yaml
from benchmark_files import write_lines, write_list

from notewriter.artifacts.training_record import TrainingRecord, write_training_record
from notewriter.cli import COMMANDS
from notewriter.experiments import results
from notewriter.experiments.run import read_pipeline
from notewriter.ground.recipes import RECIPES

FILE = RECIPES / "experiments/worth.yaml"
ARMS = ("sft_400", "rejection", "reference", "chance")
SETS = ("choice", "2wikimultihopqa", "2wikimultihopqa_shuffled")
CONTROLS = ("lead", "first", "overlap", "random", "gold", "base")


def question(place, number):
    """A question in HotpotQA's format, whose facts are the second sentence of a film and the third of its director."""
    film, name = f"Tide {place}{number}", f"Kesk {place}{number}"
    sentences = [
        f"{name} sings old songs in Osk.",
        f"{name} keeps two bees in Osk.",
        f"{name} was born in Brel{number}.",
    ]
    return {
        "_id": f"{place}-{number}",
        "type": "bridge",
        "question": f"Where was the director of {film} born?",
        "answer": f"Brel{number}",
        "supporting_facts": [[film, 1], [name, 2]],
        "evidences": [],
        "context": [
            [film, [f"{film} is a long film.", f" It was directed by {name}."]],
            [name, [sentences[0], *(f" {sentence}" for sentence in sentences[1:])]],
            [f"Osk {place}{number}", ["Osk is a town of bees."]],
        ],
    }


def musique(number):
    paragraphs = question("m", number)["context"]
    return {
        "id": f"2hop__{number}_1",
        "question": f"Where was the director of Tide m{number} born?",
        "answer": f"Brel{number}",
        "answer_aliases": [],
        "answerable": True,
        "paragraphs": [
            {"idx": place, "title": title, "paragraph_text": "".join(sentences), "is_supporting": place < 2}
            for place, (title, sentences) in enumerate(paragraphs)
        ],
        "question_decomposition": [
            {"id": place + 1, "question": "?", "answer": "?", "paragraph_support_idx": place} for place in range(2)
        ],
    }


@pytest.fixture
def files(tmp_path):
    """The folder of the benchmarks' files."""
    for benchmark in ("2wikimultihopqa", "hotpotqa", "musique"):
        (tmp_path / "data" / benchmark).mkdir(parents=True)
    write_list(tmp_path / "data/2wikimultihopqa/train.json", *(question("t", number) for number in range(12)))
    write_list(tmp_path / "data/2wikimultihopqa/dev.json", *(question("d", number) for number in range(4)))
    write_list(tmp_path / "data/hotpotqa/dev.json", *(question("h", number) for number in range(2)))
    write_lines(tmp_path / "data/musique/train.jsonl", *map(musique, range(2)))
    return tmp_path / "data"


TURNS = itertools.count()


def student(request):
    """Notes that are each another sentence of the prompt, so that samples differ in their facts and not in length."""
    sentences = re.findall(r"Kesk \w+ (?:sings old songs|keeps two bees|was born) in \w+\.", str(request["messages"]))
    return sentences[next(TURNS) % len(sentences)] if sentences else "Brel"


def trained(options):
    """What a training leaves: a model that can be served, and its record."""
    folder = options["--output_dir"]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    data = {name: str(options[f"--{name}"]) for name in ("pairs", "data") if f"--{name}" in options}
    config = data | {"model_name_or_path": str(options["--model_name_or_path"])}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    write_training_record(folder, TrainingRecord(steps=25, hyperparameters={"batch_size": 8}, metrics={}))


@pytest.mark.parametrize("served", [student], indirect=True)
def test_it_goes_from_questions_to_a_page_that_begins_with_its_primary_tests(files, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = {"data": str(files), "model_dir": str(tmp_path / "base"), "held_out": "4", "asked": "8"}
    pipeline = read_pipeline(FILE, "run", changes)
    wanted = re.compile(
        rf"(hold out|index|gold evidence|(?:{'|'.join(CONTROLS)}) on (?:{'|'.join(SETS)})$)"
        rf"|seed [12], (?:{'|'.join(ARMS)})(,| on (?:{'|'.join(SETS)})$|$)"
    )
    (tmp_path / "base").mkdir()
    (tmp_path / "base/config.json").write_text("{}")
    for run in pipeline.runs:
        if wanted.match(run.title):
            _, command, *argv = run.command_line(1)
            if command == "train":
                trained({name: tmp_path / value for name, value in itertools.pairwise(argv) if name.startswith("--")})
            else:
                importlib.import_module(COMMANDS[command][0]).main(argv)
    set_ = [f"{name}={value}" for name, value in changes.items()]
    results.main([str(FILE), "--output_dir", "run", "--output", "page.md", "--set", *set_])
    page = (tmp_path / "page.md").read_text()
    assert page.index("## Primary tests") < page.index("## Scores")
    tests = [line for line in page[: page.index("## Scores")].splitlines() if "→" in line]
    (of_reference,) = (line for line in tests if "best control (" in line and "reference, 2WikiMultihopQA |" in line)
    assert "| 2 x 4 |" in of_reference
    assert len(tests) == 9 and sum("not run" in line for line in tests) == 7
    assert "![curves](page-curves.svg)" in page
