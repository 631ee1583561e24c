"""Floating-point operations of a DPO step of real model sizes, TRL's default against ours, counted without a GPU.

    python benchmarks/operations.py --memory 79

prints a JSON object for each shape, with `ratio`: TRL's operations to ours. Weights are on PyTorch's meta device, which
has shapes and no values; token ids, and the masks and positions that follow from them, are real. Both sides are a
`training_step` (policy, reference, backward) that PyTorch's FlopCounterMode counts: of TRL's own trainer with its
defaults, which recompute every layer, and of ours as a training run builds it, with shared prompts, recomputing what a
GPU with `--memory` GiB free forces (`ratio_recomputing_all`: all layers).

What is recomputed counts, since the counter sees each operation. Attention counts on both sides as the products of all
queries and keys that a call is given, although half of a causal square is not needed. Operations element by element
count nothing. tests/benchmarks/test_operations.py counts a step of a small model by hand.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from typing import Any
from unittest.mock import patch

import datasets
import torch
from gpu import SHAPES, Record, TokenTrainer, random_model
from peft import LoraConfig
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode
from transformers import ByT5Tokenizer
from trl import DPOConfig, ModelConfig
from trl.trainer import dpo_trainer, utils

from notewriter.training.cost.cost_model import GIB
from notewriter.training.model import weights
from notewriter.training.options import DPOArguments, DPOConfiguration
from notewriter.training.run import recomputation, trainers

STEPS: list[tuple[str, str, int, int, int]] = [
    (shape, trained, *lengths)
    for shape, trained in (("Qwen2.5-7B", "LoRA"), ("Qwen2.5-1.5B", "full"))
    for lengths in ((2000, 100, 1), (2000, 100, 4), (8000, 100, 1))
]
"""Model, what is trained, tokens of a prompt and of each completion, and pairs: those that gpu.py times."""

ADAPTER: Record = {"r": 32, "lora_alpha": 64, "target_modules": "all-linear"}
PEFT: Record = {"lora_r": 32, "lora_alpha": 64, "lora_target_modules": ["all-linear"]}
"""An adapter, as PEFT and as TRL's options say it."""

aten = torch.ops.aten
INDEXING = (aten.index, aten.index_put, aten.index_put_, aten._unsafe_index, aten._index_put_impl_)


class WithoutValues(TorchDispatchMode):
    """Has a step run whose weights are on the meta device, while token ids keep their values.

    An operation on a tensor without values is given the shapes alone of all others, too. Such a tensor stays where it
    is, as does an integer, and a figure that is only logged is 0.
    """

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation; if a tensor has no values, on all tensors' shapes."""
        options = kwargs or {}
        tensors = [each for each in tree_leaves((args, options)) if isinstance(each, torch.Tensor)]
        valueless = any(each.is_meta for each in tensors)
        if operation is aten._local_scalar_dense.default and valueless:
            return 0.0
        if operation is aten._to_copy.default and (valueless or not args[0].is_floating_point()):
            options = {name: value for name, value in options.items() if name != "device"}
        if valueless:
            if operation.overloadpacket in INDEXING:
                # Of a mask as an index the values decide the shape.
                args = (args[0], [places for index in args[1] for places in places_of(index)], *args[2:])
            args, options = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, options))
        return operation(*args, **options)


def places_of(index: Any) -> tuple[Any, ...]:
    """What indexes as a mask does; anything else as it is."""
    return index.nonzero().unbind(1) if isinstance(index, torch.Tensor) and index.dtype == torch.bool else (index,)


def product(_: Any, left: Any, right: Any, **__: Any) -> int:
    """The operations of a matrix product that is added to a matrix, from the shapes."""
    return int(2 * left[0] * left[1] * right[1])


def step(
    shape: str,
    trained: str,
    prompt: int,
    completion: int,
    pairs: int,
    ours: Record | None = None,
    toy: bool = False,
    layers: int = 0,
) -> tuple[int, int | None]:
    """The operations of a step, and with `gradient_checkpointing: auto` how many layers it recomputes.

    Args:
        shape: one of `gpu.SHAPES`.
        trained: "LoRA", an adapter of rank 32 on all linear layers, or "full", all parameters.
        prompt: tokens of each prompt; no two are the same.
        completion: tokens of each completion.
        pairs: how many are in the step.
        ours: options of our run beside those that both have; None is TRL's own trainer.
        toy: whether the model has tiny sizes instead.
        layers: how many layers it has instead of its own number.
    """
    lora = trained == "LoRA"
    dtype = torch.bfloat16 if lora else torch.float32
    sides = {"chosen_ids": [3] * completion, "rejected_ids": [4] * completion, "length": prompt + 2 * completion}
    rows = datasets.Dataset.from_list([{"prompt_ids": [5 + pair] * prompt, **sides} for pair in range(pairs)])
    options: Record = {"per_device_train_batch_size": pairs, "use_cpu": True, "bf16": True, "max_length": None}
    options |= {"report_to": "none", "disable_tqdm": True}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:

        def weightless(*_: object, **__: object) -> Any:
            return random_model(shape, dtype, "sdpa", "meta", toy, layers)

        weightless().config.save_pretrained(folder)
        for module, name, function in (
            (dpo_trainer, "create_model_from_path", weightless),
            (weights, "check_whole", lambda *_: None),
            # Autocast does not know the meta device.
            (torch, "is_autocast_enabled", lambda *_: False),
        ):
            stack.enter_context(patch.object(module, name, function))
        stack.enter_context(WithoutValues())  # type: ignore[no-untyped-call]
        if ours is None:
            trainer: Any = TokenTrainer(
                folder,
                args=DPOConfig(folder, **options),
                train_dataset=rows,
                processing_class=ByT5Tokenizer(),
                peft_config=LoraConfig(**ADAPTER) if lora else None,
            )
        else:
            trainer = trainers.build(
                folder,
                ByT5Tokenizer(),
                {"train": rows},
                DPOArguments(pairs=folder, prefix_sharing=True, reference_cache=folder),
                DPOConfiguration(folder, **options, **ours),
                ModelConfig(folder, dtype=str(dtype).removeprefix("torch."), use_peft=lora, **PEFT),
            )
        if trainer.args.gradient_checkpointing:
            # As transformers does where training begins.
            trainer.model.gradient_checkpointing_enable(trainer.args.gradient_checkpointing_kwargs)
        trainer.current_gradient_accumulation_steps = 1
        # As on a GPU, the head scores trained positions alone.
        stack.enter_context(patch.object(utils, "_use_triton", lambda _: True))
        counter = stack.enter_context(FlopCounterMode(display=False, custom_mapping={aten.addmm_: product}))
        trainer.training_step(trainer.model, trainer.data_collator(list(rows)))
    return counter.get_total_flops(), getattr(trainer, "recomputed", None)


def record_of(memory: float, shape: str, trained: str, prompt: int, completion: int, pairs: int) -> Record:
    """What is printed of a step as `step` takes it; `memory`: the GiB of a GPU that are free."""
    sizes = (prompt, completion, pairs)
    trl, _ = step(shape, trained, *sizes)
    with patch.object(recomputation, "available", lambda _: memory * GIB):
        ours, recomputed = step(shape, trained, *sizes, ours={"gradient_checkpointing": "auto"})
    of_all, _ = step(shape, trained, *sizes, ours={"gradient_checkpointing": True})
    record: Record = {"model": shape, "trained": trained, "layers": SHAPES[shape]["num_hidden_layers"]}
    record |= dict(zip(("prompt", "completion", "pairs"), sizes, strict=True))
    record |= {"memory_gib": memory, "recomputed_layers": recomputed, "trl": trl, "ours": ours}
    return record | {"ratio": round(trl / ours, 3), "ratio_recomputing_all": round(trl / of_all, 3)}


def main() -> None:
    """Print an object for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=float, default=79, help="GiB of a GPU that are free")
    parser.add_argument("--only", default="", help="the models whose names have this in them")
    arguments = parser.parse_args()
    for each in STEPS:
        if arguments.only in each[0]:
            sys.stdout.write(json.dumps(record_of(arguments.memory, *each)) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
