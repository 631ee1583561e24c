"""The reference model's log-probs of every pair, computed once for all runs that start from the same weights.

TRL's own cache asks for them again when the configuration changes, and under ZeRO-3 its key sees no weights. Here the
key of a pair is what its log-probs depend on: the reference's weights, the precision they are computed in, and the
pair's tokens. A sweep over learning rates, betas, losses or output folders computes them in its first run, and the
others load no reference model; pairs that were added later are the only ones computed then.
"""

import hashlib
import json
import logging
import uuid
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from datasets import Dataset
from peft import PeftModel
from trl import DPOTrainer

from notewriter import jsonl, models
from notewriter.errors import UserError
from training.prefix_sharing import share_prefixes

logger = logging.getLogger(__name__)

CHUNK = 1024
"""Pairs after which their log-probs are written down: a killed run computes at most as many again."""

COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
"""What TRL calls the summed log-probs of a pair's completions under the reference."""


class Trainer(DPOTrainer):
    """TRL's DPOTrainer, which can share prompts and keeps what `precompute_ref_log_probs` computes.

    Args:
        model: the name or folder of the base model, which is also the reference.
        prefix_sharing: whether scoring shares a pair's prompt (`training.prefix_sharing`).
        reference_cache: where the log-probs are kept, in a folder a reference; only the first process uses it.

    Raises:
        UserError: the model cannot share prompts, or the installed TRL does not fit.
    """

    def __init__(self, model: str, *, prefix_sharing: bool, reference_cache: Path, **arguments: Any) -> None:
        if arguments["args"].precompute_ref_log_probs and not hasattr(DPOTrainer, "_precompute_ref_logps"):
            raise UserError("this version of TRL precomputes otherwise than 1.16; set precompute_ref_log_probs: false")
        if not hasattr(DPOTrainer, "_prepare_dataset"):
            raise UserError("this version of TRL prepares pairs otherwise than 1.16; install trl==1.16.0")
        self.base = model
        self.prefix_sharing = prefix_sharing
        self.reference_cache = reference_cache
        super().__init__(model=model, **arguments)
        self.share_prompts()

    def share_prompts(self) -> None:
        """Have the model, and the reference model where there is one, share prompts if that is wanted."""
        if not self.prefix_sharing:
            return
        for scored in filter(None, (self.model, self.ref_model)):
            unwrapped = self.accelerator.unwrap_model(scored)
            unwrapped = unwrapped.get_base_model() if isinstance(unwrapped, PeftModel) else unwrapped
            share_prefixes(unwrapped, self.args.max_length)

    def _prepare_dataset(self, dataset: Dataset, *arguments: Any) -> Dataset:
        """A dataset that has token ids stays as it is, and TRL finds those of any other.

        TRL adds no end of turn where the chat template has none (GLM-4's), and would render checked pairs again.
        """
        if "prompt_ids" in dataset.column_names:
            return dataset
        return super()._prepare_dataset(dataset, *arguments)

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        """The dataset with `COLUMNS`, from the cache or, what is not there, computed by all processes and put there."""
        self.share_prompts()
        keys = [pair_key(pair, self.ld_alpha) for pair in dataset]
        # The first process alone reads and writes: the others need not see its disk.
        shared: list[Any] = [None, None]
        if self.accelerator.is_main_process:
            folder = self.reference_cache / self.reference_key()
            shared = [folder, read(folder, set(keys))]
        folder, known = broadcast_object_list(shared)

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

    def reference_key(self) -> str:
        """What tells this reference from others: its weights, and the precision that it is run in."""
        configuration = self.model.config
        parts = [
            models.fingerprint(self.base),
            getattr(configuration, "_commit_hash", None),
            self.model.dtype,
            self.accelerator.mixed_precision,
            getattr(configuration, "quantization_config", None),
        ]
        return hashlib.sha256("\n".join(str(part) for part in parts).encode()).hexdigest()


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
