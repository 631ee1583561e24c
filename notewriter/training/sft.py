"""Supervised fine-tuning on chains, prompts with completions, or the better side of pairs.

ReaRAG's SFT (arXiv 2503.21729, equation 2): the loss is on the assistant's words, thoughts and actions; question,
instructions and observations are masked. The mask is found for any chat template by rendering each conversation up to
each turn, as a server does.

    notewriter train sft --accelerate zero3 --config sft/rearag_glm4-9b --data data/chains

In a clone `accelerate launch training/train_sft.py` does the same, with the files of configs/accelerate.

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. An interrupted run
resumes from its last checkpoint when the same command is given again; a finished run prints that it is finished.
"""

import sys

from notewriter.ground.errors import run
from notewriter.training.training import train


def main(argv: list[str]) -> None:
    """One SFT run, or the rest of it (`training.train`)."""
    train("sft", argv, __doc__)


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
