"""Gradient checkpointing of as many layers as memory forces: `gradient_checkpointing: auto`.

A layer that is not recomputed keeps its activations for the backward pass, and saves a forward pass of itself. The
number of recomputed layers follows from the estimate of memory that `notewriter preflight` shows (`cost.cost_model`),
and the free memory of the GPU. They are the first ones: when the backward reaches them, the activations of the later
ones are free again. Loss and gradients are those of any other number, bit by bit.
"""

import copy
import functools
import logging
from collections.abc import Callable
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from peft import PeftModel
from transformers import PreTrainedModel, Trainer
from transformers.modeling_layers import GradientCheckpointingLayer
from trl import ModelConfig

from notewriter.ground.errors import UserError
from notewriter.training.cost import cost_model
from notewriter.training.options import Configuration

logger = logging.getLogger(__name__)

NOTCH = 8
"""The number of steps in which recomputation grows to all layers where memory runs out."""


def available(device: torch.device) -> int | None:
    """Bytes of a GPU that a run can use: the free ones and those of this process; None for another device."""
    if device.type != "cuda":
        return None
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)


def bare(model: torch.nn.Module, accelerator: Accelerator) -> PreTrainedModel:
    """A model without its wrappers for sharding, compiling and adapters."""
    unwrapped = accelerator.unwrap_model(model, keep_torch_compile=False)
    return cast(PreTrainedModel, unwrapped.get_base_model() if isinstance(unwrapped, PeftModel) else unwrapped)


def layers_of(model: PreTrainedModel) -> list[GradientCheckpointingLayer]:
    """The layers of a model's decoder that can be recomputed, first to last."""
    return [each for each in model.get_decoder().modules() if isinstance(each, GradientCheckpointingLayer)]


def machine_of(accelerator: Accelerator) -> cost_model.MachineArguments:
    """The GPUs of a run and its sharding, as options of `notewriter preflight`."""
    sharding = "none"
    if (deepspeed := accelerator.state.deepspeed_plugin) is not None:
        sharding = {2: "zero2", 3: "zero3"}.get(deepspeed.zero_stage, "none")
        parameters = deepspeed.deepspeed_config.get("zero_optimization", {}).get("offload_param") or {}
        if sharding == "zero3" and parameters.get("device", "none") != "none":
            sharding = "zero3_offload"
    elif accelerator.distributed_type == DistributedType.FSDP:
        sharding = "fsdp2"
    return cost_model.MachineArguments(gpus=accelerator.num_processes, sharding=sharding)


class RecomputesByNeed(Trainer):
    """A mixin for a trainer of TRL (`steps.Steps`): with `auto` it recomputes what memory forces."""

    recomputed: int | None = None
    """How many layers are recomputed; None without `auto`."""

    def recompute_by_need(self, bare: PreTrainedModel, needed: Callable[[int], float], share: float) -> None:
        """Choose how many layers are recomputed, the same number in all processes, and log it.

        Args:
            bare: the model without what shards or adapts it.
            needed: the bytes of a GPU that the run needs where so many layers are recomputed.
            share: of the available memory, how much may be needed.
        """
        layers = layers_of(bare)
        room = available(self.accelerator.device)
        counts = range(len(layers) + 1)
        fitting = (count for count in counts if room is not None and needed(count) <= share * room)
        count = next(fitting, len(layers))
        # Processes may have different room.
        count = int(self.accelerator.gather(torch.tensor([count], device=self.accelerator.device)).max())
        self.recomputed = count
        enable = bare.gradient_checkpointing_enable

        @functools.wraps(enable)
        def enable_some(*arguments: Any, **options: Any) -> None:
            # TRL calls it again after each pass of the reference.
            enable(*arguments, **options)
            for place, layer in enumerate(layers):
                layer.gradient_checkpointing = place < (self.recomputed or 0)

        bare.gradient_checkpointing_enable = enable_some  # type: ignore[method-assign]
        self.layers = layers
        if room is None:
            logger.info("recomputing all %d layers: without a GPU there is no estimate of what fits", len(layers))
            return
        logger.info(
            "recomputing %d of %d layers: %.1f GiB estimated, of %.1f free; none would need %.1f, all %.1f",
            count,
            len(layers),
            needed(count) / cost_model.GIB,
            room / cost_model.GIB,
            needed(0) / cost_model.GIB,
            needed(len(layers)) / cost_model.GIB,
        )

    def training_step(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """Train on a batch; where memory runs out, repeat the step so far with more layers recomputed.

        Raises:
            UserError: memory ran out in one of several processes, and the others cannot know it.
            torch.OutOfMemoryError: it ran out with all layers recomputed.
        """

        def train(batch: dict[str, Any]) -> torch.Tensor:
            return super(RecomputesByNeed, self).training_step(model, batch, *args, **kwargs)

        if self.recomputed is None:
            return train(inputs)
        step = self.state.global_step
        if getattr(self, "at", None) != step:
            self.at, self.batches, self.before = step, [], self.remember_step()
        self.batches.append(inputs)
        while True:
            try:
                return train(inputs)
            except torch.OutOfMemoryError:
                if self.recomputed == len(self.layers):
                    raise
                self.recompute_more()
            # Outside of the handler, whose traceback holds the step's tensors.
            self.restore_step()
            model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            for batch in self.batches[:-1]:
                train(batch)

    def remember_step(self) -> dict[str, Any]:
        """The state that a step's batches change beside gradients: the figures that TRL logs, and random numbers."""
        names = [name for name in ("_metrics", "_total_train_tokens", "sizes") if hasattr(self, name)]
        device = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        return {
            "figures": {name: copy.deepcopy(getattr(self, name)) for name in names},
            "random": (torch.get_rng_state(), device),
        }

    def restore_step(self) -> None:
        """Put back what `remember_step` kept."""
        cpu, device = self.before["random"]
        torch.set_rng_state(cpu)
        if device is not None:
            torch.cuda.set_rng_state(device)
        for name, value in copy.deepcopy(self.before["figures"]).items():
            setattr(self, name, value)

    def recompute_more(self) -> None:
        """Recompute a further eighth of the layers.

        Raises:
            UserError: there are several processes, or DeepSpeed, which has counted the forward.
        """
        recomputed, layers = self.recomputed or 0, len(self.layers)
        if self.accelerator.num_processes > 1 or self.accelerator.state.deepspeed_plugin is not None:
            raise UserError(
                f"memory ran out with {recomputed} of {layers} layers recomputed; run the same command with a smaller "
                "--memory_share, or with --gradient_checkpointing true; it resumes from the last checkpoint"
            )
        self.recomputed = min(layers, recomputed + max(1, layers // NOTCH))
        for place, layer in enumerate(self.layers):
            layer.gradient_checkpointing = place < self.recomputed
        logger.warning(
            "memory ran out with %d of %d layers recomputed; the step is repeated with %d",
            recomputed,
            layers,
            self.recomputed,
        )


def need_of(
    sizes: list[tuple[int, ...]],
    shared: bool,
    training: Configuration,
    model: ModelConfig,
    accelerator: Accelerator,
) -> Callable[[int], float]:
    """The bytes of a GPU that a run needs, by the number of layers that are recomputed.

    Args:
        sizes: of each row the tokens of its prompt and of each completion.
        shared: whether the prompt of a pair is computed once.
        training: the options of the run.
        model: those of its model.
        accelerator: that of the run.
    """
    shape, load, machine = cost_model.shape_of(model), cost_model.load_of(sizes, shared), machine_of(accelerator)
    half = bool(training.bf16 or training.fp16)
    return lambda recomputed: cost_model.memory(shape, load, machine, training, model, half, recomputed).total
