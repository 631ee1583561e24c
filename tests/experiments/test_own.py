"""The pipeline of one's own documents: which model by the machine, what its commands are, and what it says first."""

import json

import nvidia_smi
import pytest

from notewriter.data.options import PairsArguments
from notewriter.data.recipe import read_recipe
from notewriter.evaluation.evaluating import EvaluateArguments
from notewriter.experiments import run as runs
from notewriter.experiments.run import commands, read_pipeline
from notewriter.ground.config import parse
from notewriter.ground.errors import UserError
from notewriter.ground.recipes import RECIPES
from notewriter.methods import prepare
from notewriter.models.prices import CostArguments
from notewriter.models.roles import ModelArguments
from notewriter.training import preflight

FILE = RECIPES / "pipelines/own.yaml"
MINE = {"documents": "my manuals", "questions": "questions.jsonl"}

SHAPES = {
    "1.5B": (1536, 8960, 28, 12, 2, True),
    "3B": (2048, 11008, 36, 16, 2, True),
    "7B": (3584, 18944, 28, 28, 4, False),
    "14B": (5120, 13824, 48, 40, 8, False),
    "32B": (5120, 27648, 64, 40, 8, False),
    "72B": (8192, 29568, 80, 64, 8, False),
}
"""Of Qwen2.5: hidden and inner size, layers, heads, key-value heads, and whether the head is the embedding."""


def only(argv, option):
    return argv[argv.index(option) :][:2]


def commands_of(**changes):
    return {run.title: run.command_line() for run in read_pipeline(FILE, "runs/own", MINE | changes).runs}


@pytest.mark.parametrize("machine", [{}, {"gpu_gib": "80"}], ids=["CPU", "GPU"])
def test_its_commands_are_what_their_programs_take(machine):
    made = commands_of(**machine)
    (_, _, *argv) = made["label pairs"]
    arguments, _ = parse([PairsArguments, ModelArguments], argv)
    read_recipe(arguments)
    assert arguments.eval_files == {"runs/own/questions/dev.jsonl": "jsonl"}
    for title in ("evaluate before", "evaluate after"):
        evaluated, _ = parse([EvaluateArguments, ModelArguments], made[title][2:])
        prepare(evaluated.method, evaluated.method_options)
        assert evaluated.controls and evaluated.path == "runs/own/questions/dev.jsonl"
    assert made["read the documents"][5] == "my manuals"


def test_what_is_served_before_and_after_is_asked_alike():
    made = commands_of()
    before, after = (made[title] for title in ("evaluate before", "evaluate after"))
    assert before[: before.index("--output_dir")] == after[: after.index("--output_dir")]
    assert (before[-1], after[-1]) == ("models/SmolLM2-135M-Instruct", "runs/own/checkpoint")


def test_questions_are_those_of_the_file_or_made_of_the_documents():
    assert commands_of()["check and divide the questions"][5] == "questions.jsonl"
    assert commands_of(questions="made")["check and divide the questions"][5] == "runs/own/made.jsonl"
    assert "their scores flatter" in read_pipeline(FILE, None, MINE | {"questions": "made"}).opening
    assert "flatter" not in read_pipeline(FILE, None, MINE).opening


def test_questions_made_beside_ones_own_are_learnt_from_and_none_is_held_out():
    assert "--beside" not in commands_of()["check and divide the questions"]
    made = commands_of(made="80")
    assert made["make questions"][5] == "80"
    divided = made["check and divide the questions"]
    assert divided[divided.index("--beside") + 1] == "runs/own/made.jsonl" and "questions.jsonl" in divided
    assert "--beside" not in commands_of(questions="made")["check and divide the questions"]


def test_the_prices_of_a_teacher_are_those_of_its_tokens():
    teacher = {"teacher": "https://teacher.example/v1", "teacher_model": "large", "teacher_prices": "[0.15, 0.6]"}
    (costs,) = parse([CostArguments], only(commands_of(**teacher)["label pairs"], "--prices"))
    assert costs.prices == {"policy": [0.15, 0.6]}


def test_a_teacher_writes_the_candidates_and_is_not_served():
    teacher = {"teacher": "https://teacher.example/v1", "teacher_model": "large"}
    argv = commands_of(**teacher)["label pairs"]
    assert "--serve" not in argv
    _, models = parse([PairsArguments, ModelArguments], argv[2:])
    assert (models.base_url, models.model) == ("https://teacher.example/v1", "large")


def test_without_documents_the_first_line_says_what_to_add():
    with pytest.raises(UserError, match="documents has no value; add --set documents=VALUE"):
        read_pipeline(FILE, None, {"questions": "made"})


@pytest.mark.parametrize(
    ("gpu", "model", "recipe"),
    [
        (nvidia_smi.A100, "Qwen/Qwen2.5-32B-Instruct", "own_lora"),
        (nvidia_smi.RTX_4090, "Qwen/Qwen2.5-7B-Instruct", "own_lora"),
        (nvidia_smi.T4, "Qwen/Qwen2.5-3B-Instruct", "own_lora"),
        (None, "HuggingFaceTB/SmolLM2-135M-Instruct", "own_small"),
    ],
)
def test_the_model_is_the_largest_that_the_machine_trains(tmp_path, monkeypatch, gpu, model, recipe):
    if gpu:
        nvidia_smi.install(monkeypatch, tmp_path / "bin", gpu)
        monkeypatch.setattr(runs, "runs_on_cpu", lambda: False)
    made = commands_of()
    assert made["fetch the model"][3] == model and f"dpo/{recipe}" in made["train"]
    pipeline = read_pipeline(FILE, "runs/own", MINE)
    assert model.partition("/")[2] in pipeline.opening and commands(pipeline).startswith(f"# {pipeline.opening}\n")


def test_each_size_is_taken_where_preflight_finds_room_and_a_fifth_more(tmp_path, capsys):
    least = {}
    for gib in (1, 9, 10, 19, 20, 37, 38, 78, 79, 169, 170):
        name = commands_of(gpu_gib=str(gib))["fetch the model"][3].split("-")[1]
        least.setdefault(name, gib)
    assert list(least) == list(SHAPES)
    for name, (hidden, inner, layers, heads, key_values, tied) in SHAPES.items():
        config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": hidden}
        config |= {"intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads}
        config |= {"num_key_value_heads": key_values, "tie_word_embeddings": tied, "vocab_size": 152064}
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        options = ["--config", "dpo/own_lora", "--model_name_or_path", str(tmp_path / name), "--pairs", "unread"]
        preflight.main([*options, "--rows", "300", "--prompt_tokens", "2000", "--completion_tokens", "160"])
        needed = float(capsys.readouterr().out.partition("memory of a GPU: ")[2].split()[0])
        # The smallest is for whatever GPU there is.
        assert name == "1.5B" or needed * 1.17 <= least[name] <= needed * 1.45
