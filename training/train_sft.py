"""Fine-tune on chains, prompts with completions, or the better side of pairs, on any number of processes.

    accelerate launch --quiet --config_file configs/accelerate/zero3.yaml training/train_sft.py \
        --config configs/sft/rearag_glm4-9b.yaml --data data/chains
"""

import sys

from notewriter.ground.errors import run
from notewriter.training.overrides import start

if __name__ == "__main__":
    run(lambda: start("notewriter.training.sft", sys.argv[1:]))
