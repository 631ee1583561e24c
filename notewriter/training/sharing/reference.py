"""The reference log-probs of every pair, computed once for all runs that start from the same weights.

TRL's own cache computes them again when the configuration changes, and under ZeRO-3 its key sees no weights. Here the
key of a pair has all that its log-probs depend on: the reference's weights, its loaded configuration, the precision of
the computation, and the pair's tokens. A sweep over learning rates, betas, losses or output folders computes them in
its first run, and the other runs load no reference model; of pairs that are added later, only the new ones are
computed.
"""

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

from notewriter.ground import jsonl

CHUNK = 1024
"""Pairs after which their log-probs are stored: a killed run repeats at most this many."""

WITHOUT_EFFECT = {
    "_name_or_path",
    "transformers_version",
    # The type that weights are stored in; the precision of the computation is a part of its own.
    "dtype",
    "torch_dtype",
    # What a forward returns beside its logits; padding, which follows from the pairs, is masked.
    "use_cache",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
}
"""Settings of a model's configuration that cannot change its log-probs."""

RESOLVED = {"revision", "dtype", "attn_implementation", "device_map"}
"""Loading options that cannot change log-probs, or whose effect the loaded model shows."""

COLUMNS = ("ref_chosen_logps", "ref_rejected_logps")
"""TRL's columns of the summed log-probs of a pair's completions under the reference."""


def with_effect(configuration: dict[str, Any]) -> dict[str, Any]:
    """The settings of a model's configuration, nested ones included, that can change its log-probs."""
    return {
        key: with_effect(value) if isinstance(value, dict) else value
        for key, value in configuration.items()
        if key not in WITHOUT_EFFECT
    }


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
