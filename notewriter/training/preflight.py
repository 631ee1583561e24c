"""Check a training run before it is paid for.

    notewriter preflight --config dpo/deepnote_qwen2.5-7b --pairs data/pairs --gpus 8 --sharding zero3 --gpu A100

takes the options of `notewriter train dpo` (with `data` instead of `pairs` those of `train sft`, with `--method kto`
those of `train kto`) and runs everything up to the first step: reading, tokenising and checking every row. It shows the
lengths by stage, the trained tokens of a few rows, and the needs of the run. With --rows it reads no data and only
estimates a run over so many rows: computed, not measured, by the formulas of
notewriter/training/cost/cost_model.py.
"""

import sys
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Interval
from datasets import Dataset
from trl import DPOConfig, ModelConfig, pack_dataset
from trl.trainer.utils import add_fused_lm_head

from notewriter.ground import config
from notewriter.ground.config import choose
from notewriter.ground.errors import UserError, writing
from notewriter.ground.options import option
from notewriter.rollouts.shortcuts import SidesTally
from notewriter.training.cost import cost_model
from notewriter.training.inputs import overview, pairs, rows
from notewriter.training.inputs.checks import check_vocabulary
from notewriter.training.inputs.rendering import load_tokenizer, stop_tokens
from notewriter.training.model import weights
from notewriter.training.options import (
    OPTIONS,
    Configuration,
    DPOArguments,
    KTOConfiguration,
    PairArguments,
    SFTArguments,
    SFTConfiguration,
    check_packing,
)
from notewriter.training.sampler import BY_PROMPT
from notewriter.training.sharing import prefix_sharing
from notewriter.training.training import METHODS


@dataclass
class PreflightArguments(cost_model.MachineArguments):
    """The options of `notewriter preflight` beside those of the training script."""

    method: str | None = option(
        None, "dpo, kto or sft; --help lists the options of this method; default: sft with --data, and dpo otherwise"
    )

    show: Annotated[int, Interval(ge=0)] = option(1, "number of rows of each stage to show")
    rows: Annotated[int, Interval(ge=1, le=10**12)] | None = option(
        None, "only estimate, without data: number of rows, each of prompt_tokens and completion_tokens"
    )
    prompt_tokens: Annotated[int, Interval(ge=1, le=10**9)] = option(2000, "with rows: tokens of each prompt")
    completion_tokens: Annotated[int, Interval(ge=1, le=10**9)] = option(120, "with rows: tokens of each completion")


def main(argv: list[str]) -> None:
    """Command `notewriter preflight`."""
    given = config.given(argv)
    if given.keys().isdisjoint({"pairs", "data", "help"}) and "-h" not in argv:
        raise UserError(
            "--pairs and --data are missing; give --pairs a folder of preference pairs for DPO, or --data a folder of "
            "conversations for SFT"
        )
    method = given.get("method") or ("sft" if "data" in given else "dpo")
    machine, arguments, training, model = config.parse(
        [PreflightArguments, *choose("method", str(method), OPTIONS), ModelConfig],
        # A node without GPUs may check a run that has them.
        [*argv, "--bf16", "false", "--fp16", "false"],
        prog="notewriter preflight",
        description=__doc__,
    )
    training.accumulate(machine.gpus)
    shared = isinstance(arguments, DPOArguments) and arguments.prefix_sharing
    packed = training.max_length if isinstance(training, SFTConfiguration) and training.packing else None
    if machine.rows:
        completions = (machine.completion_tokens,) * (2 if isinstance(arguments, PairArguments) else 1)
        one = cost_model.load_of(trained_apart([(machine.prompt_tokens, *completions)], training), shared)
        count = -(-machine.rows // max(packed // one.longest, 1)) if packed else machine.rows * one.rows
        size = replace(one, rows=count, forward_tokens=machine.rows * one.forward_tokens)
    else:
        dataset = check_data(machine, arguments, training, model)
        if shared:
            check_sharing(model)
        size = cost_model.load_of(trained_apart(cost_model.sizes_of(dataset), training), shared)
        if shared and isinstance(training, DPOConfig) and training.train_sampling_strategy in ("sequential", BY_PROMPT):
            repeated = cost_model.repeated_tokens(dataset, training.per_device_train_batch_size)
            size = replace(size, forward_tokens=size.forward_tokens - repeated)
        if packed:
            with writing(rows.cache()):
                size = replace(size, rows=len(pack_dataset(dataset.select_columns(["input_ids"]), packed)))
    half, shape = cost_model.in_half_precision(argv), cost_model.shape_of(model)
    needed = cost_model.estimate(shape, size, machine, training, model, half, arguments.peak_tflops)
    sys.stdout.write(cost_model.table(needed))


def check_data(
    machine: PreflightArguments,
    arguments: PairArguments | SFTArguments,
    training: Configuration,
    model: ModelConfig,
) -> Dataset:
    """Check all rows as training does, and show some; returns the tokenised rows of the training split.

    Raises:
        UserError: training would refuse the model or the data.
    """
    base = weights.named_base(model)
    tokenizer = load_tokenizer(base, model.model_revision, arguments.chat_template_kwargs)
    stops = stop_tokens(base, model.model_revision, tokenizer)

    if isinstance(training, SFTConfiguration):
        check_packing(training, model)
    source, load = METHODS["dpo" if isinstance(arguments, PairArguments) else "sft"]
    with writing(rows.cache()):
        dev = training.eval_strategy != "no"
        files = rows.find_splits(getattr(arguments, source), f"--{source}", dev=dev)
        datasets, dropped = load(files, tokenizer, stops, training, arguments)
    check_vocabulary(datasets, tokenizer, base, model.model_revision)
    for split, dataset in datasets.items():
        sys.stdout.write(f"{files[split]}: {len(dataset)} rows pass; {dropped[split]} dropped as too long\n")
    sys.stdout.write(overview.overview(datasets["train"], tokenizer, machine.show))
    if isinstance(arguments, PairArguments):
        tally = SidesTally()
        tally.add(row for row in pairs.stream(files["train"], labelled=True) if row["chosen"] and row["rejected"])
        card = files["train"].with_name("README.md")
        where = f"see the card of the pairs, {card}" if card.is_file() else "see Shortcuts in docs/data_construction.md"
        sys.stdout.writelines(f"warning: {line}; {where}\n" for line in tally.warnings())
    return datasets["train"]


def check_sharing(model: ModelConfig) -> None:
    """Raise a `UserError` where the model cannot share prompts."""
    network = cost_model.without_weights(model)
    add_fused_lm_head(network)
    prefix_sharing.share_prefixes(network)


def trained_apart(sizes: list[tuple[int, ...]], training: Configuration) -> list[tuple[int, ...]]:
    """The rows of a run: KTO trains on each side of a pair as a row of its own."""
    if not isinstance(training, KTOConfiguration):
        return sizes
    return [(prompt, completion) for prompt, *completions in sizes for completion in completions if completion]
