"""Direct Preference Optimization (Rafailov et al. 2023, https://arxiv.org/abs/2305.18290) on preference pairs.

All parameters, eight GPUs:

    notewriter train dpo --accelerate zero3 --config dpo/deepnote_qwen2.5-7b --pairs data/pairs

LoRA, one GPU:

    notewriter train dpo --accelerate single --config dpo/deepnote_qwen2.5-7b_lora --pairs data/pairs

`loss_type: [simpo]` and `[orpo]` need no reference model; `notewriter train kto` takes the same pairs.

In a clone `accelerate launch training/train_dpo.py` does the same, with the files of configs/accelerate.

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. An interrupted run
resumes from its last checkpoint when the same command is given again; a finished run prints that it is finished.
"""

import sys

from notewriter.ground.errors import run
from notewriter.training.training import train


def main(argv: list[str]) -> None:
    """One DPO run, or the rest of it (`training.train`)."""
    train("dpo", argv, __doc__)


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
