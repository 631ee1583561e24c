"""Disks that are full or read-only, and files and folders in each other's places: one line, and the same command again.

Every command works in a folder of its own, on a file system that is too small, or under a limit on file sizes, which
needs no rights. What it ends with is one line that names a file and the remedy; when there is room, the same command
leaves what one leaves that was never disturbed.
"""

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pytest
from fake_endpoint import FakeEndpoint, fake_endpoint, knowing
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter import cli
from notewriter.fetching import model as fetch
from notewriter.fetching.model import HUB_ID
from notewriter.ground import errors, jsonl
from notewriter.ground.locks import locked

ROOM = 64 << 20
Run = Callable[..., tuple[int, str, str]]
Limit = Callable[[int], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, or a training script; returns its exit code and what it wrote to the two streams."""

    def command(*argv: object) -> tuple[int, str, str]:
        name, *options = map(str, argv)
        monkeypatch.setattr(sys, "argv", ["notewriter", name, *options])
        try:
            if name == "train-dpo":
                from notewriter.training import dpo as train_dpo

                errors.run(lambda: train_dpo.main(options))
            else:
                cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


def complaint(result: tuple[int, str, str]) -> str:
    """The one line that a command ended with."""
    code, _, written = result
    *_, last = written.rstrip("\n").split("\n")
    assert code == 2, written
    assert last.startswith("error: "), written
    assert written.count("error: ") == 1, written
    assert "Traceback" not in written
    return last


# What commands read, made where there is room


@dataclass(frozen=True)
class Inputs:
    """A tiny world, what was made of it in `folder`, the endpoint that commands ask, and a model of two layers."""

    folder: Path
    world: Mapping[str, str]
    endpoint: FakeEndpoint
    model: Path

    def options(self, folder: Path, name: str, settings: dict[str, Any]) -> list[str]:
        """The arguments of a command that asks the endpoint and works in `folder / name`."""
        own = {"output_dir": str(folder / name), "cache": str(folder / "cache.sqlite"), "concurrency": 2}
        return run_config(self.folder, f"settings of {name}", dict(self.world), self.endpoint, own | settings)


PAIRS = DEEPNOTE_PAIRS | {"method_options": {"deepnote": {"max_step": 1, "max_failure": 1}}}
EVALUATION = {"method": "deepnote", "method_options": {"max_step": 1, "max_failure": 1}}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, tiny_pairs: Path) -> Iterator[Inputs]:
    from notewriter.data import build_pairs
    from notewriter.evaluation import evaluate

    folder = tmp_path_factory.mktemp("inputs")
    world = tiny_world(folder / "world", 4)
    golds = {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}
    with fake_endpoint(knowing(golds)) as endpoint:
        made = Inputs(folder, world, endpoint, tiny_model)
        evaluate.main(made.options(folder, "evaluated", EVALUATION))
        build_pairs.main(made.options(folder, "built", PAIRS))
        shutil.copytree(tiny_pairs, folder / "pairs")
        _save_adapter(tiny_model, folder / "adapter")
        _save_encoder(tiny_model, folder / "encoder")
        yield made


def _save_adapter(model: Path, folder: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    lora = LoraConfig(r=4, target_modules="all-linear")
    get_peft_model(AutoModelForCausalLM.from_pretrained(model), lora).save_pretrained(folder)


def _save_encoder(model: Path, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    parts = [modules.Transformer(str(model)), modules.Pooling(32)]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder))


# What commands write, and what of it is the same whenever they come to their end


class Command(NamedTuple):
    argv: Callable[[Inputs, Path], list[object]]
    results: tuple[str, ...]
    copied: tuple[str, ...] = ()


DATASET = ("train.parquet", "stats.json", "README.md")
COMMANDS = {
    "world": Command(
        lambda inputs, folder: ["world", "--output_dir", folder / "world", "--train", 20, "--test", 4],
        ("world/train/corpus.jsonl", "world/test/questions.jsonl"),
    ),
    "index": Command(
        lambda inputs, folder: [
            *("index", "--path", inputs.folder / "world/train/corpus.jsonl", "--index", folder / "index")
        ],
        ("index/manifest.json",),
    ),
    "dense index": Command(
        lambda inputs, folder: [
            *("index", "--path", inputs.folder / "world/train/corpus.jsonl", "--index", folder / "dense"),
            *("--encoder", inputs.folder / "encoder", "--device", "cpu", "--query_prompt", "", "--passage_prompt", ""),
        ],
        ("dense/manifest.json", "dense/embeddings.float32", "dense/passages.jsonl"),
    ),
    "pairs": Command(
        lambda inputs, folder: ["pairs", *inputs.options(folder, "pairs", PAIRS)],
        tuple(f"pairs/{name}" for name in DATASET),
    ),
    "chains, their cache elsewhere": Command(
        lambda inputs, folder: [
            *("chains", *inputs.options(folder, "chains", {"max_step": 2, "retries": 1})),
            *("--cache", inputs.folder / "chains.sqlite"),
        ],
        ("chains/stats.json", "chains/dropped_questions.jsonl"),
    ),
    "inspect": Command(
        lambda inputs, folder: [
            *("inspect", "--pairs", inputs.folder / "built", "--output", folder / "pairs.html"),
        ],
        ("pairs.html",),
    ),
    "evaluate": Command(
        lambda inputs, folder: ["evaluate", *inputs.options(folder, "evaluated", EVALUATION)],
        ("evaluated/predictions.jsonl", "evaluated/metrics.json"),
    ),
    "judge": Command(
        lambda inputs, folder: [
            *("judge", "--runs", folder / "evaluated", "--cache", folder / "cache.sqlite"),
            *("--base_url", inputs.endpoint.base_url, "--model", "fake"),
        ],
        ("evaluated/predictions.jsonl", "evaluated/metrics.json"),
        copied=("evaluated",),
    ),
    "report": Command(
        lambda inputs, folder: [
            *("report", "--runs", inputs.folder / "evaluated", "--output", folder / "report.html"),
            *("--markdown", folder / "report.md", "--latex", folder / "report.tex"),
        ],
        ("report.html", "report.md", "report.tex"),
    ),
    "ask": Command(
        lambda inputs, folder: [
            *("ask", "Who?", "--index", inputs.world["index"], "--output_dir", folder / "ask"),
            *("--base_url", inputs.endpoint.base_url, "--model", "fake", "--cache", folder / "cache.sqlite"),
        ],
        (),
    ),
    "fetch": Command(
        lambda inputs, folder: ["fetch", "model", HUB_ID, "--output_dir", folder / "model"],
        ("model/config.json", "model/model.safetensors", "model/tokenizer.json", "model/origin.json"),
    ),
    "merge": Command(
        lambda inputs, folder: [
            *("merge", "--checkpoint", inputs.folder / "adapter", "--output_dir", folder / "merged")
        ],
        ("merged/model.safetensors", "merged/tokenizer.json"),
    ),
    "preflight": Command(
        lambda inputs, folder: [
            *("preflight", "--model_name_or_path", inputs.model, "--pairs", inputs.folder / "pairs"),
            *("--max_length", 64),
        ],
        (),
    ),
    "train-dpo": Command(
        lambda inputs, folder: [
            *("train-dpo", "--model_name_or_path", inputs.model, "--pairs", inputs.folder / "pairs"),
            *("--output_dir", folder / "trained", "--reference_cache", folder / "reference", "--max_length", 64),
            *("--max_steps", 4, "--save_steps", 2, "--total_batch_size", 4, "--per_device_train_batch_size", 4),
            *("--disable_tqdm", "true", "--gradient_checkpointing", "false", "--precompute_ref_log_probs", "true"),
        ],
        ("trained/model.safetensors",),
    ),
}


SLOW = {"train-dpo"}
NAMES = [pytest.param(name, marks=pytest.mark.integration) if name in SLOW else name for name in COMMANDS]


@pytest.fixture
def start(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> Callable[[Command, Path], dict[str, int]]:
    """Get a folder ready for a command; returns the sizes of the files that it finds there.

    `datasets` keeps what it reads in the folder, and the hub gives a model without a network.
    """

    def download(name: str, folder: Path) -> dict[str, str]:
        shutil.copytree(inputs.model, folder, dirs_exist_ok=True)
        return {"note": "a copy"}

    def prepare(command: Command, folder: Path) -> dict[str, int]:
        monkeypatch.setattr(fetch, "_from_hub", download)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "datasets")
        for copied in command.copied:
            shutil.copytree(inputs.folder / copied, folder / copied)
        return sizes(folder)

    return prepare


# Too little room

SHARES = (0.0, 0.3, 0.6, 0.9)
"""Of what a command writes, so much finds room at its first start, its second, ..."""


@contextlib.contextmanager
def file_system(folder: Path) -> Iterator[Limit]:
    """A file system in memory at `folder`; yields what sets its size in bytes, or for 0 makes it read-only."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")

    def limit(size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}" if size else "remount,ro", str(folder)], check=True)

    try:
        yield limit
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def file_sizes(folder: Path) -> Iterator[Limit]:
    """A folder; yields what limits the size of every file that this process writes."""
    folder.mkdir(exist_ok=True)
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def sizes(folder: Path) -> dict[str, int]:
    """What each file takes, in whole blocks."""
    return {
        str(path.relative_to(folder)): -(-path.stat().st_size // 4096) * 4096
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("small", "reason"),
    [
        pytest.param(file_system, "No space left on device: ", marks=pytest.mark.integration),
        (file_sizes, "File too large|Input/output error"),
    ],
    ids=["full disk", "limit on file sizes"],
)
@pytest.mark.parametrize("name", NAMES)
def test_a_command_without_room_says_so_in_one_line_and_resumes_when_there_is_some(
    name, small, reason, inputs, run, start, tmp_path
):
    command = COMMANDS[name]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    before = start(command, whole)
    code, _, written = run(*command.argv(inputs, whole))
    assert code == 0, written
    new = {path: size for path, size in sizes(whole).items() if path not in before}
    with small(cut) as limit:
        start(command, cut)
        for share in SHARES:
            room = (
                sum(before.values()) + share * sum(new.values()) if small is file_system else share * max(new.values())
            )
            limit(max(4096, int(room) // 4096 * 4096))
            told = complaint(run(*command.argv(inputs, cut)))
            assert re.match(rf"error: {tmp_path.parent}/[^ ]+: cannot be written \(({reason})", told), told
            assert "run the same command again" in told
        limit(ROOM)
        code, _, written = run(*command.argv(inputs, cut))
        assert code == 0, written
        for result in command.results:
            assert (cut / result).read_bytes() == (whole / result).read_bytes(), result
        assert list(cut.rglob("*.partial")) == []


def test_standard_output_on_a_full_disk(inputs, tmp_path):
    script = "from notewriter.cli import main; main()"
    runs = ["--before", str(inputs.folder / "evaluated"), "--after", str(inputs.folder / "evaluated")]
    for argv in (["compare", *runs], ["--help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-c", script, *argv], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith("error: standard output: cannot be used (No space left on device); free some")
        assert done.stderr.count("\n") == 1


def test_a_reader_of_standard_output_that_has_had_enough_is_no_error(tmp_path):
    script = "import time; from notewriter.cli import main; time.sleep(0.5); main()"
    command = [sys.executable, "-c", script, "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 1


# Places that cannot be written


@pytest.mark.parametrize("name", NAMES)
def test_a_read_only_file_system_is_told_in_one_line(name, inputs, run, start, tmp_path):
    command = COMMANDS[name]
    with file_system(tmp_path / "disk") as limit:
        start(command, tmp_path / "disk")
        limit(0)
        told = complaint(run(*command.argv(inputs, tmp_path / "disk")))
    place = rf"error: {tmp_path}/disk/[^ ]+: cannot be written \(Read-only file system\); choose a writable location"
    assert re.match(place, told), told


@pytest.mark.parametrize("name", [name for name in NAMES if name != "judge"])
def test_a_folder_below_a_file_is_told_in_one_line(name, inputs, run, start, tmp_path):
    (tmp_path / "file").write_text("mine")
    stand_in, argv = tmp_path / "file" / "below", COMMANDS[name].argv
    start(COMMANDS[name], stand_in)
    told = complaint(run(*argv(inputs, stand_in)))
    assert told.startswith(f"error: {tmp_path}/file"), told
    assert "cannot be created as a folder" in told
    assert told.endswith("part of the path is a file, not a folder; choose another path")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("evaluate", "evaluated/.lock"),
        ("evaluate", "evaluated/traces.jsonl"),
        ("evaluate", "evaluated/config.yaml"),
        ("evaluate", "evaluated/run.json"),
        ("evaluate", "evaluated/predictions.jsonl"),
        ("evaluate", "evaluated/predictions.jsonl.partial"),
        ("evaluate", "evaluated/metrics.json"),
        ("evaluate", "cache.sqlite"),
        ("judge", "evaluated/judged/.lock"),
        ("judge", "evaluated/judged/answer.jsonl"),
        ("judge", "evaluated/judged/costs.json"),
        ("pairs", "pairs/rollouts.jsonl"),
        ("pairs", "pairs/train.parquet"),
        ("pairs", "pairs/train.parquet.partial"),
        ("pairs", "pairs/README.md"),
        ("chains, their cache elsewhere", "chains/stats.json"),
        ("world", "world/world.json"),
        ("world", "world/.lock"),
        ("index", ".index.lock"),
        ("index", "index/manifest.json"),
        ("inspect", "pairs.html"),
        ("report", "report.md"),
        ("ask", "cache.sqlite"),
        ("fetch", ".model.lock"),
        pytest.param("train-dpo", "trained/config.yaml", marks=pytest.mark.integration),
        pytest.param("train-dpo", "trained/.lock", marks=pytest.mark.integration),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_named(name, place, inputs, run, start, tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    start(COMMANDS[name], folder)
    (folder / place).mkdir(parents=True)
    told = complaint(run(*COMMANDS[name].argv(inputs, folder)))
    assert told.startswith(f"error: {folder}/{place.removesuffix('.partial')}: "), told
    assert re.search(r"Is a directory.*; .*(remove|choose|check|give)", told), told


def test_a_folder_in_the_place_of_a_prompt_is_named(inputs, run, tmp_path):
    prompt = tmp_path / "prompts" / "deepnote" / "init_note.jinja"
    prompt.mkdir(parents=True)
    argv = COMMANDS["evaluate"].argv(inputs, tmp_path)
    told = complaint(run(*argv, "--prompts_dir", tmp_path / "prompts"))
    assert told == f"error: {prompt}: is a folder, not a prompt file; remove or rename it"


@pytest.mark.parametrize("option", ["--config", "--path", "--ids", "--index"])
def test_a_folder_in_the_place_of_an_input_is_named(option, inputs, run, tmp_path):
    argv = COMMANDS["evaluate"].argv(inputs, tmp_path)
    argv = argv[:1] if option == "--config" else argv
    assert str(tmp_path) in complaint(run(*argv, option, tmp_path))


# Two at once


def contents(folder: Path) -> dict[Path, bytes]:
    """The files of a folder but its locks."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("evaluate", "evaluated"),
        ("judge", "evaluated"),
        ("judge", "evaluated/judged"),
        ("pairs", "pairs"),
        ("chains, their cache elsewhere", "chains"),
        ("world", "world"),
        ("index", "index"),
        ("fetch", "model"),
        ("merge", "merged"),
        pytest.param("train-dpo", "trained", marks=pytest.mark.integration),
    ],
)
def test_a_folder_in_which_another_command_works_is_left_to_it(name, folder, inputs, run, start, tmp_path):
    start(COMMANDS[name], tmp_path)
    folder = tmp_path / folder
    beside = folder.with_name(f".{folder.name}.lock") if name in ("index", "fetch", "merge") else None
    with locked(folder, beside):
        before = contents(folder)
        told = complaint(run(*COMMANDS[name].argv(inputs, tmp_path)))
        assert re.match(rf"error: {folder}: process {os.getpid()} on \S+ is using this folder; wait until", told), told
        assert contents(folder) == before
    code, _, written = run(*COMMANDS[name].argv(inputs, tmp_path))
    assert code == 0, written


@pytest.mark.parametrize(("name", "page"), [("report", "report.html"), ("inspect", "pairs.html")])
def test_a_page_that_another_command_is_writing_is_left_to_it(name, page, inputs, run, tmp_path):
    def parts():
        yield "theirs"
        told = complaint(run(*COMMANDS[name].argv(inputs, tmp_path)))
        assert told == f"error: {tmp_path / page}: another process is writing this file; wait until it has finished"

    jsonl.write_text(tmp_path / page, parts())
    assert (tmp_path / page).read_text() == "theirs"
    assert run(*COMMANDS[name].argv(inputs, tmp_path))[0] == 0
    assert (tmp_path / page).read_text() != "theirs"
