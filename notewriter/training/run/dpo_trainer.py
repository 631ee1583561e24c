"""The trainer of DPO and of the losses without a reference: TRL's, with shared prompts and cached log-probs."""

import copy
import functools
import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import send_to_device
from datasets import Dataset
from torch.utils.data import DataLoader, Sampler
from tqdm import tqdm
from transformers import PreTrainedModel, TrainerCallback
from trl import DPOConfig, DPOTrainer
from trl.models import prepare_deepspeed

from notewriter.models.checkpoint import WEIGHTS, Checkpoint
from notewriter.training.run.losses import is_reference_free, odds_ratio, simpo
from notewriter.training.run.recomputation import bare
from notewriter.training.run.resumption import on_main_process
from notewriter.training.run.steps import OnPairs
from notewriter.training.sampler import BY_PROMPT, by_prompt, rows_by_prompt
from notewriter.training.sharing import reference, self_check
from notewriter.training.sharing.prefix_sharing import share_prefixes

logger = logging.getLogger(__name__)


class MeteredDPOTrainer(OnPairs, DPOTrainer):
    """TRL's DPOTrainer with shared prompts, losses without a reference, and a cache of the reference's log-probs.

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
        self.sizes: dict[str, list[int]] = {}
        self.is_reference_free = is_reference_free(arguments["args"].loss_type)
        if self.is_reference_free:
            # TRL keeps no reference where the log-probs are there; under FSDP it loads one all the same, and frees it.
            arguments["args"] = copy.copy(arguments["args"])
            arguments["args"].precompute_ref_log_probs = True
        super().__init__(model=model, **arguments)
        self.share_prompts()
        if prefix_sharing:
            self.add_callback(OnTrainBegin(self.check_sharing))

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int] | None:
        """With `train_sampling_strategy: prompts`, an order in which the pairs of one prompt follow each other."""
        if self.args.train_sampling_strategy != BY_PROMPT:
            return super()._get_train_sampler(train_dataset)
        pairs = self.train_dataset if train_dataset is None else train_dataset
        return self.of_epoch(len(pairs), functools.partial(by_prompt, rows_by_prompt(pairs["prompt_ids"])))

    def share_prompts(self) -> None:
        """With `prefix_sharing`, make the model and the reference model, if there is one, share prompts."""
        if self.prefix_sharing:
            for scored in self.scored():
                share_prefixes(bare(scored, self.accelerator))

    def scored(self) -> list[torch.nn.Module]:
        """The models that score pairs, wrapped as the run calls them."""
        # `is not None`: the truth value of a compiled module is its length.
        return [model for model in (self.model_wrapped, self.ref_model) if model is not None]

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
            self_check.check(model, bare(model, self.accelerator), batches, self.accelerator)

    def compute_ref_log_probs(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
        """TRL's method, after a first check that sharing prompts does not change the reference's scores."""
        if self.prefix_sharing and not self.reference_is_checked:
            self.check_sharing(model)
            self.reference_is_checked = True
        return super().compute_ref_log_probs(model, inputs)  # type: ignore[no-untyped-call]

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """Add `reference.COLUMNS`, from the cache; missing pairs are computed by all processes and stored."""
        if self.is_reference_free:
            return dataset
        keys = [reference.pair_key(pair, self.ld_alpha) for pair in dataset]
        # Only the main process reads and writes: the others may not see its disk.
        folder = on_main_process(lambda: self.reference_cache / self.reference_key)
        stored = on_main_process(lambda: reference.read(folder, set(keys)))
        self.share_prompts()

        missing = [row for row, key in enumerate(keys) if key not in stored]
        cached_pairs = len(keys) - len(missing)
        logger.info("%s: the reference log-probs of %d of %d pairs are in %s", name, cached_pairs, len(keys), folder)
        for start in range(0, len(missing), reference.CHUNK):
            rows = missing[start : start + reference.CHUNK]
            progress = f"reference log-probs, {name} ({start + len(rows)} of {len(missing)})"
            computed = self.score_reference(dataset.select(rows), progress, batch_size)
            new = {keys[row]: pair for row, pair in zip(rows, computed, strict=True)}
            on_main_process(functools.partial(reference.write, folder, new))
            stored |= new
        for place, column in enumerate(reference.COLUMNS):
            dataset = dataset.add_column(column, [stored[key][place] for key in keys])
        return dataset

    def score_reference(self, pairs: Dataset, progress: str, batch_size: int) -> list[tuple[float, float]]:
        """The reference's log-probs of chosen and rejected; every process computes a share of them.

        TRL's method hands them on in a file, which machines without a common disk do not see.
        """
        scorer: Any = self.model if self.ref_model is None else self.ref_model
        if self.ref_model is None and self.is_deepspeed_enabled:
            # Until training begins DeepSpeed has neither placed the model nor gathered its shards.
            if self._precompute_engine is None:
                self._precompute_engine = prepare_deepspeed(self.model, self.accelerator)
            scorer = self._precompute_engine
        loader: DataLoader[Any] = DataLoader(cast(Any, pairs), batch_size, collate_fn=self.data_collator)
        scored: list[tuple[float, float]] = []
        main = self.accelerator.is_main_process
        for batch in tqdm(self.accelerator.prepare(loader), desc=progress, unit="batch", disable=not main):
            both = torch.stack(tuple(self.compute_ref_log_probs(scorer, batch)), dim=1)
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
            reference.with_effect(settings),
            {option: value for option, value in loading.items() if option not in reference.RESOLVED | settings.keys()},
            self.model.config._attn_implementation,
            self.model.dtype,
            self.accelerator.mixed_precision,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's method, but rewards are means over pairs: TRL averages forwards, and dev's last one is often short."""
        mode = "train" if self.model.training else "eval"
        sizes = self.sizes.pop(mode, [])
        for name, values in self._metrics[mode].items():
            if name.startswith(("rewards/", "logps/")) and len(values) == len(sizes):
                of_all = sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)
                self._metrics[mode][name] = [of_all]
        super().log(logs, start_time)

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], return_outputs: bool) -> Any:
        """The loss of stacked pairs, `[chosen; rejected]`, as its share of a step; its metrics are named as TRL's."""
        of_pairs, of_tokens = self.shares(inputs)
        self.sizes.setdefault("train" if self.model.training else "eval", []).append(len(inputs["input_ids"]))
        if not self.is_reference_free:
            weights = self.loss_weights
            both = zip(self.loss_types, weights, strict=True)
            self.loss_weights = [weight * (of_tokens if loss == "sft" else of_pairs) for loss, weight in both]
            try:
                return super()._compute_loss(model, inputs, return_outputs)  # type: ignore[no-untyped-call]
            finally:
                self.loss_weights = weights
        trained = inputs["completion_mask"]
        outputs = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            labels=inputs["input_ids"].masked_fill(trained == 0, -100),
            use_cache=False,
            fused_lm_head=True,
            **({"output_router_logits": True} if self.aux_loss_enabled else {}),
        )
        tokens = trained[:, 1:].sum(1)
        # As in TRL: some adapters put tokens of their own before the prompt.
        summed = outputs.log_probs[:, 1 - trained.shape[1] :].sum(1).float()
        chosen, rejected = (summed / tokens.clamp(min=1)).chunk(2)
        likelihood = -summed.chunk(2)[0].sum() / tokens.chunk(2)[0].sum()

        beta, gamma = self.beta, self.args.simpo_gamma  # type: ignore[attr-defined]
        terms = {
            "simpo": simpo(chosen, rejected, beta, gamma).mean() * of_pairs,
            "orpo": likelihood * of_tokens + beta * odds_ratio(chosen, rejected).mean() * of_pairs,
            "sft": likelihood * of_tokens,
        }
        weighted = zip(self.loss_weights, self.loss_types, strict=True)
        loss: torch.Tensor = torch.stack([weight * terms[name] for weight, name in weighted]).sum()
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * outputs.aux_loss

        rewards = beta * chosen.detach(), beta * rejected.detach()
        logged = {
            "rewards/chosen": rewards[0],
            "rewards/rejected": rewards[1],
            "rewards/margins": rewards[0] - rewards[1],
            "rewards/accuracies": (rewards[0] > rewards[1]).float(),
            "logps/chosen": summed.detach().chunk(2)[0],
            "logps/rejected": summed.detach().chunk(2)[1],
            "nll_loss": likelihood.detach()[None],
        }
        mode = "train" if self.model.training else "eval"
        for metric, values in logged.items():
            self._metrics[mode][metric].append(self.accelerator.gather(values).mean().item())
        if mode == "train":
            counted = self.accelerator.gather(inputs["attention_mask"].sum()).sum().item()
            self._total_train_tokens += counted // self._tp_size
        self._metrics[mode]["num_tokens"] = [self._total_train_tokens]
        return (loss, outputs) if return_outputs else loss


class OnTrainBegin(TrainerCallback):
    """Call a function when training begins, once the model is sharded and compiled."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """The trainer's hook after the model was wrapped and before the first step."""
        self.function()
