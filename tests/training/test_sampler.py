"""The order of rows follows from the seed and the epoch alone; pairs of one prompt may follow each other."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import accelerator
from datasets import Dataset
from transformers import AutoTokenizer
from trl import DPOConfig

from notewriter.training.run.dpo_trainer import MeteredDPOTrainer
from notewriter.training.sampler import OrderOfEpoch, by_prompt, rows_by_prompt

ROWS = [[0, 1], [2], [3, 6], [4], [5]]


@pytest.fixture
def make(tiny_model: Path, make_pair: Any, tmp_path: Path) -> Callable[..., MeteredDPOTrainer]:
    """A trainer of two pairs a batch, of six prompts of which each stands twice, six rows apart."""
    pairs = [
        {column: make_pair(number, words=8)[column] for column in ("prompt", "chosen", "rejected")} | {"length": number}
        for number in range(6)
    ]

    def build(**options: Any) -> MeteredDPOTrainer:
        settings: dict[str, Any] = {"output_dir": str(tmp_path), "per_device_train_batch_size": 2, "use_cpu": True}
        settings |= {"train_sampling_strategy": "prompts", "bf16": False, "report_to": "none", "disable_tqdm": True}
        return MeteredDPOTrainer(
            str(tiny_model),
            prefix_sharing=True,
            reference_cache=tmp_path / "cache",
            args=DPOConfig(**settings | options),
            train_dataset=Dataset.from_list([*pairs, *pairs]),
            processing_class=AutoTokenizer.from_pretrained(tiny_model),
        )

    return build


def test_rows_are_gathered_by_their_prompt_wherever_they_are() -> None:
    assert rows_by_prompt([[1, 2], [1], [1, 2], [12]]) == [[0, 2], [1], [3]]


def test_each_epoch_has_every_row_once_and_prompts_in_an_order_of_its_own() -> None:
    sampler = OrderOfEpoch(7, partial(by_prompt, ROWS), seed=7)
    orders = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        orders.append(order := [*sampler])
        assert sorted(order) == [*range(7)] and len(sampler) == 7
        assert all(order.index(first) + 1 == order.index(second) for first, second in ((0, 1), (3, 6)))
    assert len({json.dumps(order) for order in orders}) > 1


def test_the_order_follows_from_the_seed_and_the_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = OrderOfEpoch(7, partial(by_prompt, ROWS), seed)
        sampler.set_epoch(epoch)
        return [*sampler]

    assert order(7, 1) == order(7, 1)
    assert len({json.dumps(order(seed, 0)) for seed in range(6)}) > 1


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The tokens of each batch that a trainer trains on."""
    batches: list[list[int]] = []
    step = MeteredDPOTrainer.training_step

    def recorded(trainer: Any, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        batches.append(inputs["input_ids"].flatten().tolist())
        return step(trainer, model, inputs, *arguments, **options)

    monkeypatch.setattr(MeteredDPOTrainer, "training_step", recorded)
    return batches


@pytest.mark.parametrize("strategy", ["prompts", "random", "group_by_length", "batch_rebalance"])
def test_a_resumed_run_goes_on_in_the_order_of_its_epoch(strategy: str, make: Any, seen: list[list[int]]) -> None:
    settings = {"train_sampling_strategy": strategy, "num_train_epochs": 2, "save_strategy": "steps", "save_steps": 8}
    whole = make(**settings)
    whole.train()
    in_one, seen[:] = [*seen], []
    assert len(in_one) == 12 and in_one[:6] != in_one[6:]
    make(**settings).train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-8")
    assert seen == in_one[8:]


@pytest.mark.parametrize("strategy", ["prompts", "random", "group_by_length", "batch_rebalance"])
def test_so_does_one_of_several_processes(
    strategy: str, make: Any, seen: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = accelerator.prepare_data_loader
    monkeypatch.setattr(
        accelerator, "prepare_data_loader", lambda *given, **named: prepare(*given, **{**named, "num_processes": 2})
    )
    # In the third epoch of three steps, or the second of the six that `batch_rebalance` has with one process alone.
    settings = {"train_sampling_strategy": strategy, "num_train_epochs": 4, "save_strategy": "steps", "save_steps": 7}
    whole = make(**settings)
    whole.train()
    in_one, seen[:] = [*seen], []
    make(**settings).train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-7")
    assert seen == in_one[7:]


def test_rows_of_like_length_have_one_order_on_any_number_of_processes(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make(train_sampling_strategy="group_by_length", gradient_accumulation_steps=2)
    one_of_two = make(train_sampling_strategy="group_by_length")
    order = [*alone._get_train_sampler()]
    monkeypatch.setattr(DPOConfig, "world_size", 2)
    assert [*one_of_two._get_train_sampler()] == order


@pytest.mark.parametrize("strategy", ["prompts", "random", "group_by_length", "batch_rebalance"])
@pytest.mark.parametrize("seed", ["seed", "data_seed"])
def test_another_seed_is_another_order(strategy: str, seed: str, make: Any) -> None:
    def batches(number: int) -> list[list[int]]:
        # Without a `seed` of its own a `RandomSampler` takes the global generator's, which a run sets.
        torch.manual_seed(0)
        trainer = make(**{"train_sampling_strategy": strategy, seed: number})
        return [batch["input_ids"].flatten().tolist() for batch in trainer.get_train_dataloader()]

    assert batches(1) == batches(1)
    assert len({json.dumps(batches(number)) for number in (1, 2, 3)}) > 1


@pytest.mark.parametrize("strategy", ["prompts", "random", "sequential"])
def test_batches_of_a_trainer_have_the_pairs_of_a_prompt(strategy: str, make: Any) -> None:
    trainer = make(train_sampling_strategy=strategy)
    batches = [batch["input_ids"] for batch in trainer.get_train_dataloader()]
    assert len(batches) == 6
    alike = sum(bool((batch[0] == batch[1]).all()) for batch in batches)
    assert (alike == 6) == (strategy == "prompts")
