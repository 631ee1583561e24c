"""KTO, ORPO and SimPO on the pairs of DPO: the values of TRL's trainers, with the checks and records of every run."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOTrainer

from notewriter.ground.errors import UserError
from notewriter.training import dpo, kto
from notewriter.training.run.losses import odds_ratio, simpo
from notewriter.training.run.trainers import MeteredDPOTrainer

Options = Callable[..., list[str]]
Pair = dict[str, Any]

SETTINGS = {
    **{"max_steps": 4, "per_device_train_batch_size": 4, "max_length": 64, "logging_steps": 1, "learning_rate": 1e-3},
    **{"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": "none", "save_strategy": "no"},
    "disable_tqdm": True,
}
"""The run of `four_steps`, for a trainer of TRL."""

SIMPO = {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 1.0}
ORPO = {"loss_type": "orpo", "beta": 0.5}


@pytest.fixture
def made(make_pair: Callable[[int], Pair]) -> list[Pair]:
    return [make_pair(number) for number in range(16)]


@pytest.fixture
def options(four_steps: Options, made: list[Pair], write_pairs: Callable[..., Path]) -> Options:
    return partial(four_steps, pairs=write_pairs(made), learning_rate=1e-3)


def losses_of(history: list[dict[str, Any]]) -> list[float]:
    return [entry["loss"] for entry in history if "loss" in entry]


def our_losses(run: Path) -> list[float]:
    return losses_of(json.loads((run / "checkpoint-4/trainer_state.json").read_text())["log_history"])


def mean_log_probs(model: Path, pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean log-probability of a pair's completions by plain transformers, in float64."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    template = partial(tokenizer.apply_chat_template, return_dict=False)
    prompt = len(template(pair["prompt"], add_generation_prompt=True))
    means = []
    for side in ("chosen", "rejected"):
        ids = torch.tensor([template(pair["prompt"] + pair[side])])
        with torch.no_grad():
            scores = network(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
        means.append(scores[0, prompt - 1 :, 0])
    return means[0], means[1]


def test_simpo_is_that_of_trls_trainer(options: Options, made: list[Pair], tiny_model: Path, tmp_path: Path) -> None:
    dpo.main(options(**SIMPO))

    set_seed(42)
    trainer = CPOTrainer(
        str(tiny_model),
        args=CPOConfig(str(tmp_path / "trl"), **SETTINGS, **SIMPO, cpo_alpha=0.0),
        train_dataset=Dataset.from_list(
            [{key: pair[key] for key in ("prompt", "chosen", "rejected")} for pair in made]
        ),
        processing_class=AutoTokenizer.from_pretrained(tiny_model),
    )
    trainer.train()
    assert our_losses(tmp_path / "run") == pytest.approx(losses_of(trainer.state.log_history), rel=1e-5)


def test_the_odds_ratio_is_that_of_trls_trainer() -> None:
    chosen, rejected = -torch.rand(2, 64) * 5
    own = SimpleNamespace(beta=1.0, accelerator=SimpleNamespace(device="cpu"))

    theirs = ORPOTrainer.odds_ratio_loss(own, chosen, rejected)[0]  # type: ignore[arg-type]

    torch.testing.assert_close(odds_ratio(chosen, rejected), -theirs)
    # Where a completion is certain its odds are infinite, and the loss is not.
    certain = torch.zeros(1, requires_grad=True)
    odds_ratio(certain, torch.full((1,), -1.0)).backward()
    assert certain.grad is not None and certain.grad.isfinite().all()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("loss", [SIMPO, ORPO], ids=["simpo", "orpo"])
def test_the_first_loss_is_that_of_plain_transformers(
    loss: dict[str, Any],
    shared: bool,
    options: Options,
    made: list[Pair],
    write_pairs: Callable[..., Path],
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    write_pairs(made[:1])

    dpo.main(options(**loss, prefix_sharing=shared, total_batch_size=1, per_device_train_batch_size=1))

    chosen, rejected = mean_log_probs(tiny_model, made[0])
    if loss is SIMPO:
        expected = simpo(chosen.mean(), rejected.mean(), beta=2.0, gamma=1.0)
    else:
        expected = -chosen.mean() + 0.5 * odds_ratio(chosen.mean(), rejected.mean())
    assert our_losses(tmp_path / "run")[0] == pytest.approx(expected.item(), rel=1e-5)


def test_kto_is_trls_on_the_sides_in_the_drawn_order(
    options: Options, made: list[Pair], tiny_model: Path, tmp_path: Path
) -> None:
    kto.main(options())

    apart = Dataset.from_list(
        [
            {"prompt": pair["prompt"], "completion": pair[side], "label": side == "chosen"}
            for side in ("chosen", "rejected")
            for pair in made
        ]
    )
    set_seed(42)
    trainer = KTOTrainer(
        str(tiny_model),
        args=KTOConfig(str(tmp_path / "trl"), **SETTINGS),
        train_dataset=apart.shuffle(seed=42),
        processing_class=AutoTokenizer.from_pretrained(tiny_model),
    )
    trainer.train()
    assert our_losses(tmp_path / "run") == pytest.approx(losses_of(trainer.state.log_history), rel=1e-5)


LORA = {"use_peft": True, "lora_target_modules": "all-linear"}
RUNS = {
    "kto": (kto.main, LORA),
    "orpo": (dpo.main, ORPO | {"prefix_sharing": True}),
    "simpo": (dpo.main, LORA | {"loss_type": ["simpo", "sft"], "loss_weights": [1, 0.5], "beta": 2.0}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_recorded_and_goes_on_where_it_stopped(name: str, options: Options, tmp_path: Path) -> None:
    main, changes = RUNS[name]
    whole = options(**changes, eval_strategy="steps", eval_steps=4, output_dir=tmp_path / "whole")
    main(whole)
    record = json.loads((tmp_path / "whole/training.json").read_text())
    assert record["method"] == ("kto" if "kto" in name else "dpo")
    assert record["rows"]["train"] == {"init_note": 8, "refine_note": 8}
    assert {"rewards/margins", "eval_loss", "tokens_per_second", "num_tokens"} <= record["metrics"].keys()
    assert ("simpo_gamma" in record["hyperparameters"]) == ("simpo" in name)
    assert ("desirable_weight" in record["hyperparameters"]) == ("kto" in name)

    # Killed after two of its steps.
    resumed = tmp_path / "whole"
    (resumed / "training.json").unlink()
    shutil.rmtree(resumed / "checkpoint-4")
    main(whole)
    again = json.loads((resumed / "training.json").read_text())
    assert again["metrics"]["eval_loss"] == pytest.approx(record["metrics"]["eval_loss"], rel=1e-6)
    assert again["metrics"]["num_tokens"] == record["metrics"]["num_tokens"]


@pytest.mark.parametrize(
    ("main", "changes", "fault"),
    [
        (
            dpo.main,
            {"loss_type": ["simpo", "sigmoid"]},
            "loss_type: simpo, sigmoid mixes losses with and without a reference",
        ),
        (
            dpo.main,
            {"loss_type": "orpo", "precompute_ref_log_probs": True},
            "precompute_ref_log_probs: is ignored with",
        ),
        (dpo.main, {"loss_type": "simpo", "sync_ref_model": True}, "sync_ref_model: is ignored with loss_type simpo"),
        (dpo.main, {"simpo_gamma": 1.0}, "simpo_gamma: is ignored with loss_type sigmoid; .* set loss_type to simpo"),
        (dpo.main, {"padding_free": True}, "padding_free: TRL 1.16 ignores it in DPO; .*prefix_sharing true"),
        (kto.main, {"precompute_ref_log_probs": True}, "precompute_ref_log_probs: .*leave it out"),
        (kto.main, {"train_sampling_strategy": "random"}, "train_sampling_strategy: .*leave it out"),
        (kto.main, {"per_device_train_batch_size": 1}, "per_device_train_batch_size: .*1 is too few; give 2 or more"),
    ],
)
def test_what_would_be_ignored_or_go_wrong_is_refused(
    main: Callable[[list[str]], None], changes: dict[str, Any], fault: str, options: Options
) -> None:
    with pytest.raises(UserError, match=fault):
        main(options(**changes))


def test_a_loss_without_a_reference_loads_none(
    options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[Any] = []
    original = MeteredDPOTrainer._compute_loss

    def compute(self: MeteredDPOTrainer, *arguments: Any) -> Any:
        kept.append(self.ref_model)
        return original(self, *arguments)

    monkeypatch.setattr(MeteredDPOTrainer, "_compute_loss", compute)
    dpo.main(options(**SIMPO))
    assert kept == [None] * 4


@pytest.mark.parametrize(
    ("main", "order", "changes"),
    [
        (dpo.main, "group_by_length", {}),
        (dpo.main, "batch_rebalance", {}),
        (kto.main, "group_by_length", {"loss_type": "apo_zero_unpaired"}),
    ],
)
def test_rows_of_like_length_can_be_trained_together(
    options: Options, main: Callable[..., None], order: str, changes: dict[str, object], tmp_path: Path
) -> None:
    main(options(train_sampling_strategy=order, per_device_train_batch_size=2, **changes))
    assert len(our_losses(tmp_path / "run")) == 4
