"""A line a step says where a run is, how it learns, how fast it is, and how long it will take."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from notewriter.training.dpo import main as train_dpo
from notewriter.training.run.watching import duration, line

ENTRY = {
    "loss": 0.64213,
    "grad_norm": 1.5,
    "learning_rate": 4.9e-7,
    "rewards/chosen": 0.2,
    "rewards/margins": 0.1129,
    "rewards/accuracies": 0.578125,
    "mean_token_accuracy": 0.9,
    "tokens_per_second": 3120.4,
    "padding": 0.1,
    "mfu": 0.4117,
    "peak_memory_gib": 61.21,
    "epoch": 0.5,
}


def test_a_line_has_the_step_what_is_learned_the_speed_and_the_time_that_is_left() -> None:
    assert line(ENTRY, 42, 1000, 4000) == (
        "step 42/1,000 | loss 0.6421 | margin 0.113 | accuracy 0.58 | lr 4.90e-07 | 3,120 tokens/s | MFU 41.2% | "
        "61.2 GiB | 67 min left"
    )


def test_an_evaluation_has_a_line_of_its_own_and_other_entries_have_none() -> None:
    entry = {f"eval_{name}": value for name, value in ENTRY.items()}
    assert line({"eval_loss": 0.5, "eval_rewards/margins": 0.2, "eval_runtime": 3.0}, 8, 10) == (
        "step 8/10 | dev | loss 0.5000 | margin 0.200"
    )
    assert line(entry, 8, 10).startswith("step 8/10 | dev | loss 0.6421 | margin 0.113 | accuracy 0.58")
    assert line({"eval_loss": 2.1, "eval_mean_token_accuracy": 0.612}, 8, 10) == (
        "step 8/10 | dev | loss 2.1000 | token accuracy 0.612"
    )
    assert line({"train_runtime": 12.0, "train_loss": 0.5}, 10, 10) == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (95, "2 min"), (5_940, "99 min"), (11_100, "3 h 05 min")]
)
def test_a_duration_is_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize("disable_tqdm", [True, False])
def test_a_run_writes_a_line_a_step_and_no_dictionary(
    four_steps: Callable[..., list[str]],
    write_pairs: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    disable_tqdm: bool,
) -> None:
    train_dpo(four_steps(pairs=write_pairs(), disable_tqdm=disable_tqdm))
    out, err = capsys.readouterr()
    lines = [each for each in err.splitlines() if each.startswith("step ")]
    assert [each.partition(" | ")[0] for each in lines if "| dev" not in each] == [
        f"step {step}/4" for step in range(1, 5)
    ]
    number = r"-?[\d.,]+"
    pattern = (
        rf"step 1/4 \| loss {number} \| margin {number} \| accuracy {number} \| lr [\d.e-]+ \| {number} tokens/s"
        r"( \| MFU [\d.]+%)? \| \d+ s left"
    )
    assert re.fullmatch(pattern, lines[0]), lines[0]
    assert "{" not in out + err


def test_what_is_not_shown_is_in_the_state(
    four_steps: Callable[..., list[str]], write_pairs: Callable[..., Path], tmp_path: Path
) -> None:
    train_dpo(four_steps(pairs=write_pairs()))
    history = json.loads((tmp_path / "run/checkpoint-4/trainer_state.json").read_text())["log_history"]
    assert {"grad_norm", "rewards/chosen", "padding"} <= history[0].keys()
