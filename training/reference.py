"""The reference model's log-probs of every pair, computed once for all runs that start from the same weights.

TRL's own cache asks for them again when the configuration changes, and under ZeRO-3 its key sees no weights. Here the
key of a pair is what its log-probs depend on: the reference's weights, its configuration as it was loaded, the
precision they are computed in, and the pair's tokens. A sweep over learning rates, betas, losses or output folders
computes them in its first run, and the others load no reference model; pairs that were added later are the only ones
computed then.
"""

import functools
import hashlib
import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, send_to_device
from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedModel, TrainerCallback
from trl import DPOTrainer

from notewriter import jsonl
from notewriter.models import checkpoints
from training import self_check
from training.prefix_sharing import share_prefixes

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Pairs after which their log-probs are written down: a killed run computes at most as many again."""

WITHOUT_EFFECT = {
    *("_name_or_path", "transformers_version"),
    # What the weights were stored in; the precision that they are computed in is a part of its own.
    *("dtype", "torch_dtype"),
    # What a forward returns beside its logits; TRL chooses padding by the pairs, and masks it.
    *("use_cache", "return_dict", "output_attentions", "output_hidden_states", "pad_token_id"),
}
"""Of a model's configuration, what cannot change its log-probs."""

RESOLVED = {"revision", "dtype", "attn_implementation"}
"""Loading options that the loaded model tells the outcome of."""

COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
"""What TRL calls the summed log-probs of a pair's completions under the reference."""


class Trainer(DPOTrainer):
    """TRL's DPOTrainer, which can share prompts and keeps what `precompute_ref_log_probs` computes.

    Args:
        model: the name or folder of the base model, which is also the reference.
        prefix_sharing: whether scoring shares a pair's prompt (`training.prefix_sharing`).
        reference_cache: where the log-probs are kept, in a folder a reference; only the first process uses it.

    Raises:
        UserError: the model cannot share prompts.
    """

    def __init__(self, model: str, *, prefix_sharing: bool, reference_cache: Path, **arguments: Any) -> None:
        self.base = model
        self.prefix_sharing = prefix_sharing
        self.reference_cache = reference_cache
        self.reference_is_checked = False
        super().__init__(model=model, **arguments)
        self.share_prompts()
        if prefix_sharing:
            self.add_callback(AtTheStart(self.check_sharing))

    def share_prompts(self) -> None:
        """Have the model, and the reference model where there is one, share prompts if that is wanted."""
        if self.prefix_sharing:
            for scored in self.scored():
                share_prefixes(self.bare(scored))

    def scored(self) -> list[torch.nn.Module]:
        """The models that score pairs, as the run calls them."""
        # Not by its truth value: a compiled module takes that for its length.
        return [model for model in (self.model_wrapped, self.ref_model) if model is not None]

    def bare(self, model: torch.nn.Module) -> PreTrainedModel:
        """A model without what shards, compiles or adapts it."""
        unwrapped = self.accelerator.unwrap_model(model, keep_torch_compile=False)
        return unwrapped.get_base_model() if isinstance(unwrapped, PeftModel) else unwrapped

    def check_sharing(self, *scored: torch.nn.Module) -> None:
        """Check on some pairs that sharing changes no score of the run's models, or of those given (`self_check`)."""
        pairs = self.train_dataset
        lengths = pairs["length"] if "length" in pairs.column_names else range(len(pairs))
        rows = self_check.choose(lengths, self.accelerator.num_processes, self.accelerator.process_index)
        size = self.args.per_device_train_batch_size
        batches = [
            send_to_device(self.data_collator(list(pairs.select(rows[start : start + size]))), self.accelerator.device)
            for start in range(0, len(rows), size)
        ]
        for model in scored or self.scored():
            self_check.check(model, self.bare(model), batches, self.accelerator)

    def compute_ref_log_probs(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
        """TRL's, of a reference whose shared prompts were checked."""
        if self.prefix_sharing and not self.reference_is_checked:
            self.check_sharing(model)
            self.reference_is_checked = True
        return super().compute_ref_log_probs(model, inputs)

    def _prepare_dataset(self, dataset: Dataset, *arguments: Any) -> Dataset:
        """A dataset that has token ids stays as it is, and TRL finds those of any other.

        TRL adds no end of turn where the chat template has none (GLM-4's), and would render checked pairs again.
        """
        if "prompt_ids" in dataset.column_names:
            return dataset
        return super()._prepare_dataset(dataset, *arguments)

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """The dataset with `COLUMNS`, from the cache or, what is not there, computed by all processes and put there."""
        keys = [pair_key(pair, self.ld_alpha) for pair in dataset]
        # The first process alone reads and writes: the others need not see its disk.
        shared: list[Any] = [None, None]
        if self.accelerator.is_main_process:
            folder = self.reference_cache / self.reference_key
            shared = [folder, read(folder, set(keys))]
        folder, known = broadcast_object_list(shared)
        self.share_prompts()

        missing = [row for row, key in enumerate(keys) if key not in known]
        found = len(keys) - len(missing)
        logger.info("%s: the reference's log-probs of %d of %d pairs are in %s", name, found, len(keys), folder)
        for start in range(0, len(missing), CHUNK):
            rows = missing[start : start + CHUNK]
            # TRL keeps a file of its own under the dataset's fingerprint, which has to tell references apart.
            digest = hashlib.sha256("".join([folder.name, *(keys[row] for row in rows)]).encode()).hexdigest()
            chunk = dataset.select(rows, new_fingerprint=digest[:32])
            progress = f"{name} ({start + len(rows)} of {len(missing)})"
            computed = super()._precompute_ref_logps(chunk, progress, batch_size)
            values = zip(*(computed[column] for column in COLUMNS), strict=True)
            new = {keys[row]: pair for row, pair in zip(rows, values, strict=True)}
            if self.accelerator.is_main_process:
                write(folder, new)
            known |= new
        for column, values in zip(COLUMNS, zip(*(known[key] for key in keys), strict=True), strict=True):
            dataset = dataset.add_column(column, list(values))
        return dataset

    @functools.cached_property
    def reference_key(self) -> str:
        """What tells this reference from others: its weights, how they were loaded, and the precision it is run in.

        The attention implementation counts, since models exist whose implementations compute different things (soft
        caps, sinks). It is the one from before prompts are shared, which gives the same log-probs.
        """
        loading = self.args.model_init_kwargs or {}
        settings = self.model.config.to_dict()
        parts = [
            checkpoints.fingerprint(self.base, loading.get("revision") or "main", checkpoints.WEIGHTS),
            getattr(self.model.config, "_commit_hash", None),
            with_effect(settings),
            {option: value for option, value in loading.items() if option not in RESOLVED | settings.keys()},
            self.model.config._attn_implementation,
            self.model.dtype,
            self.accelerator.mixed_precision,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def with_effect(configuration: dict[str, Any]) -> dict[str, Any]:
    """What of a model's configuration, and of those within it, can change its log-probs."""
    return {
        key: with_effect(value) if isinstance(value, dict) else value
        for key, value in configuration.items()
        if key not in WITHOUT_EFFECT
    }


class AtTheStart(TrainerCallback):
    """Do something when training begins, once the model is sharded and compiled."""

    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The trainer's call, after the model was wrapped and before the first step."""
        self.do()


def pair_key(pair: dict[str, Any], ld_alpha: float | None = None) -> str:
    """What tells a pair from others: its tokens, and the weight of the longer completion's tail, if there is one."""
    parts = [pair["prompt_ids"], pair["chosen_ids"], pair["rejected_ids"], ld_alpha]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read(folder: Path, keys: set[str]) -> dict[str, tuple[float, float]]:
    """The log-probs of chosen and rejected of those pairs that the files of `write` hold."""
    records = (record for file in sorted(folder.glob("*.jsonl")) for _, record in jsonl.read(file))
    return {record["pair"]: (record["chosen"], record["rejected"]) for record in records if record["pair"] in keys}


def write(folder: Path, pairs: dict[str, tuple[float, float]]) -> None:
    """Write the log-probs of pairs into a file of their own, so that runs at the same time need no lock."""
    records = ({"pair": key, "chosen": chosen, "rejected": rejected} for key, (chosen, rejected) in pairs.items())
    jsonl.write(folder / f"{uuid.uuid4().hex}.jsonl", records)
