"""A language model of two layers with a tokenizer of its own, and pairs that it can be trained on in seconds."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from notewriter.data.judges import JUDGES
from notewriter.datasets import BENCHMARKS
from notewriter.evaluation.metrics import FAMILIES
from notewriter.ground import plugins
from notewriter.methods import METHODS
from notewriter.retrieval.chain import PARTS
from notewriter.rollouts.prompts import FOLDERS

# Small matrices on few cores: threads cost more than they give, in these tests and in the processes they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# vLLM has its own word for it. Threads that wait for one whose core another test has taken are the slowest of all.
if hasattr(os, "sched_getaffinity"):
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", str(max(os.sched_getaffinity(0))))

# A busy machine is no failure: properties are about values, not about milliseconds.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


INTEGRATION = "tests/integration/"


class ByPlace(LoadFileScheduling):
    """A process does a file, or a folder of integration tests, whose files share a server or a cluster."""

    def _split_scope(self, nodeid: str) -> str:
        return folder_of(nodeid) or str(super()._split_scope(nodeid))


def folder_of(nodeid: str) -> str:
    """The folder in which a test shares something with those of other files, or nothing."""
    *folders, _ = nodeid.partition("::")[0].split("/")
    return "/".join(folders) if folders[:2] == ["tests", "integration"] and len(folders) == 3 else ""


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPlace:
    return ByPlace(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """DeepSpeed's compiled operators are kept between runs; a launch that was killed left a lock, which is removed."""
    folder = config.rootpath / ".cache/torch_extensions"
    # A folder for each Python, torch and DeepSpeed, which do not ask what has compiled what they find.
    packages = [f"{name}-{version(name)}" for name in ("torch", "deepspeed") if find_spec(name)]
    versions = "-".join([sys.implementation.cache_tag, *packages])
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / versions)
    if not hasattr(config, "workerinput"):
        # One that another run of tests holds is not removed: it would find half an operator.
        compiled = {process.info["cwd"] for process in psutil.process_iter(["cwd"])}
        for lock in folder.glob("*/*/lock"):
            if str(lock.parent) not in compiled:
                lock.unlink(missing_ok=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seconds of each group of tests, slowest first, so that growth is seen where it happens."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[group_of(report.nodeid)] += report.duration
    if sum(seconds.values()) >= 60:
        terminalreporter.section("seconds of each group, all processes together")
        for group, spent in seconds.most_common():
            terminalreporter.write_line(f"{spent:8.1f}  {group}")
        terminalreporter.write_line(f"{sum(seconds.values()):8.1f}  all")


def group_of(nodeid: str) -> str:
    """The folder of a test, or its file where that is slow by itself: each file of integration tests."""
    file = nodeid.partition("::")[0]
    is_own = file.startswith(INTEGRATION) and not folder_of(nodeid)
    return file if is_own else "/".join(file.split("/")[:-1][:3])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest come first: begun last, they would keep one process at work and leave the others idle."""
    items.sort(key=lambda item: (not folder_of(item.nodeid), not item.nodeid.startswith(INTEGRATION)))


WORDS = ["the", "river", "crosses", "a", "town", "whose", "mayor", "opened", "one", "museum", "of", "clocks", "ago"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


@pytest.fixture(autouse=True)
def forgotten_plugins() -> Iterator[None]:
    """A test's own methods, judges and families are forgotten after it, so that their names are free for the next."""
    own: list[dict[Any, Any]] = [METHODS, FOLDERS, JUDGES, FAMILIES, PARTS, BENCHMARKS]
    tables = [plugins._LOADED, plugins._FILES, *own]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.fixture
def offline_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where Weights & Biases writes the runs of a test."""
    wandb = pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    yield tmp_path / "wandb"
    # Its settings are those of the first run of a process otherwise.
    wandb.teardown()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Llama with 32 hidden units; a word is a token."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<pad>", "<unknown>", "<end>", "<system>", "<user>", "<assistant>"]
    vocabulary = {word: number for number, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder = tmp_path_factory.mktemp("model")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            eos_token_id=vocabulary["<end>"],
            pad_token_id=vocabulary["<pad>"],
            bos_token_id=None,
        )
    ).save_pretrained(folder)
    return folder


def pair(number: int, words: int = 8) -> dict[str, Any]:
    """A pair whose better completion names the first word of its prompt; `words` is the prompt's length in tokens."""
    text = [WORDS[(number + position) % len(WORDS)] for position in range(words)]
    return {
        "prompt": [{"role": "user", "content": " ".join(text)}],
        "chosen": [{"role": "assistant", "content": text[0]}],
        "rejected": [{"role": "assistant", "content": f"{text[-1]} ago"}],
        "stage": ["init_note", "refine_note"][number % 2],
        "method": "deepnote",
        "question_id": f"q{number}",
        "dataset": "town",
        # What else a row may hold is passed over.
        "judge_replies": ["Better: 1"],
        "chosen_score": None,
    }


def save_pairs(folder: Path, rows: list[dict[str, Any]]) -> Path:
    from datasets import Dataset

    folder.mkdir(exist_ok=True)
    Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))
    Dataset.from_list([pair(number) for number in range(4)]).to_parquet(str(folder / "dev.parquet"))
    return folder


@pytest.fixture(scope="session")
def tiny_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 16 pairs in `train.parquet` and four in `dev.parquet`."""
    return save_pairs(tmp_path_factory.mktemp("pairs"), [pair(number) for number in range(16)])


@pytest.fixture
def write_pairs(tmp_path: Path) -> Callable[..., Path]:
    """Write 16 pairs, or those given, into a folder of the test's own; returns the folder."""

    def write(rows: list[dict[str, Any]] | None = None) -> Path:
        return save_pairs(tmp_path / "pairs", [pair(number) for number in range(16)] if rows is None else rows)

    return write


@pytest.fixture(scope="session")
def make_pair() -> Callable[..., dict[str, Any]]:
    return pair


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """The folder of a tokenizer for which a word is a token, with truncation to be ignored."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unknown>": 0}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.enable_truncation(3)
    (tmp_path / "tokenizer").mkdir()
    words.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    return tmp_path / "tokenizer"
