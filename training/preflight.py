"""Look at what a training run would do, before it is paid for.

    notewriter preflight --config configs/dpo/deepnote_qwen2.5-7b.yaml --gpus 8 --sharding zero3 --gpu A100

takes the options of training/train_dpo.py (or, where there is `data` and not `pairs`, of training/train_sft.py) and
runs all that comes before the first step: reading, tokenising and checking every row. It shows the lengths by stage,
what is trained in a few rows, and what the run will need. With --base_url and --model it asks a running vLLM server
for the tokens of some rows, which have to be training's.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from datasets import Dataset
from trl import ModelConfig
from trl.trainer.utils import add_fused_lm_head

from notewriter import config
from notewriter.errors import UserError, writing
from notewriter.models import checkpoints
from notewriter.models.connection import check_address
from training import (
    base_model,
    chat_templates,
    checks,
    conversations,
    estimate,
    pairs,
    train_dpo,
    train_sft,
)
from training.prefix_sharing import share_prefixes


@dataclass
class Arguments(estimate.Arguments):
    """What to show, and what to compare with; the rest are the training script's options."""

    show: Annotated[int, Interval(ge=0)] = field(default=1, metadata={"help": "so many rows of each stage are shown"})
    base_url: str | None = field(
        default=None, metadata={"help": "a running vLLM server, e.g. http://node7:8000/v1, whose tokens are compared"}
    )
    model: str | None = field(default=None, metadata={"help": "the model's name at base_url"})
    compare: Annotated[int, Interval(ge=1)] = field(
        default=20, metadata={"help": "so many rows are compared with the server's tokens"}
    )


def main(argv: list[str]) -> None:
    """Command `notewriter preflight`."""
    named = config.given(argv).keys()
    if named.isdisjoint({"pairs", "data", "help"}) and "-h" not in argv:
        raise UserError(
            "--pairs and --data are missing; give --pairs the folder of preference pairs that DPO is to train on, or "
            "--data that of conversations for SFT"
        )
    script: Any = train_dpo if "pairs" in named else train_sft
    # A node without GPUs may look at a run that has them.
    options = [*argv, "--bf16", "false", "--fp16", "false"]
    machine, arguments, training, model = config.parse(
        [Arguments, script.Arguments, script.Configuration, ModelConfig],
        options,
        prog="notewriter preflight",
        description=__doc__,
    )
    if machine.base_url and not machine.model:
        raise UserError("base_url is set and model is not; add --model NAME, as the server calls it")
    if machine.base_url:
        check_address(machine.base_url)
    if model.model_name_or_path is None:
        raise UserError("--model_name_or_path is missing; give a model's folder or its name on the Hugging Face Hub")
    base = checkpoints.check_model(model.model_name_or_path)
    tokenizer, _ = base_model.load_base(base, model.model_revision)
    chat_templates.set_variables(tokenizer, arguments.chat_template_kwargs)
    stops = base_model.stop_tokens(base, model.model_revision, tokenizer)
    source, option = (arguments.pairs, "--pairs") if script is train_dpo else (arguments.data, "--data")
    files = pairs.find(source, option)
    with writing(pairs.cache()):
        datasets, dropped = script.load(arguments, training, tokenizer, stops, files)
    if machine.base_url:
        split_turns = getattr(arguments, "split_turns", False)
        compared = server_rows(files["train"], datasets["train"], tokenizer, stops, machine.compare, split_turns)
        checks.check_server(machine.base_url, machine.model, compared, arguments.chat_template_kwargs)
    for split, dataset in datasets.items():
        sys.stdout.write(f"{files[split]}: {len(dataset)} rows pass; {dropped[split]} dropped as too long\n")
    if machine.base_url:
        sys.stdout.write(f"{machine.base_url}: the same token ids in {len(compared)} places of {source}\n")
    sys.stdout.write(checks.overview(datasets["train"], tokenizer, sys.stdout.isatty(), machine.show))
    shared = getattr(arguments, "prefix_sharing", False)
    if shared:
        network = estimate.without_weights(model)
        # Those that come with PyTorch; others need packages that a login node may lack.
        if model.attn_implementation in {"eager", "sdpa", "flex_attention"}:
            network.set_attn_implementation(model.attn_implementation)
        add_fused_lm_head(network)
        share_prefixes(network)
    load = load_of(datasets["train"], shared)
    half = estimate.in_half_precision(argv)
    needed = estimate.estimate(estimate.shape_of(model), load, machine, training, model, half, arguments.peak_tflops)
    sys.stdout.write(estimate.table(needed))


def load_of(dataset: Dataset, shared: bool) -> estimate.Load:
    """How much a run over tokenised pairs or conversations computes; `shared`: a pair's prompt counts once."""
    if "labels" in dataset.column_names:
        lengths = dataset["length"][:]
        longest = max(range(len(lengths)), key=lengths.__getitem__)
        trained = sum(label != conversations.IGNORED for label in dataset[longest]["labels"])
        return estimate.Load(len(lengths), sum(lengths), lengths[longest], lengths[longest], trained)
    sizes = [
        (len(prompt), len(chosen), len(rejected))
        for prompt, chosen, rejected in zip(
            dataset["prompt_ids"], dataset["chosen_ids"], dataset["rejected_ids"], strict=True
        )
    ]
    rows = [(1 if shared else 2) * prompt + chosen + rejected for prompt, chosen, rejected in sizes]
    return estimate.Load(
        rows=len(rows),
        forward_tokens=sum(rows),
        longest=max(rows),
        longest_sequence=max(prompt + max(chosen, rejected) for prompt, chosen, rejected in sizes),
        trained=max(chosen + rejected for _, chosen, rejected in sizes),
    )


def server_rows(
    file: Path, dataset: Dataset, tokenizer: Any, stops: frozenset[int], count: int, split_turns: bool
) -> list[tuple[str, list[Mapping[str, str]], bool, list[int]]]:
    """What to ask a server about: the places of the first rows where the model is to write, and their tokens.

    The tokens are those that are trained, so that an answer that differs is a difference in training.
    """
    if "prompt_ids" in dataset.column_names:
        return [
            (pairs.place(pair), pair["prompt"], True, pair["prompt_ids"])
            for pair in dataset.select(range(min(count, len(dataset))))
        ]
    asked = []
    rows = conversations.read(file, split_turns)
    for conversation in rows.select(range(min(count, len(rows)))):
        messages, first = conversation["messages"], conversation["trained_from"]
        labelled = conversations.label(messages, first, tokenizer, stops)
        starts = iter(checks.trained_runs(labelled["labels"]))
        for number, message in enumerate(messages):
            if message["role"] == "assistant" and number >= first:
                start, _ = next(starts)
                name = f"{pairs.place(conversation)}, message {number}"
                asked.append((name, messages[:number], True, labelled["input_ids"][:start]))
    return asked
