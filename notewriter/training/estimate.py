"""Estimate what a training run will need before there is data: memory of each GPU, tokens, steps and hours.

    python -m notewriter.training.estimate --config configs/dpo/deepnote_qwen2.5-7b.yaml --rows 6000 \
        --prompt_tokens 2000 --completion_tokens 120 --gpus 8 --sharding zero3 --gpu A100

takes the options of training/train_dpo.py or, with --method sft, of training/train_sft.py. The numbers are computed,
not measured; notewriter/training/run/cost_model.py has the formulas.
"""

import sys
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Interval
from trl import ModelConfig

from notewriter.ground import config
from notewriter.ground.config import choose
from notewriter.ground.errors import run
from notewriter.training.options import DPOArguments, DPOConfiguration, SFTArguments, SFTConfiguration
from notewriter.training.run.cost_model import Load, MachineArguments, estimate, in_half_precision, shape_of, table


@dataclass
class DataSizeArguments:
    """The size of data that does not exist yet."""

    method: str = field(default="dpo", metadata={"help": "dpo or sft"})
    rows: Annotated[int, Interval(ge=1, le=10**12)] = field(default=6000, metadata={"help": "rows of an epoch"})
    prompt_tokens: Annotated[int, Interval(ge=1, le=10**9)] = field(
        default=2000, metadata={"help": "tokens of each prompt"}
    )
    completion_tokens: Annotated[int, Interval(ge=1, le=10**9)] = field(
        default=120, metadata={"help": "tokens of each completion"}
    )


def main(argv: list[str]) -> None:
    """Print the estimate for a training configuration and rows of a given size."""
    methods = {"dpo": [DPOArguments, DPOConfiguration], "sft": [SFTArguments, SFTConfiguration]}
    options = choose("method", config.given(argv).get("method", "dpo"), methods)
    size, machine, arguments, training, model = config.parse(
        [DataSizeArguments, MachineArguments, *options, ModelConfig],
        [*argv, "--bf16", "false"],
        prog="python -m notewriter.training.estimate",
        description=__doc__,
    )
    sides = 2 if size.method == "dpo" else 1
    prompts = 1 if isinstance(arguments, DPOArguments) and arguments.prefix_sharing else sides
    row = prompts * size.prompt_tokens + sides * size.completion_tokens
    length = size.prompt_tokens + size.completion_tokens
    load = Load(size.rows, size.rows * row, row, length, sides * size.completion_tokens)
    half = in_half_precision(argv)
    sys.stdout.write(table(estimate(shape_of(model), load, machine, training, model, half, arguments.peak_tflops)))


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
