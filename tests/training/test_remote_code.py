"""Code that comes with a model is not run, also where somebody answers yes to whatever is asked."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from notewriter.ground.errors import UserError
from notewriter.rollouts import rehearsal
from notewriter.training import dpo as train_dpo
from notewriter.training import merge, preflight
from notewriter.training import sft as train_sft

ROOT = Path(__file__).parents[2]
ASKED = "cannot be loaded as a .* without running code shipped with it, which is never done; use an arch"


@pytest.fixture(autouse=True)
def yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt="": "y")


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that is there as soon as the model's code was run."""
    return tmp_path / "ran"


@pytest.fixture
def hostile(tiny_model: Path, tmp_path: Path, ran: Path) -> Callable[[str], Path]:
    """A model that brings code, as its `configuration`, `tokenizer` or `network`."""

    def make(part: str) -> Path:
        folder = tmp_path / "hostile"
        shutil.copytree(tiny_model, folder)
        (folder / "mine.py").write_text(f"open({str(ran)!r}, 'w')\nclass Mine: ...\n")
        changes = {
            "configuration": {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}},
            "tokenizer": {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]}},
            "network": {"auto_map": {"AutoModelForCausalLM": "mine.Mine"}},
            # A configuration that the library has, of a kind of network that writes no text there.
            "other network": {"model_type": "vit", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}},
        }[part]
        file = folder / ("tokenizer_config.json" if part == "tokenizer" else "config.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return folder

    return make


@pytest.fixture
def conversations(tmp_path: Path) -> Path:
    messages = [{"role": "user", "content": "the town"}, {"role": "assistant", "content": "a river"}]
    (tmp_path / "chains").mkdir()
    Dataset.from_list([{"messages": messages}] * 4).to_parquet(str(tmp_path / "chains/train.parquet"))
    return tmp_path / "chains"


@pytest.mark.parametrize("part", ["configuration", "tokenizer"])
@pytest.mark.parametrize("command", ["preflight", "dpo", "sft", "merge", "dry run"])
def test_a_model_that_needs_its_code_is_refused(
    command: str,
    part: str,
    hostile: Callable[[str], Path],
    ran: Path,
    tiny_pairs: Path,
    conversations: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    folder = hostile(part)
    common = ["--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "run"), "--max_length", "64"]

    def merge_into_it() -> None:
        network = AutoModelForCausalLM.from_pretrained(tiny_model)
        get_peft_model(network, LoraConfig(r=2, target_modules="all-linear")).save_pretrained(tmp_path / "adapter")
        settings = tmp_path / "adapter/adapter_config.json"
        told = json.loads(settings.read_text()) | {"base_model_name_or_path": str(folder)}
        settings.write_text(json.dumps(told))
        merge.main(["--checkpoint", str(tmp_path / "adapter"), "--output_dir", str(tmp_path / "merged")])

    commands = {
        "preflight": lambda: preflight.main([*common, "--pairs", str(tiny_pairs)]),
        "dpo": lambda: train_dpo.main([*common, "--pairs", str(tiny_pairs), "--eval_strategy", "no"]),
        "sft": lambda: train_sft.main([*common, "--data", str(conversations), "--eval_strategy", "no"]),
        "merge": merge_into_it,
        "dry run": lambda: rehearsal._counter(str(folder), {}),
    }
    if command == "dry run" and part == "configuration":
        commands[command]()  # The tokenizer is of a kind that needs no configuration.
    else:
        with pytest.raises(UserError, match=ASKED) as told:
            commands[command]()
        assert "\n" not in str(told.value)
    assert not ran.exists()


def test_the_adapters_tokenizer_runs_no_code_either(
    hostile: Callable[[str], Path], ran: Path, tiny_model: Path, tmp_path: Path
) -> None:
    folder = hostile("tokenizer")
    network = AutoModelForCausalLM.from_pretrained(tiny_model)
    get_peft_model(network, LoraConfig(r=2, target_modules="all-linear")).save_pretrained(folder)

    with pytest.raises(UserError, match=ASKED):
        merge.main(["--checkpoint", str(folder), "--output_dir", str(tmp_path / "merged")])
    assert not ran.exists()


def test_a_model_that_also_brings_code_is_used_without(
    hostile: Callable[[str], Path], ran: Path, four_steps: Callable[..., list[str]], tiny_pairs: Path, tmp_path: Path
) -> None:
    folder = hostile("network")

    preflight.main(["--model_name_or_path", str(folder), "--pairs", str(tiny_pairs), "--max_length", "64"])
    train_dpo.main(four_steps(model_name_or_path=folder, pairs=tiny_pairs, max_steps=1))

    assert (tmp_path / "run/training.json").exists()
    assert not ran.exists()


def test_a_kind_of_network_that_the_library_has_not_is_refused(
    hostile: Callable[[str], Path], ran: Path, tiny_pairs: Path
) -> None:
    folder = hostile("other network")

    with pytest.raises(UserError, match="vit is not a language model"):
        preflight.main(["--model_name_or_path", str(folder), "--pairs", str(tiny_pairs), "--max_length", "64"])
    assert not ran.exists()


def test_nobody_is_asked_on_the_terminal(hostile: Callable[[str], Path], ran: Path, tiny_pairs: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "notewriter.cli",
        "preflight",
        "--model_name_or_path",
        str(hostile("configuration")),
    ]
    done = subprocess.run(
        [*command, "--pairs", str(tiny_pairs), "--max_length", "64"], input="y\n" * 1000, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ") and "which is never done" in done.stderr
    assert "Do you wish to run the custom code" not in done.stdout + done.stderr
    assert not ran.exists()


LOADING = {"from_pretrained", "from_config", "SentenceTransformer", "pipeline"}
WITHOUT_CODE = {"PeftConfig", "PeftModel", "GenerationConfig"}
"""Their files hold numbers and names, and the libraries have no way to run code for them."""


def loads_silently(node: ast.AST) -> bool:
    """Whether a model is loaded here without a word about its code."""
    if not isinstance(node, ast.Call):
        return False
    *owner, name = ast.unparse(node.func).split(".")
    said = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    return name in LOADING and WITHOUT_CODE.isdisjoint(owner) and said.get("trust_remote_code") != "False"


def test_every_loading_says_that_no_code_is_run() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("notewriter", "data_construction", "eval", "training", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if loads_silently(node)
    ]
    assert silent == []
