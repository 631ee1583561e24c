"""Kahneman-Tversky Optimization (Ethayarajh et al. 2024, https://arxiv.org/abs/2402.01306) on preference pairs.

Each side of a pair is a row of its own, the chosen one desirable and the rejected one not, in an order that is drawn
once with the seed. The trainer is TRL's KTOTrainer, with DPO's pairs, checks and records, but without shared prompts
and cached reference log-probs:

    notewriter train kto --accelerate zero3 --config kto/deepnote_qwen2.5-7b --pairs data/pairs

In a clone `accelerate launch training/train_kto.py` does the same, with the files of configs/accelerate.

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. An interrupted run
resumes from its last checkpoint when the same command is given again; a finished run prints that it is finished.
"""

import sys

from notewriter.ground.errors import run
from notewriter.training.training import train


def main(argv: list[str]) -> None:
    """One KTO run, or the rest of it (`training.train`)."""
    train("kto", argv, __doc__)


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
