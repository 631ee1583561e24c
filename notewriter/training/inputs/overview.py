"""The overview of a run's data: rows and lengths by stage, and a preview with the trained tokens marked."""

import logging
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl import DPOConfig, KTOConfig, SFTConfig

from notewriter.ground.terminal import escape_controls
from notewriter.training.inputs.checks import Sample, pair_samples, trained_runs
from notewriter.training.inputs.rendering import text_of
from notewriter.training.inputs.rows import IGNORED, count_by_stage

logger = logging.getLogger(__name__)

TRAINED_MARKS = ("⟦", "⟧")


def show(
    files: Mapping[str, Path],
    datasets: Mapping[str, Dataset],
    dropped: Mapping[str, int],
    tokenizer: PreTrainedTokenizerBase,
    training: DPOConfig | KTOConfig | SFTConfig,
) -> None:
    """Log the rows of each split, and write the overview of the training split to standard error."""
    for split, dataset in datasets.items():
        logger.info(
            "%s: %d rows (%s); %d dropped as longer than %s tokens",
            files[split],
            len(dataset),
            ", ".join(f"{stage} {count}" for stage, count in count_by_stage(dataset).items()),
            dropped[split],
            training.max_length,
        )
    if training.process_index == 0:
        sys.stderr.write(overview(datasets["train"], tokenizer) + "\n")


def overview(dataset: Dataset, tokenizer: PreTrainedTokenizerBase, rows: int = 1) -> str:
    """Lengths by stage, and a preview of the first rows of each stage."""
    lengths: dict[str, list[int]] = {}
    shown: list[Sample] = []
    for row, (stage, length) in enumerate(zip(dataset["stage"], dataset["length"], strict=True)):
        lengths.setdefault(stage, []).append(length)
        if len(lengths[stage]) <= rows:
            sample = dataset[row]
            shown += pair_samples(sample) if "chosen_ids" in sample else [sample]
    return lengths_by_stage(lengths) + "".join(preview(sample, tokenizer) for sample in shown)


def lengths_by_stage(lengths: Mapping[str, Sequence[int]]) -> str:
    """A line per stage: rows, and quantiles of their lengths in tokens."""
    width = max(len("stage"), *(len(escape_controls(stage)) for stage in lengths))
    lines = [f"{'stage':{width}}  {'rows':>7} {'min':>6} {'median':>6} {'95%':>6} {'max':>6} tokens"]
    for stage, values in sorted(lengths.items()):
        ordered = sorted(values)
        lines.append(
            f"{escape_controls(stage):{width}}  {len(ordered):>7} {ordered[0]:>6} {statistics.median_low(ordered):>6} "
            f"{ordered[int(0.95 * (len(ordered) - 1))]:>6} {ordered[-1]:>6}"
        )
    return "\n".join(lines) + "\n"


def preview(sample: Sample, tokenizer: PreTrainedTokenizerBase, context: int = 60) -> str:
    """A row as text with its trained parts marked; longer masked parts are shortened to `context` tokens at each end.

    Control characters are escaped, so that the text has no effect on a terminal.
    """
    ids, labels = sample["input_ids"], sample["labels"]
    trained = sum(label != IGNORED for label in labels)
    side = f", {sample['side']}" if "side" in sample else ""
    title = f"{sample['stage']}, {sample['row']}{side}"
    parts = [f"--- {escape_controls(title)}: {trained} of {len(ids)} tokens are trained\n"]
    shown = 0
    for start, end in [*trained_runs(labels), (len(ids), len(ids))]:
        masked = ids[shown:start]
        if len(masked) > 2 * context:
            left_out = len(masked) - 2 * context
            text = f"{_text(masked[:context], tokenizer)} [... {left_out} tokens ...] "
            text += _text(masked[-context:], tokenizer)
        else:
            text = _text(masked, tokenizer)
        parts.append(text)
        if end > start:
            opening, closing = TRAINED_MARKS
            parts.append(f"{opening}{_text(ids[start:end], tokenizer)}{closing}")
        shown = end
    return "".join(parts) + "\n"


def _text(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> str:
    return escape_controls(text_of(ids, tokenizer))
