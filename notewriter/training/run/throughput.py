"""The throughput of a run, logged with its loss: tokens per second, padding, model FLOPs utilisation, peak memory."""

import time
from collections.abc import Mapping
from typing import Any, cast

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from notewriter.training.cost.operations import passes, peak_tflops, per_token
from notewriter.training.sharing.prefix_sharing import repeated

PENDING = 32
"""Batches after which their tokens are counted."""


class Meter:
    """Counts the tokens of a model between two readings, on the host; waits for the device once in `PENDING` batches.

    With shared prompts (`sharing.prefix_sharing`) neither padding nor a second copy of anything is computed.
    """

    def __init__(
        self, model: torch.nn.Module, device: torch.device, peak: float | None, paired: bool, shared: bool = False
    ) -> None:
        """`peak` is a GPU's in TFLOPS, by default that of the installed GPU if known."""
        if peak is None and device.type == "cuda":
            peak = peak_tflops(torch.cuda.get_device_name(device))
        self.peak = peak
        self.paired = paired
        self.shared = shared
        self.operations, self.attention = operations(model, lora=isinstance(model, PeftModel))
        self.device = device
        self._start()

    def _start(self) -> None:
        self.since = time.perf_counter()
        # Positions, tokens, tokens without second copies, and the sum of squared lengths.
        self.counts = torch.zeros(4, dtype=torch.float64)
        self.pending: list[dict[str, torch.Tensor]] = []
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def count(self, inputs: Mapping[str, Any]) -> None:
        """Add a batch from the trainer's collator; of pairs, its two halves are chosen and rejected."""
        names = ("input_ids", "attention_mask", "position_ids", "completion_mask")
        self.pending.append({name: inputs[name] for name in names if inputs.get(name) is not None})
        if len(self.pending) == PENDING:
            self._add_up()

    def _add_up(self) -> None:
        for batch in self.pending:
            self.counts += self._counts({name: values.cpu() for name, values in batch.items()})
        self.pending = []

    def _counts(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The counts that `_start` names, for a batch in the machine's memory."""
        ids = inputs["input_ids"]
        if (mask := inputs.get("attention_mask")) is None:
            # Packed without padding: each position 0 starts a sequence.
            bounds = torch.cat([(inputs["position_ids"][0] == 0).nonzero()[:, 0], torch.tensor([ids.shape[1]])])
            lengths = bounds.diff()
        else:
            lengths = mask.sum(1)
        tokens = lengths.sum()
        unique = tokens
        if self.paired:
            pairs = len(ids) // 2
            prompts, ends = (lengths - inputs["completion_mask"].sum(1))[:pairs], lengths[:pairs]
            unique = tokens - prompts.sum()
            if self.shared:
                same_prompt, same_chosen = repeated(ids[:pairs], prompts, ends)
                unique = unique - (prompts * same_prompt).sum() - ((ends - prompts) * same_chosen).sum()
        return torch.stack([torch.tensor(ids.numel()), tokens, unique, (lengths**2).sum()])

    def read(self, reduce: Any, processes: int) -> dict[str, float]:
        """The figures since the last reading, over all processes; `reduce` sums a tensor over them.

        `tokens_per_second` excludes padding; `unique_tokens_per_second` counts tokens that pairs share once. `mfu` (0
        to 1) is the model's forward and backward operations on the unique tokens relative to the peak of all GPUs. It
        leaves out the reference and recomputation (Chowdhery et al. 2022, appendix B).
        """
        self._add_up()
        seconds = time.perf_counter() - self.since
        positions, tokens, unique, squares = reduce(self.counts.float().to(self.device)).tolist()
        figures = {
            "tokens_per_second": tokens / seconds,
            "unique_tokens_per_second": unique / seconds,
            "padding": 1 - tokens / positions if positions and not self.shared else 0.0,
        }
        if self.peak and tokens:
            done = unique * self.operations + self.attention * squares * unique / tokens
            figures["mfu"] = done / seconds / (self.peak * 1e12 * processes)
        if self.device.type == "cuda":
            figures["peak_memory_gib"] = torch.cuda.max_memory_allocated(self.device) / 2**30
        self._start()
        return {name: float(f"{value:.4g}") for name, value in figures.items()}


def operations(
    model: torch.nn.Module, lora: bool, *, recomputed: bool = False, reference: bool = False
) -> tuple[int, int]:
    """Floating-point operations of a step: per token, and per token for each token of its sequence.

    See `notewriter.training.cost.operations`; MFU leaves a reference and recomputed passes out.
    """
    base = cast(PreTrainedModel, model.get_base_model() if isinstance(model, PeftModel) else model)
    parameters = sum(_size(parameter) for parameter in base.parameters())
    embedding = cast(torch.nn.Parameter, base.get_input_embeddings().weight)
    head = base.get_output_embeddings()
    if head is None or head.weight is not embedding:
        parameters -= _size(embedding)
    text = base.config.get_text_config()
    return per_token(
        passes(lora, recomputed=recomputed, reference=reference), parameters, text.num_hidden_layers, text.hidden_size
    )


def _size(parameter: torch.nn.Parameter) -> int:
    # Under ZeRO-3 a parameter contains only its shard, and `ds_numel` is its whole size.
    return int(getattr(parameter, "ds_numel", parameter.numel()))
