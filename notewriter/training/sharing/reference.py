"""The reference log-probs of every pair, computed once for all runs that start from the same weights.

TRL's own cache computes them again when the configuration changes, and under ZeRO-3 its key sees no weights. Here the
key of a pair is what its log-probs depend on: the reference's weights, its configuration as it was loaded, the
precision they are computed in, and the pair's tokens. A sweep over learning rates, betas, losses or output folders
computes them in its first run, and the other runs load no reference model; of pairs that are added later, only the new
ones are computed.
"""

import functools
import hashlib
import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import broadcast_object_list, send_to_device
from datasets import Dataset, IterableDataset
from peft import PeftModel
from torch.utils.data import DataLoader, Sampler
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, TrainerCallback
from trl import DPOConfig, DPOTrainer
from trl.models import prepare_deepspeed

from notewriter.ground import jsonl
from notewriter.models.checkpoint import WEIGHTS, Checkpoint
from notewriter.training.sharing import self_check
from notewriter.training.sharing.prefix_sharing import share_prefixes
from notewriter.training.sharing.sampler import BY_PROMPT, PromptsTogether, rows_by_prompt

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Pairs after which their log-probs are stored: a killed run repeats at most this many."""

WITHOUT_EFFECT = {
    *("_name_or_path", "transformers_version"),
    # The type that weights are stored in; the precision of the computation is a part of its own.
    *("dtype", "torch_dtype"),
    # What a forward returns beside its logits; padding, which follows from the pairs, is masked.
    *("use_cache", "return_dict", "output_attentions", "output_hidden_states", "pad_token_id"),
}
"""Settings of a model's configuration that cannot change its log-probs."""

RESOLVED = {"revision", "dtype", "attn_implementation", "device_map"}
"""Loading options whose outcome the loaded model shows, or which have none on log-probs."""

COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
"""What TRL calls the summed log-probs of a pair's completions under the reference."""


class TakesTokens:
    """A mixin for a trainer of TRL, before it among the base classes: it takes checked pairs, or sides, as they are."""

    _signature_columns: Any

    def _prepare_dataset(
        self,
        dataset: Dataset | IterableDataset,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin,
        args: Any,
        dataset_name: str,
    ) -> Dataset | IterableDataset:
        """Leave a dataset with token ids unchanged; TRL tokenises any other.

        TRL would render the checked pairs again, and adds no end of turn where the chat template has none (GLM-4).
        """
        if "prompt_ids" in (dataset.column_names or ()):
            return dataset
        prepared: Dataset | IterableDataset = super()._prepare_dataset(dataset, processing_class, args, dataset_name)  # type: ignore[misc]
        return prepared

    def _set_signature_columns_if_needed(self) -> None:
        """Keep `length`, which `train_sampling_strategy: group_by_length` goes by, beside the columns of TRL."""
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        self._signature_columns = list(dict.fromkeys([*self._signature_columns, "length"]))


class CachedReferenceTrainer(TakesTokens, DPOTrainer):
    """TRL's DPOTrainer with shared prompts and a cache of what `precompute_ref_log_probs` computes.

    Args:
        model: the name or folder of the model that the run starts from, which is also the reference.
        prefix_sharing: whether scoring shares a pair's prompt (`notewriter.training.sharing.prefix_sharing`).
        reference_cache: the folder of the log-probs, with a folder per reference; only the main process uses it.

    Raises:
        UserError: the model cannot share prompts.
    """

    args: DPOConfig
    model: PreTrainedModel
    train_dataset: Dataset

    def __init__(
        self,
        model: str,
        *,
        prefix_sharing: bool,
        reference_cache: Path,
        **arguments: Any,
    ) -> None:
        self.base = model
        self.prefix_sharing = prefix_sharing
        self.reference_cache = reference_cache
        self.reference_is_checked = False
        super().__init__(model=model, **arguments)
        self.share_prompts()
        if prefix_sharing:
            self.add_callback(OnTrainBegin(self.check_sharing))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        """With `train_sampling_strategy: prompts`, an order in which the pairs of one prompt follow each other."""
        if self.args.train_sampling_strategy != BY_PROMPT:
            return super()._get_train_sampler(train_dataset)
        pairs = self.train_dataset if train_dataset is None else train_dataset
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return PromptsTogether(rows_by_prompt(pairs["prompt_ids"]), seed, lambda: int(self.state.epoch or 0))

    def share_prompts(self) -> None:
        """With `prefix_sharing`, have the model and the reference model, if there is one, share prompts."""
        if self.prefix_sharing:
            for scored in self.scored():
                share_prefixes(self.bare(scored))

    def scored(self) -> list[torch.nn.Module]:
        """The models that score pairs, as the run calls them."""
        # `is not None`: the truth value of a compiled module is its length.
        return [model for model in (self.model_wrapped, self.ref_model) if model is not None]

    def bare(self, model: torch.nn.Module) -> PreTrainedModel:
        """A model without what shards, compiles or adapts it."""
        unwrapped = self.accelerator.unwrap_model(model, keep_torch_compile=False)
        return cast(PreTrainedModel, unwrapped.get_base_model() if isinstance(unwrapped, PeftModel) else unwrapped)

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
        """TRL's, after the reference's shared prompts were checked once."""
        if self.prefix_sharing and not self.reference_is_checked:
            self.check_sharing(model)
            self.reference_is_checked = True
        return super().compute_ref_log_probs(model, inputs)  # type: ignore[no-untyped-call]

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """Add `COLUMNS`, from the cache; missing pairs are computed by all processes and stored."""
        keys = [pair_key(pair, self.ld_alpha) for pair in dataset]
        # Only the main process reads and writes: the others may not see its disk.
        shared: list[Any] = [None, None]
        if self.accelerator.is_main_process:
            cached = self.reference_cache / self.reference_key
            shared = [cached, read(cached, set(keys))]
        folder: Path
        stored: dict[str, tuple[float, float]]
        folder, stored = broadcast_object_list(shared)
        self.share_prompts()

        missing = [row for row, key in enumerate(keys) if key not in stored]
        cached_pairs = len(keys) - len(missing)
        logger.info("%s: the reference log-probs of %d of %d pairs are in %s", name, cached_pairs, len(keys), folder)
        for start in range(0, len(missing), CHUNK):
            rows = missing[start : start + CHUNK]
            progress = f"reference log-probs, {name} ({start + len(rows)} of {len(missing)})"
            computed = self.score_reference(dataset.select(rows), progress, batch_size)
            new = {keys[row]: pair for row, pair in zip(rows, computed, strict=True)}
            if self.accelerator.is_main_process:
                write(folder, new)
            stored |= new
        for place, column in enumerate(COLUMNS):
            dataset = dataset.add_column(column, [stored[key][place] for key in keys])
        return dataset

    def score_reference(self, pairs: Dataset, progress: str, batch_size: int) -> list[tuple[float, float]]:
        """The reference's log-probs of chosen and rejected, of which every process computes a share.

        TRL's method hands them on in a file, which machines without a common disk do not see.
        """
        reference: Any = self.model if self.ref_model is None else self.ref_model
        if self.ref_model is None and self.is_deepspeed_enabled:
            # Until training begins DeepSpeed has neither placed the model nor gathered its shards.
            if self._precompute_engine is None:
                self._precompute_engine = prepare_deepspeed(self.model, self.accelerator)
            reference = self._precompute_engine
        loader: DataLoader[Any] = DataLoader(cast(Any, pairs), batch_size, collate_fn=self.data_collator)
        scored: list[tuple[float, float]] = []
        main = self.accelerator.is_main_process
        for batch in tqdm(self.accelerator.prepare(loader), desc=progress, unit="batch", disable=not main):
            both = torch.stack(tuple(self.compute_ref_log_probs(reference, batch)), dim=1)
            scored += map(tuple, self.accelerator.gather_for_metrics(both).tolist())
        return scored

    @functools.cached_property
    def reference_key(self) -> str:
        """The key of this reference: its weights, how they were loaded, and the precision of its computation.

        The attention implementation counts, since models exist whose implementations compute different things (soft
        caps, sinks). It is the one before prompts are shared, which does not change log-probs.
        """
        loading = cast(dict[str, Any], self.args.model_init_kwargs or {})
        settings = self.model.config.to_dict()
        parts = [
            Checkpoint(self.base, loading.get("revision") or "main").fingerprint(WEIGHTS),
            getattr(self.model.config, "_commit_hash", None),
            with_effect(settings),
            {option: value for option, value in loading.items() if option not in RESOLVED | settings.keys()},
            self.model.config._attn_implementation,
            self.model.dtype,
            self.accelerator.mixed_precision,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def with_effect(configuration: dict[str, Any]) -> dict[str, Any]:
    """The settings of a model's configuration, nested ones included, that can change its log-probs."""
    return {
        key: with_effect(value) if isinstance(value, dict) else value
        for key, value in configuration.items()
        if key not in WITHOUT_EFFECT
    }


class OnTrainBegin(TrainerCallback):
    """Call a function when training begins, once the model is sharded and compiled."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The trainer's hook after the model was wrapped and before the first step."""
        self.function()


def pair_key(pair: dict[str, Any], ld_alpha: float | None = None) -> str:
    """The key of a pair: its tokens, and the weight of the longer completion's tail, if any."""
    parts = [pair["prompt_ids"], pair["chosen_ids"], pair["rejected_ids"], ld_alpha]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read(folder: Path, keys: set[str]) -> dict[str, tuple[float, float]]:
    """The stored log-probs of chosen and rejected, by pair key."""
    records = (record for file in sorted(folder.glob("*.jsonl")) for _, record in jsonl.read(file))
    return {record["pair"]: (record["chosen"], record["rejected"]) for record in records if record["pair"] in keys}


def write(folder: Path, pairs: dict[str, tuple[float, float]]) -> None:
    """Store log-probs of pairs in a new file, so that concurrent runs need no lock."""
    records = ({"pair": key, "chosen": chosen, "rejected": rejected} for key, (chosen, rejected) in pairs.items())
    jsonl.write(folder / f"{uuid.uuid4().hex}.jsonl", records)
