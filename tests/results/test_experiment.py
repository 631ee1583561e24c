"""The experiment of what notes are worth, from its questions to its page: a scripted student, and no training."""

import importlib
import itertools
import re
import shutil
from pathlib import Path

import pytest
import yaml
from benchmark_files import write_lines, write_list
from tiny_encoders import save_encoder

from notewriter.artifacts.training_record import TrainingRecord, write_training_record
from notewriter.cli import COMMANDS
from notewriter.evaluation import evaluate
from notewriter.experiments.run import read_pipeline
from notewriter.results import table
from notewriter.results.origins import origins_of
from notewriter.training import train

ARMS = ("sft_400", "rejection", "reference", "chance")
SETS = ("choice", "2wikimultihopqa", "2wikimultihopqa_shuffled")
CONTROLS = (
    *("lead", "first", "overlap", "similar", "random", "regression", "regression_with_cloze"),
    *("regression_with_encoder", "gold", "base", "cloze"),
)


def question(place, number):
    """A question in HotpotQA's format, whose facts are the second sentence of a film and the third of its director."""
    film, name = f"Tide {place}{number}", f"Kesk {place}{number}"
    sentences = [
        f"{name} sings old songs in Osk.",
        f"{name} keeps two bees in Osk.",
        f"{name} was born in Brel{number}.",
        f"Lodge{place}{number} is the home of {name}.",
    ]
    return {
        "_id": f"{place}-{number}",
        "type": "bridge",
        "question": f"Where was the director of {film} born?",
        "answer": f"Brel{number}",
        "supporting_facts": [[film, 1], [name, 2]],
        "evidences": [],
        "context": [
            [film, [f"{film} is a long film.", f" It was directed at pier{place}{number} by {name}."]],
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
def experiment(tmp_path):
    """The experiment over a few questions, in a file of its own."""
    data = tmp_path / "data"
    for benchmark in ("2wikimultihopqa", "hotpotqa", "musique", "strategyqa"):
        (data / benchmark).mkdir(parents=True)
    for name, number in (("t", 8), ("c", 4), ("d", 4)):
        write_list(data / f"2wikimultihopqa/{name}.json", *(question(name, each) for each in range(number)))
    for name in ("2wikimultihopqa/train", "2wikimultihopqa/dev", "hotpotqa/train", "hotpotqa/dev"):
        write_list(data / f"{name}.json", *(question(name[0] + name[-1], each) for each in range(2)))
    write_lines(data / "musique/train.jsonl", *map(musique, range(2)))
    page = {"id": "1", "title": "Osk", "text": "Osk is another town."}
    for file in ("2wikimultihopqa/corpus.jsonl", "hotpotqa/passages.jsonl", "strategyqa/passages.jsonl"):
        write_lines(data / file, page)
    parts = {"train": "t", "choose": "c", "test": "d"}
    questions = {
        part: f"--dataset 2wikimultihopqa --path {data}/2wikimultihopqa/{name}.json" for part, name in parts.items()
    }
    corpora = " ".join(f"{data}/2wikimultihopqa/{name}.json" for name in parts.values())
    variables = {
        "data": str(data),
        "worth_data": "data",
        "model_dir": str(tmp_path / "base"),
        "encoder": str(save_encoder(tmp_path / "encoder")),
        "asked": 8,
        "cloze_questions": 4,
        "all": corpora,
    }
    content = {"include": "experiments/worth", "output_dir": "run", "variables": variables | questions}
    (tmp_path / "worth.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "worth.yaml"


TURNS = itertools.count()


def student(request):
    """Notes that are each another sentence of the prompt, so that samples differ in their facts and not in length."""
    sentences = re.findall(r"Kesk \w+ (?:sings old songs|keeps two bees|was born) in \w+\.", str(request["messages"]))
    return sentences[next(TURNS) % len(sentences)] if sentences else "Brel"


def trained(argv):
    """What a training leaves: a model that can be served, and its record."""
    options = {name: Path(value) for name, value in itertools.pairwise(argv) if name.startswith("--")}
    folder = options["--output_dir"]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    data = {name: str(options[f"--{name}"]) for name in ("pairs", "data") if f"--{name}" in options}
    config = data | {"model_name_or_path": str(options["--model_name_or_path"])}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    write_training_record(folder, TrainingRecord(steps=25, hyperparameters={"batch_size": 8}, metrics={}))


def run_commands(file, seeds, arms, do_training):
    """Do the runs of some seeds and arms, and those that all arms share; `do_training` does a training."""
    wanted = re.compile(
        r"((index )?the corpus larger|(first|second) (SFT on )?cloze questions"
        r"|gold evidence|passages of|fit the control"
        rf"|(?:{'|'.join(CONTROLS)}) on (?:{'|'.join(SETS)})$)"
        rf"|seed [{seeds}], (?:{'|'.join(arms)})(,| on (?:{'|'.join(SETS)})$|$)"
    )
    do_runs(file, wanted, do_training)


def do_runs(file, wanted, do_training):
    """Do the runs whose titles are wanted, in this process."""
    for run in read_pipeline(file).runs:
        if wanted.match(run.title):
            _, command, *argv = run.command_line()
            if command == "train":
                do_training(argv)
            else:
                importlib.import_module(COMMANDS[command][0]).main(argv)


@pytest.mark.parametrize("served", [student], indirect=True)
def test_it_goes_from_questions_to_a_page_that_begins_with_its_primary_tests(experiment, served, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base").mkdir()
    (tmp_path / "base/config.json").write_text("{}")
    run_commands(experiment, "12", ARMS, trained)
    table.main([str(experiment), "--output", "page.md"])
    page = (tmp_path / "page.md").read_text()
    tests = [line for line in page[: page.index("## Scores")].splitlines() if "→" in line]
    (of_reference,) = (line for line in tests if "best control (" in line and "reference, 2WikiMultihopQA |" in line)
    assert "| 2 x 4 |" in of_reference
    assert len(tests) == 9 and sum("not run" in line for line in tests) == 7
    for plot in ("curves", "words", "gain-note_fact_recall_40", "gain-next_has_answer"):
        assert f"![{plot}](page-{plot}.svg)" in page
    # A further model is set beside the published notes by one pipeline, and its row is in the tables.
    row = experiment.with_name("row.yaml")
    content = yaml.safe_load(experiment.read_text())
    changes = {"include": "experiments/worth_row", "output_dir": "row"}
    changes["variables"] = content["variables"] | {"published": "page-notes.parquet", "model": str(tmp_path / "base")}
    row.write_text(yaml.safe_dump(content | changes))
    shutil.rmtree("run")
    for run in read_pipeline(row).runs:
        if re.match(rf"mine on (?:{'|'.join(SETS)})$", run.title):
            evaluate.main(run.command_line()[2:])
    command = read_pipeline(row).runs[-1].command_line()
    assert command[:3] == ["notewriter", "table", "experiments/worth"]
    table.main([str(experiment), *command[3:]])
    beside = (tmp_path / "row/page.md").read_text()
    assert [line for line in beside.splitlines() if line.startswith("| mine | 0.")]
    assert [line for line in beside.splitlines() if "best control (" in line and "| 2 x 4 |" in line]


@pytest.fixture
def in_this_process(monkeypatch):
    """Trainings run in this process, which has the libraries at hand."""

    def launch(argv):
        module, *options = argv[argv.index("--module") + 1 :]
        importlib.import_module(module).main([*options, "--save_strategy", "no"])

    monkeypatch.setattr(train, "launch", launch)
    # What it would preload is for processes that it starts, and not for those of later tests.
    monkeypatch.setattr(train, "find_library", lambda name: None)


MORE_SETS = ("choice", "choice_hotpotqa", "2wikimultihopqa", "hotpotqa")
MORE_ARMS = ("sft_once", "sft_twice", "reference", "whole_facts")


@pytest.fixture
def more(experiment, tmp_path):
    """The experiment with more questions, over those of `experiment` and a few more."""
    write_list(tmp_path / "data/hotpotqa/dev_more.json", *(question("u", each) for each in range(6)))
    (tmp_path / "train.txt").write_text("".join(f"u-{each}\n" for each in range(4)))
    (tmp_path / "choose.txt").write_text("u-4\nu-5\n")
    content = yaml.safe_load(experiment.read_text())
    content["include"] = "experiments/worth_more"
    content["variables"] |= {
        f"more_{part}": f"--dataset hotpotqa --path {tmp_path}/data/hotpotqa/dev_more.json --question_set {part}.txt"
        for part in ("train", "choose")
    }
    experiment.write_text(yaml.safe_dump(content))
    return experiment


def run_more(file, do_training):
    """Do the runs of one seed, and those that all arms share."""
    wanted = re.compile(
        r"((index )?the corpus (larger|for training)|first (SFT on )?cloze questions|gold evidence|passages of"
        rf"|fit the control|(?!seed)\w+ on (?:{'|'.join(MORE_SETS)})$)"
        rf"|seed 1, (?:{'|'.join(MORE_ARMS)})(,| on (?:{'|'.join(MORE_SETS)})$|$)"
    )
    do_runs(file, wanted, do_training)


@pytest.mark.integration
@pytest.mark.parametrize("served", [student], indirect=True)
def test_with_more_questions_every_arm_is_trained_and_has_its_tests_on_the_page(
    more, served, tiny_model, in_this_process, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    content = yaml.safe_load(more.read_text())
    ratios = {"beside_more": 0.4, "beside_pairs": 0.25}
    content["variables"] |= {"model_dir": str(tiny_model), "steps": 1, **ratios}
    more.write_text(yaml.safe_dump(content))
    run_more(more, train.main)
    table.main([str(more), "--output", "page.md"])
    page = (tmp_path / "page.md").read_text()
    tests = [line for line in page[: page.index("## Scores")].splitlines() if "→" in line]
    assert len(tests) == 12 and not any("not run" in line for line in tests)
    assert all("| 1 x 4 |" in line for line in tests)
    assert "## Against the best control" in page and "minus that of the highest control on the set" in page
    for arm, rounds in (
        ("sft_once", []),
        ("sft_twice", []),
        *((each, ["round-1", "round-2"]) for each in MORE_ARMS[2:]),
    ):
        way = origins_of(Path(f"run/seed-1/{arm}/hotpotqa"))
        assert [folder.name for folder in way.trainings] == ["checkpoint", "checkpoint", *rounds]


@pytest.mark.integration
@pytest.mark.parametrize("served", [student], indirect=True)
def test_its_trainings_start_from_one_another(experiment, served, tiny_model, in_this_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = yaml.safe_load(experiment.read_text())
    content["variables"] |= {"model_dir": str(tiny_model), "steps": 1}
    experiment.write_text(yaml.safe_dump(content))

    run_commands(experiment, "1", ("sft_400$", "sft_400 ", "rejection", "reference"), train.main)
    table.main([str(experiment), "--output", "page.md"])
    page = (tmp_path / "page.md").read_text()
    assert "one seed" in page[: page.index("## Scores")]
    for arm in ("rejection", "reference"):
        ways = [origins_of(Path(f"run/seed-1/{arm}/choice"))]
        assert [folder.name for way in ways for folder in way.trainings] == [
            "checkpoint",
            "checkpoint-2",
            "checkpoint",
            "round-1",
            "round-2",
        ]
